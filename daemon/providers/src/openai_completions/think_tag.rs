//! Thinking that stands in the text, between `<think>` and `</think>` at its very beginning: what servers send that do
//! not know the model's template.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Splits a text that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct ThinkTag {
    state: State,
    /// What came and cannot be told apart yet: the beginning of a tag, or blanks before one.
    held: String,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    /// Nothing but blanks so far, and perhaps the beginning of the tag.
    #[default]
    Begin,
    Thinking,
    /// The tag has been closed; blanks before the text that follows are dropped.
    Closed,
    Text,
}

/// A piece of the one or the other.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Thinking(String),
    Text(String),
}

impl ThinkTag {
    /// Thinking came another way, or an answer is under way: text is text from here.
    pub(super) fn only_text(&mut self, out: &mut Vec<Piece>) {
        if self.state == State::Begin {
            self.state = State::Text;
            self.flush(out);
        }
    }

    /// Text is text from here, and nothing is held.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Text
    }

    /// More of the text.
    pub(super) fn push(&mut self, mut piece: String, out: &mut Vec<Piece>) {
        if self.state == State::Text {
            return out.push(Piece::Text(piece));
        }
        if !self.held.is_empty() {
            self.held.push_str(&piece);
            piece = std::mem::take(&mut self.held);
        }
        loop {
            match self.state {
                State::Begin => {
                    let begun = piece.trim_start();
                    if let Some(rest) = begun.strip_prefix(OPEN) {
                        piece = rest.to_owned();
                        self.state = State::Thinking;
                    } else if OPEN.starts_with(begun) {
                        self.held = piece;
                        return;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Thinking => match piece.split_once(CLOSE) {
                    Some((thought, rest)) => {
                        if !thought.is_empty() {
                            out.push(Piece::Thinking(thought.to_owned()));
                        }
                        piece = rest.to_owned();
                        self.state = State::Closed;
                    }
                    None => {
                        let keep =
                            (1..CLOSE.len()).rev().find(|&n| piece.ends_with(&CLOSE[..n])).unwrap_or(0);
                        self.held = piece.split_off(piece.len() - keep);
                        if !piece.is_empty() {
                            out.push(Piece::Thinking(piece));
                        }
                        return;
                    }
                },
                State::Closed => {
                    let rest = piece.trim_start();
                    if rest.is_empty() {
                        return;
                    }
                    piece = rest.to_owned();
                    self.state = State::Text;
                }
                State::Text => {
                    if !piece.is_empty() {
                        out.push(Piece::Text(piece));
                    }
                    return;
                }
            }
        }
    }

    /// The text is over.
    pub(super) fn flush(&mut self, out: &mut Vec<Piece>) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        out.push(if self.state == State::Thinking { Piece::Thinking(held) } else { Piece::Text(held) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinking and text of a whole answer.
    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut tag = ThinkTag::default();
        let mut out = Vec::new();
        for piece in pieces {
            tag.push(piece.to_owned(), &mut out);
        }
        tag.flush(&mut out);
        let (mut thinking, mut text) = (String::new(), String::new());
        for piece in out {
            match piece {
                Piece::Thinking(piece) => thinking.push_str(&piece),
                Piece::Text(piece) => text.push_str(&piece),
            }
        }
        (thinking, text)
    }

    #[test]
    fn the_same_however_it_is_cut() {
        for (whole, thinking, text) in [
            ("plain", "", "plain"),
            (
                " \n<think>\nso </thin </think>\n\nAnswer <think>x</think>",
                "\nso </thin ",
                "Answer <think>x</think>",
            ),
            ("<think></think>a", "", "a"),
            ("<think>cut </thi", "cut </thi", ""),
            ("<thinking>x", "", "<thinking>x"),
            (" <th", "", " <th"),
            ("a<think>b</think>", "", "a<think>b</think>"),
            ("<think>ä</think> ö", "ä", "ö"),
            ("", "", ""),
        ] {
            let want = (thinking.to_owned(), text.to_owned());
            assert_eq!(split([whole]), want, "{whole:?}");
            let chars: Vec<String> = whole.chars().map(String::from).collect();
            assert_eq!(split(chars.iter().map(String::as_str)), want, "{whole:?}");
            for at in (0..whole.len()).filter(|at| whole.is_char_boundary(*at)) {
                assert_eq!(split([&whole[..at], &whole[at..]]), want, "{whole:?} at {at}");
            }
        }
    }

    #[test]
    fn other_thinking_ends_the_search() {
        let mut tag = ThinkTag::default();
        let mut out = Vec::new();
        tag.push(" ".to_owned(), &mut out);
        tag.only_text(&mut out);
        tag.push("<think>".to_owned(), &mut out);
        assert_eq!(out, [Piece::Text(" ".into()), Piece::Text("<think>".into())]);
    }
}
