//! Preload.
