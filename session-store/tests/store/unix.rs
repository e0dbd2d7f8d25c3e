//! What only Unix can show: modes, pipes and devices, vanishing files, full disks.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use atomic_session_store::{Error, Store, list};

use crate::{HEADER, header, ids, message, user, write};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_and_directories_are_for_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = dir.path().join("a/b");
    let mut store = Store::create(header("s"), Some(&sessions)).unwrap();
    store.append(&user("a", None)).unwrap();
    assert_eq!((mode(&sessions), mode(&dir.path().join("a"))), (0o700, 0o700));
    assert_eq!(mode(store.path().unwrap()), 0o600);
}

#[test]
fn a_migration_keeps_mode_and_link_and_holds_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    write(
        &real,
        &[r#"{"type":"session","id":"s"}"#, r#"{"type":"message","message":{"role":"user","content":"x"}}"#],
    );
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.path().join("link.jsonl");
    symlink(&real, &link).unwrap();

    let before = fs::read(&real).unwrap();
    assert_eq!(Store::open_read_only(&link).unwrap().0.entries().len(), 1);
    assert_eq!(fs::read(&real).unwrap(), before, "reading only does not rewrite");

    let (mut store, problems) = Store::open(&link).unwrap();
    assert_eq!((problems, mode(&real)), (vec![], 0o640));
    let kept = dir.path().join("real.v1.bak");
    assert_eq!(store.backup(), Some(&*kept));
    assert_eq!((fs::read(&kept).unwrap(), mode(&kept)), (before, 0o640));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(matches!(Store::open(&real), Err(Error::Locked { .. })));
    let leaf = store.leaf().unwrap().clone();
    store.append(&user("b", Some(leaf.as_str()))).unwrap();
    drop(store);
    let text = fs::read_to_string(&real).unwrap();
    assert!(text.starts_with(r#"{"type":"session","id":"s","version":3}"#));
    let (store, _) = Store::open(&real).unwrap();
    assert_eq!(store.branch(store.leaf()).len(), 2);
    assert_eq!(fs::read_to_string(&real).unwrap(), text, "version 3 is not rewritten");
    assert_eq!(store.backup(), None);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file stays");
}

#[test]
fn pipes_and_devices_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let full = dir.path().join("full.jsonl");
    let device = ["/dev/full", "/dev/null"].into_iter().find(|device| Path::new(device).exists()).unwrap();
    symlink(device, &full).unwrap();
    for path in [&pipe, &full] {
        assert!(matches!(Store::open(path), Err(Error::NotAFile { .. })), "{path:?}");
        assert!(matches!(Store::open_read_only(path), Err(Error::NotAFile { .. })), "{path:?}");
        assert!(
            matches!(Store::create_at(header("s"), path.clone()), Err(Error::NotAFile { .. })),
            "{path:?}"
        );
    }
    let loops = dir.path().join("loop.jsonl");
    symlink(&loops, &loops).unwrap();
    assert!(matches!(Store::open(&loops), Err(Error::Open { .. })));
    assert!(list(dir.path(), None).unwrap().is_empty());
}

#[test]
fn a_file_that_vanished_is_noticed_and_named() {
    for vanish in [
        (|path: &Path| fs::remove_file(path).unwrap()) as fn(&Path),
        |path| fs::rename(path, path.with_extension("moved")).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            write(path, &[HEADER]);
        },
        |path| fs::remove_dir_all(path.parent().unwrap()).unwrap(),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(header("s"), Some(&dir.path().join("d"))).unwrap();
        store.append(&user("a", None)).unwrap();
        let path = store.path().unwrap().to_path_buf();
        vanish(&path);
        let error = store.append(&user("b", Some("a"))).unwrap_err();
        assert!(matches!(error, Error::Gone { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()));
        assert_eq!(ids(&store), ["a"]);
    }
}

#[test]
fn a_file_that_comes_back_is_written_to_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    store.append(&user("a", None)).unwrap();
    let path = store.path().unwrap().to_path_buf();
    let moved = path.with_extension("moved");
    fs::rename(&path, &moved).unwrap();
    assert!(store.append(&user("b", Some("a"))).is_err());
    fs::rename(&moved, &path).unwrap();
    store.append(&user("b", Some("a"))).unwrap();
    fs::write(&path, HEADER).unwrap();
    assert!(matches!(store.append(&user("c", Some("b"))), Err(Error::Shrunk { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), HEADER);
}

#[test]
fn the_directory_of_a_session_without_a_file_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = dir.path().join("d");
    let mut store = Store::create(header("s"), Some(&sessions)).unwrap();
    fs::remove_dir(&sessions).unwrap();
    store.append(&user("a", None)).unwrap();
    assert!(store.path().unwrap().exists());
}

const FULL_DISK: &str = "ATOMIC_TEST_FULL_DISK";

/// A limit on file sizes stands in for a full disk. It belongs to a process, so the test runs itself once more.
#[test]
fn a_write_that_fails_half_way_is_taken_back() {
    let Some(dir) = std::env::var_os(FULL_DISK) else {
        let dir = tempfile::tempdir().unwrap();
        let run = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "unix::a_write_that_fails_half_way_is_taken_back"])
            .env(FULL_DISK, dir.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        assert!(dir.path().join("ran").exists());
        return;
    };
    let dir = Path::new(&dir);
    let big = |id, parent| {
        message(id, parent, &format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(100_000)))
    };
    let mut store = Store::create(header("s"), Some(dir)).unwrap();
    let path = store.path().unwrap().to_path_buf();

    assert!(matches!(store.append(&big("a", None)), Err(Error::Append { .. })));
    assert!(!path.exists() && !store.is_written() && ids(&store).is_empty());

    store.append(&user("a", None)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = store.append(&big("b", Some("a"))).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!((ids(&store), store.leaf().unwrap().as_str()), (vec!["a"], "a"));

    store.append(&user("b", Some("a"))).unwrap();
    drop(store);
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!((ids(&store), problems), (vec!["a", "b"], vec![]));
    fs::write(dir.join("ran"), "").unwrap();
}
