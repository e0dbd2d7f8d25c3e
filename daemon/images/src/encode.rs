//! From pixels to bytes that are small enough.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, GenericImageView, Rgb, RgbImage};

use crate::Limits;
use atomic_protocol::image::base64_length;

/// Qualities of JPEG that follow the first one.
const QUALITIES: [u8; 4] = [85, 70, 55, 40];

/// Each side when no encoding was small enough: three quarters of it.
const SHRINK: (u32, u32) = (3, 4);

/// A picture that is this many times too large is first halved, and so on, without filtering: faster, and with far less
/// memory than one great step, and nobody sees it after the last step.
const ROUGH: u32 = 4;

/// The picture upright and within the limits of its sides, and its full size upright.
pub(crate) fn shrunk(
    mut picture: DynamicImage,
    orientation: Orientation,
    limits: &Limits,
) -> (DynamicImage, (u32, u32)) {
    let turned = matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    let (width, height) = picture.dimensions();
    let full = if turned { (height, width) } else { (width, height) };
    let (width, height) = within(full, (limits.max_width, limits.max_height));
    let (width, height) = if turned { (height, width) } else { (width, height) };
    picture = resized(picture, width, height);
    // After it became small: turning copies.
    picture.apply_orientation(orientation);
    (picture, full)
}

/// The first encoding that is small enough: PNG, then JPEG of falling quality, then the same of a smaller picture. With
/// its MIME type and the size shown.
pub(crate) fn smallest(
    mut picture: DynamicImage,
    limits: &Limits,
) -> Option<(Vec<u8>, &'static str, (u32, u32))> {
    let fits = |bytes: &Vec<u8>| base64_length(bytes.len() as u64) <= limits.max_base64;
    loop {
        let size = picture.dimensions();
        if let Some(bytes) = png(&picture).filter(fits) {
            return Some((bytes, "image/png", size));
        }
        let opaque = opaque(&picture);
        for quality in [limits.jpeg_quality].into_iter().chain(QUALITIES) {
            if let Some(bytes) = jpeg(&opaque, quality).filter(fits) {
                return Some((bytes, "image/jpeg", size));
            }
        }
        if size == (1, 1) {
            return None;
        }
        let smaller = |side: u32| (side * SHRINK.0 / SHRINK.1).max(1);
        picture = resized(picture, smaller(size.0), smaller(size.1));
    }
}

/// The largest size of the same shape within bounds.
fn within((width, height): (u32, u32), (max_width, max_height): (u32, u32)) -> (u32, u32) {
    let factor =
        (f64::from(max_width) / f64::from(width)).min(f64::from(max_height) / f64::from(height)).min(1.0);
    let side = |side: u32, most: u32| ((f64::from(side) * factor).round() as u32).clamp(1, most.max(1));
    (side(width, max_width), side(height, max_height))
}

fn resized(mut picture: DynamicImage, width: u32, height: u32) -> DynamicImage {
    while picture.width() / ROUGH >= width && picture.height() / ROUGH >= height {
        picture = picture.thumbnail_exact(picture.width() / 2, picture.height() / 2);
    }
    if picture.dimensions() == (width, height) {
        return picture;
    }
    picture.resize_exact(width, height, FilterType::Lanczos3)
}

fn png(picture: &DynamicImage) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut out, CompressionType::Default, PngFilter::Adaptive);
    // Providers look at eight bits a channel.
    eight_bits(picture).write_with_encoder(encoder).ok()?;
    Some(out)
}

fn jpeg(picture: &RgbImage, quality: u8) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    JpegEncoder::new_with_quality(&mut out, quality.clamp(1, 100)).encode_image(picture).ok()?;
    Some(out)
}

fn eight_bits(picture: &DynamicImage) -> std::borrow::Cow<'_, DynamicImage> {
    use std::borrow::Cow;
    match picture {
        DynamicImage::ImageLuma8(_)
        | DynamicImage::ImageLumaA8(_)
        | DynamicImage::ImageRgb8(_)
        | DynamicImage::ImageRgba8(_) => Cow::Borrowed(picture),
        other if other.color().has_alpha() => Cow::Owned(DynamicImage::ImageRgba8(other.to_rgba8())),
        other => Cow::Owned(DynamicImage::ImageRgb8(other.to_rgb8())),
    }
}

/// JPEG has no transparency: what shines through is white, as on a page.
fn opaque(picture: &DynamicImage) -> RgbImage {
    if !picture.color().has_alpha() {
        return picture.to_rgb8();
    }
    let picture = picture.to_rgba8();
    RgbImage::from_fn(picture.width(), picture.height(), |x, y| {
        let [red, green, blue, alpha] = picture.get_pixel(x, y).0;
        let over = |channel: u8| {
            let (channel, alpha) = (u32::from(channel), u32::from(alpha));
            u8::try_from((channel * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX)
        };
        Rgb([over(red), over(green), over(blue)])
    })
}
