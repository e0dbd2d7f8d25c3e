//! How long a large session takes. Run with `cargo test --release -p atomic-session-store -- --ignored --nocapture speed`.

use std::fs;
use std::io::Write as _;
use std::time::Instant;

use atomic_protocol::entry::{Entry, EntryBody};
use atomic_protocol::{Raw, time::Millis};
use atomic_session_store::{ReadyEntry, Store, context, kept, tree};
use bytes::Bytes;

use crate::{HEADER, user};

#[test]
#[ignore = "a measurement, of use in release builds only"]
fn fifty_thousand_entries() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut out = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    writeln!(out, "{HEADER}").unwrap();
    let text = "A line of text with a \\\"quote\\\" and a \\n in it. ".repeat(12);
    for at in 0..50_000 {
        let parent = if at == 0 { "null".into() } else { format!("\"{:08x}\"", at - 1) };
        let message = match at % 3 {
            0 => format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}],"timestamp":1}}"#),
            1 => format!(
                r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}},{{"type":"toolCall","id":"c{at}","name":"bash","arguments":{{"command":"ls"}}}}],"provider":"p","model":"m","usage":{{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":10,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.01}}}},"stopReason":"toolUse","timestamp":1}}"#
            ),
            _ => format!(
                r#"{{"role":"toolResult","toolCallId":"c{}","toolName":"bash","content":[{{"type":"text","text":"{text}"}}],"isError":false,"timestamp":1}}"#,
                at - 1
            ),
        };
        writeln!(
            out,
            r#"{{"type":"message","id":"{at:08x}","parentId":{parent},"timestamp":"2024-12-03T14:02:47.890Z","message":{message}}}"#
        )
        .unwrap();
    }
    drop(out);
    let size = fs::metadata(&path).unwrap().len();
    let timed =
        |what: &str, start: Instant| eprintln!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for _ in 0..3 {
        let start = Instant::now();
        let (mut store, problems) = Store::open(&path).unwrap();
        timed(&format!("open {size} bytes, {} entries", store.entries().len()), start);
        assert!(problems.is_empty());
        let start = Instant::now();
        assert!(context(&store).messages.len() >= 50_000);
        timed("context", start);
        let start = Instant::now();
        assert!(tree(&store).iter().map(Bytes::len).sum::<usize>() as u64 > size - 1000);
        timed("tree", start);
        let leaf = store.leaf().unwrap().to_string();
        let start = Instant::now();
        store.append(&user(&format!("new{}", store.entries().len()), Some(&leaf))).unwrap();
        timed("append", start);
    }
}

#[test]
#[ignore = "a measurement, of use in release builds only"]
fn a_long_boundary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n")).unwrap();
    let (mut store, _) = Store::open(&path).unwrap();
    store.append(&user("u", None)).unwrap();
    let mut leaf = "u".to_owned();
    let summary = "   17:4 warning: unused variable `x` in some/long/path.rs\n".repeat(100_000);
    for number in 0..6 {
        let id = format!("c{number}");
        let entry = Entry {
            id: id.as_str().into(),
            parent_id: Some(leaf.as_str().into()),
            timestamp: Millis(1),
            body: EntryBody::Compaction {
                summary: summary.clone(),
                first_kept: Some("u".into()),
                tokens_before: 1,
                details: Raw::parse(r#"{"strategy":"verbatim-lines"}"#).unwrap(),
                usage: None,
            },
        };
        let timed = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
        if number % 2 == 0 {
            let start = Instant::now();
            store.append(&entry).unwrap();
            let whole = timed(start);
            let start = Instant::now();
            assert_eq!(context(&store).messages.len(), 1);
            eprintln!("all at once: append {whole:.2} ms, context {:.2} ms", timed(start));
        } else {
            let start = Instant::now();
            let kept = kept(&store, Some(&"u".into()));
            let looked = timed(start);
            let start = Instant::now();
            let ready = ReadyEntry::new(&entry).unwrap();
            assert_eq!(ready.conversation(&kept).len(), 1);
            let beside = timed(start);
            let start = Instant::now();
            store.append_ready(ready).unwrap();
            let appended = timed(start);
            let start = Instant::now();
            let other = fs::File::create(dir.path().join("other")).unwrap();
            (&other).write_all(store.entries().last().unwrap().line.bytes()).unwrap();
            eprintln!(
                "made ready beside it: {beside:.2} ms; on the task: look {looked:.3} ms, append {appended:.2} ms (write(2) \
                 alone {:.2} ms)",
                timed(start)
            );
        }
        leaf = id;
    }
}
