//! Tells the lab which commit it is built from, so that every result can name it.

use std::process::Command;

/// What a build is made of.
const SOURCES: [&str; 4] = ["crates", "bpf", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = &format!("{}/../..", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed = git(&[&["status", "--porcelain", "--"][..], &SOURCES].concat());
    println!("cargo::rustc-env=WEIR_COMMIT={commit}");
    println!("cargo::rustc-env=WEIR_UNCOMMITTED={}", changed.is_none_or(|text| !text.is_empty()));
    for source in SOURCES {
        println!("cargo::rerun-if-changed={root}/{source}");
    }
    // A commit changes these, and no source.
    for file in ["HEAD", "index", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            let path = std::path::Path::new(root).join(path);
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}
