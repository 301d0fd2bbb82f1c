//! A picture in memory with the few shapes that a road scene needs.

use crate::glyphs::glyph;

pub(crate) type Rgb = [u8; 3];
/// A corner of a shape in pixels from the top left; may lie outside of the picture.
pub(crate) type Point = (f32, f32);

/// Pixels in rows from the top, three bytes each.
pub(crate) struct Canvas {
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) pixels: Vec<u8>,
}

impl Canvas {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        let pixels = vec![0; usize::from(width) * usize::from(height) * 3];
        Self {
            width,
            height,
            pixels,
        }
    }

    /// Sets the pixels from column `from` to before `to` of row `y`, cut to the picture.
    fn span(&mut self, y: u16, from: f32, to: f32, colour: Rgb) {
        let (from, to) = (column(from, self.width), column(to, self.width));
        let row = usize::from(y) * usize::from(self.width);
        let start = (row + usize::from(from)) * 3;
        let end = (row + usize::from(to.max(from))) * 3;
        for pixel in self
            .pixels
            .get_mut(start..end)
            .unwrap_or_default()
            .chunks_exact_mut(3)
        {
            pixel.copy_from_slice(&colour);
        }
    }

    /// Fills rows `from` to before `to` with colours going from one to the other.
    pub(crate) fn gradient(&mut self, from: u16, to: u16, above: Rgb, below: Rgb) {
        for y in from..to.min(self.height) {
            let share = f32::from(y - from) / f32::from((to - from).max(1));
            self.span(y, 0.0, f32::from(self.width), mix(above, below, share));
        }
    }

    /// Fills a convex or concave polygon by the even-odd rule.
    pub(crate) fn polygon(&mut self, corners: &[Point], colour: Rgb) {
        for y in 0..self.height {
            let centre = f32::from(y) + 0.5;
            let mut crossings: Vec<f32> = corners
                .iter()
                .zip(corners.iter().cycle().skip(1))
                .filter(|(a, b)| (a.1 <= centre) != (b.1 <= centre))
                .map(|(a, b)| a.0 + (centre - a.1) / (b.1 - a.1) * (b.0 - a.0))
                .collect();
            crossings.sort_by(f32::total_cmp);
            for pair in crossings.chunks_exact(2) {
                if let [from, to] = pair {
                    self.span(y, *from, *to, colour);
                }
            }
        }
    }

    /// Fills an axis-parallel rectangle.
    pub(crate) fn rectangle(&mut self, (x, y): Point, width: f32, height: f32, colour: Rgb) {
        let (right, bottom) = (x + width, y + height);
        self.polygon(&[(x, y), (right, y), (right, bottom), (x, bottom)], colour);
    }

    pub(crate) fn disc(&mut self, centre: Point, radius: f32, colour: Rgb) {
        let corners: Vec<Point> = (0..48u8)
            .map(|i| {
                let angle = f32::from(i) / 48.0 * std::f32::consts::TAU;
                (
                    centre.0 + radius * angle.cos(),
                    centre.1 + radius * angle.sin(),
                )
            })
            .collect();
        self.polygon(&corners, colour);
    }

    /// Writes `text` with its top left corner at `at`; a letter is 6 by 7 `scale` pixels.
    pub(crate) fn text(&mut self, text: &str, at: Point, scale: f32, colour: Rgb) {
        let mut x = at.0;
        for c in text.chars() {
            let mut y = at.1;
            for bits in glyph(c) {
                let mut left = x;
                for column in (0..5).rev() {
                    if bits >> column & 1 == 1 {
                        self.rectangle((left, y), scale, scale, colour);
                    }
                    left += scale;
                }
                y += scale;
            }
            x += 6.0 * scale;
        }
    }

    /// Adds what `noise` gives (-128 to 127) to every channel.
    pub(crate) fn grain(&mut self, mut noise: impl FnMut() -> i8) {
        for channel in &mut self.pixels {
            *channel = channel.saturating_add_signed(noise());
        }
    }
}

/// Mixes two colours: `share` 0 gives the first, 1 the second.
pub(crate) fn mix(a: Rgb, b: Rgb, share: f32) -> Rgb {
    let mut mixed = a;
    for (m, b) in mixed.iter_mut().zip(b) {
        *m = channel(f32::from(*m) + (f32::from(b) - f32::from(*m)) * share);
    }
    mixed
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of the target on the same line"
)]
fn channel(value: f32) -> u8 {
    value.clamp(0.0, 255.0) as u8
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of the target on the same line"
)]
fn column(x: f32, width: u16) -> u16 {
    x.round().clamp(0.0, f32::from(width)) as u16
}
