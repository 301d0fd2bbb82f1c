//! Arithmetic modulo the primes of RFC 3526, in constant time.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, Uint};
use zeroize::{Zeroize, Zeroizing};

/// A MODP group; the generator is 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modp {
    M2048,
    M3072,
    M4096,
}

const fn limbs(bits: usize) -> usize {
    bits.div_ceil(crypto_bigint::Limb::BITS as usize)
}

impl Modp {
    /// Bytes of a public value and of the shared secret.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::M2048 => 256,
            Self::M3072 => 384,
            Self::M4096 => 512,
        }
    }

    /// Bytes of a private exponent: twice the strength of the group (RFC 3526 §8) and some more.
    pub(super) const fn exponent_len(self) -> usize {
        match self {
            Self::M2048 => 32,
            Self::M3072 => 36,
            Self::M4096 => 44,
        }
    }

    /// The public value of an exponent.
    pub(super) fn public(self, exponent: &[u8]) -> Vec<u8> {
        let mut generator = vec![0; self.len()];
        if let Some(last) = generator.last_mut() {
            *last = 2;
        }
        self.power(&generator, exponent).to_vec()
    }

    /// The shared secret with a peer, whose value must lie strictly between 1 and p-1: the others
    /// make the secret predictable (RFC 6989 §2.1).
    pub(super) fn agree(self, exponent: &[u8], peer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.is_valid(peer).then(|| self.power(peer, exponent))
    }

    fn is_valid(self, peer: &[u8]) -> bool {
        match self {
            Self::M2048 => is_valid::<{ limbs(2048) }>(P2048, peer),
            Self::M3072 => is_valid::<{ limbs(3072) }>(P3072, peer),
            Self::M4096 => is_valid::<{ limbs(4096) }>(P4096, peer),
        }
    }

    fn power(self, base: &[u8], exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        match self {
            Self::M2048 => power::<{ limbs(2048) }>(P2048, base, exponent),
            Self::M3072 => power::<{ limbs(3072) }>(P3072, base, exponent),
            Self::M4096 => power::<{ limbs(4096) }>(P4096, base, exponent),
        }
    }
}

fn is_valid<const LIMBS: usize>(prime: &str, peer: &[u8]) -> bool {
    if peer.len() != prime.len() / 2 {
        return false;
    }
    let (peer, prime) = (Uint::<LIMBS>::from_be_slice(peer), Uint::from_be_hex(prime));
    peer > Uint::ONE && peer < prime.wrapping_sub(&Uint::ONE)
}

fn power<const LIMBS: usize>(prime: &str, base: &[u8], exponent: &[u8]) -> Zeroizing<Vec<u8>> {
    let modulus = Odd::<Uint<LIMBS>>::from_be_hex(prime);
    let parameters = FixedMontyParams::new(modulus);
    let base = FixedMontyForm::new(&Uint::from_be_slice(base), &parameters);
    // The exponent is shorter than the modulus; its length is public, its value is not.
    let bits = u32::try_from(exponent.len().saturating_mul(8)).unwrap_or(u32::MAX);
    let mut wide = Zeroizing::new(vec![0; prime.len() / 2]);
    for (place, byte) in wide.iter_mut().rev().zip(exponent.iter().rev()) {
        *place = *byte;
    }
    let mut exponent = Uint::<LIMBS>::from_be_slice(&wide);
    let mut result = base.pow_bounded_exp(&exponent, bits).retrieve();
    exponent.zeroize();
    let out = result.to_be_bytes();
    result.zeroize();
    Zeroizing::new(out.as_ref().to_vec())
}

/// 2^2048 - 2^1984 - 1 + 2^64 * (floor(2^1918 * pi) + 124476), RFC 3526.
const P2048: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
    EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
    EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
    83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
    E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
    15728E5A8AACAA68FFFFFFFFFFFFFFFF";

/// 2^3072 - 2^3008 - 1 + 2^64 * (floor(2^2942 * pi) + 1690314), RFC 3526.
const P3072: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
    EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
    EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
    83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
    E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
    15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
    ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C\
    BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF";

/// 2^4096 - 2^4032 - 1 + 2^64 * (floor(2^3966 * pi) + 240904), RFC 3526.
const P4096: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
    EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
    EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
    83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
    E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
    15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
    ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C\
    BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A92108011A723C12A787E6D7\
    88719A10BDBA5B2699C327186AF4E23C1A946834B6150BDA2583E9CA2AD44CE8DBBBC2DB04DE8EF92E8EFC141FBECAA6\
    287C59474E6BC05D99B2964FA090C3A2233BA186515BE7ED1F612970CEE2D7AFB81BDD762170481CD0069127D5B05AA9\
    93B4EA988D8FDDC186FFB7DC90A6C08F4DF435C934063199FFFFFFFFFFFFFFFF";
