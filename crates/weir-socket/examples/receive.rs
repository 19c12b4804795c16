//! Receives datagrams and says each second how many there were: `receive 198.18.0.1:9995`.

use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: receive ADDRESS:PORT")?;
    let socket = weir_socket::LazyUdpSocket::bind(address)?;
    match socket.ordinary() {
        Some(why) => println!("an ordinary socket: {why}"),
        None => println!("a lazy socket"),
    }
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut count, mut bytes, mut since) = (0, 0, Instant::now());
    loop {
        match socket.recv_batch(64, |datagram| bytes += datagram.payload.len()) {
            Ok(received) => count += received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if since.elapsed() >= Duration::from_secs(1) {
            println!(
                "{count} datagrams, {bytes} bytes, {} with a wrong checksum",
                socket.dropped()
            );
            (count, bytes, since) = (0, 0, Instant::now());
        }
    }
}
