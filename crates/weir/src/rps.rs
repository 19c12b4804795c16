//! Receive packet steering: the kernel then hands packets from the NAPI thread on to other CPUs'
//! softirqs (`net.core.netdev_max_backlog`), where nothing weighs them: today's ipintrq (Mogul &
//! Ramakrishnan, section 4.2).

use weir_bpf::sys::sysfs::NetSysfs;

/// A receive queue's CPUs, as a mask; of no CPU: off.
pub const OFF: &str = "0";

/// The attribute of one receive queue.
pub fn attribute(queue: &str) -> String {
    format!("queues/{queue}/rps_cpus")
}

/// The receive queues that steer, each with its mask. What cannot be read does not.
pub fn steering(sysfs: &NetSysfs, interface: &str) -> Vec<(String, String)> {
    let queues = sysfs.list(interface, "queues").unwrap_or_default();
    let mask = |queue: String| {
        let mask = sysfs.read(interface, &attribute(&queue)).ok()?;
        is_on(&mask).then_some((queue, mask))
    };
    queues.into_iter().filter(|queue| queue.starts_with("rx-")).filter_map(mask).collect()
}

/// Whether a mask names a CPU: groups of hexadecimal digits with commas between.
pub fn is_on(mask: &str) -> bool {
    mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
}

/// What to tell the user about queues that steer, although weir has switched steering off or not; none if there is none.
pub fn note(steering: &[(String, String)], is_switched_off: bool) -> Option<String> {
    let queues: Vec<&str> = steering.iter().map(|(queue, _)| queue.as_str()).collect();
    let remedy = match is_switched_off {
        true => "somebody has set it since weir switched it off: write 0 to `rps_cpus`",
        false => "`weir run --rps-off` switches it off while weir runs",
    };
    (!queues.is_empty()).then(|| {
        format!(
            "receive packet steering (RPS) is on for {}: it hands packets on to softirqs, which \
             nothing governs; {remedy}",
            queues.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_no_cpu_are_off() {
        assert_eq!(["0", "00000000,00000000", ""].map(is_on), [false; 3]);
        assert_eq!(["2", "00000001,00000000", "f"].map(is_on), [true; 3]);
        assert_eq!(note(&[], false), None);
    }
}
