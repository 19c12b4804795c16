//! The kernel half of a user-mode screen: `bpf/wall.bpf.c`.

mod flows;
mod found;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, libbpf_sys, num_possible_cpus};

use crate::abi;
use crate::accounts::{monotonic_now, until};
use crate::counters::Counter;
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{attach_all, globals, load};
use crate::parser::Parsed;
use crate::record::{record, records};
use crate::ring::Reader;
use crate::skeleton::wall::{WallSkel, WallSkelBuilder, types};
use crate::sys::link::Links;
use crate::sys::netns::NetNs;
use crate::tc_bpf;
use crate::test_run;
use crate::units::IfIndex;
pub use crate::verdict::WallOutcome;
use flows::{flows_of, hand_on};
pub(crate) use found::WALL;
use found::{
    FILTER, FILTER_AND_QDISC, at_tc, before_tc, clear_driver, clear_tc, program_at_tc, programs_at,
    set_xdp,
};
pub use found::{Found, clear, find, in_driver};

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

fn total(map: &impl MapCore, number: usize) -> Result<Counter> {
    let mut total = Counter::default();
    let cpus = records(map, number as u32).map_err(Error::bpf("ask", WALL))?;
    for types::weir_counter { packets, bytes, .. } in cpus {
        total += Counter { packets, bytes };
    }
    Ok(total)
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
