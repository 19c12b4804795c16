//! `weir screen`: a user-mode screen. The first packet of each flow is judged here, the others in the kernel.

pub mod args;
mod explain;
mod frame;
mod parse;
mod print;
mod rejections;
mod rules;
mod sides;
mod standing;

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use signal_hook::consts::signal::SIGUSR1;
use weir_bpf::abi;
use weir_bpf::parser::Parsed;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;
use weir_bpf::wall::{self, Asked, Key, Options, Questions, Wall};

use self::args::{Fail, Place, ScreenArgs};
use self::print::{Printer, Tally};
use self::rejections::Rejections;
use self::rules::{Action, Rules};
use self::sides::Sides;
use crate::choice::Forward;
use crate::claim;
use crate::company;
use crate::error::{Error, Result};
use crate::named_file;
use crate::out;
use crate::packet::Packet;
use crate::privilege::{self, FOR_PACKETS};
use crate::ready;
use crate::signals::{self, Signals};

/// How often the screen says that it lives, and how long that is believed.
const BEAT: Duration = Duration::from_millis(100);
const BELIEVED: Duration = Duration::from_secs(1);
/// How many packets are judged before anything else is looked at: as many as may go on at once.
const BATCH: usize = abi::WALL_RELEASED;
/// Far more than [`abi::WALL_RULES`] rules take.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Room for packets of a side that wait: about 2,000 long ones, or 10,000 short ones.
const RING_BYTES: u32 = 4 << 20;

/// An interface that has a wall, and its name.
type Side<'a> = (IfIndex, &'a str);

/// Runs the command.
pub fn run(args: &ScreenArgs) -> Result<()> {
    if !args.clear.is_empty() {
        privilege::check_for("weir screen --clear", &FOR_PACKETS)?;
        return clear(&args.clear);
    }
    let Some(path) = &args.rules else { return Ok(()) };
    let rules = read(path)?;
    if args.check {
        return out::print(|out| {
            writeln!(out, "{}: {}", path.display(), rules::count(rules.0.len()))
        });
    }
    privilege::check_for("weir screen", &FOR_PACKETS)?;
    if let Some(capture) = &args.explain {
        return explain::run(args, &rules, capture);
    }
    let (Some(inside), Some(outside)) = (&args.inside, &args.outside) else { return Ok(()) };
    let sides = sides(args, [inside, outside])?;
    guard(args, (path, rules), sides)
}

/// The interfaces, if there can be a wall at both, of this kind.
fn sides<'a>(args: &ScreenArgs, names: [&'a str; 2]) -> Result<[Side<'a>; 2]> {
    if args.forward == Forward::Xdp && args.attach == Place::Tc {
        return Err(Error::refused(
            "the fast path forwards in the driver, and the wall is to be at tc",
            "add `--attach native`, or leave `--forward xdp` out",
        ));
    }
    let [inside, outside] = names;
    let links = Links::open()?;
    // Both are there before a wall closes one of them.
    let sides = [(links.index(inside)?, inside), (links.index(outside)?, outside)];
    if sides[0].0 == sides[1].0 {
        return Err(Error::refused(
            format!("{inside} cannot be both sides"),
            "give `--out` the interface of the other network",
        ));
    }
    for (ifindex, name) in sides {
        let info = links.info(ifindex)?;
        if info.loopback {
            return Err(Error::refused(
                format!("{name} is the loopback interface, from which nothing is forwarded"),
                "name the interface of a network; `ip link` lists them",
            ));
        }
        if info.bare || info.mac.is_none() {
            return Err(Error::refused(
                format!("packets of {name} have no Ethernet header, and the wall knows no other"),
                "name Ethernet interfaces; `ip link` lists them (link/ether)",
            ));
        }
        if args.attach == Place::Tc {
            continue;
        }
        let at_tc = company::at_tc(args.forward == Forward::Xdp);
        let driver = ethtool::driver(name).ok();
        if let Some(place) = claim::where_it_runs(name, info.kind.as_deref(), driver.as_deref()) {
            return Err(Error::refused(
                format!("{place}, packets of {name} cannot be identified"),
                format!("screen it with {at_tc}"),
            ));
        }
        if wall::in_driver(ifindex)? == Some(false) {
            let beside = format!("run the screen beside it with {at_tc}");
            company::refuse_other(&links, ifindex, name, &beside)?;
        }
    }
    Ok(sides)
}

/// Screens what is forwarded between the sides until it is to stop.
fn guard(args: &ScreenArgs, (path, rules): (&Path, Rules), sides: [Side<'_>; 2]) -> Result<()> {
    let mut signals = Signals::catch()?;
    let asked_for_stats = signals::catch(&[SIGUSR1])?;
    asked_for_stats.set_nonblocking(true).map_err(|it| Error::system("catch signals", it))?;
    let wall = Wall::load(&options(args))?;
    let waiting = RefCell::new(Vec::new());
    let questions = wall.questions(|asked| waiting.borrow_mut().push(asked))?;
    let mut screen = Screen {
        args,
        path,
        sides,
        links: Links::open()?,
        tally: vec![Tally::default(); rules.0.len() + 1],
        rules,
        wall,
        rejections: Rejections::new(Instant::now()),
        untold: 0,
        printer: Printer::new(args.json),
    };
    screen.wall.beat(BELIEVED);
    // Refused before anything stands in the place of a wall that is there.
    let told = Sides::begin(sides, &screen.wall, args.forward)?;
    let taken = screen.wall.take_over(&sides, |it, answers| accepts(&screen.rules, it, answers));
    screen.go_on_after(taken.map_err(Error::from));
    screen.wall.attach(&sides)?;
    let stands = screen.wall.standing();
    // Attaching may have waited for others who change interfaces.
    screen.wall.beat(BELIEVED);
    screen.printer.ready(sides[0].1, sides[1].1, screen.rules.0.len());
    let served = thread::scope(|scope| {
        // That they are dropped stops the other threads, also after a panic.
        let [(_stops, telling), (_stops_too, looking)] = [channel(), channel()];
        let (fails, failed) = channel();
        scope.spawn(move || told.follow(&telling));
        scope.spawn(move || standing::follow(stands, sides, &looking, &fails));
        screen.serve(&mut signals, &asked_for_stats, &questions, &waiting, &failed)
    });
    let printed = screen.print("summary");
    let left = leave(args.fail, &screen.wall, &sides);
    served.and(printed).and(left).and(screen.printer.console.end())
}

fn options(args: &ScreenArgs) -> Options {
    Options {
        ring_bytes: RING_BYTES,
        flows: args.flows,
        idle: args.idle,
        fail_open: args.fail == Fail::Open,
        forwarding: args.forward == Forward::Xdp,
        in_driver: args.attach == Place::Native,
    }
}

/// What becomes of interfaces with a wall when their screen ends.
fn leave(fail: Fail, wall: &Wall, interfaces: &[Side<'_>]) -> Result<()> {
    let links = Links::open()?;
    for (ifindex, began_as) in interfaces {
        // Somebody may have renamed it meanwhile: `--clear` is to find it.
        let ifname = links.name(*ifindex).unwrap_or_else(|_| (*began_as).to_owned());
        // Nor where the interface is gone.
        if !wall.standing().stands_at(*ifindex).unwrap_or(false) {
            out::say(format_args!("{ifname}: the wall does not stand there any more"));
        } else if fail == Fail::Open {
            open(*ifindex, &ifname)?;
        } else {
            out::say(format_args!(
                "{ifname} stays closed; `weir screen --clear {ifname}` opens it"
            ));
        }
    }
    Ok(())
}

fn clear(interfaces: &[String]) -> Result<()> {
    let links = Links::open()?;
    for ifname in interfaces {
        let ifindex = links.index(ifname)?;
        if let Some(pid) = wall::find(&links, ifindex)?.and_then(|found| found.screen) {
            return Err(Error::refused(
                format!("the screen of {ifname} runs, process {pid}"),
                "end it first",
            ));
        }
        open(ifindex, ifname)?;
    }
    Ok(())
}

fn open(ifindex: IfIndex, ifname: &str) -> Result<()> {
    let found = wall::clear(ifindex, ifname)?;
    let found = if found { "the wall is gone" } else { "there was no wall" };
    out::say(format_args!("{ifname}: {found}"));
    Ok(())
}

fn read(path: &Path) -> Result<Rules> {
    let failed = |source| Error::file("read", path, source);
    let bytes = named_file::read(path, FILE_BYTES_MAX).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let problem = format!("{} is not text in UTF-8", path.display());
        Error::refused(problem, "name a file of rules, as `weir screen --help` shows")
    })?;
    let rules = parse::parse(&text).map_err(|mistakes| {
        let lines: Vec<String> =
            mistakes.iter().map(|mistake| format!("{}: {mistake}", path.display())).collect();
        Error::refused(lines.join("\n"), "`weir screen --help` shows the form")
    })?;
    if rules.0.is_empty() {
        return Err(Error::refused(
            format!("{} has no rule, so that nothing would be forwarded", path.display()),
            "write the rules, or, if that is what is wanted, one line: drop",
        ));
    }
    if rules.0.len() >= abi::WALL_RULES {
        let problem = format!("{} has {} rules", path.display(), rules.0.len());
        return Err(Error::refused(problem, format!("{} are the most", abi::WALL_RULES - 1)));
    }
    Ok(rules)
}

/// The same while packets wait for verdicts: a pipe might never end.
fn read_again(path: &Path) -> Result<Rules> {
    match named_file::is_regular(path) {
        Ok(true) => read(path),
        Ok(false) => Err(Error::refused(
            format!("{} is no regular file, so it cannot be read again", path.display()),
            "start `weir screen` with a file",
        )),
        Err(source) => Err(Error::file("read", path, source)),
    }
}

/// The rule that accepts a flow which was accepted before, by its first packet; or by what would be an answer to that.
fn accepts(rules: &Rules, headers: &Parsed, answers: bool) -> Option<usize> {
    let packet = Packet::of(headers)?;
    let first = if answers { explain::answered(&packet)? } else { packet };
    let (action, number) = rules.decide(&first);
    (action == Action::Accept).then_some(number)
}

/// What is still to be done about packets that were judged.
#[derive(Default)]
struct Judged {
    /// Flows, and the numbers of the rules that decided.
    accepted: Vec<(Key, usize)>,
    denied: Vec<(Key, usize)>,
    /// Packets that go on.
    held: Vec<(Asked, usize)>,
}

struct Screen<'a> {
    args: &'a ScreenArgs,
    path: &'a Path,
    sides: [Side<'a>; 2],
    links: Links,
    rules: Rules,
    wall: Wall,
    /// By rule, the default last.
    tally: Vec<Tally>,
    rejections: Rejections,
    /// Flows whose verdict the wall did not take.
    untold: u64,
    printer: Printer,
}

impl Screen<'_> {
    /// Judges until it is to stop, or a wall is reported to have failed. Nothing here may wait for whoever changes
    /// interfaces (RTNL): the walls would take the screen for dead.
    fn serve(
        &mut self,
        signals: &mut Signals,
        asked_for_stats: &UnixStream,
        questions: &Questions<'_>,
        waiting: &RefCell<Vec<Asked>>,
        failed: &Receiver<Error>,
    ) -> Result<()> {
        let mut next_stats = self.args.stats.map(|every| Instant::now() + every);
        loop {
            self.wall.beat(BELIEVED);
            let count = questions.read(BATCH).map_err(|it| Error::system("read the rings", it))?;
            let mut judged = Judged::default();
            for asked in waiting.borrow_mut().drain(..) {
                self.judge(asked, &mut judged);
            }
            self.carry_out(&judged);
            let wait = if count == 0 { BEAT } else { Duration::ZERO };
            let asked = [signals.stop.as_fd(), signals.hangup.as_fd(), asked_for_stats.as_fd()];
            let ready = ready::wait(asked.into_iter().chain(questions.fds()), Some(wait));
            let ready = ready.map_err(|errno| Error::system("wait for packets", errno))?;
            let [stop, hangup, stats] = [0, 1, 2].map(|at: usize| ready[at]);
            if stop {
                return Ok(());
            }
            if hangup {
                signals.hear_hangups();
                let reloaded = self.reload();
                self.go_on_after(reloaded);
            }
            let due = next_stats.is_some_and(|at| Instant::now() >= at);
            if due {
                next_stats = self.args.stats.map(|every| Instant::now() + every);
            }
            if stats {
                let _ = std::io::Read::read(&mut &*asked_for_stats, &mut [0; 64]);
            }
            if due || stats {
                let printed = self.print("stats");
                self.go_on_after(printed);
            }
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
        }
    }

    fn judge(&mut self, mut asked: Asked, judged: &mut Judged) {
        let Some(packet) = Packet::of(&asked.parsed) else { return };
        let (action, number) = self.rules.decide(&packet);
        let tally = &mut self.tally[number];
        tally.asked += 1;
        let flows =
            if action == Action::Accept { &mut judged.accepted } else { &mut judged.denied };
        flows.push((asked.key, number));
        if action == Action::Reject && self.reject(asked.ifindex, &mut asked, &packet).is_some() {
            self.tally[number].rejections += 1;
        }
        if self.args.log || self.rules.0.get(number).is_some_and(|rule| rule.log) {
            let side = self.sides.iter().find(|(ifindex, _)| *ifindex == asked.ifindex);
            // Somebody may have renamed it meanwhile.
            let named = self.links.name(asked.ifindex).ok();
            let interface = named.as_deref().or(side.map(|(_, name)| *name)).unwrap_or("-");
            self.printer.decision(interface, action, &packet, &self.rules.name(number));
        }
        if action == Action::Accept && asked.frame.is_empty() {
            self.tally[number].lost += 1;
        } else if action == Action::Accept {
            frame::complete_checksum(&mut asked.frame, &asked.parsed, &packet);
            judged.held.push((asked, number));
        }
    }

    /// A firewall that ends is worse than what went wrong here.
    fn go_on_after(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.printer.console.trouble(&error);
        }
    }

    /// Whether the wall knows now what was decided of flows; if not, their next packets ask again.
    fn tell(&mut self, flows: &[(Key, usize)], accept: bool) -> bool {
        let told = self.wall.decide(flows, accept).map_err(Error::from);
        let knows = told.is_ok();
        if !knows {
            self.untold += flows.len() as u64;
        }
        self.go_on_after(told);
        knows
    }

    /// The wall knows the flows before what was held of them comes by it again.
    fn carry_out(&mut self, judged: &Judged) {
        let knows = self.tell(&judged.accepted, true);
        self.tell(&judged.denied, false);
        if !knows {
            // At tc, they would only ask again.
            for (_, number) in &judged.held {
                self.tally[*number].lost += 1;
            }
            return self.printer.decided();
        }
        for (ifindex, _) in self.sides {
            let came_in_here = judged.held.iter().filter(|(asked, _)| asked.ifindex == ifindex);
            let (frames, numbers): (Vec<&[u8]>, Vec<usize>) =
                came_in_here.map(|(asked, number)| (&*asked.frame, *number)).unzip();
            for (number, released) in numbers.into_iter().zip(self.wall.release(ifindex, &frames)) {
                let tally = &mut self.tally[number];
                *if released { &mut tally.released } else { &mut tally.lost } += 1;
            }
        }
        self.printer.decided();
    }

    /// Tells the sender; none if it is not told.
    fn reject(&mut self, ifindex: IfIndex, asked: &mut Asked, packet: &Packet) -> Option<()> {
        let now = Instant::now();
        if !self.rejections.may_tell(packet.source, now) {
            return None;
        }
        let message = frame::prohibited(&mut asked.frame, &asked.parsed, packet)?;
        self.rejections.tell(packet.source, now);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut to = SocketAddr::new(packet.source, 0);
        let (family, protocol) = match &mut to {
            SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            SocketAddr::V6(to) => {
                to.set_scope_id(if to.ip().is_unicast_link_local() { ifindex.0 } else { 0 });
                (AddressFamily::INET6, ipproto::ICMPV6)
            }
        };
        let socket = socket_with(family, SocketType::RAW, flags, Some(protocol)).ok()?;
        sendto(&socket, &message, SendFlags::empty(), &to).ok().map(drop)
    }

    /// Reads the rules again. A file with a mistake changes nothing.
    fn reload(&mut self) -> Result<()> {
        match read_again(self.path) {
            Ok(rules) => {
                // From now on nothing is counted by the rules that were.
                let kept =
                    self.wall.judge_again(BELIEVED, |it, answers| accepts(&rules, it, answers));
                self.go_on_after(kept.map_err(Error::from));
                self.print("summary")?;
                self.tally = vec![Tally::default(); rules.0.len() + 1];
                for (number, tally) in self.tally.iter_mut().enumerate() {
                    tally.before = self.wall.of_rule(number)?;
                }
                self.rules = rules;
                self.printer.reloaded(self.rules.0.len());
            }
            Err(error) => self.printer.console.say(&format!("{error}; the rules stay as they are")),
        }
        Ok(())
    }

    fn print(&mut self, event: &'static str) -> Result<()> {
        let mut lines = Vec::new();
        for (number, tally) in self.tally.iter().enumerate() {
            let count = self.wall.of_rule(number)?;
            let action = self.rules.0.get(number).map_or(Action::Drop, |rule| rule.action);
            // At tc, a packet that is released comes to the wall again, and is counted there.
            let here = match (action, self.args.attach) {
                (Action::Accept, Place::Tc) => 0,
                (Action::Accept, Place::Native) => tally.released,
                (Action::Reject | Action::Drop, _) => tally.asked,
            };
            let packets = count.packets - tally.before.packets + here;
            lines.push((self.rules.name(number), packets, *tally));
        }
        let lost = (self.wall.unsent(), self.untold);
        self.printer.stats(event, &lines, &self.wall.outcomes()?, lost);
        Ok(())
    }
}
