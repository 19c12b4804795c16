//! The kernel half of a user-mode screen: `bpf/wall.bpf.c`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, libbpf_sys, num_possible_cpus};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::abi;
use crate::accounts::{monotonic_now, until};
use crate::counters::Counter;
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{attach_all, globals, id_of, load};
use crate::parser::Parsed;
use crate::programs::{Program, gates_at_tc, holders_of_both};
use crate::record::{batches, record, records};
use crate::ring::Reader;
use crate::skeleton::wall::{WallSkel, WallSkelBuilder, types};
use crate::sys::divert;
use crate::sys::link::Links;
use crate::sys::netns::NetNs;
use crate::sys::tc::{FilterId, Hook};
use crate::tc_bpf;
use crate::test_run;
use crate::units::IfIndex;
pub use crate::verdict::WallOutcome;

pub(crate) const WALL: &str = "the wall";
/// Before the filters of others: what one of them accepts, those behind it never see. "wall", in ASCII.
const FILTER: FilterId = FilterId { chain: 0, priority: 1, handle: 0x7761_6c6c };
/// The same where the wall came with a `clsact`, which goes with it; "WALL".
const FILTER_AND_QDISC: FilterId = FilterId { handle: 0x5741_4c4c, ..FILTER };

/// What a wall is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of each side's ring of packets that ask, a power of two of pages.
    pub ring_bytes: u32,
    /// How many flows are remembered of each kind: established ones, others that are accepted, and denied ones.
    pub flows: u32,
    /// How long an accepted flow is remembered after its last packet, and a denied one after its first.
    pub idle: Duration,
    /// Let packets pass while the screen is dead.
    pub fail_open: bool,
    /// Let packets of accepted flows leave at the driver, where [`FastPath`](crate::forward::FastPath) allows it.
    pub forwarding: bool,
    /// Be in the driver, before the kernel builds a packet buffer; else at tc ingress.
    pub in_driver: bool,
}

const _: () = assert!(size_of::<types::weir_wall_entry>() == 16 && abi::WALL_RULES <= 1 << 16);
// The side's number is the state of an entry that has no reply.
const _: () = assert!(abi::WALL_SECOND == 1);
const TCP_FLAGS: usize = std::mem::offset_of!(types::weir_wall_key, tcp_flags);
const SIDE: usize = std::mem::offset_of!(types::weir_wall_key, side);
/// How many flows are looked at between two words that the screen lives.
const AT_ONCE: u32 = 4096;

/// Flows that were accepted: those tables, and the generation of the rules that did.
type Flows<'a> = ([&'a dyn MapCore; 2], u32);

/// A flow as the kernel half names it.
#[derive(Clone, Copy, Debug)]
pub struct Key([u8; size_of::<types::weir_wall_key>()]);

/// A packet of a flow that has not been judged.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its flow.
    pub key: Key,
    /// Its headers.
    pub parsed: Parsed,
    /// Where it came in.
    pub ifindex: IfIndex,
    /// The frame; empty if it is not held.
    pub frame: Vec<u8>,
}

/// A loaded wall. It stays on its interfaces when this is dropped, and when the process dies.
pub struct Wall {
    pub(crate) skel: WallSkel<'static>,
    /// What counts packets that the fast path loses, where there is one.
    _unsent: Vec<Link>,
    held: Mapped<types::weir_wall_held>,
    standing: Standing,
}

impl Wall {
    /// Loads a wall; it stands nowhere yet.
    ///
    /// # Errors
    /// Without the privilege, or for want of memory.
    pub fn load(options: &Options) -> Result<Self> {
        let netns = NetNs::current()?.number();
        let skel = load::<WallSkelBuilder>(WALL, |open| {
            let (progs, maps) = (&mut open.progs, &mut open.maps);
            for ring in [&mut maps.asked_first, &mut maps.asked_second] {
                ring.set_max_entries(options.ring_bytes)?;
            }
            // To write an entry again takes a free one first, of which each CPU keeps some (LOCAL_FREE_TARGET).
            let spare = 128 * num_possible_cpus()? as u32;
            for table in [&mut maps.established, &mut maps.accepted, &mut maps.denied] {
                table.set_max_entries(options.flows.saturating_add(spare))?;
            }
            let constants = globals(maps.rodata_data.as_deref_mut());
            constants.fail_open = options.fail_open;
            constants.idle_ns = options.idle.as_nanos() as u64;
            constants.forwarding = options.forwarding;
            constants.netns = netns;
            progs.weir_wall_xdp.set_autoload(options.in_driver);
            progs.weir_wall_tc.set_autoload(!options.in_driver);
            for program in [&mut progs.weir_unsent, &mut progs.weir_rejected] {
                program.set_autoload(options.forwarding);
            }
            for map in [&mut maps.out_devices, &mut maps.next_hops] {
                map.set_autocreate(options.forwarding)?;
            }
            Ok(())
        })?;
        let held = Mapped::of(skel.maps.held.as_fd(), abi::WALL_RELEASED)?;
        let (progs, in_driver) = (&skel.progs, options.in_driver);
        let unsent = attach_all(WALL, [&progs.weir_unsent, &progs.weir_rejected])?;
        let program =
            if in_driver { progs.weir_wall_xdp.as_fd() } else { progs.weir_wall_tc.as_fd() };
        let program =
            libbpf_rs::Program::id_from_fd(program).map_err(Error::bpf("look up", WALL))?;
        Ok(Self { _unsent: unsent, held, standing: Standing { program, in_driver }, skel })
    }

    /// Stands in front of interfaces of the calling thread's network namespace, in the place of walls that are there, in
    /// the driver or at tc; on failure, in front of none, and what was there stays.
    ///
    /// # Errors
    /// If somebody else's XDP program is there, or the driver takes none; if something comes before it at tc.
    pub fn attach(&self, sides: &[(IfIndex, &str)]) -> Result<()> {
        let links = Links::open()?;
        let (mut vacant, mut taken) = (Vec::new(), Vec::new());
        for side in sides {
            let of = if self.replaces_at(&links, side)? { &mut taken } else { &mut vacant };
            of.push(side);
        }
        let attach = || {
            // What can be undone is done first. Where a wall is replaced, it is known that the driver takes one.
            for side in vacant.iter().chain(&taken) {
                self.put(&links, side)?;
            }
            for (ifindex, ifname) in sides {
                let clear = if self.standing.in_driver { clear_tc } else { clear_driver };
                clear(*ifindex, ifname)?;
            }
            Ok(())
        };
        attach().inspect_err(|_| {
            for (ifindex, ifname) in &vacant {
                let _ = self.take_away(*ifindex, ifname);
            }
        })
    }

    /// Whether it would replace a wall that stands at the same place.
    fn replaces_at(&self, links: &Links, (ifindex, ifname): &(IfIndex, &str)) -> Result<bool> {
        if self.standing.in_driver {
            return match in_driver(*ifindex)? {
                Some(false) => Err(Error::refused(
                    format!("another XDP program is attached to {ifname}"),
                    "remove it, or use `--attach tc`",
                )),
                found => Ok(found.is_some()),
            };
        }
        if let Some(what) = before_tc(links, *ifindex)? {
            return Err(Error::refused(
                format!(
                    "something comes before a wall at tc on {ifname}, and may pass packets by it: {what}"
                ),
                "give a filter a preference of 2 or more, remove a program, or use `--attach native`",
            ));
        }
        Ok(at_tc(links, *ifindex)?.is_some())
    }

    fn put(&self, links: &Links, (ifindex, ifname): &(IfIndex, &str)) -> Result<()> {
        let failed = |source| Error::system("put a wall in front of", *ifname, source);
        let progs = &self.skel.progs;
        if self.standing.in_driver {
            let program = progs.weir_wall_xdp.as_fd().as_raw_fd();
            return set_xdp(program, *ifindex).map_err(failed);
        }
        let filter = match at_tc(links, *ifindex)? {
            Some(filter) => filter,
            None if links.has_ingress_qdisc(*ifindex)? => FILTER,
            None => {
                tc_bpf::create_hook(*ifindex).map_err(failed)?;
                FILTER_AND_QDISC
            }
        };
        // In one step, in the place of a filter of the same handle.
        let program = progs.weir_wall_tc.as_fd();
        filter.attach(program, *ifindex, libbpf_sys::BPF_TC_F_REPLACE).map_err(failed)
    }

    /// If it stands there.
    fn take_away(&self, ifindex: IfIndex, ifname: &str) -> Result<()> {
        let clear = if self.standing.in_driver { clear_driver } else { clear_tc };
        if self.standing.stands_at(ifindex)? { clear(ifindex, ifname).map(drop) } else { Ok(()) }
    }

    /// What tells whether it stands, also in another thread.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The screen lives, and does so for as long from now at least.
    pub fn beat(&mut self, time: Duration) {
        globals(self.skel.maps.bss_data.as_deref_mut()).alive_until_ns = until(time).0;
    }

    /// Forgets what has been decided, as the rules are other ones, but for the accepted flows that `accepts` gives one of
    /// them: it is asked about the headers of a flow's first packet or, if it is also given `true`, of an answer to that.
    /// Says meanwhile, as [`Self::beat`], that the screen lives.
    ///
    /// # Errors
    /// The kernel's; then less is kept.
    pub fn judge_again(
        &mut self,
        time: Duration,
        accepts: impl FnMut(&Parsed, bool) -> Option<usize>,
    ) -> Result<()> {
        let maps = &mut self.skel.maps;
        let bss = globals(maps.bss_data.as_deref_mut());
        let (now, next) = (bss.generation, bss.generation.wrapping_add(1));
        let alive = || bss.alive_until_ns = until(time).0;
        let tables: [&dyn MapCore; 2] = [&maps.accepted, &maps.established];
        let kept = hand_on((tables, now), (tables, next), alive, accepts);
        bss.generation = next;
        kept
    }

    /// The same for the flows of a wall that stands in front of the first side, if it is one of both sides.
    ///
    /// # Errors
    /// The kernel's; then fewer are taken over.
    pub fn take_over(
        &self,
        sides: &[(IfIndex, &str); 2],
        mut accepts: impl FnMut(&Parsed, bool) -> Option<usize>,
    ) -> Result<()> {
        let maps = &self.skel.maps;
        let generation = globals(maps.bss_data.as_deref()).generation;
        for program in programs_at(&Links::open()?, sides[0].0)? {
            let Some((tables, of)) = flows_of(program, sides) else { continue };
            let from: [&dyn MapCore; 2] = tables.each_ref().map(|table| table as _);
            let to: [&dyn MapCore; 2] = [&maps.accepted, &maps.established];
            hand_on((from, of), (to, generation), || {}, &mut accepts)?;
        }
        Ok(())
    }

    /// Remembers what rules say of flows, by their numbers; a denial is of packets with the same TCP flags.
    ///
    /// # Errors
    /// The kernel's.
    pub fn decide(&self, flows: &[(Key, usize)], accept: bool) -> Result<()> {
        if flows.is_empty() {
            return Ok(());
        }
        let generation = globals(self.skel.maps.bss_data.as_deref()).generation;
        let now = monotonic_now().0;
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        for (key, rule) in flows {
            let at = keys.len();
            keys.extend(key.0);
            if accept {
                keys[at + TCP_FLAGS] = 0;
            }
            // `struct weir_wall_entry`.
            entries.extend(now.to_ne_bytes());
            entries.extend(generation.to_ne_bytes());
            entries.extend((*rule as u16).to_ne_bytes());
            entries.extend([key.0[TCP_FLAGS], key.0[SIDE]]);
        }
        let maps = &self.skel.maps;
        let table: &dyn MapCore = if accept { &maps.accepted } else { &maps.denied };
        let count = flows.len() as u32;
        let done = table.update_batch(&keys, &entries, count, MapFlags::ANY, MapFlags::ANY);
        done.map_err(Error::bpf("tell", WALL))
    }

    /// Lets an interface receive packets that were held, [`abi::WALL_RELEASED`] at most; of each, whether it did: not if it
    /// is gone or down, or its CPU's backlog is full.
    pub fn release(&mut self, ifindex: IfIndex, frames: &[&[u8]]) -> Vec<bool> {
        const FRAME: usize = std::mem::offset_of!(types::weir_wall_held, frame);
        const RELEASED: usize = std::mem::offset_of!(types::weir_wall_held, released);
        // Of bytes: the kernel refuses a context in which anything else is not zero, and padding may be anything.
        const CB: usize = std::mem::offset_of!(types::__sk_buff, cb);
        let mut context = [0_u8; size_of::<types::__sk_buff>()];
        context[CB..CB + 4].copy_from_slice(&ifindex.0.to_ne_bytes());
        let Some(any) = frames.first() else { return Vec::new() };
        for (number, frame) in (0..).zip(frames) {
            self.held.set(number, 0, [frame.len() as u32, 0]);
            self.held.copy(number, FRAME, frame);
        }
        let bss = globals(self.skel.maps.bss_data.as_deref_mut());
        bss.held_packets = frames.len() as u32;
        let options = libbpf_sys::bpf_test_run_opts { repeat: 1, ..Default::default() };
        // On failure, none has gone on.
        let _ = test_run::run(self.skel.progs.weir_wall_again.as_fd(), any, &context, options);
        (0..).zip(frames).map(|(number, _)| self.held.get::<u32>(number, RELEASED) == 1).collect()
    }

    /// What became of packets, in the order of [`WallOutcome::ALL`].
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn outcomes(&self) -> Result<Vec<Counter>> {
        let map = &self.skel.maps.outcomes;
        (0..WallOutcome::ALL.len()).map(|number| total(map, number)).collect()
    }

    /// The packets that a rule has decided without the screen.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn of_rule(&self, rule: usize) -> Result<Counter> {
        total(&self.skel.maps.rules, rule)
    }

    /// Reads the rings of packets that ask.
    ///
    /// # Errors
    /// For want of memory.
    pub fn questions<'a>(&self, each: impl FnMut(Asked) + Copy + 'a) -> Result<Questions<'a>> {
        let maps = &self.skel.maps;
        let rings = [&maps.asked_first, &maps.asked_second].map(|ring| {
            let mut each = each;
            let told = move |bytes: &[u8]| {
                parse(bytes).into_iter().for_each(&mut each);
                0
            };
            Reader::of(ring, told).map_err(Error::bpf("read", WALL))
        });
        let [first, second] = rings;
        Ok(Questions([first?, second?]))
    }
}

/// The packets that ask, of each side.
pub struct Questions<'a>([Reader<'a>; 2]);

impl Questions<'_> {
    /// Reads what there is, so many at most, and of one side more than half only where the other has less; how many there
    /// were.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn read(&self, most: usize) -> io::Result<usize> {
        let [first, second] = &self.0;
        let half = first.read(most / 2)?;
        let read = half + second.read(most - half)?;
        // It may have more, and the other has not.
        Ok(if half == most / 2 && read < most { read + first.read(most - read)? } else { read })
    }

    /// Each is readable while packets of its side ask.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.0.each_ref().map(AsFd::as_fd)
    }
}

/// A wall's program, by which it is known whether it stands. Each answer waits while somebody changes interfaces (RTNL).
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    program: u32,
    in_driver: bool,
}

impl Standing {
    /// Whether this wall stands in front of an interface, and not another that has taken its place.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn stands_at(&self, ifindex: IfIndex) -> Result<bool> {
        let links = Links::open()?;
        let found = match self.in_driver {
            true => links.xdp(ifindex)?.map(|xdp| xdp.prog_id),
            false => program_at_tc(&links, ifindex)?,
        };
        Ok(found == Some(self.program))
    }

    /// What has come before it at an interface, and may pass packets by it.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn comes_after(&self, ifindex: IfIndex) -> Result<Option<String>> {
        if self.in_driver { Ok(None) } else { before_tc(&Links::open()?, ifindex) }
    }
}

fn parse(bytes: &[u8]) -> Option<Asked> {
    let about: types::weir_wall_record = record(bytes)?;
    let key = bytes.get(..size_of::<types::weir_wall_key>())?.try_into().ok()?;
    // The same bytes, by the name that the parser's skeleton gives them.
    let at = std::mem::offset_of!(types::weir_wall_record, parsed);
    let parsed = record(bytes.get(at..)?)?;
    let held = bytes.get(size_of::<types::weir_wall_record>()..)?;
    let frame = held.get(..about.held_len as usize)?.to_vec();
    Some(Asked { key: Key(key), parsed, ifindex: IfIndex(about.ifindex), frame })
}

/// Puts those flows into the tables that `accepts` gives a rule's number. In the order of the tables: a flow that is
/// established meanwhile, which puts its entry as it was into the second, is found in the first.
fn hand_on(
    (from, of): Flows<'_>,
    (to, generation): Flows<'_>,
    mut alive: impl FnMut(),
    mut accepts: impl FnMut(&Parsed, bool) -> Option<usize>,
) -> Result<()> {
    for (from, to) in from.into_iter().zip(to) {
        let hand_on = |keys: &[u8], entries: &[u8]| {
            alive();
            let (mut kept, mut accepted) = (Vec::new(), Vec::new());
            let keys = keys.chunks_exact(size_of::<types::weir_wall_key>());
            for (key, entry) in keys.zip(entries.chunks_exact(size_of::<types::weir_wall_entry>()))
            {
                let Some(entry) =
                    record(entry).filter(|entry: &types::weir_wall_entry| entry.generation == of)
                else {
                    continue;
                };
                let Some(rule) = headers_of(key, &entry)
                    .and_then(|(headers, answers)| accepts(&headers, answers))
                else {
                    continue;
                };
                kept.extend(key);
                accepted.extend(entry.used_ns.to_ne_bytes());
                accepted.extend(generation.to_ne_bytes());
                accepted.extend((rule as u16).to_ne_bytes());
                accepted.extend([entry.tcp_flags, entry.state]);
            }
            let count = (kept.len() / size_of::<types::weir_wall_key>()) as u32;
            if count == 0 {
                return Ok(());
            }
            to.update_batch(&kept, &accepted, count, MapFlags::ANY, MapFlags::ANY)
        };
        batches(from, AT_ONCE, hand_on).map_err(Error::bpf("hand flows on to", WALL))?;
    }
    Ok(())
}

/// The headers of an accepted flow, as far as rules look at them, and whether they are those of an answer to it.
fn headers_of(key: &[u8], entry: &types::weir_wall_entry) -> Option<(Parsed, bool)> {
    let of: types::weir_wall_key = record(key)?;
    let headers = Parsed {
        family: of.family,
        protocol: of.protocol,
        fragment: of.fragment,
        tcp_flags: entry.tcp_flags,
        source_port: u16::from_be(of.source_port_be),
        destination_port: u16::from_be(of.port_be),
        icmp_type: of.icmp_type,
        source: key[..16].try_into().ok()?,
        destination: key[16..32].try_into().ok()?,
        ..Parsed::default()
    };
    Some((headers, usize::from(entry.state) & abi::WALL_SECOND != of.side.into()))
}

fn total(map: &impl MapCore, number: usize) -> Result<Counter> {
    let mut total = Counter::default();
    let cpus = records(map, number as u32).map_err(Error::bpf("ask", WALL))?;
    for types::weir_counter { packets, bytes, .. } in cpus {
        total += Counter { packets, bytes };
    }
    Ok(total)
}

/// A wall that stands in front of an interface, whoever put it there.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its screen, if that runs and may be seen.
    pub screen: Option<Pid>,
    /// Whether that has said of late that it lives ([`Wall::beat`]): not if it is stopped, or gets no CPU time.
    pub alive: bool,
    /// [`Options::fail_open`] of it.
    pub fail_open: bool,
}

/// The wall in front of an interface; none also if the interface is gone, and, in the driver, without `CAP_SYS_ADMIN`.
///
/// # Errors
/// When the kernel does not answer.
pub fn find(links: &Links, ifindex: IfIndex) -> Result<Option<Found>> {
    let programs = programs_at(links, ifindex)?;
    if programs.is_empty() {
        return Ok(None);
    }
    let screen = programs.iter().find_map(|id| screen_of(*id));
    let alive = screen.is_some() && programs.iter().any(|id| is_alive(*id));
    Ok(Some(Found { screen, alive, fail_open: programs.into_iter().all(fails_open) }))
}

/// Those of walls in front of an interface.
fn programs_at(links: &Links, ifindex: IfIndex) -> Result<Vec<u32>> {
    let in_driver = match links.xdp(ifindex) {
        Err(error) if error.errno() == Some(Errno::NODEV) => None,
        found => found?.map(|xdp| xdp.prog_id),
    };
    let in_driver = in_driver.filter(|prog_id| Program::of(*prog_id).is_wall());
    Ok([in_driver, program_at_tc(links, ifindex)?].into_iter().flatten().collect())
}

/// The flows that a wall between these sides has accepted; none of another `weir`'s whose tables have another form.
fn flows_of(program: u32, sides: &[(IfIndex, &str); 2]) -> Option<([MapHandle; 2], u32)> {
    const AT: usize = std::mem::offset_of!(types::bss, generation);
    for (number, (ifindex, _)) in (0..).zip(sides) {
        let side: types::weir_wall_side = record(&value(program, "sides", number)?)?;
        if side.ifindex != ifindex.0 {
            return None;
        }
    }
    let variables = value(program, ".bss", 0).filter(|it| it.len() == size_of::<types::bss>())?;
    let generation: u32 = record(&variables[AT..])?;
    let tables = [map_of(program, "accepted")?, map_of(program, "established")?];
    let has_form = |table: &MapHandle| {
        let sizes = [size_of::<types::weir_wall_key>(), size_of::<types::weir_wall_entry>()];
        [table.key_size(), table.value_size()].map(|size| size as usize) == sizes
    };
    tables.iter().all(has_form).then_some((tables, generation))
}

/// Who has loaded it: others may hold the program, too, to watch it, but no ring of its.
fn screen_of(program: u32) -> Option<Pid> {
    // Not held here any more when the processes are looked at.
    let ring = map_of(program, "asked_first").and_then(|map| id_of(&map, WALL).ok())?;
    holders_of_both(program, ring).into_iter().next()
}

/// A wall's map whose name ends so.
fn map_of(program: u32, name: &str) -> Option<MapHandle> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let info = ProgInfoIter::with_query_opts(options).find(|info| info.id == program)?;
    let mut maps = info.map_ids.into_iter().filter_map(|id| MapHandle::from_map_id(id).ok());
    maps.find(|map| map.name().to_string_lossy().ends_with(name))
}

/// By its read-only data, as far as the kernel tells.
fn fails_open(program: u32) -> bool {
    const AT: usize = std::mem::offset_of!(types::rodata, fail_open);
    value(program, ".rodata", 0).is_some_and(|data| data.get(AT) == Some(&1))
}

/// By the same time as the kernel half.
fn is_alive(program: u32) -> bool {
    const AT: usize = std::mem::offset_of!(types::bss, alive_until_ns);
    let until = value(program, ".bss", 0).and_then(|data| record::<u64>(data.get(AT..)?));
    until.is_some_and(|until| monotonic_now().0 <= until)
}

/// An entry of an array of its.
fn value(program: u32, name: &str, number: u32) -> Option<Vec<u8>> {
    map_of(program, name)?.lookup(&number.to_ne_bytes(), MapFlags::ANY).ok().flatten()
}

/// Takes a wall away that stands in front of an interface, whoever put it there; whether there was one.
///
/// # Errors
/// The kernel's refusal.
pub fn clear(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    Ok(clear_driver(ifindex, ifname)? | clear_tc(ifindex, ifname)?)
}

fn clear_driver(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    let found = in_driver(ifindex)? == Some(true);
    if found {
        set_xdp(-1, ifindex).map_err(|source| not_cleared(ifname, source))?;
    }
    Ok(found)
}

fn clear_tc(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    let links = Links::open()?;
    let Some(filter) = at_tc(&links, ifindex)? else { return Ok(false) };
    filter.detach(ifindex).map_err(|source| not_cleared(ifname, source))?;
    if filter == FILTER_AND_QDISC && !links.has_filters(ifindex)? {
        tc_bpf::destroy_hook(ifindex).map_err(|source| not_cleared(ifname, source))?;
    }
    Ok(true)
}

fn not_cleared(ifname: &str, source: io::Error) -> Error {
    Error::system("take the wall away from", ifname, source)
}

/// Whether the XDP program of an interface is a wall; none if there is none.
///
/// # Errors
/// When the kernel does not answer.
pub fn in_driver(ifindex: IfIndex) -> Result<Option<bool>> {
    let attached = Links::open()?.xdp(ifindex)?;
    Ok(attached.map(|xdp| Program::of(xdp.prog_id).is_wall()))
}

/// By netlink, so that it stays; -1 takes it away.
#[allow(unsafe_code)]
fn set_xdp(program: i32, ifindex: IfIndex) -> io::Result<()> {
    let flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
    // SAFETY: without options the pointer may be null.
    tc_bpf::result(unsafe {
        libbpf_sys::bpf_xdp_attach(ifindex.0.cast_signed(), program, flags, std::ptr::null())
    })
}

/// A wall's filter, if there is one: libbpf complains on standard error of one that it does not find.
fn at_tc(links: &Links, ifindex: IfIndex) -> Result<Option<FilterId>> {
    let filters = links.filters(ifindex, Hook::Ingress)?;
    Ok(filters.into_iter().find(|id| [FILTER, FILTER_AND_QDISC].contains(id)))
}

/// The number of its program.
fn program_at_tc(links: &Links, ifindex: IfIndex) -> Result<Option<u32>> {
    at_tc(links, ifindex)?.map_or(Ok(None), |filter| filter.program(ifindex))
}

/// What sees packets at tc before a wall does: tcx runs before every filter, and of filters with one preference the newest
/// may be the first. A gate hands on what it does not discard.
fn before_tc(links: &Links, ifindex: IfIndex) -> Result<Option<String>> {
    let any = divert::programs::tcx(ifindex, &[]);
    if let Some(found) = any.and_then(|_| divert::programs::tcx(ifindex, &gates_at_tc())) {
        return Ok(Some(found.detail));
    }
    let comes_before = |id: &FilterId| {
        id.chain == FILTER.chain
            && id.priority <= FILTER.priority
            && ![FILTER, FILTER_AND_QDISC].contains(id)
    };
    let found = links.filters(ifindex, Hook::Ingress)?.into_iter().find(comes_before);
    Ok(found.map(|id| format!("a tc filter with preference {}", id.priority)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{AttachMode, by_link};
    use crate::gate::{Gate, QueueProbe};
    use crate::object::load_returning;
    use crate::sys::packet::PacketSocket;
    use crate::sys::test_support::with_pair;

    const OPTIONS: Options = Options {
        ring_bytes: 1 << 16,
        flows: 16,
        idle: Duration::from_secs(1),
        fail_open: false,
        forwarding: false,
        in_driver: false,
    };

    #[test]
    fn an_interface_receives_what_is_released_in_order_and_whole() {
        let frame = |len: usize| {
            let mut frame: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            // From another host, to all, of no protocol that anybody knows.
            frame[..14].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5");
            frame
        };
        let frames = [14, 60, 61, 1514, abi::WALL_HELD].map(frame);
        with_pair(|links, near, _| {
            let mut wall = Wall::load(&OPTIONS).unwrap();
            let frames = frames.each_ref().map(Vec::as_slice);
            assert_eq!(wall.release(near, &frames), [false; 5], "it is down");
            links.set_up(near).unwrap();
            let heard = PacketSocket::of_protocol(near, 0x88b5).unwrap();
            assert_eq!(wall.release(near, &frames), [true; 5]);
            assert_eq!(wall.release(near, &frames[1..2]), [true]);
            assert_eq!(wall.release(IfIndex(u32::MAX >> 1), &frames), [false; 5]);
            let mut buffer = vec![0; 4096];
            for frame in frames.iter().chain(&frames[1..2]) {
                let len = heard.receive(&mut buffer).unwrap();
                assert!(buffer[..len] == **frame, "{len} bytes of {}", frame.len());
            }
        });
    }

    #[test]
    fn every_accepted_flow_is_judged_again_once_and_those_that_are_not_accepted_are_forgotten() {
        const FLOWS: usize = 40_000;
        let mut wall = Wall::load(&Options { flows: 1 << 16, ..OPTIONS }).unwrap();
        let flows: Vec<_> = (0..FLOWS as u16).map(flow).collect();
        flows.chunks(256).for_each(|flows| wall.decide(flows, true).unwrap());
        for expected in [FLOWS, FLOWS / 2, FLOWS / 2] {
            let mut seen = vec![0; FLOWS];
            wall.judge_again(OPTIONS.idle, |headers, answers| {
                assert!(!answers && headers.tcp_flags == 2);
                seen[usize::from(headers.destination_port)] += 1;
                headers.destination_port.is_multiple_of(2).then_some(9)
            })
            .unwrap();
            assert!(seen.iter().all(|times| *times <= 1));
            assert_eq!(seen.into_iter().sum::<usize>(), expected);
        }
    }

    #[test]
    fn of_a_table_that_is_full_no_flow_is_lost() {
        const FLOWS: u32 = 1024;
        let mut wall = Wall::load(&Options { flows: FLOWS, ..OPTIONS }).unwrap();
        let flows: Vec<_> = (0..FLOWS as u16).map(flow).collect();
        flows.chunks(256).for_each(|flows| wall.decide(flows, true).unwrap());
        for _ in 0..3 {
            let mut seen = 0;
            let accepts = |_: &Parsed, _| {
                seen += 1;
                Some(7)
            };
            wall.judge_again(OPTIONS.idle, accepts).unwrap();
            assert_eq!(seen, FLOWS);
        }
    }

    fn flow(port: u16) -> (Key, usize) {
        const PORT: usize = std::mem::offset_of!(types::weir_wall_key, port_be);
        let mut key = [0; size_of::<types::weir_wall_key>()];
        key[PORT..PORT + 2].copy_from_slice(&port.to_be_bytes());
        key[TCP_FLAGS] = 2;
        (Key(key), 7)
    }

    #[test]
    fn who_has_loaded_a_wall_is_its_screen_by_whatever_name() {
        with_pair(|links, near, _| {
            let wall = Wall::load(&OPTIONS).unwrap();
            wall.attach(&[(near, "near")]).unwrap();
            let screen = || find(links, near).unwrap().unwrap().screen;
            assert_eq!(screen(), Some(rustix::process::getpid()));
            drop(wall);
            assert_eq!(screen(), None);
        });
    }

    #[test]
    fn what_runs_at_tcx_comes_before_a_wall_at_tc_but_a_gate_hands_on() {
        let probe = QueueProbe::load().unwrap();
        with_pair(|_, near, _| {
            let mut gate = Gate::load(&probe, AttachMode::Tcx).unwrap();
            gate.attach(near, "near", AttachMode::Tcx).unwrap();
            let wall = Wall::load(&OPTIONS).unwrap();
            wall.attach(&[(near, "near")]).unwrap();
            assert_eq!(wall.standing().comes_after(near).unwrap(), None);
            let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
            let accepting = load_returning(kind, c"accepts", 0, Default::default()).unwrap();
            let _attached = by_link(accepting.as_fd(), near, "near", AttachMode::Tcx).unwrap();
            let what = wall.standing().comes_after(near).unwrap().unwrap();
            assert!(what.contains("tcx ingress, program"), "{what}");
            assert!(wall.attach(&[(near, "near")]).unwrap_err().to_string().contains(&what));
        });
    }
}
