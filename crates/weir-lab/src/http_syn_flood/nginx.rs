//! nginx as Debian has it, with one worker process and one small document.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::CpuId;

use crate::error::{Error, Result};
use crate::topology::Host;
use crate::worker_process::Program;

/// The document's length: LRP's.
pub const DOCUMENT_BYTES: usize = 1300;
/// Where it listens.
pub const PORT: u16 = 80;
const START_DEADLINE: Duration = Duration::from_secs(10);
const TRY: Duration = Duration::from_millis(200);

/// A server, its master process and its worker. Dropping it ends both.
pub struct Nginx {
    _master: Program,
    /// The process that serves.
    pub worker: Pid,
}

/// Where nginx is, and which it is, such as `nginx/1.22.1`.
///
/// # Errors
/// Where there is none.
pub fn find() -> Result<(PathBuf, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where Debian has it, which is not in everybody's path.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let program = places.map(|place| place.join("nginx")).find(|program| program.is_file());
    let Some(program) = program else {
        return Err(Error::refused(
            format!("{} needs nginx, which is not installed", super::NAME),
            "apt-get install nginx-light, or run ./setup.sh",
        ));
    };
    let output = Command::new(&program)
        .arg("-v")
        .output()
        .map_err(|source| Error::io("run", program.display().to_string(), source))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let version = said.trim().strip_prefix("nginx version: ").unwrap_or("nginx").to_owned();
    Ok((program, version))
}

impl Nginx {
    /// Starts one on a host, with its files in a directory of its own, and waits until it serves.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(program: &Path, host: &Host, cpu: CpuId, directory: &Path) -> Result<Self> {
        let address = SocketAddr::new(host.address.1, PORT);
        let log = directory.join("error.log");
        let written = |path: PathBuf, text: String| {
            fs::write(&path, text)
                .map_err(|source| Error::io("write", path.display().to_string(), source))
        };
        written(directory.join("index.html"), "x".repeat(DOCUMENT_BYTES))?;
        let configuration = directory.join("nginx.conf");
        written(configuration.clone(), configure(address, directory))?;
        let text = |path: &Path| path.display().to_string();
        let arguments = [text(program), "-e".into(), text(&log), "-c".into(), text(&configuration)];
        let mut master = Program::start(&host.netns_path, cpu, &arguments)?;
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let answers = host.netns.run(|| TcpStream::connect_timeout(&address, TRY).is_ok())?;
            if answers && let Some(worker) = child_of(master.pid()) {
                return Ok(Self { _master: master, worker });
            }
            if !master.is_running() || Instant::now() > deadline {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(Error::refused(
                    "the lab's nginx did not come up",
                    format!("it says: {}", said.trim()),
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Debian's own configuration but for the files' places, one worker, no access log, and keep-alive
/// that no number of requests ends.
fn configure(address: SocketAddr, directory: &Path) -> String {
    let own = |name: &str| directory.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {};\n", own(name)))
        .concat();
    format!(
        "daemon off;\n\
         user root;\n\
         worker_processes 1;\n\
         pid {};\n\
         error_log {} error;\n\
         events {{ worker_connections 768; }}\n\
         http {{\n\
         {temporary}\
         \x20 sendfile on;\n\
         \x20 tcp_nopush on;\n\
         \x20 access_log off;\n\
         \x20 keepalive_requests 1000000000;\n\
         \x20 server {{ listen {address}; root {}; }}\n\
         }}\n",
        own("nginx.pid"),
        own("error.log"),
        directory.display()
    )
}

/// The process whose parent is this one.
fn child_of(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let is_its = |pid: &i32| Stat::of(*pid).is_some_and(|stat| stat.parent() == Some(parent));
    let names = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    pids.into_iter().find(is_its).and_then(Pid::from_raw)
}
