//! RSA keys as numbers, made by OpenSSL.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is the failure of the test that asked"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

/// The numbers of a private key (RFC 8017, appendix A.1.2), most significant octet first: modulus and public
/// exponent without leading zeros, the others with half as many octets as the modulus.
#[derive(Clone)]
pub struct RsaNumbers {
    pub modulus: Vec<u8>,
    pub public_exponent: Vec<u8>,
    pub prime_1: Vec<u8>,
    pub prime_2: Vec<u8>,
    pub exponent_1: Vec<u8>,
    pub exponent_2: Vec<u8>,
    pub coefficient: Vec<u8>,
}

impl RsaNumbers {
    /// The numbers one after the other in octets of fixed length: as many as the modulus has, 8 for the public exponent, and
    /// half of the modulus' for each of the others.
    ///
    /// # Panics
    /// Panics if the public exponent is longer.
    #[must_use]
    pub fn fixed(&self) -> Vec<u8> {
        let padding = vec![0; 8 - self.public_exponent.len()];
        let halves = [
            &self.prime_1,
            &self.prime_2,
            &self.exponent_1,
            &self.exponent_2,
        ];
        let mut all = [&self.modulus, &padding, &self.public_exponent]
            .map(Vec::as_slice)
            .concat();
        for half in halves.into_iter().chain([&self.coefficient]) {
            all.extend_from_slice(half);
        }
        all
    }
}

/// Makes a key of `bits` bits; small ones, which no library takes, save a test its time.
///
/// # Panics
/// Panics without the program `openssl`.
#[must_use]
pub fn generate(bits: usize) -> RsaNumbers {
    let pem = openssl(&["genrsa", "-traditional", &bits.to_string()], &[]);
    let der = openssl(&["rsa", "-traditional", "-outform", "DER"], &pem);
    let (content, rest) = element(&der, 0x30);
    assert!(rest.is_empty(), "octets after the key");
    let mut rest = content;
    let mut next = || {
        let (number, after) = element(rest, 0x02);
        rest = after;
        let zeros = number.iter().take_while(|octet| **octet == 0).count();
        number[zeros..].to_vec()
    };
    let _version = next();
    let (modulus, public_exponent, _private_exponent) = (next(), next(), next());
    let length = modulus.len() / 2;
    let mut half = || {
        let number = next();
        [vec![0; length - number.len()], number].concat()
    };
    RsaNumbers {
        prime_1: half(),
        prime_2: half(),
        exponent_1: half(),
        exponent_2: half(),
        coefficient: half(),
        modulus,
        public_exponent,
    }
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "openssl {arguments:?}");
    done.stdout
}

/// Splits an element of DER with this tag into its content and what follows it.
fn element(der: &[u8], tag: u8) -> (&[u8], &[u8]) {
    assert_eq!(der[0], tag);
    let (start, length) = match usize::from(der[1]) {
        short @ 0..0x80 => (2, short),
        long => {
            let octets = &der[2..2 + (long - 0x80)];
            let length = octets
                .iter()
                .fold(0, |n, octet| (n << 8) | usize::from(*octet));
            (2 + octets.len(), length)
        }
    };
    (&der[start..start + length], &der[start + length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_half_the_length_of_the_modulus() {
        let key = generate(512);
        assert_eq!(key.modulus.len(), 64);
        assert_eq!((key.prime_1.len(), key.exponent_2.len()), (32, 32));
        assert_eq!(key.fixed().len(), 64 + 8 + 5 * 32);
        assert_eq!(key.public_exponent, [1, 0, 1]);
        assert!(key.prime_1 != key.prime_2);
    }
}
