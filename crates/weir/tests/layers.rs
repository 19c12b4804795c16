//! Modules stand in layers: none imports, by whatever way, a module that imports it. Two that are one thing may.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules of a crate, each with its text.
fn modules(dir: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let inner = format!("{name}::{stem}");
        match path.extension().and_then(|it| it.to_str()) {
            None => modules(&path, &inner, found),
            Some("rs") if stem != "tests" && !stem.ends_with("_tests") => {
                let named = if matches!(stem, "lib" | "main" | "mod") { name } else { &inner };
                found.insert(named.into(), fs::read_to_string(path).unwrap());
            }
            Some(_) => {}
        }
    }
}

/// The paths in what a `use` names, without its braces.
fn expand(prefix: &str, used: &str, paths: &mut Vec<String>) {
    let Some((before, list)) = used.split_once('{') else {
        return paths.push(format!("{prefix}{}", used.trim()));
    };
    let (mut depth, mut start) = (0, 0);
    let list = list.trim_end().strip_suffix('}').unwrap();
    for (at, char) in list.char_indices().chain([(list.len(), ',')]) {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{}", before.trim()), &list[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths of the crate that a module names, as it writes them.
fn named(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: String = code.lines().filter(|line| !line.trim().starts_with("//")).collect();
    // Not the word in a text.
    let is_path = |char: char| char.is_alphanumeric() || "_:{},* ".contains(char);
    let (mut paths, mut others) = (Vec::new(), String::new());
    for (nth, piece) in code.split("use ").enumerate() {
        match piece.split_once(';') {
            Some((used, after)) if nth > 0 && used.contains("::") && used.chars().all(is_path) => {
                expand("", used, &mut paths);
                others += after;
            }
            _ => others += piece,
        }
    }
    let word = |char: char| !char.is_alphanumeric() && char != '_' && char != ':';
    paths.extend(others.split(word).filter(|path| path.contains("::")).map(String::from));
    paths
}

/// The module in which something is that a module names, if it is one of the crate's.
fn place(all: &BTreeMap<String, String>, module: &str, path: &str) -> Option<String> {
    let mut steps: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base: Vec<&str> = match steps[0] {
        "crate" => vec!["crate"],
        "super" | "self" => module.split("::").collect(),
        first if all.contains_key(&format!("{module}::{first}")) => module.split("::").collect(),
        _ => return None,
    };
    while matches!(steps.first(), Some(&"super")) {
        steps.remove(0);
        base.pop();
    }
    base.extend(steps.into_iter().filter(|step| !matches!(*step, "crate" | "self")));
    let longest = (1..=base.len()).rev().map(|length| base[..length].join("::"));
    longest.into_iter().find(|name| all.contains_key(name))
}

#[test]
fn modules_stand_in_layers() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in ["weir", "weir-bpf", "weir-lab", "weir-policy"] {
        let mut all = BTreeMap::new();
        modules(&crates.join(name).join("src"), "crate", &mut all);
        // The root names its modules.
        let imports = |module: &String| -> BTreeSet<String> {
            let places =
                named(&all[module]).into_iter().filter_map(|path| place(&all, module, &path));
            places.filter(|other| other != module && other != "crate").collect()
        };
        let mut reached: BTreeMap<String, BTreeSet<String>> =
            all.keys().map(|module| (module.clone(), imports(module))).collect();
        loop {
            let further = |names: &BTreeSet<String>| {
                names.iter().flat_map(|it| reached[it].clone()).collect()
            };
            let more: Vec<(String, BTreeSet<String>)> = reached
                .iter()
                .map(|(module, names)| (module.clone(), &further(names) | names))
                .collect();
            if more.iter().all(|(module, names)| reached[module] == *names) {
                break;
            }
            reached.extend(more);
        }
        for (module, names) in &reached {
            let circle: Vec<&String> =
                names.iter().filter(|other| reached[*other].contains(module)).collect();
            assert!(circle.len() <= 2, "{name}: {module} is in a circle: {circle:?}");
        }
        assert!(reached.values().any(|names| names.len() > 3), "{name}: no imports found");
    }
}
