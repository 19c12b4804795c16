//! What `--json` prints: the run as it is kept, and what is computed from it.

use serde_json::{Map, Value, json};

use crate::error::{Result, cannot};
use crate::experiment::Search;
use crate::goals;
use crate::report::words;
use crate::view::{Point, View};

/// The kept run with computed keys after it; `docs/lab-json.md` describes them.
pub fn json(view: &View<'_>) -> Result<String> {
    let kept = view.run.to_json()?;
    let mut text = kept.trim_end().strip_suffix('}').unwrap_or(&kept).to_owned();
    let series = |arm: &str| -> Value {
        view.points.iter().filter(|point| point.arm == arm).map(point).collect()
    };
    let searches = |arm: &str| -> Value {
        let found = |search: &Search| Some((search.case.into(), json!(view.found(search, arm)?)));
        view.experiment.searches.iter().filter_map(found).collect::<Map<_, _>>().into()
    };
    for (key, value) in [
        ("sentence", json!(words::sentence(view))),
        ("warnings", json!(words::warnings(view))),
        ("goals", json!(goals::judge(view))),
        ("searches", per_arm(view, searches)),
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
