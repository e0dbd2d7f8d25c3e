//! `cargo run -p atomic-html-export --example page -- FILE OUT`: the page of a session file, for looking at it.
use std::io::Write as _;

use atomic_html_export::{Leaf, Options, Session, write_page};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: page FILE OUT".into());
    };
    let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
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
