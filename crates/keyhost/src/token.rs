//! Keys that stay on a token: a smart card, a security module, SoftHSM (PKCS#11).
//!
//! The token gets the digest rather than the message, because few can hash and all can sign digests: RSA by
//! `CKM_RSA_PKCS` and `CKM_RSA_PKCS_PSS`, elliptic curves by `CKM_ECDSA`, Ed25519 by `CKM_EDDSA`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use der::asn1::{Any, BitString, OctetStringRef, UintRef};
use der::{Decode as _, Encode as _};
use spki::{AlgorithmIdentifierOwned, ObjectIdentifier, SubjectPublicKeyInfoOwned};
use zeroize::Zeroizing;

use crate::algorithm::{KeyKind, SignatureScheme};
use crate::uri::Uri;

/// id-ecPublicKey (RFC 5480).
const ID_EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
/// rsaEncryption (RFC 8017).
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// DigestInfo in front of a digest (RFC 8017 §9.2, note 1).
const SHA256_INFO: &[u8] =
    b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
const SHA384_INFO: &[u8] =
    b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30";
const SHA512_INFO: &[u8] =
    b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40";

/// The libraries that are loaded; each can be initialised once in a process.
#[derive(Default)]
pub(crate) struct Modules(BTreeMap<PathBuf, Pkcs11>);

impl Modules {
    fn open(&mut self, uri: &Uri) -> Result<Pkcs11, String> {
        if let Some(module) = self.0.get(&uri.module) {
            return Ok(module.clone());
        }
        let failed = |error: Error| format!("{}: {error}", uri.module.display());
        let module = Pkcs11::new(&uri.module).map_err(failed)?;
        let flags = CInitializeFlags::OS_LOCKING_OK;
        module
            .initialize(CInitializeArgs::new(flags))
            .map_err(failed)?;
        self.0.insert(uri.module.clone(), module.clone());
        Ok(module)
    }

    /// The private key of this name.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn key(
        &mut self,
        uri: Uri,
        pin: Option<Zeroizing<Vec<u8>>>,
        kind: KeyKind,
    ) -> Result<TokenKey, String> {
        let module = self.open(&uri)?;
        let opened = Opened::new(&module, &uri, pin.as_ref(), kind)?;
        Ok(TokenKey {
            module,
            uri,
            pin,
            kind,
            opened,
        })
    }

    /// The certificate of this name (DER). It is public, so there is no PIN.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn certificate(&mut self, uri: &Uri) -> Result<Vec<u8>, String> {
        let module = self.open(uri)?;
        let session = module.open_ro_session(slot(&module, uri)?).map_err(text)?;
        let object = find(&session, uri, ObjectClass::CERTIFICATE, "certificate")?;
        let values = session.get_attributes(object, &[AttributeType::Value]);
        let values = values.map_err(text)?;
        let value = values.into_iter().find_map(|value| match value {
            Attribute::Value(der) => Some(der),
            _ => None,
        });
        value.ok_or_else(|| "the token's certificate has no value".to_owned())
    }
}

impl Modules {
    /// The public key of this name (DER SubjectPublicKeyInfo). There is no PIN for it either.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn public_key(&mut self, uri: &Uri) -> Result<Vec<u8>, String> {
        let module = self.open(uri)?;
        let session = module.open_ro_session(slot(&module, uri)?).map_err(text)?;
        let object = find(&session, uri, ObjectClass::PUBLIC_KEY, "public key")?;
        let wanted = [
            AttributeType::EcParams,
            AttributeType::EcPoint,
            AttributeType::Modulus,
            AttributeType::PublicExponent,
        ];
        let values = session.get_attributes(object, &wanted).map_err(text)?;
        spki(&values).ok_or_else(|| "a kind of public key not known here".to_owned())
    }
}

/// A public key of its attributes: of an elliptic curve, or RSA's.
fn spki(values: &[Attribute]) -> Option<Vec<u8>> {
    let find = |pick: fn(&Attribute) -> Option<&Vec<u8>>| values.iter().find_map(pick);
    let curve = find(|one| match one {
        Attribute::EcParams(der) => Some(der),
        _ => None,
    });
    let point = find(|one| match one {
        Attribute::EcPoint(der) => Some(der),
        _ => None,
    });
    let modulus = find(|one| match one {
        Attribute::Modulus(number) => Some(number),
        _ => None,
    });
    let exponent = find(|one| match one {
        Attribute::PublicExponent(number) => Some(number),
        _ => None,
    });
    let (algorithm, key) = match (curve, point, modulus, exponent) {
        (Some(curve), Some(point), ..) => {
            // PKCS#11 wraps the point; there are modules that do not.
            let wrapped = OctetStringRef::from_der(point);
            let point = wrapped.map_or(point.as_slice(), |point| point.as_bytes());
            let parameters = Some(Any::from_der(curve).ok()?);
            let oid = ID_EC_PUBLIC_KEY;
            (AlgorithmIdentifierOwned { oid, parameters }, point.to_vec())
        }
        (_, _, Some(modulus), Some(exponent)) => {
            #[derive(der::Sequence)]
            struct RsaPublicKey<'a> {
                modulus: UintRef<'a>,
                exponent: UintRef<'a>,
            }
            let key = RsaPublicKey {
                modulus: UintRef::new(modulus).ok()?,
                exponent: UintRef::new(exponent).ok()?,
            };
            let parameters = Some(Any::null());
            let oid = RSA_ENCRYPTION;
            (
                AlgorithmIdentifierOwned { oid, parameters },
                key.to_der().ok()?,
            )
        }
        _ => return None,
    };
    let spki = SubjectPublicKeyInfoOwned {
        algorithm,
        subject_public_key: BitString::from_bytes(&key).ok()?,
    };
    pki::KeyAlgorithm::of_spki(&spki).ok()?;
    spki.to_der().ok()
}

fn text(error: Error) -> String {
    format!("the token says {error}")
}

/// The one slot whose token fits.
fn slot(module: &Pkcs11, uri: &Uri) -> Result<Slot, String> {
    let fits = |slot: &Slot, info: &TokenInfo| {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is);
        same(&uri.token, info.label())
            && same(&uri.serial, info.serial_number())
            && same(&uri.manufacturer, info.manufacturer_id())
            && same(&uri.model, info.model())
            && uri.slot.is_none_or(|number| number == slot.id())
    };
    let slots = module.get_slots_with_token().map_err(text)?;
    let found = slots.into_iter().filter(|slot| {
        let info = module.get_token_info(*slot);
        info.is_ok_and(|info| info.token_initialized() && fits(slot, &info))
    });
    one(found.collect(), "token")
}

fn find(
    session: &Session,
    uri: &Uri,
    class: ObjectClass,
    what: &str,
) -> Result<ObjectHandle, String> {
    let mut template = vec![Attribute::Class(class)];
    template.extend(uri.object.clone().map(Attribute::Label));
    template.extend(uri.id.clone().map(Attribute::Id));
    one(session.find_objects(&template).map_err(text)?, what)
}

fn one<T>(found: Vec<T>, what: &str) -> Result<T, String> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("there is no {what} of that name")),
        (Some(_), Some(_)) => Err(format!("there is more than one {what} of that name")),
    }
}

/// A session with the token, and the key in it.
struct Opened {
    session: Session,
    key: ObjectHandle,
}

impl Opened {
    fn new(
        module: &Pkcs11,
        uri: &Uri,
        pin: Option<&Zeroizing<Vec<u8>>>,
        kind: KeyKind,
    ) -> Result<Self, String> {
        let slot = slot(module, uri)?;
        let session = module.open_ro_session(slot).map_err(text)?;
        if let Some(pin) = pin {
            let info = module.get_token_info(slot).map_err(text)?;
            login(&session, &info, pin)?;
        }
        let key = find(&session, uri, ObjectClass::PRIVATE_KEY, "private key")?;
        let wanted = match kind {
            KeyKind::Rsa => KeyType::RSA,
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 => KeyType::EC,
            KeyKind::Ed25519 => KeyType::EC_EDWARDS,
        };
        // There are modules that crash when one kind of key is to do another's work.
        let is = session.get_attributes(key, &[AttributeType::KeyType]);
        if !is.map_err(text)?.contains(&Attribute::KeyType(wanted)) {
            return Err("the private key is of another kind than the certificate's".into());
        }
        let always = session.get_attributes(key, &[AttributeType::AlwaysAuthenticate]);
        if let Ok(values) = always
            && values.contains(&Attribute::AlwaysAuthenticate(true))
        {
            return Err("the key wants its PIN before each signature, which is not done".into());
        }
        Ok(Self { session, key })
    }
}

fn login(session: &Session, info: &TokenInfo, pin: &[u8]) -> Result<(), String> {
    // One more wrong one, and the token is of no use to anybody.
    if info.user_pin_locked() || info.user_pin_final_try() {
        return Err("the token's PIN is locked, or has one try left: unlock it first".into());
    }
    let pin = std::str::from_utf8(pin).map_err(|_| "the PIN is no UTF-8".to_owned())?;
    match session.login(UserType::User, Some(&AuthPin::from(pin))) {
        // By another key on the same token.
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(error) => Err(text(error)),
    }
}

/// A private key on a token.
pub(crate) struct TokenKey {
    module: Pkcs11,
    uri: Uri,
    /// For when the token was away.
    pin: Option<Zeroizing<Vec<u8>>>,
    kind: KeyKind,
    opened: Opened,
}

impl TokenKey {
    pub(crate) const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Signs a whole message; none if the scheme is for another kind of key.
    ///
    /// # Errors
    /// What the token says. One that was away is asked once more.
    pub(crate) fn sign(
        &mut self,
        scheme: SignatureScheme,
        message: &[u8],
    ) -> Option<Result<Vec<u8>, String>> {
        let work = Work::new(self.kind, scheme, message)?;
        let first = work.done_by(&self.opened);
        let lost = |error: &Error| {
            use RvError as Rv;
            let Error::Pkcs11(error, _) = error else {
                return false;
            };
            matches!(
                error,
                Rv::DeviceRemoved
                    | Rv::SessionClosed
                    | Rv::SessionHandleInvalid
                    | Rv::TokenNotPresent
                    | Rv::KeyHandleInvalid
                    | Rv::ObjectHandleInvalid
                    | Rv::UserNotLoggedIn
            )
        };
        let signature = match first {
            Err(error) if lost(&error) => {
                match Opened::new(&self.module, &self.uri, self.pin.as_ref(), self.kind) {
                    Ok(opened) => self.opened = opened,
                    Err(why) => return Some(Err(why)),
                }
                work.done_by(&self.opened)
            }
            other => other,
        };
        Some(signature.map_err(text).and_then(|raw| work.shaped(raw)))
    }
}

/// Work for the token.
struct Work {
    mechanism: Mechanism<'static>,
    input: Vec<u8>,
    /// Whether r and s are to become DER.
    der: bool,
}

impl Work {
    fn new(kind: KeyKind, scheme: SignatureScheme, message: &[u8]) -> Option<Self> {
        let hashed = |algorithm: &'static Algorithm| digest(algorithm, message).as_ref().to_vec();
        let pkcs1 = |info: &[u8], algorithm| Self {
            mechanism: Mechanism::RsaPkcs,
            input: [info, &hashed(algorithm)].concat(),
            der: false,
        };
        let pss = |hash_alg, mgf, algorithm| {
            let input = hashed(algorithm);
            let s_len = u64::try_from(input.len()).unwrap_or(0).into();
            let params = PkcsPssParams {
                hash_alg,
                mgf,
                s_len,
            };
            Self {
                mechanism: Mechanism::RsaPkcsPss(params),
                input,
                der: false,
            }
        };
        let ecdsa = |algorithm, der| Self {
            mechanism: Mechanism::Ecdsa,
            input: hashed(algorithm),
            der,
        };
        Some(match (kind, scheme) {
            (KeyKind::Rsa, SignatureScheme::RsaPkcs1Sha256) => pkcs1(SHA256_INFO, &SHA256),
            (KeyKind::Rsa, SignatureScheme::RsaPkcs1Sha384) => pkcs1(SHA384_INFO, &SHA384),
            (KeyKind::Rsa, SignatureScheme::RsaPkcs1Sha512) => pkcs1(SHA512_INFO, &SHA512),
            (KeyKind::Rsa, SignatureScheme::RsaPssSha256) => {
                pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, &SHA256)
            }
            (KeyKind::Rsa, SignatureScheme::RsaPssSha384) => {
                pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, &SHA384)
            }
            (KeyKind::Rsa, SignatureScheme::RsaPssSha512) => {
                pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, &SHA512)
            }
            (KeyKind::EcdsaP256, SignatureScheme::EcdsaP256) => ecdsa(&SHA256, true),
            (KeyKind::EcdsaP256, SignatureScheme::EcdsaP256Fixed) => ecdsa(&SHA256, false),
            (KeyKind::EcdsaP384, SignatureScheme::EcdsaP384) => ecdsa(&SHA384, true),
            (KeyKind::EcdsaP384, SignatureScheme::EcdsaP384Fixed) => ecdsa(&SHA384, false),
            (KeyKind::Ed25519, SignatureScheme::Ed25519) => Self {
                mechanism: Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure)),
                input: message.to_vec(),
                der: false,
            },
            _ => return None,
        })
    }

    fn done_by(&self, opened: &Opened) -> Result<Vec<u8>, Error> {
        opened
            .session
            .sign(&self.mechanism, opened.key, &self.input)
    }

    fn shaped(&self, raw: Vec<u8>) -> Result<Vec<u8>, String> {
        if !self.der {
            return Ok(raw);
        }
        der_signature(&raw).ok_or_else(|| "the token's signature has a wrong length".to_owned())
    }
}

/// Two numbers of equal length as ECDSA-Sig-Value (RFC 5480 Appendix A).
fn der_signature(raw: &[u8]) -> Option<Vec<u8>> {
    #[derive(der::Sequence)]
    struct Value<'a> {
        r: UintRef<'a>,
        s: UintRef<'a>,
    }
    let half = raw.len().checked_div(2)?;
    let (r, s) = raw.split_at_checked(half)?;
    if r.is_empty() || r.len() != s.len() {
        return None;
    }
    let value = Value {
        r: UintRef::new(r).ok()?,
        s: UintRef::new(s).ok()?,
    };
    value.to_der().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecdsa_r_and_s_become_der() {
        let der = der_signature(&[0, 1, 0x80, 2]);
        // Without zeros in front, but with one where a number would be negative.
        assert_eq!(der, Some(vec![0x30, 8, 2, 1, 1, 2, 3, 0, 0x80, 2]));
        assert_eq!(der_signature(&[]), None);
        assert_eq!(der_signature(&[1, 2, 3]), None);
    }
}
