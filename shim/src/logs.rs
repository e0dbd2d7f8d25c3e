//! `atomic logs`: the end of the daemon's newest log file. Reads files; a daemon need not run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atomic_link::connect::HELLO_DEADLINE;
use atomic_link::place::Place;
use atomic_protocol::cli::LogsOptions;
use atomic_protocol::link::{Mode, OsText};

use crate::admin::{Answer, NOT_RUNNING, ask, not_running};
use crate::{daemon, os, stdio};

/// Bytes read at once, from the end backwards and when following.
const BLOCK_BYTES: usize = 64 * 1024;

/// How often a followed file is looked at: a person reads.
const FOLLOW_RETRY: Duration = Duration::from_millis(200);

/// `atomic logs`.
pub(crate) fn run(options: &LogsOptions) -> u8 {
    if let Some(level) = &options.level {
        return set_level(level);
    }
    let place = match daemon::place() {
        Ok(place) => place,
        Err(error) => {
            stdio::complain(&format!("Error: {error}"));
            return 1;
        }
    };
    let Some(path) = newest(&place) else {
        stdio::complain(&format!("Error: there is no log in {}", place.logs().display()));
        return 1;
    };
    if options.path {
        return stdio::say(&format!("{}\n", path.display()));
    }
    match print(&place, path, options) {
        Ok(()) => 0,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 1,
        Err(error) => {
            stdio::complain(&format!("Error: cannot print the log: {error}"));
            1
        }
    }
}

fn set_level(level: &str) -> u8 {
    match ask(Mode::LogLevel, vec![OsText::from(level)], HELLO_DEADLINE) {
        Answer::Report(report) => stdio::say(&format!("the log level is now {}\n", report.log_level)),
        Answer::NotRunning(place) => {
            stdio::complain(&not_running(&place));
            NOT_RUNNING
        }
        Answer::Closed(_) => {
            stdio::complain("Error: atomicd closed the connection before it answered; it may be leaving");
            1
        }
        Answer::Failed(code) => code,
    }
}

/// The newest `atomicd.*.log`; what the daemon said before it had one, if that is all there is.
fn newest(place: &Place) -> Option<PathBuf> {
    let early = place.stderr_log();
    let newest = std::fs::read_dir(place.logs())
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let ours = name.starts_with("atomicd.") && name.ends_with(".log") && path != early;
            let changed = path.metadata().ok()?.modified().ok()?;
            ours.then_some((changed, path))
        })
        .max();
    newest.map(|(_, path)| path).or_else(|| early.exists().then_some(early))
}

fn print(place: &Place, mut path: PathBuf, options: &LogsOptions) -> io::Result<()> {
    let stdout = os::stdout()?;
    let mut file = File::open(&path)?;
    let mut at = start_of_tail(&mut file, options.lines)?;
    loop {
        at += pass_on(&mut file, at, &stdout)?;
        if !options.follow {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_RETRY);
        // A new day has a new file; a file that shrank begins again.
        if let Some(newer) = newest(place).filter(|newer| *newer != path) {
            pass_on(&mut file, at, &stdout)?;
            (file, path, at) = (File::open(&newer)?, newer, 0);
        } else if length(&path) < at {
            (file, at) = (File::open(&path)?, 0);
        }
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// Where the last `lines` lines begin.
fn start_of_tail(file: &mut File, lines: usize) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; BLOCK_BYTES];
    // The LF of the last line ends it and begins no other.
    let mut wanted = lines + 1;
    if end > 0 && lines > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut buffer[..1])?;
        wanted -= usize::from(buffer[0] != b'\n');
    }
    if lines == 0 {
        return Ok(end);
    }
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES as u64);
        let block = &mut buffer[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        for at in memchr::memrchr_iter(b'\n', block) {
            wanted -= 1;
            if wanted == 0 {
                return Ok(start + at as u64 + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

/// Prints the file from `at` to its end and tells how much that was.
fn pass_on(file: &mut File, at: u64, stdout: &File) -> io::Result<u64> {
    file.seek(SeekFrom::Start(at))?;
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut total = 0;
    loop {
        let read = stdio::read(file, &mut buffer)?;
        if read == 0 {
            return Ok(total);
        }
        stdio::write_all(stdout, &buffer[..read])?;
        total += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_begins_at_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let tail = |text: &[u8], lines| {
            std::fs::write(&path, text).unwrap();
            let at = start_of_tail(&mut File::open(&path).unwrap(), lines).unwrap();
            text[at as usize..].to_vec()
        };
        assert_eq!(tail(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(tail(b"a\nb\nc", 2), b"b\nc");
        assert_eq!(tail(b"a\nb\n", 9), b"a\nb\n");
        assert_eq!(tail(b"a\nb\n", 0), b"");
        assert_eq!(tail(b"", 3), b"");
        let long =
            [b"x".repeat(BLOCK_BYTES - 1), b"\n".to_vec(), b"y".repeat(BLOCK_BYTES), b"\nz\n".to_vec()]
                .concat();
        assert_eq!(tail(&long, 2).len(), BLOCK_BYTES + 3);
        assert_eq!(tail(&long, 3), long);
    }
}
