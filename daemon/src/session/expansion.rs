//! A line that a client sends as prompt, steering or follow-up, before the agent sees it.

use atomic_protocol::event::Event;

use super::actor::Actor;
use crate::resources::expand::{self, Expanded};

impl Actor {
    /// The text that `text` stands for when it names a prompt template or a skill, else itself. So what is queued and
    /// announced is what the model will read.
    pub(super) async fn expanded(&mut self, text: String) -> String {
        if !text.starts_with('/') {
            return text;
        }
        let expanded = if expand::reads_a_file(&text) {
            let (resources, line) = (self.resources.clone(), text.clone());
            let read = tokio::task::spawn_blocking(move || expand::expand(&line, &resources)).await;
            read.unwrap_or_else(|_| Expanded::Failed {
                event: "skill_expansion",
                path: text.clone(),
                error: "Reading it failed; the log of atomicd says why".to_owned(),
            })
        } else {
            expand::expand(&text, &self.resources)
        };
        match expanded {
            Expanded::Text(expanded) => expanded,
            Expanded::AsItWas => text,
            Expanded::Failed { event, path, error } => {
                let event = Event::ExtensionError { extension_path: path, event: event.to_owned(), error };
                self.records.write(&event);
                self.flush();
                text
            }
        }
    }
}
