//! What a program and the daemon say to each other: one request, with the program's UDP socket, and one reply, with
//! the ring. Each is one message of a `SOCK_SEQPACKET` socket. The registration lasts as long as the connection: until
//! the program has closed it, or shut it down.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

const MAGIC: [u8; 8] = *b"weirlazy";
const VERSION: u32 = 1;
/// Bytes of a request, and of a reply before its text.
pub const HEADER_BYTES: usize = 24;
/// Longest text of a reply.
pub const TEXT_BYTES_MAX: usize = 1000;
/// Smallest ring.
pub const RING_BYTES_MIN: u64 = 64 << 10;
/// Largest ring.
pub const RING_BYTES_MAX: u64 = 64 << 20;

/// Where the daemon of a network namespace listens, by the namespace's cookie (`SO_NETNS_COOKIE`).
pub fn socket_path(netns_cookie: u64) -> PathBuf {
    PathBuf::from(format!("/run/weir/{}", socket_name(netns_cookie)))
}

/// That file's name.
pub fn socket_name(netns_cookie: u64) -> String {
    format!("lazy-{netns_cookie}.sock")
}

/// Whether a file has such a name.
pub fn is_socket_name(name: &str) -> bool {
    name.strip_prefix("lazy-").is_some_and(|rest| rest.ends_with(".sock"))
}

/// Who is at the other end of a connection, as of when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process; 0 is one that this PID namespace does not see.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

impl Peer {
    /// # Errors
    /// The kernel's answer.
    pub fn of(connection: impl AsFd) -> rustix::io::Result<Self> {
        // As this process's namespaces number them. A process that has no number is 0, which rustix takes for an error.
        let mut credentials = [0_u32; 3];
        let socket = connection.as_fd();
        crate::sys::get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
        let [pid, uid, _] = credentials;
        Ok(Self { pid: pid.cast_signed(), uid })
    }

    /// Whether the process that connected is still there, and none that has its number now. Before Linux 6.5 the kernel
    /// does not tell, and it is taken to be.
    pub fn is_there(connection: impl AsFd) -> bool {
        match crate::sys::peer_pidfd(connection.as_fd()) {
            // It is readable once the process has ended.
            Ok(pidfd) => {
                let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec::default())) == Ok(0)
            }
            Err(errno) => errno == Errno::NOPROTOOPT,
        }
    }
}

/// Room for more descriptors than any message has: a hostile one is then seen to have too many.
const FDS_SPACE: usize = rustix::cmsg_space!(ScmRights(8));

/// Sends a message with up to eight descriptors; no signal comes of it.
///
/// # Errors
/// The kernel's answer.
pub fn send(
    socket: impl AsFd,
    message: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); FDS_SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, flags | SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message: its length, and the first eight of the descriptors that came with it.
///
/// # Errors
/// The kernel's answer.
pub fn receive(
    socket: impl AsFd,
    message: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); FDS_SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(message)];
    let received = recvmsg(socket, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, fds.flatten().collect()))
}

/// "Make the socket that comes with this lazy."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of the ring; a power of two.
    pub ring_bytes: u64,
}

/// A message that is not of this protocol, or of another version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is too short, too long, or something else.
    #[error("the message is not one of weir's")]
    Foreign,
    /// It is of another version.
    #[error(
        "the message is of version {0} of the protocol, not of {VERSION}; use weir and weir-socket of one version"
    )]
    Version(u32),
    /// No ring has that size.
    #[error("a ring of {0} bytes was asked for; it must be a power of two from 64 KiB to 64 MiB")]
    RingBytes(u64),
}

impl Request {
    /// As it is sent.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        header(0, self.ring_bytes)
    }

    /// Reads what somebody has sent, whoever that is.
    ///
    /// # Errors
    /// If it is anything but a request.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() != HEADER_BYTES {
            return Err(Malformed::Foreign);
        }
        let (_, ring_bytes) = read_header(message)?;
        if !ring_bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
        {
            return Err(Malformed::RingBytes(ring_bytes));
        }
        Ok(Self { ring_bytes })
    }
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The ring comes with it.
    Ring {
        /// How large it is.
        bytes: u64,
    },
    /// Why there is none, and what to do about it.
    Refused(String),
}

impl Reply {
    /// As it is sent; a text that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ring { bytes } => header(0, *bytes).to_vec(),
            Self::Refused(text) => {
                let mut message = header(1, 0).to_vec();
                message.extend(text.bytes().take(TEXT_BYTES_MAX));
                message
            }
        }
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// If it is no reply.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let (status, bytes) = read_header(message)?;
        let text = message.get(HEADER_BYTES..).unwrap_or_default();
        match status {
            0 if text.is_empty() => Ok(Self::Ring { bytes }),
            1 => Ok(Self::Refused(String::from_utf8_lossy(text).into_owned())),
            _ => Err(Malformed::Foreign),
        }
    }
}

fn header(status: u32, number: u64) -> [u8; HEADER_BYTES] {
    let mut message = [0; HEADER_BYTES];
    message[..8].copy_from_slice(&MAGIC);
    message[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    message[12..16].copy_from_slice(&status.to_ne_bytes());
    message[16..].copy_from_slice(&number.to_ne_bytes());
    message
}

fn read_header(message: &[u8]) -> Result<(u32, u64), Malformed> {
    let header: &[u8; HEADER_BYTES] = message.first_chunk().ok_or(Malformed::Foreign)?;
    let [magic @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = header;
    if *magic != MAGIC {
        return Err(Malformed::Foreign);
    }
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if word(8) != VERSION {
        return Err(Malformed::Version(word(8)));
    }
    let mut number = [0; 8];
    number.copy_from_slice(&header[16..]);
    Ok((word(12), u64::from_ne_bytes(number)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(message in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(request) = Request::decode(&message) {
                prop_assert_eq!(&request.encode()[..8], &message[..8]);
            }
            let _ = Reply::decode(&message);
        }

        #[test]
        fn a_broken_request_is_refused_or_another_one(at in 0..HEADER_BYTES, bit in 0_u8..8, power in 16..=26_u32) {
            let request = Request { ring_bytes: 1 << power };
            let mut message = request.encode();
            prop_assert_eq!(Request::decode(&message), Ok(request));
            message[at] ^= 1 << bit;
            let read = Request::decode(&message);
            // The status of a request means nothing.
            prop_assert!((12..16).contains(&at) || read != Ok(request));
            prop_assert!(read.is_err() || (12..16).contains(&at));
        }

        #[test]
        fn replies_survive(text in ".{0,200}", power in 16..=26_u32) {
            for reply in [Reply::Ring { bytes: 1 << power }, Reply::Refused(text)] {
                prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
        }
    }

    #[test]
    fn sizes_have_bounds() {
        for bytes in [0, 1, 65_537, 32 << 10, 128 << 20, u64::MAX] {
            let message = Request { ring_bytes: bytes }.encode();
            assert_eq!(Request::decode(&message), Err(Malformed::RingBytes(bytes)));
        }
    }
}
