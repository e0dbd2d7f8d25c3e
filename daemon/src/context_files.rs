//! Files on disk that tell a model about the user and the project (`AGENTS.md` and its kin).
//!
//! Each directory gives at most one. They are read when a session is loaded and at `reload`, by whoever may block.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use atomic_protocol::json;

/// Names a context file can have; the first one that a directory holds counts.
pub(crate) const NAMES: [&str; 5] =
    ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];

/// Most bytes taken from one context file. It stands before every request to a model: a file above this is a mistake, and
/// one mistake must not fill the daemon's memory.
pub const MAX_BYTES: usize = 1 << 20;

/// Most bytes read of the small files by which git links a worktree to its repository; they hold one path.
const MAX_LINK_BYTES: u64 = 64 << 10;

/// A context file as it goes into the system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Where it stands, as it was found: symbolic links are not followed in the name.
    pub path: PathBuf,
    /// Its text without a byte order mark, at most [`MAX_BYTES`]; bytes that are not UTF-8 are U+FFFD.
    pub content: String,
}

/// The context files for a session in `cwd`, in the order a model is to read them, and a warning for each that could not
/// be read or is too large.
///
/// First come those of `legacy_agent_dir` and `agent_dir`, then those of each directory from the root of the file system
/// down to `cwd`, which must be absolute. A file found twice (by its real path) counts once. In a git worktree that lies
/// inside the main checkout, the main checkout's own copy of the worktree's file is left out.
///
/// `project` says whether the user trusts the project. What these files say steers a model that runs commands with the
/// user's rights, and a directory that was just cloned may say anything; so without trust only the agent directories are
/// looked at, and nothing at or above `cwd` is even opened.
///
/// `previous` are path and content of files found before: one of them that cannot be read now stays as it was.
pub fn discover(
    agent_dir: &Path,
    legacy_agent_dir: Option<&Path>,
    cwd: &Path,
    project: bool,
    previous: &[(String, String)],
) -> (Vec<ContextFile>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut files: Vec<ContextFile> = legacy_agent_dir
        .into_iter()
        .chain([agent_dir])
        .filter_map(|dir| first_in(dir, previous, &mut warnings))
        .collect();
    if project {
        let mut directories: Vec<&Path> = cwd.ancestors().collect();
        directories.reverse();
        let mut found: Vec<ContextFile> =
            directories.into_iter().filter_map(|dir| first_in(dir, previous, &mut warnings)).collect();
        if let Some(copy) = hidden_copy(cwd, &found) {
            found.retain(|file| real(&file.path) != copy);
        }
        files.append(&mut found);
    }
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(real(&file.path)));
    (files, warnings)
}

/// The first name in `dir` that is a regular file which can be read.
fn first_in(dir: &Path, previous: &[(String, String)], warnings: &mut Vec<String>) -> Option<ContextFile> {
    NAMES.iter().find_map(|name| {
        let path = dir.join(name);
        // Asked before opening: to open a named pipe would wait for its writer.
        let read = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => read_bounded(&path),
            Ok(_) => return None,
            Err(error) if is_absent(&error) => return None,
            Err(error) => Err(error),
        };
        match read {
            Ok((content, whole)) => {
                if !whole {
                    warnings.push(format!(
                        "{} is larger than {} KiB; only its beginning is used. Shorten it.",
                        path.display(),
                        MAX_BYTES >> 10
                    ));
                }
                Some(ContextFile { path, content })
            }
            Err(error) => {
                let known = previous.iter().find(|(known, _)| Path::new(known) == path);
                let outcome = if known.is_some() { "what it said before stays" } else { "it is not used" };
                warnings.push(format!("cannot read {}: {error}; {outcome}", path.display()));
                known.map(|(_, content)| ContextFile { path, content: content.clone() })
            }
        }
    })
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The text of a file, cut to [`MAX_BYTES`], and whether that is all of it.
pub(crate) fn read_bounded(path: &Path) -> io::Result<(String, bool)> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() <= MAX_BYTES;
    if !whole {
        // Not within a character: a byte 10xxxxxx continues one.
        let end = (0..=MAX_BYTES).rev().find(|&at| bytes[at] & 0xC0 != 0x80).unwrap_or(0);
        bytes.truncate(end);
    }
    let text = json::text(&bytes);
    Ok((text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(), whole))
}

/// When `cwd` is in a linked git worktree that lies inside its main checkout, the real path of the file in the main
/// checkout of which the worktree has its own copy.
///
/// A worktree's `.git` is a file that names its git directory, whose `commondir` names the repository's. Only when that
/// one is the `.git` of the directory it lies in is there a main checkout: a bare repository has none, and a submodule's
/// git directory has no `commondir`.
fn hidden_copy(cwd: &Path, found: &[ContextFile]) -> Option<PathBuf> {
    let worktree = cwd.ancestors().find(|dir| dir.join(".git").exists())?;
    let link = read_link_file(&worktree.join(".git"))?;
    let git_dir = worktree.join(link.strip_prefix("gitdir:")?.trim());
    let common = git_dir.join(read_link_file(&git_dir.join("commondir"))?.trim()).canonicalize().ok()?;
    let main = common.parent()?;
    let nested = worktree.canonicalize().is_ok_and(|worktree| worktree != main && worktree.starts_with(main));
    if !nested || main.join(".git").canonicalize().ok()? != common {
        return None;
    }
    let own = found.iter().find(|file| file.path.parent() == Some(worktree))?;
    Some(real(&main.join(own.path.file_name().unwrap_or(OsStr::new("")))))
}

fn read_link_file(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_LINK_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A directory tree whose real path is known.
    struct Tree {
        _dir: TempDir,
        root: PathBuf,
    }

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            let dir = TempDir::new().unwrap();
            let tree = Tree { root: dir.path().canonicalize().unwrap(), _dir: dir };
            for (path, content) in files {
                tree.write(path, content);
            }
            tree
        }

        fn write(&self, path: &str, content: impl AsRef<[u8]>) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Paths below the root with their contents, for a session in `cwd`; agent directories `old` and `agent`.
        fn discover(&self, cwd: &str, project: bool) -> (Vec<(String, String)>, Vec<String>) {
            let at = |path: &str| self.root.join(path);
            let (files, warnings) = discover(&at("agent"), Some(&at("old")), &at(cwd), project, &[]);
            let files = files
                .into_iter()
                .map(|file| {
                    let path = file.path.strip_prefix(&self.root).expect("nothing outside the tree");
                    (path.to_str().unwrap().replace('\\', "/"), file.content)
                })
                .collect();
            (files, warnings)
        }

        fn names(&self, cwd: &str, project: bool) -> Vec<String> {
            let (files, warnings) = self.discover(cwd, project);
            assert_eq!(warnings, [""; 0]);
            files.into_iter().map(|(path, _)| path).collect()
        }
    }

    #[test]
    fn agent_directories_come_first_then_root_to_cwd() {
        let tree = Tree::new(&[
            ("old/CLAUDE.md", "1"),
            ("agent/AGENTS.md", "2"),
            ("p/AGENTS.override.md", "3"),
            ("p/AGENTS.md", "hidden by the override"),
            ("p/q/other.md", "no name of ours"),
            ("p/q/r/CLAUDE.md", "\u{feff}4"),
            ("p/q/r/below/AGENTS.md", "below cwd"),
        ]);
        let (files, warnings) = tree.discover("p/q/r", true);
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(
            files,
            [
                ("old/CLAUDE.md", "1"),
                ("agent/AGENTS.md", "2"),
                ("p/AGENTS.override.md", "3"),
                ("p/q/r/CLAUDE.md", "4")
            ]
        );
        assert_eq!(warnings, [""; 0]);
        assert_eq!(tree.names("p/q/r", false), ["old/CLAUDE.md", "agent/AGENTS.md"], "without trust");
        assert_eq!(tree.names("not/there", true), ["old/CLAUDE.md", "agent/AGENTS.md"]);
    }

    #[test]
    fn a_file_reached_twice_counts_once() {
        let tree = Tree::new(&[("agent/AGENTS.md", "x"), ("agent/sub/AGENTS.md", "y")]);
        assert_eq!(tree.names("agent/sub", true), ["agent/AGENTS.md", "agent/sub/AGENTS.md"]);
    }

    #[test]
    fn what_is_no_regular_file_is_passed_over() {
        let tree = Tree::new(&[("p/AGENTS.md/inside", ""), ("p/CLAUDE.md", "x")]);
        assert_eq!(tree.names("p", true), ["p/CLAUDE.md"]);
    }

    #[test]
    fn a_large_file_is_cut_between_characters_and_warned_about() {
        let tree = Tree::new(&[]);
        for (before, kept) in
            [(MAX_BYTES, MAX_BYTES), (MAX_BYTES - 1, MAX_BYTES - 1), (MAX_BYTES - 2, MAX_BYTES)]
        {
            tree.write("p/AGENTS.md", "a".repeat(before) + "é and more");
            let (files, warnings) = tree.discover("p", true);
            assert_eq!(files[0].1.len(), kept);
            assert!(!files[0].1.contains('\u{fffd}'));
            assert!(
                warnings.len() == 1 && warnings[0].contains("AGENTS.md is larger than 1024 KiB"),
                "{warnings:?}"
            );
        }
        tree.write("p/AGENTS.md", "a".repeat(MAX_BYTES));
        let (files, warnings) = tree.discover("p", true);
        assert_eq!((files[0].1.len(), warnings.len()), (MAX_BYTES, 0), "exactly the limit is whole");
        tree.write("p/AGENTS.md", vec![0x80; MAX_BYTES + 2]);
        assert_eq!(tree.discover("p", true).0[0].1, "", "no character begins in it");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let tree = Tree::new(&[]);
        tree.write("p/AGENTS.md", b"a\xffb");
        assert_eq!(tree.discover("p", true).0[0].1, "a\u{fffd}b");
    }

    #[test]
    fn a_worktree_inside_the_main_checkout_hides_its_copy() {
        let tree = Tree::new(&[
            ("main/.git/HEAD", ""),
            ("main/.git/worktrees/w/commondir", "../..\n"),
            ("main/AGENTS.md", "main"),
            ("main/trees/AGENTS.md", "between"),
            ("main/trees/w/AGENTS.md", "own"),
            ("main/trees/w/sub/CLAUDE.md", "sub"),
        ]);
        let git_dir = tree.root.join("main/.git/worktrees/w");
        tree.write("main/trees/w/.git", format!("gitdir: {}\n", git_dir.display()));
        assert_eq!(
            tree.names("main/trees/w/sub", true),
            ["main/trees/AGENTS.md", "main/trees/w/AGENTS.md", "main/trees/w/sub/CLAUDE.md"]
        );
        // Another name is no copy, and neither is a file the worktree does not have.
        tree.write("main/AGENTS.override.md", "local");
        assert_eq!(tree.names("main/trees/w", true)[0], "main/AGENTS.override.md");
        fs::remove_file(tree.root.join("main/AGENTS.override.md")).unwrap();
        fs::remove_file(tree.root.join("main/trees/w/AGENTS.md")).unwrap();
        assert_eq!(tree.names("main/trees/w", true)[0], "main/AGENTS.md");
    }

    #[test]
    fn other_git_layouts_hide_nothing() {
        let tree = Tree::new(&[
            ("a/.git/HEAD", ""),
            ("a/.git/modules/s/HEAD", ""),
            ("a/AGENTS.md", "parent"),
            ("a/s/.git", "gitdir: ../.git/modules/s"),
            ("a/s/AGENTS.md", "submodule"),
            ("b/.bare/worktrees/w/commondir", "../.."),
            ("b/AGENTS.md", "around a bare repository"),
            ("b/w/.git", "gitdir: ../.bare/worktrees/w"),
            ("b/w/AGENTS.md", "worktree"),
        ]);
        assert_eq!(tree.names("a/s", true), ["a/AGENTS.md", "a/s/AGENTS.md"]);
        assert_eq!(tree.names("b/w", true), ["b/AGENTS.md", "b/w/AGENTS.md"]);
    }

    #[cfg(unix)]
    mod unix {
        use super::*;
        use std::os::unix::fs::symlink;

        #[test]
        fn an_unreadable_file_is_a_warning_and_the_next_name_counts() {
            let tree = Tree::new(&[("p/CLAUDE.md", "x")]);
            // A link to itself cannot be read by anybody, not even by root.
            symlink("AGENTS.md", tree.root.join("p/AGENTS.md")).unwrap();
            let (files, warnings) = tree.discover("p", true);
            assert_eq!(files, [("p/CLAUDE.md".to_owned(), "x".to_owned())]);
            assert!(warnings.len() == 1 && warnings[0].contains("p/AGENTS.md: "), "{warnings:?}");
            let path = tree.root.join("p/AGENTS.md");
            let previous = [(path.to_str().unwrap().to_owned(), "before".to_owned())];
            let (files, warnings) = discover(&tree.root, None, &tree.root.join("p"), true, &previous);
            assert_eq!(files, [ContextFile { path, content: "before".to_owned() }]);
            assert!(
                warnings.len() == 1 && warnings[0].ends_with("what it said before stays"),
                "{warnings:?}"
            );
        }

        #[test]
        fn links_are_followed_and_known_again() {
            let tree = Tree::new(&[("agent/AGENTS.md", "x"), ("p/x", "")]);
            symlink("../agent/AGENTS.md", tree.root.join("p/AGENTS.md")).unwrap();
            assert_eq!(tree.names("p", true), ["agent/AGENTS.md"]);
            fs::remove_file(tree.root.join("agent/AGENTS.md")).unwrap();
            assert_eq!(tree.names("p", true), [""; 0], "a link that leads nowhere is no file");
        }

        #[test]
        fn a_socket_is_not_opened() {
            let tree = Tree::new(&[("p/CLAUDE.md", "x")]);
            let _socket = std::os::unix::net::UnixListener::bind(tree.root.join("p/AGENTS.md")).unwrap();
            assert_eq!(tree.names("p", true), ["p/CLAUDE.md"]);
        }
    }
}
