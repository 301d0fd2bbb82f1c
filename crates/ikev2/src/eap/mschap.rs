//! MS-CHAPv2 (RFC 2759 §8) and its keys (RFC 3079 §3).
//!
//! MD4 and DES are broken, and the only ones that the protocol knows; nothing else in Cordon uses them
//! but published measurements. The crates are RustCrypto's, since the crypto library has neither.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use des::Des;
use des::cipher::{BlockEncrypt, KeyInit};
use md4::{Digest, Md4};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::session_key::SessionKey;

/// MD4 of a password, which is as good as the password to whoever has it (RFC 2759 §8.3).
#[derive(Clone)]
pub struct NtHash(Zeroizing<[u8; 16]>);

impl std::fmt::Debug for NtHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NtHash")
    }
}

impl NtHash {
    /// The hash as a directory stores it.
    pub fn new(hash: [u8; 16]) -> Self {
        Self(Zeroizing::new(hash))
    }

    /// The hash of a password.
    pub fn of_password(password: &str) -> Self {
        let units = password.encode_utf16().flat_map(u16::to_le_bytes);
        let units: Zeroizing<Vec<u8>> = Zeroizing::new(units.collect());
        Self(Zeroizing::new(Md4::digest(&units[..]).into()))
    }

    fn hashed(&self) -> Zeroizing<[u8; 16]> {
        Zeroizing::new(Md4::digest(&self.0[..]).into())
    }
}

/// Contributions of both sides to one run.
pub(super) struct Run<'a> {
    pub(super) server_challenge: &'a [u8; 16],
    pub(super) peer_challenge: &'a [u8; 16],
    /// As it went over the wire, with a domain or without.
    pub(super) user: &'a [u8],
}

fn sha1(parts: &[&[u8]]) -> Zeroizing<[u8; 20]> {
    let mut out = Zeroizing::new([0; 20]);
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &parts.concat());
    for (place, byte) in out.iter_mut().zip(hash.as_ref()) {
        *place = *byte;
    }
    out
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

const SERVER_MAGIC_1: &[u8] = b"Magic server to client signing constant";
const SERVER_MAGIC_2: &[u8] = b"Pad to make it do more than one iteration";
const MASTER_MAGIC: &[u8] = b"This is the MPPE Master Key";
const CLIENT_SENDS: &[u8] =
    b"On the client side, this is the send key; on the server side, it is the receive key.";
const SERVER_SENDS: &[u8] =
    b"On the client side, this is the receive key; on the server side, it is the send key.";

impl Run<'_> {
    /// The challenge that is encrypted: of the name only what follows the domain (RFC 2759 §4).
    fn challenge(&self) -> [u8; 8] {
        let name = self.user.rsplit(|byte| *byte == b'\\').next();
        let name = name.unwrap_or_default();
        first(&sha1(&[self.peer_challenge, self.server_challenge, name])[..])
    }

    pub(super) fn nt_response(&self, password: &NtHash) -> [u8; 24] {
        let challenge = self.challenge();
        let mut padded = Zeroizing::new([0; 21]);
        for (place, byte) in padded.iter_mut().zip(password.0.iter()) {
            *place = *byte;
        }
        let mut out = [0; 24];
        let (keys, _) = padded.as_chunks::<7>();
        let (places, _) = out.as_chunks_mut::<8>();
        for (place, key) in places.iter_mut().zip(keys) {
            let mut block = challenge.into();
            Des::new(&spread(key).into()).encrypt_block(&mut block);
            *place = block.into();
        }
        out
    }

    /// The server's proof that it knows the password too.
    pub(super) fn authenticator_response(&self, password: &NtHash, proof: &[u8; 24]) -> String {
        let digest = sha1(&[&password.hashed()[..], proof, SERVER_MAGIC_1]);
        let digest = sha1(&[&digest[..], &self.challenge(), SERVER_MAGIC_2]);
        let hex = digest.iter().map(|byte| format!("{byte:02X}"));
        format!("S={}", hex.collect::<String>())
    }

    pub(super) fn accepts(&self, password: &NtHash, proof: &[u8; 24]) -> bool {
        self.nt_response(password).ct_eq(proof).into()
    }
}

/// The session key: what the server receives with, what it sends with, zeros (RFC 3079 §3.3, §3.4).
pub(super) fn session_key(password: &NtHash, proof: &[u8; 24]) -> SessionKey {
    let master = sha1(&[&password.hashed()[..], proof, MASTER_MAGIC]);
    let master: Zeroizing<[u8; 16]> = Zeroizing::new(first(&master[..]));
    let start = |magic: &[u8]| -> Zeroizing<[u8; 16]> {
        let hash = sha1(&[&master[..], &[0; 40], magic, &[0xf2; 40]]);
        Zeroizing::new(first(&hash[..]))
    };
    let (receive, send) = (start(CLIENT_SENDS), start(SERVER_SENDS));
    SessionKey(Zeroizing::new([&receive[..], &send[..], &[0; 32]].concat()))
}

/// 56 bits of key as DES takes them: seven in each byte, above a parity bit that it ignores.
fn spread(key: &[u8; 7]) -> [u8; 8] {
    let bits = key
        .iter()
        .fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
    let mut out = [0; 8];
    for (place, shift) in out.iter_mut().zip([49, 42, 35, 28, 21, 14, 7, 0]) {
        *place = u8::try_from((bits >> shift) & 0x7f).unwrap_or_default() << 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        hex::decode(text).unwrap().try_into().unwrap()
    }

    /// RFC 2759 §9.2, RFC 3079 §3.5.3.
    #[test]
    fn published_example() {
        let run = Run {
            server_challenge: &bytes("5b5d7c7d7b3f2f3e3c2c602132262628"),
            peer_challenge: &bytes("21402324255e262a28295f2b3a337c7e"),
            user: b"User",
        };
        let password = NtHash::of_password("clientPass");
        assert_eq!(*password.0, bytes("44ebba8d5312b8d611474411f56989ae"));
        assert_eq!(
            *password.hashed(),
            bytes("41c00c584bd2d91c4017a2a12fa59f3f")
        );
        assert_eq!(run.challenge(), bytes("d02e4386bce91226"));
        let proof = run.nt_response(&password);
        let expected = "82309ecd8d708b5ea08faa3981cd83544233114a3d85d6df";
        assert_eq!(proof, bytes(expected));
        assert_eq!(
            run.authenticator_response(&password, &proof),
            "S=407A5589115FD0D6209F510FE9C04566932CDA56"
        );
        let key = session_key(&password, &proof).0;
        assert_eq!(key[16..32], bytes::<16>("8b7cdc149b993a1ba118cb153f56dccb"));
        assert_eq!(key.len(), 64);
        // A domain in front of the name changes nothing.
        let user = b"DOMAIN\\User";
        assert_eq!(Run { user, ..run }.nt_response(&password), proof);
    }
}
