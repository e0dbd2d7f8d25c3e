//! What differs from run to run, replaced by names: the one place where a corpus line is not the bytes themselves.

use atomic_tests::{ModelServer, Sandbox};

/// What stands for what in one scenario.
pub(crate) struct Mask {
    /// `(name, value)`: known before, then ids as they are seen.
    names: Vec<(String, String)>,
    entries: usize,
    sessions: usize,
}

impl Mask {
    pub(crate) fn new(sandbox: &Sandbox, server: &ModelServer) -> Mask {
        let project = sandbox.project();
        let root = project.parent().expect("a project lies in the sandbox").display().to_string();
        // How the directory of the project's sessions spells it.
        let encoded = root.trim_start_matches('/').replace('/', "-");
        let names = [("$URL", server.url()), ("$ROOT", root), ("$ENCODED", encoded)]
            .map(|(name, value)| (name.to_owned(), value));
        Mask { names: names.into(), entries: 0, sessions: 0 }
    }

    /// A line of the corpus with what its names stand for.
    pub(crate) fn filled(&self, text: &str) -> String {
        // `$E12` before `$E1`.
        let mut names: Vec<&(String, String)> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// A line of the daemon with names for what differs.
    pub(crate) fn masked(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (name, value) in self.names.iter().take(3) {
            line = line.replace(value, name);
        }
        let mut out = String::with_capacity(line.len());
        let mut rest = line.as_str();
        while let Some(next) = rest.chars().next() {
            let bytes = rest.as_bytes();
            let taken = if fits(bytes, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh") {
                out.push_str(&self.name(&rest[..36], 'S'));
                36
            } else if fits(bytes, "dddd-dd-ddTdd:dd:dd.dddZ") || fits(bytes, "dddd-dd-ddTdd-dd-dd-dddZ") {
                out.push_str("$T");
                24
            } else if fits(bytes, "\"hhhhhhhh\"") {
                out.push('"');
                out.push_str(&self.name(&rest[1..9], 'E'));
                out.push('"');
                10
            } else if let Some(number) =
                rest.strip_prefix("\"timestamp\":").map(digits).filter(|digits| *digits > 0)
            {
                out.push_str("\"timestamp\":$T");
                12 + number
            } else if let Some(number) =
                rest.strip_prefix("\"wallTimeMs\":").map(digits).filter(|digits| *digits > 0)
            {
                out.push_str("\"wallTimeMs\":$MS");
                13 + number
            } else {
                out.push(next);
                next.len_utf8()
            };
            rest = &rest[taken..];
        }
        out
    }

    fn name(&mut self, value: &str, kind: char) -> String {
        if let Some((name, _)) = self.names.iter().find(|(_, known)| known == value) {
            return name.clone();
        }
        let count = if kind == 'S' { &mut self.sessions } else { &mut self.entries };
        *count += 1;
        let name = format!("${kind}{count}");
        self.names.push((name.clone(), value.to_owned()));
        name
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// `bytes` begins with this shape: `h` a hexadecimal digit, `d` a decimal one, anything else itself.
fn fits(bytes: &[u8], shape: &str) -> bool {
    bytes.len() >= shape.len()
        && shape.bytes().zip(bytes).all(|(wanted, byte)| match wanted {
            b'h' => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
            b'd' => byte.is_ascii_digit(),
            wanted => wanted == *byte,
        })
}
