//! Finding, binding, owning, starting: with real sockets, a thread as the daemon and a script as its program.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atomic_link::client::Client;
use atomic_link::connect::connect;
use atomic_link::listen::{DaemonLock, LOCK_PATIENCE, Listener, bind, unbind};
use atomic_link::place::{Place, SOCKET_PATH_BYTES};
use atomic_link::start::{connect_or_start, daemon_program};
use atomic_link::{LinkError, Stream};
use atomic_protocol::link::{Hello, Reply};

/// Longer than anything here takes.
const PLENTY: Duration = Duration::from_secs(20);

fn place_in(dir: &Path) -> Place {
    Place::of(&dir.join("agent")).unwrap()
}

fn welcome() -> String {
    let reply = Reply::Welcome {
        link: 1,
        version: "0".into(),
        build: String::new(),
        pid: std::process::id(),
        session_id: "s".into(),
        session_file: None,
    };
    serde_json::to_string(&reply).unwrap() + "\n"
}

/// Welcomes one connection and echoes its lines until it ends.
fn welcome_and_echo(stream: Stream) {
    let mut lines = BufReader::new(&stream).split(b'\n');
    let hello: Hello = serde_json::from_slice(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(hello.link, 1);
    (&stream).write_all(welcome().as_bytes()).unwrap();
    for line in lines.map_while(Result::ok) {
        let mut line = line;
        line.push(b'\n');
        if (&stream).write_all(&line).is_err() {
            return;
        }
    }
}

fn serve(listener: Listener, connections: usize) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..connections {
            let stream = listener.accept().unwrap();
            std::thread::spawn(move || welcome_and_echo(stream));
        }
    })
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_client_is_welcomed_and_served() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let listener = bind(&place, &lock).unwrap();
    assert_eq!(mode(place.socket()), 0o600);
    assert_eq!(mode(place.socket().parent().unwrap()), 0o700);
    let file = listener.file();
    let server = serve(listener, 1);
    let mut client = Client::connect(&place, &Hello::default(), PLENTY).unwrap();
    assert!(matches!(client.reply(), Reply::Welcome { session_id, .. } if session_id == "s"));
    client.send_line(b"{\"a\":1}").unwrap();
    assert_eq!(client.next_record().unwrap().as_deref(), Some(&b"{\"a\":1}"[..]));
    assert!(file.is_in_place(&place));
    std::fs::remove_file(place.socket()).unwrap();
    assert!(!file.is_in_place(&place), "the daemon sees that it must bind again");
    server.join().unwrap();
    let _again = bind(&place, &lock).unwrap();
    unbind(&place, &lock);
    assert!(!place.socket().exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_daemon_is_not() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    drop(bind(&place, &lock).unwrap());
    assert!(place.socket().exists(), "as after kill -9");
    assert!(matches!(connect(&place, &Hello::default(), PLENTY), Err(LinkError::NotRunning { .. })));
    drop(bind(&place, &lock).unwrap());

    assert!(DaemonLock::is_held(&place));
    let second = DaemonLock::acquire(&place, Duration::ZERO);
    assert!(matches!(second, Err(LinkError::AlreadyRunning { .. })), "{second:?}");
    drop(lock);
    assert!(!DaemonLock::is_held(&place));
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    std::fs::remove_file(place.socket()).unwrap();
    std::fs::write(place.socket(), "precious").unwrap();
    assert!(matches!(bind(&place, &lock), Err(LinkError::InTheWay { .. })));
    assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
}

#[test]
fn loose_directories_are_tightened_and_links_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let own = place.socket().parent().unwrap().to_owned();
    std::fs::create_dir_all(&own).unwrap();
    for dir in [own.parent().unwrap(), &own] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    drop(DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap());
    assert_eq!((mode(own.parent().unwrap()), mode(&own)), (0o700, 0o700));
    assert_eq!(mode(&place.daemon_lock()), 0o600);

    std::fs::remove_dir_all(&own).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &own).unwrap();
    let refused = |error: LinkError| {
        assert!(matches!(&error, LinkError::NotDirectory { path } if *path == own), "{error}");
    };
    refused(DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap_err());
    refused(connect(&place, &Hello::default(), PLENTY).unwrap_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing was made through the link");
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let own = place.socket().parent().unwrap().to_owned();
    std::fs::create_dir_all(&own).unwrap();
    // Only root can give a directory away; elsewhere there is nothing to test.
    if std::os::unix::fs::chown(&own, Some(65_533), None).is_err() {
        return;
    }
    let error = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap_err();
    assert!(matches!(error, LinkError::Foreign { owner: 65_533, .. }), "{error}");
    assert!(error.to_string().contains("ATOMIC_CODING_AGENT_DIR"));
}

#[test]
fn a_long_agent_directory_has_a_short_socket() {
    let root = tempfile::tempdir().unwrap();
    let place = Place::of(&root.path().join("x".repeat(SOCKET_PATH_BYTES)).join("agent")).unwrap();
    assert!(place.socket().starts_with("/tmp"), "{:?}", place.socket());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let server = serve(bind(&place, &lock).unwrap(), 1);
    assert!(connect(&place, &Hello::default(), PLENTY).is_ok());
    server.join().unwrap();
    std::fs::remove_dir_all(place.socket().parent().unwrap()).unwrap();
}

#[test]
fn a_listener_that_says_nothing_is_given_up() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let _listener = bind(&place, &lock).unwrap();
    let within = Duration::from_millis(30);
    let error = connect(&place, &Hello::default(), within).unwrap_err();
    assert!(matches!(error, LinkError::Silent { .. }), "{error}");
    // A queue that is full already makes connecting itself wait.
    let mut queue = Vec::new();
    while let Ok(stream) = rustix_connect(place.socket()) {
        queue.push(stream);
    }
    let error = connect(&place, &Hello::default(), within).unwrap_err();
    assert!(matches!(error, LinkError::Silent { .. }), "{error}");
}

/// Connects without waiting.
fn rustix_connect(socket: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    Ok(fd)
}

#[test]
fn a_reply_in_single_bytes_keeps_what_follows() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let listener = bind(&place, &lock).unwrap();
    let server = std::thread::spawn(move || {
        let stream = listener.accept().unwrap();
        BufReader::new(&stream).split(b'\n').next().unwrap().unwrap();
        for byte in (welcome() + "{\"first\":1}\n").as_bytes() {
            (&stream).write_all(&[*byte]).unwrap();
        }
        (&stream).write_all(b"{\"second\":2}\n").unwrap();
    });
    let mut client = Client::connect(&place, &Hello::default(), PLENTY).unwrap();
    assert_eq!(client.next_record().unwrap().as_deref(), Some(&b"{\"first\":1}"[..]));
    assert_eq!(client.next_record().unwrap().as_deref(), Some(&b"{\"second\":2}"[..]));
    assert_eq!(client.next_record().unwrap(), None);
    server.join().unwrap();
}

#[test]
fn answers_that_are_no_reply_and_endings_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let listener = bind(&place, &lock).unwrap();
    let server = std::thread::spawn(move || {
        (&listener.accept().unwrap()).write_all(b"HTTP/1.1 400\n").unwrap();
        drop(listener.accept().unwrap());
    });
    let error = connect(&place, &Hello::default(), PLENTY).unwrap_err();
    assert!(matches!(error, LinkError::BadReply { .. }), "{error}");
    let error = connect(&place, &Hello::default(), PLENTY).unwrap_err();
    assert!(matches!(error, LinkError::Closed { .. }), "{error}");
    server.join().unwrap();
}

/// Writes an executable script.
fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("fake-atomicd");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn of_twenty_that_start_at_once_one_starts_the_daemon() {
    const RACERS: usize = 20;
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    // The program only counts and stays; a thread of this test serves once the program has run.
    let count = root.path().join("count");
    let program =
        script(root.path(), &format!("echo \"$@\" >> {}\nexec sleep 5 >/dev/null 2>&1", count.display()));
    let begin = std::sync::Barrier::new(RACERS);
    let served = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    connect_or_start(&place, &Hello::default(), || Ok(program.clone()))
                        .map(|attached| attached.reply)
                })
            })
            .collect();
        while !count.exists() {
            std::thread::yield_now();
        }
        let lock = DaemonLock::acquire(&place, PLENTY).unwrap();
        let server = serve(bind(&place, &lock).unwrap(), RACERS);
        let served = racers.into_iter().map(|racer| racer.join().unwrap()).filter(Result::is_ok).count();
        server.join().unwrap();
        served
    });
    assert_eq!(served, RACERS);
    let starts = std::fs::read_to_string(&count).unwrap();
    assert_eq!(starts, format!("run --agent-dir {}\n", place.agent_dir().display()), "one start");
}

#[test]
fn a_daemon_that_dies_at_start_is_quoted() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let program = script(root.path(), "echo old >&2; echo 'no room on the device' >&2; pwd >&2; exit 7");
    let error = connect_or_start(&place, &Hello::default(), || Ok(program.clone())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LinkError::DiedAtStart { .. }), "{text}");
    for part in ["7", "no room on the device", place.stderr_log().to_str().unwrap(), "\n  /"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(mode(&place.stderr_log()), 0o600);
    assert_eq!(mode(&place.logs()), 0o700);
    // The next failure shows its own lines only, and the lock is free again.
    let program = script(root.path(), "echo second >&2; exit 1");
    let text = connect_or_start(&place, &Hello::default(), || Ok(program)).unwrap_err().to_string();
    assert!(text.contains("second") && !text.contains("no room"), "{text}");
    let missing = connect_or_start(&place, &Hello::default(), || Ok(root.path().join("none"))).unwrap_err();
    assert!(matches!(missing, LinkError::Spawn { .. }), "{missing}");
}

#[test]
fn an_old_daemon_that_is_leaving_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let place = place_in(root.path());
    let old = DaemonLock::acquire(&place, LOCK_PATIENCE).unwrap();
    let program = script(root.path(), "exit 9");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_or_start(&place, &Hello::default(), || Ok(program.clone())));
        // While the old one holds its lock the client holds the start lock and starts nothing.
        while std::fs::File::open(place.start_lock()).is_ok_and(|file| file.try_lock().is_ok())
            || !place.start_lock().exists()
        {
            std::thread::yield_now();
        }
        assert!(!place.stderr_log().exists(), "nothing was started");
        drop(old);
        assert!(matches!(client.join().unwrap(), Err(LinkError::DiedAtStart { .. })), "then the new one is");
    });
}

#[test]
fn the_program_is_found_beside_the_resolved_executable_else_by_its_variable() {
    let root = tempfile::tempdir().unwrap();
    let (bin, links) = (root.path().join("bin"), root.path().join("links"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&links).unwrap();
    std::fs::write(bin.join("atomic"), "").unwrap();
    symlink(bin.join("atomic"), links.join("atomic")).unwrap();
    let find = |variable: Option<&Path>| {
        daemon_program(&links.join("atomic"), variable.map(|path| path.as_os_str()))
    };
    assert!(
        matches!(find(None), Err(LinkError::NoDaemonProgram { beside }) if beside.ends_with("bin/atomicd"))
    );
    let other = script(root.path(), "");
    assert_eq!(find(Some(&other)).unwrap(), other);
    assert!(find(Some(&root.path().join("none"))).is_err());
    std::fs::write(bin.join("atomicd"), "").unwrap();
    assert!(find(Some(&other)).unwrap().ends_with("bin/atomicd"), "beside wins");
}
