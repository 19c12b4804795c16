//! `weir config init`: a first configuration file, from what `weir doctor` reads.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::args::InitArgs;
use super::file::ConfigFile;
use super::layer::DEFAULT_FILE;
use crate::doctor::{self, Diagnosis, InterfaceReading, Reading};
use crate::error::{Error, Result};
use crate::named_file;
use crate::out;
use crate::preset;

/// As far as the umask lets it be.
const READABLE: u32 = 0o666;
/// A file with more of them may be larger than is read.
const SECTIONS_MAX: usize = 64;

/// `weir config init`. Needs no more privilege than the file's place.
pub fn init(args: &InitArgs) -> Result<()> {
    let to_stdout = args.file == Path::new("-");
    if !to_stdout && args.file.exists() {
        return Err(Error::refused(
            format!("{} exists", args.file.display()),
            "weir does not overwrite it; `weir config init -` prints a new one",
        ));
    }
    let text = file(&doctor::read(&[], Duration::from_secs(1))?);
    // What is written is what is read: nobody is to start with a file that is refused.
    ConfigFile::parse(&args.file, text.as_bytes())?;
    if to_stdout {
        return out::raw(text.as_bytes());
    }
    // weir's own directory alone: elsewhere a missing one is a mistake.
    let own = Path::new(DEFAULT_FILE).parent().filter(|own| args.file.parent() == Some(own));
    own.map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| named_file::create(&args.file, READABLE, text.as_bytes()))
        .map_err(|source| Error::file("create", &args.file, source))?;
    let path = args.file.display();
    let next = match args.file == Path::new(DEFAULT_FILE) {
        true => "`sudo systemctl enable --now weir` or `sudo weir run`".into(),
        false => format!("`sudo weir run --config {path}`"),
    };
    out::print(|out| writeln!(out, "{path}: written; look at it, then {next}"))
}

/// The interfaces that the file names: those by which others than this host's own containers send, whose interfaces
/// come and go; all, if there are no others. The best comes first.
fn sections<'a>(
    reading: &'a Reading,
    best: Option<&'a InterfaceReading>,
) -> impl Iterator<Item = &'a InterfaceReading> {
    let lasts = |each: &InterfaceReading| each.outside && each.master.is_none();
    let others =
        || reading.interfaces.iter().filter(move |each| each.takes_gate && best != Some(each));
    let any_lasts = best.into_iter().chain(others()).any(lasts);
    best.into_iter()
        .chain(others().filter(move |each| !any_lasts || lasts(each)))
        .take(SECTIONS_MAX)
}

/// The file's text.
fn file(reading: &Reading) -> String {
    let diagnosis = Diagnosis::of(reading);
    let mut text = String::from(
        "# weir's settings on this host; `weir config check` says whether they are valid, and `weir config show` what\n\
         # holds. After a change: `sudo systemctl reload weir`; the journal says what takes a restart (in a flood a\n\
         # start may take minutes, without protection).\n\
         #\n\
         # `weir doctor` said:\n",
    );
    // Writing to a string does not fail.
    for line in doctor::lines(reading, &diagnosis) {
        let _ = writeln!(text, "#   {line}");
    }
    text.push_str(
        "\n# For every interface, unless its section says otherwise. These are the defaults.\n\
         #user_share = \"50%\"       # what processes get of a CPU that they want, at least\n\
         #prefer = \"separation\"    # or \"throughput\"\n\
         #selective = false        # true: shed heavy senders before light ones\n\
         #policy = \"on\"            # \"shadow\": only say what would be discarded\n",
    );
    text.push_str(
        "\n# Of the host.\n\
         #metrics = \"127.0.0.1:9463\"   # for Prometheus: http://127.0.0.1:9463/metrics\n",
    );
    let best = reading.best();
    for interface in sections(reading, best) {
        let protect = best == Some(interface);
        let section = json!({ "interface": { &*interface.name: { "protect": protect } } });
        let _ = write!(text, "\n{}", toml::to_string(&section).unwrap_or_default());
        if !interface.steered.is_empty() {
            text.push_str("#rps_off = true           # steering takes packets to softirqs, which nothing weighs\n");
        }
        for diversion in interface.diversions.iter().flatten().filter(|each| each.passes_all) {
            let _ = writeln!(text, "# {}: {}", diversion.description, diversion.cost);
        }
        text.push_str(match interface.xdp.is_some() {
            true => "attach = \"tc\"             # beside the XDP program that it has\n",
            false => "#attach = \"auto\"          # or \"native\", \"generic\", \"tc\"\n",
        });
        text.push_str(
            "#cpus = \"0\"               # where the threads that poll it may run, such as 0-3,8\n",
        );
    }
    let presets: Vec<&str> = preset::ALL.iter().map(|preset| preset.name).collect();
    let _ = writeln!(text, "\n[shares]\n# Services to protect: {}.", presets.join(", "));
    text.push_str(
        "#presets = [\"etcd\", \"voip\"]\n\
         # Local ports to serve first, besides SSH (22), BGP (179), BFD and DHCP. sshd on another port belongs here.\n\
         # Of TCP, a port counts at either end of a connection.\n\
         #protected = [10250]\n\
         #[[shares.weight]]\n\
         #port = 53\n\
         #weight = 4\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::file::SIZE_MAX;
    use super::*;

    #[test]
    fn what_is_written_is_valid_and_switches_on_what_hands_most_to_sockets() {
        let text = r#"{"seconds": 1.0, "interfaces": [
            {"name": "eth1", "takes_gate": true, "receive_pps": 9.5, "outside": true},
            {"name": "q\"\u007f", "takes_gate": true, "receive_pps": 1.5, "outside": true}, {"name": "wg0"},
            {"name": "veth1", "takes_gate": true, "receive_pps": 9.5, "master": "br0", "outside": true},
            {"name": "docker0", "takes_gate": true, "receive_pps": 9.5},
            {"name": "eth0.7", "takes_gate": true, "receive_pps": 9.0, "steered": ["rx-0"], "lower": ["eth1"],
             "outside": true}]}"#;
        let text = file(&serde_json::from_str(text).unwrap());
        let parsed = ConfigFile::parse(Path::new("w.toml"), text.as_bytes()).unwrap();
        let protect: Vec<_> = parsed
            .interfaces
            .iter()
            .map(|(name, layer)| (name.as_str(), layer.protect.as_ref().map(|each| each.value)))
            .collect();
        let off = Some(false);
        assert_eq!(protect, [("eth0.7", Some(true)), ("eth1", off), ("q\"\u{7f}", off)]);
        // Whoever has set RPS may need it: a NIC with one queue.
        assert!(
            text.contains("\n#rps_off = true ") && parsed.interfaces["eth0.7"].rps_off.is_none()
        );
        // The package has no other list of them.
        assert!(preset::ALL.iter().all(|preset| text.contains(preset.name)), "{text}");
        // Each line that is commented out is a setting too.
        let on: String = text
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line)
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        ConfigFile::parse(Path::new("w.toml"), on.as_bytes())
            .unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_thousand_interfaces_make_no_file_that_is_too_large_to_read() {
        let veth = |number| InterfaceReading {
            name: format!("veth{number:011}"),
            takes_gate: true,
            master: Some("br0".into()),
            ..InterfaceReading::default()
        };
        let mut interfaces: Vec<_> = (0..1000).map(veth).collect();
        let takes_gate = true;
        interfaces.push(InterfaceReading { name: "br0".into(), takes_gate, ..Default::default() });
        let text = file(&Reading { interfaces, ..Reading::default() });
        assert!(text.len() < SIZE_MAX as usize / 2, "{}", text.len());
        assert!(text.contains("[interface.br0]\nprotect = true\n"), "{text}");
    }
}
