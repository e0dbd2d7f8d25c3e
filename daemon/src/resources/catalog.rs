//! Names for skills when several have the same one.
//!
//! `NAME` is the first of them. Each of them is also `NAME@WHERE`: `project` or `user` when that tells them apart, else
//! the directory of an agent it lies in, else as much of its path as it takes.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::places::Scope;
use super::skills::Skill;

/// Which skills a name means.
#[derive(Debug)]
pub(super) enum Selection<'a> {
    /// This one, and the id of its file.
    One(&'a Skill, String),
    /// Several; their full names.
    Several(Vec<String>),
}

/// A name by which a skill can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// `NAME` or `NAME@WHERE`.
    pub(super) name: String,
    /// Its place in the list of skills.
    pub(super) skill: usize,
    /// It tells its skill from others of the same name.
    pub(super) qualified: bool,
}

/// All names, in the order of the skills: a name, then the full names of those that share it.
pub(super) fn selectors(skills: &[Skill]) -> Vec<Selector> {
    let mut selectors: Vec<Selector> = Vec::new();
    for (first, skill) in skills.iter().enumerate() {
        if selectors.iter().any(|known| known.name == skill.name) {
            continue;
        }
        selectors.push(Selector { name: skill.name.clone(), skill: first, qualified: false });
        let group: Vec<usize> = (0..skills.len()).filter(|at| skills[*at].name == skill.name).collect();
        if group.len() > 1 {
            let names = qualifiers(skills, &group);
            selectors.extend(group.iter().zip(names).map(|(at, place)| Selector {
                name: format!("{}@{place}", skill.name),
                skill: *at,
                qualified: true,
            }));
        }
    }
    selectors
}

/// What `name` means; `None`: nothing.
pub(super) fn select<'a>(name: &str, skills: &'a [Skill], selectors: &[Selector]) -> Option<Selection<'a>> {
    if let Some(found) = selectors.iter().find(|selector| selector.name == name) {
        let skill = &skills[found.skill];
        return Some(Selection::One(skill, id(&skill.file)));
    }
    let (plain, place) = name.split_once('@')?;
    let meant = |selector: &&Selector| {
        let skill = &skills[selector.skill];
        selector.qualified && skill.name == plain && family(skill) == place
    };
    let several: Vec<String> = selectors.iter().filter(meant).map(|selector| selector.name.clone()).collect();
    (!several.is_empty()).then_some(Selection::Several(several))
}

/// The skills that models are told of: name and skill.
pub(super) fn for_models<'a>(
    skills: &'a [Skill],
    selectors: &'a [Selector],
) -> impl Iterator<Item = (&'a str, &'a Skill)> {
    skills.iter().enumerate().filter(|(_, skill)| !skill.hidden).map(move |(at, skill)| {
        let full = selectors.iter().find(|selector| selector.qualified && selector.skill == at);
        (full.map_or(skill.name.as_str(), |selector| selector.name.as_str()), skill)
    })
}

/// What tells the skills of a group apart, in the order of the group.
fn qualifiers(skills: &[Skill], group: &[usize]) -> Vec<String> {
    let families: Vec<String> = group.iter().map(|at| family(&skills[*at])).collect();
    if let Some(families) = distinct(families.clone()) {
        return families;
    }
    let in_family = |family: &String| families.iter().filter(|other| *other == family).count();
    let with = |part: &dyn Fn(&Skill) -> String| {
        let names = group.iter().zip(&families).map(|(at, family)| match in_family(family) {
            1 => family.clone(),
            _ => part(&skills[*at]),
        });
        distinct(names.collect())
            // Never the family's own name: that one means all of them.
            .filter(|names| !names.iter().any(|name| families.contains(name) && in_family(name) > 1))
    };
    if let Some(names) = with(&agent_directory) {
        return names;
    }
    let depth = group.iter().map(|at| skills[*at].directory().components().count()).max().unwrap_or(1);
    (1..=depth)
        .find_map(|depth| with(&|skill| end_of_path(skill.directory(), depth)))
        // Paths differ, but what is left of them as a word may not.
        .unwrap_or_else(|| group.iter().map(|at| id(&skills[*at].file)).collect())
}

/// The names, if no two are the same.
fn distinct(names: Vec<String>) -> Option<Vec<String>> {
    let differ = names.iter().enumerate().all(|(at, name)| !names[..at].contains(name));
    differ.then_some(names)
}

/// Whose a skill is, in a word.
fn family(skill: &Skill) -> String {
    match skill.origin.scope {
        Scope::Project => "project".to_owned(),
        Scope::User => "user".to_owned(),
        Scope::Temporary => agent_directory(skill),
    }
}

/// `.atomic`, `.pi` or `.agents`, whichever a skill lies in, without the dot; else the name of the directory it came from.
fn agent_directory(skill: &Skill) -> String {
    let names = skill.file.iter().rev().filter_map(|part| part.to_str());
    match names.into_iter().find(|part| [".atomic", ".pi", ".agents"].contains(part)) {
        Some(name) => name[1..].to_owned(),
        None => end_of_path(skill.directory(), 1),
    }
}

/// The last parts of a path, as a word that a line can hold.
fn end_of_path(path: &Path, parts: usize) -> String {
    let all: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let text = all[all.len().saturating_sub(parts)..].join("/");
    let word: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ['.', '_', '/', '-'].contains(&c) { c } else { '-' })
        .collect();
    word.trim_matches(['.', '/']).to_owned()
}

/// The id of a skill's file, the same for all names it is reached by (reference 4.7 `candidate`).
fn id(file: &Path) -> String {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let hash = Sha256::digest(real.to_string_lossy().as_bytes());
    let digits: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("skill_{digits}")
}

#[cfg(test)]
mod tests {
    use super::super::places::{Found, Origin};
    use super::*;

    fn skill(name: &str, scope: Scope, file: &str) -> Skill {
        Skill {
            name: name.to_owned(),
            description: "d".to_owned(),
            file: file.into(),
            origin: Origin { scope, found: Found::Usual, base: "/".into() },
            hidden: false,
        }
    }

    fn names(skills: &[Skill]) -> Vec<String> {
        selectors(skills).into_iter().map(|selector| selector.name).collect()
    }

    #[test]
    fn a_name_of_one_is_enough() {
        let skills = [skill("a", Scope::User, "/u/a/SKILL.md"), skill("b", Scope::Project, "/p/b/SKILL.md")];
        assert_eq!(names(&skills), ["a", "b"]);
        assert!(
            matches!(select("b", &skills, &selectors(&skills)), Some(Selection::One(found, _)) if found.name == "b")
        );
        for unknown in ["c", "b@project", "b@", ""] {
            assert!(select(unknown, &skills, &selectors(&skills)).is_none(), "{unknown}");
        }
    }

    #[test]
    fn same_names_are_told_apart_by_as_little_as_it_takes() {
        use Scope::{Project, Temporary, User};
        for (skills, expected) in [
            (
                vec![skill("a", Project, "/p/.atomic/skills/a/SKILL.md"), skill("a", User, "/u/a/SKILL.md")],
                vec!["a", "a@project", "a@user"],
            ),
            (
                vec![
                    skill("a", User, "/u/.atomic/agent/skills/a/SKILL.md"),
                    skill("a", User, "/u/.agents/skills/a/SKILL.md"),
                ],
                vec!["a", "a@atomic", "a@agents"],
            ),
            (
                vec![
                    skill("a", User, "/u/.agents/skills/x/a/SKILL.md"),
                    skill("a", User, "/u/.agents/skills/y/a/SKILL.md"),
                    skill("a", Project, "/p/.agents/skills/a/SKILL.md"),
                ],
                vec!["a", "a@x/a", "a@y/a", "a@project"],
            ),
            (
                vec![skill("a", Temporary, "/one two/SKILL.md"), skill("a", Temporary, "/three/SKILL.md")],
                vec!["a", "a@one-two", "a@three"],
            ),
        ] {
            assert_eq!(names(&skills), expected);
        }
    }

    #[test]
    fn a_family_with_several_is_ambiguous() {
        let skills = [
            skill("a", Scope::User, "/u/.atomic/agent/skills/a/SKILL.md"),
            skill("a", Scope::User, "/u/.agents/skills/a/SKILL.md"),
        ];
        let selectors = selectors(&skills);
        let Some(Selection::Several(names)) = select("a@user", &skills, &selectors) else {
            panic!("several")
        };
        assert_eq!(names, ["a@atomic", "a@agents"]);
        let told: Vec<&str> = for_models(&skills, &selectors).map(|(name, _)| name).collect();
        assert_eq!(told, ["a@atomic", "a@agents"]);
    }
}
