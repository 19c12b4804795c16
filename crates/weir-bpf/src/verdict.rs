//! Verdicts and reasons, generated from the lists in `bpf/verdict.h`; and the steps of `bpf/trace.h`.

include!(concat!(env!("OUT_DIR"), "/verdict.rs"));
