//! What the fuzz targets share: cutting one input into a stream and the pieces it arrives in.
#![forbid(unsafe_code)]

/// An input read as a stream of bytes and a pattern of piece sizes.
///
/// The first byte says how many bytes of pattern follow; the rest is the stream. A size of 0 is an empty piece, which a
/// reader may see as well.
#[derive(Debug)]
pub struct Pieces<'a> {
    /// The whole stream.
    pub stream: &'a [u8],
    sizes: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// Cuts `input`. `None` when it holds no pattern that ever ends.
    pub fn of(input: &'a [u8]) -> Option<Pieces<'a>> {
        let (count, rest) = input.split_first()?;
        let (sizes, stream) = rest.split_at_checked(usize::from(*count % 16))?;
        // Nothing but empty pieces would never reach the end of the stream.
        sizes.iter().any(|size| *size > 0).then_some(Pieces { stream, sizes })
    }

    /// The stream in pieces; the pattern repeats.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.cut(self.stream)
    }

    /// Other bytes in pieces of these sizes.
    pub fn cut<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let mut rest = bytes;
        self.sizes.iter().cycle().map_while(move |size| {
            if rest.is_empty() {
                return None;
            }
            let (piece, tail) = rest.split_at(usize::from(*size).min(rest.len()));
            rest = tail;
            Some(piece)
        })
    }
}
