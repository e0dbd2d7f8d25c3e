//! From the path a model wrote to a path of this session. Not a sandbox: absolute paths and `..` are allowed.

use std::path::{Component, Path, PathBuf};

use unicode_normalization::UnicodeNormalization as _;

use crate::environment::ToolEnvironment;

/// The absolute path that `written` means: one leading `@` goes, Unicode spaces become plain ones, `~` is the session's
/// home, `file://` is understood, the rest starts at the session's cwd. `.` and `..` are resolved in the text.
pub(crate) fn resolve(written: &str, environment: &ToolEnvironment) -> PathBuf {
    let plain = plain_spaces(written.strip_prefix('@').unwrap_or(written));
    let home = environment.env.home();
    let path = match (plain.as_str(), home) {
        ("~", Some(home)) => home.to_owned(),
        (text, home) => match (text.strip_prefix("~/").or_else(|| windows_home(text)), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => match file_url(text) {
                Some(path) => path,
                None => PathBuf::from(text),
            },
        },
    };
    lexical(&environment.cwd.join(path))
}

/// [`resolve`] for an existing file: also tries the spellings that macOS gives to names a model tends to normalise. When
/// none exists the plain path is returned, so that the error names what was asked for.
pub(crate) fn resolve_existing(written: &str, environment: &ToolEnvironment) -> PathBuf {
    let plain = resolve(written, environment);
    if plain.symlink_metadata().is_ok() {
        return plain;
    }
    let Some(text) = plain.to_str() else { return plain };
    let decomposed: String = text.nfd().collect();
    let spellings = [
        text.replace(" AM.", "\u{202f}AM.").replace(" PM.", "\u{202f}PM."),
        decomposed.clone(),
        text.replace('\'', "\u{2019}"),
        decomposed.replace('\'', "\u{2019}"),
    ];
    let found =
        spellings.into_iter().filter(|s| s != text).map(PathBuf::from).find(|s| s.symlink_metadata().is_ok());
    found.unwrap_or(plain)
}

fn plain_spaces(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
            c => c,
        })
        .collect()
}

fn windows_home(text: &str) -> Option<&str> {
    if cfg!(windows) { text.strip_prefix("~\\") } else { None }
}

/// The path of a `file://` URL of this machine.
fn file_url(text: &str) -> Option<PathBuf> {
    let rest = text.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return None;
    }
    let decoded = percent_decoded(rest)?;
    // `/C:/x` on Windows is `C:/x`.
    let drive = decoded.as_bytes().get(2) == Some(&b':');
    let path = if cfg!(windows) && drive { &decoded[1..] } else { &decoded };
    Some(PathBuf::from(path))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// `.` and `..` resolved without looking at the disk, as Node resolves them.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// The file behind all links, or for a path that does not exist yet its deepest existing parent's, so that two spellings
/// of one file give one key. Blocking.
pub(crate) fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        if let Ok(real) = at.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        match (at.parent(), at.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                at = parent;
            }
            _ => return path.to_owned(),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::testing::Place;

    #[test]
    fn what_a_model_writes_becomes_a_path_of_the_session() {
        let place = Place::new();
        let mut environment = place.environment();
        environment.cwd = "/base dir".into();
        environment.env = std::sync::Arc::new([("HOME", "/home/u")].into_iter().collect());
        for (written, expected) in [
            ("a/b", "/base dir/a/b"),
            ("@a", "/base dir/a"),
            ("@@a", "/base dir/@a"),
            ("./x/../y", "/base dir/y"),
            ("../../..", "/"),
            ("/abs", "/abs"),
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("~other/x", "/base dir/~other/x"),
            ("a\u{a0}b\u{202f}c", "/base dir/a b c"),
            ("file:///etc/a%20b", "/etc/a b"),
            ("file://localhost/etc", "/etc"),
        ] {
            assert_eq!(resolve(written, &environment), Path::new(expected), "{written}");
        }
    }

    #[test]
    fn spellings_of_macos_are_found() {
        let place = Place::new();
        place.write("Shot 1.02\u{202f}PM.png", "");
        place.write("cafe\u{301}.txt", "");
        place.write("it\u{2019}s.txt", "");
        let find = |written: &str| resolve_existing(written, &place.environment()).exists();
        assert!(find("Shot 1.02 PM.png"));
        assert!(find("caf\u{e9}.txt"));
        assert!(find("it's.txt"));
        assert!(resolve_existing("none's", &place.environment()).ends_with("none's"));
    }

    #[test]
    fn one_file_has_one_key() {
        let place = Place::new();
        place.write("real/a", "");
        std::os::unix::fs::symlink(place.path("real"), place.path("link")).unwrap();
        assert_eq!(real(&place.path("link/a")), real(&place.path("real/a")));
        assert_eq!(real(&place.path("link/new/b")), real(&place.path("real/new/b")));
    }
}
