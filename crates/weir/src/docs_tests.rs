//! Every `weir` command in the documents and the examples of the help is one that the command line takes, every link
//! leads to a file and a heading that are there, and so is every source file that is named, and every test that
//! docs/attack.md names.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::preset::Preset;

/// Commands of the shell that another one may follow.
const ENDS: [&str; 6] = ["|", ">", "&&", ";", "<", "||"];

/// The words of a `weir` command that begins a line of a shell's; none if another command does.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = line.strip_prefix("target/release/").unwrap_or(line);
    // A synopsis has optional parts.
    line.strip_prefix("weir ").filter(|rest| !rest.contains(" ["))?;
    let words = shlex::split(line)?;
    Some(words.into_iter().take_while(|word| !ENDS.contains(&word.as_str())).collect())
}

fn is_taken(words: &[String]) -> Result<(), String> {
    match Cli::try_parse_from(words) {
        Err(error) if error.exit_code() != 0 => Err(format!("{}: {error}", words.join(" "))),
        _ => Ok(()),
    }
}

/// Lines of code blocks: indented by four spaces, or between fences.
fn code(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            lines.push(line);
        }
    }
    lines
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages =
        |dir: &str| fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path());
    let docs = ["", "docs", "docs/adr", "docs/results"].into_iter().flat_map(pages);
    docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_command_in_the_docs_is_taken() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for words in code(&text).into_iter().filter_map(words) {
            seen += 1;
            wrong
                .extend(is_taken(&words).err().map(|error| format!("{}: {error}", page.display())));
        }
    }
    assert!(seen > 20, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The anchors of a page: its headings in lower case, with hyphens for spaces and without punctuation.
fn anchors(text: &str) -> HashSet<String> {
    let code: HashSet<&str> = code(text).into_iter().collect();
    let headings = text.lines().filter(|line| line.starts_with('#') && !code.contains(line));
    let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(kept).map(|each| if each == ' ' { '-' } else { each }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !target.starts_with("http")) {
            seen += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to =
                if path.is_empty() { page.clone() } else { page.with_file_name("").join(path) };
            let has = |text: String| anchors(&text).contains(anchor);
            let there =
                to.exists() && (anchor.is_empty() || fs::read_to_string(&to).is_ok_and(has));
            if !there {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All files and directories below one.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        }
        found.push(entry);
    }
}

#[test]
fn every_source_file_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut there = Vec::new();
    ["bpf", "crates", "deploy", "docs", "packaging", "tests"]
        .iter()
        .for_each(|dir| sources(&root.join(dir), &mut there));
    let is_named = |name: &&str| {
        let from_root = ["bpf/", "crates/", "deploy/", "packaging/", "tests/"];
        let is_path = !name.contains([' ', '*', ':', '(', '=', '{']);
        is_path
            && (from_root.iter().any(|dir| name.starts_with(dir))
                || [".rs", ".h", ".c"].iter().any(|end| name.ends_with(end)))
    };
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // A file that a commit of before had is named with that commit, with a colon.
        for name in text.split('`').skip(1).step_by(2).filter(is_named) {
            seen += 1;
            if !root.join(name).exists() && !there.iter().any(|path| path.ends_with(name)) {
                wrong.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bpf_object_is_in_the_architecture() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let names = fs::read_dir(root.join("bpf")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let objects: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".bpf.c")).collect();
    let named = |object: &&&str| page.split([' ', ',', '.', '/']).any(|word| word == **object);
    let missing: Vec<_> = objects.iter().filter(|object| !named(object)).collect();
    assert!(objects.len() > 10 && missing.is_empty(), "{missing:?}");
}

#[test]
fn every_example_of_the_help_is_taken() {
    fn examples(command: &clap::Command, found: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let example = |line: &str| {
            let command = line.strip_prefix("  ")?;
            // What it is for stands behind two spaces or more.
            Some(command.split("  ").next().unwrap_or(command).to_owned())
        };
        found.extend(help.lines().filter_map(example));
        command.get_subcommands().for_each(|each| examples(each, found));
    }
    let mut lines = Vec::new();
    examples(&Cli::command(), &mut lines);
    let commands: Vec<Vec<String>> = lines.iter().filter_map(|line| words(line)).collect();
    assert!(commands.len() > 20, "{commands:?}");
    let wrong: Vec<String> = commands.iter().filter_map(|words| is_taken(words).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names of all tests below a directory.
fn tests(dir: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            tests(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).unwrap();
            let after = text.split("#[test]").skip(1);
            let name = |text: &str| Some(text.split_once("fn ")?.1.split_once('(')?.0.to_owned());
            found.extend(after.filter_map(name));
        }
    }
}

/// One row for each finding, in their order.
#[test]
fn every_test_against_an_attack_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut there = HashSet::new();
    tests(&root.join("crates"), &mut there);
    let page = fs::read_to_string(root.join("docs/attack.md")).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().map(cells).filter(|row| row.len() == 6 && row[1].parse::<u8>().is_ok());
    let rows: Vec<_> = rows.collect();
    let numbers: Vec<_> = rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(numbers, (1..=rows.len()).map(|number| number.to_string()).collect::<Vec<_>>());
    let quoted =
        |text: &str| text.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let is_test = |name: &str| name.contains('_') && !name.contains(char::is_uppercase);
    for row in &rows {
        let mut named: Vec<_> = quoted(&row[3]).into_iter().filter(|name| is_test(name)).collect();
        assert!(!named.is_empty(), "finding {} names no test", row[1]);
        // Prose beside it names other things, too.
        named.extend(quoted(&row[4]).into_iter().filter(|name| name.matches('_').count() > 2));
        for name in named {
            let last = name.rsplit("::").next().unwrap_or_default();
            assert!(there.contains(last), "finding {}: no test {name}", row[1]);
        }
    }
}

#[test]
fn the_presets_in_the_docs_are_those_that_there_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = fs::read_to_string(page).unwrap();
    let row = |preset: &Preset| {
        let ports: Vec<String> = preset.ports.iter().map(ToString::to_string).collect();
        let ports = if ports.is_empty() { "none".into() } else { ports.join(", ") };
        format!("| `{}` | {ports} | {} |", preset.name, preset.about)
    };
    for row in crate::preset::ALL.iter().map(row) {
        assert!(text.lines().any(|line| line == row), "{row}");
    }
}
