//! What must hold of what a window heard and of what is in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::peer::{Peer, is_answer};

/// What all windows of a round were told, and what was wrong with it.
#[derive(Default)]
pub(super) struct Told {
    /// Texts of users' messages that ended.
    pub(super) users: BTreeSet<String>,
    /// The most complete answers that any one window heard.
    pub(super) answers: usize,
    pub(super) wrong: Vec<String>,
}

impl Told {
    /// Looks through what one window heard.
    pub(super) fn hear(&mut self, name: &str, peer: &Peer) {
        let records = peer.records();
        for line in peer.garbage().iter().filter(|_| !peer.killed) {
            self.wrong.push(format!("{name}: a line is no record: {line:?}"));
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for record in records.iter().filter(|record| is_answer(record)) {
            *counts.entry(record["id"].as_str().unwrap_or("(none)")).or_default() += 1;
        }
        for id in &peer.sent {
            match counts.remove(id.as_str()) {
                Some(1) => {}
                None if peer.killed => {}
                count => self.wrong.push(format!("{name}: {id} was answered {} times", count.unwrap_or(0))),
            }
        }
        self.wrong.extend(counts.keys().map(|id| format!("{name}: an answer for {id}, which was not sent")));
        self.follow(name, &records, peer.killed);
    }

    /// Follows the runs of one window.
    fn follow(&mut self, name: &str, records: &[Value], cut: bool) {
        let (mut agent, mut unsettled) = (false, false);
        // The model's message that is open, as it is known from its beginning and its deltas.
        let mut open: Option<String> = None;
        let (mut users, mut answers) = (BTreeSet::new(), 0);
        for (at, record) in records.iter().enumerate() {
            let kind = record["type"].as_str().unwrap_or_default();
            let message = &record["message"];
            let mut wrong = |what: &str| self.wrong.push(format!("{name}: record {at} ({kind}): {what}"));
            match kind {
                "agent_start" => {
                    if agent {
                        wrong("a run is open already");
                    }
                    (agent, unsettled) = (true, true);
                }
                "agent_end" => {
                    if !agent || open.is_some() {
                        wrong("no run is open, or a message is");
                    }
                    agent = false;
                }
                "agent_settled" => {
                    if agent || !unsettled {
                        wrong("nothing is to settle");
                    }
                    unsettled = false;
                }
                "message_start" if message["role"] == "assistant" => {
                    if !agent || open.is_some() {
                        wrong("a message is open already, or no run");
                    }
                    open = Some(text_of(message));
                }
                "message_update" => match &mut open {
                    None => wrong("no message is open"),
                    Some(text) => {
                        let event = &record["assistantMessageEvent"];
                        if event["type"] == "text_delta" {
                            text.push_str(event["delta"].as_str().unwrap_or_default());
                        }
                    }
                },
                "message_end" if message["role"] == "assistant" => {
                    let streamed = open.take();
                    if streamed.is_none() {
                        wrong("no message is open");
                    }
                    if message["stopReason"] == "stop" {
                        answers += 1;
                        if streamed.is_some_and(|streamed| streamed != text_of(message)) {
                            wrong("its text is not what was streamed");
                        }
                    }
                }
                "message_end" if message["role"] == "user" => {
                    let text = text_of(message);
                    if !users.insert(text.clone()) {
                        wrong(&format!("{text:?} was announced before"));
                    }
                }
                _ => {}
            }
        }
        if !cut && (agent || unsettled || open.is_some()) {
            self.wrong.push(format!("{name}: a run is left open"));
        }
        self.answers = self.answers.max(answers);
        self.users.extend(users);
    }

    /// Looks through the session's file.
    pub(super) fn read(&mut self, file: &Path) {
        let text = std::fs::read(file).unwrap_or_default();
        let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let is_header = |line: &[u8]| {
            serde_json::from_slice::<Value>(line)
                .is_ok_and(|header| header["type"] == "session" && header["version"] == 3)
        };
        if !lines.next().is_some_and(is_header) {
            self.wrong.push(format!("{} has no header", file.display()));
        }
        let mut ids = BTreeSet::new();
        let mut users: BTreeMap<String, usize> = BTreeMap::new();
        let mut answers = 0;
        for line in lines {
            let Ok(entry) = serde_json::from_slice::<Value>(line) else {
                let line = String::from_utf8_lossy(line);
                self.wrong.push(format!("the file has a line that is no entry: {line:?}"));
                continue;
            };
            let parent = &entry["parentId"];
            if !parent.is_null() && !parent.as_str().is_some_and(|parent| ids.contains(parent)) {
                self.wrong
                    .push(format!("the file has an entry whose parent does not come before it: {entry}"));
            }
            if !ids.insert(entry["id"].as_str().unwrap_or_default().to_owned()) {
                self.wrong.push(format!("the file has an id twice: {entry}"));
            }
            let message = &entry["message"];
            match message["role"].as_str() {
                Some("user") => *users.entry(text_of(message)).or_default() += 1,
                Some("assistant") if message["stopReason"] == "stop" => answers += 1,
                _ => {}
            }
        }
        for text in &self.users {
            if !users.contains_key(text) {
                self.wrong.push(format!("announced and not in the file: {text:?}"));
            }
        }
        for (text, count) in users.iter().filter(|(_, count)| **count > 1) {
            self.wrong.push(format!("{count} times in the file: {text:?}"));
        }
        if answers < self.answers {
            self.wrong.push(format!("{} answers were announced, {answers} are in the file", self.answers));
        }
    }
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        content => {
            let blocks = content.as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect()
        }
    }
}
