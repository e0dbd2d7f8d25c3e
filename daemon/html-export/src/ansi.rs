//! Terminal output: SGR colours and styles become classes, every other control sequence is dropped.
//!
//! A page must not carry `style` attributes, so colours are classes: sixteen that follow the theme and 240 of the usual
//! cube and grey ramp. 24-bit colours become the nearest of the 240. Links (OSC 8) keep their text and lose their target.
//!
//! A sequence counts only when it is complete and on one line: nothing that a program printed can swallow the text after it.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::html;

/// Appends `text` with its colours.
pub(crate) fn coloured(out: &mut String, text: &str) {
    let mut style = Style::default();
    for part in parts(text) {
        match part {
            Part::Text(text) => style.show(out, text),
            Part::Select(parameters) => style.select(parameters),
        }
    }
}

/// `text` without control sequences.
pub(crate) fn bare(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return text.into();
    }
    let texts = parts(text).filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Select(_) => None,
    });
    texts.collect::<String>().into()
}

const ESCAPE: char = '\x1b';

enum Part<'a> {
    /// Text without complete sequences.
    Text(&'a str),
    /// Parameters of an SGR sequence.
    Select(&'a str),
}

/// Cuts `text` at its control sequences; those that are no SGR are left out.
fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            // An incomplete sequence is text: the search goes on after its first character.
            let mut from = 0;
            let found = loop {
                let Some(at) = rest[from..].find(ESCAPE).map(|at| from + at) else { break None };
                match sequence(&rest[at + 1..]) {
                    Some(length) => break Some((at, at + 1 + length)),
                    None => from = at + 1,
                }
            };
            match found {
                None => return Some(Part::Text(std::mem::take(&mut rest))),
                Some((0, end)) => {
                    let (sequence, after) = rest.split_at(end);
                    rest = after;
                    let select = sequence[1..].strip_prefix('[').and_then(|inner| inner.strip_suffix('m'));
                    if let Some(select) =
                        select.filter(|inner| inner.bytes().all(|byte| matches!(byte, b'0'..=b';')))
                    {
                        return Some(Part::Select(select));
                    }
                }
                Some((at, _)) => {
                    let (before, after) = rest.split_at(at);
                    rest = after;
                    return Some(Part::Text(before));
                }
            }
        }
    })
}

/// The length of the sequence that begins with `after` an escape (ECMA-48: control sequences, strings, two-byte escapes).
fn sequence(after: &str) -> Option<usize> {
    let bytes = after.as_bytes();
    match *bytes.first()? {
        b'[' => {
            let parameters = bytes[1..].iter().take_while(|byte| matches!(byte, 0x20..=0x3F)).count();
            matches!(bytes.get(1 + parameters)?, 0x40..=0x7E).then_some(parameters + 2)
        }
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let end =
                bytes.iter().take(LONGEST_STRING).position(|byte| matches!(byte, 0x07 | 0x1B | b'\n'))?;
            match (bytes[end], bytes.get(end + 1)) {
                (0x07, _) => Some(end + 1),
                (0x1B, Some(b'\\')) => Some(end + 2),
                _ => None,
            }
        }
        0x20..=0x2F => matches!(bytes.get(1)?, 0x30..=0x7E).then_some(2),
        0x30..=0x7E => Some(1),
        _ => None,
    }
}

/// A title or a link is shorter; what is longer is shown.
const LONGEST_STRING: usize = 4096;

#[derive(Clone, Copy, Default, PartialEq)]
struct Style {
    foreground: Option<u8>,
    background: Option<u8>,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    strike: bool,
    inverse: bool,
    hidden: bool,
}

impl Style {
    fn show(&self, out: &mut String, text: &str) {
        let (mut foreground, mut background) = (self.foreground, self.background);
        if self.inverse {
            std::mem::swap(&mut foreground, &mut background);
        }
        let mut classes = String::new();
        for (set, class) in [
            (self.bold, " sb"),
            (self.dim, " sd"),
            (self.italic, " si"),
            (self.underline, " su"),
            (self.strike, " ss"),
            (self.hidden, " sh"),
            (self.inverse && foreground.is_none(), " fi"),
            (self.inverse && background.is_none(), " bi"),
        ] {
            if set {
                classes.push_str(class);
            }
        }
        match background {
            Some(colour @ 0..16) => drop(write!(classes, " b{colour}")),
            Some(colour) => drop(write!(classes, " bx x{colour}")),
            None => {}
        }
        // The cube's colour is a property that one element has once, so a foreground from it has its own element.
        let mut own = None;
        match foreground {
            Some(colour @ 0..16) => drop(write!(classes, " f{colour}")),
            other => own = other,
        }
        if !classes.is_empty() {
            let _ = write!(out, "<span class=\"{}\">", classes.trim_start());
        }
        if let Some(colour) = own {
            let _ = write!(out, "<span class=\"fx x{colour}\">");
        }
        html::text(out, text);
        if own.is_some() {
            out.push_str("</span>");
        }
        if !classes.is_empty() {
            out.push_str("</span>");
        }
    }

    /// Takes the parameters of an SGR sequence.
    fn select(&mut self, parameters: &str) {
        let mut params = parameters.split(';');
        while let Some(param) = params.next() {
            let mut values = param.split(':').map(number);
            let code = values.next().unwrap_or(0);
            match code {
                0 => *self = Style::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                // `4:0` is none of the underlines that `4:n` names.
                4 => self.underline = values.next() != Some(0),
                7 => self.inverse = true,
                8 => self.hidden = true,
                9 => self.strike = true,
                21 => self.underline = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underline = false,
                27 => self.inverse = false,
                28 => self.hidden = false,
                29 => self.strike = false,
                30..=37 => self.foreground = Some((code - 30) as u8),
                40..=47 => self.background = Some((code - 40) as u8),
                90..=97 => self.foreground = Some((code - 82) as u8),
                100..=107 => self.background = Some((code - 92) as u8),
                39 => self.foreground = None,
                49 => self.background = None,
                38 | 48 => {
                    let own: Vec<u16> = values.collect();
                    let mut next = || params.next().map_or(0, number);
                    let colour = if !own.is_empty() {
                        of_subparameters(&own)
                    } else {
                        match next() {
                            5 => u8::try_from(next()).ok(),
                            2 => Some(nearest([next(), next(), next()])),
                            _ => None,
                        }
                    };
                    if colour.is_some() {
                        *if code == 38 { &mut self.foreground } else { &mut self.background } = colour;
                    }
                }
                _ => {}
            }
        }
    }
}

/// A parameter; a missing one is 0, an absurd one is the largest.
fn number(digits: &str) -> u16 {
    if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u16::MAX) }
}

/// `5:n`, `2:r:g:b` or `2:space:r:g:b`.
fn of_subparameters(values: &[u16]) -> Option<u8> {
    match *values {
        [5, colour, ..] => u8::try_from(colour).ok(),
        [2, red, green, blue] | [2, _, red, green, blue, ..] => Some(nearest([red, green, blue])),
        _ => None,
    }
}

/// The levels of the colour cube's sides, as every terminal has them.
const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The one of the 240 that is nearest.
fn nearest(rgb: [u16; 3]) -> u8 {
    let rgb = rgb.map(|value| value.min(255) as i32);
    let distance =
        |other: [u8; 3]| -> i32 { rgb.iter().zip(other).map(|(a, b)| (a - i32::from(b)).pow(2)).sum() };
    (16..=255u8).min_by_key(|index| distance(colour(*index))).unwrap_or(15)
}

/// Red, green and blue of one of the 240.
fn colour(index: u8) -> [u8; 3] {
    match index {
        232.. => [8 + (index - 232) * 10; 3],
        _ => {
            let cube = index.saturating_sub(16);
            [cube / 36, cube / 6 % 6, cube % 6].map(|side| LEVELS[usize::from(side)])
        }
    }
}

/// The rules of the 240 classes.
pub(crate) fn style_rules(out: &mut String) {
    for index in 16..=255u8 {
        let [red, green, blue] = colour(index);
        let _ = write!(out, ".x{index}{{--c:#{red:02x}{green:02x}{blue:02x}}}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        coloured(&mut out, text);
        out
    }

    #[test]
    fn colours_and_styles() {
        for (text, expected) in [
            ("plain <b>", "plain &lt;b&gt;"),
            ("\x1b[31mred\x1b[0m.", "<span class=\"f1\">red</span>."),
            (
                "\x1b[1;4;92;41mx\x1b[22m\x1b[39my\x1b[m",
                "<span class=\"sb su b1 f10\">x</span><span class=\"su b1\">y</span>",
            ),
            (
                "\x1b[38;5;196mx\x1b[48;5;16my",
                "<span class=\"fx x196\">x</span><span class=\"bx x16\"><span class=\"fx x196\">y</span></span>",
            ),
            ("\x1b[38;2;255;0;0mx", "<span class=\"fx x196\">x</span>"),
            (
                "\x1b[38:2::0:0:254mx\x1b[38:5:3my",
                "<span class=\"fx x21\">x</span><span class=\"f3\">y</span>",
            ),
            ("\x1b[7mx\x1b[31my", "<span class=\"fi bi\">x</span><span class=\"fi b1\">y</span>"),
            ("\x1b[4:3mx\x1b[4:0my", "<span class=\"su\">x</span>y"),
            ("\x1b[2K\x1b[1Ax\x1b[?25ly\x1b(B", "xy"),
            ("\x1b]8;;javascript:alert(1)\x1b\\text\x1b]8;;\x07 \x1b]0;title\x07.", "text ."),
            ("a\x1b[0m\r\nb\x1b[", "a\nb␛["),
            ("\x1b]0;never ended\nx \x1bPy", "␛]0;never ended\nx ␛Py"),
            ("\x1b[31mé\x1b[>4;2mü", "<span class=\"f1\">é</span><span class=\"f1\">ü</span>"),
            ("\x1bé\x1b", "␛é␛"),
            (
                "\x1b[999999999999;38;5mx\x1b[38;5;999my",
                "<span class=\"f0\">x</span><span class=\"f0\">y</span>",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
        assert_eq!(bare("\x1b[31mé\x1b[0m\n"), "é\n");
    }

    #[test]
    fn the_240_are_the_usual_ones() {
        assert_eq!(
            [colour(16), colour(196), colour(231), colour(232), colour(255)],
            [[0; 3], [255, 0, 0], [255; 3], [8; 3], [238; 3]]
        );
        assert!((16..=255).all(|index| colour(nearest(colour(index).map(u16::from))) == colour(index)));
    }
}
