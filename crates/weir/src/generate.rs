//! `weir generate`: man pages and shell completions, from the definition of the command line.

use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{Error, Result};

/// Writes them.
pub fn run(dir: &Path) -> Result<()> {
    let failed = |source| Error::file("write into", dir, source);
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "weir", dir).map_err(failed)?;
    }
    Ok(())
}
