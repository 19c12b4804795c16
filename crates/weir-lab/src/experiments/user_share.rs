//! `user-share` (MR, figure 7-1): a CPU hog on a flooded host, at three settings of the user share.
//!
//! The flood goes to an application that is stopped, so that the gate discards each packet and a faster
//! flood only wants more of the CPU for input. A second application is sent a light flow. What processes
//! get is measured by work.

use super::shared::*;

const LIGHT_PPS: f64 = 20_000.0;
const FLOODED: Cases = Cases::Of(&["flooded"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "user-share",
    paper: "MR fig. 7-1",
    question: "what do processes keep of a flooded CPU, at each setting of the user share?",
    found: "a cycle limit kept user CPU stable at every rate, though under the setting",
    arms: "threaded,niced,batch?,weir-native --user-share 25%,weir-native --user-share 50%,\
           weir-native --user-share 75%,softirq --user-share 25%?,softirq,softirq --user-share 75%?",
    main: "weir-native --user-share 50%",
    cases: || {
        let unloaded = Case::always("unloaded").at("0");
        vec![Case::always("flooded").against("unloaded"), unloaded]
    },
    loads: "0,100k?,200k?,400k,800k?,1.6M?,2.4M?,3.2M?,top",
    // Of weir's settings, one is enough for the reference.
    skip: |arm, case, _| {
        case == "unloaded"
            && (!is_quiet(&arm.name) || setting(&arm.name).is_some_and(|share| share != 0.5))
    },
    scene,
    derive: Some(derive),
    says: "leaves user processes {} of the CPU",
    merits: &[&m::user_work, &m::light_goodput],
    tables: tables! {
        "Work of user processes, of what the CPU can do" in FLOODED => user_work;
        "Goodput of the second receiver; CPU time of input" in FLOODED => light_goodput, input_cpu;
    },
    figure: lines("Work of user processes by offered rate", "flooded", &m::user_work),
    goals: goals! {
        "weir-native: work of user processes less the setting, at every setting and rate" =>
            find(|view| above_setting(view, "weir-native"), FLOODED), AtLeast(-0.03);
        "softirq: work of user processes less the setting, at every setting and rate" =>
            find(|view| above_setting(view, "softirq"), FLOODED), AtLeast(-0.03);
        "weir-native: work of user processes, of what input leaves, where input fits its share" =>
            find(unused_share, FLOODED), AtLeast(0.95);
    },
    notes: "User processes are the hog and the second receiver, whose work is its packets at their CPU \
            time without a flood. What softirqs take is in no process's CPU time, so it is not known how \
            much of the CPU input needs there.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let mut scene = Scene { apps: receivers(), beside: Some(Beside::Hog(0)), ..Scene::default() };
    if ask.case == "flooded" {
        let light = Flow::light(LIGHT_PORT, LIGHT_PPS);
        scene.flows = std::iter::once(light).chain(ask.flood(FLOODED_PORT)).collect();
        scene.stopped = true;
    }
    Ok(scene)
}

fn derive(trials: &mut [Trial]) {
    hog_work(trials);
    let calm = |t: &&Trial| t.case == "flooded" && t.load == Load::Off;
    let c_app = trials.iter().filter(calm).filter_map(|trial| trial.get(&m::light_ns_per_packet));
    let Some(c_app) = median(c_app) else { return };
    for trial in trials.iter_mut().filter(|trial| trial.case == "flooded") {
        let second = trial.get(&m::light_pps).map(|pps| pps * c_app / 1e9);
        let work = trial.get(&m::hog_work).zip(second).map(|(hog, second)| hog + second);
        trial.set(&m::user_work, work);
    }
}

fn setting(arm: &str) -> Option<f64> {
    let (name, options) = arm.split_once(' ').unwrap_or((arm, ""));
    let given = options.strip_prefix("--user-share ").and_then(|text| text.strip_suffix('%'));
    match (name, given) {
        ("weir-native" | "softirq", Some(percent)) => Some(percent.parse::<f64>().ok()? / 100.0),
        ("weir-native" | "softirq", None) => Some(0.5),
        _ => None,
    }
}

/// The points of this kind of arm, each with its setting.
fn points<'a>(view: &'a View<'_>, arm: &'a str) -> impl Iterator<Item = (&'a Point, f64)> {
    let flooded = view.points.iter().filter(|point| point.case == "flooded");
    let of_arm = flooded.filter(move |point| point.arm.split(' ').next() == Some(arm));
    of_arm.filter_map(|point| Some((point, setting(&point.arm)?)))
}

fn above_setting(view: &View<'_>, arm: &str) -> Vec<Found> {
    let found = |(point, setting): (&Point, f64)| {
        let trials = view.trials_of(&point.arm, &point.case, point.load);
        let pairs = trials.filter_map(|t| Some((t.get(&m::user_work)? - setting, 1.0)));
        compare(pairs, format!("{} at {}", point.arm, point.load))
    };
    points(view, arm).filter_map(found).collect()
}

fn unused_share(view: &View<'_>) -> Vec<Found> {
    let found = |(point, setting): (&Point, f64)| {
        let need = |t: &Trial| {
            let offered = t.get(&m::offered_pps)? + t.get(&m::light_offered_pps)?;
            Some(t.get(&m::cpu_ns_per_packet)? * offered / 1e9)
        };
        let trials = || view.trials_of(&point.arm, "flooded", point.load);
        let fits = median(trials().filter_map(need)) <= Some(1.0 - setting);
        let pairs = trials().filter_map(|t| Some((t.get(&m::user_work)?, 1.0 - need(t)?)));
        compare(pairs, format!("{} at {}", point.arm, point.load)).filter(|_| fits)
    };
    points(view, "weir-native").filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn an_arms_setting_is_in_its_name() {
        assert_eq!(setting("weir-native --user-share 25%"), Some(0.25));
        assert_eq!(setting("softirq"), Some(0.5));
        assert_eq!(setting("niced"), None);
    }
}
