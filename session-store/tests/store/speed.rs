//! How long a large session takes. Run with `cargo test --release -p atomic-session-store -- --ignored --nocapture speed`.

use std::fs;
use std::io::Write as _;
use std::time::Instant;

use atomic_session_store::{Store, context, tree};
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
