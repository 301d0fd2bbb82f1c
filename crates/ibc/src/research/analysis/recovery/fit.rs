//! Finds the S-box under which what was seen together belongs together.
//!
//! An S-box is `A·inv(x) ^ 0x63`, so eight images of independent inverses are all of it. Both
//! halves of the attack come down to the same question: some pairs of inputs x, y are *linked*
//! (bits of one byte for the permutation, neighbours in one bit for the substitution), images of
//! linked inputs were seen together more often than others, and A is wanted. Images are placed
//! one after the other; with each, more of A is known, and with it more linked pairs, whose counts
//! tell right from wrong long before all eight are placed.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::super::field::{CONSTANT, PartialMap, coordinates, inverse};

/// Maps kept after each placed image: many while the score says little, few at the end.
const KEPT: [usize; 8] = [255, 8192, 16384, 16384, 8192, 2048, 256, 256];

/// Counts of two output values of an S-box that were seen together.
pub(super) struct Counts(Box<[u32]>);

impl Counts {
    pub(super) fn new() -> Self {
        Self(vec![0; 1 << 16].into_boxed_slice())
    }

    /// Adds that `one` and `other` were seen together; `share` is more the surer it is that
    /// they are linked.
    pub(super) fn add(&mut self, one: u8, other: u8, share: u32) {
        let (one, other) = (one ^ CONSTANT, other ^ CONSTANT);
        for (a, b) in [(one, other), (other, one)] {
            if let Some(count) = self.0.get_mut(usize::from(a) << 8 | usize::from(b)) {
                *count = count.saturating_add(share);
            }
        }
    }

    /// The sum of all shares between images, which are outputs without the constant.
    fn between(&self, one: u8, other: u8) -> u64 {
        let index = usize::from(one) << 8 | usize::from(other);
        self.0.get(index).copied().unwrap_or_default().into()
    }
}

/// A matrix and how much of what was seen it explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) rows: [u8; 8],
    pub(super) score: u64,
}

/// Links between inputs, and the order in which to place images.
pub(super) struct Fitter {
    /// Inputs of the map A: inverses of the first inputs of the S-box that are independent.
    basis: Vec<u8>,
    /// For every step the links that become known with it, as masks of the basis.
    fresh: Vec<Vec<(u8, u8)>>,
}

impl Fitter {
    /// Places images of S-box inputs in the order of `inputs`, as far as they are independent;
    /// `linked` says which inputs are linked.
    pub(super) fn new(inputs: impl Iterator<Item = u8>, linked: impl Fn(u8, u8) -> bool) -> Self {
        let mut basis = Vec::new();
        let mut fresh: Vec<Vec<(u8, u8)>> = Vec::new();
        for input in inputs {
            if coordinate(&basis, input).is_some() {
                continue;
            }
            basis.push(inverse(input));
            let masks = coordinates(&basis);
            let mask = |x: u8| masks.get(usize::from(inverse(x))).copied().flatten();
            let is_new = |a: u8, b: u8| (a | b) >> (basis.len() - 1) & 1 == 1;
            let mut links = Vec::new();
            for x in 0..=u8::MAX {
                for y in x..=u8::MAX {
                    if linked(x, y)
                        && let Some((a, b)) = mask(x).zip(mask(y))
                        && is_new(a, b)
                    {
                        links.push((a, b));
                    }
                }
            }
            fresh.push(links);
        }
        Self { basis, fresh }
    }

    /// The matrices that explain most, best first.
    pub(super) fn fit(&self, counts: &Counts) -> Vec<Fit> {
        let mut maps = vec![(0, PartialMap::new())];
        for ((input, links), kept) in self.basis.iter().zip(&self.fresh).zip(KEPT) {
            let mut best = Best::new(kept);
            for (score, map) in &maps {
                for image in (1..=u8::MAX).filter(|image| !map.has_image(*image)) {
                    let place = |mask: u8| map.image_with(mask, image);
                    let more = links
                        .iter()
                        .map(|(a, b)| counts.between(place(*a), place(*b)));
                    best.offer(score + more.sum::<u64>(), || {
                        let mut map = map.clone();
                        map.add(*input, image);
                        map
                    });
                }
            }
            maps = best.into_sorted();
        }
        let fit = |(score, map): (u64, PartialMap)| {
            let rows = map.rows()?;
            Some(Fit { rows, score })
        };
        maps.into_iter().filter_map(fit).collect()
    }
}

fn coordinate(basis: &[u8], input: u8) -> Option<u8> {
    let masks = coordinates(basis);
    masks.get(usize::from(inverse(input))).copied().flatten()
}

/// Keeps the maps with the highest scores.
struct Best {
    limit: usize,
    kept: Vec<(u64, PartialMap)>,
    /// Bound that a map must exceed to be kept.
    bar: u64,
}

impl Best {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: Vec::new(),
            bar: 0,
        }
    }

    /// Keeps the map if its score is good enough; between two sortings up to twice the limit.
    fn offer(&mut self, score: u64, map: impl FnOnce() -> PartialMap) {
        if self.kept.len() >= self.limit && score <= self.bar {
            return;
        }
        self.kept.push((score, map()));
        if self.kept.len() >= 2 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        // Stable: of equal scores the first stays, so runs repeat.
        self.kept
            .sort_by_key(|(score, _)| core::cmp::Reverse(*score));
        self.kept.truncate(self.limit);
        self.bar = self.kept.last().map_or(0, |(score, _)| *score);
    }

    fn into_sorted(mut self) -> Vec<(u64, PartialMap)> {
        self.cut();
        self.kept
    }
}
