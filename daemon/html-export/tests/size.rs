//! Work and size grow with the session and not faster; memory does not grow with the page.
#![forbid(unsafe_code)]

mod sessions;

use std::io;

use atomic_html_export::{Leaf, Options, Session, write_page};

/// Counts what is written and keeps nothing.
#[derive(Default)]
struct Counter {
    bytes: usize,
    largest: usize,
}

impl io::Write for Counter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.bytes += piece.len();
        self.largest = self.largest.max(piece.len());
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn measured(lines: &[String]) -> Counter {
    let entries: Vec<&str> = lines[1..].iter().map(String::as_str).collect();
    let session = Session { header: &lines[0], entries: &entries, leaf: Leaf::Last };
    let mut counter = Counter::default();
    write_page(&session, &Options::default(), &mut counter).expect("the counter takes everything");
    counter
}

#[test]
fn ten_thousand_entries_cost_twice_what_five_thousand_do() {
    let half = measured(&sessions::many(5_000));
    let began = std::time::Instant::now();
    let lines = sessions::many(10_000);
    let whole = measured(&lines);
    let file: usize = lines.iter().map(String::len).sum();
    eprintln!(
        "10 000 entries, {file} bytes: a page of {} bytes, made in {} ms",
        whole.bytes,
        began.elapsed().as_millis()
    );
    assert!(whole.bytes < 2 * half.bytes, "{} and {}", whole.bytes, half.bytes);
    assert!(whole.bytes < 2 * file + 100_000, "{} from {file}", whole.bytes);
}

#[test]
fn the_page_is_written_piece_by_piece() {
    let counter = measured(&sessions::many(5_000));
    assert!(
        counter.bytes > 4_000_000 && counter.largest < 256 * 1024,
        "{} in {}",
        counter.largest,
        counter.bytes
    );
}

#[test]
fn an_error_of_the_writer_is_the_only_error() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let session = Session { header: "{}", entries: &["{}"], leaf: Leaf::Last };
    let error = write_page(&session, &Options::default(), &mut Full).expect_err("the disk is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
