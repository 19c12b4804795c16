//! What decides, and what a change means while weir runs.

use std::fs;

use clap::Parser;
use weir_bpf::gate::Policy;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Prefer, Share};

use super::super::reload::Reloader;
use super::super::wanted::ThreadWeight;
use super::*;
use crate::cli::{Cli, Command};
use crate::shares::ShareSettings;

fn flags(flags: &str) -> SettingArgs {
    let command = format!("weir run eth0 {flags}");
    match Cli::try_parse_from(command.split_whitespace()).unwrap().command {
        Command::Run(args) => args.settings,
        other => panic!("{other:?}"),
    }
}

fn config(options: &str, file: &str) -> Config {
    let file = ConfigFile::parse(Path::new("w.toml"), file.as_bytes()).unwrap();
    Config { flags: flags(options).layer(&[]), named: Some("w.toml".into()), file: Some(file) }
}

fn origins(config: &Config, interface: &str) -> Vec<String> {
    config.of(interface).rows().map(|row| config.origin_text(row.origin)).to_vec()
}

#[test]
fn the_defaults_are_the_governors() {
    let config = config("", "");
    let effective = config.of("eth0");
    assert_eq!(effective.governor(), weir_policy::Settings::default());
    assert!(origins(&config, "eth0").iter().all(|origin| origin == "default"));
    let settings = config.settings("eth0");
    assert_eq!(settings.threads.weight, ThreadWeight::Governed);
    assert_eq!((settings.attach, settings.threads.cpus), (crate::choice::Attach::Auto, None));
}

#[test]
fn flags_come_before_the_interface_and_that_before_the_rest() {
    let file = "user_share = \"60%\"\nprefer = \"throughput\"\nperiod = \"20ms\"\nnice = 3\n\
        [interface.eth0]\nuser_share = \"70%\"\nprefer = \"separation\"\n";
    let config = config("--user-share 80% --timeout 2ms", file);
    let eth0 = config.of("eth0").governor();
    let expected = weir_policy::Settings {
        user_share: Share::percent(80.0).unwrap(),
        prefer: Prefer::Separation,
        timeout: Nanos::from_millis(2),
        period: Nanos::from_millis(20),
        awake: false,
    };
    assert_eq!(eth0, expected);
    assert_eq!(
        origins(&config, "eth0"),
        [
            "command line",
            "w.toml:7, for this interface",
            "command line",
            "w.toml:3",
            "default",
            "default",
            "w.toml:4",
            "default",
            "default",
            "default",
            "default",
            "default",
            "default",
            "default"
        ]
    );
    assert_eq!(config.of("eth1").governor().prefer, Prefer::Throughput);
    assert_eq!(config.of_any(), config.of("eth1"));
    assert_eq!(config.sections().collect::<Vec<_>>(), ["eth0"]);
}

#[test]
fn a_weight_is_the_policys_the_users_or_the_governors() {
    let weight = |options| config(options, "").settings("eth0").threads.weight;
    assert_eq!(weight(""), ThreadWeight::Governed);
    assert_eq!(weight("--nice -5"), ThreadWeight::Fixed(Nice(-5)));
    assert_eq!(weight("--nice -5 --policy off"), ThreadWeight::Untouched);
    assert_eq!(weight("--policy off"), ThreadWeight::Untouched);
}

#[test]
fn a_service_gets_everything_from_the_file() {
    let file = "policy = \"off\"\n[interface.eth0]\nprotect = true\npolicy = \"on\"\nrps_off = true\n\
        [interface.eth1]\nprotect = true\n[interface.eth2]\nprotect = false\n[interface.eth3]\n";
    let service = config("", file);
    assert_eq!(service.protected(), ["eth0", "eth1"]);
    let settings = |config: &Config, name| {
        let settings = config.settings(name);
        (settings.policy, settings.rps_off)
    };
    assert_eq!(settings(&service, "eth0"), (Policy::On, true));
    assert_eq!(settings(&service, "eth1"), (Policy::Off, false));
    assert_eq!(settings(&config("--policy on --rps-off", file), "eth1"), (Policy::On, true));
    let wrong =
        ConfigFile::parse(Path::new("w.toml"), b"protect = true\n").unwrap_err().to_string();
    assert!(wrong.contains("protect belongs in an interface's section"), "{wrong}");
}

#[test]
fn what_changes_while_weir_runs_is_told_from_what_does_not() {
    let started = config("--period 5ms", "user_share = \"60%\"\nattach = \"tc\"\n");
    let (mut reloader, mut eth0) = (Reloader::new(started.clone()), started.of("eth0"));
    let file = "user_share = \"70%\"\nperiod = \"7ms\"\nselective = true\nattach = \"native\"\ncpus = \"0\"\nnice = 1\n";
    for first in [true, false] {
        reloader.config = config("--period 5ms", file);
        let news = reloader.change(&mut eth0, "eth0");
        let settings = reloader.settings(&eth0);
        assert_eq!(settings.governor.user_share, Share::percent(70.0).unwrap());
        assert_eq!(settings.governor.period, Nanos::from_millis(5));
        assert!(settings.selective && settings.attach == Attach::Tc);
        let restart = "takes effect when weir is restarted";
        let expected = [
            "user_share 60% -> 70% (w.toml:1)".to_owned(),
            "selective false -> true (w.toml:3)".to_owned(),
            format!("nice stays governed: 1 (w.toml:6) {restart}"),
            format!("attach stays tc: native (w.toml:4) {restart}"),
            format!("cpus stays left alone: 0 (w.toml:5) {restart}"),
        ];
        // The second time, what could change has.
        assert_eq!(news, expected[if first { 0 } else { 2 }..]);
    }
    reloader.config = started;
    let news = reloader.change(&mut eth0, "eth0");
    let back = ["user_share 70% -> 60% (w.toml:1)", "selective true -> false (default)"];
    assert_eq!(news, back);
}

#[test]
fn what_changes_of_shares_is_told() {
    let started = config("", "");
    assert_eq!(started.shares().settings(), ShareSettings::default());
    let mut reloader = Reloader::new(started);
    let file = "[shares]\nenforce = false\nprotected = [5000]\n\
        [[shares.weight]]\nport = 53\nweight = 4\n[[shares.weight]]\nkind = \"icmp\"\nweight = 0.5\n";
    reloader.config = config("", file);
    let (settings, news) = reloader.change_shares();
    assert!(!settings.enforce && settings.protected.contains(&5000) && settings.weights.len() == 2);
    let expected = [
        "shares.enforce true -> false (w.toml:2)",
        "shares.protected usual -> [5000] (w.toml:3)",
        "shares.weight usual -> 4 of port 53, 0.5 of kind icmp (w.toml:4)",
    ];
    assert_eq!(news, expected);
    assert_eq!(reloader.change_shares().1, [] as [&str; 0]);
    reloader.config = config("", "[shares]\ncontrol = \"10%\"\n");
    let (settings, news) = reloader.change_shares();
    assert!(settings.enforce && settings.weights.is_empty());
    let expected = [
        "shares.enforce false -> true (default)",
        "shares.control 5% -> 10% (w.toml:2)",
        "shares.protected [5000] -> usual (default)",
        "shares.weight 4 of port 53, 0.5 of kind icmp -> usual (default)",
    ];
    assert_eq!(news, expected);
}

#[test]
fn what_is_to_be_protected_from_the_next_start_on_is_told() {
    let read = |interfaces: &[&str], file: &str| {
        let named: Vec<String> = interfaces.iter().map(|&name| name.into()).collect();
        Config { flags: flags("").layer(&named), ..config("", file) }
    };
    let news = |named: &[&str]| {
        let started = read(named, "[interface.eth0]\nprotect = true\n");
        let mut reloader = Reloader::new(started.clone());
        let file = "[interface.eth0]\nprotect = false\n[interface.eth1]\nprotect = true\n";
        reloader.config = read(named, file);
        [reloader.change_shares().1, reloader.change(&mut started.of("eth0"), "eth0")].concat()
    };
    let expected = [
        "eth1: protect takes effect when weir is restarted",
        "protect stays true: false (w.toml:2, for this interface) takes effect when weir is restarted",
    ];
    assert_eq!(news(&[]), expected);
    assert_eq!(news(&["eth0"]), [] as [&str; 0]);
}

#[test]
fn reading_again_takes_a_whole_file_or_nothing() {
    let path = std::env::temp_dir().join(format!("weir-config-{}.toml", std::process::id()));
    fs::write(&path, "user_share = \"60%\"\n").unwrap();
    let first = Config::load(&flags(&format!("--config {}", path.display())), &[]).unwrap();
    let share = |reloader: &Reloader| reloader.config.of("eth0").governor().user_share;
    let percent = |percent| Share::percent(percent).unwrap();
    let mut reloader = Reloader::new(first);
    fs::write(&path, "user_share = \"70%\"\nperiod = \"1h\"\n").unwrap();
    let read = |reloader: &mut Reloader| reloader.read(&["eth0".into()]);
    assert!(matches!(read(&mut reloader), Err(Error::Config(ConfigError::Wrong(_)))));
    assert_eq!(share(&reloader), percent(60.0));
    fs::write(&path, "user_share = \"70%\"\n").unwrap();
    read(&mut reloader).unwrap();
    assert_eq!(share(&reloader), percent(70.0));
    // What would keep it from starting.
    fs::write(&path, "user_share = \"80%\"\nforward = \"xdp\"\nattach = \"tc\"\n").unwrap();
    assert!(read(&mut reloader).unwrap_err().to_string().contains("leave `attach` out"));
    fs::write(&path, "user_share = \"80%\"\ncpus = \"1000\"\n").unwrap();
    assert!(read(&mut reloader).unwrap_err().to_string().contains("CPU 1000 is not online"));
    assert_eq!(share(&reloader), percent(70.0));
    fs::remove_file(&path).unwrap();
    let gone = read(&mut reloader);
    assert!(matches!(gone, Err(Error::Config(ConfigError::Gone(gone))) if gone == path));
    assert_eq!(share(&reloader), percent(70.0));
    let null = Config::load(&flags("--config /dev/null"), &[]).unwrap();
    assert!(matches!(null.again(), Err(ConfigError::NotAgain(_))));
}

#[test]
fn the_settings_in_the_docs_are_those_that_there_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = fs::read_to_string(page).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| setting | option |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[5] == "changes")
    });
    let settings = config("", "").of_any().rows().map(|row| (row.key.to_owned(), row.live));
    assert_eq!(rows.collect::<Vec<_>>(), settings);
}
