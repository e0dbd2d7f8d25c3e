//! Which files are images that a model can be shown, told by their first bytes.

/// Bytes that are enough to tell.
pub const SNIFF_BYTES: usize = 4100;

/// Largest base64 text of an image that is sent: 4.5 MiB.
pub const MAX_BASE64: u64 = 4_718_592;

/// Length of the base64 text of so many bytes.
pub fn base64_length(bytes: u64) -> u64 {
    bytes.div_ceil(3) * 4
}

/// The MIME type, for the four kinds that every provider takes. An animated PNG is not one of them.
pub fn mime_type(start: &[u8]) -> Option<&'static str> {
    if start.starts_with(b"\xff\xd8\xff") {
        // 0xF7 after the marker is JPEG-LS, which nobody shows.
        return (start.get(3) != Some(&0xf7)).then_some("image/jpeg");
    }
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        return (start.get(12..16) == Some(b"IHDR") && !is_animated(start)).then_some("image/png");
    }
    if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        return Some("image/gif");
    }
    if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    None
}

/// Whether an `acTL` chunk comes before the first `IDAT` (PNG specification, third edition, 4.9).
fn is_animated(png: &[u8]) -> bool {
    let mut at = 8;
    while let Some(header) = png.get(at..at + 8) {
        match &header[4..] {
            b"acTL" => return true,
            b"IDAT" => return false,
            _ => {}
        }
        let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
        at = at.saturating_add(length).saturating_add(12);
        if at > png.len() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(chunks: &[&[u8; 4]]) -> Vec<u8> {
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        out.extend([0; 17]);
        for name in chunks {
            out.extend([0, 0, 0, 0]);
            out.extend(*name);
            out.extend([0, 0, 0, 0]);
        }
        out
    }

    #[test]
    fn images_are_known_by_their_first_bytes() {
        assert_eq!(mime_type(&png(&[b"IDAT"])), Some("image/png"));
        assert_eq!(mime_type(&png(&[b"tEXt", b"acTL", b"IDAT"])), None);
        assert_eq!(mime_type(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(mime_type(b"\xff\xd8\xff\xf7"), None);
        assert_eq!(mime_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(mime_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(mime_type(b"BM\0\0"), None);
        assert_eq!(mime_type(b""), None);
    }
}
