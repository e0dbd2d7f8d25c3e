//! What a first shim is started with does not shape the daemon, and what happens to its files does not lose it.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use atomic_tests::{Finished, Running, Sandbox, eventually};
use serde_json::{Value, json};

/// Runs one command through a shim that a shell starts after `preparation`.
#[track_caller]
fn ask_after(sandbox: &Sandbox, preparation: &str, command: &Value) -> Value {
    let mut shell = sandbox.command("/bin/sh");
    shell.arg("-c").arg(format!("{preparation}\nexec atomic --mode rpc --no-session"));
    let mut running = Running::spawn(shell);
    running.write(format!("{command}\n").as_bytes());
    running.close_stdin();
    let finished: Finished =
        running.wait().unwrap_or_else(|| panic!("it does not end\n{}", sandbox.daemon_log()));
    let finished = finished.expect_code(0);
    let answer = finished.stdout.lines().rev().find(|line| line.contains("\"response\"")).expect("an answer");
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert_eq!(answer["success"], true, "{answer}");
    answer["data"].clone()
}

fn get_state(sandbox: &Sandbox) {
    ask_after(sandbox, ":", &json!({"id": 1, "type": "get_state"}));
}

/// The directory of socket and locks.
fn run_dir(sandbox: &Sandbox) -> PathBuf {
    let run = sandbox.agent_dir().join("run");
    let mut hosts = fs::read_dir(run).expect("run/").map(|entry| entry.expect("an entry").path());
    hosts.next().expect("a directory for this host")
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o777
}

fn field(daemon: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect("the field");
    line.trim().to_owned()
}

#[test]
fn limits_masks_signals_and_descriptors_of_the_starter_are_left_behind() {
    let sandbox = Sandbox::new();
    let leaked = sandbox.write("leaked", "x");
    let preparation =
        format!("umask 000; ulimit -S -n 64; trap '' INT HUP TERM QUIT; exec 7<{0} 8>>{0}", leaked.display());
    let umask = ask_after(&sandbox, &preparation, &json!({"id": 1, "type": "bash", "command": "umask"}));
    assert_eq!(umask["output"], "0000\n", "its tools keep the caller's umask");
    let daemon = sandbox.daemon();
    assert_eq!(field(daemon, "Umask"), "0077");
    let ignored = u64::from_str_radix(&field(daemon, "SigIgn"), 16).expect("a mask");
    for signal in [1, 2, 3, 15] {
        assert_eq!(ignored >> (signal - 1) & 1, 0, "signal {signal} is heeded");
    }
    let limits = fs::read_to_string(format!("/proc/{daemon}/limits")).expect("it runs");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit");
    let soft: u64 = files.split_whitespace().nth(3).expect("a number").parse().expect("a number");
    assert!(soft > 64, "{files}");
    for entry in fs::read_dir(format!("/proc/{daemon}/fd")).expect("it runs") {
        let target = fs::read_link(entry.expect("an entry").path());
        assert_ne!(target.ok(), Some(leaked.clone()), "a descriptor of the starter");
    }
    let run = run_dir(&sandbox);
    assert_eq!([mode(sandbox.agent_dir().join("run")), mode(run.clone())], [0o700, 0o700]);
    assert_eq!(mode(run.join("d.sock")), 0o600);
}

#[test]
fn no_variable_but_home_decides_where_it_is() {
    let sandbox = Sandbox::new();
    get_state(&sandbox);
    let daemon = sandbox.daemon();
    let elsewhere = sandbox.dir("elsewhere");
    let preparation =
        format!("export XDG_RUNTIME_DIR={0} TMPDIR={0} XDG_STATE_HOME={0}", elsewhere.display());
    ask_after(&sandbox, &preparation, &json!({"id": 1, "type": "get_state"}));
    ask_after(&sandbox, "unset TMPDIR XDG_RUNTIME_DIR", &json!({"id": 1, "type": "get_state"}));
    assert_eq!(sandbox.daemon(), daemon);
}

#[test]
fn a_removed_socket_is_bound_again() {
    let sandbox = Sandbox::new();
    get_state(&sandbox);
    let daemon = sandbox.daemon();
    fs::remove_file(run_dir(&sandbox).join("d.sock")).expect("the socket");
    get_state(&sandbox);
    assert_eq!(sandbox.daemon(), daemon, "the same daemon");
}

#[test]
fn a_removed_directory_leads_to_one_daemon_again() {
    let sandbox = Sandbox::new();
    get_state(&sandbox);
    fs::remove_dir_all(sandbox.agent_dir().join("run")).expect("run/");
    get_state(&sandbox);
    eventually("one daemon is left", || (sandbox.daemons().len() == 1).then_some(()));
    let daemon = sandbox.daemon();
    get_state(&sandbox);
    assert_eq!(sandbox.daemon(), daemon);
}

#[test]
fn loose_permissions_are_tightened() {
    let sandbox = Sandbox::new();
    get_state(&sandbox);
    let run = run_dir(&sandbox);
    sandbox.kill_daemon();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).expect("ours");
    get_state(&sandbox);
    assert_eq!(mode(run), 0o700);
}

#[test]
fn a_link_in_the_place_of_its_directory_is_refused() {
    let sandbox = Sandbox::new();
    let elsewhere = sandbox.dir("elsewhere");
    fs::create_dir_all(sandbox.agent_dir()).expect("the agent directory");
    std::os::unix::fs::symlink(&elsewhere, sandbox.agent_dir().join("run")).expect("a link");
    let finished = sandbox.atomic(&["--mode", "rpc"]).expect_code(1);
    assert!(finished.stderr.contains("run") && finished.stdout.is_empty(), "{}", finished.stderr);
    assert_eq!(fs::read_dir(elsewhere).expect("a directory").count(), 0, "nothing was put there");
}

/// The directory where the first window was opened goes away (a worktree does): the daemon does not stand in it.
#[test]
fn the_directory_of_the_starter_may_go_away() {
    let sandbox = Sandbox::new();
    let gone = sandbox.dir("gone");
    ask_after(&sandbox, &format!("cd {}", gone.display()), &json!({"id": 1, "type": "get_state"}));
    let daemon = sandbox.daemon();
    assert_eq!(fs::read_link(format!("/proc/{daemon}/cwd")).expect("it runs"), PathBuf::from("/"));
    fs::remove_dir(&gone).expect("an empty directory");
    let here = ask_after(&sandbox, ":", &json!({"id": 1, "type": "bash", "command": "pwd"}));
    assert_eq!(here["output"], format!("{}\n", sandbox.project().display()));
    assert_eq!(sandbox.daemon(), daemon);
}

/// Whoever starts a second one (a service beside a daemon by hand, say) is told of the first, and nobody is cut off.
#[test]
fn a_second_daemon_leaves_the_first_alone() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let session = shim.get("get_state")["sessionId"].clone();
    let daemon = sandbox.daemon();
    for foreground in [&[][..], &["--foreground"]] {
        let mut command = sandbox.command(&atomic_tests::binaries().atomicd);
        command.args(["run", "--agent-dir"]).arg(sandbox.agent_dir()).args(foreground);
        let mut second = Running::spawn(command);
        second.close_stdin();
        let end = second.wait().expect("it ends").expect_code(0);
        assert!(end.stderr.starts_with("Note: atomicd is already running"), "{}", end.stderr);
        assert_eq!((sandbox.daemon(), &shim.get("get_state")["sessionId"]), (daemon, &session));
    }
    assert_eq!(shim.finish().expect_code(0).stderr, "");
}

/// Windows come and go, daemons are replaced: no command, no zombie and no descriptor is left of any.
#[test]
fn nothing_is_left_of_windows_and_daemons_that_are_gone() {
    let sandbox = Sandbox::new();
    let mut watcher = sandbox.rpc();
    let children = |daemon: u32| -> Vec<String> {
        let tasks = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            let fields: Vec<String> =
                stat.rsplit_once(") ")?.1.split(' ').take(2).map(str::to_owned).collect();
            (fields[1] == daemon.to_string()).then_some(stat)
        });
        tasks.collect()
    };
    for _ in 0..3 {
        watcher.get("get_state");
        let daemon = sandbox.daemon();
        let descriptors = || fs::read_dir(format!("/proc/{daemon}/fd")).expect("it runs").count();
        ask_after(&sandbox, ":", &json!({"id": 1, "type": "bash", "command": "true"}));
        let base = descriptors();
        for _ in 0..10 {
            ask_after(&sandbox, ":", &json!({"id": 1, "type": "bash", "command": "true | cat; (true &)"}));
        }
        eventually("only the guard is left", || (children(daemon).len() <= 1).then_some(()));
        let left = children(daemon);
        assert!(left.iter().all(|stat| !stat.contains(") Z ")), "{left:?}");
        eventually("descriptors are closed", || (descriptors() <= base).then_some(()));
        sandbox.atomic(&["restart"]).expect_code(0);
        watcher.get("get_state");
        eventually("the old one is gone", || (!atomic_tests::alive(daemon)).then_some(()));
        assert_eq!(sandbox.daemons().len(), 1);
    }
}
