//! Values in the user's own files that name something else: `$VAR`, `${VAR}`, `!command`; `$$` is a dollar sign and
//! `$!` an exclamation mark.

use crate::env::Env;

/// A configured value, not yet looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConfigValue {
    /// What a shell command prints, without surrounding white space.
    Command(String),
    /// Text with variables in it.
    Text(Vec<Piece>),
}

/// A piece of [`ConfigValue::Text`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Literal(String),
    Variable(String),
}

impl ConfigValue {
    pub(crate) fn parse(text: &str) -> ConfigValue {
        if let Some(command) = text.strip_prefix('!') {
            return ConfigValue::Command(command.trim().to_owned());
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            literal.push_str(&rest[..dollar]);
            let after = &rest[dollar + 1..];
            let (name, next) = match after.as_bytes().first() {
                Some(b'$') => ("", &after[1..]),
                Some(b'!') => {
                    literal.push('!');
                    rest = &after[1..];
                    continue;
                }
                Some(b'{') => match after[1..].find('}') {
                    Some(end) if is_name(&after[1..1 + end]) => (&after[1..1 + end], &after[end + 2..]),
                    _ => ("", after),
                },
                _ => after.split_at(name_length(after)),
            };
            if name.is_empty() {
                literal.push('$');
            } else {
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Variable(name.to_owned()));
            }
            rest = next;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        ConfigValue::Text(pieces)
    }

    /// The configured value that stands for exactly this text.
    pub(crate) fn literal(text: &str) -> String {
        let doubled = text.replace('$', "$$");
        match doubled.strip_prefix('!') {
            Some(rest) => format!("$!{rest}"),
            None => doubled,
        }
    }

    /// A variable it needs and `env` lacks.
    pub(crate) fn unset<'a>(&'a self, env: &Env) -> Option<&'a str> {
        match self {
            ConfigValue::Command(_) => None,
            ConfigValue::Text(pieces) => pieces.iter().find_map(|piece| match piece {
                Piece::Variable(name) if env.get(name).is_none() => Some(name.as_str()),
                _ => None,
            }),
        }
    }
}

/// The pieces put together.
///
/// # Errors
/// The name of the first variable that `env` lacks.
pub(crate) fn expand(pieces: &[Piece], env: &Env) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(text) => out.push_str(text),
            Piece::Variable(name) => out.push_str(env.get(name).ok_or_else(|| name.clone())?),
        }
    }
    Ok(out)
}

fn name_length(text: &str) -> usize {
    let digit_first = text.as_bytes().first().is_some_and(u8::is_ascii_digit);
    if digit_first { 0 } else { text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count() }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_looked_up() {
        let env: Env = [("A", "1"), ("B_2", "zwei")].into_iter().collect();
        for (text, want) in [
            ("plain", Ok("plain")),
            ("$A", Ok("1")),
            ("${A}x$B_2-", Ok("1xzwei-")),
            ("a$$A", Ok("a$A")),
            ("$!cmd", Ok("!cmd")),
            ("5$", Ok("5$")),
            ("$1 ${} ${A", Ok("$1 ${} ${A")),
            ("$MISSING", Err("MISSING")),
            ("x${NOPE}", Err("NOPE")),
        ] {
            let ConfigValue::Text(pieces) = ConfigValue::parse(text) else { panic!("{text} is no command") };
            assert_eq!(expand(&pieces, &env), want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        for text in ["sk-plain", "$A", "${A}$$x$!", "!A", "!$A", "5$"] {
            let ConfigValue::Text(pieces) = ConfigValue::parse(&ConfigValue::literal(text)) else {
                panic!("{text} is no command")
            };
            assert_eq!(expand(&pieces, &env), Ok(text.to_owned()));
        }
        assert_eq!(ConfigValue::parse("! pass show x "), ConfigValue::Command("pass show x".into()));
        assert_eq!(ConfigValue::parse("a$A$Q").unset(&env), Some("Q"));
    }
}
