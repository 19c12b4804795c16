//! nginx as Debian configures it, with one worker process and one small document.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::{io, str};

use super::text::ANSWER_TIMEOUT;
use crate::error::Result;

/// The document's length: LRP's (section 4.4).
pub const DOCUMENT_BYTES: usize = 1300;
/// More than any run sends, so that the server never ends a connection by their number.
const KEEPALIVE_REQUESTS: u32 = 1_000_000_000;

/// Writes its configuration and its document; returns its arguments.
pub(super) fn prepare(address: SocketAddr, directory: &Path) -> Result<Vec<String>> {
    super::text::write(&directory.join("index.html"), &"x".repeat(DOCUMENT_BYTES))?;
    let configuration = directory.join("nginx.conf");
    super::text::write(&configuration, &configure(address, directory))?;
    // Without -e, it opens Debian's own log before it reads the configuration.
    let text = |path: &Path| path.display().to_string();
    Ok(vec!["-e".into(), "stderr".into(), "-c".into(), text(&configuration)])
}

/// Debian's own configuration but for the files' places, one worker, no access log, and no limit to
/// the requests of a connection.
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
         error_log stderr error;\n\
         events {{ worker_connections 768; }}\n\
         http {{\n\
         {temporary}\
         \x20 sendfile on;\n\
         \x20 tcp_nopush on;\n\
         \x20 access_log off;\n\
         \x20 keepalive_requests {KEEPALIVE_REQUESTS};\n\
         \x20 server {{ listen {address}; root {}; }}\n\
         }}\n",
        own("nginx.pid"),
        directory.display()
    )
}

/// Asks for the document.
pub(super) fn answers(server: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    let answer = str::from_utf8(&answer).unwrap_or_default();
    Ok(answer.starts_with("HTTP/1.1 200 ") && answer.len() > DOCUMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_files_in_its_directory() {
        let address = "[2001:2::2]:80".parse().unwrap();
        let text = configure(address, Path::new("/run/x"));
        assert!(text.contains("listen [2001:2::2]:80; root /run/x;"), "{text}");
        assert!(text.contains("pid /run/x/nginx.pid;"), "{text}");
        assert_eq!(text.matches("_temp_path /run/x/").count(), 5);
    }
}
