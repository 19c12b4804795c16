//! `weir capture`: an interface's packets to a file, or counted.

pub mod args;
mod output;
mod print;

use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use weir_bpf::filter::Filter;
use weir_bpf::programs;
use weir_bpf::sys::divert::{DiversionWatch, Sight};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::tap::{Options, Reader, Tap, Tapped};
use weir_bpf::units::IfIndex;

use self::args::{CaptureArgs, Direction, Place};
use self::output::{Interface, Output};
use self::print::{Ending, Printer};
use crate::company;
use crate::error::{Error, Result};
use crate::link::Taken;
use crate::out;
use crate::privilege::{self, FOR_PACKETS};
use crate::ready;
use crate::signals;

const COMMAND: &str = "weir capture";
const RESTART: &str = "what was captured until then is kept; start again when it is back";
/// How often what has been counted is printed.
const LINE: Duration = Duration::from_secs(1);
/// How long packets may gather in the ring before they are read: each wake-up costs the CPU that receives them
/// about as much as a packet.
const GATHER: Duration = Duration::from_millis(2);
/// How many packets are read before anything else is looked at.
const BATCH: usize = 1 << 14;
/// How often it is looked who else wants other hosts' frames, and how long what was seen is believed.
const LOOK: Duration = Duration::from_millis(500);
const BELIEVED: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// Without the privilege, if the interface, the filter or the file is not to be had, or if either does not last.
/// What has been captured until then is in the file.
pub fn run(args: &CaptureArgs) -> Result<()> {
    privilege::check_for(COMMAND, &FOR_PACKETS)?;
    refuse(args)?;
    let stop = signals::catch(&[SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let taken = Taken::open(COMMAND, &args.interface)?;
    let filter = filter(args, &taken.name)?;
    let options = options(args, taken.comes_back);
    let mut tap = Tap::load(&options, filter.as_ref())?;
    let filter = filter.map(|filter| filter.text().to_owned());
    let name = taken.name.clone();
    let interface = Interface { name, link: taken.header, snaplen: options.snaplen, filter };
    let output = args.write.as_deref().map(|path| Output::create(args, path, interface));
    let sink = RefCell::new(Sink {
        output: output.transpose()?,
        left: args.packets.unwrap_or(u64::MAX),
        failed: None,
    });
    let reader = tap.reader(|packet| sink.borrow_mut().take(&packet))?;
    let attached = tap.attach(taken.ifindex, &args.interface, !args.no_promiscuous);
    if options.in_driver && attached.is_err() {
        let beside = "without `--attach native` a capture runs beside it";
        company::refuse_other(&taken.links, taken.ifindex, &args.interface, beside)?;
    }
    attached.map_err(|error| match options.in_driver {
        false => Error::from(error),
        true => Error::refused(
            error.to_string(),
            "without `--attach native` it runs on every interface, and beside other XDP programs",
        ),
    })?;
    let others = options.in_driver.then(|| Others::of(taken.ifindex)).transpose()?;
    let mut printer = Printer::new(args);
    printer.ready(args);
    let mut session = Session { args, taken: &taken, tap, reader, sink: &sink, others };
    let ended = session.watch(&stop, &mut printer);
    session.end(ended, printer)
}

/// Refuses options that do not go together.
fn refuse(args: &CaptureArgs) -> Result<()> {
    let rotates = args.rotation.rotates();
    let to_stdout = args.write.as_deref() == Some(Path::new("-"));
    if args.rotation.keep.is_some() && !rotates {
        let remedy = "add `--rotate-size` or `--rotate-time`";
        return Err(Error::refused("`--keep` applies to rotated files only", remedy));
    }
    if to_stdout && (args.json || rotates) {
        return Err(Error::refused(
            "standard output takes the packets, so it takes no JSON and cannot be rotated",
            "write to a file",
        ));
    }
    if args.attach == Place::Native && args.direction == Direction::Out {
        let problem = "the driver sees received packets only";
        return Err(Error::refused(problem, "leave out `--attach native`"));
    }
    Ok(())
}

fn filter(args: &CaptureArgs, ifname: &str) -> Result<Option<Filter>> {
    let text = args.filter.join(" ");
    if text.trim().is_empty() {
        return Ok(None);
    }
    let compiled = Filter::compile(ifname, &text).map(Some);
    compiled.map_err(|error| match (args.circuit_breaker, &args.filter[0]) {
        (Some(_), first) if first.parse::<u32>().is_ok() => Error::refused(
            format!("{first} is taken for a filter"),
            format!("write `--circuit-breaker={first}` if it is the number of packets"),
        ),
        _ => error.into(),
    })
}

fn options(args: &CaptureArgs, comes_back: bool) -> Options {
    let in_driver = args.attach == Place::Native;
    let comes_twice = comes_back && args.direction == Direction::Both;
    Options {
        snaplen: args.snaplen,
        ring_bytes: args.buffer,
        count_only: args.count,
        received: args.direction != Direction::Out,
        sent: !in_driver && !comes_twice && args.direction != Direction::In,
        breaker_batch: args.circuit_breaker.unwrap_or(0),
        in_driver,
    }
}

/// What is done with packets as they are read.
struct Sink {
    output: Option<Output>,
    /// How many packets are still wanted.
    left: u64,
    failed: Option<Error>,
}

impl Sink {
    fn take(&mut self, packet: &Tapped<'_>) -> ControlFlow<()> {
        let Some(output) = &mut self.output else { return ControlFlow::Continue(()) };
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        if let Err(error) = output.packet(packet) {
            self.failed = Some(output.failed(error));
            return ControlFlow::Break(());
        }
        self.left -= 1;
        ControlFlow::Continue(())
    }
}

/// Who else wants the frames of other hosts that a tap in the driver sees.
struct Others {
    ifindex: IfIndex,
    links: Links,
    sysfs: NetSysfs,
    watch: DiversionWatch,
    /// The gates at tc, when there was last something that may want frames.
    gates: Vec<u32>,
}

impl Others {
    fn of(ifindex: IfIndex) -> Result<Self> {
        let watch = DiversionWatch::open(ifindex, Sight::default())?;
        let (links, sysfs) = (Links::open()?, NetSysfs::open()?);
        Ok(Self { ifindex, links, sysfs, watch, gates: Vec::new() })
    }

    /// The kernel drops them at its first look at IP, unless one of these takes them before, or makes them the host's: a
    /// bridge, an interface on top, a switch whose conduit it is (DSA), a filter of tc but weir's own, a rule of nftables
    /// at ingress, another capture. Which of what may divert packets comes so early is not asked.
    fn look(&mut self, tap: &mut Tap) -> Result<()> {
        let mut wanted = self.are_wanted()?;
        if wanted {
            // By a gate that has come since, if by nobody else.
            self.gates = programs::gates_at_tc();
            wanted = self.are_wanted()?;
        }
        let time = if wanted { Duration::ZERO } else { BELIEVED };
        // Without an address there are no other hosts' frames.
        if self.links.info(self.ifindex)?.mac.is_some() {
            tap.end_others(time);
        }
        Ok(())
    }

    fn are_wanted(&mut self) -> Result<bool> {
        let name = self.links.name(self.ifindex)?;
        let is_conduit = self.sysfs.exists(&name, "dsa").unwrap_or(true);
        let diverts = !self.watch.read(&self.gates).is_empty();
        Ok(is_conduit || diverts || self.watch.has_rules_at_ingress())
    }
}

/// A capture that runs.
struct Session<'a> {
    args: &'a CaptureArgs,
    taken: &'a Taken<'a>,
    tap: Tap,
    reader: Reader<'a>,
    sink: &'a RefCell<Sink>,
    others: Option<Others>,
}

impl Session<'_> {
    /// Reads packets until something ends the capture.
    fn watch(&mut self, stop: &UnixStream, printer: &mut Printer) -> Result<Ending> {
        let begun = Instant::now();
        let (mut next_line, mut next_look) = (begun + LINE, begun);
        loop {
            let now = Instant::now();
            if let Some(others) = &mut self.others
                && now >= next_look
            {
                next_look = now + LOOK;
                let look = others.look(&mut self.tap);
                look.map_err(|error| self.taken.lost(&error, RESTART))?;
            }
            // A line that is due comes before the end.
            if now >= next_line {
                // After a stop, lines are not made up for.
                next_line = (next_line + LINE).max(now);
                self.taken.check(self.tap.check(), RESTART)?;
                printer.line(&self.tap.counts()?);
                if self.args.count && !printer.console.is_read() {
                    return Ok(Ending::Signal);
                }
            }
            let over = self.args.duration.map(|duration| begun + duration);
            if over.is_some_and(|over| now >= over) {
                return Ok(Ending::Duration);
            }
            let busy = self.read()? > 0;
            if self.sink.borrow().left == 0 {
                return Ok(Ending::Packets);
            }
            let until = over.map_or(next_line, |over| over.min(next_line));
            let until = if self.others.is_some() { until.min(next_look) } else { until };
            // While packets come, they are let gather; else whoever reads what was written has it all now.
            let wait = if busy { GATHER } else { until.saturating_duration_since(now) };
            let mut fds = vec![stop.as_fd()];
            fds.extend((!busy).then(|| self.reader.as_fd()));
            let ready = ready::wait(fds, Some(wait));
            let ready = ready.map_err(|errno| Error::system("wait for packets", errno))?;
            if ready[0] {
                return Ok(Ending::Signal);
            }
        }
    }

    /// Reads a batch, and writes what is not to be kept back; how many packets it was.
    fn read(&mut self) -> Result<usize> {
        // A file's size is looked at after each packet.
        let at_once = if self.args.rotation.rotate_size.is_some() { 1 } else { BATCH };
        let mut count = 0;
        while count < BATCH {
            let read = self.read_some(at_once)?;
            count += read;
            if read < at_once {
                break;
            }
        }
        Ok(count)
    }

    fn read_some(&mut self, most: usize) -> Result<usize> {
        let read = self.reader.read(most);
        let mut sink = self.sink.borrow_mut();
        if let Some(error) = sink.failed.take() {
            return Err(error);
        }
        let count = match read {
            Ok(count) => count,
            Err(_) if sink.left == 0 => 0,
            Err(error) => return Err(Error::system("read the ring of packets", error)),
        };
        let Some(output) = &mut sink.output else { return Ok(count) };
        if count < most {
            output.flush().map_err(|error| output.failed(error))?;
        }
        if output.is_due() {
            output.rotate(&self.tap.counts()?)?;
        }
        Ok(count)
    }

    /// Reads what is left in the ring, ends the file, and says what there was.
    fn end(mut self, ended: Result<Ending>, printer: Printer) -> Result<()> {
        self.tap.detach();
        let ended = match ended {
            Ok(Ending::Packets) => Ok(Ending::Packets),
            Ok(ending) => self.drain().map(|()| ending),
            Err(error) => Err(error),
        };
        let counts = self.tap.counts()?;
        let mut sink = self.sink.borrow_mut();
        let finished = match &mut sink.output {
            Some(output) => output.finish(&counts),
            None => Ok(()),
        };
        let written = printer.summary(&counts, sink.output.as_ref(), ended.as_ref().ok());
        match ended.and(finished) {
            // `weir capture -w - | head` has seen what it wanted.
            Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                out::say("nobody reads standard output any more");
            }
            done => done?,
        }
        written
    }

    fn drain(&mut self) -> Result<()> {
        while self.read()? > 0 {}
        Ok(())
    }
}
