//! The four places where a gate can be attached, and what holds it there.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::clsact::Filter;
use crate::error::{Error, Result};
use crate::units::IfIndex;

/// Where a gate is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachMode {
    /// XDP in the driver, before an skb exists.
    Native,
    /// XDP in the stack, on an skb.
    Generic,
    /// tc ingress by a link (`BPF_TCX_INGRESS`, Linux 6.6), on an skb. Other programs run there too.
    Tcx,
    /// tc ingress by a filter in a `clsact` queueing discipline, on an skb: where there is no tcx.
    Clsact,
}

impl AttachMode {
    /// Whether this is one of XDP's places, which take one program.
    pub fn is_xdp(self) -> bool {
        matches!(self, Self::Native | Self::Generic)
    }

    /// For a person: the hook's name.
    pub fn description(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
            Self::Tcx => "tc ingress (tcx)",
            Self::Clsact => "tc ingress (clsact filter)",
        }
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// An attached program. Dropping it detaches it.
pub(crate) enum Attachment {
    /// The kernel removes it with its last descriptor, which is never pinned.
    Link {
        /// Held open.
        link: OwnedFd,
    },
    /// Would outlive the process.
    Filter {
        /// Removed on drop.
        filter: Filter,
    },
}

impl Attachment {
    /// Whether it is still attached.
    pub(crate) fn holds(&self) -> Result<bool> {
        match self {
            Self::Link { link } => has_device(link.as_fd())
                .map_err(|source| Error::system("look up", "the gate's link", source)),
            Self::Filter { filter } => filter.is_attached(),
        }
    }
}

/// Whether a link to XDP or tcx has not been detached.
#[allow(unsafe_code)]
fn has_device(link: BorrowedFd<'_>) -> io::Result<bool> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the descriptor is an open link's; the kernel writes at most `len` bytes to `info`, which is plain
    // integers, all zero.
    let code = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if code < 0 {
        return Err(io::Error::from_raw_os_error(-code));
    }
    // SAFETY: these variants of the union are integers, which any bytes are.
    let (xdp, tcx) = unsafe { (info.__bindgen_anon_1.xdp, info.__bindgen_anon_1.tcx) };
    Ok(match info.type_ {
        libbpf_sys::BPF_LINK_TYPE_XDP => xdp.ifindex != 0,
        libbpf_sys::BPF_LINK_TYPE_TCX => tcx.ifindex != 0,
        _ => true,
    })
}

/// Attaches a loaded program by a link.
pub(crate) fn by_link(
    program: BorrowedFd<'_>,
    ifindex: IfIndex,
    ifname: &str,
    mode: AttachMode,
) -> Result<Attachment> {
    let (kind, flags) = match mode {
        AttachMode::Native => (libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_DRV_MODE),
        AttachMode::Generic => (libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_SKB_MODE),
        // Without a position: behind the programs that are there.
        AttachMode::Tcx => (libbpf_sys::BPF_TCX_INGRESS, 0),
        AttachMode::Clsact => return Err(failed(ifname, mode, Errno::INVAL)),
    };
    let link = create_link(program, ifindex, kind, flags);
    link.map(|link| Attachment::Link { link }).map_err(|error| failed(ifname, mode, error))
}

/// Attaches a loaded program by a link where packets leave (`BPF_TCX_EGRESS`, Linux 6.6).
pub(crate) fn at_egress(
    program: BorrowedFd<'_>,
    ifindex: IfIndex,
    ifname: &str,
) -> Result<Attachment> {
    let link = create_link(program, ifindex, libbpf_sys::BPF_TCX_EGRESS, 0);
    link.map(|link| Attachment::Link { link }).map_err(|source| {
        Error::system("attach a program to", format!("{ifname} at tc egress (tcx)"), source)
    })
}

pub(crate) fn failed(ifname: &str, mode: AttachMode, source: impl Into<io::Error>) -> Error {
    Error::system("attach a program to", format!("{ifname} at {}", mode.description()), source)
}

#[allow(unsafe_code)]
fn create_link(
    program: BorrowedFd<'_>,
    ifindex: IfIndex,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is an open program's, and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex.0 as i32, kind, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A program that passes every packet. On a veth it brings the NAPI instances that a gate would
/// bring; attaching and detaching it shows what the driver itself loses.
pub struct DoNothing {
    program: OwnedFd,
    attachment: Option<Attachment>,
}

impl DoNothing {
    /// Loads it.
    ///
    /// # Errors
    /// Without the privilege.
    #[allow(unsafe_code)]
    pub fn load() -> Result<Self> {
        // r0 = XDP_PASS; exit
        let instruction = |code, imm| libbpf_sys::bpf_insn { code, imm, ..Default::default() };
        let move_immediate = (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV) as u8;
        let exit = (libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8;
        let instructions =
            [instruction(move_immediate, libbpf_sys::XDP_PASS.cast_signed()), instruction(exit, 0)];
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            // As the gate: any MTU.
            prog_flags: libbpf_sys::BPF_F_XDP_HAS_FRAGS,
            ..Default::default()
        };
        // SAFETY: name and license end in NUL; instructions and options outlive the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                c"weir_nothing".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as libbpf_sys::size_t,
                &raw mut options,
            )
        };
        if fd < 0 {
            let source = io::Error::from_raw_os_error(-fd);
            return Err(Error::system("load", "a program that passes every packet", source));
        }
        // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
        Ok(Self { program: unsafe { OwnedFd::from_raw_fd(fd) }, attachment: None })
    }

    /// Attaches it at one of XDP's places.
    ///
    /// # Errors
    /// Where another XDP program is attached, or the interface takes none.
    pub fn attach(&mut self, ifindex: IfIndex, ifname: &str, mode: AttachMode) -> Result<()> {
        self.attachment = Some(by_link(self.program.as_fd(), ifindex, ifname, mode)?);
        Ok(())
    }

    /// Attaches it in the driver as `ip link` does, by netlink: it stays until somebody removes it.
    /// Stands for somebody else's program.
    ///
    /// # Errors
    /// As [`DoNothing::attach`].
    #[allow(unsafe_code)]
    pub fn attach_by_netlink(&self, ifindex: IfIndex) -> Result<()> {
        let flags = libbpf_sys::XDP_FLAGS_DRV_MODE | libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
        let fd = self.program.as_raw_fd();
        // SAFETY: the descriptor is an open program's; without options the pointer may be null.
        let code = unsafe {
            libbpf_sys::bpf_xdp_attach(ifindex.0.cast_signed(), fd, flags, std::ptr::null())
        };
        if code < 0 {
            let source = io::Error::from_raw_os_error(-code);
            return Err(failed("the interface", AttachMode::Native, source));
        }
        Ok(())
    }

    /// Detaches it, if it was attached by a link.
    pub fn detach(&mut self) {
        self.attachment = None;
    }
}
