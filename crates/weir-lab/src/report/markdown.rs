//! Stub.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::run::Run;

/// Tables.
///
/// # Errors
/// Never.
pub fn all(_runs: &[Run]) -> Result<String> {
    Ok(String::new())
}

/// Between markers.
///
/// # Errors
/// Never.
pub fn refresh(_files: &[PathBuf], _dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(vec![])
}
