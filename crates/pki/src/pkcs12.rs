//! PKCS#12, for browsers and mail programs (RFC 7292): encrypted by PBES2 with AES-256 and PBKDF2,
//! authenticated by HMAC-SHA-256; or, for importers that know nothing else, by Triple DES and HMAC-SHA-1 (`legacy`).
//!
//! ```text
//! PFX { authSafe: Data { AuthenticatedSafe { EncryptedData { CertBag … }, Data { PKCS8ShroudedKeyBag } } }, macData }
//! ```
//!
//! Structures are those of the crate `pkcs12`, encryption is that of `pkcs5`.

mod derive;
mod legacy;

use aws_lc_rs::{digest, hmac, rand};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::encrypted_data::EncryptedData;
use cms::enveloped_data::EncryptedContentInfo;
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::{ID_DATA, ID_ENCRYPTED_DATA};
use const_oid::db::rfc5912::{ID_SHA_1, ID_SHA_256, ID_SHA_384, ID_SHA_512};
use der::asn1::{Any, BmpString, ContextSpecific, Null, OctetString, SetOfVec};
use der::{Decode, Encode, EncodeValue, Tagged};
use pkcs8::pkcs5::{self, EncryptionScheme, pbes2};
use pkcs12::authenticated_safe::AuthenticatedSafe;
use pkcs12::cert_type::CertBag;
use pkcs12::digest_info::DigestInfo;
use pkcs12::mac_data::MacData;
use pkcs12::pfx::{Pfx, Version};
use pkcs12::safe_bag::{SafeBag, SafeContents};
use spki::AlgorithmIdentifierOwned;
use x509_cert::Certificate;
use x509_cert::attr::{Attribute, Attributes};
use zeroize::Zeroizing;

use self::derive::{Use, derive};
use crate::cert::{self, CertError, CertificateChain};
use crate::key::{KeyError, PrivateKey};

/// Rounds of key derivation, for encryption and MAC each.
///
/// Far below what we use for keys at rest: the file is a transport form, protected by a long
/// random password, and programs that import it derive keys several times over.
const ROUNDS: u32 = 100_000;
/// Rounds that a file may demand of us for each derivation: seconds, not hours.
const MAX_ROUNDS: u32 = 5_000_000;
/// Certificates and keys of a file at most.
const MAX_BAGS: usize = 64;
/// Bytes of a salt.
const SALT: usize = 16;

/// `friendlyName` (RFC 2985, section 5.5.1).
const FRIENDLY_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.20");
/// `localKeyId` (RFC 2985, section 5.5.2), which ties a certificate to its key.
const LOCAL_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.21");

/// Why no PKCS#12 file was made or read.
#[derive(Debug, thiserror::Error)]
pub enum Pkcs12Error {
    /// The leaf certificate belongs to another key.
    #[error("certificate and key do not belong together")]
    KeyMismatch,
    /// An empty password: some importers treat it as no password and refuse.
    #[error("password is empty")]
    EmptyPassword,
    /// Not PKCS#12 in DER, or not within its rules.
    #[error("not PKCS#12 that can be read")]
    Malformed(#[from] der::Error),
    /// The MAC is by another password, or over other contents.
    #[error("another password, or the file was changed")]
    Unauthentic,
    /// Nothing proves who made the file: whoever changes it could put another key or certificate into it.
    #[error("PKCS#12 without MAC; export it again with a MAC (openssl: without -nomac)")]
    NoMac,
    /// Contents that the password does not decrypt although the MAC is right.
    #[error("cannot encrypt or decrypt PKCS#12: {0}")]
    Encryption(pkcs5::Error),
    /// An algorithm or a part that is not supported, such as encryption by Triple DES or RC2.
    #[error("PKCS#12 with {0} is not supported; export it again with AES-256 and HMAC-SHA-256")]
    Unsupported(ObjectIdentifier),
    /// Work that the file demands for deriving a key.
    #[error("{0} rounds of key derivation, not between 1 and {MAX_ROUNDS}")]
    Rounds(i64),
    /// More certificates and keys than a person needs.
    #[error("more than {MAX_BAGS} certificates and keys")]
    TooMany,
    /// No private key, or several.
    #[error("{0} private keys instead of one")]
    Keys(usize),
    #[error("the private key cannot be used")]
    Key(#[from] KeyError),
    #[error("the certificates cannot be used")]
    Chain(#[from] CertError),
    #[error("no random numbers")]
    Random,
}

/// How a file is encrypted and authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// PBES2 with AES-256 and PBKDF2-HMAC-SHA-256, MAC by HMAC-SHA-256: OpenSSL, NSS, Windows 10 (1709), macOS 14, Android 14
    /// and later.
    #[default]
    Modern,
    /// pbeWithSHAAnd3-KeyTripleDES-CBC and HMAC-SHA-1, which earlier systems read and nothing else. The password alone
    /// protects such a file.
    Legacy,
}

/// Packs key and chain (leaf first) into a PKCS#12 file under `friendly_name`, with [`Protection::Modern`].
///
/// # Errors
/// [`Pkcs12Error`], one variant per reason.
pub fn export(
    key: &PrivateKey,
    chain: &CertificateChain,
    friendly_name: &str,
    password: &str,
) -> Result<Vec<u8>, Pkcs12Error> {
    export_with(key, chain, friendly_name, password, Protection::Modern)
}

/// Does the same with the protection that the importer can read.
///
/// # Errors
/// As [`export`].
pub fn export_with(
    key: &PrivateKey,
    chain: &CertificateChain,
    friendly_name: &str,
    password: &str,
    protection: Protection,
) -> Result<Vec<u8>, Pkcs12Error> {
    if password.is_empty() {
        return Err(Pkcs12Error::EmptyPassword);
    }
    if chain.leaf().tbs_certificate.subject_public_key_info != key.spki() {
        return Err(Pkcs12Error::KeyMismatch);
    }
    let attributes = attributes(key, friendly_name)?;
    let mut bags = SafeContents::new();
    for (index, der) in chain.ders().iter().enumerate() {
        let bag = CertBag {
            cert_id: pkcs12::PKCS_12_X509_CERT_OID,
            cert_value: OctetString::new(der.as_ref())?,
        };
        bags.push(SafeBag {
            bag_id: pkcs12::PKCS_12_CERT_BAG_OID,
            bag_value: bag.to_der()?,
            // Only the leaf belongs to the key.
            bag_attributes: (index == 0).then(|| attributes.clone()),
        });
    }
    let safe: AuthenticatedSafe<'_> = vec![
        encrypted(&bags.to_der()?, password, protection)?,
        data(&shrouded(key, attributes, password, protection)?.to_der()?)?,
    ];
    let safe = safe.to_der()?;
    let pfx = Pfx {
        version: Version::V3,
        auth_safe: data(&safe)?,
        mac_data: Some(authenticated(&safe, password, protection)?),
    };
    Ok(pfx.to_der()?)
}

/// Names the key, and ties key and leaf certificate together.
fn attributes(key: &PrivateKey, friendly_name: &str) -> Result<Attributes, Pkcs12Error> {
    // SHA-1's length is what importers are used to; the value itself is only compared.
    let id = digest::digest(&digest::SHA256, key.public_spki_der());
    let id = OctetString::new(id.as_ref().get(..20).unwrap_or_default())?;
    let name = BmpString::from_utf8(friendly_name)?;
    let both = [
        attribute(FRIENDLY_NAME, &name)?,
        attribute(LOCAL_KEY_ID, &id)?,
    ];
    Ok(SetOfVec::from_iter(both)?)
}

fn attribute<T: Tagged + EncodeValue>(
    oid: ObjectIdentifier,
    value: &T,
) -> Result<Attribute, der::Error> {
    let values = SetOfVec::from_iter([Any::encode_from(value)?])?;
    Ok(Attribute { oid, values })
}

fn data(content: &[u8]) -> Result<ContentInfo, der::Error> {
    Ok(ContentInfo {
        content_type: ID_DATA,
        content: Any::encode_from(&OctetString::new(content)?)?,
    })
}

/// A text encrypted under a password, with the algorithm that decrypts it.
fn sealed(
    plain: &[u8],
    password: &str,
    protection: Protection,
) -> Result<(AlgorithmIdentifierOwned, Vec<u8>), Pkcs12Error> {
    if protection == Protection::Legacy {
        return legacy::encrypt(plain, password);
    }
    let (salt, iv) = (random::<SALT>()?, random()?);
    let parameters = pbes2::Parameters::pbkdf2_sha256_aes256cbc(ROUNDS, &salt, &iv);
    let scheme = EncryptionScheme::from(parameters.map_err(Pkcs12Error::Encryption)?);
    let sealed = scheme.encrypt(password, plain);
    Ok((
        AlgorithmIdentifierOwned::from_der(&scheme.to_der()?)?,
        sealed.map_err(Pkcs12Error::Encryption)?,
    ))
}

fn encrypted(
    plain: &[u8],
    password: &str,
    protection: Protection,
) -> Result<ContentInfo, Pkcs12Error> {
    let (algorithm, sealed) = sealed(plain, password, protection)?;
    let data = EncryptedData {
        version: CmsVersion::V0,
        enc_content_info: EncryptedContentInfo {
            content_type: ID_DATA,
            content_enc_alg: algorithm,
            encrypted_content: Some(OctetString::new(sealed)?),
        },
        unprotected_attrs: None,
    };
    Ok(ContentInfo {
        content_type: ID_ENCRYPTED_DATA,
        content: Any::encode_from(&data)?,
    })
}

/// The contents that hold the key.
fn shrouded(
    key: &PrivateKey,
    attributes: Attributes,
    password: &str,
    protection: Protection,
) -> Result<SafeContents, Pkcs12Error> {
    let (algorithm, sealed) = sealed(&key.to_pkcs8_der(), password, protection)?;
    let info = Shrouded {
        algorithm,
        sealed: OctetString::new(sealed)?,
    };
    Ok(vec![SafeBag {
        bag_id: pkcs12::PKCS_12_PKCS8_KEY_BAG_OID,
        bag_value: info.to_der()?,
        bag_attributes: Some(attributes),
    }])
}

fn authenticated(
    safe: &[u8],
    password: &str,
    protection: Protection,
) -> Result<MacData, Pkcs12Error> {
    let salt = random::<SALT>()?;
    let (hash, key, rounds) = match protection {
        Protection::Modern => {
            let rounds = i32::try_from(ROUNDS).unwrap_or(i32::MAX);
            let key = mac_key(ID_SHA_256, password, &salt, rounds)?;
            (ID_SHA_256, key, rounds)
        }
        Protection::Legacy => {
            let (key, rounds) = legacy::mac_key(password, &salt)?;
            (ID_SHA_1, key, rounds)
        }
    };
    Ok(MacData {
        mac: DigestInfo {
            algorithm: AlgorithmIdentifierOwned {
                oid: hash,
                parameters: Some(Any::from(Null)),
            },
            digest: OctetString::new(hmac::sign(&key, safe).as_ref())?,
        },
        mac_salt: OctetString::new(salt)?,
        iterations: rounds,
    })
}

fn mac_key(
    hash: ObjectIdentifier,
    password: &str,
    salt: &[u8],
    rounds: i32,
) -> Result<hmac::Key, Pkcs12Error> {
    let rounds = u32::try_from(rounds)
        .ok()
        .filter(|rounds| (1..=MAX_ROUNDS).contains(rounds))
        .ok_or(Pkcs12Error::Rounds(rounds.into()))?;
    let (algorithm, hash) = match hash {
        ID_SHA_256 => (hmac::HMAC_SHA256, &digest::SHA256),
        ID_SHA_384 => (hmac::HMAC_SHA384, &digest::SHA384),
        ID_SHA_512 => (hmac::HMAC_SHA512, &digest::SHA512),
        other => return Err(Pkcs12Error::Unsupported(other)),
    };
    let key = derive(hash, Use::Mac, password, salt, rounds, hash.output_len())?;
    Ok(hmac::Key::new(algorithm, &key))
}

fn random<const N: usize>() -> Result<[u8; N], Pkcs12Error> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Pkcs12Error::Random)?;
    Ok(bytes)
}

/// Reads key and chain (leaf first) from a PKCS#12 file with one key; certificates that are not on the
/// leaf's way upwards are left out.
///
/// # Errors
/// [`Pkcs12Error`], one variant per reason. Nothing is decrypted before the MAC is found right.
pub fn import(bytes: &[u8], password: &str) -> Result<(PrivateKey, CertificateChain), Pkcs12Error> {
    let pfx = Pfx::from_der(bytes)?;
    let safe = octets(&pfx.auth_safe)?;
    let mac = pfx.mac_data.ok_or(Pkcs12Error::NoMac)?;
    let hash = mac.mac.algorithm;
    if hash.parameters.is_some_and(|p| p != Any::from(Null)) {
        return Err(Pkcs12Error::Unsupported(hash.oid));
    }
    let salt = mac.mac_salt.as_bytes();
    let key = mac_key(hash.oid, password, salt, mac.iterations)?;
    hmac::verify(&key, safe.as_bytes(), mac.mac.digest.as_bytes())
        .map_err(|_| Pkcs12Error::Unauthentic)?;
    let mut contents = Contents::default();
    for part in AuthenticatedSafe::from_der(safe.as_bytes())? {
        contents.read(&part, password)?;
    }
    let [key] = contents.keys.as_slice() else {
        return Err(Pkcs12Error::Keys(contents.keys.len()));
    };
    let key = PrivateKey::from_pkcs8_der(key)?;
    let chain = CertificateChain::of_issued(&key.spki(), contents.certificates, &[])?;
    let chain = chain.ok_or(Pkcs12Error::KeyMismatch)?;
    Ok((key, chain))
}

/// What the bags of a file hold.
#[derive(Default)]
struct Contents {
    keys: Vec<Zeroizing<Vec<u8>>>,
    certificates: Vec<Certificate>,
}

impl Contents {
    fn read(&mut self, part: &ContentInfo, password: &str) -> Result<(), Pkcs12Error> {
        let plain = match part.content_type {
            ID_DATA => Zeroizing::new(octets(part)?.into_bytes()),
            ID_ENCRYPTED_DATA => {
                let data: EncryptedData = part.content.decode_as()?;
                let info = data.enc_content_info;
                let sealed = info.encrypted_content.map(OctetString::into_bytes);
                let algorithm = info.content_enc_alg.to_der()?;
                decrypted(&algorithm, &sealed.unwrap_or_default(), password)?
            }
            other => return Err(Pkcs12Error::Unsupported(other)),
        };
        for bag in SafeContents::from_der(&plain)? {
            if self.keys.len() + self.certificates.len() >= MAX_BAGS {
                return Err(Pkcs12Error::TooMany);
            }
            match bag.bag_id {
                pkcs12::PKCS_12_CERT_BAG_OID => {
                    let bag = ContextSpecific::<CertBag>::from_der(&bag.bag_value)?.value;
                    if bag.cert_id != pkcs12::PKCS_12_X509_CERT_OID {
                        return Err(Pkcs12Error::Unsupported(bag.cert_id));
                    }
                    let certificate = cert::from_der(bag.cert_value.as_bytes())?;
                    self.certificates.push(certificate);
                }
                pkcs12::PKCS_12_PKCS8_KEY_BAG_OID => {
                    let bag = ContextSpecific::<Any>::from_der(&bag.bag_value)?.value;
                    let bag: Shrouded = bag.decode_as()?;
                    let algorithm = bag.algorithm.to_der()?;
                    let sealed = bag.sealed.as_bytes();
                    self.keys.push(decrypted(&algorithm, sealed, password)?);
                }
                other => return Err(Pkcs12Error::Unsupported(other)),
            }
        }
        Ok(())
    }
}

/// An encrypted private key (RFC 5208, section 6) whose algorithm is not looked at yet.
#[derive(der::Sequence)]
struct Shrouded {
    algorithm: AlgorithmIdentifierOwned,
    sealed: OctetString,
}

fn octets(part: &ContentInfo) -> Result<OctetString, Pkcs12Error> {
    if part.content_type != ID_DATA {
        return Err(Pkcs12Error::Unsupported(part.content_type));
    }
    Ok(part.content.decode_as()?)
}

fn decrypted(
    algorithm: &[u8],
    sealed: &[u8],
    password: &str,
) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
    let oid = AlgorithmIdentifierOwned::from_der(algorithm)?.oid;
    if oid != pbes2::PBES2_OID {
        return Err(Pkcs12Error::Unsupported(oid));
    }
    let completed = with_prf_parameters(algorithm);
    let scheme = EncryptionScheme::from_der(completed.as_deref().unwrap_or(algorithm))?;
    let parameters = scheme.pbes2().ok_or(Pkcs12Error::Unsupported(oid))?;
    // Whoever made the file chose the work; that of scrypt is memory as well.
    let kdf = parameters
        .kdf
        .pbkdf2()
        .ok_or(Pkcs12Error::Unsupported(parameters.kdf.oid()))?;
    if !(1..=MAX_ROUNDS).contains(&kdf.iteration_count) {
        return Err(Pkcs12Error::Rounds(kdf.iteration_count.into()));
    }
    let plain = parameters.decrypt(password, sealed);
    Ok(Zeroizing::new(plain.map_err(Pkcs12Error::Encryption)?))
}

/// PBES2-params and PBKDF2-params (RFC 8018, appendices A.4 and A.2).
#[derive(der::Sequence)]
struct Pbes2Parameters {
    kdf: AlgorithmIdentifierOwned,
    cipher: AlgorithmIdentifierOwned,
}

#[derive(der::Sequence)]
struct Pbkdf2Parameters {
    salt: OctetString,
    rounds: u32,
    #[asn1(optional = "true")]
    key_length: Option<u16>,
    #[asn1(optional = "true")]
    prf: Option<AlgorithmIdentifierOwned>,
}

/// Completes PBES2 by the NULL that RFC 8018 (appendix B.1.2) has with the PRF: GnuTLS leaves it out, and the library
/// reads nothing without it. `None`: there is nothing to complete.
fn with_prf_parameters(algorithm: &[u8]) -> Option<Vec<u8>> {
    let mut algorithm = AlgorithmIdentifierOwned::from_der(algorithm).ok()?;
    let mut scheme: Pbes2Parameters = algorithm.parameters?.decode_as().ok()?;
    let mut kdf: Pbkdf2Parameters = scheme.kdf.parameters?.decode_as().ok()?;
    let prf = kdf.prf.as_mut().filter(|prf| prf.parameters.is_none())?;
    prf.parameters = Some(Any::from(Null));
    scheme.kdf.parameters = Some(Any::encode_from(&kdf).ok()?);
    algorithm.parameters = Some(Any::encode_from(&scheme).ok()?);
    algorithm.to_der().ok()
}
