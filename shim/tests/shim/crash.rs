//! The daemon dies, in each state, and another one comes or none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use atomic_link::listen::bind;
use atomic_protocol::json::Fields;
use atomic_protocol::link::{FromDaemon, FromShim};
use rustix::process::Signal;

use crate::stage::{Daemon, FILE, Home, Shim, exit, progress};

const UNKNOWN: &str = "daemon lost; outcome unknown";
const NOT_EXECUTED: &str = "daemon lost; not executed";

/// The ids of the responses in `out` with their errors. Every line but `half` must parse, no id may come twice.
fn answers(out: &str, half: Option<&str>) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    for line in out.lines().filter(|line| Some(*line) != half) {
        let fields = Fields::parse(line).unwrap_or_else(|_| panic!("not a record: {line}"));
        if let Some(id) = fields.get("id") {
            let error = fields.str("error").unwrap_or_default().into_owned();
            assert!(answers.insert(id.to_owned(), error).is_none(), "{id} is answered twice");
        }
    }
    answers
}

fn command(id: u32) -> String {
    format!("{{\"id\":{id},\"type\":\"get_state\"}}\n")
}

fn response(id: u32) -> String {
    format!("{{\"id\":{id},\"type\":\"response\",\"command\":\"get_state\",\"success\":true}}\n")
}

fn lost_response(id: u32, error: &str) -> String {
    format!(
        "{{\"id\":{id},\"type\":\"response\",\"command\":\"get_state\",\"success\":false,\"error\":\"{error}\"}}\n"
    )
}

/// Ends an attached shim in good order and gives what is left of stdout, and stderr.
fn finish(mut shim: Shim, daemon: &mut Daemon) -> (String, String) {
    shim.stdin = None;
    assert_eq!(daemon.line(), FromShim::Eof.to_line());
    daemon.record(&exit(0, None));
    let (out, err, status) = shim.end();
    assert_eq!(status.code(), Some(0), "{err}");
    (String::from_utf8(out).unwrap(), err)
}

#[test]
fn a_lost_daemon_is_answered_for() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach(&listener);
    shim.send(
        b"{\"id\":\"a\",\"type\":\"get_state\"}\n{\"id\":\"b\",\"type\":\"prompt\",\"message\":\"m\"}\n",
    );
    shim.send(b"{\"type\":\"extension_ui_response\",\"id\":\"d\"}\n{\"id\":7,\"type\":\"bash\"}\n");
    for _ in 0..4 {
        daemon.line();
    }
    daemon.write(b"{\"id\":\"a\",\"ok\":1}\n");
    daemon.record(&progress(3, &[1]));
    daemon.write(b"{\"half\":");
    drop(daemon);
    let (out, err, status) = shim.end();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"id\":\"a\",\"ok\":1}\n{\"half\":\n\
         {\"id\":\"b\",\"type\":\"response\",\"command\":\"prompt\",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n\
         {\"id\":7,\"type\":\"response\",\"command\":\"bash\",\"success\":false,\"error\":\"daemon lost; not executed\"}\n"
    );
    assert!(err.contains(home.place.logs().to_str().unwrap()), "{err}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn an_idle_client_goes_on_with_the_next_daemon() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, daemon) = home.attach_to_file(&listener);
    let first = daemon.hello.clone();
    drop(daemon);
    let mut next = Daemon::welcome(&listener);
    assert_eq!((first.session.as_deref(), next.hello.session.as_deref()), (None, Some(FILE)));
    assert_eq!(next.hello.argv, first.argv, "options stay");
    assert_eq!((&next.hello.cwd, next.hello.umask), (&first.cwd, first.umask));
    shim.send(command(1).as_bytes());
    assert_eq!(next.line(), command(1).as_bytes());
    next.write(response(1).as_bytes());
    next.record(&progress(1, &[1]));
    let (out, err) = finish(shim, &mut next);
    assert_eq!(out, response(1), "nothing else is on stdout");
    assert_eq!(err, "Note: atomicd was lost; attached again to s\n");
}

#[test]
fn each_line_is_executed_once_and_answered_once_wherever_the_daemon_dies() {
    // How many of four lines the first daemon reads, admits and answers before it dies.
    for read in 0..=4 {
        for admitted in 0..=read {
            for answered in 0..=admitted {
                let home = Home::new();
                let (_lock, listener) = home.listen();
                let (mut shim, mut daemon) = home.attach_to_file(&listener);
                shim.send((1..=4).map(command).collect::<String>().as_bytes());
                shim.send(b"{\"id\":5,");
                for _ in 0..read {
                    daemon.line();
                }
                for id in 1..=answered {
                    daemon.write(response(id).as_bytes());
                }
                daemon.record(&progress(admitted.into(), &(1..=u64::from(answered)).collect::<Vec<_>>()));
                drop(daemon);
                let mut next = Daemon::welcome(&listener);
                shim.send(&command(5).as_bytes()["{\"id\":5,".len()..]);
                let mut number = 0;
                for id in admitted + 1..=5 {
                    assert_eq!(next.line(), command(id).as_bytes(), "{read} {admitted} {answered}");
                    number += 1;
                    next.write(response(id).as_bytes());
                    next.record(&progress(number, &[number]));
                }
                let (out, _) = finish(shim, &mut next);
                let want: String = (1..=5)
                    .map(|id| {
                        let unknown = id > answered && id <= admitted;
                        if unknown { lost_response(id, UNKNOWN) } else { response(id) }
                    })
                    .collect();
                assert_eq!(out, want, "{read} {admitted} {answered}");
            }
        }
    }
}

#[test]
fn an_open_run_is_closed_before_the_next_daemon_says_anything() {
    const MESSAGE: &str = r#"{"role":"assistant","content":[],"model":"m","stopReason":"pending"}"#;
    const FAILED: &str =
        r#"{"role":"assistant","content":[],"model":"m","stopReason":"error","errorMessage":"daemon lost"}"#;
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(command(1).as_bytes());
    daemon.line();
    let half = r#"{"type":"message_update","usage":{"inp"#;
    let begun = format!(
        "{{\"type\":\"agent_start\"}}\n{{\"type\":\"turn_start\"}}\n\
         {{\"type\":\"message_start\",\"message\":{MESSAGE}}}\n"
    );
    daemon.write(begun.as_bytes());
    daemon.record(&progress(1, &[]));
    daemon.write(half.as_bytes());
    drop(daemon);
    let mut next = Daemon::welcome(&listener);
    next.write(b"{\"type\":\"next\"}\n");
    let (out, _) = finish(shim, &mut next);
    let closed = format!(
        "{{\"type\":\"message_end\",\"message\":{FAILED}}}\n\
         {{\"type\":\"turn_end\",\"message\":{FAILED},\"toolResults\":[]}}\n\
         {{\"type\":\"agent_end\",\"messages\":[{FAILED}],\"willRetry\":false}}\n\
         {{\"type\":\"agent_settled\",\"aborted\":false}}\n"
    );
    assert_eq!(out, format!("{begun}{half}\n{closed}{}{{\"type\":\"next\"}}\n", lost_response(1, UNKNOWN)));
    assert_eq!(answers(&out, Some(half)).len(), 1);
}

#[test]
fn lines_that_come_while_no_daemon_is_there_wait_for_one() {
    let home = Home::new();
    let (lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(command(1).as_bytes());
    daemon.line();
    daemon.record(&progress(1, &[]));
    drop((daemon, listener));
    assert_eq!(shim.line(), lost_response(1, UNKNOWN));
    shim.send((2..=3).map(command).collect::<String>().as_bytes());
    let listener = bind(&home.place, &lock).unwrap();
    let mut next = Daemon::welcome(&listener);
    shim.send(command(4).as_bytes());
    for id in 2..=4 {
        assert_eq!(next.line(), command(id).as_bytes());
    }
    next.record(&progress(3, &[1, 2, 3]));
    finish(shim, &mut next);
}

#[test]
fn a_large_backlog_and_a_daemon_that_talks_first_do_not_block_each_other() {
    const MIB: usize = 1 << 20;
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, daemon) = home.attach_to_file(&listener);
    let whole = [&b"x".repeat(8 * MIB)[..], b"\n"].concat();
    let line = &whole[..];
    std::thread::scope(|scope| {
        // The first daemon dies with the line half read, while the client is still writing it.
        scope.spawn(move || {
            let mut start = [0; MIB];
            let mut daemon = daemon;
            std::io::Read::read_exact(&mut daemon.lines, &mut start).unwrap();
        });
        let mut stdin = shim.stdin.take().unwrap();
        // While no daemon is there the shim does not take all of it.
        let writing = scope.spawn(move || {
            std::io::Write::write_all(&mut stdin, line).unwrap();
            stdin
        });
        let mut next = Daemon::welcome(&listener);
        let talk = scope.spawn(move || {
            next.write(line);
            assert!(next.line() == line);
            next
        });
        assert_eq!(shim.line().len(), 8 * MIB + 1);
        shim.stdin = Some(writing.join().unwrap());
        let mut next = talk.join().unwrap();
        next.record(&progress(1, &[1]));
        finish(shim, &mut next);
    });
}

#[test]
fn after_the_end_of_input_only_lines_that_nobody_admitted_need_a_daemon() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(format!("{}{}", command(1), command(2)).as_bytes());
    shim.stdin = None;
    let last: Vec<Vec<u8>> = (0..3).map(|_| daemon.line()).collect();
    assert_eq!(last[2], FromShim::Eof.to_line());
    daemon.record(&progress(1, &[]));
    drop(daemon);
    let mut next = Daemon::welcome(&listener);
    assert_eq!((next.line(), next.line()), (command(2).into_bytes(), FromShim::Eof.to_line()));
    next.record(&progress(1, &[]));
    drop(next);
    let (out, err, status) = shim.end();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out, lost_response(1, UNKNOWN) + &lost_response(2, UNKNOWN));
    assert!(err.contains("Note: ") && err.contains(home.place.logs().to_str().unwrap()), "{err}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_daemon_that_dies_again_and_again_is_left() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, daemon) = home.attach_to_file(&listener);
    shim.send(command(1).as_bytes());
    drop(daemon);
    for _ in 0..2 {
        let mut next = Daemon::welcome(&listener);
        assert_eq!(next.line(), command(1).as_bytes());
    }
    let (out, err, status) = shim.end();
    assert_eq!(String::from_utf8(out).unwrap(), lost_response(1, NOT_EXECUTED));
    assert_eq!((err.matches("Note: ").count(), status.code()), (2, Some(1)), "{err}");
}

#[test]
fn after_ten_seconds_without_a_daemon_everything_is_answered() {
    let home = Home::new();
    let (lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(format!("{}{}", command(1), command(2)).as_bytes());
    daemon.line();
    daemon.record(&progress(1, &[]));
    daemon.write(b"{\"type\":\"agent_start\"}\n");
    drop((daemon, listener, lock));
    let begun = Instant::now();
    let mut out = String::new();
    while !out.contains(UNKNOWN) {
        out.push_str(&shim.line());
    }
    shim.send(command(3).as_bytes());
    let (rest, err, status) = shim.end();
    assert!((8..15).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    out.push_str(std::str::from_utf8(&rest).unwrap());
    let answers: Vec<String> = answers(&out, None).into_values().collect();
    assert_eq!(answers, [UNKNOWN, NOT_EXECUTED, NOT_EXECUTED]);
    assert!(out.contains("\"agent_end\"") && out.contains("\"agent_settled\""), "{out}");
    assert!(err.contains("attaching again failed") && err.contains("cannot find atomicd"), "{err}");
    assert!(err.contains(home.place.logs().to_str().unwrap()), "{err}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_signal_while_no_daemon_is_there_ends_it_with_all_answers() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(format!("{}{}", command(1), command(2)).as_bytes());
    daemon.line();
    daemon.line();
    daemon.record(&progress(1, &[]));
    drop((daemon, listener));
    assert_eq!(shim.line(), lost_response(1, UNKNOWN));
    let begun = Instant::now();
    shim.signal(Signal::TERM);
    let (out, err, status) = shim.end();
    assert_eq!(String::from_utf8(out).unwrap(), lost_response(2, NOT_EXECUTED));
    assert_eq!((err.as_str(), status.code()), ("", Some(143)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn after_a_replacement_the_new_session_is_attached_again() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach_to_file(&listener);
    shim.send(b"{\"id\":1,\"type\":\"new_session\"}\n");
    daemon.line();
    daemon.record(&FromDaemon::Session(Some("/sessions/new.jsonl".into())));
    daemon.write(response(1).as_bytes());
    daemon.record(&progress(1, &[1]));
    drop(daemon);
    let mut next = Daemon::welcome(&listener);
    assert_eq!(next.hello.session.as_deref(), Some("/sessions/new.jsonl"));
    let (out, _) = finish(shim, &mut next);
    assert_eq!(out, response(1));
}
