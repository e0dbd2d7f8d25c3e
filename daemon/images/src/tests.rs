use super::*;

use image::{ExtendedColorType, ImageEncoder as _, Rgb, RgbImage, Rgba, RgbaImage};
use proptest::prelude::*;

/// Every pixel another color: nothing that compresses.
fn noise(width: u32, height: u32) -> DynamicImage {
    let mut state = 1_u32;
    DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, red, green, blue] = state.to_be_bytes();
        Rgb([red, green, blue])
    }))
}

fn plain(width: u32, height: u32) -> DynamicImage {
    DynamicImage::ImageRgba8(RgbaImage::from_pixel(width, height, Rgba([10, 200, 30, 255])))
}

fn written(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn size(bytes: &[u8]) -> (u32, u32) {
    let picture = image::load_from_memory(bytes).unwrap();
    (picture.width(), picture.height())
}

/// A JPEG that a camera held sideways made: EXIF orientation 6, to be turned by 90 degrees.
fn sideways(width: u32, height: u32) -> Vec<u8> {
    let picture = plain(width, height).to_rgb8();
    let mut out = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut out, 80);
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    encoder.set_exif_metadata(exif.to_vec()).unwrap();
    encoder.encode(&picture, width, height, ExtendedColorType::Rgb8).unwrap();
    out
}

#[test]
fn what_fits_goes_on_byte_for_byte() {
    for (format, mime_type) in [
        (ImageFormat::Png, "image/png"),
        (ImageFormat::Jpeg, "image/jpeg"),
        (ImageFormat::Gif, "image/gif"),
        (ImageFormat::WebP, "image/webp"),
    ] {
        let bytes = written(&DynamicImage::ImageRgb8(noise(40, 30).to_rgb8()), format);
        let fitted = fit(&bytes, &Limits::default()).unwrap();
        assert_eq!(fitted, Fitted { bytes: None, mime_type, note: None });
    }
    // Even when it should be turned: the provider may know how.
    let fitted = fit(&sideways(60, 30), &Limits::default()).unwrap();
    assert_eq!(fitted, Fitted { bytes: None, mime_type: "image/jpeg", note: None });
}

#[test]
fn too_many_pixels_become_fewer_and_the_model_is_told() {
    for (width, height, shown, note) in [
        (
            4000,
            1000,
            (2000, 500),
            "[Image: original 4000x1000, displayed at 2000x500. Multiply coordinates by 2.00 to map to original image.]",
        ),
        (
            300,
            3001,
            (200, 2000),
            "[Image: original 300x3001, displayed at 200x2000. Multiply coordinates by 1.50 to map to original image.]",
        ),
        (
            9000,
            10,
            (2000, 2),
            "[Image: original 9000x10, displayed at 2000x2. Multiply coordinates by 4.50 to map to original image.]",
        ),
    ] {
        let fitted = fit(&written(&plain(width, height), ImageFormat::Png), &Limits::default()).unwrap();
        assert_eq!(fitted.note.as_deref(), Some(note));
        assert_eq!(fitted.mime_type, "image/png");
        assert_eq!(size(&fitted.bytes.unwrap()), shown);
    }
}

#[test]
fn a_large_one_is_turned_upright() {
    let fitted = fit(&sideways(3000, 1000), &Limits::default()).unwrap();
    assert_eq!(size(&fitted.bytes.unwrap()), (667, 2000));
    assert!(fitted.note.unwrap().starts_with("[Image: original 1000x3000, displayed at 667x2000."));
}

#[test]
fn too_many_bytes_become_jpeg_then_fewer_pixels() {
    let bytes = written(&noise(400, 300), ImageFormat::Png);
    let limits = |max_base64| Limits { max_base64, ..Limits::default() };
    let jpeg = fit(&bytes, &limits(200_000)).unwrap();
    assert_eq!((jpeg.mime_type, jpeg.note), ("image/jpeg", None));
    assert_eq!(size(&jpeg.bytes.unwrap()), (400, 300));

    let small = fit(&bytes, &limits(20_000)).unwrap();
    let data = small.bytes.unwrap();
    assert!(base64_length(data.len() as u64) <= 20_000);
    assert!(size(&data).0 < 400);
    assert!(small.note.unwrap().starts_with("[Image: original 400x300, displayed at "));

    assert_eq!(fit(&bytes, &limits(10)), Err(Error::TooLarge));
}

#[test]
fn transparency_is_white_in_jpeg() {
    let picture = DynamicImage::ImageRgba8(RgbaImage::from_pixel(8, 8, Rgba([0, 0, 0, 0])));
    let bytes = encode::smallest(picture, &Limits { max_base64: 900, ..Limits::default() });
    // The PNG of nothing is small; what counts is what a JPEG of it would be.
    assert_eq!(bytes.unwrap().1, "image/png");
    let mut noisy = noise(200, 200).to_rgba8();
    noisy.pixels_mut().filter(|pixel| pixel.0[0] < 250).for_each(|pixel| pixel.0[3] = 0);
    let limits = Limits { max_base64: 60_000, ..Limits::default() };
    let (bytes, mime_type, _) = encode::smallest(DynamicImage::ImageRgba8(noisy), &limits).unwrap();
    assert_eq!(mime_type, "image/jpeg");
    let shown = image::load_from_memory(&bytes).unwrap().to_luma8();
    let mean = shown.pixels().map(|pixel| u64::from(pixel.0[0])).sum::<u64>() / (200 * 200);
    assert!(mean > 200, "{mean}");
}

#[test]
fn other_kinds_become_png() {
    let fitted = fit(&written(&plain(10, 10), ImageFormat::Bmp), &Limits::default()).unwrap();
    assert_eq!(fitted.mime_type, "image/png");
    assert_eq!(fitted.note.as_deref(), Some("[Image converted from image/bmp to image/png.]"));
    assert_eq!(size(&fitted.bytes.unwrap()), (10, 10));
}

#[test]
fn what_is_no_image_is_said() {
    let png = written(&noise(40, 40), ImageFormat::Png);
    for bytes in
        [&b""[..], b"hi", b"\x89PNG\r\n\x1a\n", &png[..png.len() / 2], b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 "]
    {
        assert_eq!(fit(bytes, &Limits::default()), Err(Error::Unreadable), "{} bytes", bytes.len());
    }
    assert!(Error::Unreadable.to_string().starts_with("[Image omitted: "));
}

/// Few bytes that say they are very many pixels.
#[test]
fn a_bomb_is_not_decoded() {
    let mut png = written(&plain(1, 1), ImageFormat::Png);
    for (at, side) in [(16, 60_000_u32), (20, 60_000)] {
        png[at..at + 4].copy_from_slice(&side.to_be_bytes());
    }
    let checksum = crc(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(fit(&png, &Limits::default()), Err(Error::TooLarge));
}

/// PNG's checksum (PNG specification, annex D).
fn crc(bytes: &[u8]) -> u32 {
    let each =
        bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 }
            })
        });
    !each
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn broken_bytes_never_panic(format in 0..5_usize, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let format = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP, ImageFormat::Bmp][format];
        let mut bytes = written(&DynamicImage::ImageRgb8(noise(24, 16).to_rgb8()), format);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let limits = Limits { max_width: 16, max_height: 16, max_base64: 600, jpeg_quality: 80 };
        if let Ok(Fitted { bytes: Some(bytes), .. }) = fit(&bytes, &limits) {
            prop_assert!(base64_length(bytes.len() as u64) <= 600);
        }
    }
}
