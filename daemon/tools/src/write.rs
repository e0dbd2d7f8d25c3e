//! write: a whole file.
//!
//! Files are written in place: opened through links, overwritten, then cut to length. A temporary file and a rename would
//! survive a crash half-way, but give the file a new inode, and with it break hard links, links to the file, its owner,
//! access lists, bind mounts and every program that watches it: things that happen daily, against a crash within a
//! millisecond. What was to be written is in the session file already, so nothing is lost for good.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

use crate::environment::ToolEnvironment;
use crate::error::ToolError;
use crate::run::text_argument;
use crate::{ToolOutput, paths, process};

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(arguments, "path").unwrap_or_default();
    let content = text_argument(arguments, "content").unwrap_or_default();
    let path = paths::resolve(written, environment);
    let is_new = !path.exists();
    if let Some(parent) = path.parent() {
        let missing: Vec<&Path> = parent.ancestors().take_while(|dir| !dir.exists()).collect();
        std::fs::create_dir_all(parent).map_err(|error| ToolError::os("mkdir", parent, error))?;
        for dir in missing {
            process::apply_umask(dir, 0o777, environment.umask);
        }
    }
    put(&path, content.as_bytes())?;
    if is_new {
        process::apply_umask(&path, 0o666, environment.umask);
    }
    // The reference counts UTF-16 units and calls them bytes.
    let units = content.encode_utf16().count();
    Ok(ToolOutput::text(format!("Successfully wrote {units} bytes to {written}")))
}

/// Makes `bytes` the content of the file. It is cut to length last, so that it is never empty in between.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<(), ToolError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    process::refuse_to_block(&mut options);
    let mut file = options.open(path).map_err(|error| ToolError::os("open", path, error))?;
    let meta = file.metadata().map_err(|error| ToolError::os("stat", path, error))?;
    if !meta.is_file() {
        let path = path.display();
        return Err(ToolError::refused(format!(
            "{path} is not a regular file; FIFOs, sockets and devices are not written"
        )));
    }
    file.write_all(bytes).map_err(|error| ToolError::os("write", path, error))?;
    file.set_len(bytes.len() as u64).map_err(|error| ToolError::os("write", path, error))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Place, text};
    use serde_json::json;

    #[tokio::test]
    async fn files_are_made_with_their_directories_and_replaced() {
        let place = Place::new();
        let output = place.call("write", json!({"path":"a/b/c.txt","content":"é😀x"})).await;
        assert_eq!(text(&output), "Successfully wrote 4 bytes to a/b/c.txt");
        place.call("write", json!({"path":"a/b/c.txt","content":"z"})).await;
        assert_eq!(place.read("a/b/c.txt"), "z");
        let output = place.call("write", json!({"path":"a/b","content":""})).await;
        assert!(output.is_error && text(&output).starts_with("EISDIR: "), "{}", text(&output));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn what_is_new_gets_the_umask_of_the_session() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = Place::new();
        let environment = crate::ToolEnvironment { umask: Some(0o027), ..place.environment() };
        for (tool, arguments) in
            [("write", json!({"path":"d/e/f","content":"x"})), ("bash", json!({"command":"touch made"}))]
        {
            place.call_in(&environment, tool, arguments).await;
        }
        let mode = |path: &str| std::fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("d"), mode("d/e"), mode("d/e/f"), mode("made")], [0o750, 0o750, 0o640, 0o640]);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn links_stay_what_they_are() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
        let place = Place::new();
        place.write("real", "old and longer");
        std::fs::set_permissions(place.path("real"), std::fs::Permissions::from_mode(0o754)).unwrap();
        std::fs::hard_link(place.path("real"), place.path("hard")).unwrap();
        symlink("real", place.path("soft")).unwrap();
        symlink("new", place.path("dangling")).unwrap();
        place.call("write", json!({"path":"soft","content":"short"})).await;
        place.call("write", json!({"path":"dangling","content":"made"})).await;
        assert_eq!((place.read("hard").as_str(), place.read("new").as_str()), ("short", "made"));
        let meta = place.path("real").metadata().unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o754, 2));
        assert!(place.path("soft").is_symlink());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn devices_and_fifos_are_refused_without_waiting() {
        let place = Place::new();
        let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap();
        assert!(made.success());
        // Without a reader the system refuses at once (ENXIO); with one we do.
        let output = place.call("write", json!({"path":"fifo","content":"x"})).await;
        assert!(output.is_error);
        let output = place.call("write", json!({"path":"/dev/null","content":"x"})).await;
        assert!(text(&output).contains("is not a regular file"), "{}", text(&output));
    }
}
