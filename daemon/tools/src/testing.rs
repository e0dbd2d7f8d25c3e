//! A place of its own for each test: a directory, a session environment, a way to call tools.

use std::path::PathBuf;
use std::sync::Arc;

use atomic_protocol::Raw;
use atomic_protocol::message::{Block, ToolCall};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{Children, SessionEnv, ToolEnvironment, ToolOutput, ToolVariables, UpdateSink};

/// A temporary directory with a `tmp` for spill files beside the cwd.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("cwd")).unwrap();
        std::fs::create_dir(dir.path().join("tmp")).unwrap();
        Place { dir }
    }

    /// A path below the cwd.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("cwd").join(name)
    }

    /// The session's TMPDIR.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub(crate) fn env(&self) -> SessionEnv {
        let mut env: SessionEnv = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")].into_iter().collect();
        env.set("TMPDIR", self.tmp());
        env
    }

    pub(crate) fn environment(&self) -> ToolEnvironment {
        ToolEnvironment {
            cwd: self.dir.path().join("cwd"),
            env: Arc::new(self.env()),
            session_id: "session-1".into(),
            session_file: None,
            shell_path: None,
            shell_command_prefix: None,
            resize_images: true,
            umask: None,
            children: Children::without_guard(),
        }
    }

    /// Runs one call to its end.
    pub(crate) async fn call(&self, tool: &str, arguments: serde_json::Value) -> ToolOutput {
        self.call_with(tool, arguments, CancellationToken::new(), UpdateSink::discard()).await
    }

    pub(crate) async fn call_with(
        &self,
        tool: &str,
        arguments: serde_json::Value,
        cancel: CancellationToken,
        updates: UpdateSink,
    ) -> ToolOutput {
        let call = call(tool, &arguments);
        crate::run(&call, &ToolVariables::default(), &self.environment(), cancel, updates).await
    }

    /// Runs one call in another environment than [`Place::environment`].
    pub(crate) async fn call_in(
        &self,
        environment: &ToolEnvironment,
        tool: &str,
        arguments: serde_json::Value,
    ) -> ToolOutput {
        let call = call(tool, &arguments);
        let (cancel, updates) = (CancellationToken::new(), UpdateSink::discard());
        crate::run(&call, &ToolVariables::default(), environment, cancel, updates).await
    }
}

fn call(tool: &str, arguments: &serde_json::Value) -> ToolCall {
    ToolCall {
        id: "c1".into(),
        name: tool.into(),
        arguments: Raw::from_serialize(arguments),
        thought_signature: None,
    }
}

/// The text of a result; panics when its first block is none.
pub(crate) fn text(output: &ToolOutput) -> &str {
    output.content.first().and_then(Block::as_text).expect("a text block")
}

/// The details as a value.
pub(crate) fn details(output: &ToolOutput) -> serde_json::Value {
    output.details.as_ref().map_or(serde_json::Value::Null, |raw| raw.read().unwrap())
}
