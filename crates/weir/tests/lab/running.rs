//! A `weir lab run` of the test's own, and what it must not leave behind.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use tempfile::TempDir;
use weir_bpf::sys::netns::NetNs;

use crate::common::{Owned, PATIENCE, WEIR, killed, wait, wait_until, weir_files};

/// A whole run takes seconds; a loaded machine may take its time.
const RUN_PATIENCE: Duration = Duration::from_secs(60);

/// A lab, in a process group of its own. Dropping it kills it and removes what it has made.
pub struct Lab {
    child: Owned,
    /// Its output goes to files: a process that it leaves behind would keep a pipe open.
    output: TempDir,
    /// Its namespaces, held open so that nobody else's can have their inode numbers.
    held: Vec<NetNs>,
}

impl Lab {
    /// Starts `weir lab run udp-overload OPTIONS`.
    pub fn start(options: &[&str]) -> Self {
        Self::start_experiment("udp-overload", options)
    }

    /// Starts `weir lab run EXPERIMENT OPTIONS`.
    pub fn start_experiment(experiment: &str, options: &[&str]) -> Self {
        let output = killed::temp_dir();
        let file = |name| File::create(output.path().join(name)).unwrap();
        let mut command = Command::new(WEIR);
        command.args(["lab", "run", experiment]).args(options).process_group(0);
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        Self { child: Owned::start(&mut command), output, held: Vec::new() }
    }

    /// Waits until it measures in this many namespaces: a host is made when its arm is first measured.
    pub fn wait_for_trials(&mut self, namespaces: usize) {
        let begun = |lab: &Self| lab.namespaces().len() >= namespaces;
        wait_until("the trials begin", || begun(self) || !self.is_running());
        self.held = self.namespaces();
        assert!(self.held.len() >= namespaces, "it ended early: {}", self.stderr());
        assert!(self.files_path().exists());
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(self.output.path().join("stdout")).unwrap()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.output.path().join("stderr")).unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(self.child.pid(), signal).unwrap();
    }

    /// Waits until it has ended; its exit status and messages.
    pub fn end(&mut self) -> (ExitStatus, String) {
        assert!(wait(RUN_PATIENCE, || !self.is_running()), "it does not end: {}", self.stderr());
        (self.child.wait().unwrap(), self.stderr())
    }

    pub fn assert_succeeds(&mut self) {
        let (status, messages) = self.end();
        assert!(status.success(), "{status}: {messages}");
    }

    /// Waits until it has ended as one that a signal interrupts: without a result, or anything left.
    pub fn assert_interrupted(&mut self) {
        let (status, messages) = self.end();
        assert_eq!(status.code(), Some(1), "{messages}");
        assert!(messages.contains("interrupted"), "{messages}");
        assert_eq!(self.stdout(), "");
        self.assert_nothing_left();
    }

    /// Where its files are that say what it holds open.
    fn descriptors(&self) -> String {
        format!("/proc/{}/fd/", self.child.id())
    }

    /// Where its applications' files are.
    pub fn files_path(&self) -> PathBuf {
        Path::new("/run/weir-lab").join(self.child.id().to_string())
    }

    /// The namespaces that it has made and holds open, each once.
    fn namespaces(&self) -> Vec<NetNs> {
        let files = fs::read_dir(self.descriptors()).into_iter().flatten().flatten();
        let is_namespace = |file: &PathBuf| {
            fs::read_link(file)
                .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"net:"))
        };
        let paths = files.map(|file| file.path()).filter(is_namespace);
        let mut all: Vec<NetNs> = paths.filter_map(|path| NetNs::open(path).ok()).collect();
        all.sort_by_key(NetNs::inode);
        all.dedup_by_key(|netns| netns.inode());
        let own = NetNs::current().unwrap().inode();
        all.retain(|netns| netns.inode() != own);
        all
    }

    /// What its daemons keep in `/run/weir`.
    pub fn state_files(&self) -> Vec<String> {
        self.held.iter().flat_map(weir_files).collect()
    }

    /// Processes in its namespaces, or that name one of them: number and command line.
    pub fn processes(&self) -> Vec<String> {
        let inodes: Vec<_> =
            self.held.iter().map(|netns| format!("net:[{}]", netns.inode())).collect();
        let is_inside = |process: &Path| {
            let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            // A process that ends meanwhile is none of these.
            threads
                .filter_map(|thread| fs::read_link(thread.path().join("ns/net")).ok())
                .any(|netns| inodes.iter().any(|inode| netns.as_os_str() == inode.as_str()))
        };
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.file_name().unwrap().as_encoded_bytes()[0].is_ascii_digit())
            .filter(|path| !path.ends_with(std::process::id().to_string()))
            .filter_map(|path| {
                let text = fs::read(path.join("cmdline")).ok()?;
                let text = String::from_utf8_lossy(&text).replace('\0', " ");
                let is_its = text.contains(&self.descriptors()) || is_inside(&path);
                is_its.then(|| format!("{}: {text}", path.display()))
            })
            .collect()
    }

    pub fn assert_no_process_left(&self) {
        let ended = wait(PATIENCE, || self.processes().is_empty());
        assert!(ended, "left behind: {:#?}", self.processes());
    }

    /// Nothing in the system tells that it ever ran.
    pub fn assert_nothing_left(&self) {
        assert!(!self.files_path().exists(), "{} is still there", self.files_path().display());
        self.assert_no_process_left();
        // The guardian may still be at it when the daemon has gone.
        let restored = wait(PATIENCE, || self.state_files().is_empty());
        assert!(restored, "left in /run/weir: {:?}", self.state_files());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(self.files_path());
    }
}
