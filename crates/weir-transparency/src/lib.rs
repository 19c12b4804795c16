//! Nothing but tests: see `tests/transparency` and `docs/testing.md`.
