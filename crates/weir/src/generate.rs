//! `weir generate`: man pages and shell completions, from the definition of the command line.

use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{Error, Result};

/// Writes them.
pub fn run(dir: &Path) -> Result<()> {
    let failed = |source| Error::file("write into", dir, source);
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut shown(&Cli::command()), "weir", dir)
            .map_err(failed)?;
    }
    Ok(())
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
