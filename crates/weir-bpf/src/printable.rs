//! Text from processes, such as names that they give themselves, made safe for a terminal.

use std::fmt::Write as _;

/// The text, with whatever is not UTF-8, moves a cursor or is not visible written as `\x1b` or `\u{202e}`.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for each in chunk.valid().chars() {
            if is_plain(each) { text.push(each) } else { text.extend(escape(each)) }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// At most so many characters of it, the last ones `...` if there are more.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept = text.chars().take(chars_max.saturating_sub(3));
    kept.chain("...".chars().take(chars_max)).collect()
}

/// Visible, of one column at most as far as Latin scripts go, and no change of direction.
fn is_plain(each: char) -> bool {
    let invisible = matches!(
        each,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..
    );
    // Those who show Hebrew, Arabic and the like from right to left take the digits and brackets behind it along.
    let from_right = matches!(
        each,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{10800}'..='\u{10fff}'
            | '\u{1e800}'..='\u{1efff}'
    );
    !each.is_control() && !invisible && !from_right
}

fn escape(each: char) -> impl Iterator<Item = char> {
    let text = match u32::from(each) {
        code @ 0..=0x7f => format!("\\x{code:02x}"),
        code => format!("\\u{{{code:x}}}"),
    };
    text.chars().collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_move_a_cursor_is_escaped_and_the_rest_left() {
        for (bytes, expected) in [
            (&b"nginx: worker (1) [x]"[..], "nginx: worker (1) [x]"),
            (b"a\x1b[2Jb\n\r\t\0\x7f", "a\\x1b[2Jb\\x0a\\x0d\\x09\\x00\\x7f"),
            ("größe".as_bytes(), "größe"),
            (b"\xff\xc3", "\\xff\\xc3"),
            ("\u{9b}2J\u{202e}evil\u{200b}".as_bytes(), "\\u{9b}2J\\u{202e}evil\\u{200b}"),
            ("a\u{115f}b\u{3164}".as_bytes(), "a\\u{115f}b\\u{3164}"),
            ("\u{627} (pid 12)".as_bytes(), "\\u{627} (pid 12)"),
            // What systemd writes for a dash.
            (b"dev-disk\\x2dlabel.mount", "dev-disk\\x2dlabel.mount"),
        ] {
            assert_eq!(printable(bytes), expected);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("größer", 5), "gr...");
        assert_eq!(cut("abcdef", 2), "..");
    }
}
