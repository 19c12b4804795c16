//! Compiles the BPF objects, generates their skeletons, and expands the verdict lists into Rust.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const OBJECTS: [&str; 6] = ["gate", "queue", "traffic", "bare", "poll_cost", "lookup_cost"];
const CLANG_CANDIDATES: [&str; 4] = ["clang-19", "clang", "clang-16", "clang-14"];

fn main() -> Result<(), Box<dyn Error>> {
    let bpf_dir = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../bpf").canonicalize()?;
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", bpf_dir.display());
    println!("cargo:rerun-if-env-changed=CLANG");

    let clang = find_clang()?;
    for object in OBJECTS {
        SkeletonBuilder::new()
            .source(bpf_dir.join(format!("{object}.bpf.c")))
            .clang(&clang)
            .clang_args(clang_args(&bpf_dir))
            .build_and_generate(out_dir.join(format!("{object}.skel.rs")))?;
    }
    fs::write(out_dir.join("verdict.rs"), verdicts(&clang, &bpf_dir)?)?;
    Ok(())
}

fn find_clang() -> Result<String, Box<dyn Error>> {
    if let Ok(named) = env::var("CLANG") {
        return Ok(named);
    }
    CLANG_CANDIDATES
        .iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
        .map(|name| name.to_string())
        .ok_or_else(|| "no clang found; run ./setup.sh, or name one in CLANG".into())
}

fn clang_args(bpf_dir: &Path) -> Vec<OsString> {
    let target_arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // Debian keeps <asm/types.h> in the multiarch directory, which clang leaves out for -target bpf.
    let multiarch = format!("/usr/include/{target_arch}-linux-gnu");
    ["-O2", "-g", "-Wall", "-Werror", "-I", multiarch.as_str(), "-I"]
        .iter()
        .map(OsString::from)
        .chain([bpf_dir.as_os_str().to_owned()])
        .collect()
}

/// Expands the X-macros of `verdict.h`: one marked line per verdict and reason.
fn verdicts(clang: &str, bpf_dir: &Path) -> Result<String, Box<dyn Error>> {
    let source = "#include \"verdict.h\"\n\
        #define V(name, text, description) @verdict|name|text|description@\n\
        #define R(name, verdict, text, description) @reason|name|verdict|text|description@\n\
        WEIR_VERDICTS(V) WEIR_REASONS(R)\n";
    let input = PathBuf::from(env::var("OUT_DIR")?).join("verdict_list.h");
    fs::write(&input, source)?;
    let output = Command::new(clang)
        .args(["-E", "-P", "-x", "c", "-I"])
        .arg(bpf_dir)
        .arg(&input)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut verdicts = Vec::new();
    let mut reasons = Vec::new();
    for entry in text.split('@') {
        let fields: Vec<&str> = entry.split('|').map(str::trim).collect();
        match fields.as_slice() {
            ["verdict", name, text, description] => {
                verdicts.push((camel(name), String::new(), literal(text), literal(description)));
            }
            ["reason", name, verdict, text, description] => {
                reasons.push((camel(name), camel(verdict), literal(text), literal(description)));
            }
            _ => {}
        }
    }
    if verdicts.is_empty() || reasons.is_empty() {
        return Err("bpf/verdict.h declares no verdicts or no reasons".into());
    }
    let mut rust = String::new();
    emit(&mut rust, "Verdict", "What the gate does with a packet.", &verdicts)?;
    emit(&mut rust, "Reason", "Why the gate did it; each reason has one verdict.", &reasons)?;
    writeln!(rust, "impl Reason {{\n    /// The verdict that this reason belongs to.")?;
    writeln!(rust, "    pub const fn verdict(self) -> Verdict {{\n        match self {{")?;
    for (name, verdict, ..) in &reasons {
        writeln!(rust, "            Self::{name} => Verdict::{verdict},")?;
    }
    writeln!(rust, "        }}\n    }}\n}}")?;
    Ok(rust)
}

type Entry = (String, String, String, String);

fn emit(rust: &mut String, name: &str, doc: &str, entries: &[Entry]) -> std::fmt::Result {
    writeln!(rust, "/// {doc}")?;
    writeln!(rust, "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]")?;
    writeln!(rust, "#[repr(u32)]\npub enum {name} {{")?;
    for (variant, _, _, description) in entries {
        writeln!(rust, "    #[doc = {description}]\n    {variant},")?;
    }
    writeln!(rust, "}}\nimpl {name} {{\n    /// Every one, in the kernel half's order.")?;
    writeln!(rust, "    pub const ALL: [Self; {}] = [", entries.len())?;
    for (variant, ..) in entries {
        writeln!(rust, "        Self::{variant},")?;
    }
    writeln!(rust, "    ];\n    /// As printed.\n    pub const fn name(self) -> &'static str {{")?;
    writeln!(rust, "        match self {{")?;
    for (variant, _, text, _) in entries {
        writeln!(rust, "            Self::{variant} => {text},")?;
    }
    writeln!(rust, "        }}\n    }}\n    /// For a person.")?;
    writeln!(rust, "    pub const fn description(self) -> &'static str {{\n        match self {{")?;
    for (variant, _, _, description) in entries {
        writeln!(rust, "            Self::{variant} => {description},")?;
    }
    writeln!(rust, "        }}\n    }}\n}}")
}

/// `UDP_NO_SOCKET` to `UdpNoSocket`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_owned() + &rest.to_lowercase()
        })
        .collect()
}

/// Adjacent C string literals to one Rust literal.
fn literal(c: &str) -> String {
    let joined: String = c.split('"').skip(1).step_by(2).collect();
    format!("{joined:?}")
}
