//! What tests of properties share.

use proptest::prelude::ProptestConfig;

/// So many, or as many as `PROPTEST_CASES` says: what holds of some only shows in thousands.
pub fn cases(usually: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|wanted| wanted.parse().ok());
    ProptestConfig {
        cases: wanted.unwrap_or(usually),
        failure_persistence: None,
        ..Default::default()
    }
}
