//! Stub.

use std::path::Path;

use crate::ab::Compared;
use crate::error::Result;

/// Compares two kept runs.
///
/// # Errors
/// When one cannot be read.
pub fn files(_a: &Path, _b: &Path) -> Result<Compared> {
    Ok(Compared {})
}
