//! What an attacker knows of the S-boxes: the inversion in the field, and linear algebra.

/// `INVERSE[x]` is the inverse of `x` in the field of the specification, 0 for 0.
pub(super) static INVERSE: [u8; 256] = inverses();

/// The constant that every S-box adds: `S(0)`.
pub(super) const CONSTANT: u8 = 0x63;

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a panic is an error"
)]
const fn inverses() -> [u8; 256] {
    let mut table = [0; 256];
    let mut x: u8 = 1;
    // The inverse of x is the y with xy = 1: 255 candidates each, at compile time.
    loop {
        let mut y: u8 = 1;
        while multiply(x, y) != 1 {
            y = y.wrapping_add(1);
        }
        table[x as usize] = y;
        if x == u8::MAX {
            return table;
        }
        x += 1;
    }
}

const fn multiply(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1b };
        b >>= 1;
    }
    product
}

/// `INVERSE[x]`.
pub(super) fn inverse(x: u8) -> u8 {
    INVERSE.get(usize::from(x)).copied().unwrap_or_default()
}

/// A linear map on bytes, learnt image by image: unknown outside of the span of what is known.
///
/// The known inputs are independent; `images` holds the map on all their sums, in the order of
/// the mask that says which inputs are summed.
#[derive(Clone)]
pub(super) struct PartialMap {
    inputs: [u8; 8],
    images: [u8; 256],
    dimension: usize,
}

impl PartialMap {
    /// Knows that 0 goes to 0.
    pub(super) const fn new() -> Self {
        Self {
            inputs: [0; 8],
            images: [0; 256],
            dimension: 0,
        }
    }

    /// The image of the sum of the known inputs in `mask`, in the order they were added.
    pub(super) fn image(&self, mask: u8) -> u8 {
        self.images
            .get(usize::from(mask))
            .copied()
            .unwrap_or_default()
    }

    /// The image of the sum in `mask`, if one more input had `image`.
    pub(super) fn image_with(&self, mask: u8, image: u8) -> u8 {
        let is_in = mask >> self.dimension & 1 == 1;
        let known = mask & !(1 << self.dimension);
        self.image(known) ^ if is_in { image } else { 0 }
    }

    /// Whether `image` is the image of something known: another input cannot have it.
    pub(super) fn has_image(&self, image: u8) -> bool {
        let known = self.images.get(..1 << self.dimension).unwrap_or_default();
        known.contains(&image)
    }

    /// Adds that `input`, independent of the known ones, goes to `image`.
    pub(super) fn add(&mut self, input: u8, image: u8) {
        let size = 1 << self.dimension;
        if let Some(slot) = self.inputs.get_mut(self.dimension) {
            *slot = input;
            let (known, rest) = self.images.split_at_mut(size);
            for (old, new) in known.iter().zip(rest) {
                *new = old ^ image;
            }
            self.dimension += 1;
        }
    }

    /// The rows of the matrix, once the map is known everywhere.
    pub(super) fn rows(&self) -> Option<[u8; 8]> {
        if self.dimension < 8 {
            return None;
        }
        let masks = coordinates(&self.inputs);
        let mut rows = [0; 8];
        for input in 0..8u8 {
            // The column of the matrix that belongs to this bit of the input.
            let mask = masks.get(1 << input).copied().flatten()?;
            let column = self.image(mask);
            for (bit, row) in rows.iter_mut().enumerate() {
                *row |= (column >> bit & 1) << input;
            }
        }
        Some(rows)
    }
}

/// For every byte the mask of the `basis` elements whose sum it is, if it is one.
pub(super) fn coordinates(basis: &[u8]) -> [Option<u8>; 256] {
    let mut masks = [None; 256];
    for mask in 0..=u8::MAX {
        if u32::from(mask) >> basis.len().min(8) != 0 {
            break;
        }
        let chosen = |(index, element): (usize, &u8)| element * (mask >> index & 1);
        let sum = basis.iter().take(8).enumerate().map(chosen);
        let sum = sum.fold(0, |sum, element| sum ^ element);
        if let Some(slot) = masks.get_mut(usize::from(sum)) {
            slot.get_or_insert(mask);
        }
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_are_those_of_the_field() {
        assert_eq!(inverse(0), 0);
        assert_eq!(inverse(1), 1);
        assert_eq!(inverse(2), 0x8d);
        assert_eq!(inverse(0x53), 0xca);
        for x in 1..=255 {
            assert_eq!(multiply(x, inverse(x)), 1);
        }
    }

    #[test]
    fn a_map_learnt_on_a_basis_is_the_matrix() {
        let rows = [0xf1, 0xe3, 0xc7, 0x8f, 0x1f, 0x3e, 0x7c, 0xf8u8];
        let apply = |x: u8| -> u8 {
            let bit = |(i, row): (usize, &u8)| u8::from((row & x).count_ones() % 2 == 1) << i;
            rows.iter().enumerate().map(bit).sum()
        };
        let mut map = PartialMap::new();
        for bit in 0..8 {
            assert_eq!(map.rows(), None);
            let input = inverse(1 << bit);
            assert!(!map.has_image(apply(input)));
            map.add(input, apply(input));
        }
        assert_eq!(map.rows(), Some(rows));
    }
}
