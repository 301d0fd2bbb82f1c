use image::{ImageEncoder as _, Luma};

use super::*;

/// A picture, white above and black below, that the camera held as `orientation` says: what is stored is turned.
fn held(orientation: u16, format: ImageFormat) -> Vec<u8> {
    let upright = image::GrayImage::from_fn(640, 320, |_, y| Luma([if y < 160 { 255 } else { 0 }]));
    let mut stored = DynamicImage::ImageLuma8(upright);
    let undo = match Orientation::from_exif(u8::try_from(orientation).unwrap()).unwrap() {
        Orientation::Rotate90 => Orientation::Rotate270,
        Orientation::Rotate270 => Orientation::Rotate90,
        other => other,
    };
    stored.apply_orientation(undo);
    let mut exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend(u32::from(orientation).to_le_bytes());
    exif.extend([0; 4]);
    let (pixels, mut bytes) = (stored.to_luma8(), Vec::new());
    let (width, height) = (pixels.width(), pixels.height());
    let kind = image::ExtendedColorType::L8;
    if format == ImageFormat::Png {
        let mut encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        encoder.set_exif_metadata(exif).unwrap();
        encoder.write_image(&pixels, width, height, kind).unwrap();
    } else {
        let mut encoder = JpegEncoder::new(&mut bytes);
        encoder.set_exif_metadata(exif).unwrap();
        encoder.write_image(&pixels, width, height, kind).unwrap();
    }
    bytes
}

#[test]
fn thumbnails_are_upright_in_all_orientations() {
    for format in [ImageFormat::Jpeg, ImageFormat::Png] {
        for orientation in 1..=8 {
            let small = scaled(&held(orientation, format), format).unwrap();
            let small = image::load_from_memory(&small).unwrap().to_luma8();
            let what = format!("{format:?} {orientation}");
            assert_eq!((small.width(), small.height()), (640, 320), "{what}");
            let (above, below) = (
                small.get_pixel(320, 20).0[0],
                small.get_pixel(320, 300).0[0],
            );
            assert!(above > 200 && below < 50, "{what}: {above} above {below}");
        }
    }
}

#[test]
fn picture_with_an_unknown_orientation_is_shown_as_stored() {
    let whole = held(1, ImageFormat::Jpeg);
    for value in [0, 9, 200] {
        let mut odd = whole.clone();
        let tag = odd
            .windows(4)
            .position(|w| w == [0x12, 0x01, 0x03, 0])
            .unwrap();
        odd[tag + 8] = value;
        let small = scaled(&odd, ImageFormat::Jpeg).unwrap();
        let small = image::load_from_memory(&small).unwrap();
        assert_eq!((small.width(), small.height()), (640, 320), "{value}");
    }
}

#[test]
fn picture_that_is_cut_of_another_kind_or_too_large_is_refused() {
    let png = held(1, ImageFormat::Png);
    assert!(scaled(&png[..20], ImageFormat::Png).is_err());
    assert!(scaled(&png, ImageFormat::Jpeg).is_err());
    assert!(scaled(&held(1, ImageFormat::Jpeg), ImageFormat::Png).is_err());
    assert!(scaled(b"", ImageFormat::Png).is_err());
    // A bomb: the header says 100 000 by 100 000.
    let mut bomb = png;
    bomb[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
    assert!(scaled(&bomb, ImageFormat::Png).is_err());
}
