//! What `--json` prints: the run as it is kept, and what is computed from it.

use serde_json::{Map, Value, json};

use crate::error::{Result, cannot};
use crate::goals;
use crate::metric::{Better, Unit};
use crate::report::words;
use crate::run::Load;
use crate::view::{Point, View};

/// The kept run with computed keys after it; `docs/lab-json.md` describes them.
pub fn json(view: &View<'_>) -> Result<String> {
    let kept = view.run.to_json()?;
    let mut text = kept.trim_end().strip_suffix('}').unwrap_or(&kept).to_owned();
    let series = |arm: &str| -> Value {
        view.points.iter().filter(|point| point.arm == arm).map(point).collect()
    };
    for (key, value) in [
        ("experiment", json!(view.run.head.experiment)),
        ("machine", json!(view.run.head.machine)),
        ("sentence", json!(words::sentence(view))),
        ("warnings", json!(words::warnings(view))),
        ("goals", json!(goals::judge(view))),
        ("summary", per_arm(view, |arm| summary(view, arm))),
        ("series", per_arm(view, series)),
    ] {
        let value = serde_json::to_string_pretty(&value).map_err(cannot("write", key))?;
        text += &format!(",\n\"{key}\": {value}");
    }
    Ok(text + "}\n")
}

fn per_arm(view: &View<'_>, of: impl Fn(&str) -> Value) -> Value {
    view.arms().into_iter().map(|arm| (arm.to_owned(), of(arm))).collect::<Map<_, _>>().into()
}

fn point(point: &Point) -> Value {
    let Point { case, load, figures, repeats, marked, .. } = point;
    let mut all = json!({"case": case, "load": load, "repeats": repeats, "marked": marked});
    for (id, figure) in figures {
        all[*id] = json!(figure.median);
        all["ranges"][*id] = json!([figure.min, figure.max]);
    }
    all
}

/// An arm in a few figures: the first merit, over the first case that has several loads.
fn summary(view: &View<'_>, arm: &str) -> Value {
    let merit = view.experiment.merits[0];
    let is_less = merit.better == Better::Less;
    let cases: Vec<String> = view.cases().into_iter().map(|case| case.name).collect();
    let case = cases.iter().find(|case| view.loads(case).len() > 1).or(cases.first());
    let case = case.map_or("", String::as_str);
    let (loads, get) = (view.loads(case), |load| view.get(arm, case, load, merit));
    let overload = loads.last().filter(|load| **load != Load::Off).and_then(|load| get(*load));
    let better = if is_less { f64::min } else { f64::max };
    let best = loads.iter().filter_map(|load| get(*load)).reduce(better);
    let unloaded = get(Load::Off);
    let retained = unloaded
        .or(best)
        .zip(overload)
        .map(|(whole, overload)| if is_less { whole / overload } else { overload / whole });
    let searched = |case: &str| {
        let search = view.experiment.searches.iter().find(|search| search.case == case);
        search.and_then(|search| view.found(search, arm)?.passed)
    };
    let pps = |value: Option<f64>| value.filter(|_| merit.unit == Unit::Pps);
    json!({
        "merit": merit.id,
        "case": case,
        "mlfrr_pps": searched("pdr"),
        "ndr_pps": searched("ndr"),
        "peak_pps": pps(best),
        "overload_pps": pps(overload),
        "unloaded": unloaded,
        "overload": overload,
        "retained": retained.filter(|retained| retained.is_finite()),
    })
}
