//! The little of netlink that rtnetlink does not cover: generic netlink and netfilter requests, dumps of
//! which no message may be lost for being unknown, and raw notifications.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rtnetlink::packet_core::{NetlinkBuffer, NlasIterator};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind,
    recvfrom, sendto, socket_with,
};

use super::sockopt;

/// Netlink messages of one datagram: 8 KiB pages suffice for dumps, notifications are smaller.
const DATAGRAM_BYTES: usize = 64 * 1024;
const SOL_NETLINK: i32 = 270;
const NETLINK_GET_STRICT_CHK: i32 = 12;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// In an answer: what is dumped has changed meanwhile.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const HEADER_BYTES: usize = 16;
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
}

/// One message of a datagram: its type, its flags and what follows the header.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) payload: &'a [u8],
}

impl Socket {
    /// Without a protocol: rtnetlink, which is number 0.
    pub(super) fn open(
        protocol: Option<Protocol>,
        groups: u32,
        flags: SocketFlags,
    ) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | flags;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM_BYTES] })
    }

    /// Has the kernel take what a dump's request says for a filter, instead of ignoring it.
    pub(super) fn check_strictly(&self) -> rustix::io::Result<()> {
        sockopt::set(&self.fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
    }

    /// Receives one datagram of the kernel's; `MSGSIZE` if it does not fit.
    pub(super) fn receive(&mut self) -> rustix::io::Result<Vec<Message<'_>>> {
        loop {
            let (_, bytes, from) = recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC)?;
            if bytes > DATAGRAM_BYTES {
                return Err(Errno::MSGSIZE);
            }
            if from.is_some_and(is_kernel) {
                return messages(&self.buffer[..bytes]).ok_or(Errno::BADMSG);
            }
        }
    }

    /// Sends a generic netlink request and collects the payloads of its answers, without their
    /// generic netlink header.
    pub(super) fn request(
        &mut self,
        family: u16,
        command: u8,
        dump: bool,
        attributes: &[u8],
    ) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut body = vec![command, 1, 0, 0]; // version 1, reserved
        body.extend(attributes);
        let mut answers = Vec::new();
        for (kind, answer) in self.ask(family, dump, &body)? {
            if kind == family {
                answers.push(answer.get(GENL_HEADER_BYTES..).ok_or(Errno::BADMSG)?.to_vec());
            }
        }
        Ok(answers)
    }

    /// Sends a request and collects its answers: the type of each, and what follows its header.
    ///
    /// `INTR` if what was dumped has changed meanwhile, so that it may be incomplete.
    pub(super) fn ask(
        &mut self,
        kind: u16,
        dump: bool,
        body: &[u8],
    ) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
        let mut answers = Vec::new();
        self.ask_each(kind, dump, body, |kind, payload| answers.push((kind, payload.to_vec())))?;
        Ok(answers)
    }

    /// As [`Socket::ask`], of answers that may be many: each is handed over and not kept.
    pub(super) fn ask_each(
        &mut self,
        kind: u16,
        dump: bool,
        body: &[u8],
        mut with: impl FnMut(u16, &[u8]),
    ) -> rustix::io::Result<()> {
        let flags = NLM_F_REQUEST | if dump { NLM_F_DUMP } else { NLM_F_ACK };
        let request = with_header(kind, flags, body);
        sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut interrupted = false;
        loop {
            for Message { kind, flags, payload } in self.receive()? {
                interrupted |= dump && flags & NLM_F_DUMP_INTR != 0;
                match kind {
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
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let attribute = attribute(CTRL_ATTR_FAMILY_NAME, &text);
        let answers = self.request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, false, &attribute)?;
        let id = answers.first().and_then(|answer| find(answer, CTRL_ATTR_FAMILY_ID));
        let id = id.and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        id.ok_or(Errno::BADMSG)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn open_generic() -> rustix::io::Result<Socket> {
    Socket::open(Some(netlink::GENERIC), 0, SocketFlags::empty())
}

/// One attribute with its header, padded to 4 bytes.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut attribute = Vec::with_capacity(value.len().next_multiple_of(4) + 4);
    attribute.extend(bytes.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Value of the first attribute of this kind; `None` also where the bytes are malformed.
pub(super) fn find(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut all = NlasIterator::new(attributes).map_while(std::result::Result::ok);
    all.find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value().to_vec())
}

/// The leading 32-bit number, in this machine's byte order.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Unprivileged processes can send to any netlink socket; the kernel's port is 0.
fn is_kernel(address: SocketAddrAny) -> bool {
    SocketAddrNetlink::try_from(address).is_ok_and(|address| address.pid() == 0)
}

fn with_header(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
    request.extend(bytes.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]); // sequence number and port: one request at a time, kernel's choice
    request.extend(body);
    request
}

/// Splits a datagram; `None` if it is malformed.
fn messages(mut datagram: &[u8]) -> Option<Vec<Message<'_>>> {
    let mut found = Vec::new();
    while !datagram.is_empty() {
        let message = NetlinkBuffer::new_checked(datagram).ok()?;
        let (kind, bytes) = (message.message_type(), message.length() as usize);
        let payload = datagram.get(HEADER_BYTES..bytes)?;
        found.push(Message { kind, flags: message.flags(), payload });
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
        assert_eq!(find(&bytes, 2).as_deref().and_then(number), Some(7));
        assert_eq!(find(&bytes, 3), None);
        assert_eq!(find(&bytes[..6], 1), None);
    }

    #[test]
    fn a_datagram_splits_into_its_messages() {
        let mut datagram = with_header(20, 0, &[1, 1, 0, 0, 1, 2, 3, 4]);
        datagram.extend(with_header(21, 0, &[2, 1, 0, 0]));
        let found = messages(&datagram).unwrap();
        assert_eq!(found.iter().map(|message| message.kind).collect::<Vec<_>>(), [20, 21]);
        assert_eq!(found[0].payload.len(), 8);
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
