//! `weir trace`: the way of single packets through the kernel, as a timeline, and what their ways add up to.

pub mod args;
mod path;
mod print;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::filter::Filter;
use weir_bpf::trace::{Reader, Trace};

use self::args::TraceArgs;
use self::path::{GIVE_UP, Paths, Times};
use self::print::Printer;
use crate::error::{Error, Result};
use crate::link::Taken;
use crate::privilege::{self, FOR_PACKETS};
use crate::ready;
use crate::signals;

const COMMAND: &str = "weir trace";
/// How many events are read before anything else is looked at.
const BATCH: usize = 4096;
/// How long events may gather in the ring before they are read. It has room for twice as many at one CPU's highest rate.
const GATHER: Duration = Duration::from_millis(20);

/// Runs the command.
///
/// # Errors
/// Without the privilege, or if the interface or the filter is not to be had, or the interface does not last.
pub fn run(args: &TraceArgs) -> Result<()> {
    // Without CAP_SYSLOG, the kernel's functions have no names.
    privilege::check_for(COMMAND, &FOR_PACKETS)?;
    let stop = signals::catch(&[SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let taken = Taken::open(COMMAND, &args.interface)?;
    let text = args.filter.join(" ");
    let filter =
        (!text.trim().is_empty()).then(|| Filter::compile(&taken.name, &text)).transpose()?;
    let mut trace = Trace::load(args.rate, filter.as_ref())?;
    let paths = RefCell::new(Paths::default());
    let reader = trace.reader(|told| paths.borrow_mut().take(told))?;
    let mut printer = Printer::new(args, &taken.links, taken.header);
    trace.attach(taken.ifindex, &taken.name)?;
    trace.follow(args.packets.unwrap_or(u64::MAX));
    printer.ready();
    let mut session =
        Session { args, taken: &taken, trace, reader, paths: &paths, times: Times::default() };
    let ended = session.watch(&stop, &mut printer).and_then(|()| session.read().map(drop));
    // What is under way is told as far as it has come.
    paths.borrow_mut().give_up();
    let told = session.tell(&mut printer);
    let summed_up = printer.summary(&session.times, session.trace.missed());
    ended.and(told.map(drop)).and(summed_up)
}

/// A trace that runs.
struct Session<'a> {
    args: &'a TraceArgs,
    taken: &'a Taken<'a>,
    trace: Trace,
    reader: Reader<'a>,
    paths: &'a RefCell<Paths>,
    times: Times,
}

impl Session<'_> {
    /// Follows packets until something ends it.
    fn watch(&mut self, stop: &UnixStream, printer: &mut Printer) -> Result<()> {
        let begun = Instant::now();
        let wanted = self.args.packets.unwrap_or(u64::MAX);
        let mut over = self.args.duration.map(|duration| begun + duration);
        let mut stopped = false;
        loop {
            let read = self.read()?;
            if !self.tell(printer)? {
                return Ok(());
            }
            let now = Instant::now();
            let under_way = self.paths.borrow().under_way();
            if self.times.packets() >= wanted || (stopped && under_way == 0) {
                return Ok(());
            }
            if over.is_some_and(|over| now >= over) {
                if stopped {
                    return Ok(());
                }
                // What is under way may still arrive.
                (stopped, over) = (true, Some(now + GIVE_UP));
                self.trace.follow(0);
            }
            let wait = match (read, over) {
                (BATCH, _) => Duration::ZERO,
                (_, None) => GATHER,
                (_, Some(over)) => GATHER.min(over.saturating_duration_since(now)),
            };
            let fds = [stop.as_fd(), self.reader.as_fd()];
            // Who waits for each is woken for each.
            let fds = if read > 0 { &fds[..1] } else { &fds[..] };
            let ready = ready::wait(fds.iter().copied(), Some(wait));
            let ready = ready.map_err(|errno| Error::system("wait for packets", errno))?;
            if ready[0] {
                return Ok(());
            }
            self.taken.check(self.trace.check(), "start again when it is back")?;
        }
    }

    /// Reads a batch of events; how many there were.
    fn read(&self) -> Result<usize> {
        self.reader.read(BATCH).map_err(|it| Error::system("read the ring of events", it))
    }

    /// Prints and counts the packets that are over; whether somebody still reads.
    fn tell(&mut self, printer: &mut Printer) -> Result<bool> {
        let mut reads = true;
        for mut path in self.paths.borrow_mut().over(monotonic_now()) {
            printer.know_parts(&mut path);
            reads = reads && printer.packet(&path)?;
            self.times.count(&path);
        }
        Ok(reads)
    }
}
