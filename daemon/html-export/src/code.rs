//! Code with its comments, strings, numbers, keywords, types, calls and keys told apart.
//!
//! A scanner of our own, not a grammar engine, for three reasons that were measured or matter more than the last shade of
//! colour: the usual engine adds 3.2 MB to a daemon of 11 and reads 0.2 MB a second, and its regular expressions would run
//! on text that a model wrote. This one is linear in the text by construction: it goes forward only.

use crate::html;
use crate::languages::{Flavor, Language};

/// Longer blocks are shown without colours: each token is an element, and a browser feels a hundred thousand of them.
pub(crate) const HIGHLIGHT_BYTES: usize = 64 * 1024;

/// The kinds of token; each is a class of the page's style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Comment,
    Text,
    Number,
    Keyword,
    Type,
    Call,
    Key,
    Mark,
}

impl Token {
    fn class(self) -> &'static str {
        match self {
            Token::Comment => "hc",
            Token::Text => "hs",
            Token::Number => "hn",
            Token::Keyword => "hk",
            Token::Type => "ht",
            Token::Call => "hf",
            Token::Key => "hp",
            Token::Mark => "hm",
        }
    }
}

/// Appends `code`, coloured when the language is known and the block is not too long.
pub(crate) fn highlighted(out: &mut String, code: &str, language: Option<&'static Language>) {
    let Some(language) = language.filter(|_| code.len() <= HIGHLIGHT_BYTES) else {
        return html::text(out, code);
    };
    let mut scanner =
        Scanner { out, code, language, at: 0, plain: 0, line_start: true, command: true, in_tag: false };
    while scanner.at < code.len() {
        scanner.step();
    }
    html::text(scanner.out, &code[scanner.plain..]);
}

struct Scanner<'a> {
    out: &'a mut String,
    code: &'a str,
    language: &'static Language,
    at: usize,
    /// What is not written yet begins here.
    plain: usize,
    /// Only blanks since the line began.
    line_start: bool,
    /// A shell expects a command here.
    command: bool,
    /// Between `<` and `>` of markup.
    in_tag: bool,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.code[self.at..]
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.code.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The text up to `end` is a token.
    fn token(&mut self, token: Token, end: usize) {
        html::text(self.out, &self.code[self.plain..self.at]);
        self.out.push_str("<span class=\"");
        self.out.push_str(token.class());
        self.out.push_str("\">");
        html::text(self.out, &self.code[self.at..end]);
        self.out.push_str("</span>");
        self.at = end;
        self.plain = end;
    }

    fn step(&mut self) {
        let byte = self.byte(0);
        let starts_line = self.line_start;
        match byte {
            b'\n' => {
                self.line_start = true;
                self.command = true;
                self.at += 1;
                return;
            }
            b' ' | b'\t' | b'\r' => {
                self.at += 1;
                return;
            }
            _ => self.line_start = false,
        }
        if starts_line && self.line_beginning() {
            return;
        }
        if self.comment() || self.special(byte) || self.text() {
            return;
        }
        match byte {
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(),
            _ => {
                self.command = matches!(byte, b'|' | b'&' | b';' | b'(' | b'`');
                self.at += 1;
            }
        }
    }

    /// A key or a preprocessor's line.
    fn line_beginning(&mut self) -> bool {
        let line = self.rest().split('\n').next().unwrap_or_default();
        match self.language.flavor {
            Flavor::Preprocessor if line.starts_with('#') => {
                let length = 1 + line[1..]
                    .bytes()
                    .take_while(|byte| byte.is_ascii_alphabetic() || *byte == b' ')
                    .count();
                let length = line[..length].trim_end().len();
                self.token(Token::Mark, self.at + length);
                true
            }
            Flavor::Settings => {
                if line.starts_with('[') {
                    self.token(Token::Type, self.at + line.trim_end().len());
                    return true;
                }
                let dashes = line.bytes().take_while(|byte| matches!(byte, b'-' | b' ')).count();
                let key = line[dashes..]
                    .bytes()
                    .take_while(|byte| {
                        byte.is_ascii_alphanumeric()
                            || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'"' | b'\'')
                    })
                    .count();
                let after = line[dashes + key..].trim_start_matches([' ', '\t']);
                if key > 0 && (after.starts_with(':') || after.starts_with('=')) {
                    self.at += dashes;
                    self.token(Token::Key, self.at + key);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    fn comment(&mut self) -> bool {
        let rest = self.rest();
        if let Some((open, close)) = self.language.block_comment
            && rest.starts_with(open)
        {
            let length =
                rest[open.len()..].find(close).map_or(rest.len(), |at| open.len() + at + close.len());
            self.token(Token::Comment, self.at + length);
            return true;
        }
        if !self.language.line_comments.iter().any(|open| rest.starts_with(open)) {
            return false;
        }
        // `a#b` and `$#` are words of a shell, `http://` is none of YAML's comments.
        let before = self.at.checked_sub(1).map(|at| self.code.as_bytes()[at]);
        if self.byte(0) == b'#' && before.is_some_and(|byte| !byte.is_ascii_whitespace() && byte != b';') {
            return false;
        }
        if self.language.flavor == Flavor::Css && before == Some(b':') {
            return false;
        }
        let length = rest.find('\n').unwrap_or(rest.len());
        self.token(Token::Comment, self.at + length);
        true
    }

    /// What only one flavor has.
    fn special(&mut self, byte: u8) -> bool {
        match (self.language.flavor, byte) {
            (Flavor::Rust, b'\'') => {
                let length = match self.byte(1) {
                    b'\\' => self.rest()[2..].find('\'').filter(|at| *at < 12).map(|at| at + 3),
                    _ => {
                        let character = self.rest()[1..].chars().next().map_or(0, char::len_utf8);
                        (self.byte(1 + character) == b'\'').then_some(character + 2)
                    }
                };
                match length {
                    Some(length) => self.token(Token::Text, self.at + length),
                    None => {
                        let length = 1 + word_length(&self.rest()[1..]);
                        self.token(Token::Type, self.at + length);
                    }
                }
                true
            }
            (Flavor::Rust, b'r' | b'b') => {
                let prefix =
                    self.rest().bytes().take_while(|byte| matches!(byte, b'r' | b'b')).take(2).count();
                let hashes = self.rest()[prefix..].bytes().take_while(|byte| *byte == b'#').count();
                let raw = self.rest()[..prefix].contains('r');
                if !raw || self.byte(prefix + hashes) != b'"' || word_before(self.code, self.at) {
                    return false;
                }
                let body = prefix + hashes + 1;
                // The end is looked for once; a block without one is a string to its end.
                let close = format!("\"{}", "#".repeat(hashes));
                let rest = self.rest();
                let length = rest[body..].find(&close).map_or(rest.len(), |at| body + at + close.len());
                self.token(Token::Text, self.at + length);
                true
            }
            (Flavor::Rust, b'#') if matches!((self.byte(1), self.byte(2)), (b'[', _) | (b'!', b'[')) => {
                let line = self.rest().split('\n').next().unwrap_or_default();
                let length = line.find(']').map_or(line.len(), |at| at + 1);
                self.token(Token::Mark, self.at + length);
                true
            }
            (Flavor::Decorators, b'@') | (Flavor::Css, b'@') => {
                let length = 1 + word_length(&self.rest()[1..]);
                self.token(Token::Mark, self.at + length);
                true
            }
            (Flavor::Css, b'#') if self.byte(1).is_ascii_hexdigit() => {
                let length = 1 + word_length(&self.rest()[1..]);
                self.token(Token::Number, self.at + length);
                true
            }
            (Flavor::Shell, b'$') => {
                let length = match self.byte(1) {
                    b'{' => self.rest().split(['}', '\n']).next().map_or(1, |name| name.len() + 1),
                    b'(' => return false,
                    _ => {
                        1 + word_length(&self.rest()[1..])
                            .max(usize::from(self.byte(1).is_ascii_punctuation()))
                    }
                };
                self.token(Token::Key, (self.at + length).min(self.code.len()));
                true
            }
            (Flavor::Markup, b'<') if matches!(self.byte(1), b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!' | b'?') =>
            {
                let name =
                    self.rest()[2..].bytes().take_while(|byte| is_word(*byte) || matches!(byte, b'-' | b':'));
                let length = 2 + name.count();
                self.in_tag = true;
                self.token(Token::Keyword, self.at + length);
                true
            }
            (Flavor::Markup, b'>') => {
                self.in_tag = false;
                self.token(Token::Keyword, self.at + 1);
                true
            }
            _ => false,
        }
    }

    fn text(&mut self) -> bool {
        if self.language.flavor == Flavor::Markup && !self.in_tag {
            return false;
        }
        let rest = self.rest();
        let Some(quote) = self.language.quotes.iter().find(|quote| rest.starts_with(quote.open)) else {
            return false;
        };
        let bytes = rest.as_bytes();
        let mut end = quote.open.len();
        while end < bytes.len() {
            if bytes[end..].starts_with(quote.close.as_bytes()) {
                end += quote.close.len();
                break;
            }
            match bytes[end] {
                b'\n' if !quote.lines => break,
                b'\\' if quote.escapes => end += 2,
                _ => end += 1,
            }
        }
        // An escape at the very end, or before a longer character, may have stepped too far or between its bytes.
        let mut end = end.min(bytes.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let keyed = matches!(self.language.flavor, Flavor::Keys) && rest[end..].trim_start().starts_with(':');
        self.command = false;
        self.token(if keyed { Token::Key } else { Token::Text }, self.at + end);
        true
    }

    fn number(&mut self) {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        while end < bytes.len() {
            let more = match bytes[end] {
                b'.' => bytes.get(end + 1).is_some_and(u8::is_ascii_digit),
                b'+' | b'-' => matches!(bytes[end - 1], b'e' | b'E') && !self.rest().starts_with("0x"),
                byte => byte.is_ascii_alphanumeric() || byte == b'_',
            };
            if !more {
                break;
            }
            end += 1;
        }
        self.command = false;
        self.token(Token::Number, self.at + end);
    }

    fn word(&mut self) {
        let length = word_length(self.rest());
        let end = self.at + length;
        let word = &self.code[self.at..end];
        let after = &self.code[end..];
        let command = std::mem::replace(&mut self.command, false);
        let token = match self.language.flavor {
            Flavor::Markup => self.in_tag.then_some(Token::Key),
            _ if keyword(self.language, word) => {
                self.command = self.language.flavor == Flavor::Shell;
                Some(Token::Keyword)
            }
            Flavor::Shell if command => {
                let assigned = after.starts_with('=');
                self.command = assigned && after[1..].starts_with('$');
                let end = end
                    + after
                        .bytes()
                        .take_while(|byte| is_word(*byte) || matches!(byte, b'-' | b'.' | b'/'))
                        .count();
                self.token(if assigned { Token::Key } else { Token::Call }, end);
                return;
            }
            Flavor::Css => after.trim_start_matches([' ', '-']).starts_with(':').then_some(Token::Key),
            Flavor::Keys | Flavor::Settings | Flavor::Shell => None,
            _ if after.starts_with('(')
                || (after.starts_with("!(") && self.language.flavor == Flavor::Rust) =>
            {
                Some(Token::Call)
            }
            _ if word.starts_with(|first: char| first.is_ascii_uppercase()) && !self.language.any_case => {
                Some(Token::Type)
            }
            _ => None,
        };
        match token {
            Some(token) => self.token(token, end),
            None => self.at = end,
        }
    }
}

fn keyword(language: &Language, word: &str) -> bool {
    let mut words = language.keywords.split(' ');
    if language.any_case {
        words.any(|known| known.eq_ignore_ascii_case(word))
    } else {
        words.any(|known| known == word)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn word_length(text: &str) -> usize {
    text.bytes().take_while(|byte| is_word(*byte)).count()
}

fn word_before(code: &str, at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| is_word(code.as_bytes()[before]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages;

    /// Tokens as `class:text`, plain text left out.
    fn tokens(name: &str, code: &str) -> Vec<String> {
        let mut out = String::new();
        highlighted(&mut out, code, Some(languages::find(name).expect(name)));
        let parts = out.split("<span class=\"").skip(1);
        parts.map(|part| part.split("</span>").next().unwrap_or_default().replace("\">", ":")).collect()
    }

    #[test]
    fn languages_are_told_apart() {
        for (name, code, expected) in [
            (
                "rust",
                "#[test]\nfn f<'a>(x: &'a str) -> Vec<u8> { let c = '\\n'; r#\"a\"b\"# /* c */ } // d",
                "hm:#[test] hk:fn ht:'a ht:'a ht:Vec hk:let hs:'\\n' hs:r#\"a\"b\"# hc:/* c */ hc:// d",
            ),
            (
                "ts",
                "const a = `x\n${y}`; f(1.5e-3) as Foo",
                "hk:const hs:`x\n${y}` hf:f hn:1.5e-3 hk:as ht:Foo",
            ),
            (
                "python",
                "@dec\ndef f(self): # c\n  return '''a\nb''' + \"\\\"q\"",
                "hm:@dec hk:def hf:f hk:self hc:# c hk:return hs:'''a\nb''' hs:\"\\\"q\"",
            ),
            (
                "bash",
                "FOO=1 cargo test -p x | grep \"$a\" # c\nif true; then echo $HOME ${X}; fi",
                "hp:FOO hn:1 hf:grep hs:\"$a\" hc:# c hk:if hf:true hk:then hf:echo hp:$HOME hp:${X} hk:fi",
            ),
            ("json", "{\"a\": \"b\", \"c\": [1, true]}", "hp:\"a\" hs:\"b\" hp:\"c\" hn:1 hk:true"),
            ("yaml", "# c\n- a: http://x#y\n  b-c: 'd'", "hc:# c hp:a hp:b-c hs:'d'"),
            ("toml", "[x]\na = \"b\"", "ht:[x] hp:a hs:\"b\""),
            ("css", "a:hover { color: #fff; } /* x */", "hp:a hp:color hn:#fff hc:/* x */"),
            (
                "html",
                "<!-- c --><a href=\"x\">it's</a>",
                "hc:&lt;!-- c --&gt; hk:&lt;a hp:href hs:\"x\" hk:&gt; hk:&lt;/a hk:&gt;",
            ),
            ("sql", "select 'a' FROM t -- c", "hk:select hs:'a' hk:FROM hc:-- c"),
            (
                "c",
                "#include <x>\nint f(void) { return 0x1F; }",
                "hm:#include hk:int hf:f hk:void hk:return hn:0x1F",
            ),
        ] {
            assert_eq!(tokens(name, code).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn no_text_is_lost_and_none_panics() {
        let pieces = [
            "'",
            "\"",
            "\\",
            "é",
            "\u{1f600}",
            "/*",
            "*/",
            "#",
            "$",
            "${",
            "r#\"",
            "<a",
            ">",
            "0x",
            "1e",
            "\n",
            "@",
            "`",
            "[[",
            "b'",
            "//",
            "=",
            ":",
            "-",
            "a",
            "<",
            " ",
        ];
        let mut state = 7u64;
        for round in 0..4000 {
            let mut code = String::new();
            for _ in 0..round % 14 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                code.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            for language in languages::LANGUAGES {
                let mut out = String::new();
                highlighted(&mut out, &code, Some(language));
                let mut expected = String::new();
                html::text(&mut expected, &code);
                let bare: String = strip(&out);
                assert_eq!(bare, expected, "{code:?} as {}", language.names[0]);
            }
        }
    }

    fn strip(html: &str) -> String {
        let mut out = String::new();
        let mut inside = false;
        for character in html.chars() {
            match character {
                '<' => inside = true,
                '>' if inside => inside = false,
                _ if !inside => out.push(character),
                _ => {}
            }
        }
        out
    }

    #[test]
    fn long_blocks_stay_plain() {
        let mut out = String::new();
        let code = "fn ".repeat(HIGHLIGHT_BYTES / 3 + 1);
        highlighted(&mut out, &code, languages::find("rust"));
        assert_eq!(out, code);
    }
}
