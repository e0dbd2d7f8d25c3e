//! The page's style, script and the policy that lets in nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::ansi;

/// The only script of the page.
pub(crate) const SCRIPT: &str = include_str!("../assets/page.js");

/// The only style of the page: what people wrote, and the rules of the 240 terminal colours.
pub(crate) fn style() -> String {
    let mut style = include_str!("../assets/page.css").to_owned();
    ansi::style_rules(&mut style);
    style
}

/// The Content-Security-Policy: nothing from anywhere but images in `data:` URLs, this style and this script.
pub(crate) fn policy(style: &str) -> String {
    format!(
        "default-src 'none'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        source(style),
        source(SCRIPT)
    )
}

fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_browsers_compute() {
        // SHA-256 of the empty text, FIPS 180-4.
        assert_eq!(source(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
    }

    #[test]
    fn neither_can_end_its_element() {
        for text in [SCRIPT, &style()] {
            let lower = text.to_ascii_lowercase();
            assert!(!lower.contains("</") && !lower.contains("<!--"));
            // A parser of HTML would turn these into line feeds, and the hash would be another's.
            assert!(!text.contains('\r') && !text.contains('\0'));
        }
    }
}
