//! Makes a page to look at. `cargo run -p atomic-html-export --example page -- WHAT OUT`, where WHAT is a session file, or
//! `--demo`, `--hostile`, `--many=N`: the sessions that the tests use.
use std::io::Write as _;

use atomic_html_export::{Leaf, Options, Session, write_page};

#[path = "../../tests/sessions/mod.rs"]
mod sessions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: page FILE|--demo|--hostile|--many=N OUT".into());
    };
    let lines = match what.as_str() {
        "--demo" => sessions::demo(),
        "--hostile" => sessions::hostile(sessions::PAYLOADS),
        what => match what.strip_prefix("--many=") {
            Some(count) => sessions::many(count.parse()?),
            None => String::from_utf8_lossy(&std::fs::read(what)?).lines().map(str::to_owned).collect(),
        },
    };
    let mut lines = lines.iter().map(String::as_str).filter(|line| !line.trim().is_empty());
    let header = lines.next().unwrap_or_default();
    let entries: Vec<&str> = lines.collect();
    let session = Session { header, entries: &entries, leaf: Leaf::Last };
    let options = Options { program: Some("atomic (example)"), exported: None };
    let began = std::time::Instant::now();
    let mut out = std::io::BufWriter::new(std::fs::File::create(out)?);
    write_page(&session, &options, &mut out)?;
    out.flush()?;
    writeln!(std::io::stderr(), "{} entries in {} ms", entries.len(), began.elapsed().as_millis())?;
    Ok(())
}
