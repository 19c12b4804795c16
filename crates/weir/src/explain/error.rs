//! Why a capture cannot be read, or not further.

use std::io;

use pcap_file::PcapError;

/// A capture that cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened or its first bytes cannot be read.
    #[error("cannot read {name}: {source}")]
    Open {
        /// The file.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file's header is not one of a capture.
    #[error("{name} is no capture that weir can read: {why}")]
    Header {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The packets before this point are good.
    #[error("{name}: cannot read packet {number}, at byte {offset}: {why}")]
    Packet {
        /// The file.
        name: String,
        /// Of the packet, counted from 1.
        number: u64,
        /// Where it begins, in bytes from the start of the file.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

/// Bytes are missing.
pub const CUT_SHORT: &str =
    "the file ends in the middle of it: it was cut short, or a length in it is wrong";
/// There are others than it says.
pub const WRONG_LENGTH: &str = "a length in it is wrong: the file is damaged here";

/// What the pcap parser's error means; `ended`: whether the file has been read to its end.
pub fn explain(error: &PcapError, ended: bool) -> String {
    match error {
        PcapError::IoError(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            if ended {
                CUT_SHORT.into()
            } else {
                "its length is larger than any packet's: the file is damaged here".into()
            }
        }
        PcapError::IoError(source) => source.to_string(),
        PcapError::IncompleteBuffer => WRONG_LENGTH.into(),
        PcapError::InvalidField(field) => format!("the file is damaged here ({field})"),
        // Of pcapng files alone.
        other => other.to_string(),
    }
}

/// A file that begins so is no capture; this command would read it from standard input.
pub fn no_capture(first: &[u8], command: &str) -> String {
    const COMPRESSED: [(&[u8], &str); 3] =
        [(b"\x1f\x8b", "zcat"), (b"\xfd7zX", "xzcat"), (b"\x28\xb5\x2f\xfd", "zstdcat")];
    match COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, reader)) => format!("it is compressed; `{reader} FILE | {command}`"),
        None => "it begins like neither a pcap nor a pcapng file".into(),
    }
}

/// A packet names an interface that the file has not described.
pub fn no_interface(id: u32) -> String {
    format!("it names interface {id}, which the file does not describe: the file is damaged")
}

/// What is said of a packet of another link type.
pub const FOREIGN: &str = "of a link type that is neither Ethernet nor raw IP";

/// A link type whose packets begin neither with an Ethernet header nor with an IP header.
pub fn unknown_link(link: pcap_file::DataLink) -> String {
    format!(
        "it was captured on a link of type {link:?}, and weir judges Ethernet and raw IP; capture on an \
         Ethernet interface by its name (`tcpdump -i eth1`), not on `any`"
    )
}
