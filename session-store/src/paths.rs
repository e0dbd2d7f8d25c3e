//! Where a session's file lies. Pure: no path here is looked at on disk.

use std::path::{Path, PathBuf};

use atomic_protocol::time::Millis;

/// The folder name for a working directory: one leading separator dropped, then every `/`, `\` and `:` a dash, between
/// two dashes on each side. Lossy (`/a/b-c` and `/a-b/c` are one folder): the header's `cwd` is the truth.
pub fn encode_cwd(cwd: &str) -> String {
    let inner = cwd.strip_prefix(['/', '\\']).unwrap_or(cwd);
    format!("--{}--", inner.replace(['/', '\\', ':'], "-"))
}

/// `<agent_dir>/sessions/<encoded cwd>`.
pub fn default_session_dir(agent_dir: &Path, cwd: &str) -> PathBuf {
    agent_dir.join("sessions").join(encode_cwd(cwd))
}

/// `<time, ':' and '.' as dashes>_<id>.jsonl`.
pub fn session_file_name(created: Millis, id: &str) -> String {
    format!("{}_{id}.jsonl", created.iso().replace([':', '.'], "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leading_separator_is_dropped_and_the_rest_becomes_dashes() {
        for (cwd, folder) in [
            ("/home/u/p", "--home-u-p--"),
            ("/", "----"),
            ("//server/share", "---server-share--"),
            ("C:\\x", "--C--x--"),
            ("\\\\host\\s", "---host-s--"),
            ("/a/b-c", "--a-b-c--"),
            ("/a-b/c", "--a-b-c--"),
        ] {
            assert_eq!(encode_cwd(cwd), folder, "{cwd}");
        }
    }

    #[test]
    fn file_name_and_folder() {
        assert_eq!(
            session_file_name(Millis(1_733_234_567_890), "0198-x"),
            "2024-12-03T14-02-47-890Z_0198-x.jsonl"
        );
        assert_eq!(default_session_dir(Path::new("/g"), "/w"), Path::new("/g/sessions/--w--"));
    }
}
