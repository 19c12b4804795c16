//! Flows that a wall has accepted, judged again.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::found::{WALL, map_of, value};
use crate::abi;
use crate::error::{Error, Result};
use crate::parser::Parsed;
use crate::record::{batches, record};
use crate::skeleton::wall::types;
use crate::units::IfIndex;

/// How many flows are looked at between two words that the screen lives.
const AT_ONCE: u32 = 4096;

/// Flows that were accepted: those tables, and the generation of the rules that did.
pub(super) type Flows<'a> = ([&'a dyn MapCore; 2], u32);

/// Puts those flows into the tables that `accepts` gives a rule's number. In the order of the tables: a flow that is
/// established meanwhile, which puts its entry as it was into the second, is found in the first.
pub(super) fn hand_on(
    (from, of): Flows<'_>,
    (to, generation): Flows<'_>,
    mut alive: impl FnMut(),
    mut accepts: impl FnMut(&Parsed, bool) -> Option<usize>,
) -> Result<()> {
    for (from, to) in from.into_iter().zip(to) {
        let hand_on = |keys: &[u8], entries: &[u8]| {
            alive();
            let (mut kept, mut accepted) = (Vec::new(), Vec::new());
            let keys = keys.chunks_exact(size_of::<types::weir_wall_key>());
            for (key, entry) in keys.zip(entries.chunks_exact(size_of::<types::weir_wall_entry>()))
            {
                let Some(entry) =
                    record(entry).filter(|entry: &types::weir_wall_entry| entry.generation == of)
                else {
                    continue;
                };
                let Some(rule) = headers_of(key, &entry)
                    .and_then(|(headers, answers)| accepts(&headers, answers))
                else {
                    continue;
                };
                kept.extend(key);
                accepted.extend(entry.used_ns.to_ne_bytes());
                accepted.extend(generation.to_ne_bytes());
                accepted.extend((rule as u16).to_ne_bytes());
                accepted.extend([entry.tcp_flags, entry.state]);
            }
            let count = (kept.len() / size_of::<types::weir_wall_key>()) as u32;
            if count == 0 {
                return Ok(());
            }
            to.update_batch(&kept, &accepted, count, MapFlags::ANY, MapFlags::ANY)
        };
        batches(from, AT_ONCE, hand_on).map_err(Error::bpf("hand flows on to", WALL))?;
    }
    Ok(())
}

/// The headers of an accepted flow, as far as rules look at them, and whether they are those of an answer to it.
fn headers_of(key: &[u8], entry: &types::weir_wall_entry) -> Option<(Parsed, bool)> {
    let of: types::weir_wall_key = record(key)?;
    let headers = Parsed {
        family: of.family,
        protocol: of.protocol,
        fragment: of.fragment,
        tcp_flags: entry.tcp_flags,
        source_port: u16::from_be(of.source_port_be),
        destination_port: u16::from_be(of.port_be),
        icmp_type: of.icmp_type,
        source: key[..16].try_into().ok()?,
        destination: key[16..32].try_into().ok()?,
        ..Parsed::default()
    };
    Some((headers, usize::from(entry.state) & abi::WALL_SECOND != of.side.into()))
}

/// The flows that a wall between these sides has accepted; none of another `weir`'s whose tables have another form.
pub(super) fn flows_of(
    program: u32,
    sides: &[(IfIndex, &str); 2],
) -> Option<([MapHandle; 2], u32)> {
    const AT: usize = std::mem::offset_of!(types::bss, generation);
    for (number, (ifindex, _)) in (0..).zip(sides) {
        let side: types::weir_wall_side = record(&value(program, "sides", number)?)?;
        if side.ifindex != ifindex.0 {
            return None;
        }
    }
    let variables = value(program, ".bss", 0).filter(|it| it.len() == size_of::<types::bss>())?;
    let generation: u32 = record(&variables[AT..])?;
    let tables = [map_of(program, "accepted")?, map_of(program, "established")?];
    let has_form = |table: &MapHandle| {
        let sizes = [size_of::<types::weir_wall_key>(), size_of::<types::weir_wall_entry>()];
        [table.key_size(), table.value_size()].map(|size| size as usize) == sizes
    };
    tables.iter().all(has_form).then_some((tables, generation))
}
