//! `weir`: the daemon and the command line.

mod ab;
mod attach;
mod bypass;
mod capture;
mod cgroup;
mod channel_name;
mod channels;
mod choice;
mod claim;
mod cli;
mod clock;
mod company;
mod config;
mod console;
mod cookies;
mod daemon;
mod deferral;
mod diverting;
#[cfg(test)]
mod docs_tests;
mod doctor;
mod egress;
mod error;
mod explain;
mod feedback;
mod forwarding;
mod generate;
mod governor;
mod guardian;
mod host;
mod interface;
mod joined;
mod journal;
mod key;
mod knob;
mod lazy;
mod link;
mod lock;
mod metrics;
mod named_file;
mod notes;
mod out;
mod owners;
mod packet;
mod preset;
mod privilege;
mod ready;
mod report;
mod restore;
mod rps;
mod run;
mod rundir;
mod sample;
mod screen;
mod screening;
mod shadow;
mod shares;
mod show;
mod signals;
mod sleep;
mod softirq;
mod statefile;
mod status;
mod sysctl;
mod task;
mod threading;
mod threads;
mod trace;
mod walls;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use weir_bpf::sys::caps::Capability;

use crate::cli::{Cli, Command};
use crate::config::args::ConfigCommand;
use crate::console::Console;

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => {
            if !Path::new("/proc/self").exists() {
                out::say("weir: /proc is missing, so weir sees little; `mount -t proc proc /proc`");
            }
            dispatch(cli.command)
        }
        Err(mistake) if mistake.use_stderr() => mistake.exit(),
        Err(help) => out::or_gone(help.print()).map(|_| ExitCode::SUCCESS).map_err(Into::into),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // Each message has its cause in it, and a mistaken configuration a line for each mistake. The daemon ends
            // whether it is read or not.
            Console::open().say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args)?,
        Command::Doctor(args) => return Ok(doctor::run(&args)?),
        Command::Status(args) => return Ok(show::status(&args)?),
        Command::Channels(args) => channels::run(&args)?,
        Command::Top(args) => channels::top::run(&args)?,
        Command::Explain(args) => explain::run(&args)?,
        Command::Capture(args) => capture::run(&args)?,
        Command::Trace(args) => trace::run(&args)?,
        Command::Screen(args) => screening::run(&args)?,
        Command::Config(args) => match args.command {
            ConfigCommand::Check(args) => config::check(&args)?,
            ConfigCommand::Show(args) => config::show(&args)?,
            ConfigCommand::Init(args) => config::init(&args)?,
        },
        Command::Reset(args) => return Ok(show::reset(&args)?),
        Command::Generate(args) => generate::run(&args.dir)?,
        Command::Guardian(args) => guardian::run(args.parent, &args.keys)?,
        Command::LazyClerk => lazy::run_clerk()?,
        Command::Lab(args) => {
            if args.measures() {
                privilege::check_for("weir lab", &Capability::ALL)?;
            }
            return Ok(weir_lab::cli::run(args, cli::check_run_options)?);
        }
        Command::LabWorker(args) => weir_lab::apps::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
