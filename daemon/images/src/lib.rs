//! Makes images fit for a model: known formats, sound bytes, no larger than providers take.
//!
//! [`fit`] is blocking work on memory alone, tens to hundreds of milliseconds for a photograph: call it off the async
//! threads. Bad input is an [`Error`] whose text can stand in place of the image. Memory is bounded: an image that would
//! need more than [`MAX_ALLOC`] is refused before it is decoded, and only one large image is worked on at a time in the
//! whole process.

#![forbid(unsafe_code)]

mod encode;

use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use atomic_protocol::image::{MAX_BASE64, base64_length};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};

/// Most bytes that the pixels of one image may take. A photograph of 80 megapixels fits.
pub const MAX_ALLOC: u64 = 256 << 20;

/// Longest side of an image that is decoded at all, in pixels: what PNG and JPEG can say goes far beyond what is one.
const MAX_SIDE: u32 = 1 << 16;

/// Images whose pixels take more than this wait for each other. Most screenshots take less.
const LARGE: u64 = 32 << 20;

/// One large image at a time: several sessions with photographs need the memory of one.
static LARGE_GATE: Mutex<()> = Mutex::new(());

/// What a model takes. Sides are pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Most pixels from left to right.
    pub max_width: u32,
    /// Most pixels from top to bottom.
    pub max_height: u32,
    /// Largest base64 text, in bytes.
    pub max_base64: u64,
    /// The first quality of JPEG that is tried, 1 to 100.
    pub jpeg_quality: u8,
}

impl Default for Limits {
    /// What holds for every provider of the shipped catalog (its `inputLimits`).
    fn default() -> Self {
        Limits { max_width: 2000, max_height: 2000, max_base64: MAX_BASE64, jpeg_quality: 80 }
    }
}

/// An image that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The new bytes; `None`: the old ones fit as they are.
    pub bytes: Option<Vec<u8>>,
    /// What the bytes are, whatever somebody said they were.
    pub mime_type: &'static str,
    /// What a model should know about a changed image, a line in square brackets.
    pub note: Option<String>,
}

/// Why there is no image to show. The text is for the model, in place of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No image, a broken one, or of a kind that cannot be read.
    #[error("[Image omitted: could not be converted to a supported inline image format.]")]
    Unreadable,
    /// It would need more memory than we give it, or nothing of it is small enough.
    #[error("[Image omitted: could not be resized below the inline image size limit.]")]
    TooLarge,
}

/// The four kinds that every provider takes go on as they are when they are sound and small enough. Others become PNG;
/// large ones are turned upright, made smaller, and become PNG or JPEG, whichever fits first.
///
/// # Errors
/// See [`Error`].
pub fn fit(bytes: &[u8], limits: &Limits) -> Result<Fitted, Error> {
    let format = image::guess_format(bytes).map_err(|_| Error::Unreadable)?;
    let (kept, mime_type) = known(format).ok_or(Error::Unreadable)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut bounds = image::Limits::default();
    bounds.max_image_width = Some(MAX_SIDE);
    bounds.max_image_height = Some(MAX_SIDE);
    bounds.max_alloc = Some(MAX_ALLOC);
    reader.limits(bounds);
    let mut decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(Error::Unreadable);
    }
    // The decoder keeps to the bounds for its own buffers; the pixels are ours.
    let pixels = decoder.total_bytes();
    if pixels > MAX_ALLOC {
        return Err(Error::TooLarge);
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let _turn = (pixels > LARGE).then(|| LARGE_GATE.lock().unwrap_or_else(PoisonError::into_inner));
    // Also where nothing is to change: half an image would make a provider refuse every request that holds it.
    let picture = DynamicImage::from_decoder(decoder).map_err(refused)?;
    let fits = width <= limits.max_width
        && height <= limits.max_height
        && base64_length(bytes.len() as u64) <= limits.max_base64;
    if kept && fits {
        return Ok(Fitted { bytes: None, mime_type, note: None });
    }
    let mut notes = Vec::new();
    if !kept {
        notes.push(format!("[Image converted from {mime_type} to image/png.]"));
    }
    let (picture, size) = encode::shrunk(picture, orientation, limits);
    let (bytes, mime_type, shown) = encode::smallest(picture, limits).ok_or(Error::TooLarge)?;
    if shown != size {
        let factor = f64::from(size.0) / f64::from(shown.0);
        notes.push(format!(
            "[Image: original {}x{}, displayed at {}x{}. Multiply coordinates by {factor:.2} to map to original image.]",
            size.0, size.1, shown.0, shown.1
        ));
    }
    let note = Some(notes.join("\n")).filter(|note| !note.is_empty());
    Ok(Fitted { bytes: Some(bytes), mime_type, note })
}

/// Whether a format goes on as it is, and its name. `None`: we do not read it.
fn known(format: ImageFormat) -> Option<(bool, &'static str)> {
    Some(match format {
        ImageFormat::Png => (true, "image/png"),
        ImageFormat::Jpeg => (true, "image/jpeg"),
        ImageFormat::Gif => (true, "image/gif"),
        ImageFormat::WebP => (true, "image/webp"),
        ImageFormat::Bmp => (false, "image/bmp"),
        _ => return None,
    })
}

fn refused(error: image::ImageError) -> Error {
    match error {
        image::ImageError::Limits(_) => Error::TooLarge,
        _ => Error::Unreadable,
    }
}

#[cfg(test)]
mod tests;
