//! Verdicts and reasons, generated from the lists in `bpf/verdict.h`.

include!(concat!(env!("OUT_DIR"), "/verdict.rs"));
