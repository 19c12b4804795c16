//! Verdicts and reasons, generated from the lists in `bpf/verdict.h`.

include!(concat!(env!("OUT_DIR"), "/verdict.rs"));

impl Reason {
    /// Whether it is that the channel was over its share of a saturated CPU.
    pub const fn is_share(self) -> bool {
        // They are the last in the list: `is_share_reason()` in `bpf/decide.h`.
        self as u32 >= Self::UdpShare as u32
    }
}
