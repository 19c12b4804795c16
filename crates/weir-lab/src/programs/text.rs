//! What programs read and print, and how long they are waited for.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// How long a server may take for one answer while it starts.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// The most of a program's output that an error message quotes, characters.
const QUOTED_CHARACTERS: usize = 800;

/// Writes a program's configuration or data.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| Error::io("write", path.display().to_string(), source))
}

/// The end of a program's output, for an error message: a program states its failure last.
pub(super) fn quote(output: &str) -> String {
    let text = output.trim();
    if text.is_empty() {
        return "it printed nothing".to_owned();
    }
    let skipped = text.chars().count().saturating_sub(QUOTED_CHARACTERS);
    let last: String = text.chars().skip(skipped).collect();
    format!("it printed: {last}")
}

/// The word that follows `label` in a program's output.
pub(super) fn word_after<'output>(output: &'output str, label: &str) -> Option<&'output str> {
    output.split_once(label)?.1.split_whitespace().next()
}

/// The number that follows `label` in a program's output; a comma behind it is not part of it.
pub(super) fn number_after(output: &str, label: &str) -> Option<f64> {
    word_after(output, label)?.trim_end_matches(',').parse().ok()
}

/// The count that follows `label` in a program's output; a comma behind it is not part of it.
pub(super) fn count_after(output: &str, label: &str) -> Option<u64> {
    word_after(output, label)?.trim_end_matches(',').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_is_quoted() {
        assert_eq!(quote(" \n"), "it printed nothing");
        assert_eq!(quote("no such file\n"), "it printed: no such file");
        let long = quote(&format!("{}ü the end", "x".repeat(QUOTED_CHARACTERS)));
        assert!(long.ends_with("xü the end") && long.chars().count() < QUOTED_CHARACTERS + 20);
    }

    #[test]
    fn numbers_are_found_by_their_labels() {
        assert_eq!(count_after("connect 1, read 22,", "read"), Some(22));
        assert_eq!(number_after("TPS: 40.5 N", "TPS:"), Some(40.5));
        assert_eq!((count_after("read", "read"), count_after("read x", "read")), (None, None));
    }
}
