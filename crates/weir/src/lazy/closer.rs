//! Who closes Unix sockets.
//!
//! Before Linux 6.9 whoever closes one, whosever it is, may also have to close what others have left in flight
//! (`unix_gc()`), and so to wait for a connection of theirs that lingers. The thread that looks at the rules must not.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

/// A thread that closes one after the other, and that nobody waits for.
#[derive(Clone)]
pub(super) struct Closer {
    to: Sender<OwnedFd>,
    open: Arc<AtomicUsize>,
}

impl Closer {
    pub(super) fn start() -> io::Result<Self> {
        let (to, sockets) = channel::<OwnedFd>();
        let open = Arc::<AtomicUsize>::default();
        let left = Arc::clone(&open);
        Builder::new().name("weir-lazy-close".into()).spawn(move || {
            for socket in sockets {
                drop(socket);
                left.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self { to, open })
    }

    pub(super) fn close(&self, socket: OwnedFd) {
        self.open.fetch_add(1, Ordering::Relaxed);
        let _ = self.to.send(socket);
    }

    /// How many are not closed yet.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use rustix::net::sockopt;
    use weir_bpf::sys::link::Links;
    use weir_bpf::sys::netns::NetNs;

    use super::*;

    #[test]
    fn nobody_waits_for_a_socket_that_lingers() {
        let network = NetNs::create().unwrap();
        let connect = || {
            let links = Links::open().unwrap();
            links.set_up(links.index("lo").unwrap()).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let (mut near, far) = network.run(connect).unwrap();
        near.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        while near.write(&[0; 65536]).is_ok() {}
        sockopt::set_socket_linger(&near, Some(Duration::from_secs(600))).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let closer = Closer::start().unwrap();
        closer.close(near.into());
        closer.close(ours.into());
        assert_eq!(closer.open(), 2);
        // Reset: its close returns.
        drop(far);
        let begun = Instant::now();
        while closer.open() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        drop(theirs);
    }
}
