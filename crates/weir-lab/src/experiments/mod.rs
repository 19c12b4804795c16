//! The experiments: one file each, and one line here.

use crate::experiment::Experiment;

/// Declares the modules, and the list of their experiments.
macro_rules! experiments {
    ($($name:ident,)*) => {
        $(mod $name;)*
        /// Every experiment, in the order in which `--all` runs them.
        pub static ALL: &[&Experiment] = &[$(&$name::EXPERIMENT),*];
    };
}

experiments! {
    udp_overload,
    fair_division,
    gate_cost,
    separation,
    user_share,
    http_syn_flood,
    moderate_flood,
    udp_latency,
    burst_latency,
    poll_latency,
    timeline,
    parity,
    rpc_mix,
    accounting,
    receivers,
    late_drops,
    harmless,
    unpinned,
    monitor,
    forward,
    forward_screend,
    quota,
}

mod shared;

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Ask, words};
    use crate::goals::judge;
    use crate::report::made_up;
    use crate::run::Load;
    use crate::scene::Scene;
    use crate::view::View;

    #[test]
    fn names_are_unique_and_every_declared_arm_and_load_can_be_read() {
        for (at, experiment) in ALL.iter().enumerate() {
            let name = experiment.name;
            assert!(ALL[at + 1..].iter().all(|other| other.name != name), "{name}");
            for arm in words(experiment.arms) {
                assert!(crate::arm::Arm::parse(arm).is_ok(), "{name}: {arm}");
            }
            assert!(!experiment.merits.is_empty() && !experiment.tables.is_empty(), "{name}");
            assert!(experiment.says.contains("{}"), "{name}");
            assert!(!experiment.question.is_empty() && !experiment.notes.is_empty(), "{name}");
            assert!(!(experiment.cases)().is_empty() && !(experiment.goals)().is_empty(), "{name}");
        }
    }

    fn known(experiment: &Experiment, case: &str) -> bool {
        (experiment.cases)().iter().any(|known| known.name == case)
    }

    #[test]
    fn a_goal_is_for_each_arm_that_ran_and_named_by_it() {
        let experiment = by_name("udp-overload").unwrap();
        let names = |arms: &[&str]| -> Vec<String> {
            let run = made_up::overload(arms);
            judge(&View::new(experiment, &run)).into_iter().map(|goal| goal.name).collect()
        };
        let of = |arm: &str| format!("{arm}: delivered at every rate, of the best baseline's");
        assert!(names(&["niced", "weir"]).contains(&of("weir")));
        assert!(!names(&["niced", "weir"]).iter().any(|name| name.starts_with("weir-native:")));
        assert!(names(&["niced", "weir", "weir-native"]).contains(&of("weir-native")));
    }

    #[test]
    fn every_declared_scene_can_be_made() {
        for experiment in ALL {
            let arm = crate::arm::Arm::parse(words(experiment.arms).next().unwrap()).unwrap();
            for case in (experiment.cases)() {
                for load in words(case.loads.unwrap_or(experiment.loads)) {
                    let load = Load::parse(load).unwrap();
                    let ask = Ask { arm: &arm, case: &case.name, load, quick: true, done: &[] };
                    let scene = (experiment.scene)(&ask).unwrap();
                    assert_ne!(scene, Scene::default(), "{}", case.name);
                    let named = case.against.is_none_or(|other| known(experiment, other));
                    assert!(named, "{}", case.name);
                    assert!(scene.flows.len() <= weir_bpf::abi::TRAFFIC_FLOWS, "{}", case.name);
                    let first_flood = scene.flows.iter().position(|flow| !flow.light);
                    let last_light = scene.flows.iter().rposition(|flow| flow.light);
                    assert!(last_light < first_flood || first_flood.is_none(), "{}", case.name);
                }
            }
        }
    }
}
