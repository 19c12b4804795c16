use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::made_up::{self, BESIDE, OVERLOAD, beside, overload};
use super::*;
use crate::experiment::Experiment;
use crate::machine::Machine;
use crate::metric::METRICS;
use crate::run::{Load, SCHEMA, Setup};
use crate::{arm, store};

const THREE: [&str; 3] = ["stock", "niced", "weir-native"];
const EIGHT: [&str; 8] = [
    "stock",
    "threaded",
    "niced",
    "batch",
    "gate",
    "idle-weir",
    "weir-native",
    "weir --user-share 25%",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn text_of_an_overload() {
    let run = overload(&THREE);
    insta::assert_snapshot!(text(&View::new(&OVERLOAD, &run)));
}

#[test]
fn markdown_of_a_computation_beside_a_flood() {
    let run = beside();
    insta::assert_snapshot!(markdown::section(&View::new(&BESIDE, &run)));
}

#[test]
fn the_sentence_is_beside_baselines_on_a_host_like_the_main_arms() {
    static UNPINNED: Experiment = Experiment { main: "weir+unpinned --nice 0", ..OVERLOAD };
    let arms = ["stock", "niced", "weir"].map(|arm| format!("{arm}+unpinned"));
    let weir = format!("{} --nice 0", arms[2]);
    let run = overload(&[&arms[0], &arms[1], "niced", &weir]);
    assert_eq!(
        words::sentence(&View::new(&UNPINNED, &run)),
        "At the top rate, weir+unpinned --nice 0 delivers 608 k packets/s, stock+unpinned 807, and \
         niced+unpinned (the best baseline) 600 k."
    );
}

#[test]
fn the_sentence_leaves_out_what_was_not_measured() {
    let of = |arms: &[&str]| words::sentence(&View::new(&OVERLOAD, &overload(arms)));
    assert_eq!(
        of(&["stock", "weir-native", "niced"]),
        "At the top rate, weir-native delivers 600 k packets/s, stock 807, and niced (the best \
         baseline) 604 k."
    );
    assert_eq!(
        of(&["stock", "weir-native"]),
        "At the top rate, weir-native delivers 600 k packets/s, and stock (the best baseline) 807."
    );
    assert_eq!(of(&["niced"]), "At the top rate, niced delivers 807 packets/s.");
    assert_eq!(of(&[]), "Nothing was measured.");
    let less = words::sentence(&View::new(&BESIDE, &beside()));
    assert_eq!(
        less,
        "At 400 k packets/s, weir-native completes a call in 3.2 ms, stock 4.0 ms, and niced (the \
         best baseline) 3.6 ms."
    );
    let mut other = overload(&THREE);
    other.trials.retain(|trial| trial.case == "echo");
    let other = words::sentence(&View::new(&OVERLOAD, &other));
    assert!(other.starts_with("In case echo, at the top rate, weir-native"), "{other}");
}

fn parsed(experiment: &'static Experiment, run: &Run) -> serde_json::Value {
    serde_json::from_str(&json(&View::new(experiment, run)).unwrap()).unwrap()
}

#[test]
fn json_is_the_kept_run_and_what_follows_from_it() {
    let run = overload(&THREE);
    let all = parsed(&OVERLOAD, &run);
    let kept = ["head", "columns", "trials"].map(|key| (key, &all[key]));
    let kept = serde_json::to_string(&BTreeMap::from(kept)).unwrap();
    assert_eq!(Run::parse(&kept).unwrap(), run);
    let top = &all["series"]["weir-native"][1];
    assert_eq!((&top["load"], &top["repeats"]), (&"top".into(), &3.into()));
    assert_eq!(top["ranges"]["delivered_pps"], serde_json::json!([598e3, 609_960.0]));
    insta::assert_json_snapshot!(serde_json::json!({
        "goals": all["goals"],
        "sentence": all["sentence"],
        "warnings": all["warnings"],
        "searches": {"stock": all["searches"]["stock"], "weir-native": all["searches"]["weir-native"]},
    }));
    assert!(parsed(&BESIDE, &beside())["searches"]["stock"].as_object().unwrap().is_empty());
}

const HOSTILE: &str = "\"'><script src=x>alert(1)</script>&";

#[test]
fn a_page_needs_nothing_else() {
    let (run, beside) = (overload(&THREE), beside());
    let page = html::page(&[View::new(&OVERLOAD, &run), View::new(&BESIDE, &beside)]).unwrap();
    let own = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for outside in ["http", "src=", "@import", "url(", "<link", "<script"] {
        assert!(!own.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("what is left of &lt;b&gt;a flood&lt;/b&gt;?"));
    assert!(page.contains("title=\"799 to 815; 3 trials\">807</td>"), "{page}");
    assert_well_formed(&page);
}

#[test]
fn a_page_shows_text_as_text() {
    let mut run = overload(&["stock", HOSTILE]);
    let head = &mut run.head;
    let Machine { kernel, cpu_model, preemption, mitigations, .. } = &mut head.machine;
    let (commit, version) = (&mut head.commit, &mut head.weir_version);
    for text in [commit, version, kernel, cpu_model, preemption] {
        *text = HOSTILE.to_owned();
    }
    mitigations.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    head.command.push(HOSTILE.to_owned());
    head.programs.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    head.experiment = HOSTILE.to_owned();
    head.started_at = HOSTILE.to_owned();
    let setup = Setup { daemon: HOSTILE.to_owned(), ..head.setup["stock"].clone() };
    head.setup.insert(HOSTILE.to_owned(), setup);
    let page = html::page(&[View::new(&OVERLOAD, &run)]).unwrap();
    assert!(page.matches("&lt;script src=x&gt;").count() > 15, "{page}");
    assert!(!page.contains("<script"));
    assert_well_formed(&page);
}

/// Panics unless every element is closed in order and every `&` begins a reference.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = vec![];
    let body = page.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
    let mut rest = body;
    while let Some((text, tag)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a bare > in {text:?}");
        assert!(text.split('&').skip(1).all(|after| after.contains(';')), "a bare & in {text:?}");
        let (tag, after) = tag.split_once('>').unwrap();
        assert!(tag.matches('"').count().is_multiple_of(2), "broken tag {tag:?}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
        } else if !tag.ends_with('/') {
            open.extend(tag.split_whitespace().next());
        }
        rest = after;
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn figures_are_drawn_of_what_was_measured() {
    let run = overload(&EIGHT);
    let lines = figure::svg(&View::new(&OVERLOAD, &run)).unwrap().unwrap();
    assert!(lines.contains("logarithmic") && lines.contains("hollow"), "{lines}");
    assert!(EIGHT.iter().all(|arm| lines.contains(arm)));
    let bars = figure::svg(&View::new(&BESIDE, &beside())).unwrap().unwrap();
    assert!(bars.contains("fast") && bars.contains("400 k"), "{bars}");
    let arms: Vec<String> = (0..20).map(|nice| format!("weir --nice {nice}")).collect();
    let many = overload(&arms.iter().map(String::as_str).collect::<Vec<_>>());
    let many = figure::svg(&View::new(&OVERLOAD, &many)).unwrap().unwrap();
    assert!(arms.iter().all(|arm| many.contains(arm.as_str())));
    let looks: BTreeSet<(u32, usize)> = (0..arms.len()).map(figure::appearance).collect();
    assert_eq!(looks.len(), arms.len());
    let nothing = overload(&[]);
    assert_eq!(figure::svg(&View::new(&OVERLOAD, &nothing)).unwrap(), None);
}

#[test]
fn markers_are_filled_and_all_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = overload(&THREE);
    store::write_whole(&dir.path().join("run.json"), &run.to_json().unwrap()).unwrap();
    let title = experiments::by_name("udp-overload").unwrap().tables[0].title;
    let marker = |asked: &str| format!("<!-- weir-lab: run.json {asked} -->\n");
    let end = "<!-- weir-lab end -->\n";
    let asked = marker(&format!("table=\"{title}\" arms=weir-native,stock loads=top cases=recv"));
    let fenced = format!("```\n{asked}```\n");
    let text =
        format!("before\n{asked}old\n{end}between\n{}{end}{fenced}after", marker("goals versions"));
    let new = markdown::filled(&text, dir.path()).unwrap();
    let table =
        "\n| load | weir-native | stock |\n| ---: | ---: | ---: |\n| top | 604 k | 807 |\n\n";
    assert!(new.starts_with(&format!("before\n{asked}{table}{end}between\n")), "{new}");
    assert!(new.ends_with(&format!("\n{end}{fenced}after")), "{new}");
    assert!(new.contains("| verdict | goal | wanted | got |") && new.contains("commit 0123abc"));
    assert_eq!(markdown::filled(&new, dir.path()).unwrap(), new);

    let file = dir.path().join("doc.md");
    let files = [file.clone()];
    fs::write(&file, &text).unwrap();
    assert_eq!(markdown::refresh(&files, dir.path()).unwrap(), files);
    assert_eq!(fs::read_to_string(&file).unwrap(), new);
    assert!(markdown::refresh(&files, dir.path()).unwrap().is_empty());

    for (asked, wrong) in [
        ("arms=gate", "gate is none of this result's arms: niced, stock, weir-native"),
        ("loads=5x", "a rate is 0, or"),
        ("loads=200k cases=recv", "no such table has a row"),
        ("table=\"Ages", "a quote is not closed"),
        ("table=Ages", "these have: Delivered, packets/s; "),
        ("figures", "\"figures\" is none of"),
    ] {
        fs::write(&file, format!("one\n{}{end}", marker(asked))).unwrap();
        let error = markdown::refresh(&files, dir.path()).unwrap_err().to_string();
        assert!(error.contains("doc.md, line 2: ") && error.contains(wrong), "{error}");
    }
    for text in [marker("goals"), end.to_owned(), "<!-- weir-lab: no.json -->\n".to_owned() + end] {
        assert!(markdown::filled(&text, dir.path()).is_err(), "{text}");
    }
}

/// README.md and docs/*.md hold what their markers ask for; `weir lab report docs/results --into FILE`
/// writes it.
#[test]
fn documents_hold_the_tables_of_the_committed_results() {
    let root = workspace();
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    for path in docs.chain(["README.md", "docs/results/README.md"].map(|path| root.join(path))) {
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).unwrap();
            let new = markdown::filled(&text, &root.join("docs/results"));
            let new = new.unwrap_or_else(|error| panic!("{}, {error}", path.display()));
            if std::env::var_os("UPDATE_DOCS").is_some() {
                store::write_whole(&path, &new).unwrap();
            }
            let text = fs::read_to_string(&path).unwrap();
            assert!(new == text, "{} is out of date", path.display());
        }
    }
}

/// `docs/lab-json.md` is this template with what the declarations say.
#[test]
fn lab_json_md_is_what_the_declarations_say() {
    let arms: String = arm::known().map(|(name, help)| format!("- `{name}`: {help}\n")).collect();
    let metrics = METRICS.iter().map(|metric| {
        let how = format!("{:?} | {:?}", metric.better, metric.merge).to_lowercase();
        format!("| `{}` | {} | {how} | {} |\n", metric.id, metric.unit.name(), metric.help)
    });
    let text = include_str!("lab-json.md").replace("{SCHEMA}", &SCHEMA.to_string());
    let text = text.replace("{ARMS}", &arms).replace("{METRICS}", &metrics.collect::<String>());
    let path = workspace().join("docs/lab-json.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        store::write_whole(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text);
}

#[test]
fn a_point_needs_a_figure_to_be_a_row() {
    let mut run = overload(&THREE);
    run.trials.push(made_up::trial(("stock", "recv", Load::Rate(3e5)), 0, &[]));
    assert!(!text(&View::new(&OVERLOAD, &run)).contains("300 k"));
}
