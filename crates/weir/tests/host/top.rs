//! `weir top`, in a terminal and into a file.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::*;
use rustix::process::Signal;
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const COLUMNS: u16 = 60;

/// A terminal of 60 columns, and what a program has written to it.
struct Terminal {
    /// Open as long as it is looked at: what is read after the last program has closed it is lost.
    end: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn new() -> Self {
        let (controller, end) = process::terminal();
        let size = Winsize { ws_row: 20, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&written);
        std::thread::spawn(move || {
            let (mut controller, mut some) = (File::from(controller), [0; 4096]);
            while let Ok(count) = controller.read(&mut some) {
                into.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        Self { end, written }
    }

    fn start(&self, network: &Network, arguments: &[&str]) -> Owned {
        self.start_as("xterm", network, arguments)
    }

    fn start_as(&self, name: &str, network: &Network, arguments: &[&str]) -> Owned {
        let stdio = || Stdio::from(self.end.try_clone().unwrap());
        let mut command = Command::new(WEIR);
        command.args(arguments).env("TERM", name).stdin(stdio()).stdout(stdio()).stderr(stdio());
        network.near.run(|| Owned::start(&mut command)).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }
}

/// Runs this while a socket that nobody reads is flooded, and the gate discards.
fn flooded(network: &Network, body: impl FnOnce()) {
    network.poll_by_napi();
    let _full = network.near_socket(&format!("{NEAR_IP}:5000"));
    let daemon = Daemon::start_sleepy(network, &["--attach", "tc"]);
    network.while_sent(&[network.flow(5000, Some(20_000.0))], None, |_| {
        wait_until("the gate discards", || network.count("udp-full") > 1000);
        body();
    });
    daemon.interrupt();
}

#[test]
fn a_terminal_shows_it_and_is_as_before_afterwards() {
    let network = Network::ipv4_only();
    flooded(&network, || {
        let terminal = Terminal::new();
        let before = tcgetattr(terminal.end.as_fd()).unwrap();
        let mut top = terminal.start(&network, &["top", "--interval", "300ms"]);
        let views = || {
            let text = terminal.text();
            text.matches("\x1b[H").count() >= 3 && text.contains("    from 198.18.0.2 ")
        };
        wait_until("three views are shown", views);
        top.signal(Signal::INT);
        assert!(top.wait().unwrap().success());
        wait_until("the other screen is left", || terminal.text().ends_with(LEAVE));
        let text = terminal.text();
        assert!(text.starts_with(ENTER), "{text}");
        for part in ["near: policy on; ring drops ?; late", "CPU", "udp 198.18.0.1:5000", "nice"] {
            assert!(text.contains(part), "no {part}: {text}");
        }
        let text = text.replace('\r', "");
        for line in text.replace(ENTER, "").replace("\x1b[H", "").replace("\x1b[J", "").lines() {
            let line = line.replace("\x1b[K", "").replace(LEAVE, "");
            assert!(line.chars().count() <= COLUMNS.into(), "{line:?}");
            assert!(!line.contains('\x1b'), "{line:?}");
        }
        let after = tcgetattr(terminal.end.as_fd()).unwrap();
        assert_eq!(before.local_modes, after.local_modes);
    });
}

#[test]
fn a_terminal_is_left_when_the_daemon_ends() {
    let (network, daemon) = protected_ipv4(&[]);
    let terminal = Terminal::new();
    let mut top = terminal.start(&network, &["top", "--interval", "200ms"]);
    wait_until("a view is shown", || terminal.text().contains("near: policy on"));
    daemon.interrupt();
    assert_eq!(top.wait().unwrap().code(), Some(1));
    wait_until("it says why", || terminal.text().contains("near is no longer protected"));
    let text = terminal.text();
    let (_, last) = text.split_once(LEAVE).unwrap();
    assert!(last.contains("`weir status` shows what is"), "{last}");
}

#[test]
fn a_file_gets_one_view_below_the_other() {
    let network = Network::ipv4_only();
    flooded(&network, || {
        let text = network.says(&["top", "--count", "2", "--interval", "300ms"]);
        assert_eq!(text.matches("CHANNEL").count(), 2, "{text}");
        assert!(text.contains("from 198.18.0.2") && !text.contains('\x1b'), "{text}");
    });
}

/// Whose line would go on in the next one, and push the first ones out of the terminal.
#[test]
fn a_name_of_wide_characters_fits_into_the_terminal() {
    let network = Network::ipv4_only();
    let script = "import socket,time\nopen('/proc/self/comm','w',encoding='utf8').write(5*chr(0x6f22))\n\
        s=socket.socket(2,2);s.bind(('198.18.0.1',5000));print('bound',flush=True);time.sleep(60)";
    let mut python = Command::new("python3");
    python.args(["-c", script]).stdout(Stdio::piped());
    let mut python = network.near.run(|| Owned::start(&mut python)).unwrap();
    let mut said = python.stdout.take().unwrap();
    said.read_exact(&mut [0; 5]).unwrap();
    let daemon = Daemon::start(&network, &[]);
    let terminal = Terminal::new();
    let narrow = Winsize { ws_row: 20, ws_col: 20, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.end, narrow).unwrap();
    let mut top = terminal.start(&network, &["top", "--interval", "300ms"]);
    let sender = network.far_socket("198.18.0.2:0");
    wait_until("its name is shown", || {
        sender.send_to(b"packet", "198.18.0.1:5000").unwrap();
        terminal.text().contains('\u{6f22}')
    });
    top.signal(Signal::INT);
    assert!(top.wait().unwrap().success());
    let text = terminal.text();
    let line = text.lines().find(|line| line.contains('\u{6f22}')).unwrap();
    let line = line.trim_end().replace("\x1b[K", "");
    let columns = line.chars().map(|each| if each == '\u{6f22}' { 2 } else { 1 }).sum::<usize>();
    assert!(columns <= 20, "{columns} columns: {line:?}");
    daemon.interrupt();
}

#[test]
fn a_terminal_that_knows_no_cursor_is_told_nothing_of_it() {
    let (network, daemon) = protected(&[]);
    let terminal = Terminal::new();
    let mut top = terminal.start_as("dumb", &network, &["top", "--interval", "300ms", "--count=2"]);
    assert!(top.wait().unwrap().success());
    let views = || terminal.text().matches("near: policy on").count() == 2;
    wait_until("two views are shown", views);
    assert!(!terminal.text().contains('\x1b'), "{}", terminal.text());
    network.assert_left_untouched_by(daemon);
}
