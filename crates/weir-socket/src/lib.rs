//! Lazy UDP sockets (Druschel & Banga, section 3): a packet waits, unprocessed, on a ring that weir's gate fills and
//! the program reads. IP and UDP input happen in the receive call; what does not fit on the ring is discarded before
//! anything has been spent on it.
//!
//! [`LazyUdpSocket`] has the surface of [`std::net::UdpSocket`]; [`Channel`] is what it is made of. Where weir does
//! not run, or ends, it is an ordinary socket. `include/weir_socket.h` is the same for C. With the feature `tokio`,
//! `AsyncLazyUdpSocket` waits in tokio's runtime.

mod attach;
mod c;
mod channel;
mod datagram;
pub mod message;
pub mod protocol;
#[cfg(feature = "tokio")]
mod readiness;
mod ring;
mod socket;
mod sys;
mod timens;
mod turns;

pub use attach::Ordinary;
pub use channel::{Channel, Wait};
pub use datagram::{Arrival, Datagram};
#[cfg(feature = "tokio")]
pub use readiness::AsyncLazyUdpSocket;
pub use socket::{DEFAULT_RING_BYTES, LazyUdpSocket};
