//! Discovery and expansion over a tree of files.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::expand::{Expanded, expand};
use super::*;
use crate::settings::PathList;

/// A directory tree with an agent directory, an older one, a home and a project in a repository.
struct Tree {
    _dir: TempDir,
    root: PathBuf,
    settings: Settings,
    options: SessionOptions,
    trusted: bool,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut tree = Tree {
            root,
            _dir: dir,
            settings: Settings::default(),
            options: SessionOptions::default(),
            trusted: true,
        };
        tree.write("repository/.git/HEAD", "");
        tree.write("repository/p/x", "");
        for (path, content) in files {
            tree.write(path, content);
        }
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn write(&mut self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn load_over(&self, previous: Option<&Resources>) -> (Resources, Vec<String>) {
        let mut warnings = Vec::new();
        let sources = Sources {
            agent_dir: &self.at("home/.atomic/agent"),
            legacy_agent_dir: Some(&self.at("home/.pi/agent")),
            home: Some(&self.at("home")),
            cwd: &self.at("repository/p"),
            caller_cwd: &self.at("repository/p"),
            trusted: self.trusted,
            options: &self.options,
            settings: &self.settings,
        };
        let resources = Resources::load(&sources, previous, &mut warnings);
        (resources, warnings)
    }

    /// Without a warning.
    #[track_caller]
    fn load(&self) -> Resources {
        let (resources, warnings) = self.load_over(None);
        assert_eq!(warnings, [""; 0]);
        resources
    }

    /// Where each template comes from, by name.
    fn templates(&self) -> Vec<(String, String)> {
        let named = |template: &Template| (template.name.clone(), template.content.clone());
        self.load().templates.iter().map(named).collect()
    }

    /// The skills' files below the root.
    fn skills(&self) -> Vec<String> {
        self.load().skills.iter().map(|skill| self.below(&skill.file)).collect()
    }

    fn below(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).expect("in the tree").to_str().unwrap().replace('\\', "/")
    }

    fn list(&self, directory: &str, entries: &[&str]) -> PathList {
        PathList {
            directory: self.at(directory),
            entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
        }
    }
}

const SKILL: &str = "---\ndescription: d\n---\nBody.";

#[test]
fn the_first_template_of_a_name_is_taken() {
    let places = [
        ("repository/p/.atomic/set/a.md", "settings of .atomic"),
        ("repository/p/.atomic/prompts/a.md", "project"),
        ("repository/p/.pi/prompts/a.md", "older project"),
        ("home/.atomic/agent/set/a.md", "settings of the user"),
        ("home/.atomic/agent/prompts/a.md", "user"),
        ("home/.pi/agent/prompts/a.md", "older user"),
        ("repository/p/given.d/a.md", "command line"),
    ];
    let mut tree = Tree::new(&places);
    tree.settings.prompts =
        vec![tree.list("repository/p/.atomic", &["set"]), tree.list("home/.atomic/agent", &["set/a.md"])];
    tree.options.prompt_templates = vec!["given.d".into()];
    for (path, content) in places {
        assert_eq!(tree.templates(), [("a".to_owned(), content.to_owned())]);
        fs::remove_file(tree.at(path)).unwrap();
        if let Some(list) = tree.settings.prompts.first()
            && path.contains("/set/")
        {
            let directory = list.directory.clone();
            tree.settings.prompts.retain(|list| list.directory != directory);
        }
    }
    assert_eq!(tree.templates(), []);
}

#[test]
fn templates_are_markdown_files_of_one_directory() {
    let tree = Tree::new(&[
        ("home/.atomic/agent/prompts/b.md", "---\ndescription: B\nargument-hint: x\n---\n\nText\n"),
        ("home/.atomic/agent/prompts/a b.md", "First line\nSecond"),
        ("home/.atomic/agent/prompts/c.txt", ""),
        ("home/.atomic/agent/prompts/d.md/x", ""),
        ("home/.atomic/agent/prompts/sub/e.md", ""),
    ]);
    let resources = tree.load();
    let found: Vec<[&str; 3]> =
        resources.templates.iter().map(|t| [t.name.as_str(), &t.description, &t.content]).collect();
    assert_eq!(found, [["a b", "First line", "First line\nSecond"], ["b", "B", "Text"]]);
}

#[test]
fn without_trust_nothing_of_the_project_is_found() {
    let mut tree = Tree::new(&[
        ("repository/p/.atomic/prompts/a.md", "x"),
        ("repository/p/.atomic/set/b.md", "x"),
        ("repository/p/.pi/prompts/c.md", "x"),
        ("repository/p/.atomic/skills/a/SKILL.md", SKILL),
        ("repository/.agents/skills/a/SKILL.md", SKILL),
        ("home/.agents/skills/u/SKILL.md", SKILL),
    ]);
    tree.settings.prompts = vec![tree.list("repository/p/.atomic", &["set"])];
    tree.trusted = false;
    assert_eq!(tree.templates(), []);
    assert_eq!(tree.skills(), ["home/.agents/skills/u/SKILL.md"]);
    tree.trusted = true;
    assert_eq!((tree.templates().len(), tree.skills().len()), (3, 3));
}

#[test]
fn flags_leave_only_what_they_name() {
    let mut tree = Tree::new(&[
        ("home/.atomic/agent/prompts/a.md", "x"),
        ("home/.atomic/agent/skills/a/SKILL.md", SKILL),
        ("repository/p/b.md", SKILL),
        ("home/c/SKILL.md", SKILL),
    ]);
    tree.options.no_prompt_templates = true;
    tree.options.no_skills = true;
    assert_eq!((tree.templates().len(), tree.skills().len()), (0, 0));
    tree.options.prompt_templates = vec!["b.md".into()];
    tree.options.skills = vec!["~/c".into(), "b.md".into()];
    assert_eq!(tree.templates().len(), 1);
    assert_eq!(tree.skills(), ["home/c/SKILL.md", "repository/p/b.md"]);
}

#[test]
fn skills_are_looked_for_near_before_far() {
    let mut tree = Tree::new(&[
        ("repository/p/.atomic/skills/a/SKILL.md", SKILL),
        ("repository/p/.pi/skills/a/SKILL.md", SKILL),
        ("repository/p/.agents/skills/a/SKILL.md", SKILL),
        ("repository/.agents/skills/a/SKILL.md", SKILL),
        (".agents/skills/outside-the-repository/SKILL.md", SKILL),
        ("home/.atomic/agent/more/a/SKILL.md", SKILL),
        ("home/.atomic/agent/skills/a/SKILL.md", SKILL),
        ("home/.pi/agent/skills/a/SKILL.md", SKILL),
        ("home/.agents/skills/a/SKILL.md", SKILL),
        ("repository/p/given/SKILL.md", SKILL),
    ]);
    tree.settings.skills = vec![tree.list("home/.atomic/agent", &["more"])];
    tree.options.skills = vec!["given".into()];
    assert_eq!(
        tree.skills(),
        [
            "repository/p/.atomic/skills/a/SKILL.md",
            "repository/p/.pi/skills/a/SKILL.md",
            "repository/p/.agents/skills/a/SKILL.md",
            "repository/.agents/skills/a/SKILL.md",
            "home/.atomic/agent/more/a/SKILL.md",
            "home/.atomic/agent/skills/a/SKILL.md",
            "home/.pi/agent/skills/a/SKILL.md",
            "home/.agents/skills/a/SKILL.md",
            "repository/p/given/SKILL.md",
        ]
    );
}

#[test]
fn what_is_a_skill() {
    let base = "home/.atomic/agent/skills";
    let file = |path: &str| format!("{base}/{path}");
    let mut tree = Tree::new(&[]);
    for (path, text) in [
        ("a/SKILL.md", SKILL),
        ("a/deeper/SKILL.md", SKILL),
        ("a/page.md", SKILL),
        ("group/b/SKILL.md", "---\nname: named\ndescription: d\ndisable-model-invocation: true\n---\n"),
        ("group/page.md", SKILL),
        ("root.md", SKILL),
        ("README.md", "# No skill"),
        ("broken-page.md", "---\nwords\n---\n"),
        (".hidden/SKILL.md", SKILL),
        ("node_modules/c/SKILL.md", SKILL),
        ("ignored/SKILL.md", SKILL),
        ("kept/SKILL.md", SKILL),
        ("group/ignored-too/SKILL.md", SKILL),
        ("group/back/SKILL.md", SKILL),
        (".gitignore", "ignored/\nkept\n*-too\nback\n"),
        (".ignore", "!kept\n"),
        ("group/.fdignore", "!back\n"),
    ] {
        tree.write(&file(path), text);
    }
    assert_eq!(
        tree.skills(),
        ["a/SKILL.md", "group/b/SKILL.md", "group/back/SKILL.md", "kept/SKILL.md", "root.md"].map(file)
    );
    let names: Vec<(String, bool)> =
        tree.load().skills.iter().map(|skill| (skill.name.clone(), skill.hidden)).collect();
    let expected = [("a", false), ("named", true), ("back", false), ("kept", false), ("root", false)];
    assert_eq!(names, expected.map(|(name, hidden)| (name.to_owned(), hidden)));
    let told: Vec<String> = tree.load().skill_summaries().into_iter().map(|skill| skill.name).collect();
    assert_eq!(told, ["a", "back", "kept", "root"]);
}

#[test]
fn mistakes_are_warnings_that_name_the_file() {
    let mut tree = Tree::new(&[
        ("home/.atomic/agent/prompts/bad.md", "---\nwords\n---\n"),
        ("home/.atomic/agent/skills/none/SKILL.md", "no head"),
        ("home/.atomic/agent/skills/bad/SKILL.md", "---\nwords\n---\n"),
        ("home/.atomic/agent/skills/Odd_name/SKILL.md", SKILL),
        ("repository/p/text.txt", ""),
    ]);
    tree.write(
        "home/.atomic/agent/skills/long/SKILL.md",
        format!("---\ndescription: {}\n---\n", "d".repeat(1025)),
    );
    tree.write("home/.atomic/agent/prompts/large.md", vec![b'a'; (1 << 20) + 1]);
    tree.settings.prompts = vec![tree.list("home/.atomic/agent", &["missing"])];
    tree.options.skills = vec!["text.txt".into(), "nowhere".into()];
    let (resources, warnings) = tree.load_over(None);
    for (place, word) in [
        ("agent/missing", "cannot read"),
        ("prompts/bad.md", "line 2 is no `key: value`; it is not used"),
        ("prompts/large.md", "larger than 1024 KiB"),
        ("skills/Odd_name/SKILL.md", "may hold only a-z, 0-9 and hyphens"),
        ("skills/bad/SKILL.md", "line 2"),
        ("skills/long/SKILL.md", "1025 characters"),
        ("skills/none/SKILL.md", "no description"),
        ("p/text.txt", "does not end in .md"),
        ("p/nowhere", "cannot read"),
    ] {
        let place = place.replace('/', std::path::MAIN_SEPARATOR_STR);
        let found = warnings.iter().any(|warning| warning.contains(&place) && warning.contains(word));
        assert!(found, "{place}: {word}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 9, "{warnings:#?}");
    let names: Vec<&str> = resources.skills.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["Odd_name", "long"], "an odd name is no reason to lose a skill");
    assert!(resources.templates.is_empty());
}

#[test]
fn a_file_that_went_bad_stays_what_it_was() {
    let mut tree = Tree::new(&[
        ("home/.atomic/agent/prompts/a.md", "old a"),
        ("home/.atomic/agent/prompts/b.md", "old b"),
        ("home/.atomic/agent/skills/s/SKILL.md", SKILL),
    ]);
    let before = tree.load();
    tree.write("home/.atomic/agent/prompts/a.md", "---\nwords\n---\n");
    tree.write("home/.atomic/agent/skills/s/SKILL.md", "---\nwords\n---\n");
    fs::remove_file(tree.at("home/.atomic/agent/prompts/b.md")).unwrap();
    let (after, warnings) = tree.load_over(Some(&before));
    assert_eq!(after.templates, before.templates[..1]);
    assert_eq!(after.skills, before.skills);
    assert!(
        warnings.len() == 2 && warnings.iter().all(|w| w.ends_with("what it said before stays")),
        "{warnings:?}"
    );
}

#[test]
fn settings_leave_files_out() {
    let mut tree = Tree::new(&[
        ("home/.atomic/agent/skills/a/SKILL.md", SKILL),
        ("home/.atomic/agent/skills/b/SKILL.md", SKILL),
        ("home/.atomic/agent/prompts/c.md", "c"),
        ("home/.atomic/agent/prompts/d.md", "d"),
    ]);
    tree.settings.skills = vec![tree.list("home/.atomic/agent", &["-skills/a"])];
    tree.settings.prompts = vec![tree.list("home/.atomic/agent", &["!prompts/*.md", "+prompts/d.md"])];
    assert_eq!(tree.skills(), ["home/.atomic/agent/skills/b/SKILL.md"]);
    assert_eq!(tree.templates(), [("d".to_owned(), "d".to_owned())]);
}

#[test]
fn links_are_followed_and_circles_end() {
    #[cfg(unix)]
    {
        let mut tree = Tree::new(&[("elsewhere/a/SKILL.md", SKILL), ("elsewhere/t.md", "t")]);
        tree.write("home/.atomic/agent/skills/x", "");
        tree.write("home/.atomic/agent/prompts/x", "");
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(tree.at(to), tree.at(from)).unwrap();
        link("elsewhere/a", "home/.atomic/agent/skills/one");
        link("elsewhere/a", "home/.atomic/agent/skills/two");
        link("home/.atomic/agent/skills", "home/.atomic/agent/skills/circle");
        link("elsewhere/t.md", "home/.atomic/agent/prompts/t.md");
        link("nowhere", "home/.atomic/agent/prompts/dangling.md");
        assert_eq!(tree.skills().len(), 1, "each file once: {:?}", tree.skills());
        assert_eq!(tree.templates(), [("t".to_owned(), "t".to_owned())]);
    }
}

#[test]
fn lines_that_name_something_are_expanded() {
    let tree = Tree::new(&[
        ("home/.atomic/agent/prompts/review.md", "---\ndescription: d\n---\nReview $1 for ${2:-bugs}."),
        ("home/.atomic/agent/prompts/skill:tpl.md", "a template"),
        ("home/.atomic/agent/skills/pdf/SKILL.md", "---\ndescription: d\n---\n\n# PDF\n\nRead $1.\n"),
        ("home/.agents/skills/two/SKILL.md", SKILL),
        ("home/.atomic/agent/skills/two/SKILL.md", SKILL),
    ]);
    let resources = tree.load();
    let text = |text: &str| match expand(text, &resources) {
        Expanded::Text(text) => text,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(text("/review a.rs"), "Review a.rs for bugs.");
    assert_eq!(text("/review 'a b' \"c\""), "Review a b for c.");
    assert_eq!(text("/review"), "Review  for bugs.");
    assert_eq!(text("/skill:tpl"), "a template");
    let file = tree.at("home/.atomic/agent/skills/pdf/SKILL.md");
    let directory = file.parent().unwrap().display();
    let block = text("/skill:pdf   make it $1 ");
    let (head, rest) = block.split_once(" candidate=\"skill_").expect("an id");
    assert_eq!(head, format!("<skill name=\"pdf\" location=\"{}\"", file.display()));
    let (id, rest) = rest.split_once('"').unwrap();
    assert!(id.len() == 20 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!(
        rest,
        format!(">\nReferences are relative to {directory}.\n\n# PDF\n\nRead $1.\n</skill>\n\nmake it $1")
    );
    assert!(text("/skill:pdf").ends_with("Read $1.\n</skill>"));
    assert!(text("/skill:two@agents").contains(".agents"));
    for literal in [
        "review a",
        " /review a",
        "/reviewer",
        "/review\ta",
        "/review\nb",
        "/",
        "/ review",
        "/skill:",
        "/skill:x y",
        "//review",
        "/skill:pdf@user",
        "/Review",
    ] {
        assert_eq!(expand(literal, &resources), Expanded::AsItWas, "{literal}");
    }
    let Expanded::Failed { path, error, .. } = expand("/skill:two@user x", &resources) else {
        panic!("ambiguous")
    };
    assert_eq!(path, "skill:two@user");
    assert!(error.contains("/skill:two@atomic") && error.contains("/skill:two@agents"), "{error}");
    fs::remove_file(&file).unwrap();
    let Expanded::Failed { path, error, .. } = expand("/skill:pdf", &resources) else { panic!("unreadable") };
    assert!(path == file.to_string_lossy() && error.contains("cannot read"), "{path}: {error}");
}

#[test]
fn skill_commands_can_be_turned_off() {
    let mut tree = Tree::new(&[("home/.atomic/agent/skills/pdf/SKILL.md", SKILL)]);
    tree.settings.enable_skill_commands = false;
    let resources = tree.load();
    assert_eq!(expand("/skill:pdf", &resources), Expanded::AsItWas);
    assert!(resources.commands().is_empty());
    assert_eq!(resources.skill_summaries().len(), 1, "the model still reads it");
}

#[test]
fn commands_have_both_sets_of_fields() {
    let mut tree = Tree::new(&[
        ("home/.atomic/agent/skills/s/SKILL.md", "---\ndescription: S\n---\n"),
        ("repository/p/.atomic/prompts/a.md", "A"),
        ("home/.atomic/agent/set/b.md", "B"),
        ("repository/p/c.md", "C"),
    ]);
    tree.settings.prompts = vec![tree.list("home/.atomic/agent", &["set"])];
    tree.options.prompt_templates = vec!["c.md".into()];
    let commands: Vec<Value> =
        tree.load().commands().iter().map(|raw| serde_json::from_str(raw.as_str()).unwrap()).collect();
    let expected = [
        (
            "a",
            "A",
            "prompt",
            "project",
            "repository/p/.atomic/prompts/a.md",
            "auto",
            "project",
            "repository/p/.atomic",
        ),
        ("b", "B", "prompt", "path", "home/.atomic/agent/set/b.md", "local", "user", "home/.atomic/agent"),
        ("c", "C", "prompt", "path", "repository/p/c.md", "cli", "temporary", "repository/p"),
        (
            "skill:s",
            "S",
            "skill",
            "user",
            "home/.atomic/agent/skills/s/SKILL.md",
            "auto",
            "user",
            "home/.atomic/agent",
        ),
    ];
    let expected = expected.map(|(name, description, source, location, path, found, scope, base)| {
        let path = tree.at(path);
        serde_json::json!({
            "name": name, "description": description, "source": source, "location": location, "path": path,
            "sourceInfo": {"path": path, "source": found, "scope": scope, "origin": "top-level", "baseDir": tree.at(base)},
        })
    });
    assert_eq!(commands, expected);
}

#[test]
fn the_nearest_system_prompt_file_is_taken() {
    let files = ["repository/p/.atomic", "repository/p/.pi", "home/.atomic/agent", "home/.pi/agent"];
    let mut tree = Tree::new(&[]);
    for directory in files {
        tree.write(&format!("{directory}/SYSTEM.md"), directory);
    }
    tree.write("home/.pi/agent/APPEND_SYSTEM.md", "appended");
    let found = |tree: &Tree| {
        let sources = Sources {
            agent_dir: &tree.at("home/.atomic/agent"),
            legacy_agent_dir: Some(&tree.at("home/.pi/agent")),
            home: None,
            cwd: &tree.at("repository/p"),
            caller_cwd: &tree.at("repository/p"),
            trusted: tree.trusted,
            options: &tree.options,
            settings: &tree.settings,
        };
        prompt_files(&sources).unwrap()
    };
    tree.trusted = false;
    assert_eq!(found(&tree), (Some("home/.atomic/agent".to_owned()), Some("appended".to_owned())));
    tree.trusted = true;
    for directory in files {
        assert_eq!(found(&tree).0.as_deref(), Some(directory));
        fs::remove_file(tree.at(directory).join("SYSTEM.md")).unwrap();
    }
    assert_eq!(found(&tree).0, None);
}

#[test]
fn the_older_agent_directory_belongs_to_the_usual_one() {
    let tree = Tree::new(&[("home/.atomic/agent/x", ""), ("other/x", "")]);
    let home = tree.at("home");
    assert_eq!(legacy_agent_dir(&tree.at("home/.atomic/agent"), Some(&home)), None, "there is none");
    fs::create_dir_all(tree.at("home/.pi/agent")).unwrap();
    assert_eq!(
        legacy_agent_dir(&tree.at("home/.atomic/agent"), Some(&home)),
        Some(tree.at("home/.pi/agent"))
    );
    assert_eq!(legacy_agent_dir(&tree.at("other"), Some(&home)), None);
    assert_eq!(legacy_agent_dir(&tree.at("home/.atomic/agent"), None), None);
}
