//! The system prompt: what every model call begins with.
//!
//! It is built anew when the model, the thinking level or the tools change, and is the same text for the same parts, so
//! that providers can cache it. What changes most stands last. The order of the sections is that of the reference; the
//! words are ours.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use atomic_protocol::model::ThinkingLevel;
use atomic_protocol::tool::ToolSpec;

/// Who the model is and what it is for, unless the user says otherwise.
const PREAMBLE: &str = "You are atomic, a coding agent. You work in the user's own directory and with the user's own rights: \
                        you read code, run commands, change files and check what you changed. Do what was asked, the \
                        whole of it and nothing beside it, and report what you did and what you could not do.";

/// Guidelines that hold whatever the tools are; they stand behind those of the tools.
const GUIDELINES: [&str; 4] = [
    "Look before you act: read the code that a change touches, and follow its style.",
    "Check a change before you call it done: build it, run its tests, or say that you could not.",
    "Ask before you do what cannot be undone, unless the user asked for exactly that.",
    "Keep answers short, and name files by their paths.",
];

/// Guideline while the shell is the only way to look around.
const SEARCH_WITH_BASH: &str = "Use bash to list and search files (ls, find, rg or grep).";

/// Guideline while there are tools made for looking around beside the shell.
const SEARCH_WITH_TOOLS: &str = "To look for files and text use the tools made for it rather than bash; they are quicker and \
                                 leave out what is ignored.";

/// What a system prompt is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptParts {
    /// Stands in place of the preamble, the tools and the guidelines (`--system-prompt`, `SYSTEM.md`).
    pub custom: Option<String>,
    /// Texts behind that (`--append-system-prompt`, `APPEND_SYSTEM.md`).
    pub append: Vec<String>,
    /// The active tools, in a stable order.
    pub tools: Arc<[ToolSpec]>,
    /// Path and content of the files that tell about the project, in the order they are to be read.
    pub context_files: Vec<(String, String)>,
    /// Skills the model may read, in the order in which they are named; told only while the `read` tool is on.
    pub skills: Vec<SkillSummary>,
    /// The model's display name.
    pub model_name: String,
    /// How much it thinks.
    pub thinking: ThinkingLevel,
    /// The day in the user's time zone, `YYYY-MM-DD`.
    pub date: String,
    /// The session's directory.
    pub cwd: String,
}

/// What a model is told of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSummary {
    /// Its name.
    pub name: String,
    /// What it is for, in the words of its author.
    pub description: String,
    /// The file to read.
    pub location: String,
}

/// The system prompt for `parts`. It ends with the four lines that name the model, its reasoning level, the date and the
/// directory.
pub fn system_prompt(parts: &PromptParts) -> String {
    let mut out = match &parts.custom {
        Some(custom) => custom.trim_end().to_owned(),
        None => standard(&parts.tools),
    };
    for text in &parts.append {
        section(&mut out, text.trim());
    }
    if !parts.context_files.is_empty() {
        section(&mut out, &project_context(&parts.context_files));
    }
    if !parts.skills.is_empty() && parts.tools.iter().any(|tool| tool.name == "read") {
        section(&mut out, &skills(&parts.skills));
    }
    let facts = format!(
        "Model: {}\nReasoning level: {}\nCurrent date: {}\nCurrent working directory: {}\n",
        parts.model_name,
        parts.thinking.as_str(),
        parts.date,
        forward_slashes(&parts.cwd)
    );
    section(&mut out, &facts);
    out
}

/// Adds `text` behind a blank line.
fn section(out: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    if !out.is_empty() {
        out.push_str("\n\n");
    }
    out.push_str(text);
}

fn standard(tools: &[ToolSpec]) -> String {
    let mut out = format!("{PREAMBLE}\n\nAvailable tools:\n");
    let mut listed = tools.iter().filter_map(|tool| Some((&tool.name, tool.snippet.as_deref()?))).peekable();
    if listed.peek().is_none() {
        out.push_str("(none)\n");
    }
    for (name, snippet) in listed {
        // Writing into a string cannot fail.
        let _ = writeln!(out, "- {name}: {}", one_line(snippet));
    }
    out.push_str("\nGuidelines:");
    for guideline in guidelines(tools) {
        let _ = write!(out, "\n- {guideline}");
    }
    out
}

/// The bullets, each once: how to look around, then the tools' own, then ours.
fn guidelines(tools: &[ToolSpec]) -> Vec<String> {
    let has = |name: &str| tools.iter().any(|tool| tool.name == name);
    let search = match (has("bash"), ["grep", "find", "ls"].into_iter().any(has)) {
        (true, false) => Some(SEARCH_WITH_BASH),
        (true, true) => Some(SEARCH_WITH_TOOLS),
        (false, _) => None,
    };
    let of_tools = tools.iter().flat_map(|tool| &tool.guidelines).map(String::as_str);
    let mut seen = HashSet::new();
    search
        .into_iter()
        .chain(of_tools)
        .chain(GUIDELINES)
        .map(one_line)
        .filter(|line| !line.is_empty() && seen.insert(line.clone()))
        .collect()
}

/// A list item is one line, whatever an extension wrote.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn project_context(files: &[(String, String)]) -> String {
    let mut out = "# Project Context\n\nInstructions that the user and the project wrote down for you; where two of them \
                   differ, the later one holds.\n"
        .to_owned();
    for (path, content) in files {
        let path = path.replace('&', "&amp;").replace('"', "&quot;");
        let _ = write!(out, "\n<context_file path=\"{path}\">\n{}\n</context_file>\n", content.trim_end());
    }
    out.truncate(out.trim_end().len());
    out
}

/// The skills as the Agent Skills specification lists them for models.
fn skills(skills: &[SkillSummary]) -> String {
    let mut out = "# Skills\n\nEach of these files says how to do one kind of task. When the task at hand is of that kind, \
                   read the file first. Relative paths in it start from the directory the file is in.\n\n\
                   <available_skills>\n"
        .to_owned();
    for skill in skills {
        let [name, description, location] =
            [&skill.name, &skill.description, &skill.location].map(|text| escaped(text.trim()));
        let _ = write!(
            out,
            "  <skill>\n    <name>{name}</name>\n    <description>{description}</description>\n    \
             <location>{location}</location>\n  </skill>\n"
        );
    }
    out.push_str("</available_skills>");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A Windows path as models and shells there take it. Elsewhere a backslash is part of a name and stays.
fn forward_slashes(path: &str) -> String {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 3 && bytes[0].is_ascii_alphabetic() && &bytes[1..3] == b":\\";
    if drive || path.starts_with(r"\\") { path.replace('\\', "/") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::Raw;

    fn tool(name: &str, snippet: Option<&str>, guidelines: &[&str]) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            description: "told to the model elsewhere".into(),
            parameters: Raw::empty_object(),
            snippet: snippet.map(Into::into),
            guidelines: guidelines.iter().map(|&text| text.into()).collect(),
            sequential: false,
        }
    }

    fn parts(tools: Vec<ToolSpec>) -> PromptParts {
        PromptParts {
            custom: None,
            append: Vec::new(),
            tools: tools.into(),
            context_files: Vec::new(),
            skills: Vec::new(),
            model_name: "M 1".into(),
            thinking: ThinkingLevel::Medium,
            date: "2025-02-03".into(),
            cwd: "/w".into(),
        }
    }

    const FACTS: &str =
        "Model: M 1\nReasoning level: medium\nCurrent date: 2025-02-03\nCurrent working directory: /w\n";

    #[test]
    fn the_whole_of_a_prompt() {
        let mut parts = parts(vec![
            tool("read", Some("Read a file"), &["Prefer read to cat.", "Same."]),
            tool(
                "bash",
                Some("Run a\n command"),
                &[
                    "Same.",
                    " Look before you act: read the code that a change touches, and follow its style.",
                ],
            ),
            tool("hidden", None, &["Said though not listed."]),
        ]);
        parts.append = vec!["First.\n".into(), " ".into(), "Second.".into()];
        parts.context_files = vec![
            ("/w/AGENTS.md".into(), "Use tabs.\n\n".into()),
            ("/w/\"q\"&/A.md".into(), "Two\nlines".into()),
        ];
        let expected = format!(
            "{PREAMBLE}

Available tools:
- read: Read a file
- bash: Run a command

Guidelines:
- {SEARCH_WITH_BASH}
- Prefer read to cat.
- Same.
- Look before you act: read the code that a change touches, and follow its style.
- Said though not listed.
- {}
- {}
- {}

First.

Second.

# Project Context

Instructions that the user and the project wrote down for you; where two of them differ, the later one holds.

<context_file path=\"/w/AGENTS.md\">
Use tabs.
</context_file>

<context_file path=\"/w/&quot;q&quot;&amp;/A.md\">
Two
lines
</context_file>

{FACTS}",
            GUIDELINES[1], GUIDELINES[2], GUIDELINES[3]
        );
        assert_eq!(system_prompt(&parts), expected);
        assert_eq!(system_prompt(&parts), system_prompt(&parts.clone()), "the same parts, the same text");
    }

    #[test]
    fn a_custom_prompt_replaces_the_standard_one_and_nothing_else() {
        let mut parts = parts(vec![tool("bash", Some("Run"), &["G."])]);
        parts.custom = Some("Be a poet.\n".into());
        assert_eq!(system_prompt(&parts), format!("Be a poet.\n\n{FACTS}"));
        parts.append = vec!["And brief.".into()];
        parts.context_files = vec![("/a".into(), "x".into())];
        let text = system_prompt(&parts);
        assert!(text.starts_with("Be a poet.\n\nAnd brief.\n\n# Project Context\n"), "{text}");
        assert!(text.ends_with(&format!("</context_file>\n\n{FACTS}")), "{text}");
        parts = PromptParts { custom: Some(String::new()), append: vec![], context_files: vec![], ..parts };
        assert_eq!(system_prompt(&parts), FACTS, "an empty prompt was asked for");
    }

    #[test]
    fn skills_are_told_while_they_can_be_read() {
        let skills = vec![SkillSummary {
            name: "pdf".into(),
            description: "Reads <PDF> & \"more\"".into(),
            location: "/s/pdf/SKILL.md".into(),
        }];
        let mut parts = PromptParts { skills, ..parts(vec![tool("bash", None, &[])]) };
        parts.custom = Some("Custom.".into());
        parts.context_files = vec![("/a".into(), "x".into())];
        assert!(!system_prompt(&parts).contains("skill"));
        parts.tools = vec![tool("read", None, &[])].into();
        let text = system_prompt(&parts);
        let expected = format!(
            "</context_file>

# Skills

Each of these files says how to do one kind of task. When the task at hand is of that kind, read the file first. \
             Relative paths in it start from the directory the file is in.

<available_skills>
  <skill>
    <name>pdf</name>
    <description>Reads &lt;PDF&gt; &amp; &quot;more&quot;</description>
    <location>/s/pdf/SKILL.md</location>
  </skill>
</available_skills>

{FACTS}"
        );
        assert!(text.ends_with(&expected), "{text}");
    }

    #[test]
    fn without_tools_the_list_says_so() {
        let text = system_prompt(&parts(vec![tool("read", None, &[])]));
        assert!(text.contains("Available tools:\n(none)\n\nGuidelines:\n- Look before"), "{text}");
        assert!(!text.contains("bash"), "no word about a tool that is off: {text}");
    }

    #[test]
    fn the_search_guideline_fits_the_tools() {
        let with =
            |names: &[&str]| guidelines(&names.iter().map(|name| tool(name, None, &[])).collect::<Vec<_>>());
        assert_eq!(with(&["bash"])[0], SEARCH_WITH_BASH);
        assert_eq!(with(&["bash", "ls"])[0], SEARCH_WITH_TOOLS);
        assert_eq!(with(&["grep"])[0], GUIDELINES[0]);
    }

    #[test]
    fn windows_paths_get_forward_slashes() {
        for (path, shown) in [
            (r"C:\Users\a b", "C:/Users/a b"),
            (r"\\server\share\x", "//server/share/x"),
            (r"/tmp/odd\name", r"/tmp/odd\name"),
            ("C:", "C:"),
            ("é", "é"),
        ] {
            assert_eq!(forward_slashes(path), shown);
        }
    }
}
