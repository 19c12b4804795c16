//! The gate: loading, configuring, attaching.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapCore, MapFlags, MapMut, Program, libbpf_sys};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::abi;
use crate::accounts::until;
use crate::address_table::{self, AddressTable};
use crate::attach::{self, AttachMode, Attachment};
use crate::attach_mode;
use crate::channels::{self, CHANNELS, ChannelMapIds, Channels};
use crate::clsact::{Filter, FilterRecord};
use crate::counters::{self, Counters};
use crate::error::{Error, Result};
use crate::features::{asks_conntrack, makes_cookies};
use crate::object::{globals, id_of, load};
pub use crate::probe::QueueProbe;
use crate::probe::share;
use crate::skeleton::gate::{GateSkel, GateSkelBuilder, types};
use crate::sys::divert::{CHECKSUMS_UNTOLD, PortProtocol, Ports, Sight};
use crate::sys::ethtool;
use crate::sys::link::Links;
use crate::sys::local_table::LocalAddresses;
use crate::sys::netns::NetNs;
use crate::test_run::{self, skb_context, xdp_context};
use crate::units::{IfIndex, MacAddr, Permille};
use crate::verdict::Verdict;

/// What becomes of what the gate decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Discard what the kernel would drop anyway
    #[default]
    On,
    /// Pass everything, count what would be discarded, and say at the end whose it was; change nothing on the host
    Shadow,
    /// Pass everything and count nothing by destination; to watch, use shadow. Who polls is as with `on`; with `--napi
    /// auto`, softirqs
    Off,
}

/// How the gate answers connection requests: [`Gate::set_cookies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookies {
    /// The interface's MTU, in bytes, by which a segment's greatest length is told.
    pub mtu: u32,
    /// How many routers may pass an answer on, by IPv4...
    pub ttl: u8,
    /// ...and by IPv6.
    pub hops: u8,
}

/// `include/uapi/linux/pkt_cls.h`
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;
/// An answer of the gate's may be longer than a short packet.
const ROOM_TO_GROW: usize = 64;

/// One interface's gate. Dropping it detaches it.
pub struct Gate {
    skel: GateSkel<'static>,
    attachment: Option<Attachment>,
    /// What is in the kernel half's tables.
    addresses: AddressTable,
    /// By what the probe finds its row of charges, where it has one.
    charges: Option<Vec<u8>>,
    /// Its own driver has no NAPI.
    unpolled: bool,
    /// The ports that the kernel half takes for translated.
    translated: Vec<Ports>,
    /// Which of its programs is loaded: that for XDP, else that for tc ingress.
    xdp: bool,
    /// The fast path of forwarding is in front of it.
    pub(crate) forwards: bool,
    /// What counts the fast path's packets that a driver does not take.
    pub(crate) unsent: Vec<Link>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.forget_charges();
    }
}

impl Gate {
    /// Loads a gate for this place, or another with the same kind of program ([`AttachMode::is_xdp`]): the verifier
    /// needs a tenth of a second for each kind. It shares the probe's queue states, and sees no packet before
    /// [`Gate::attach`].
    ///
    /// # Errors
    /// Without the privilege, or where the kernel's verifier refuses the program.
    pub fn load(probe: &QueueProbe, place: AttachMode) -> Result<Self> {
        Self::load_with(probe, place, false, |_| ())
    }

    /// As [`Gate::load`], for an interface whose packets have no Ethernet header ([`LinkInfo::bare`]), at tc.
    ///
    /// [`LinkInfo::bare`]: crate::sys::link::LinkInfo::bare
    ///
    /// # Errors
    /// As [`Gate::load`].
    pub fn load_bare(probe: &QueueProbe) -> Result<Self> {
        Self::load_with(probe, AttachMode::Tcx, false, |rodata| rodata.no_ethernet = true)
    }

    /// As [`Gate::load`], for [`Gate::explain`] only: it is not to be attached, as each packet costs more.
    ///
    /// # Errors
    /// As [`Gate::load`].
    pub fn load_explaining(probe: &QueueProbe) -> Result<Self> {
        Self::load_with(probe, AttachMode::Native, false, |rodata| rodata.explaining = true)
    }

    /// As [`Gate::load`], with one of its rules broken.
    ///
    /// # Errors
    /// As [`Gate::load`].
    #[cfg(feature = "seeded-defects")]
    pub fn load_with_defect(
        probe: &QueueProbe,
        place: AttachMode,
        defect: crate::verdict::Defect,
    ) -> Result<Self> {
        // 0 is none.
        Self::load_with(probe, place, false, |rodata| rodata.seeded_defect = defect as u32 + 1)
    }

    pub(crate) fn load_with(
        probe: &QueueProbe,
        place: AttachMode,
        forwards: bool,
        set: impl FnOnce(&mut types::rodata),
    ) -> Result<Self> {
        let xdp = place.is_xdp();
        let skel = load::<GateSkelBuilder>("the gate", |open| {
            share!(open, probe);
            let (progs, maps) = (&mut open.progs, &mut open.maps);
            let rodata = globals(maps.rodata_data.as_deref_mut());
            rodata.has_ct_lookup = asks_conntrack();
            rodata.has_raw_cookies = makes_cookies();
            set(rodata);
            progs.weir_gate.set_autoload(xdp);
            progs.weir_gate_tc.set_autoload(!xdp);
            for each in [&mut progs.weir_forward, &mut progs.weir_unsent, &mut progs.weir_rejected]
            {
                each.set_autoload(forwards);
            }
            for map in [&mut maps.out_devices, &mut maps.next_hops, &mut maps.behind] {
                map.set_autocreate(forwards)?;
            }
            Ok(())
        })?;
        Ok(Self {
            xdp,
            forwards,
            unsent: Vec::new(),
            skel,
            attachment: None,
            addresses: AddressTable::default(),
            charges: None,
            unpolled: false,
            translated: Vec::new(),
        })
    }

    /// Tells the gate which interface it stands for in test runs; one that is attached knows.
    ///
    /// # Errors
    /// As [`Gate::attach`], but for those of attaching.
    pub fn stand_for(&mut self, ifindex: IfIndex) -> Result<()> {
        self.set_charges(ifindex)?;
        self.bss().interface.ifindex = ifindex.0;
        Ok(())
    }

    /// Tells the gate its interface's own MAC address and whether to discard at all. Takes effect
    /// with the next packet.
    pub fn configure(&mut self, mac: MacAddr, policy: Policy) {
        let bss = self.bss();
        bss.interface.mac = mac.words();
        bss.interface.policy_off = u8::from(policy == Policy::Off);
        bss.interface.shadow = u32::from(policy == Policy::Shadow);
    }

    /// Tells the gate whether something may take this interface's packets elsewhere before a socket sees
    /// them ([`crate::sys::divert`]): if so, it counts them under [`Reason::Diverted`] and passes
    /// them. Takes effect with the next packet and lasts until it is told otherwise.
    ///
    /// [`Reason::Diverted`]: crate::verdict::Reason::Diverted
    pub fn set_diverted(&mut self, diverted: bool) {
        self.bss().interface.diverted = u8::from(diverted);
    }

    /// Tells the gate whether VLAN interfaces are on top of its interface, to one of which packets with a tag of VLAN 0
    /// may go. At first there are none. Takes effect with the next packet.
    pub fn set_vlans(&mut self, there: bool) {
        self.bss().interface.vlans = u16::from(there);
    }

    /// Tells the gate whether multicast is routed from its interface: if so, it counts packets to groups under
    /// [`Reason::Diverted`] and passes them. Takes effect with the next packet.
    ///
    /// [`Reason::Diverted`]: crate::verdict::Reason::Diverted
    pub fn set_routes_groups(&mut self, routes: bool) {
        self.bss().interface.routes_groups = u16::from(routes);
    }

    /// Tells the gate whether connections of this interface's are translated, and to which ports new ones may be.
    /// If so, it asks conntrack before it discards a packet; those of translated connections, and to these
    /// ports, it counts under [`Reason::Translated`] and passes. Takes effect with the next packet.
    ///
    /// [`Reason::Translated`]: crate::verdict::Reason::Translated
    pub fn set_translation(&mut self, ports: Option<Vec<Ports>>) {
        let bss = globals(self.skel.maps.bss_data.as_deref_mut());
        let translates = ports.is_some();
        let ports = ports.unwrap_or_default();
        if ports != self.translated {
            let mut words = [0; 2 * abi::PORT_WORDS];
            for Ports { protocol, first, last } in &ports {
                // UDP's come first.
                let begin = if *protocol == PortProtocol::Tcp { abi::PORT_WORDS } else { 0 };
                for port in *first..=*last {
                    words[begin + usize::from(port / 64)] |= 1_u64 << (port % 64);
                }
            }
            bss.translated_ports = words;
            self.translated = ports;
        }
        bss.interface.translated = u32::from(translates);
    }

    /// What it knows by itself: conntrack's connections only if that was there before it.
    pub fn sight(&self) -> Sight {
        let connections = globals(self.skel.maps.rodata_data).has_ct_lookup;
        Sight { connections, vlan_tags: !self.xdp, protocol: true }
    }

    /// Has the gate believe what it has been told of its interface for as long from now, and then pass everything
    /// under [`Reason::Stale`] until it is told anew. Whoever never says it is believed for ever.
    ///
    /// [`Reason::Stale`]: crate::verdict::Reason::Stale
    pub fn believe_for(&mut self, time: Duration) {
        self.bss().interface.fresh_until_ns = until(time).0;
    }

    /// Whether the gate is where it was attached: not if somebody else has detached it.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn is_attached(&self) -> Result<bool> {
        self.attachment.as_ref().map_or(Ok(false), Attachment::holds)
    }

    /// Limits what receive softirqs may take of a CPU from processes that want it, in each period of
    /// [`Softirqs`](crate::softirq::Softirqs): past this share the gate counts packets under
    /// [`Reason::CpuShare`] and discards them, but for ARP and the like. `None`: no limit. Takes effect
    /// with the next packet.
    ///
    /// [`Reason::CpuShare`]: crate::verdict::Reason::CpuShare
    pub fn limit_input(&mut self, share: Option<Permille>) {
        let bss = self.bss();
        if let Some(Permille(share)) = share {
            bss.interface.input_share = share;
        }
        bss.interface.limited = u32::from(share.is_some());
    }

    /// Whether heavy sources are shed before light ones while a UDP socket's queue is contested: the gate
    /// counts their packets under [`Reason::UdpSource`]. At first they are not. Takes effect with the
    /// next packet.
    ///
    /// [`Reason::UdpSource`]: crate::verdict::Reason::UdpSource
    pub fn set_selective(&mut self, selective: bool) {
        self.bss().interface.selective = u32::from(selective);
    }

    /// Has the gate answer connection requests past a listener's queue by SYN cookie while the CPU is short, as
    /// [`Accounts::short`](crate::accounts::Accounts::short) says: it counts them under [`Reason::TcpCookie`] and sends
    /// them back. `None`: they are the kernel's, as at first. Takes effect with the next packet.
    ///
    /// [`Reason::TcpCookie`]: crate::verdict::Reason::TcpCookie
    pub fn set_cookies(&mut self, cookies: Option<Cookies>) {
        let interface = &mut self.bss().interface;
        if let Some(Cookies { ttl, hops, .. }) = cookies {
            (interface.cookie_ttl, interface.cookie_hops) = (ttl.into(), hops.into());
        }
        interface.cookie_mtu = cookies.map_or(0, |cookies| cookies.mtu);
    }

    /// Tells the gate which TCP ports are protected: connections that this host opened to such a port of a
    /// peer's have channels of their own ([`Kind::TcpPeer`]). None is at first. Takes effect with the next
    /// packet.
    ///
    /// [`Kind::TcpPeer`]: crate::verdict::Kind::TcpPeer
    pub fn set_protected_ports(&mut self, ports: impl IntoIterator<Item = u16>) {
        let mut words = [0_u64; abi::PORT_WORDS];
        for port in ports {
            words[usize::from(port / 64)] |= 1 << (port % 64);
        }
        self.bss().protected_ports = words;
    }

    /// Tells the gate the addresses for which its interface's packets are delivered, in place of those that it
    /// knew. Packets to any other address pass, and to those that are unsure, which count as this host's in a
    /// packet's source. Addresses that stay are never missing meanwhile. At most [`abi::LOCAL_ADDRESSES`] of a family
    /// are kept, the first ones.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_local(&mut self, addresses: &LocalAddresses) -> Result<()> {
        let maps = &self.skel.maps;
        let wanted = address_table::of(addresses);
        let changes = wanted != *self.addresses.known();
        let done = self.addresses.replace(&wanted, &maps.local_ipv4, &maps.local_ipv6);
        if changes {
            // Also of what was done in part: what was remembered of the old ones is void.
            let bss = self.bss();
            bss.interface.generation = bss.interface.generation.wrapping_add(1);
        }
        done
    }

    /// Attaches the gate. By a link, the kernel removes it when this process ends, however it ends;
    /// at [`AttachMode::Clsact`] it stays: see [`Gate::attach_filter`].
    ///
    /// # Errors
    /// [`Error::System`]: with `EBUSY` or `EEXIST` where another XDP program is attached, and otherwise
    /// where the interface or the kernel has no such place.
    pub fn attach(&mut self, ifindex: IfIndex, ifname: &str, mode: AttachMode) -> Result<()> {
        if mode == AttachMode::Clsact {
            let record = self.filter_record(ifindex)?;
            return self.attach_filter(ifindex, ifname, record);
        }
        self.set_interface(ifindex, ifname, mode)?;
        let program = match mode {
            AttachMode::Native if self.forwards => self.skel.progs.weir_forward.as_fd(),
            _ => self.program(),
        };
        self.attachment = Some(attach::by_link(program, ifindex, ifname, mode)?);
        Ok(())
    }

    /// Whether its program is of the kind that this place takes.
    pub fn is_for(&self, place: AttachMode) -> bool {
        self.xdp == place.is_xdp()
    }

    fn program(&self) -> BorrowedFd<'_> {
        let progs = &self.skel.progs;
        if self.xdp { progs.weir_gate.as_fd() } else { progs.weir_gate_tc.as_fd() }
    }

    /// Tells the gate where it is.
    fn set_interface(&mut self, ifindex: IfIndex, ifname: &str, mode: AttachMode) -> Result<()> {
        self.set_charges(ifindex)?;
        let driver = ethtool::driver(ifname).unwrap_or_default();
        self.unpolled = driver == "tun";
        // A tun device runs XDP on skbs as well, of whatever is several in one.
        let pieces = mode == AttachMode::Generic || mode == AttachMode::Native && self.unpolled;
        let links = Links::open()?;
        let packet_max = if pieces { links.info(ifindex)?.mtu } else { 0 };
        self.follow_ports(&links, ifindex)?;
        let bss = self.bss();
        bss.interface.ifindex = ifindex.0;
        bss.interface.packet_max = packet_max;
        let partial = driver == "veth" || CHECKSUMS_UNTOLD.contains(&driver.as_str());
        bss.lazy_may_be_partial = u32::from(partial);
        let native = mode == AttachMode::Native;
        bss.interface.unfinished = u16::from(native && ethtool::is_unfinished(ifname));
        if !self.is_for(mode) {
            return Err(attach_mode::failed(ifname, mode, Errno::INVAL));
        }
        Ok(())
    }

    /// Has it look whether packets come in by a tun device, which is the interface or below it. A driver without NAPI has
    /// no polls that the probe could see end.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn follow_ports(&mut self, links: &Links, ifindex: IfIndex) -> Result<()> {
        let without_napi = links.below(ifindex)?.iter().any(|it| it.kind.as_deref() == Some("tun"));
        self.bss().interface.no_polls = without_napi.into();
        Ok(())
    }

    /// Tells it that the interface takes packets up to this length now, in bytes.
    pub fn follow_mtu(&mut self, mtu: u32) {
        let interface = &mut globals(self.skel.maps.bss_data.as_deref_mut()).interface;
        if interface.packet_max > 0 {
            interface.packet_max = mtu;
        }
    }

    /// Whether a softirq polls its interface. Not a tun device: its packets come in the time of whoever writes them.
    pub fn is_polled(&self) -> bool {
        !self.unpolled
    }

    /// Whether it sees packets that are several in one, and not that they are.
    pub fn sees_pieces(&self) -> bool {
        globals(self.skel.maps.bss_data.as_deref()).interface.packet_max > 0
    }

    /// Gives the gate an empty row of charges, which the probe fills in from now on. Beyond
    /// `WEIR_CHARGE_ROWS` interfaces there is none: natively, UDP then passes.
    fn set_charges(&mut self, ifindex: IfIndex) -> Result<()> {
        self.forget_charges();
        // The namespace that the interface is in is this thread's.
        let key = [NetNs::current()?.number().to_ne_bytes(), ifindex.0.to_ne_bytes()].concat();
        let rows = &self.skel.maps.charge_rows;
        let taken: BTreeSet<Vec<u8>> =
            rows.keys().filter_map(|key| rows.lookup(&key, MapFlags::ANY).ok().flatten()).collect();
        let free =
            (1..=rows.max_entries()).find(|row| !taken.contains(row.to_ne_bytes().as_slice()));
        let Some(row) = free else { return Ok(()) };
        let empty = vec![0; self.skel.maps.charges.value_size() as usize];
        let charges = &self.skel.maps.charges;
        let given = charges
            .update(&(row - 1).to_ne_bytes(), &empty, MapFlags::ANY)
            .and_then(|()| rows.update(&key, &row.to_ne_bytes(), MapFlags::ANY));
        given.map_err(Error::libbpf("give a row of charges to", "the gate"))?;
        self.bss().interface.charges = row;
        self.charges = Some(key);
        Ok(())
    }

    fn forget_charges(&mut self) {
        if let Some(key) = self.charges.take() {
            // Nobody else has it: what fails to be forgotten costs a row.
            let _ = self.skel.maps.charge_rows.delete(&key);
        }
    }

    /// What [`Gate::attach_filter`] would leave behind if this process were killed; to be written down
    /// before.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn filter_record(&self, ifindex: IfIndex) -> Result<FilterRecord> {
        let prog_id = self.program_id()?;
        FilterRecord::plan(&Links::open()?, ifindex, prog_id)
    }

    /// The kernel's number of the gate's program, attached or not.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn program_id(&self) -> Result<u32> {
        Program::id_from_fd(self.program()).map_err(Error::libbpf("look up", "the gate's program"))
    }

    /// Attaches the gate at [`AttachMode::Clsact`].
    ///
    /// # Errors
    /// As [`Gate::attach`]; with `EEXIST` if the interface has got a `clsact` queueing discipline since
    /// the record was made, or has a filter of weir's already.
    pub fn attach_filter(
        &mut self,
        ifindex: IfIndex,
        ifname: &str,
        record: FilterRecord,
    ) -> Result<()> {
        self.set_interface(ifindex, ifname, AttachMode::Clsact)?;
        let filter = Filter::attach(self.program(), ifindex, ifname, record)?;
        self.attachment = Some(Attachment::Filter { filter });
        Ok(())
    }

    /// Detaches the gate; its counters stay readable.
    pub fn detach(&mut self) {
        self.attachment = None;
    }

    /// What the gate has seen, summed over CPUs. Not one instant: packets arrive meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn counters(&self) -> Result<Counters> {
        counters::read(&self.skel.maps.counters)
    }

    /// What the gate has seen of each channel that has an address of its own.
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn channels(&self) -> Result<Channels> {
        let maps = &self.skel.maps;
        channels::read(&maps.channels, &maps.overflow_channel, &maps.destinations)
    }

    /// The loaded objects, for what else is read from them in this crate.
    pub(crate) fn skel(&self) -> &GateSkel<'static> {
        &self.skel
    }

    /// Its variables.
    pub(crate) fn bss(&mut self) -> &mut types::bss {
        globals(self.skel.maps.bss_data.as_deref_mut())
    }

    /// The kernel's number of the map that holds the counters, for [`counters::CountersReader::open`] in
    /// another process.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn counters_map_id(&self) -> Result<u32> {
        id_of(&self.skel.maps.counters, counters::COUNTERS)
    }

    /// Runs the loaded gate once on a packet without attaching it, in the calling thread's network
    /// namespace, as if the packet had come in on `ifindex`.
    ///
    /// # Errors
    /// When the kernel refuses the run, such as for a packet shorter than 14 bytes.
    pub fn test_run(&self, packet: &[u8], ifindex: IfIndex) -> Result<Verdict> {
        let drop = if self.xdp { libbpf_sys::XDP_DROP } else { TC_ACT_SHOT };
        let (returned, _) = self.test_run_whole(packet, ifindex)?;
        Ok(if returned == drop { Verdict::Discard } else { Verdict::Pass })
    }

    /// The same: what the gate would send in place of the packet, if anything.
    ///
    /// # Errors
    /// As [`Gate::test_run`].
    pub fn answer_to(&self, packet: &[u8], ifindex: IfIndex) -> Result<Option<Vec<u8>>> {
        let sends: &[u32] = match self.xdp {
            true => &[libbpf_sys::XDP_TX, libbpf_sys::XDP_REDIRECT],
            false => &[TC_ACT_REDIRECT],
        };
        let (returned, after) = self.test_run_whole(packet, ifindex)?;
        Ok(sends.contains(&returned).then_some(after))
    }

    /// What it returns, and the packet as it leaves it.
    fn test_run_whole(&self, packet: &[u8], ifindex: IfIndex) -> Result<(u32, Vec<u8>)> {
        let len = packet.len();
        let (xdp, skb) = (xdp_context(len, ifindex), skb_context(ifindex));
        let context: &[u8] = if self.xdp { &xdp } else { &skb };
        let mut after = vec![0_u8; len + ROOM_TO_GROW];
        let options = libbpf_sys::bpf_test_run_opts {
            data_out: after.as_mut_ptr().cast(),
            data_size_out: after.len() as u32,
            ..Default::default()
        };
        let run = test_run::run(self.program(), packet, context, options);
        let failed =
            |source| Error::system("run the gate on", format!("a packet of {len} bytes"), source);
        let run = run.map_err(failed)?;
        after.truncate(run.data_size_out as usize);
        Ok((run.retval, after))
    }

    /// Where [`ChannelsReader::open`] finds this gate's channels.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn channel_map_ids(&self) -> Result<ChannelMapIds> {
        let maps = &self.skel().maps;
        let id = |map: &MapMut<'_>| id_of(map, CHANNELS);
        Ok(ChannelMapIds {
            channels: id(&maps.channels)?,
            overflow: id(&maps.overflow_channel)?,
            destinations: id(&maps.destinations)?,
            accounts: id(&maps.accounts)?,
            samples: id(&maps.samples)?,
        })
    }
}
