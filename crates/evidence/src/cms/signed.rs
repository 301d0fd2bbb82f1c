//! `SignedData` with the signed attributes of CAdES-BES: making and verifying.

use aws_lc_rs::digest;
use cms::cert::{CertificateChoices, IssuerAndSerialNumber};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::{
    ID_AA_SIGNING_CERTIFICATE_V_2, ID_CONTENT_TYPE, ID_DATA, ID_MESSAGE_DIGEST, ID_SIGNED_DATA,
    ID_SIGNING_TIME,
};
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, ID_SHA_256, ID_SHA_384, ID_SHA_512,
    RSA_ENCRYPTION, SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION,
    SHA_512_WITH_RSA_ENCRYPTION,
};
use const_oid::db::rfc8410::ID_ED_25519;
use der::asn1::{Any, GeneralizedTime, OctetString, SetOfVec, UtcTime};
use der::{AnyRef, DateTime, Decode, Encode, Tag, Tagged};
use pki::cert::{Certificate, CertificateChain};
use pki::key::{self, KeyAlgorithm, PrivateKey};
use spki::AlgorithmIdentifierOwned;
use subtle::ConstantTimeEq;
use time::OffsetDateTime;
use x509_cert::attr::{Attribute, Attributes};
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::time::Time;

use super::encoding::decode;
use super::error::CmsError;
use super::ess::{self, SigningCertificateV2};

/// Most certificates looked at in one message.
const MAX_CERTIFICATES: usize = 16;
/// First year that `UTCTime` cannot express (RFC 5652 section 11.3).
const FIRST_GENERALIZED_YEAR: i32 = 2050;

/// Placement of a signed message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Attached,
    /// Elsewhere; the verifier is given it.
    Detached,
}

/// Signs `content` as a DER `ContentInfo` holding `SignedData`.
///
/// The digest is SHA-256, SHA-384 for P-384 keys and SHA-512 for Ed25519 (RFC 8419). The message
/// carries the whole `chain`. `signing_time` is cut to seconds.
///
/// # Errors
/// [`CmsError::Key`] if the key cannot sign or does not belong to the chain's leaf,
/// [`CmsError::Time`], or [`CmsError::Encode`].
pub fn sign(
    key: &PrivateKey,
    chain: &CertificateChain,
    content: &[u8],
    placement: Placement,
    signing_time: OffsetDateTime,
) -> Result<Vec<u8>, CmsError> {
    let signer = chain.leaf();
    let digest_oid = digest_of(key.algorithm());
    let algorithm =
        ess::hash_by_oid(digest_oid).ok_or(CmsError::DigestAlgorithm { found: digest_oid })?;
    let attributes = signed_attributes(
        signer,
        digest::digest(algorithm, content).as_ref(),
        signing_time,
    )?;
    let to_be_signed = attributes.to_der().map_err(CmsError::Encode)?;
    let signature = key.sign(&to_be_signed).map_err(CmsError::Key)?;
    let signature_algorithm = key.signature_algorithm();
    // Catches a key that does not belong to the certificate before the block leaves the camera.
    let spki = spki_der(signer)?;
    key::verify(&spki, &signature_algorithm, &to_be_signed, &signature)
        .map_err(CmsError::Signature)?;
    let digest_alg = AlgorithmIdentifierOwned {
        oid: digest_oid,
        parameters: None,
    };
    let info = SignerInfo {
        version: CmsVersion::V1,
        sid: SignerIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
            issuer: signer.tbs_certificate.issuer.clone(),
            serial_number: signer.tbs_certificate.serial_number.clone(),
        }),
        digest_alg: digest_alg.clone(),
        signed_attrs: Some(attributes),
        signature_algorithm,
        signature: OctetString::new(signature).map_err(CmsError::Encode)?,
        unsigned_attrs: None,
    };
    encode_message(chain, content, placement, digest_alg, info)
}

fn encode_message(
    chain: &CertificateChain,
    content: &[u8],
    placement: Placement,
    digest_alg: AlgorithmIdentifierOwned,
    info: SignerInfo,
) -> Result<Vec<u8>, CmsError> {
    let econtent = match placement {
        Placement::Attached => Some(Any::new(Tag::OctetString, content).map_err(CmsError::Encode)?),
        Placement::Detached => None,
    };
    let mut certificates = SetOfVec::new();
    for certificate in chain.certificates() {
        certificates
            .insert(CertificateChoices::Certificate(certificate.clone()))
            .map_err(CmsError::Encode)?;
    }
    let data = SignedData {
        version: CmsVersion::V1,
        digest_algorithms: SetOfVec::try_from(vec![digest_alg]).map_err(CmsError::Encode)?,
        encap_content_info: EncapsulatedContentInfo {
            econtent_type: ID_DATA,
            econtent,
        },
        certificates: Some(CertificateSet(certificates)),
        crls: None,
        signer_infos: SignerInfos(SetOfVec::try_from(vec![info]).map_err(CmsError::Encode)?),
    };
    ContentInfo {
        content_type: ID_SIGNED_DATA,
        content: Any::encode_from(&data).map_err(CmsError::Encode)?,
    }
    .to_der()
    .map_err(CmsError::Encode)
}

const fn digest_of(algorithm: KeyAlgorithm) -> ObjectIdentifier {
    match algorithm {
        KeyAlgorithm::EcdsaP384 => ID_SHA_384,
        KeyAlgorithm::Ed25519 => ID_SHA_512,
        KeyAlgorithm::EcdsaP256
        | KeyAlgorithm::Rsa2048
        | KeyAlgorithm::Rsa3072
        | KeyAlgorithm::Rsa4096 => ID_SHA_256,
    }
}

fn signed_attributes(
    signer: &Certificate,
    content_digest: &[u8],
    signing_time: OffsetDateTime,
) -> Result<Attributes, CmsError> {
    let digest = OctetString::new(content_digest).map_err(CmsError::Encode)?;
    SetOfVec::try_from(vec![
        attribute(ID_CONTENT_TYPE, &ID_DATA)?,
        attribute(ID_MESSAGE_DIGEST, &digest)?,
        attribute(ID_SIGNING_TIME, &to_time(signing_time)?)?,
        attribute(
            ID_AA_SIGNING_CERTIFICATE_V_2,
            &SigningCertificateV2::of(signer)?,
        )?,
    ])
    .map_err(CmsError::Encode)
}

fn attribute<T: Encode>(oid: ObjectIdentifier, value: &T) -> Result<Attribute, CmsError> {
    let der = value.to_der().map_err(CmsError::Encode)?;
    let value = Any::from_der(&der).map_err(CmsError::Encode)?;
    Ok(Attribute {
        oid,
        values: SetOfVec::try_from(vec![value]).map_err(CmsError::Encode)?,
    })
}

fn to_time(at: OffsetDateTime) -> Result<Time, CmsError> {
    let seconds = u64::try_from(at.unix_timestamp()).map_err(|_| CmsError::Time)?;
    let date = DateTime::from_unix_duration(core::time::Duration::from_secs(seconds))
        .map_err(|_| CmsError::Time)?;
    if at.year() < FIRST_GENERALIZED_YEAR {
        let utc = UtcTime::from_date_time(date).map_err(|_| CmsError::Time)?;
        Ok(Time::UtcTime(utc))
    } else {
        Ok(Time::GeneralTime(GeneralizedTime::from_date_time(date)))
    }
}

fn spki_der(certificate: &Certificate) -> Result<Vec<u8>, CmsError> {
    certificate
        .tbs_certificate
        .subject_public_key_info
        .to_der()
        .map_err(CmsError::Encode)
}

/// A parsed `SignedData`, not yet verified.
pub struct SignedMessage {
    data: SignedData,
}

/// Content of a verified message.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The signed bytes.
    pub content: Vec<u8>,
    /// The signer's certificate and, as far as the message has them, its issuers; leaf first.
    ///
    /// The signature is by the leaf's key. Whether the leaf is to be trusted is not checked.
    pub signer_chain: CertificateChain,
    /// When the signer claims to have signed; UTC, seconds.
    pub signing_time: OffsetDateTime,
}

/// Parses a DER `ContentInfo` holding `SignedData`, without verifying it.
///
/// # Errors
/// [`CmsError`]: size, encoding, content type or number of signers.
pub fn parse_signed_data(der: &[u8]) -> Result<SignedMessage, CmsError> {
    let info: ContentInfo = decode(der)?;
    if info.content_type != ID_SIGNED_DATA {
        return Err(CmsError::ContentType {
            found: info.content_type,
            expected: ID_SIGNED_DATA,
        });
    }
    let inner = info.content.to_der().map_err(CmsError::Encode)?;
    let data: SignedData = decode(&inner)?;
    if data.encap_content_info.econtent_type != ID_DATA {
        return Err(CmsError::ContentType {
            found: data.encap_content_info.econtent_type,
            expected: ID_DATA,
        });
    }
    if !matches!(data.version, CmsVersion::V1 | CmsVersion::V3) {
        return Err(CmsError::Version {
            structure: "signed-data",
        });
    }
    let found = data.signer_infos.0.len();
    if found != 1 {
        return Err(CmsError::SignerCount { found });
    }
    Ok(SignedMessage { data })
}

impl SignedMessage {
    /// Verifies a message with its content attached.
    ///
    /// # Errors
    /// [`CmsError`], one variant per reason.
    pub fn verify(&self) -> Result<Verified, CmsError> {
        let any = self.data.encap_content_info.econtent.as_ref();
        let any = any.ok_or(CmsError::ContentMissing)?;
        if any.tag() != Tag::OctetString {
            return Err(CmsError::AttributeMalformed { name: "content" });
        }
        self.verify_content(any.value())
    }

    /// Verifies a message whose content, `content`, is kept elsewhere.
    ///
    /// # Errors
    /// [`CmsError`], one variant per reason.
    pub fn verify_detached(&self, content: &[u8]) -> Result<Verified, CmsError> {
        if self.data.encap_content_info.econtent.is_some() {
            return Err(CmsError::ContentPresent);
        }
        self.verify_content(content)
    }

    fn verify_content(&self, content: &[u8]) -> Result<Verified, CmsError> {
        let info = self
            .data
            .signer_infos
            .0
            .get(0)
            .ok_or(CmsError::SignerCount { found: 0 })?;
        check_signer_version(info)?;
        let algorithm = self.digest_algorithm(info)?;
        let attributes = info
            .signed_attrs
            .as_ref()
            .ok_or(CmsError::AttributeMissing {
                name: "content-type",
            })?;
        let content_type: ObjectIdentifier = single(attributes, ID_CONTENT_TYPE, "content-type")?;
        if content_type != self.data.encap_content_info.econtent_type {
            return Err(CmsError::ContentTypeAttribute);
        }
        let signed: OctetString = single(attributes, ID_MESSAGE_DIGEST, "message-digest")?;
        let signing_time: Time = single(attributes, ID_SIGNING_TIME, "signing-time")?;
        let signing_certificate: SigningCertificateV2 = single(
            attributes,
            ID_AA_SIGNING_CERTIFICATE_V_2,
            "signing-certificate-v2",
        )?;
        let actual = digest::digest(algorithm, content);
        if !bool::from(actual.as_ref().ct_eq(signed.as_bytes())) {
            return Err(CmsError::MessageDigest);
        }
        let signer = self.signer_certificate(&info.sid)?;
        signing_certificate.check(signer)?;
        // RFC 5652 section 5.4: the signature is over the attributes as an explicit SET OF.
        let signed_bytes = attributes.to_der().map_err(CmsError::Encode)?;
        key::verify(
            &spki_der(signer)?,
            &effective_signature_algorithm(info)?,
            &signed_bytes,
            info.signature.as_bytes(),
        )
        .map_err(CmsError::Signature)?;
        Ok(Verified {
            content: content.to_vec(),
            signer_chain: self.chain_from(signer)?,
            signing_time: from_time(&signing_time)?,
        })
    }

    fn digest_algorithm(&self, info: &SignerInfo) -> Result<&'static digest::Algorithm, CmsError> {
        let found = info.digest_alg.oid;
        let refused = CmsError::DigestAlgorithm { found };
        let listed = self.data.digest_algorithms.iter().any(|a| a.oid == found);
        if !listed || !absent_or_null(&info.digest_alg) {
            return Err(refused);
        }
        ess::hash_by_oid(found).ok_or(refused)
    }

    fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let set = self.data.certificates.as_ref();
        set.into_iter()
            .flat_map(|set| set.0.iter())
            .filter_map(|choice| match choice {
                CertificateChoices::Certificate(certificate) => Some(certificate),
                CertificateChoices::Other(_) => None,
            })
            .take(MAX_CERTIFICATES)
    }

    fn signer_certificate(&self, sid: &SignerIdentifier) -> Result<&Certificate, CmsError> {
        self.certificates()
            .find(|certificate| match sid {
                SignerIdentifier::IssuerAndSerialNumber(id) => {
                    is_issuer_and_serial(certificate, id)
                }
                SignerIdentifier::SubjectKeyIdentifier(id) => {
                    subject_key_identifier(certificate).as_ref() == Some(id)
                }
            })
            .ok_or(CmsError::SignerCertificateMissing)
    }

    /// Orders the message's certificates from the signer upwards by name.
    fn chain_from(&self, signer: &Certificate) -> Result<CertificateChain, CmsError> {
        let mut chain = vec![signer.clone()];
        let mut current = signer;
        while let Some(issuer) = self.certificates().find(|candidate| {
            candidate.tbs_certificate.subject == current.tbs_certificate.issuer
                && !chain.contains(candidate)
        }) {
            chain.push(issuer.clone());
            current = issuer;
        }
        CertificateChain::new(chain).map_err(|_| CmsError::SignerCertificateMissing)
    }
}

fn check_signer_version(info: &SignerInfo) -> Result<(), CmsError> {
    // RFC 5652 section 5.3: the version follows from the choice of identifier.
    let expected = match info.sid {
        SignerIdentifier::IssuerAndSerialNumber(_) => CmsVersion::V1,
        SignerIdentifier::SubjectKeyIdentifier(_) => CmsVersion::V3,
    };
    if info.version == expected {
        Ok(())
    } else {
        Err(CmsError::Version {
            structure: "signer-info",
        })
    }
}

pub(super) fn is_issuer_and_serial(certificate: &Certificate, id: &IssuerAndSerialNumber) -> bool {
    let tbs = &certificate.tbs_certificate;
    tbs.issuer == id.issuer && tbs.serial_number == id.serial_number
}

pub(super) fn subject_key_identifier(certificate: &Certificate) -> Option<SubjectKeyIdentifier> {
    certificate
        .tbs_certificate
        .get::<SubjectKeyIdentifier>()
        .ok()
        .flatten()
        .map(|(_, id)| id)
}

fn absent_or_null(algorithm: &AlgorithmIdentifierOwned) -> bool {
    algorithm
        .parameters
        .as_ref()
        .is_none_or(|p| AnyRef::from(p).is_null())
}

/// The signature algorithm with its digest made explicit, checked against the digest algorithm.
fn effective_signature_algorithm(info: &SignerInfo) -> Result<AlgorithmIdentifierOwned, CmsError> {
    let digest = info.digest_alg.oid;
    let named = info.signature_algorithm.oid;
    let mismatch = CmsError::DigestForSignature {
        digest,
        signature: named,
    };
    if !absent_or_null(&info.signature_algorithm) {
        return Err(mismatch);
    }
    // RFC 3370 section 3.2 lets RSA signers write rsaEncryption and leave the digest to the other
    // field, as OpenSSL does.
    let oid = match (named, digest) {
        (RSA_ENCRYPTION, ID_SHA_256) => SHA_256_WITH_RSA_ENCRYPTION,
        (RSA_ENCRYPTION, ID_SHA_384) => SHA_384_WITH_RSA_ENCRYPTION,
        (RSA_ENCRYPTION, ID_SHA_512) => SHA_512_WITH_RSA_ENCRYPTION,
        (ECDSA_WITH_SHA_256 | SHA_256_WITH_RSA_ENCRYPTION, ID_SHA_256)
        | (ECDSA_WITH_SHA_384 | SHA_384_WITH_RSA_ENCRYPTION, ID_SHA_384)
        | (ECDSA_WITH_SHA_512 | SHA_512_WITH_RSA_ENCRYPTION, ID_SHA_512)
        | (ID_ED_25519, ID_SHA_512) => named,
        _ => return Err(mismatch),
    };
    Ok(AlgorithmIdentifierOwned {
        oid,
        parameters: None,
    })
}

/// The one value of the one attribute of this type (RFC 5652 section 11 requires both).
fn single<T: for<'a> Decode<'a>>(
    attributes: &Attributes,
    oid: ObjectIdentifier,
    name: &'static str,
) -> Result<T, CmsError> {
    let mut found = attributes.iter().filter(|a| a.oid == oid);
    let attribute = found.next().ok_or(CmsError::AttributeMissing { name })?;
    let malformed = CmsError::AttributeMalformed { name };
    if found.next().is_some() || attribute.values.len() != 1 {
        return Err(malformed);
    }
    let Some(value) = attribute.values.get(0) else {
        return Err(malformed);
    };
    let der = value.to_der().map_err(CmsError::Encode)?;
    T::from_der(&der).map_err(|_| malformed)
}

fn from_time(at: &Time) -> Result<OffsetDateTime, CmsError> {
    let seconds = i64::try_from(at.to_unix_duration().as_secs()).map_err(|_| CmsError::Time)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| CmsError::Time)
}
