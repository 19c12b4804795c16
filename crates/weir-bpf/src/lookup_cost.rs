//! What one socket lookup costs from XDP: `bpf/lookup_cost.bpf.c`, for the lab.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::{Error, Result};
use crate::skeleton::lookup_cost::{LookupCostSkel, LookupCostSkelBuilder, types};
use crate::test_run;
use crate::units::{IfIndex, Nanos};

/// Lookups in one run of a program; `WEIR_LOOKUPS_PER_RUN` in `bpf/abi/`.
pub const LOOKUPS_PER_RUN: u32 = 64;

/// The kernel's lookup helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// None: the loop alone.
    Nothing,
    /// `bpf_sk_lookup_udp()`.
    Udp,
    /// `bpf_sk_lookup_tcp()`: full sockets only.
    Tcp,
    /// `bpf_skc_lookup_tcp()`: request and TIME_WAIT sockets too.
    SkcTcp,
}

/// One run of [`LOOKUPS_PER_RUN`] lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupRun {
    /// Mean time of a run, with the release of what was found.
    pub mean: Nanos,
    /// How many of a run's lookups found a socket.
    pub found: u32,
}

/// The programs that look up, loaded.
pub struct LookupPrograms {
    skel: LookupCostSkel<'static>,
}

impl LookupPrograms {
    /// Loads them.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn load() -> Result<Self> {
        let failed = |operation| {
            move |source| Error::Bpf {
                operation,
                object: "the lookup programs".into(),
                source,
                remedy: Some("they need root and a kernel with bpf_skc_lookup_tcp (5.2)".into()),
            }
        };
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = LookupCostSkelBuilder::default().open(storage).map_err(failed("open"))?;
        Ok(Self { skel: open.load().map_err(failed("load"))? })
    }

    /// Looks up the socket that a packet from `source` to `destination` is for, over and over, in
    /// the calling thread's network namespace and on its CPU. `ifindex` has XDP attached.
    ///
    /// # Errors
    /// Addresses of two families; when the kernel refuses the run.
    pub fn time(
        &mut self,
        lookup: Lookup,
        source: SocketAddr,
        destination: SocketAddr,
        ifindex: IfIndex,
        repeat: u32,
    ) -> Result<LookupRun> {
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(Error::Refused {
                problem: format!("{source} and {destination} differ in family"),
                remedy: "look up addresses of one family".into(),
            });
        }
        self.set(types::weir_lookup_tuple {
            source: octets(source.ip()),
            destination: octets(destination.ip()),
            source_port_be: source.port().to_be(),
            destination_port_be: destination.port().to_be(),
        });
        let program = self.program(lookup, destination.is_ipv4());
        // The shortest packet that the kernel takes: the programs do not look at it.
        let run = test_run::timed(program, &[0; 64], ifindex, repeat)?;
        Ok(LookupRun { mean: run.mean, found: self.found() })
    }

    fn program(&self, lookup: Lookup, ipv4: bool) -> BorrowedFd<'_> {
        let programs = &self.skel.progs;
        match (lookup, ipv4) {
            (Lookup::Nothing, _) => programs.weir_no_lookup.as_fd(),
            (Lookup::Udp, true) => programs.weir_udp4.as_fd(),
            (Lookup::Udp, false) => programs.weir_udp6.as_fd(),
            (Lookup::Tcp, true) => programs.weir_tcp4.as_fd(),
            (Lookup::Tcp, false) => programs.weir_tcp6.as_fd(),
            (Lookup::SkcTcp, true) => programs.weir_skc_tcp4.as_fd(),
            (Lookup::SkcTcp, false) => programs.weir_skc_tcp6.as_fd(),
        }
    }

    fn set(&mut self, tuple: types::weir_lookup_tuple) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.looked_up = tuple;
        }
    }

    #[allow(unsafe_code)]
    fn found(&self) -> u32 {
        let Some(bss) = self.skel.maps.bss_data.as_deref() else { return 0 };
        // SAFETY: a valid reference, to an integer that the kernel has written.
        unsafe { ptr::read_volatile(&raw const bss.found) }
    }
}

/// An IPv4 address in the first 4 bytes.
fn octets(address: IpAddr) -> [u8; 16] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => octets = v6.octets(),
    }
    octets
}
