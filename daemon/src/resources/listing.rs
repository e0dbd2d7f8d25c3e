//! What `get_commands` answers: each command with the fields of the protocol's description (`location`, `path`) and those
//! that programs read (`sourceInfo`), reference 1.8.

use std::path::Path;

use atomic_protocol::json::{ObjectWriter, Raw};

use super::Resources;
use super::places::{Found, Origin, Scope};

/// The commands as JSON objects: prompt templates, then skills.
pub(super) fn commands(resources: &Resources) -> Vec<Raw> {
    let templates = resources.templates.iter().map(|template| {
        command(&template.name, &template.description, "prompt", &template.file, &template.origin)
    });
    let skills = resources.selectors.iter().filter(|_| resources.skill_commands).map(|selector| {
        let skill = &resources.skills[selector.skill];
        let name = format!("skill:{}", selector.name);
        command(&name, &skill.description, "skill", &skill.file, &skill.origin)
    });
    templates.chain(skills).collect()
}

fn command(name: &str, description: &str, source: &str, file: &Path, origin: &Origin) -> Raw {
    let location = match (origin.found, origin.scope) {
        (Found::Usual, Scope::Project) => "project",
        (Found::Usual, _) => "user",
        _ => "path",
    };
    let scope = match origin.scope {
        Scope::User => "user",
        Scope::Project => "project",
        Scope::Temporary => "temporary",
    };
    let found = match origin.found {
        Found::Usual => "auto",
        Found::Settings => "local",
        Found::CommandLine => "cli",
    };
    let path = file.to_string_lossy();
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    object.str("name", name).str("description", description).str("source", source);
    object.str("location", location).str("path", &path);
    let mut info = ObjectWriter::begin(object.key("sourceInfo"));
    info.str("path", &path).str("source", found).str("scope", scope).str("origin", "top-level");
    info.str("baseDir", &origin.base.to_string_lossy());
    info.end();
    object.end();
    Raw::from_trusted(out.into())
}
