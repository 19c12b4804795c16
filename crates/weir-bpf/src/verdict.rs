//! Verdicts and reasons, generated from the lists in `bpf/verdict.h`, with the steps of `bpf/trace.h` and the
//! outcomes of `bpf/wall.h`.

include!(concat!(env!("OUT_DIR"), "/verdict.rs"));
