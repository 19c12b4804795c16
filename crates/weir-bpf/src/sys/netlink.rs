//! Questions to the kernel over netlink, one at a time, and its notifications.
//!
//! Messages are encoded and decoded by `netlink-packet-core` and `netlink-packet-route`, as far as they know them; the
//! socket is here. No answer is passed over for being unknown or malformed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NlasIterator, Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind,
    recvfrom, sendto, socket_with, sockopt as options,
};

use super::sockopt;

/// Netlink messages of one datagram: 8 KiB pages suffice for dumps, notifications are smaller.
const DATAGRAM_BYTES: usize = 64 * 1024;
/// How often a dump that the kernel interrupted, because of a change, is tried again.
const DUMP_TRIES: u32 = 5;
/// The kernel answers in the system call that asks, or never.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const GENL_HEADER_BYTES: usize = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// A netlink socket of the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

/// One message of a datagram.
pub(super) type Message<'a> = NetlinkBuffer<&'a [u8]>;

impl Socket {
    /// For questions. Without a protocol: rtnetlink, which is number 0.
    pub(super) fn open(protocol: Option<Protocol>) -> rustix::io::Result<Self> {
        let socket = Self::with(protocol, 0, SocketFlags::empty())?;
        options::set_socket_timeout(&socket, options::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(socket)
    }

    /// For notifications: does not wait for them.
    pub(super) fn watch(protocol: Option<Protocol>, groups: u32) -> rustix::io::Result<Self> {
        Self::with(protocol, groups, SocketFlags::NONBLOCK)
    }

    fn with(
        protocol: Option<Protocol>,
        groups: u32,
        flags: SocketFlags,
    ) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | flags;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM_BYTES], sequence: 0 })
    }

    /// Has the kernel take what a dump's request says for a filter, instead of ignoring it.
    pub(super) fn check_strictly(&self) -> rustix::io::Result<()> {
        sockopt::set(&self.fd, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1)
    }

    /// Receives one datagram of the kernel's; `MSGSIZE` if it does not fit.
    fn receive(&mut self) -> rustix::io::Result<Vec<Message<'_>>> {
        loop {
            let (_, bytes, from) =
                retry_on_intr(|| recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC))?;
            if bytes > DATAGRAM_BYTES {
                return Err(Errno::MSGSIZE);
            }
            if from.is_some_and(is_kernel) {
                return messages(&self.buffer[..bytes]).ok_or(Errno::BADMSG);
            }
        }
    }

    /// Takes all pending notifications and says whether one `matters`. Those that were lost, because there were too
    /// many, or that cannot be understood, do.
    pub(super) fn drain(
        &mut self,
        matters: impl Fn(&Message<'_>) -> bool,
    ) -> rustix::io::Result<bool> {
        let mut found = false;
        loop {
            match self.receive() {
                Ok(messages) => found |= messages.iter().any(&matters),
                Err(Errno::AGAIN) => return Ok(found),
                Err(Errno::NOBUFS | Errno::MSGSIZE | Errno::BADMSG) => found = true,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Asks rtnetlink. `BADMSG` if an answer cannot be decoded.
    pub(super) fn route<T: Parseable<[u8]>>(
        &mut self,
        request: &RouteNetlinkMessage,
        flags: u16,
    ) -> rustix::io::Result<Vec<T>> {
        let answers = repeated(|| {
            let mut answers = Vec::new();
            self.route_each(request, flags, |answer| answers.push(T::parse(answer)))?;
            Ok(answers)
        })?;
        answers.into_iter().collect::<Result<_, _>>().map_err(|_| Errno::BADMSG)
    }

    /// As [`Socket::route`], of answers that may be many: each is handed over as it came and not kept. Not
    /// [`repeated`].
    pub(super) fn route_each(
        &mut self,
        request: &RouteNetlinkMessage,
        flags: u16,
        mut with: impl FnMut(&[u8]),
    ) -> rustix::io::Result<()> {
        self.ask_each(request.message_type(), flags, &emitted(request), |_, answer| with(answer))
    }

    /// Sends a generic netlink request and collects the payloads of its answers, without their
    /// generic netlink header.
    pub(super) fn request(
        &mut self,
        family: u16,
        command: u8,
        flags: u16,
        attributes: &[u8],
    ) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut body = vec![command, 1, 0, 0]; // version 1, reserved
        body.extend(attributes);
        let mut answers = Vec::new();
        for (kind, answer) in self.ask(family, flags, &body)? {
            if kind == family {
                answers.push(answer.get(GENL_HEADER_BYTES..).ok_or(Errno::BADMSG)?.to_vec());
            }
        }
        Ok(answers)
    }

    /// Sends a request and collects its answers: the type of each, and what follows its header.
    ///
    /// `INTR` if what was dumped changes all the time, so that it may be incomplete.
    pub(super) fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
    ) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
        repeated(|| {
            let mut answers = Vec::new();
            let keep = |kind, payload: &[u8]| answers.push((kind, payload.to_vec()));
            self.ask_each(kind, flags, body, keep).map(|()| answers)
        })
    }

    /// As [`Socket::ask`], of answers that may be many: each is handed over and not kept. Not [`repeated`].
    ///
    /// The flags are `NLM_F_DUMP`, or `NLM_F_ACK` and how something is to be made.
    pub(super) fn ask_each(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut with: impl FnMut(u16, &[u8]),
    ) -> rustix::io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let request = with_header(kind, NLM_F_REQUEST | flags, sequence, body);
        sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut interrupted = false;
        loop {
            // What is left of the answer to another request is not ours.
            let answers = self.receive()?;
            for message in answers.iter().filter(|one| one.sequence_number() == sequence) {
                interrupted |=
                    flags & NLM_F_DUMP == NLM_F_DUMP && message.flags() & NLM_F_DUMP_INTR != 0;
                let payload = message.payload();
                match message.message_type() {
                    // Both begin with an error number, negative or zero.
                    NLMSG_ERROR | NLMSG_DONE => {
                        return match number(payload).map(u32::cast_signed) {
                            Some(0) if interrupted => Err(Errno::INTR),
                            Some(0) => Ok(()),
                            Some(code) => Err(Errno::from_raw_os_error(code.saturating_neg())),
                            None => Err(Errno::BADMSG),
                        };
                    }
                    kind => with(kind, payload),
                }
            }
        }
    }

    /// Number of a generic netlink family; `NOENT` if the kernel does not have it.
    pub(super) fn family(&mut self, name: &str) -> rustix::io::Result<u16> {
        let attribute = attribute(CTRL_ATTR_FAMILY_NAME, &terminated(name));
        let answers = self.request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, NLM_F_ACK, &attribute)?;
        let id = answers.first();
        let id = id.and_then(|answer| Attributes::of(answer).value(CTRL_ATTR_FAMILY_ID));
        let id = id.and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        id.ok_or(Errno::BADMSG)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks one question over a socket of its own, so that an answer cut short harms no later one.
pub(super) fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
    Socket::open(protocol)?.ask(kind, flags, body)
}

/// The same of rtnetlink.
pub(super) fn ask_route<T: Parseable<[u8]>>(
    request: &RouteNetlinkMessage,
    flags: u16,
) -> rustix::io::Result<Vec<T>> {
    Socket::open(None)?.route(request, flags)
}

pub(super) fn open_generic() -> rustix::io::Result<Socket> {
    Socket::open(Some(netlink::GENERIC))
}

/// Repeats a dump that the kernel interrupts, because of a change.
pub(super) fn repeated<T>(
    mut dump: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    for _ in 1..DUMP_TRIES {
        match dump() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    dump()
}

/// One attribute with its header, padded to 4 bytes.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    emitted(&DefaultNla::new(kind, value.to_vec()))
}

/// A header or an attribute as bytes.
pub(super) fn emitted(part: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; part.buffer_len()];
    part.emit(&mut bytes);
    bytes
}

/// Attributes in a row: a message's, or those within another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Kinds and values, in order; `None` of the first that is malformed, which is the last.
    pub(super) fn each(self) -> impl Iterator<Item = Option<(u16, &'a [u8])>> {
        NlasIterator::new(self.0).map(|one| {
            let one = one.ok()?;
            let (kind, len) = (one.kind(), one.value_length());
            Some((kind, one.into_inner().get(NLA_HEADER_SIZE..)?.get(..len)?))
        })
    }

    /// Value of the first attribute of this kind; `None` also where the bytes before it are malformed.
    pub(super) fn value(self, kind: u16) -> Option<&'a [u8]> {
        self.each().map_while(|one| one).find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub(super) fn has(self, kind: u16) -> bool {
        self.value(kind).is_some()
    }

    /// Those within an attribute; none if it is not there.
    pub(super) fn within(self, kind: u16) -> Self {
        Self(self.value(kind).unwrap_or_default())
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Text up to its NUL.
    pub(super) fn text(self, kind: u16) -> Option<String> {
        self.value(kind).map(text)
    }

    /// A 32-bit number, in this machine's byte order.
    pub(super) fn number(self, kind: u16) -> Option<u32> {
        self.value(kind).and_then(number)
    }

    /// The same in network byte order, as netfilter's are.
    pub(super) fn big_endian(self, kind: u16) -> Option<u32> {
        self.number(kind).map(u32::from_be)
    }
}

/// Text and its NUL.
pub(super) fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Text up to its NUL, as in netlink attributes and kernel structures.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The leading 32-bit number, in this machine's byte order.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Unprivileged processes can send to any netlink socket; the kernel's port is 0.
fn is_kernel(address: SocketAddrAny) -> bool {
    SocketAddrNetlink::try_from(address).is_ok_and(|address| address.pid() == 0)
}

fn with_header(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut header = NetlinkHeader::default(); // port 0: the kernel's choice
    header.length = u32::try_from(header.buffer_len() + body.len()).unwrap_or(u32::MAX);
    (header.message_type, header.flags, header.sequence_number) = (kind, flags, sequence);
    [&emitted(&header), body].concat()
}

/// Splits a datagram; `None` if it is malformed.
fn messages(mut datagram: &[u8]) -> Option<Vec<Message<'_>>> {
    let mut found = Vec::new();
    while !datagram.is_empty() {
        let message = NetlinkBuffer::new_checked(datagram).ok()?;
        let bytes = message.length() as usize;
        found.push(message);
        datagram = datagram.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_a_padded_one() {
        let mut bytes = attribute(1, b"abc");
        bytes.extend(attribute(2, &7u32.to_ne_bytes()));
        assert_eq!(bytes.len(), 16);
        assert_eq!(Attributes::of(&bytes).number(2), Some(7));
        assert_eq!(Attributes::of(&bytes).value(3), None);
        assert_eq!(Attributes::of(&bytes[..6]).value(1), None);
    }

    #[test]
    fn a_datagram_splits_into_its_messages() {
        let mut datagram = with_header(20, 0, 7, &[1, 1, 0, 0, 1, 2, 3, 4]);
        datagram.extend(with_header(21, 0, 7, &[2, 1, 0, 0]));
        let found = messages(&datagram).unwrap();
        assert_eq!(found.iter().map(Message::message_type).collect::<Vec<_>>(), [20, 21]);
        assert_eq!((found[0].payload().len(), found[1].sequence_number()), (8, 7));
        for cut in [1, 15, 17, 25, datagram.len() - 1] {
            assert!(messages(&datagram[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn families_are_found_by_name() {
        let mut socket = open_generic().unwrap();
        assert_eq!(socket.family("nlctrl"), Ok(GENL_ID_CTRL));
        assert_eq!(socket.family("weir-none"), Err(Errno::NOENT));
    }
}
