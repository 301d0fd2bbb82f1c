//! From a matrix back to 64 bits of key.

/// Parts of the fraction that belong to the matrices together: the order of GL(8, 2).
const MATRICES: u128 = 5_348_063_769_211_699_200;

/// The least word that the key set-up decodes to the matrix with these rows (specification,
/// section 3.2, step 2); `None` if the matrix is singular.
pub(super) fn word_of(rows: &[u8; 8]) -> Option<u64> {
    let mut free = 0xff;
    let mut index: u128 = 0;
    for (i, row) in rows.iter().enumerate() {
        // Which sum of the earlier rows leaves only bits that are free?
        let sum = |low: u32| {
            let chosen = rows.iter().take(i).enumerate();
            chosen.fold(0, |sum, (j, row)| sum ^ (row * u8::from(low >> j & 1 == 1)))
        };
        let (low, rest) = (0..1 << i)
            .map(|low| (low, row ^ sum(low)))
            .find(|(_, rest)| rest & !free == 0 && *rest != 0)?;
        let digit = (u128::from(extract(rest, free)) - 1) << i | u128::from(low);
        index = index * (256 - (1 << i)) + digit;
        free ^= rest & rest.wrapping_neg();
    }
    // The words of the matrix with this number are those from here up to the next number's.
    u64::try_from((index << 64).div_ceil(MATRICES)).ok()
}

/// The bits of `value` at the places that are set in `mask`, lowest first.
fn extract(value: u8, mask: u8) -> u8 {
    let places = (0..8).filter(|place| mask >> place & 1 == 1);
    let bits = places.enumerate();
    bits.fold(0, |out, (to, place)| out | (value >> place & 1) << to)
}

/// Undoes step 1 of section 3.2: the key part with this `index` whose mixed word is `word`.
pub(super) fn part_of(word: u64, index: u64) -> u64 {
    let z = unshift(word, 31).wrapping_mul(inverse_of(0x94d0_49bb_1331_11eb));
    let z = unshift(z, 27).wrapping_mul(inverse_of(0xbf58_476d_1ce4_e5b9));
    let sum = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    unshift(z, 30).wrapping_sub(sum)
}

/// Undoes `z ^ (z >> count)` for a count above 21.
const fn unshift(z: u64, count: u32) -> u64 {
    z ^ z >> count ^ z >> (2 * count)
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse_of(odd: u64) -> u64 {
    // Right in the lowest 3 bits; each step doubles that.
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Random;
    use super::*;
    use crate::research::{matrix_from_word, mix_part};

    #[test]
    fn parts_come_back_from_their_words() {
        let mut random = Random::new(1);
        for index in 0..5 {
            for part in [0, 1, u64::MAX, random.word(), random.word()] {
                assert_eq!(part_of(mix_part(part, index), index), part);
            }
        }
    }

    #[test]
    fn words_come_back_from_their_matrices_or_the_least_of_the_same_matrix() {
        let mut random = Random::new(2);
        for word in (0..500).map(|_| random.word()).chain([0, 1, u64::MAX]) {
            let rows = matrix_from_word(word);
            let least = word_of(&rows).unwrap();
            assert!(least <= word && word - least < 4, "{word} {least}");
            assert_eq!(matrix_from_word(least), rows);
        }
        assert_eq!(word_of(&[1, 2, 4, 8, 16, 32, 64, 64]), None);
    }
}
