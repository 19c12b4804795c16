//! The capabilities that weir needs.

use rustix::io::Errno;
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::error::{Error, Result};

/// One that something in weir needs (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Attaching programs, changing interfaces.
    NetAdmin,
    /// Raw and packet sockets.
    NetRaw,
    /// Entering network namespaces, mounting sysfs.
    SysAdmin,
    /// Scheduling of threads that are not one's own.
    SysNice,
    /// Programs that read kernel memory.
    Perfmon,
    /// Loading programs and making maps.
    Bpf,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::NetAdmin, Self::NetRaw, Self::SysAdmin, Self::SysNice, Self::Perfmon, Self::Bpf];

    /// Name as in capabilities(7), and what satisfies it: as the kernel does (`perfmon_capable`, `bpf_capable`),
    /// `CAP_SYS_ADMIN` may stand for the two that were split off it.
    fn parts(self) -> (&'static str, CapabilitySet) {
        match self {
            Self::NetAdmin => ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
            Self::NetRaw => ("CAP_NET_RAW", CapabilitySet::NET_RAW),
            Self::SysAdmin => ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
            Self::SysNice => ("CAP_SYS_NICE", CapabilitySet::SYS_NICE),
            Self::Perfmon => ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
            Self::Bpf => ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        }
    }
}

/// Names of those that the calling thread does not have in its effective set, in the given order.
///
/// # Errors
/// [`Error::System`] if the kernel does not tell.
pub fn missing(needed: &[Capability]) -> Result<Vec<&'static str>> {
    let sets = capabilities(None)
        .map_err(|errno| Error::system("read", "this thread's capabilities", errno))?;
    Ok(missing_from(sets.effective, needed))
}

fn missing_from(effective: CapabilitySet, needed: &[Capability]) -> Vec<&'static str> {
    let lacking = needed.iter().map(|needed| needed.parts());
    lacking.filter(|(_, by)| !effective.intersects(*by)).map(|(name, _)| name).collect()
}

/// Gives up, for this thread and those that it starts from now on, every capability but these, and the ways to get
/// others back: the bounding set, and what programs that it runs would bring along (`no_new_privs`).
///
/// # Errors
/// [`Error::System`] if the kernel refuses.
pub fn confine(kept: CapabilitySet) -> Result<()> {
    let failed = |errno| Error::system("give up", "capabilities", errno);
    for dropped in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(dropped) {
            // Without CAP_SETPCAP the set stays as it is; an older kernel has fewer capabilities.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    set_no_new_privs(true).map_err(failed)?;
    let now = capabilities(None).map_err(failed)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: now.inheritable & kept,
    };
    set_capabilities(None, sets).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        let numbers = Capability::ALL.map(|c| c.parts().1.bits().trailing_zeros());
        assert_eq!(numbers[..4], [12, 13, 21, 23]);
        assert_eq!((CapabilitySet::PERFMON.bits(), CapabilitySet::BPF.bits()), (1 << 38, 1 << 39));
    }

    #[test]
    fn sys_admin_stands_for_what_was_split_off_it() {
        let lacking = |effective| missing_from(effective, &Capability::ALL);
        assert_eq!(
            lacking(CapabilitySet::SYS_ADMIN),
            ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_NICE"]
        );
        assert_eq!(lacking(CapabilitySet::empty()), Capability::ALL.map(|c| c.parts().0));
        assert!(lacking(CapabilitySet::all()).is_empty());
    }

    #[test]
    fn what_a_thread_gives_up_it_lacks() {
        let before = missing(&Capability::ALL).unwrap();
        assert!(before.is_empty(), "the tests need root; missing: {before:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all = capabilities(None).unwrap();
                let effective = all.effective - CapabilitySet::NET_RAW - CapabilitySet::SYS_NICE;
                set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
                assert_eq!(missing(&Capability::ALL).unwrap(), ["CAP_NET_RAW", "CAP_SYS_NICE"]);
            });
        });
        assert!(missing(&Capability::ALL).unwrap().is_empty());
    }
}
