//! The diagnosis for a person: twelve lines at most, the worst first.

use indicatif::HumanCount;
use weir_bpf::printable::printable;

use super::diagnosis::finding::{Finding, Help, Sureness};
use super::diagnosis::{Diagnosis, Verdict};
use super::reading::Reading;

/// What fits beside whatever else is on a screen in an incident.
const LINES_MAX: usize = 12;

/// At most [`LINES_MAX`]; what does not fit is counted.
pub fn lines(reading: &Reading, diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = vec![headline(reading, diagnosis)];
    let unseen = &diagnosis.unseen;
    // The last line is for what is left out or was not seen.
    let room = LINES_MAX - 1;
    let mut left_out = 0;
    for (number, found) in diagnosis.findings.iter().enumerate() {
        let found = finding(number + 1, found);
        match lines.len() + found.len() <= room {
            true => lines.extend(found),
            false => left_out += 1,
        }
    }
    for note in &diagnosis.notes {
        match lines.len() < room {
            true => lines.push(format!("note: {note}")),
            false => left_out += 1,
        }
    }
    let mut last = Vec::new();
    if left_out > 0 {
        last.push(format!("{left_out} more: `weir doctor --json`"));
    }
    match unseen.as_slice() {
        [] => {}
        [one] => last.push(format!("not seen: {one}")),
        [one, more @ ..] => last.push(format!("not seen: {one}, and {} more (--json)", more.len())),
    }
    lines.extend((!last.is_empty()).then(|| last.join("; ")));
    // A recording may hold anything.
    lines.iter().map(|line| printable(line.as_bytes())).collect()
}

fn headline(reading: &Reading, diagnosis: &Diagnosis) -> String {
    let verdict = match (diagnosis.verdict, diagnosis.findings.len()) {
        (Verdict::Well, _) => {
            "well: nothing is lost for want of room, and receiving leaves time for everything else"
                .into()
        }
        (Verdict::Wrong, 1) => "wrong: one finding".into(),
        (Verdict::Wrong, findings) => format!("wrong: {findings} findings"),
        (Verdict::Unknown, _) => "cannot tell: what would show it was not seen".into(),
    };
    format!(
        "{verdict} ({:.0} s, Linux {}, {} CPUs, {} packets/s received)",
        reading.seconds,
        reading.kernel,
        reading.cpus.len(),
        HumanCount(reading.receive_pps().round() as u64)
    )
}

fn finding(number: usize, finding: &Finding) -> Vec<String> {
    let whose = finding.whose.iter().map(|whose| format!(" [{whose}]"));
    let sureness = match finding.sureness {
        Sureness::Measured => "measured",
        Sureness::Likely => "likely",
        Sureness::Possible => "possible",
    };
    let weir = match finding.weir {
        Help::Cures => "weir cures it:",
        Help::Contains => "weir contains it:",
        Help::None => "weir does",
    };
    let mut lines = vec![
        format!("{number}. {}{} ({sureness})", finding.what, whose.collect::<String>()),
        format!("   {weir} {}", finding.weir_does),
    ];
    lines.extend(
        (!finding.advice.is_empty()).then(|| format!("   try: {}", finding.advice.join("; or "))),
    );
    lines
}
