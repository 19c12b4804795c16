//! The kernel's own clocks, which BPF programs read, where this process's differ (time_namespaces(7)).

use std::fs;

/// How far this process's `monotonic` or `boottime` clock is ahead of the kernel's, in nanoseconds.
pub(crate) fn ahead(clock: &str) -> i64 {
    let link = |name| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    // The file tells of the namespace that children are to be in.
    if link("time") != link("time_for_children") {
        return 0;
    }
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    parse(&offsets, clock).unwrap_or_default()
}

fn parse(offsets: &str, clock: &str) -> Option<i64> {
    let rest = offsets.lines().find_map(|line| line.strip_prefix(clock))?;
    let mut numbers = rest.split_ascii_whitespace().map(str::parse::<i64>);
    let (secs, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    secs.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn offsets_are_read() {
        let text = "monotonic           86400         5\nboottime               -1 500000000\n";
        assert_eq!(parse(text, "monotonic"), Some(86_400_000_000_005));
        assert_eq!(parse(text, "boottime"), Some(-500_000_000));
        assert_eq!((parse("", "monotonic"), parse("monotonic 1", "monotonic")), (None, None));
    }
}
