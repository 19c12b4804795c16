//! What `--json` prints: the run as it is kept, and what is computed from it.

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::goals;
use crate::metric::{Better, Unit};
use crate::report::words;
use crate::run::Load;
use crate::view::{Point, View};

/// The kept run with computed keys after it; `docs/lab-json.md` describes them.
///
/// # Errors
/// Never for results that the lab made.
pub fn json(view: &View<'_>) -> Result<String> {
    let failed = |source| Error::json("write", view.experiment.name, source);
    let kept = view.run.to_json()?;
    let mut text = kept.trim_end().trim_end_matches('}').trim_end().to_owned();
    let head = &view.run.head;
    let computed = [
        ("experiment", json!(head.experiment)),
        ("machine", serde_json::to_value(&head.machine).map_err(failed)?),
        ("sentence", json!(words::sentence(view))),
        ("warnings", json!(words::warnings(view))),
        ("goals", serde_json::to_value(goals::judge(view)).map_err(failed)?),
        ("summary", per_arm(view, |arm| summary(view, arm))),
        ("series", per_arm(view, |arm| series(view, arm))),
    ];
    for (key, value) in computed {
        let value = serde_json::to_string_pretty(&value).map_err(failed)?;
        text += &format!(",\n\"{key}\": {value}");
    }
    Ok(text + "\n}\n")
}

fn per_arm(view: &View<'_>, of: impl Fn(&str) -> Value) -> Value {
    view.arms().into_iter().map(|arm| (arm.to_owned(), of(arm))).collect::<Map<_, _>>().into()
}

fn series(view: &View<'_>, arm: &str) -> Value {
    view.points.iter().filter(|point| point.arm == arm).map(point).collect::<Vec<_>>().into()
}

fn point(point: &Point) -> Value {
    let Point { case, load, figures, repeats, marked, .. } = point;
    let mut all = Map::new();
    for (key, value) in [
        ("case", json!(case)),
        ("load", json!(load)),
        ("repeats", json!(repeats)),
        ("marked", json!(marked)),
    ] {
        all.insert(key.to_owned(), value);
    }
    let ranges: Map<_, _> =
        figures.iter().map(|(id, of)| ((*id).to_owned(), json!([of.min, of.max]))).collect();
    all.insert("ranges".to_owned(), ranges.into());
    all.extend(figures.iter().map(|(id, of)| ((*id).to_owned(), json!(of.median))));
    all.into()
}

/// An arm in a few figures: the first merit, over the first case that has several loads.
pub fn summary(view: &View<'_>, arm: &str) -> Value {
    let merit = view.experiment.merits[0];
    let cases: Vec<String> = view.cases().into_iter().map(|case| case.name).collect();
    let case = cases.iter().find(|case| view.loads(case).len() > 1).or(cases.first());
    let case = case.map_or("", String::as_str);
    let get = |load| view.get(arm, case, load, merit);
    let overload = view.loads(case).last().filter(|load| **load != Load::Off).and_then(|l| get(*l));
    let less = merit.better == Better::Less;
    let best =
        view.loads(case).into_iter().filter_map(get).reduce(if less { f64::min } else { f64::max });
    let unloaded = get(Load::Off);
    let retained = unloaded
        .or(best)
        .zip(overload)
        .map(|(whole, overload)| if less { whole / overload } else { overload / whole });
    let searched = |case: &str| {
        let search = view.experiment.searches.iter().find(|search| search.case == case);
        search.and_then(|search| view.found(search, arm))
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
