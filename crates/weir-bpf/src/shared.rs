//! The maps that several objects share (`bpf/shared.h`): the queue probe's own, which others are loaded with.

/// Opens an object with the probe's maps in place of its own, and the seed of their hash.
macro_rules! share {
    ($open:expr, $probe:expr, $failed:expr) => {{
        let (maps, shared) = (&mut $open.maps, $probe.maps());
        if let Some(rodata) = maps.rodata_data.as_deref_mut() {
            rodata.hash_seed = $probe.hash_seed();
        }
        maps.accounts.reuse_fd(shared.accounts.as_fd()).map_err($failed("share"))?;
        maps.alarm.reuse_fd(shared.alarm.as_fd()).map_err($failed("share"))?;
        maps.charge_rows.reuse_fd(shared.charge_rows.as_fd()).map_err($failed("share"))?;
        maps.charges.reuse_fd(shared.charges.as_fd()).map_err($failed("share"))?;
        maps.contests.reuse_fd(shared.contests.as_fd()).map_err($failed("share"))?;
        maps.napi_polls.reuse_fd(shared.napi_polls.as_fd()).map_err($failed("share"))?;
        maps.queue_slots.reuse_fd(shared.queue_slots.as_fd()).map_err($failed("share"))?;
        maps.rings.reuse_fd(shared.rings.as_fd()).map_err($failed("share"))?;
        maps.softirqs.reuse_fd(shared.softirqs.as_fd()).map_err($failed("share"))?;
    }};
}
pub(crate) use share;
