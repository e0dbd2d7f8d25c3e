//! Images inline: only of kinds that cannot carry script, and only when their base64 is base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::html;

/// The kinds that a page shows. No SVG: it is a document.
const SHOWN: [&str; 6] = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];

/// Decoded at a time while checking, so that an image of any size costs this much memory. A multiple of four.
const CHECKED_AT_A_TIME: usize = 16 * 1024;

/// Appends the image, or a note that says why it is not shown.
pub(crate) fn inline(out: &mut String, data: &str, mime: &str) {
    let Some(known) = SHOWN.iter().find(|known| known.eq_ignore_ascii_case(mime)) else {
        out.push_str("<span class=\"note\">Image of type ");
        let mime = html::brief(mime, 60);
        html::isolated(out, if mime.is_empty() { "unknown" } else { &mime });
        out.push_str(", not shown.</span>");
        return;
    };
    let Some(size) = decoded_size(data) else {
        out.push_str("<span class=\"note\">Image not shown: its data is not valid base64.</span>");
        return;
    };
    out.push_str("<img loading=\"lazy\" decoding=\"async\"");
    html::attribute(out, "alt", &format!("Image, {}, {}", &known[6..], html::bytes(size)));
    out.push_str(" src=\"data:");
    out.push_str(known);
    out.push_str(";base64,");
    // Only characters of the base64 alphabet are in it: checked above.
    out.push_str(data);
    out.push_str("\">");
}

/// How many bytes `data` stands for; `None` when it is empty or not base64.
fn decoded_size(data: &str) -> Option<usize> {
    if data.is_empty() {
        return None;
    }
    let mut size = 0;
    let mut buffer = [0; CHECKED_AT_A_TIME];
    let mut chunks = data.as_bytes().chunks(CHECKED_AT_A_TIME).peekable();
    while let Some(chunk) = chunks.next() {
        let last = chunks.peek().is_none();
        // Padding may be missing, but may stand at the end only.
        let engine = if last && chunk.ends_with(b"=") { &STANDARD } else { &STANDARD_NO_PAD };
        size += engine.decode_slice(chunk, &mut buffer).ok()?;
    }
    Some(size)
}

/// The parts of `data:<mime>;base64,<data>`.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (mime, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((mime.strip_suffix(";base64")?, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &str, mime: &str) -> String {
        let mut out = String::new();
        inline(&mut out, data, mime);
        out
    }

    #[test]
    fn only_known_kinds_with_good_data() {
        assert_eq!(
            shown("AAAA", "image/PNG"),
            r#"<img loading="lazy" decoding="async" alt="Image, png, 3 B" src="data:image/png;base64,AAAA">"#
        );
        assert!(shown("AAAA", "image/svg+xml").contains("not shown"));
        assert!(shown("AAAA", "image/png\"><script>").contains("&lt;script&gt;"));
        for bad in ["", "A\"><script>", "AA AA", "AA==AA", "A", "AAAA\n"] {
            assert!(shown(bad, "image/png").contains("not valid base64"), "{bad:?}");
        }
        assert!(shown("AA", "image/gif").contains("1 B") && shown("AA==", "image/gif").contains("1 B"));
    }

    #[test]
    fn large_images_are_checked_in_pieces() {
        let good = "AAAA".repeat(CHECKED_AT_A_TIME);
        assert_eq!(decoded_size(&good), Some(3 * CHECKED_AT_A_TIME));
        assert_eq!(decoded_size(&format!("{good}=AAA")), None);
        assert_eq!(decoded_size(&format!("AA=={good}")), None);
    }

    #[test]
    fn data_urls() {
        assert_eq!(data_url("data:image/png;base64,AA"), Some(("image/png", "AA")));
        assert_eq!(data_url("data:text/html,<b>"), None);
    }
}
