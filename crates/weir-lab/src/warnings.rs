//! What a reader should know before trusting any experiment's figures.

use crate::results::Machine;
use crate::topology;

/// Of how the machine behaved: how many points are marked of how many there are, and the largest
/// share of the SUT's CPU that the hypervisor took.
pub fn measured((marked, points): (usize, usize), stolen: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    if marked > 0 {
        warnings.push(format!(
            "{marked} of {points} points were measured while the CPU's speed differed by more than \
             5 % from the run's median (marked)"
        ));
    }
    if stolen > 0.02 {
        warnings.push(format!("the hypervisor took up to {:.0} % of the CPU", stolen * 100.0));
    }
    warnings
}

/// Of the machine and the run.
pub fn circumstances(machine: &Machine, quick: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if machine.shared_core {
        warnings.push("generator and tested system share a core: each slows the other down".into());
    }
    if topology::another_runs() {
        warnings.push("another lab ran on this machine at the same time".into());
    }
    if quick {
        warnings.push(
            "a quick run: 3 short trials per point; differences of a few percent are noise".into(),
        );
    }
    warnings
}
