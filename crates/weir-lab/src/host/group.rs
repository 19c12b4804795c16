//! A CPU control group of its own for a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::error::{Error, Result, cannot};
use crate::stop::{Undo, until};

/// Where the `cpu` controller may be, of cgroup v1 and of v2.
const ROOTS: [&str; 3] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Before and behind the lab's process in a group's name.
const PREFIX: &str = "weir-lab-";
const SUFFIX: &str = "-hog";
const REMEDY: &str = "mount one (cgroup v1's cpu, or v2 with +cpu in cgroup.subtree_control), or leave \
                      the cases beside a group out";
const LEAVES_WITHIN: Duration = Duration::from_millis(500);

/// Moves a process into a group of its own, of the usual weight, until what is returned is dropped: it must have ended
/// by then.
pub fn group_of(pid: Pid) -> Result<Undo<'static>> {
    let root = ROOTS.iter().map(Path::new).find(|root| has_cpu(root));
    let root =
        root.ok_or_else(|| Error::refused("there is no cgroup with a cpu controller", REMEDY))?;
    let path = root.join(format!("{PREFIX}{}{SUFFIX}", std::process::id()));
    fs::create_dir_all(&path).map_err(cannot("create", path.display()))?;
    let file = path.join("cgroup.procs");
    let undo = Undo(Box::new(move || {
        // A process that was killed leaves a moment later.
        let gone = || fs::remove_dir(&path).is_ok() || !path.exists();
        let _ = until(LEAVES_WITHIN, || Ok(gone().then_some(())));
    }));
    let number = pid.as_raw_nonzero().to_string();
    fs::write(&file, number).map_err(cannot("write", file.display()))?;
    Ok(undo)
}

/// Removes the groups that labs left that were killed. One with a process stays.
pub fn sweep() {
    let is_hogs = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
    for group in ROOTS.iter().flat_map(|root| entries(Path::new(root), is_hogs)) {
        let _ = fs::remove_dir(group);
    }
}

/// What is in a directory under such names.
pub fn entries(dir: &Path, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_it));
    named.map(|entry| entry.path()).collect()
}

/// Whether processes in this hierarchy's groups are weighed group by group.
fn has_cpu(root: &Path) -> bool {
    let subtree = fs::read_to_string(root.join("cgroup.subtree_control"));
    root.join("cpu.shares").exists()
        || subtree.is_ok_and(|controllers| controllers.split_whitespace().any(|c| c == "cpu"))
}
