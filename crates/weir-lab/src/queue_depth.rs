//! How many packets a socket's buffer holds on this path, counted rather than computed: the charge
//! per packet (truesize) depends on the driver.

use std::net::UdpSocket;
use std::time::Duration;

use weir_bpf::units::PacketsPerSec;

use crate::bench::{BYSTANDER_PORT, Bench, FLOODED_PORT};
use crate::error::{Error, Result};
use crate::results::Mode;
use crate::stop::Stop;

/// Slow enough that nothing but the socket can be full.
const FILL_RATE: PacketsPerSec = PacketsPerSec(50_000.0);
const FILL_TIME: Duration = Duration::from_millis(100);
/// How long the last packet may take to arrive.
const QUIET: Duration = Duration::from_millis(20);

/// A receive queue's size.
pub struct QueueDepth {
    /// Packets of the run's size that it holds.
    pub packets: u32,
    /// `SO_RCVBUF`, as the kernel reports it.
    pub rcvbuf_bytes: u32,
}

/// Fills a socket that nobody reads, on another port of a mode's host, and counts what it held.
///
/// # Errors
/// Where the socket cannot be made.
pub fn count(bench: &mut Bench, mode: Mode, stop: &Stop) -> Result<QueueDepth> {
    const PORT: u16 = BYSTANDER_PORT + 1;
    const { assert!(PORT != FLOODED_PORT) };
    let host = &bench.sut(mode).host;
    let address = (host.address.1, PORT);
    let failed = |operation| move |source| Error::io(operation, format!("{address:?}"), source);
    let socket = host.netns.run(|| UdpSocket::bind(address))?.map_err(failed("bind"))?;
    if bench.workload.rcvbuf != 0 {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, bench.workload.rcvbuf)
            .map_err(|source| Error::io("set the buffer of", format!("{address:?}"), source))?;
    }
    let rcvbuf = rustix::net::sockopt::socket_recv_buffer_size(&socket)
        .map_err(|source| Error::io("read the buffer of", format!("{address:?}"), source))?;

    bench.aim_at_port(mode, PORT, FILL_RATE)?;
    let bench = &*bench;
    bench.generate_while(|| {
        bench.generator.start();
        stop.sleep(FILL_TIME)
    })??;

    socket.set_read_timeout(Some(QUIET)).map_err(failed("set the timeout of"))?;
    let mut buffer = [0; 2048];
    let mut packets = 0;
    while socket.recv(&mut buffer).is_ok() {
        packets += 1;
    }
    Ok(QueueDepth { packets, rcvbuf_bytes: rcvbuf as u32 })
}
