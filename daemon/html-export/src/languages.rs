//! What the highlighter knows of each language: words and quotes, nothing a grammar would need.

/// A way to write a string.
pub(crate) struct Quote {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    /// A backslash takes the next character's meaning away.
    pub(crate) escapes: bool,
    /// It may go on over the end of the line.
    pub(crate) lines: bool,
}

/// What a language has beside words, quotes and comments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// Nothing.
    Plain,
    /// Rust: lifetimes beside characters, raw strings, `#[…]`.
    Rust,
    /// C and C++: `#include` and its like.
    Preprocessor,
    /// `@names` decorate.
    Decorators,
    /// JSON, JavaScript's objects: a string or word before a colon is a key.
    Keys,
    /// YAML, TOML, INI: what stands before `:` or `=` at the start of a line is a key.
    Settings,
    /// Shell: `$variables`, and the first word of a command.
    Shell,
    /// CSS: properties, `@rules`, `#colours`.
    Css,
    /// HTML, XML: tags and attributes.
    Markup,
}

/// One language.
pub(crate) struct Language {
    /// Names after a code fence, and file name extensions.
    pub(crate) names: &'static [&'static str],
    pub(crate) line_comments: &'static [&'static str],
    pub(crate) block_comment: Option<(&'static str, &'static str)>,
    pub(crate) quotes: &'static [Quote],
    /// Words, separated by spaces.
    pub(crate) keywords: &'static str,
    /// Keywords are written in any case.
    pub(crate) any_case: bool,
    pub(crate) flavor: Flavor,
}

const fn quote(text: &'static str) -> Quote {
    Quote { open: text, close: text, escapes: true, lines: false }
}

const fn long(text: &'static str) -> Quote {
    Quote { open: text, close: text, escapes: true, lines: true }
}

const fn raw(text: &'static str) -> Quote {
    Quote { open: text, close: text, escapes: false, lines: true }
}

const SLASHES: &[&str] = &["//"];
const HASH: &[&str] = &["#"];
const STARS: Option<(&str, &str)> = Some(("/*", "*/"));
const DOUBLE: &[Quote] = &[quote("\"")];
const BOTH: &[Quote] = &[quote("\""), quote("'")];
const PYTHON: &[Quote] = &[long("\"\"\""), long("'''"), quote("\""), quote("'")];
const SCRIPT: &[Quote] = &[quote("\""), quote("'"), long("`")];
const GO: &[Quote] = &[quote("\""), quote("'"), raw("`")];
const TRIPLE: &[Quote] = &[long("\"\"\""), quote("\""), quote("'")];
const SHELL: &[Quote] = &[long("\""), raw("'")];
const TOML: &[Quote] =
    &[long("\"\"\""), raw("'''"), quote("\""), Quote { open: "'", close: "'", escapes: false, lines: false }];

const fn language(names: &'static [&'static str], keywords: &'static str) -> Language {
    Language {
        names,
        line_comments: SLASHES,
        block_comment: STARS,
        quotes: BOTH,
        keywords,
        any_case: false,
        flavor: Flavor::Plain,
    }
}

/// All of them. Looked through from the start, once for each block of code.
pub(crate) const LANGUAGES: &[Language] = &[
    Language {
        quotes: DOUBLE,
        flavor: Flavor::Rust,
        ..language(
            &["rust", "rs"],
            "as async await box break const continue crate dyn else enum extern false fn for if impl in let loop \
             macro_rules match mod move mut pub ref return self Self static struct super trait true type union unsafe \
             use where while yield",
        )
    },
    Language {
        quotes: SCRIPT,
        flavor: Flavor::Decorators,
        ..language(
            &["typescript", "ts", "tsx", "mts", "cts", "javascript", "js", "jsx", "mjs", "cjs", "node"],
            "abstract any as asserts async await boolean break case catch class const continue debugger declare \
             default delete do else enum export extends false finally for from function get if implements import in \
             infer instanceof interface is keyof let namespace never new null number object of override private \
             protected public readonly return satisfies set static string super switch symbol this throw true try \
             type typeof undefined unknown var void while with yield",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        quotes: PYTHON,
        flavor: Flavor::Decorators,
        ..language(
            &["python", "py", "pyi", "python3", "starlark", "bzl", "bazel"],
            "False None True and as assert async await break case class continue def del elif else except finally \
             for from global if import in is lambda match nonlocal not or pass raise return self try while with yield",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        quotes: SHELL,
        flavor: Flavor::Shell,
        ..language(
            &["bash", "sh", "shell", "zsh", "console", "fish", "ksh", "shell-session"],
            "case do done elif else esac export fi for function if in local readonly return select set shift then \
             time trap unset until while",
        )
    },
    Language {
        line_comments: SLASHES,
        quotes: DOUBLE,
        flavor: Flavor::Keys,
        ..language(&["json", "jsonc", "json5", "jsonl", "ndjson"], "true false null")
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        flavor: Flavor::Settings,
        ..language(&["yaml", "yml"], "true false null yes no on off True False")
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        quotes: TOML,
        flavor: Flavor::Settings,
        ..language(&["toml"], "true false")
    },
    Language {
        line_comments: &["#", ";"],
        block_comment: None,
        flavor: Flavor::Settings,
        ..language(
            &["ini", "cfg", "conf", "properties", "editorconfig", "service", "env", "dotenv"],
            "true false",
        )
    },
    Language {
        quotes: GO,
        ..language(
            &["go", "golang"],
            "any bool break byte case chan const continue default defer else error fallthrough false for func go goto \
             if import int int64 interface map nil package range return rune select string struct switch true type \
             uint uint64 var",
        )
    },
    Language {
        flavor: Flavor::Preprocessor,
        ..language(
            &[
                "c", "h", "cpp", "c++", "cc", "cxx", "hpp", "hh", "hxx", "objc", "m", "cuda", "cu", "ino",
                "glsl", "wgsl",
            ],
            "alignas alignof auto bool break case catch char class concept const consteval constexpr const_cast \
             continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit \
             extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr NULL \
             operator override private protected public register reinterpret_cast requires return short signed \
             sizeof static static_assert static_cast struct switch template this throw true try typedef typename \
             union unsigned using virtual void volatile while size_t int8_t int16_t int32_t int64_t uint8_t uint16_t \
             uint32_t uint64_t",
        )
    },
    Language {
        quotes: TRIPLE,
        flavor: Flavor::Decorators,
        ..language(
            &["java", "kotlin", "kt", "kts", "scala", "groovy", "gradle"],
            "abstract as assert boolean break byte by case catch char class companion const continue data def default \
             do double else enum extends false final finally float for fun if implements import in init inline \
             instanceof int interface internal is lateinit lazy long match native new null object open out override \
             package private protected public record return sealed short static super suspend switch synchronized \
             this throw throws trait transient true try type val var vararg void volatile when while with yield",
        )
    },
    Language {
        quotes: TRIPLE,
        flavor: Flavor::Preprocessor,
        ..language(
            &["csharp", "cs", "c#"],
            "abstract as async await base bool break byte case catch char class const continue decimal default \
             delegate do double else enum event explicit extern false finally fixed float for foreach get goto if \
             implicit in init int interface internal is lock long namespace new null object operator out override \
             params partial private protected public readonly record ref required return sealed set short sizeof \
             static string struct switch this throw true try typeof uint ulong unsafe using var virtual void volatile \
             when where while with yield",
        )
    },
    Language {
        quotes: TRIPLE,
        flavor: Flavor::Decorators,
        ..language(
            &["swift", "dart"],
            "actor any as associatedtype async await break case catch class continue default defer deinit do dynamic \
             else enum extension fallthrough false fileprivate final for func guard if import in indirect infix init \
             inout internal is lazy let mutating nil open operator override precedencegroup private protocol public \
             repeat required rethrows return self Self some static struct subscript super switch throw throws true \
             try typealias unowned var weak where while",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        ..language(
            &["ruby", "rb", "rake", "gemspec", "gemfile", "elixir", "ex", "exs", "crystal", "cr"],
            "alias and begin break case class def defmodule defp defined? do else elsif end ensure false fn for if in \
             include module next nil not or private protected public raise redo require rescue retry return self \
             super then true undef unless until use when while with yield",
        )
    },
    Language {
        line_comments: &["//", "#"],
        flavor: Flavor::Shell,
        ..language(
            &["php"],
            "abstract and array as break callable case catch class clone const continue declare default do echo else \
             elseif enum extends false final finally fn for foreach function global if implements include \
             include_once instanceof interface isset list match namespace new null or print private protected public \
             readonly require require_once return self static string switch this throw trait true try unset use var \
             void while yield",
        )
    },
    Language {
        line_comments: &["--"],
        any_case: true,
        quotes: &[raw("'"), raw("\"")],
        ..language(
            &["sql", "postgresql", "psql", "mysql", "sqlite", "plpgsql"],
            "add all alter and any as asc begin between bigint boolean by cascade case char check column commit \
             conflict constraint create cross current_timestamp database date default delete desc distinct do drop \
             else end except exists explain false foreign from full function grant group having if ilike in index \
             inner insert int integer intersect into is join json jsonb key lateral left like limit materialized not \
             null numeric offset on or order outer over partition primary references replace returning revoke right \
             rollback row select serial set table text then timestamp to transaction trigger true truncate union \
             unique update using values varchar view when where with",
        )
    },
    Language {
        flavor: Flavor::Css,
        ..language(&["css", "scss", "less", "sass"], "important from to and not only")
    },
    Language {
        line_comments: &[],
        block_comment: Some(("<!--", "-->")),
        flavor: Flavor::Markup,
        ..language(&["html", "htm", "xml", "svg", "xhtml", "vue", "svelte", "astro", "plist", "csproj"], "")
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        quotes: &[quote("\""), quote("'"), Quote { open: "[[", close: "]]", escapes: false, lines: true }],
        ..language(
            &["lua"],
            "and break do else elseif end false for function goto if in local nil not or repeat return then true \
             until while",
        )
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("{-", "-}")),
        quotes: DOUBLE,
        ..language(
            &["haskell", "hs", "elm", "purescript"],
            "as case class data deriving do else family forall foreign if import in infix infixl infixr instance let \
             module newtype of qualified then type where",
        )
    },
    Language {
        line_comments: SLASHES,
        block_comment: None,
        quotes: &[quote("\""), quote("'")],
        flavor: Flavor::Decorators,
        ..language(
            &["zig", "odin", "v", "nim"],
            "align allowzero and anyerror anytype asm async await bool break callconv catch comptime const continue \
             defer else enum errdefer error export extern false fn for if import inline noalias null opaque or \
             orelse packed proc pub resume return struct suspend switch test threadlocal true try type undefined \
             union unreachable usingnamespace usize var void volatile while u8 u16 u32 u64 i8 i16 i32 i64",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        flavor: Flavor::Shell,
        any_case: true,
        ..language(
            &[
                "dockerfile",
                "docker",
                "containerfile",
                "makefile",
                "make",
                "mk",
                "cmake",
                "just",
                "justfile",
                "nix",
            ],
            "add arg as cmd copy entrypoint env expose from healthcheck label maintainer onbuild run shell stopsignal \
             user volume workdir define endef endif else ifdef ifeq ifndef ifneq include export override",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: Some(("<#", "#>")),
        any_case: true,
        flavor: Flavor::Shell,
        ..language(
            &["powershell", "ps1", "pwsh", "psm1"],
            "begin break catch class continue data do dynamicparam else elseif end enum exit filter finally for \
             foreach from function hidden if in param process return static switch throw trap try until using while",
        )
    },
    Language {
        line_comments: &["#"],
        block_comment: STARS,
        flavor: Flavor::Settings,
        ..language(
            &["hcl", "tf", "terraform", "proto", "protobuf", "graphql", "gql"],
            "data enum extend false fragment import input interface locals message module mutation null oneof option \
             optional output package provider query repeated required reserved resource returns rpc schema service \
             subscription syntax terraform true type union variable",
        )
    },
    Language {
        line_comments: HASH,
        block_comment: None,
        ..language(
            &["r", "julia", "jl", "perl", "pl", "pm"],
            "abstract begin break catch const continue do else elsif elseif end export FALSE false finally for \
             foreach function global if import in let local macro module my mutable next NULL our package print \
             quote repeat return struct sub TRUE true try unless until use using while",
        )
    },
];

/// The language a code fence or a file name extension names, whatever its case.
pub(crate) fn find(name: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.names.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

/// The language of a file, by its extension or, without one, its name.
pub(crate) fn of_path(path: &str) -> Option<&'static Language> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    find(name.rsplit('.').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<&str> = LANGUAGES.iter().flat_map(|language| language.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(find("Rust").is_some() && find("nope").is_none() && find("").is_none());
        assert!(of_path("/a/b.c/Makefile").is_some_and(|language| language.names.contains(&"make")));
        assert!(of_path("C:\\x\\main.TS").is_some_and(|language| language.names.contains(&"ts")));
        assert!(of_path("/a/README").is_none());
    }
}
