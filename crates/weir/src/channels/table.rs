//! Channels for a person.

use std::io::{self, Write};

use super::rows::{Figures, InterfaceChannels, Report};

/// Writes a table for each interface.
///
/// # Errors
/// When the writer refuses.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for (number, interface) in report.interfaces.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one_interface(out, interface)?;
    }
    Ok(())
}

fn one_interface(out: &mut impl Write, interface: &InterfaceChannels) -> io::Result<()> {
    writeln!(out, "{}", interface.interface)?;
    writeln!(
        out,
        "  {:<34} {:>14} {:>14} {:>16} {:>11} {:>11} {:>9}",
        "CHANNEL", "PASSED", "DISCARDED", "BYTES", "PASSED/s", "DISCARDED/s", "MB/s"
    )?;
    for channel in &interface.channels {
        row(out, &channel.name.name, &channel.figures)?;
    }
    if interface.overflow.packets() > 0 {
        row(out, "(further channels, together)", &interface.overflow)?;
    }
    if interface.retired.channels > 0 {
        let name = format!("({} quiet channels, deleted)", interface.retired.channels);
        row(out, &name, &interface.retired.figures)?;
    }
    row(out, "(all)", &interface.total)?;
    if interface.overflow.packets() > 0 {
        writeln!(out, "  4,096 channels are counted one by one; further ones together")?;
    }
    Ok(())
}

fn row(out: &mut impl Write, name: &str, figures: &Figures) -> io::Result<()> {
    let Figures { passed, discarded, rates } = figures;
    let bytes = passed.bytes + discarded.bytes;
    write!(out, "  {name:<34} {:>14} {:>14} {bytes:>16}", passed.packets, discarded.packets)?;
    match rates {
        None => writeln!(out, " {:>11} {:>11} {:>9}", "-", "-", "-"),
        Some(rates) => writeln!(
            out,
            " {:>11.0} {:>11.0} {:>9.1}",
            rates.passed_pps.0,
            rates.discarded_pps.0,
            rates.bytes_per_sec / 1e6
        ),
    }
}
