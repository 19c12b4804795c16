//! memcached over TCP, as Debian configures it but with one worker thread.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::text::ANSWER_TIMEOUT;

/// What it may store: Debian's default.
const MEMORY_MIB: u32 = 64;

/// Its arguments.
pub(super) fn arguments(address: SocketAddr) -> Vec<String> {
    let (ip, port) = (address.ip(), address.port());
    // -U 0: no UDP.
    format!("-u root -l {ip} -p {port} -U 0 -t 1 -m {MEMORY_MIB}")
        .split(' ')
        .map(str::to_owned)
        .collect()
}

/// Asks for its version.
pub(super) fn answers(server: SocketAddr) -> io::Result<bool> {
    const EXPECTED: &[u8] = b"VERSION ";
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(b"version\r\n")?;
    let mut answer = [0; EXPECTED.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == EXPECTED)
}
