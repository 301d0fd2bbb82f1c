//! What Windows before 10 (1709), macOS before 14 and Android before 14 read: pbeWithSHAAnd3-KeyTripleDES-CBC and a MAC by
//! HMAC-SHA-1 (RFC 7292, appendix C). Files are only written in this form, never read.

use aws_lc_rs::{digest, hmac};
use const_oid::ObjectIdentifier;
use der::asn1::{Any, OctetString};
use des::TdesEde3;
use des::cipher::{BlockEncrypt as _, KeyInit as _};
use spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::derive::{Use, derive};
use super::{Pkcs12Error, SALT, random};

/// `pbeWithSHAAnd3-KeyTripleDES-CBC`.
const PBE_SHA1_TRIPLE_DES: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.3");
/// Rounds of key derivation, of encryption and of the MAC each. Old importers take a second for that.
const ROUNDS: u32 = 100_000;
/// Bytes of a block of Triple DES, and of its key.
const BLOCK: usize = 8;
const KEY: usize = 24;

/// `pkcs-12PbeParams`.
#[derive(der::Sequence)]
struct Parameters {
    salt: OctetString,
    rounds: u32,
}

/// Encrypts by Triple DES in CBC, with padding (RFC 8018, section 6.1.1).
pub(super) fn encrypt(
    plain: &[u8],
    password: &str,
) -> Result<(AlgorithmIdentifierOwned, Vec<u8>), Pkcs12Error> {
    let hash = &digest::SHA1_FOR_LEGACY_USE_ONLY;
    let salt = random::<SALT>()?;
    let key = derive(hash, Use::Key, password, &salt, ROUNDS, KEY)?;
    let iv = Use::InitialisationVector;
    let mut last = derive(hash, iv, password, &salt, ROUNDS, BLOCK)?.to_vec();
    let cipher = TdesEde3::new_from_slice(&key).map_err(|_| Pkcs12Error::Random)?;
    let mut text = Zeroizing::new(plain.to_vec());
    let padding = BLOCK - plain.len() % BLOCK;
    let filler = u8::try_from(padding).unwrap_or_default();
    text.resize(plain.len().saturating_add(padding), filler);
    let mut sealed = Vec::with_capacity(text.len());
    for block in text.chunks(BLOCK) {
        let mixed = block.iter().zip(&last).map(|(a, b)| a ^ b);
        let mut block = des::cipher::Block::<TdesEde3>::from_iter(mixed);
        cipher.encrypt_block(&mut block);
        last = block.to_vec();
        sealed.extend_from_slice(&last);
    }
    let parameters = Parameters {
        salt: OctetString::new(salt)?,
        rounds: ROUNDS,
    };
    let algorithm = AlgorithmIdentifierOwned {
        oid: PBE_SHA1_TRIPLE_DES,
        parameters: Some(Any::encode_from(&parameters)?),
    };
    Ok((algorithm, sealed))
}

/// The key of the MAC, and its rounds.
pub(super) fn mac_key(password: &str, salt: &[u8]) -> Result<(hmac::Key, i32), Pkcs12Error> {
    let hash = &digest::SHA1_FOR_LEGACY_USE_ONLY;
    let key = derive(hash, Use::Mac, password, salt, ROUNDS, hash.output_len())?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    Ok((key, i32::try_from(ROUNDS).unwrap_or(i32::MAX)))
}
