//! RSA keys from a library that made their primes from too little randomness (CVE-2017-15361, "ROCA").
//!
//! The primes are `k * M + (65537^a mod M)` with M the product of the first primes (Nemec, Sys, Svenda, Klinec and
//! Matyas, "The Return of Coppersmith's Attack", 2017). So modulo each of those primes the modulus is a power
//! of 65537, which of another key it is by chance only.

/// Primes modulo which the powers of 65537 leave numbers out. All are factors of M at every size of key. A modulus
/// of another origin fits all seventeen in one of some hundred million cases.
const PRIMES: [u16; 17] = [
    11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157,
];
const GENERATOR: u32 = 65537;

/// Whether a modulus (big-endian) has the form of those that the library made.
pub(super) fn has_fingerprint(modulus: &[u8]) -> bool {
    PRIMES
        .into_iter()
        .all(|prime| is_power(remainder(modulus, prime), prime))
}

fn remainder(modulus: &[u8], prime: u16) -> u32 {
    modulus.iter().fold(0, |rest, byte| {
        (rest * 256 + u32::from(*byte)) % u32::from(prime)
    })
}

/// Whether `rest` is a power of the generator modulo `prime`.
fn is_power(rest: u32, prime: u16) -> bool {
    let prime = u32::from(prime);
    let powers = std::iter::successors(Some(1), |power| Some(power * (GENERATOR % prime) % prime));
    powers.take(prime as usize).any(|power| power == rest)
}

#[cfg(test)]
mod tests {
    use der::Decode;

    use super::*;
    use crate::csr::CsrError;
    use crate::key::KeyError;

    #[test]
    fn each_prime_leaves_numbers_out() {
        for prime in PRIMES {
            let powers = (0..u32::from(prime)).filter(|rest| is_power(*rest, prime));
            assert!(powers.count() < usize::from(prime) - 1, "{prime}");
        }
    }

    /// A request by a key of that form, made for this test with primes as in the paper; its proof of possession is good.
    const WEAK: &[u8] = include_bytes!("../../tests/data/roca-2048.csr");

    #[test]
    fn modulus_of_the_vulnerable_form_is_found_and_its_neighbours_are_not() {
        let request = x509_cert::request::CertReq::from_der(WEAK).unwrap();
        let key = request.info.public_key.subject_public_key;
        // After the headers of sequence and integer and a zero come the 256 bytes of the modulus.
        let mut modulus = key.raw_bytes()[9..265].to_vec();
        assert!(has_fingerprint(&modulus));
        for bit in 0..8 {
            modulus[255] ^= 1 << bit;
            assert!(!has_fingerprint(&modulus), "bit {bit}");
            modulus[255] ^= 1 << bit;
        }
    }

    #[test]
    fn request_by_such_a_key_is_refused() {
        let refused = crate::csr::parse_and_verify(WEAK);
        assert!(
            matches!(refused, Err(CsrError::Key(KeyError::Roca))),
            "{refused:?}"
        );
    }

    #[test]
    fn keys_of_the_library_in_use_are_not_found() {
        let key = crate::PrivateKey::generate(crate::KeyAlgorithm::Rsa2048).unwrap();
        assert_eq!(
            crate::KeyAlgorithm::of_spki(&key.spki()).unwrap(),
            crate::KeyAlgorithm::Rsa2048
        );
    }
}
