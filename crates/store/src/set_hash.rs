//! A hash of a set that is cheap to follow: adding an element and taking one away cost the same, however large the set is.
//!
//! LtHash with 1024 sums of 16 bits (K. Lewi, W. Kim, I. Maykov, S. Weis, "Securing update propagation with homomorphic hashing",
//! 2019): each element is drawn out to 2048 bytes, and these are added up. To find another set with the same sums is to find
//! short vectors of a lattice, for which its authors give more than 200 bits of security; a plain sum of digests would fall to
//! somebody who may choose elements. Each element is drawn out by AES-256 in counter mode under its SHA-256.

use std::fmt;

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::error::Unspecified;

const SUMS: usize = 1024;

/// The hash of a set of elements. Of 65536 equal ones nothing is left in it, so no element may be there several times.
#[derive(Clone, Eq, PartialEq)]
pub struct SetHash(Box<[u16; SUMS]>);

impl Default for SetHash {
    /// Hash of the empty set.
    fn default() -> Self {
        Self(Box::new([0; SUMS]))
    }
}

impl fmt::Debug for SetHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetHash({})", self.sha256())
    }
}

impl SetHash {
    /// Adds an element.
    ///
    /// # Errors
    /// None in practice: a failure of the library for ciphers.
    pub fn add(&mut self, element: &[u8]) -> Result<(), Unspecified> {
        self.each(&drawn_out(element)?, u16::wrapping_add);
        Ok(())
    }

    /// Takes an element away, once.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn remove(&mut self, element: &[u8]) -> Result<(), Unspecified> {
        self.each(&drawn_out(element)?, u16::wrapping_sub);
        Ok(())
    }

    /// SHA-256 of the sums, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        hex::encode(digest(&SHA256, &bytes))
    }

    fn each(&mut self, drawn: &[u8; 2 * SUMS], change: impl Fn(u16, u16) -> u16) {
        let (numbers, _) = drawn.as_chunks::<2>();
        for (sum, number) in self.0.iter_mut().zip(numbers) {
            *sum = change(*sum, u16::from_le_bytes(*number));
        }
    }
}

fn drawn_out(element: &[u8]) -> Result<[u8; 2 * SUMS], Unspecified> {
    let seed = digest(&SHA256, element);
    let key = UnboundCipherKey::new(&AES_256, seed.as_ref())?;
    let mut drawn = [0; 2 * SUMS];
    // Each key is used for one stream only.
    let start = EncryptionContext::Iv128([0; 16].into());
    EncryptingKey::ctr(key)?.less_safe_encrypt(&mut drawn, start)?;
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(elements: &[&str]) -> SetHash {
        let mut hash = SetHash::default();
        for element in elements {
            hash.add(element.as_bytes()).unwrap();
        }
        hash
    }

    #[test]
    fn order_does_not_count_and_what_is_taken_away_is_gone() {
        assert_eq!(hash(&["a", "b", "c"]), hash(&["c", "a", "b"]));
        let mut less = hash(&["a", "b", "c"]);
        less.remove(b"b").unwrap();
        assert_eq!(less, hash(&["c", "a"]));
        less.remove(b"c").unwrap();
        less.remove(b"a").unwrap();
        assert_eq!(less, SetHash::default());
    }

    #[test]
    fn sets_differ_by_each_element_and_how_often_it_is_there() {
        let all = [
            hash(&[]),
            hash(&[""]),
            hash(&["a"]),
            hash(&["a", "a"]),
            hash(&["a", "b"]),
            hash(&["ab"]),
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert_ne!(one, other);
                assert_ne!(one.sha256(), other.sha256());
            }
        }
    }

    /// By `printf a | sha256sum`, `openssl enc -aes-256-ctr` of zeros under it, and `sha256sum` of that.
    #[test]
    fn hash_is_what_openssl_computes() {
        assert_eq!(
            hash(&["a"]).sha256(),
            "f3fa2116e38c077aa8db876a3a68df904145b0cd3522b13fc9c0fd0baae4e6b5"
        );
    }
}
