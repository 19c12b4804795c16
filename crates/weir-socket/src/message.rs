//! A datagram as recvmsg(2) gives it: address, parts, control messages. For C, and for who stands in for the C
//! library.

use std::ffi::{c_int, c_uint};
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{SocketAddrAny, sockopt};

use crate::channel::{Channel, Wait};
use crate::datagram::{Arrival, Datagram};
use crate::socket::as_seen_by;
use crate::sys;

/// recvmsg(2), of whoever receives from the kernel's socket. A thread that is cancelled (pthread_cancel(3)) ends in it.
pub type RecvMsg = unsafe extern "C-unwind" fn(c_int, *mut libc::msghdr, c_int) -> isize;

/// Sets this thread's error number, and returns -1.
#[allow(unsafe_code)]
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A descriptor that the caller says is open; if it is not, system calls fail with EBADF. Not -1, though.
#[allow(unsafe_code)]
pub fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: nothing is done with it but system calls.
    unsafe { BorrowedFd::borrow_raw(fd.max(0)) }
}

/// A time that C has given, if it is valid.
fn duration(time: &libc::timespec) -> Option<Duration> {
    let nanos = time.tv_nsec.try_into().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(time.tv_sec.try_into().ok()?, nanos))
}

/// How long a call with these flags may wait.
pub(crate) fn wait(socket: BorrowedFd<'_>, flags: c_int) -> Wait {
    let nonblocking = flags & libc::MSG_DONTWAIT != 0
        || fcntl_getfl(socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    let timeout = || sockopt::socket_timeout(socket, sockopt::Timeout::Recv).ok().flatten();
    Wait { nonblocking, timeout: if nonblocking { None } else { timeout() } }
}

/// What is asked for by these, the kernel's socket alone has.
const OF_THE_KERNEL: c_int = libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Whether the kernel would take this address, before it looks for a datagram (`__copy_msghdr()`).
fn is_taken(header: &libc::msghdr) -> bool {
    header.msg_name.is_null() || c_int::try_from(header.msg_namelen).is_ok()
}

/// As recvmsg(2), from a lazy socket.
///
/// # Safety
/// As recvmsg(2), and `kernel` is that.
#[allow(unsafe_code)]
pub unsafe fn receive(
    channel: &Channel,
    options: &Options,
    fd: RawFd,
    header: *mut libc::msghdr,
    flags: c_int,
    kernel: RecvMsg,
) -> isize {
    if header.is_null() || flags & OF_THE_KERNEL != 0 {
        // SAFETY: as the caller promises.
        return unsafe { kernel(fd, header, flags) };
    }
    // SAFETY: as the caller promises.
    if !is_taken(unsafe { &*header }) {
        return fail(libc::EINVAL) as isize;
    }
    let received = channel.receive(
        borrow(fd),
        flags & libc::MSG_PEEK != 0,
        || wait(borrow(fd), flags),
        // SAFETY: as the caller promises.
        |datagram| unsafe { fill(&mut *header, datagram, options, flags) },
        |may_block| {
            let flags = if may_block { flags } else { flags | libc::MSG_DONTWAIT };
            // SAFETY: as the caller promises.
            let received = unsafe { kernel(fd, header, flags) };
            if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received) }
        },
    );
    received.unwrap_or_else(|error| fail(error.raw_os_error().unwrap_or(libc::EAGAIN)) as isize)
}

/// recvfrom(2) by way of a message.
///
/// # Safety
/// As recvfrom(2).
#[allow(unsafe_code)]
pub unsafe fn as_recvfrom(
    buffer: *mut std::ffi::c_void,
    length: usize,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
    receive: impl FnOnce(*mut libc::msghdr) -> isize,
) -> isize {
    let mut part = libc::iovec { iov_base: buffer, iov_len: length };
    // SAFETY: a header of zeros has no address, no parts and no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let has_address = !address.is_null() && !address_length.is_null();
    if has_address {
        header.msg_name = address.cast();
        // SAFETY: the caller's.
        header.msg_namelen = unsafe { *address_length };
    }
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let received = receive(&raw mut header);
    if received >= 0 && has_address {
        // SAFETY: as above.
        unsafe { *address_length = header.msg_namelen };
    }
    received
}

/// As recvmmsg(2), from a lazy socket.
///
/// # Safety
/// As recvmmsg(2), of messages that are there, and `kernel` is recvmsg(2).
#[allow(unsafe_code)]
pub unsafe fn receive_many(
    channel: &Channel,
    options: &Options,
    fd: RawFd,
    (messages, count): (*mut libc::mmsghdr, c_uint),
    flags: c_int,
    timeout: *mut libc::timespec,
    kernel: RecvMsg,
) -> c_int {
    // SAFETY: as the caller promises.
    let (messages, timeout) =
        unsafe { (std::slice::from_raw_parts_mut(messages, count as usize), timeout.as_mut()) };
    let deadline = match timeout.as_deref().map(duration) {
        None => None,
        Some(None) => return fail(libc::EINVAL),
        Some(Some(time)) => Instant::now().checked_add(time),
    };
    let one_is_enough = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    let valid = messages.iter().take_while(|message| is_taken(&message.msg_hdr)).count();
    let mut taken = 0;
    while taken < messages.len() {
        if flags & (libc::MSG_PEEK | OF_THE_KERNEL) == 0 {
            let rest = &mut messages[taken..valid.max(taken)];
            let mut at = 0;
            taken += channel.receive_waiting(borrow(fd), rest.len(), |datagram| {
                let message = &mut rest[at];
                // SAFETY: as the caller promises.
                let length = unsafe { fill(&mut message.msg_hdr, datagram, options, flags) };
                message.msg_len = u32::try_from(length).unwrap_or(u32::MAX);
                at += 1;
            });
        }
        if taken > 0 && one_is_enough {
            flags |= libc::MSG_DONTWAIT;
        }
        if taken == messages.len() {
            break;
        }
        let header = &raw mut messages[taken].msg_hdr;
        // SAFETY: as the caller promises.
        let length = unsafe { receive(channel, options, fd, header, flags, kernel) };
        let Ok(length) = u32::try_from(length) else {
            // do_recvmmsg() leaves it in the socket.
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if taken > 0 && errno != libc::EAGAIN {
                channel.fail_next(errno);
            }
            break;
        };
        messages[taken].msg_len = length;
        taken += 1;
        // As the kernel does it: the time is looked at after each datagram alone.
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    // What is left of the time.
    if let (Some(timeout), Some(deadline), 1..) = (timeout, deadline, taken) {
        let left = deadline.saturating_duration_since(Instant::now());
        timeout.tv_sec = left.as_secs().try_into().unwrap_or_default();
        timeout.tv_nsec = left.subsec_nanos().into();
    }
    if taken == 0 && !messages.is_empty() {
        -1
    } else {
        c_int::try_from(taken).unwrap_or(c_int::MAX)
    }
}

/// What is asked for along with each datagram, by setsockopt(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    v6: bool,
    packet_info: bool,
    packet_info6: bool,
    type_of_service: bool,
    traffic_class: bool,
    time_to_live: bool,
    hop_limit: bool,
    /// The last two as of RFC 2292, under other numbers.
    old_packet_info6: bool,
    old_hop_limit: bool,
    timestamp: bool,
    timestamp_ns: bool,
}

impl Options {
    /// As they are now.
    pub fn of(fd: RawFd) -> Self {
        let is_set = |level, option| number(fd, level, option).is_some_and(|value| value != 0);
        Self {
            v6: number(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6),
            packet_info: is_set(libc::IPPROTO_IP, libc::IP_PKTINFO),
            packet_info6: is_set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            type_of_service: is_set(libc::IPPROTO_IP, libc::IP_RECVTOS),
            traffic_class: is_set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
            time_to_live: is_set(libc::IPPROTO_IP, libc::IP_RECVTTL),
            hop_limit: is_set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            old_packet_info6: is_set(libc::IPPROTO_IPV6, libc::IPV6_2292PKTINFO),
            old_hop_limit: is_set(libc::IPPROTO_IPV6, libc::IPV6_2292HOPLIMIT),
            timestamp: is_set(libc::SOL_SOCKET, libc::SO_TIMESTAMP),
            timestamp_ns: is_set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        }
    }
}

fn number(fd: RawFd, level: i32, option: i32) -> Option<i32> {
    let mut value = [0];
    sys::get(borrow(fd), level, option, &mut value).ok()?;
    Some(value[0])
}

/// Fills a message in as recvmsg(2) does, and returns what that returns.
///
/// # Safety
/// The header is one that recvmsg(2) would take.
#[allow(unsafe_code)]
unsafe fn fill(
    header: &mut libc::msghdr,
    datagram: &Datagram<'_>,
    options: &Options,
    flags: i32,
) -> isize {
    header.msg_flags = 0;
    let mut rest = datagram.payload;
    for part in 0..header.msg_iovlen {
        // SAFETY: the caller's header has so many parts.
        let part = unsafe { &*header.msg_iov.add(part) };
        let length = rest.len().min(part.iov_len);
        // SAFETY: the part has room for so many bytes, which do not lie on the ring.
        unsafe { rest.as_ptr().copy_to_nonoverlapping(part.iov_base.cast(), length) };
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
    }
    if !rest.is_empty() {
        header.msg_flags |= libc::MSG_TRUNC;
    }
    if !header.msg_name.is_null() {
        let address = SocketAddrAny::from(as_seen_by(options.v6, datagram.source));
        let fits = address.addr_len().min(header.msg_namelen) as usize;
        // SAFETY: to the caller's, no more than it says that there is room for, from a buffer of its own.
        unsafe {
            address.as_ptr().cast::<u8>().copy_to_nonoverlapping(header.msg_name.cast(), fits)
        };
        header.msg_namelen = address.addr_len();
    }
    let mut control = Control {
        // SAFETY: the caller's, of the length that it says.
        at: header.msg_control.cast(),
        room: if header.msg_control.is_null() { 0 } else { header.msg_controllen },
        used: 0,
        cut: false,
    };
    if let Some(arrival) = &datagram.arrival {
        control.put_all(arrival, options);
    }
    header.msg_controllen = control.used as _;
    if control.cut {
        header.msg_flags |= libc::MSG_CTRUNC;
    }
    if flags & libc::MSG_CMSG_CLOEXEC != 0 {
        header.msg_flags |= libc::MSG_CMSG_CLOEXEC;
    }
    let length = if flags & libc::MSG_TRUNC != 0 {
        datagram.payload.len()
    } else {
        datagram.payload.len() - rest.len()
    };
    isize::try_from(length).unwrap_or(isize::MAX)
}

struct Control {
    at: *mut u8,
    room: usize,
    used: usize,
    cut: bool,
}

impl Control {
    /// In the kernel's order (`sock_recv_timestamp()`, `ip_cmsg_recv_offset()`, `ip6_datagram_recv_ctl()`).
    fn put_all(&mut self, arrival: &Arrival, options: &Options) {
        if options.timestamp_ns || options.timestamp {
            let since = arrival.time().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let (kind, part) = match options.timestamp_ns {
                true => (libc::SCM_TIMESTAMPNS, i64::from(since.subsec_nanos())),
                false => (libc::SCM_TIMESTAMP, i64::from(since.subsec_micros())),
            };
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            let time = [seconds.to_ne_bytes(), part.to_ne_bytes()].concat();
            self.put(libc::SOL_SOCKET, kind, &time);
        }
        let interface = arrival.interface.to_ne_bytes();
        let destination6 = match arrival.destination {
            IpAddr::V4(destination) => destination.to_ipv6_mapped(),
            IpAddr::V6(destination) => destination,
        };
        let info6 = || [&destination6.octets()[..], &interface].concat();
        if options.packet_info6 {
            self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info6());
        }
        match arrival.destination {
            IpAddr::V4(destination) => {
                if options.packet_info {
                    let octets = destination.octets();
                    let info = [interface, octets, octets].concat();
                    self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
                }
                if options.time_to_live {
                    let hops = i32::from(arrival.hop_limit).to_ne_bytes();
                    self.put(libc::IPPROTO_IP, libc::IP_TTL, &hops);
                }
                if options.type_of_service {
                    self.put(libc::IPPROTO_IP, libc::IP_TOS, &[arrival.traffic_class]);
                }
            }
            IpAddr::V6(_) => {
                let hops = i32::from(arrival.hop_limit).to_ne_bytes();
                if options.hop_limit {
                    self.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
                }
                if options.traffic_class {
                    let class = i32::from(arrival.traffic_class).to_ne_bytes();
                    self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
                }
                if options.old_packet_info6 {
                    self.put(libc::IPPROTO_IPV6, libc::IPV6_2292PKTINFO, &info6());
                }
                if options.old_hop_limit {
                    self.put(libc::IPPROTO_IPV6, libc::IPV6_2292HOPLIMIT, &hops);
                }
            }
        }
    }

    #[allow(unsafe_code)]
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let header = size_of::<libc::cmsghdr>();
        let room = self.room - self.used;
        if room < header {
            self.cut = true;
            return;
        }
        let length = (header + data.len()).min(room);
        self.cut |= length < header + data.len();
        let (level, kind) = (level.to_ne_bytes(), kind.to_ne_bytes());
        let message = [&length.to_ne_bytes()[..], &level, &kind, data].concat();
        // SAFETY: within the room that is left.
        unsafe { message.as_ptr().copy_to_nonoverlapping(self.at.add(self.used), length) };
        self.used += length.next_multiple_of(size_of::<usize>()).min(room);
    }
}
