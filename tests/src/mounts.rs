//! File systems of a test's own: small, full, read-only.
//!
//! The test runs a second time in a namespace of its own (`unshare`, util-linux), where it may mount and nobody else
//! sees it. A machine that does not let it fails the test: what is not tried is not proved.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Tells the test that it is inside; holds its name.
const INSIDE: &str = "ATOMIC_TEST_WITH_MOUNTS";

/// A piece of a filler file.
const PIECE_BYTES: usize = 4096;

/// Runs `body` where file systems can be mounted. `test` is the name of the calling test.
///
/// # Panics
/// When the machine allows no user namespaces, and when `body` does; its text is passed on.
#[track_caller]
pub fn with_mounts(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == *test) {
        return body();
    }
    let this = std::env::current_exe().expect("the path of the test");
    let run = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--"])
        .arg(this)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, test)
        .output()
        .unwrap_or_else(|error| panic!("this test needs `unshare` of util-linux: {error}"));
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // A name that no test has runs none, which is no success.
    assert!(
        run.status.success() && said.contains("1 passed"),
        "{test} in a namespace of its own (which the machine has to allow):\n{said}\n{complained}"
    );
}

/// Mounts an empty file system at `dir`; `options` as of `mount -t tmpfs`.
///
/// # Panics
/// When it cannot be mounted.
#[track_caller]
pub fn mount(dir: &Path, options: &str) {
    let options = format!("{options},mode=700");
    run(
        "mount",
        &["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), options.as_ref(), "none".as_ref(), dir.as_ref()],
    );
}

/// Changes the options of what is mounted at `dir`.
///
/// # Panics
/// When that is not possible, for example to read-only while a file is open for writing.
#[track_caller]
pub fn remount(dir: &Path, options: &str) {
    let options = format!("remount,{options}");
    run("mount", &["-o".as_ref(), options.as_ref(), dir.as_ref()]);
}

#[track_caller]
fn run(program: &str, arguments: &[&OsStr]) {
    let done =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Writes `name` in `dir` until the file system takes no more.
///
/// # Panics
/// When it ends for another reason than want of room.
pub fn fill(dir: &Path, name: &str) {
    use std::io::Write as _;

    let path = dir.join(name);
    let mut file = std::fs::File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let error = loop {
        if let Err(error) = file.write_all(&[b'x'; PIECE_BYTES]) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
}
