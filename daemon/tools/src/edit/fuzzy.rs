//! The form of a text in which small differences vanish that models introduce: compatibility forms, white space at line
//! ends, typographic quotes, dashes and spaces.

use unicode_normalization::UnicodeNormalization as _;

/// `text` in that form. Lines stay lines: nothing here makes or removes a line feed.
pub(super) fn fuzzy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        if line.is_ascii() {
            out.push_str(line.trim_end());
            continue;
        }
        let composed: String = line.nfkc().collect();
        out.extend(composed.trim_end_matches(is_space).chars().map(plain));
    }
    out
}

/// White space as JavaScript's `trimEnd` sees it.
fn is_space(character: char) -> bool {
    character == '\u{feff}' || (character.is_whitespace() && character != '\u{85}')
}

fn plain(character: char) -> char {
    match character {
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        character => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_vanish() {
        for (text, expected) in [
            ("it’s  a “test”   \nkeep  \n", "it's  a \"test\"\nkeep\n"),
            ("x – y — z − w", "x - y - z - w"),
            ("a\u{a0}b\u{3000}c", "a b c"),
            ("ﬁn\u{212b} ", "fin\u{c5}"),
            ("\t \n\n", "\n\n"),
        ] {
            assert_eq!(fuzzy(text), expected);
        }
    }
}
