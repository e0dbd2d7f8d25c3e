//! What `-p` and `--mode json` send: the caller's messages as `prompt` lines.
//!
//! Piped stdin, the files and the first argument are one message, with nothing in between (reference 6); each further
//! argument is one more. All of it is read here and not by the daemon: `@/dev/fd/63` is the caller's own.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Component, Path, PathBuf};

use atomic_protocol::cli::SessionOptions;
use atomic_protocol::image;
use atomic_protocol::json::ObjectWriter;
use base64::Engine as _;

use crate::{os, stdio};

/// The first message while it is put together.
#[derive(Default)]
struct First {
    text: String,
    /// JSON objects.
    images: Vec<Vec<u8>>,
}

/// The `prompt` lines of a command line; empty when there is nothing to say.
///
/// # Errors
/// With a line for stderr, when something cannot be read.
pub(crate) fn lines(options: &SessionOptions, cwd: &Path) -> Result<Vec<u8>, String> {
    let piped = piped().map_err(|error| format!("Error: cannot read stdin: {error}"))?;
    let mut first = First { text: piped.unwrap_or_default(), images: Vec::new() };
    for file in &options.files {
        first.add(&resolve(file, cwd))?;
    }
    let mut further = options.messages.iter();
    let mut out = Vec::new();
    let begun = !first.text.is_empty();
    match further.next() {
        Some(message) => first.text.push_str(message),
        None if !begun => return Ok(out),
        None => {}
    }
    write_line(&first, &mut out);
    for text in further {
        write_line(&First { text: text.clone(), images: Vec::new() }, &mut out);
    }
    Ok(out)
}

/// All of a stdin that is no terminal, trimmed; none when that is nothing.
fn piped() -> std::io::Result<Option<String>> {
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let stdin = os::stdin()?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stdio::read(&stdin, &mut buffer)? {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

impl First {
    /// A text goes into the message, an image beside it; an empty file is nothing.
    fn add(&mut self, path: &Path) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("Error: File not found: {}", path.display()),
            _ => format!("Error: cannot read {}: {error}", path.display()),
        })?;
        if bytes.is_empty() {
            return Ok(());
        }
        let name = path.display();
        // Writing to a string does not fail.
        let _ = match image::mime_type(&bytes[..bytes.len().min(image::SNIFF_BYTES)]) {
            None => {
                write!(self.text, "<file name=\"{name}\">\n{}\n</file>\n", String::from_utf8_lossy(&bytes))
            }
            Some(_) if image::base64_length(bytes.len() as u64) > image::MAX_BASE64 => writeln!(
                self.text,
                "<file name=\"{name}\">[Image omitted: it is larger than {} bytes.]</file>",
                image::MAX_BASE64 / 4 * 3
            ),
            Some(mime_type) => {
                let mut image = Vec::new();
                let mut object = ObjectWriter::begin(&mut image);
                object.str("type", "image");
                object.str("data", &base64::prelude::BASE64_STANDARD.encode(&bytes));
                object.str("mimeType", mime_type);
                object.end();
                self.images.push(image);
                writeln!(self.text, "<file name=\"{name}\"></file>")
            }
        };
        Ok(())
    }
}

fn write_line(message: &First, out: &mut Vec<u8>) {
    let mut object = ObjectWriter::begin(out);
    object.str("type", "prompt").str("message", &message.text);
    if !message.images.is_empty() {
        let mut images = vec![b'['];
        images.extend(message.images.join(&b','));
        images.push(b']');
        object.raw("images", &images);
    }
    object.end();
    out.push(b'\n');
}

/// The file's absolute path, without `.` and `..`: what the model reads should be the plain name.
fn resolve(file: &OsStr, cwd: &Path) -> PathBuf {
    let given = Path::new(file);
    let whole = match (given.strip_prefix("~"), atomic_link::place::home()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => cwd.join(given),
    };
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_plain() {
        let cwd = std::env::temp_dir();
        for (given, want) in [
            ("a.txt", cwd.join("a.txt")),
            ("./b/../a.txt", cwd.join("a.txt")),
            ("x/y", cwd.join("x").join("y")),
        ] {
            assert_eq!(resolve(OsStr::new(given), &cwd), want, "{given}");
        }
        let absolute = cwd.join("z");
        assert_eq!(resolve(absolute.as_os_str(), Path::new("/elsewhere")), absolute);
    }

    #[test]
    fn files_are_told_by_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (text, image) = (file("a.png", b"plain \xff text"), file("b.txt", b"GIF89a..."));
        let mut first = First::default();
        first.add(&text).unwrap();
        first.add(&file("empty", b"")).unwrap();
        first.add(&image).unwrap();
        let want = format!(
            "<file name=\"{}\">\nplain \u{fffd} text\n</file>\n<file name=\"{}\"></file>\n",
            text.display(),
            image.display()
        );
        assert_eq!(first.text, want);
        let mut line = Vec::new();
        write_line(&first, &mut line);
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let image = serde_json::json!({"type": "image", "data": "R0lGODlhLi4u", "mimeType": "image/gif"});
        assert_eq!(line, serde_json::json!({"type": "prompt", "message": want, "images": [image]}));

        let mut large = b"GIF89a".to_vec();
        large.resize((image::MAX_BASE64 / 4 * 3) as usize + 1, 0);
        let mut first = First::default();
        first.add(&file("large", &large)).unwrap();
        assert!(first.images.is_empty() && first.text.contains("[Image omitted:"), "{}", first.text);
        let missing = dir.path().join("missing");
        assert_eq!(
            First::default().add(&missing),
            Err(format!("Error: File not found: {}", missing.display()))
        );
    }
}
