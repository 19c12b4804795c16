//! `tests/corpus/*.hex`: one frame a file, as [`Case`] prints it, behind comments (`#`) and a line
//! that names what it is to be parsed as.

use std::fs;
use std::path::Path;

use crate::case::Case;

pub struct Entry {
    pub file: String,
    pub case: Case,
    /// As [`crate::coverage::name`] has it.
    pub expected: String,
}

pub fn read() -> Vec<Entry> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut entries: Vec<Entry> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "hex"))
        .map(|path| {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            entry(&file, &fs::read_to_string(&path).unwrap())
                .unwrap_or_else(|line| panic!("{file}: cannot read {line:?}"))
        })
        .collect();
    entries.sort_by(|a, b| a.file.cmp(&b.file));
    entries
}

/// The line that cannot be read, if one cannot.
fn entry(file: &str, text: &str) -> Result<Entry, String> {
    let mut bytes = Vec::new();
    let mut first_buffer = None;
    let mut expected = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let bad = || line.to_owned();
        if let Some(name) = line.strip_prefix("parse: ") {
            expected = Some(name.to_owned());
        } else if let Some(count) = line.strip_prefix("first-buffer: ") {
            first_buffer = Some(count.parse().map_err(|_| bad())?);
        } else {
            for digits in line.as_bytes().chunks(2) {
                let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
            }
        }
    }
    let first_buffer = first_buffer.unwrap_or(bytes.len());
    let expected = expected.ok_or("(no line `parse: ...`)")?;
    Ok(Entry { file: file.to_owned(), case: Case { bytes, first_buffer }, expected })
}
