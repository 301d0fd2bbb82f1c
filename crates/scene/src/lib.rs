//! Drawn pictures for demo and measurements: a road, a car, its plate, and the measurement burnt in, as enforcement
//! cameras deliver them. Every picture is drawn anew from its number.

#![forbid(unsafe_code)]

mod canvas;
mod glyphs;

use std::io;
use std::path::Path;

use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageError};

use crate::canvas::{Canvas, Point, Rgb, mix};

use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Size of a picture in pixels.
const WIDTH: u16 = 1920;
const HEIGHT: u16 = 1080;
/// Cameras in the published measurements send about 640 KB (500 pictures make 320 MB).
const TARGET_BYTES: usize = 640_000;
/// Strength of the sensor noise that brings a picture to that size at quality 84; found by trial.
const GRAIN: i32 = 21;
const QUALITY: u8 = 84;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) number: u64,
    pub(crate) plate: String,
    pub(crate) place: &'static str,
    pub(crate) latitude_microdeg: i32,
    pub(crate) longitude_microdeg: i32,
    pub(crate) speed_kmh: u32,
    pub(crate) limit_kmh: u32,
    pub(crate) lane: u32,
    pub(crate) classification: u8,
    /// As burnt into the picture, RFC 3339.
    pub(crate) time: String,
    pub(crate) device: String,
}

/// Draws picture `number` of `device` and its facts: `violation-NNNNNN.jpg` and `.json` in `folder`, by way of
/// `stage` on the same file system, so that nobody sees half a file.
///
/// # Errors
/// Those of drawing and of writing; the latter name the file.
pub fn draw(folder: &Path, stage: &Path, number: u64, device: &str) -> io::Result<()> {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    let time = now.format(&Rfc3339).unwrap_or_default();
    let seen = observe(number, time.clone(), device);
    let picture = jpeg(&seen).map_err(io::Error::other)?;
    let facts = json!({
        "captured_at": time,
        "classification": seen.classification,
        "violation": {
            "type": "speeding",
            "place": {
                "name": seen.place,
                "latitude_microdeg": seen.latitude_microdeg,
                "longitude_microdeg": seen.longitude_microdeg,
            },
            "speed_kmh": seen.speed_kmh,
            "limit_kmh": seen.limit_kmh,
            "plate": seen.plate,
            "lane": seen.lane,
            "device_serial": "DEMO-0017",
        },
    });
    let name = format!("violation-{number:06}");
    for (extension, bytes) in [("jpg", picture), ("json", facts.to_string().into_bytes())] {
        let temporary = stage.join(format!("{name}.{extension}.part"));
        let target = folder.join(format!("{name}.{extension}"));
        let written =
            std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, target));
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", temporary.display()))
        })?;
    }
    Ok(())
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same number always gives the same picture.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        let wide = u128::from(self.next()) * u128::from(n);
        u32::try_from(wide >> 64).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let n = u32::try_from(from.len()).ok()?;
        from.get(usize::try_from(self.below(n)).ok()?).copied()
    }
}

/// Draws the facts of violation `number`.
pub(crate) fn observe(number: u64, time: String, device: &str) -> Observation {
    const PLACES: [(&str, i32, i32); 4] = [
        ("A4 KM 215.3 WESTBOUND", 50_064_650, 19_944_980),
        ("RING ROAD EXIT 7", 50_082_300, 19_912_400),
        ("HARBOUR BRIDGE", 50_047_100, 19_931_800),
        ("SCHOOL STREET 12", 50_059_900, 19_958_200),
    ];
    const LETTERS: &[u8] = b"ABCDEFGHJKLMNPRSTUVWXYZ";
    let mut dice = Dice::new(number);
    let (place, latitude_microdeg, longitude_microdeg) =
        dice.pick(&PLACES).unwrap_or(("UNKNOWN", 0, 0));
    let mut letter = || char::from(dice.pick(LETTERS).unwrap_or(b'X'));
    let letters: String = [letter(), letter()].iter().collect();
    let plate = format!(
        "{letters} {:03}{}",
        dice.below(1000),
        char::from(dice.pick(LETTERS).unwrap_or(b'X'),)
    );
    let limit_kmh = dice.pick(&[50, 70, 90, 130]).unwrap_or(50);
    Observation {
        number,
        plate,
        place,
        latitude_microdeg,
        longitude_microdeg,
        speed_kmh: limit_kmh + 11 + dice.below(60),
        limit_kmh,
        lane: 1 + dice.below(2),
        // Mostly level 1, some 2; every fifth is level 3, so that there is something to refuse.
        classification: if number.is_multiple_of(5) {
            3
        } else {
            1 + u8::from(number.is_multiple_of(2))
        },
        time,
        device: device.to_owned(),
    }
}

/// Draws the observation and encodes it as JPEG of roughly 640 KB.
///
/// # Errors
/// Only what the encoder reports.
pub(crate) fn jpeg(seen: &Observation) -> Result<Vec<u8>, ImageError> {
    let mut dice = Dice::new(seen.number ^ 0x5eed);
    let mut canvas = Canvas::new(WIDTH, HEIGHT);
    draw_surroundings(&mut canvas, &mut dice);
    draw_road(&mut canvas);
    let paint = dice.pick(&PAINTS).unwrap_or([200, 200, 200]);
    draw_car(&mut canvas, seen, paint);
    draw_caption(&mut canvas, seen);
    add_grain(&mut canvas, &mut dice);
    let mut bytes = Vec::with_capacity(TARGET_BYTES + TARGET_BYTES / 4);
    JpegEncoder::new_with_quality(&mut bytes, QUALITY).encode(
        &canvas.pixels,
        u32::from(canvas.width),
        u32::from(canvas.height),
        ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

const PAINTS: [Rgb; 6] = [
    [178, 34, 34],
    [40, 70, 140],
    [205, 205, 210],
    [30, 30, 34],
    [60, 110, 70],
    [190, 150, 60],
];
const HORIZON: u16 = 400;

fn draw_surroundings(canvas: &mut Canvas, dice: &mut Dice) {
    let dusk = dice.below(100) > 60;
    let sky: (Rgb, Rgb) = if dusk {
        ([40, 52, 92], [222, 150, 108])
    } else {
        ([104, 160, 216], [214, 228, 236])
    };
    canvas.gradient(0, HORIZON, sky.0, sky.1);
    canvas.gradient(HORIZON, HEIGHT, [92, 110, 70], [58, 76, 44]);
    // Hills, then a row of houses with lit windows.
    for i in 0..7u16 {
        let x = f32::from(i) * 320.0 - 100.0 + count(dice, 120);
        let top = f32::from(HORIZON) - 60.0 - count(dice, 90);
        let foot = f32::from(HORIZON) + 4.0;
        let colour = mix([70, 90, 76], sky.1, 0.35);
        canvas.polygon(&[(x - 260.0, foot), (x, top), (x + 300.0, foot)], colour);
    }
    for i in 0..12u16 {
        let x = f32::from(i) * 165.0 + count(dice, 50);
        let height = 50.0 + count(dice, 120);
        let top = f32::from(HORIZON) - height + 30.0;
        let wall = mix([120, 108, 100], [172, 160, 150], count(dice, 100) / 100.0);
        canvas.rectangle((x, top), 110.0, height, wall);
        for w in 0..6u16 {
            let lit = if dice.below(3) == 0 {
                [250, 226, 140]
            } else {
                [62, 70, 84]
            };
            let at = (
                x + 10.0 + f32::from(w % 3) * 34.0,
                top + 14.0 + f32::from(w / 3) * 34.0,
            );
            canvas.rectangle(at, 20.0, 18.0, lit);
        }
    }
}

fn draw_road(canvas: &mut Canvas) {
    let horizon = f32::from(HORIZON);
    let foot = f32::from(HEIGHT);
    let road = [
        (880.0, horizon),
        (1040.0, horizon),
        (1900.0, foot),
        (20.0, foot),
    ];
    canvas.polygon(&road, [74, 76, 80]);
    for (left, right) in [
        ((886.0, 892.0), (60.0, 100.0)),
        ((1028.0, 1034.0), (1820.0, 1860.0)),
    ] {
        let line = [
            (left.0, horizon),
            (left.1, horizon),
            (right.1, foot),
            (right.0, foot),
        ];
        canvas.polygon(&line, [226, 226, 218]);
    }
    for i in 0..8u16 {
        // Dashes grow towards the viewer as the square of their number.
        let near = |k: f32| horizon + (foot - horizon) * (k / 8.0) * (k / 8.0);
        let (top, bottom) = (near(f32::from(i)), near(f32::from(i) + 0.55));
        let half = |y: f32| 2.0 + (y - horizon) / 60.0;
        let corners: [Point; 4] = [
            (960.0 - half(top), top),
            (960.0 + half(top), top),
            (960.0 + half(bottom), bottom),
            (960.0 - half(bottom), bottom),
        ];
        canvas.polygon(&corners, [232, 232, 224]);
    }
}

fn draw_car(canvas: &mut Canvas, seen: &Observation, paint: Rgb) {
    let x = if seen.lane == 1 { 620.0 } else { 1240.0 };
    let y = 560.0;
    let shade = mix(paint, [0, 0, 0], 0.35);
    canvas.polygon(
        &[
            (x - 300.0, y + 330.0),
            (x + 300.0, y + 330.0),
            (x + 260.0, y + 300.0),
            (x - 260.0, y + 300.0),
        ],
        [34, 34, 36],
    );
    for side in [-1.0, 1.0] {
        canvas.rectangle(
            (x + side * 205.0 - 35.0, y + 220.0),
            70.0,
            100.0,
            [22, 22, 24],
        );
    }
    canvas.polygon(
        &[
            (x - 170.0, y - 90.0),
            (x + 170.0, y - 90.0),
            (x + 230.0, y + 60.0),
            (x - 230.0, y + 60.0),
        ],
        shade,
    );
    canvas.polygon(
        &[
            (x - 150.0, y - 74.0),
            (x + 150.0, y - 74.0),
            (x + 200.0, y + 46.0),
            (x - 200.0, y + 46.0),
        ],
        [54, 74, 92],
    );
    // The driver's outline behind the windscreen.
    canvas.disc((x + 80.0, y - 12.0), 34.0, [88, 74, 66]);
    canvas.polygon(
        &[
            (x - 250.0, y + 60.0),
            (x + 250.0, y + 60.0),
            (x + 262.0, y + 270.0),
            (x - 262.0, y + 270.0),
        ],
        paint,
    );
    canvas.rectangle((x - 120.0, y + 120.0), 240.0, 46.0, [28, 28, 30]);
    for side in [-1.0, 1.0] {
        canvas.disc((x + side * 192.0, y + 138.0), 34.0, [240, 240, 214]);
        canvas.disc((x + side * 192.0, y + 138.0), 20.0, [255, 255, 246]);
    }
    canvas.rectangle((x - 132.0, y + 196.0), 264.0, 60.0, [24, 24, 24]);
    canvas.rectangle((x - 128.0, y + 200.0), 256.0, 52.0, [244, 244, 238]);
    canvas.rectangle((x - 128.0, y + 200.0), 24.0, 52.0, [26, 62, 150]);
    canvas.text(&seen.plate, (x - 96.0, y + 206.0), 5.4, [18, 18, 20]);
}

fn draw_caption(canvas: &mut Canvas, seen: &Observation) {
    let white = [240, 240, 240];
    canvas.rectangle((0.0, 0.0), f32::from(WIDTH), 74.0, [12, 14, 18]);
    canvas.text(
        &format!("{}  {}", seen.device, seen.place),
        (24.0, 20.0),
        5.0,
        white,
    );
    canvas.text(&format!("LANE {}", seen.lane), (1680.0, 20.0), 5.0, white);
    canvas.rectangle((0.0, 1006.0), f32::from(WIDTH), 74.0, [12, 14, 18]);
    canvas.text(&seen.time, (24.0, 1026.0), 5.0, white);
    let speed = format!("{} KM/H (LIMIT {})", seen.speed_kmh, seen.limit_kmh);
    canvas.text(&speed, (850.0, 1022.0), 6.0, [255, 196, 60]);
    canvas.text(
        &format!("NO {:05}", seen.number),
        (1670.0, 1026.0),
        5.0,
        white,
    );
}

/// Sensor noise; without it a drawn picture compresses to a tenth of a real one's size.
fn add_grain(canvas: &mut Canvas, dice: &mut Dice) {
    let (mut word, mut left) = (0, 0);
    canvas.grain(|| {
        if left == 0 {
            (word, left) = (dice.next(), 4);
        }
        // The sum of two bytes has the triangular spread of real noise.
        let spread = i32::from(word.to_le_bytes()[0]) + i32::from(word.to_le_bytes()[1]) - 255;
        word >>= 16;
        left -= 1;
        i8::try_from(spread * GRAIN / 255).unwrap_or(0)
    });
}

/// A number from 0 to below `n` as a length.
fn count(dice: &mut Dice, n: u16) -> f32 {
    f32::from(u16::try_from(dice.below(u32::from(n))).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_differ_repeat_and_have_the_published_size() {
        let first = jpeg(&observe(1, "2026-11-21T10:00:00Z".into(), "camera-17")).unwrap();
        let again = jpeg(&observe(1, "2026-11-21T10:00:00Z".into(), "camera-17")).unwrap();
        let second = jpeg(&observe(2, "2026-11-21T10:00:00Z".into(), "camera-17")).unwrap();
        assert_eq!(first, again);
        assert_ne!(first, second);
        for picture in [&first, &second] {
            assert!(picture.starts_with(&[0xff, 0xd8, 0xff]));
            let kib = picture.len() / 1000;
            assert!((600..680).contains(&kib), "{kib} KB, wanted about 640");
        }
    }
}
