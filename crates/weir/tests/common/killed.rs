//! What a test that is killed has started ends with it; then its network namespaces go, as they have no names.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Once;

use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// Waits for the end of process `$1`, then ends whoever has its mark open, and removes its files.
const UNDERTAKER: &str = r#"
    (
        tail --pid="$1" --sleep-interval=0.2 --follow /dev/null
        marked() {
            ls -l /proc/[0-9]*/fd 2>/dev/null |
                awk -v "mark=/memfd:weir-test-$1-" '/^\/proc/ { split($0, at, "/") } index($0, mark) { print at[3] }'
        }
        end() { for left in $(marked "$1"); do kill -s "$2" "$left"; done; }
        end "$1" TERM
        end "$1" CONT
        for second in 1 2 3 4 5; do [ -z "$(marked "$1")" ] || sleep 1; done
        end "$1" KILL
        rm -rf "${TMPDIR:-/tmp}/weir-test-$1-"*
    ) &
"#;

/// Marks this process and whatever it starts from here on.
pub fn mark() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut undertaker = Command::new("sh");
        undertaker.args(["-c", UNDERTAKER, "sh", &std::process::id().to_string()]);
        undertaker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is not for it. It has no mark.
        let status = undertaker.process_group(0).status().unwrap();
        assert!(status.success());
        // Children inherit it.
        std::mem::forget(memfd_create(prefix(), MemfdFlags::empty()).unwrap());
    });
}

/// What the names of this process's files in the temporary directory begin with.
pub fn prefix() -> String {
    format!("weir-test-{}-", std::process::id())
}

pub fn temp_dir() -> TempDir {
    TempDir::with_prefix(prefix()).unwrap()
}
