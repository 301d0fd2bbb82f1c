//! Derives keys and initialisation vectors from a password (RFC 7292, appendix B.2).

use aws_lc_rs::digest::{self, Algorithm};
use der::asn1::BmpString;
use zeroize::Zeroizing;

use super::Pkcs12Error;

/// What the derived bytes are for: the `ID` of appendix B.3.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Key = 1,
    InitialisationVector = 2,
    Mac = 3,
}

/// Derives `length` bytes.
pub(super) fn derive(
    hash: &'static Algorithm,
    purpose: Use,
    password: &str,
    salt: &[u8],
    rounds: u32,
    length: usize,
) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
    let block = hash.block_len();
    let mut text = Zeroizing::new(BmpString::from_utf8(password)?.into_bytes().to_vec());
    text.extend([0, 0]);
    // Salt and password fill whole blocks each.
    let repeated = |part: &[u8]| -> Zeroizing<Vec<u8>> {
        let length = part.len().next_multiple_of(block);
        Zeroizing::new(part.iter().copied().cycle().take(length).collect())
    };
    let (salt, text) = (repeated(salt), repeated(&text));
    let mut input = Zeroizing::new([salt.as_slice(), text.as_slice()].concat());
    let mut derived = Zeroizing::new(Vec::with_capacity(length.saturating_add(hash.output_len())));
    loop {
        let mut first = digest::Context::new(hash);
        first.update(&vec![purpose as u8; block]);
        first.update(&input);
        let mut output = Zeroizing::new(first.finish().as_ref().to_vec());
        for _ in 1..rounds {
            let next = digest::digest(hash, &output);
            output.copy_from_slice(next.as_ref());
        }
        derived.extend_from_slice(&output);
        if derived.len() >= length {
            derived.truncate(length);
            return Ok(derived);
        }
        add_to_blocks(&mut input, &output, block);
    }
}

/// Adds the output, repeated to a block, and one to each block of the input, modulo the size of a block.
fn add_to_blocks(input: &mut [u8], output: &[u8], block: usize) {
    let addend: Zeroizing<Vec<u8>> =
        Zeroizing::new(output.iter().copied().cycle().take(block).collect());
    for part in input.chunks_mut(block) {
        let mut carry = 1;
        for (byte, add) in part.iter_mut().zip(addend.iter()).rev() {
            let sum = u16::from(*byte) + u16::from(*add) + carry;
            let [high, low] = sum.to_be_bytes();
            *byte = low;
            carry = u16::from(high);
        }
    }
}
