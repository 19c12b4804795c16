//! What holds a program where it is attached.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{Xdp, XdpFlags, libbpf_sys};
use rustix::io::Errno;

use crate::attach_mode::failed;
use crate::clsact::Filter;
use crate::error::{Error, Result};
use crate::object::{load_returning, owned};
use crate::units::IfIndex;

pub use crate::attach_mode::AttachMode;

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
            Self::Link { link } => {
                has_device(link.as_fd()).map_err(Error::libbpf("look up", "the gate's link"))
            }
            Self::Filter { filter } => filter.is_attached(),
        }
    }
}

/// A program that stays attached as long as this is there.
pub struct Attached(#[expect(dead_code, reason = "held, not used")] pub(crate) Attachment);

/// Whether a link to XDP or tcx has not been detached.
fn has_device(link: BorrowedFd<'_>) -> libbpf_rs::Result<bool> {
    Ok(match LinkInfo::from_fd(link)?.info {
        LinkTypeInfo::Xdp(xdp) => xdp.ifindex != 0,
        LinkTypeInfo::Tcx(tcx) => tcx.ifindex != 0,
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
    let (program, ifindex) = (program.as_raw_fd(), ifindex.0.cast_signed());
    // SAFETY: the descriptor is an open program's, and the options outlive the call.
    owned(unsafe { libbpf_sys::bpf_link_create(program, ifindex, kind, &raw const options) })
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
    pub fn load() -> Result<Self> {
        // As the gate: any MTU.
        let prog_flags = libbpf_sys::BPF_F_XDP_HAS_FRAGS;
        let options = libbpf_sys::bpf_prog_load_opts { prog_flags, ..Default::default() };
        let (kind, pass) = (libbpf_sys::BPF_PROG_TYPE_XDP, libbpf_sys::XDP_PASS.cast_signed());
        let program = load_returning(kind, c"weir_nothing", pass, options);
        let program = program.map_err(|source| {
            Error::system("load", "a program that passes every packet", source)
        })?;
        Ok(Self { program, attachment: None })
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
    pub fn attach_by_netlink(&self, ifindex: IfIndex) -> Result<()> {
        let attached = Xdp::new(self.program.as_fd())
            .attach(ifindex.0.cast_signed(), XdpFlags::DRV_MODE | XdpFlags::UPDATE_IF_NOEXIST);
        attached.map_err(Error::libbpf("attach a program to", "the interface"))
    }

    /// Detaches it, if it was attached by a link.
    pub fn detach(&mut self) {
        self.attachment = None;
    }
}
