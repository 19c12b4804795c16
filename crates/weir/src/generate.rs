//! `weir generate`: man pages and shell completions, from the definition of the command line.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Cli;
use crate::error::{Error, Result};

/// Behind one of these, a command's help has its examples.
const HEADINGS: [&str; 2] = ["Examples:\n", "To begin:\n"];
const FILES: &str = "  /etc/weir/weir.toml   the configuration, which need not be there
  /run/weir             what running daemons publish, and what they have turned";

/// Writes them.
pub fn run(dir: &Path) -> Result<()> {
    let failed = |source| Error::file("write into", dir, source);
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, None, dir).map_err(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut shown(&Cli::command()), "weir", dir)
            .map_err(failed)?;
    }
    Ok(())
}

/// A command's man page, and those of its commands.
fn pages(command: &Command, parent: Option<&str>, dir: &Path) -> io::Result<()> {
    let own = name(command);
    let commands = || command.get_subcommands().filter(|command| !command.is_hide_set());
    for each in commands() {
        pages(each, Some(own), dir)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (about, examples) =
        HEADINGS.iter().find_map(|heading| help.split_once(heading)).unwrap_or((help.as_str(), ""));
    let source = concat!("weir ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(own).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if !about.is_empty() {
        text(None, &format!("\n{}", about.trim_end())).to_writer(&mut page)?;
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if commands().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    if !examples.is_empty() {
        text(Some("EXAMPLES"), examples).to_writer(&mut page)?;
    }
    if ["weir", "weir-run"].contains(&own) {
        text(Some("FILES"), FILES).to_writer(&mut page)?;
    }
    let others: Vec<String> =
        parent.into_iter().chain(commands().map(name)).map(|other| format!("{other}(1)")).collect();
    text(Some("SEE ALSO"), &others.join(", ")).to_writer(&mut page)?;
    std::fs::write(dir.join(format!("{own}.1")), page)
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Paragraphs, of which man fills all lines but those that are indented.
fn text(heading: Option<&str>, text: &str) -> Roff {
    let mut roff = Roff::default();
    if let Some(heading) = heading {
        // And no command's name hyphenated.
        roff.control("SH", [heading]).control("nh", []);
    }
    let mut filled = true;
    for line in text.lines() {
        if line.starts_with(' ') == filled {
            filled = !filled;
            roff.control(if filled { "fi" } else { "nf" }, []);
        }
        match line {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    if !filled {
        roff.control("fi", []);
    }
    roff
}

/// Without what is hidden, which clap_complete would offer.
fn shown(command: &Command) -> Command {
    // Names of commands live as long as the program.
    let name: &'static str = command.get_name().to_owned().leak();
    let about = command.get_about().cloned().unwrap_or_default();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let shown = Command::new(name).about(about).args(arguments).subcommands(subcommands.map(shown));
    shown.version(env!("CARGO_PKG_VERSION")).propagate_version(true)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn examples_are_not_filled_and_pages_name_each_other() {
        let scratch = TempDir::new().unwrap();
        run(scratch.path()).unwrap();
        let page = std::fs::read_to_string(scratch.path().join("weir-config-check.1")).unwrap();
        assert!(page.contains(".TH weir-config-check 1"), "{page}");
        for part in [
            ".SH EXAMPLES\n.nh\n.nf\n  weir config check /etc/weir/weir.toml\n",
            "kill \\-HUP PID\n.fi\n",
            ".SH \"SEE ALSO\"\n.nh\nweir\\-config(1)\n",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }

    #[test]
    fn completions_offer_nothing_that_is_hidden() {
        let scratch = TempDir::new().unwrap();
        run(scratch.path()).unwrap();
        for file in ["weir.bash", "_weir", "weir.fish"] {
            let text = std::fs::read_to_string(scratch.path().join(file)).unwrap();
            for wanted in ["lazy-group", "init", "doctor", "help", "version"] {
                assert!(text.contains(wanted), "no {wanted} in {file}");
            }
            for hidden in
                ["guardian", "lazy-clerk", "lab-worker", "generate", "--slice", "-l slice"]
            {
                assert!(!text.contains(hidden), "{hidden} in {file}");
            }
        }
    }
}
