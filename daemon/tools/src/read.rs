//! read: a text file in part or in full, or an image.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::Path;

use atomic_images::{Fitted, Limits, fit};
use atomic_protocol::image;
use base64::Engine as _;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::ToolEnvironment;
use crate::error::ToolError;
use crate::run::{count_argument, text_argument};
use crate::truncate::{self, MAX_BYTES, MAX_LINES, Truncation};
use crate::{Block, ToolOutput, paths, process};

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Largest image file that is read. The photographs of today's cameras have less.
const MAX_IMAGE_BYTES: u64 = 64 << 20;
/// What is kept of the chosen lines: more than any result can show, so cutting it again gives the right end.
const KEPT: usize = 2 * MAX_BYTES;

#[derive(Serialize)]
struct Details<'a> {
    truncation: &'a Truncation,
}

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(arguments, "path").unwrap_or_default();
    let path = paths::resolve_existing(written, environment);
    let mut file = open_regular(&path)?;
    let mut start = Vec::with_capacity(image::SNIFF_BYTES);
    let sniffed = (&mut file).take(image::SNIFF_BYTES as u64).read_to_end(&mut start);
    sniffed.map_err(|error| ToolError::os("read", &path, error))?;
    if let Some(mime_type) = image::mime_type(&start) {
        return read_image(&path, file, start, mime_type, environment.resize_images);
    }
    let first = count_argument(arguments, "offset").map_or(0, |offset| offset.saturating_sub(1));
    let count = count_argument(arguments, "limit");
    let chosen = choose(&path, file, start, first, count, cancel)?;
    text_result(written, &chosen, first, count)
}

/// Opens a regular file. A FIFO or a device would block or never end.
pub(crate) fn open_regular(path: &Path) -> Result<File, ToolError> {
    let mut options = OpenOptions::new();
    options.read(true);
    process::refuse_to_block(&mut options);
    let file = options.open(path).map_err(|error| ToolError::os("open", path, error))?;
    let meta = file.metadata().map_err(|error| ToolError::os("stat", path, error))?;
    if meta.is_dir() {
        return Err(ToolError::refused(format!(
            "EISDIR: illegal operation on a directory, read '{0}'. {0} is a directory; list it with ls",
            path.display()
        )));
    }
    if !meta.is_file() {
        let path = path.display();
        return Err(ToolError::refused(format!(
            "{path} is not a regular file; FIFOs, sockets and devices are not read"
        )));
    }
    Ok(file)
}

fn read_image(
    path: &Path,
    mut file: File,
    mut bytes: Vec<u8>,
    mime_type: &str,
    resize: bool,
) -> Result<ToolOutput, ToolError> {
    let read = (&mut file).take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| ToolError::os("read", path, error))?;
    let limits = if resize {
        Limits::default()
    } else {
        Limits { max_width: u32::MAX, max_height: u32::MAX, ..Limits::default() }
    };
    let length = bytes.len() as u64;
    let too_large = length > MAX_IMAGE_BYTES || (!resize && image::base64_length(length) > image::MAX_BASE64);
    let fitted = if too_large { Err(atomic_images::Error::TooLarge) } else { fit(&bytes, &limits) };
    match fitted {
        Err(why) => Ok(ToolOutput::text(format!("Read image file [{mime_type}]\n{why}"))),
        Ok(Fitted { bytes: new, mime_type, note }) => {
            let data = base64::engine::general_purpose::STANDARD.encode(new.as_ref().unwrap_or(&bytes));
            let image = Block::Image { data, mime_type: mime_type.to_owned() };
            let note = note.map_or(String::new(), |note| format!("\n{note}"));
            let text = Block::text(format!("Read image file [{mime_type}]{note}"));
            Ok(ToolOutput { content: vec![text, image], ..ToolOutput::default() })
        }
    }
}

/// The chosen lines of a file and what is known of the whole.
struct Chosen {
    /// Their first bytes, [`KEPT`] at most; between lines there are line feeds.
    text: Vec<u8>,
    /// Bytes of all chosen lines.
    bytes: u64,
    /// Bytes of the first chosen line.
    first_line_bytes: u64,
    /// Lines of the file; a trailing line feed does not begin another. An empty file has one.
    total_lines: usize,
}

/// Reads the file once, in bounded memory.
fn choose(
    path: &Path,
    mut file: File,
    start: Vec<u8>,
    first: usize,
    count: Option<usize>,
    cancel: &CancellationToken,
) -> Result<Chosen, ToolError> {
    let end = count.map_or(usize::MAX, |count| first.saturating_add(count));
    let mut chosen = Chosen { text: Vec::new(), bytes: 0, first_line_bytes: 0, total_lines: 0 };
    let mut line = 0;
    let mut line_is_empty = true;
    let mut chunk = start;
    loop {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            let content = if ends { &part[..part.len() - 1] } else { part };
            if line == first {
                chosen.first_line_bytes += content.len() as u64;
            }
            if (first..end).contains(&line) {
                // The line feed belongs to the choice when the next line does as well.
                let taken = if ends && line + 1 < end { part } else { content };
                chosen.bytes += taken.len() as u64;
                let room = KEPT.saturating_sub(chosen.text.len());
                chosen.text.extend_from_slice(&taken[..taken.len().min(room)]);
            }
            line_is_empty = ends;
            line += usize::from(ends);
        }
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        chunk.resize(CHUNK, 0);
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => chunk.truncate(read),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => chunk.clear(),
            Err(error) => return Err(ToolError::os("read", path, error)),
        }
    }
    chosen.total_lines = (line + usize::from(!line_is_empty)).max(1);
    Ok(chosen)
}

/// The result as Pi words it.
fn text_result(
    written: &str,
    chosen: &Chosen,
    first: usize,
    count: Option<usize>,
) -> Result<ToolOutput, ToolError> {
    let total = chosen.total_lines;
    if first >= total {
        let offset = first + 1;
        return Err(ToolError::refused(format!(
            "Offset {offset} is beyond end of file ({total} lines total)"
        )));
    }
    let text = String::from_utf8_lossy(&chosen.text);
    let mut shown = truncate::head(&text, Some(MAX_LINES), MAX_BYTES);
    let last_chosen = count.map_or(total, |count| first.saturating_add(count).min(total));
    shown.total_lines = (last_chosen - first) as u64;
    if chosen.bytes > chosen.text.len() as u64 {
        shown.total_bytes = chosen.bytes;
    }
    let mut out = shown.content.clone();
    let from = first + 1;
    if shown.first_line_exceeds_limit {
        out = format!(
            "[Line {from} is {}, exceeds {} limit. Use bash: sed -n '{from}p' {written} | head -c {MAX_BYTES}]",
            truncate::size(chosen.first_line_bytes),
            truncate::size(MAX_BYTES as u64)
        );
    } else if shown.truncated {
        let to = first + usize::try_from(shown.output_lines).unwrap_or(usize::MAX);
        let why = match shown.truncated_by {
            Some(truncate::TruncatedBy::Bytes) => format!(" ({} limit)", truncate::size(MAX_BYTES as u64)),
            _ => String::new(),
        };
        out.push_str(&format!(
            "\n\n[Showing lines {from}-{to} of {total}{why}. Use offset={} to continue.]",
            to + 1
        ));
    } else if last_chosen < total {
        let left = total - last_chosen;
        out.push_str(&format!(
            "\n\n[{left} more lines in file. Use offset={} to continue.]",
            last_chosen + 1
        ));
    }
    let output = ToolOutput::text(out);
    Ok(if shown.truncated { output.with_details(&Details { truncation: &shown }) } else { output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, details, text};
    use serde_json::json;

    #[tokio::test]
    async fn parts_and_limits_are_told_as_pi_tells_them() {
        let place = Place::new();
        place.write("five", "1\n2\n3\n4\n5\n");
        let many: String = (1..=2500).map(|n| format!("{n}\n")).collect();
        place.write("many", &many);
        place.write("wide", vec!["x".repeat(1023); 60].join("\n"));
        place.write("line", "y".repeat(60 * 1024));
        place.write("empty", "");
        for (arguments, expected) in [
            (json!({"path":"five"}), "1\n2\n3\n4\n5\n"),
            (json!({"path":"five","offset":4}), "4\n5\n"),
            (
                json!({"path":"five","offset":2,"limit":2}),
                "2\n3\n\n[2 more lines in file. Use offset=4 to continue.]",
            ),
            (json!({"path":"five","offset":4,"limit":2}), "4\n5"),
            (json!({"path":"five","offset":0}), "1\n2\n3\n4\n5\n"),
            (json!({"path":"empty"}), ""),
            (json!({"path":"five","offset":6}), "Offset 6 is beyond end of file (5 lines total)"),
            (
                json!({"path":"line"}),
                "[Line 1 is 60.0KB, exceeds 50.0KB limit. Use bash: sed -n '1p' line | head -c 51200]",
            ),
        ] {
            assert_eq!(text(&place.call("read", arguments.clone()).await), expected, "{arguments}");
        }
        let output = place.call("read", json!({"path":"many","offset":101})).await;
        assert!(text(&output).starts_with("101\n"));
        assert!(
            text(&output)
                .ends_with("\n2100\n\n[Showing lines 101-2100 of 2500. Use offset=2101 to continue.]")
        );
        assert_eq!(details(&output)["truncation"]["totalLines"], 2400);
        let output = place.call("read", json!({"path":"wide"})).await;
        assert!(
            text(&output)
                .ends_with("\n\n[Showing lines 1-50 of 60 (50.0KB limit). Use offset=51 to continue.]")
        );
        assert_eq!(details(&output)["truncation"]["content"].as_str().unwrap().len(), 51_199);
    }

    #[tokio::test]
    async fn bytes_are_text_however_broken() {
        let place = Place::new();
        place.write("bad", b"a\r\n\xff\n");
        assert_eq!(text(&place.call("read", json!({"path":"bad"})).await), "a\r\n\u{fffd}\n");
        // A character across the border of two reads.
        let mut wide = "x".repeat(image::SNIFF_BYTES - 1);
        wide.push_str("é\nend");
        place.write("border", &wide);
        assert_eq!(text(&place.call("read", json!({"path":"border"})).await), wide);
    }

    /// Noise of so many pixels as a PNG: three bytes each, and nothing that compresses.
    fn noise(width: u32, height: u32) -> Vec<u8> {
        let mut state = 1_u32;
        let picture = ::image::RgbImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ::image::Rgb([(state >> 24) as u8, (state >> 16) as u8, (state >> 8) as u8])
        });
        let mut png = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut png, ::image::ImageFormat::Png).unwrap();
        png.into_inner()
    }

    #[tokio::test]
    async fn images_are_blocks_and_large_ones_become_smaller() {
        const OMITTED: &str = "[Image omitted: could not be resized below the inline image size limit.]";
        let place = Place::new();
        let small = noise(20, 10);
        // The name does not count.
        place.write("a.gif", &small);
        let output = place.call("read", json!({"path":"a.gif"})).await;
        assert_eq!(text(&output), "Read image file [image/png]");
        let data = base64::engine::general_purpose::STANDARD.encode(&small);
        assert_eq!(output.content[1], Block::Image { data, mime_type: "image/png".into() });

        place.write("wide.png", noise(2500, 4));
        let output = place.call("read", json!({"path":"wide.png"})).await;
        let note = "[Image: original 2500x4, displayed at 2000x3. Multiply coordinates by 1.25 to map to original image.]";
        assert_eq!(text(&output), format!("Read image file [image/png]\n{note}"));

        place.write("heavy.png", noise(1200, 1100));
        let output = place.call("read", json!({"path":"heavy.png"})).await;
        assert_eq!(text(&output), "Read image file [image/jpeg]");
        assert!(matches!(&output.content[1], Block::Image { mime_type, .. } if mime_type == "image/jpeg"));
        let environment = ToolEnvironment { resize_images: false, ..place.environment() };
        let arguments = json!({"path":"heavy.png"}).as_object().unwrap().clone();
        let output = run(&arguments, &environment, &CancellationToken::new()).unwrap();
        assert_eq!(text(&output), format!("Read image file [image/png]\n{OMITTED}"));

        place.write("broken.png", &small[..small.len() / 2]);
        let output = place.call("read", json!({"path":"broken.png"})).await;
        assert_eq!((output.content.len(), output.is_error), (1, false));
        assert_eq!(
            text(&output),
            "Read image file [image/png]\n[Image omitted: could not be converted to a supported inline image format.]"
        );
    }

    #[tokio::test]
    async fn what_is_no_file_is_refused() {
        let place = Place::new();
        let output = place.call("read", json!({"path":"none"})).await;
        let expected = format!("ENOENT: no such file or directory, open '{}'", place.path("none").display());
        assert_eq!((text(&output), output.is_error), (expected.as_str(), true));
        let output = place.call("read", json!({"path":"."})).await;
        assert!(text(&output).contains("is a directory"), "{}", text(&output));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn fifos_and_devices_are_refused_without_waiting() {
        let place = Place::new();
        let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap();
        assert!(made.success());
        for path in ["fifo", "/dev/zero"] {
            let output = place.call("read", json!({"path":path})).await;
            assert!(text(&output).contains("is not a regular file"), "{}", text(&output));
        }
    }
}
