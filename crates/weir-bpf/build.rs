//! Compiles the BPF objects, generates their skeletons, and writes the verdict lists and constants as Rust.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const CLANG_CANDIDATES: [&str; 4] = ["clang-19", "clang", "clang-16", "clang-14"];

fn main() -> Result<(), Box<dyn Error>> {
    let bpf_dir = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../bpf").canonicalize()?;
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", bpf_dir.display());
    println!("cargo:rerun-if-env-changed=CLANG");

    let clang = find_clang()?;
    let mut skeletons = String::new();
    for object in objects(&bpf_dir)? {
        let compiled = out_dir.join(format!("{object}.bpf.o"));
        let mut builder = SkeletonBuilder::new();
        builder
            .source(bpf_dir.join(format!("{object}.bpf.c")))
            .obj(&compiled)
            .reference_obj(true)
            .clang(&clang)
            .clang_args(clang_args(&bpf_dir));
        let mut compile = || -> Result<bool, Box<dyn Error>> {
            builder.build()?;
            Ok(!loads_through_a_constant(&fs::read(&compiled)?))
        };
        if !(compile()? || compile()? || compile()?) {
            return Err(format!("{clang} makes {object}.bpf.o wrong; name another in CLANG").into());
        }
        let skeleton = out_dir.join(format!("{object}.skel.rs"));
        builder.generate(&skeleton)?;
        writeln!(skeletons, "pub mod {object} {{ include!({skeleton:?}); }}")?;
    }
    fs::write(out_dir.join("skeletons.rs"), skeletons)?;
    fs::write(out_dir.join("verdict.rs"), lists(&clang, &bpf_dir)?)?;
    fs::write(out_dir.join("abi.rs"), constants(&bpf_dir)?)?;
    Ok(())
}

/// The sources of BPF objects, without their suffix.
fn objects(bpf_dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(bpf_dir)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".bpf.c")).map(String::from));
    }
    names.sort();
    Ok(names)
}

/// Whether some instruction reads memory at a constant, which the verifier refuses. In few builds clang 19
/// loses the pointer to whose field a relocated offset (CO-RE) belongs; of the same source, the next is right.
fn loads_through_a_constant(object: &[u8]) -> bool {
    const EXECUTABLE: u64 = 4; // SHF_EXECINSTR
    let number = |at: usize, len: usize| {
        let bytes = object.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
    };
    // ELF64: e_shoff, e_shentsize, e_shnum; sh_flags, sh_offset, sh_size.
    let (sections, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let headers = (0..count).map(|section| (sections + section * size) as usize);
    let mut code = headers.filter(|at| number(at + 0x08, 8) & EXECUTABLE != 0).map(|at| {
        let (from, len) = (number(at + 0x18, 8) as usize, number(at + 0x20, 8) as usize);
        object.get(from..from + len).unwrap_or_default()
    });
    code.any(|code| {
        let instructions = || code.chunks_exact(8);
        instructions().zip(instructions().skip(1)).any(|(first, next)| {
            let sets = matches!(first[0], 0xb4 | 0xb7); // BPF_MOV | BPF_K
            let loads = matches!(next[0], 0x61 | 0x69 | 0x71 | 0x79); // BPF_LDX | BPF_MEM
            sets && loads && first[1] & 0xf == next[1] >> 4
        })
    })
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
    // The tests' own copy of the gate, whose rules can be broken one by one.
    let defects = env::var_os("CARGO_FEATURE_SEEDED_DEFECTS").map(|_| "-DWEIR_DEFECTS".into());
    ["-O2", "-g", "-Wall", "-Werror", "-I", multiarch.as_str(), "-I"]
        .iter()
        .map(OsString::from)
        .chain([bpf_dir.as_os_str().to_owned()])
        .chain(defects)
        .collect()
}

/// What the headers define as a number: of `#define WEIR_NAME VALUE` a constant `NAME`. C's expressions of
/// numbers are Rust's.
fn constants(bpf_dir: &Path) -> Result<String, Box<dyn Error>> {
    let mut rust = String::new();
    for dir in [bpf_dir.to_owned(), bpf_dir.join("abi")] {
        for header in fs::read_dir(dir)? {
            let path = header?.path();
            if path.extension().is_none_or(|extension| extension != "h") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let defined = text.lines().filter_map(|line| line.strip_prefix("#define WEIR_"));
            // A macro has parameters, and a guard no value.
            for (name, value) in defined.filter_map(|line| line.split_once(' ')) {
                if !name.contains('(') {
                    let value = value.replace("WEIR_", "").replace("ULL", "");
                    writeln!(
                        rust,
                        "/// `WEIR_{name}` of `bpf/`.\npub const {name}: usize = {value};"
                    )?;
                }
            }
        }
    }
    Ok(rust)
}

/// Expands the X-macros of `verdict.h`, `trace.h`, `wall.h` and `defect.h`: one marked line per entry.
fn lists(clang: &str, bpf_dir: &Path) -> Result<String, Box<dyn Error>> {
    let source = "#include \"defect.h\"\n#include \"trace.h\"\n#include \"verdict.h\"\n\
        #include \"wall.h\"\n\
        #define V(name, text, description) @verdict|name||text|description|@\n\
        #define B(name, text, description) @bound|name||text|description|@\n\
        #define K(name, bound, addressed, text, description) \
            @kind|name|bound addressed|text|description|@\n\
        #define R(name, verdict, kind, text, description) \
            @reason|name|verdict kind|text|description|@\n\
        #define S(name, verdict, kind, text, description) @share|name||text|description|@\n\
        #define C(name, text, description) @cause|name||text|description|@\n\
        #define T(name, text, description) @step|name||text|description|@\n\
        #define W(name, text, description) @outcome|name||text|description|@\n\
        #define D(name, rule) @defect|name||#name|rule|@\n\
        WEIR_VERDICTS(V) WEIR_BOUNDS(B) WEIR_KINDS(K) WEIR_REASONS(R) \
        WEIR_SHARE_REASONS(S) WEIR_CAUSES(C) WEIR_STEPS(T) WEIR_WALL_OUTCOMES(W) \
        WEIR_DEFECT_LIST(D)\n";
    let input = PathBuf::from(env::var("OUT_DIR")?).join("lists.h");
    fs::write(&input, source)?;
    let output = Command::new(clang)
        .args(["-E", "-P", "-x", "c"])
        .args(clang_args(bpf_dir))
        .arg(&input)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let entries: Vec<Entry> = text.split('@').filter_map(Entry::parse).collect();
    let of = |list| entries.iter().filter(move |entry| entry.list == list).collect::<Vec<_>>();
    let (kinds, reasons) = (of("kind"), of("reason"));
    if reasons.is_empty() {
        return Err("bpf/verdict.h declares no reasons".into());
    }
    let mut rust = String::new();
    emit(&mut rust, "Verdict", "What the gate does with a packet.", &of("verdict"))?;
    emit(&mut rust, "Bound", "What bounds packets besides their share.", &of("bound"))?;
    emit(&mut rust, "Kind", "What a channel is.", &kinds)?;
    emit(&mut rust, "Reason", "Why the gate did it.", &reasons)?;
    emit(&mut rust, "Cause", "What wakes a gate that sleeps.", &of("cause"))?;
    emit(&mut rust, "Step", "Where a packet that is traced has come to.", &of("step"))?;
    emit(&mut rust, "WallOutcome", "What becomes of a packet at a wall.", &of("outcome"))?;
    let addressed = kinds.iter().filter(|kind| kind.properties.get(1).is_some_and(|it| it == "1"));
    let addressed: Vec<&Entry> = addressed.copied().collect();
    let doc = "Whether its channels have an address of their own, and so are counted one by one.";
    emit_predicate(&mut rust, "Kind", ("is_addressed", doc), &addressed)?;
    let doc = "Whether it is that the channel was over its share of a saturated CPU.";
    emit_predicate(&mut rust, "Reason", ("is_share", doc), &of("share"))?;
    emit_property(&mut rust, "Kind", ("bound", "Bound"), &kinds, 0)?;
    emit_property(&mut rust, "Reason", ("verdict", "Verdict"), &reasons, 0)?;
    emit_property(&mut rust, "Reason", ("kind", "Kind"), &reasons, 1)?;
    if env::var_os("CARGO_FEATURE_SEEDED_DEFECTS").is_some() {
        emit(&mut rust, "Defect", "A rule of the gate that is broken on purpose.", &of("defect"))?;
    }
    Ok(rust)
}

/// One line of a list.
struct Entry {
    list: String,
    variant: String,
    /// Entries of other lists that this one belongs to.
    properties: Vec<String>,
    text: String,
    description: String,
}

impl Entry {
    fn parse(marked: &str) -> Option<Self> {
        let fields: Vec<&str> = marked.split('|').map(str::trim).collect();
        let [list, name, properties, text, description, ""] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            list: (*list).into(),
            variant: camel(name),
            properties: properties.split_whitespace().map(camel).collect(),
            text: literal(text),
            description: literal(description),
        })
    }
}

fn emit(rust: &mut String, name: &str, doc: &str, entries: &[&Entry]) -> std::fmt::Result {
    writeln!(rust, "/// {doc}")?;
    writeln!(rust, "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]")?;
    writeln!(rust, "#[repr(u32)]\npub enum {name} {{")?;
    for Entry { variant, description, .. } in entries {
        writeln!(rust, "    #[doc = {description}]\n    {variant},")?;
    }
    writeln!(rust, "}}\nimpl {name} {{\n    /// Every one, in the kernel half's order.")?;
    writeln!(rust, "    pub const ALL: [Self; {}] = [", entries.len())?;
    for Entry { variant, .. } in entries {
        writeln!(rust, "        Self::{variant},")?;
    }
    writeln!(rust, "    ];\n    /// The one that the kernel half means by a number.")?;
    writeln!(rust, "    pub fn of(number: u32) -> Option<Self> {{")?;
    writeln!(rust, "        Self::ALL.get(number as usize).copied()\n    }}")?;
    writeln!(rust, "    /// As printed.\n    pub const fn name(self) -> &'static str {{")?;
    writeln!(rust, "        match self {{")?;
    for Entry { variant, text, .. } in entries {
        writeln!(rust, "            Self::{variant} => {text},")?;
    }
    writeln!(rust, "        }}\n    }}\n    /// For a person.")?;
    writeln!(rust, "    pub const fn description(self) -> &'static str {{\n        match self {{")?;
    for Entry { variant, description, .. } in entries {
        writeln!(rust, "            Self::{variant} => {description},")?;
    }
    writeln!(rust, "        }}\n    }}\n}}")
}

/// Which entries of a list something is true of.
fn emit_predicate(
    rust: &mut String,
    name: &str,
    (function, doc): (&str, &str),
    entries: &[&Entry],
) -> std::fmt::Result {
    let variants: Vec<String> =
        entries.iter().map(|entry| format!("Self::{}", entry.variant)).collect();
    writeln!(rust, "impl {name} {{\n    /// {doc}")?;
    writeln!(rust, "    pub const fn {function}(self) -> bool {{")?;
    writeln!(rust, "        matches!(self, {})\n    }}\n}}", variants.join(" | "))
}

/// What each entry of a list belongs to in another one.
fn emit_property(
    rust: &mut String,
    name: &str,
    (function, of): (&str, &str),
    entries: &[&Entry],
    index: usize,
) -> Result<(), Box<dyn Error>> {
    writeln!(rust, "impl {name} {{\n    /// The {function} that it belongs to.")?;
    writeln!(rust, "    pub const fn {function}(self) -> {of} {{\n        match self {{")?;
    for Entry { variant, properties, .. } in entries {
        let property = properties.get(index).ok_or(format!("{name} lacks its {function}"))?;
        writeln!(rust, "            Self::{variant} => {of}::{property},")?;
    }
    writeln!(rust, "        }}\n    }}\n}}")?;
    Ok(())
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
