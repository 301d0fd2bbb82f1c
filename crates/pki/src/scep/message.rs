//! Requests: a signature over attributes, and over what is encrypted.

use aws_lc_rs::digest;
use cms::cert::CertificateChoices;
use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerIdentifier, SignerInfo};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::{ID_DATA, ID_SIGNED_DATA};
use const_oid::db::rfc5912::{
    ID_SHA_256, ID_SHA_384, ID_SHA_512, RSA_ENCRYPTION, SHA_256_WITH_RSA_ENCRYPTION,
    SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};
use der::{Decode, Encode, Tag, Tagged};
use spki::AlgorithmIdentifierOwned;

use super::attributes::{
    self, CONTENT_TYPE, MESSAGE_DIGEST, MESSAGE_TYPE, SENDER_NONCE, TRANSACTION_ID,
};
use crate::cert::Certificate;
use crate::key::{self, VerifyError};

/// Largest message in bytes. A certification request of [`MAX_CSR_LEN`](crate::csr::MAX_CSR_LEN) is in it, and the signer's
/// certificate beside it.
pub const MAX_MESSAGE: usize = 24 * 1024;
/// Certificates beside a signature at most; our choice: the signer's, and its issuers'.
const MAX_CERTIFICATES: usize = 8;
/// Longest identifier of a transaction in bytes; clients make it of a digest.
const MAX_TRANSACTION_ID: usize = 128;
/// Bytes of a nonce: 16 (RFC 8894, section 3.2.1.5), and as many as clients of other numbers send.
const NONCE: std::ops::RangeInclusive<usize> = 8..=64;

/// Why a message is not read, or is not what its signer has sent.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("a message has at most {MAX_MESSAGE} bytes")]
    TooLong,
    /// Not in DER, or with another structure.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// Another algorithm, of a digest or a signature.
    #[error("a message is signed by RSA with SHA-256, SHA-384 or SHA-512")]
    Algorithm(ObjectIdentifier),
    /// The content is another than the one that was signed.
    #[error("the message's digest is that of another content")]
    OtherContent,
    #[error("the signature does not hold")]
    Signature(#[source] VerifyError),
}

/// What is asked for (RFC 8894, section 3.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A first certificate, by a challenge password.
    PkcsReq,
    /// Another certificate, by the present one.
    RenewalReq,
    /// Something else.
    Other,
}

/// A request, whose signature is not verified yet.
#[derive(Debug)]
pub struct Message {
    info: SignerInfo,
    content: Vec<u8>,
    signer: Certificate,
    kind: MessageKind,
    transaction_id: String,
    sender_nonce: Vec<u8>,
}

impl Message {
    /// Takes a message (DER) apart.
    ///
    /// # Errors
    /// [`MessageError`], one variant per reason.
    pub fn parse(der: &[u8]) -> Result<Self, MessageError> {
        if der.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong);
        }
        let form = |_| MessageError::Malformed("it is no SignedData in DER");
        let outer = ContentInfo::from_der(der).map_err(form)?;
        if outer.content_type != ID_SIGNED_DATA {
            return Err(MessageError::Malformed("it is no SignedData"));
        }
        let data: SignedData = outer.content.decode_as().map_err(form)?;
        let content = data.encap_content_info.econtent.as_ref();
        let content = content.filter(|content| content.tag() == Tag::OctetString);
        let content = content.ok_or(MessageError::Malformed("nothing is in it"))?;
        if data.encap_content_info.econtent_type != ID_DATA {
            return Err(MessageError::Malformed("its content is not of type data"));
        }
        let [info] = data.signer_infos.0.as_slice() else {
            return Err(MessageError::Malformed("it has not exactly one signature"));
        };
        let signer = signer_of(&data, info)?;
        let attributes = info.signed_attrs.as_ref();
        let attributes = attributes.ok_or(MessageError::Malformed("no attributes are signed"))?;
        let kind = match attributes::text(attributes, MESSAGE_TYPE) {
            Some("19") => MessageKind::PkcsReq,
            Some("17") => MessageKind::RenewalReq,
            Some(_) => MessageKind::Other,
            None => return Err(MessageError::Malformed("it has no type")),
        };
        let transaction_id = attributes::text(attributes, TRANSACTION_ID)
            .filter(|id| (1..=MAX_TRANSACTION_ID).contains(&id.len()))
            .ok_or(MessageError::Malformed(
                "it has no identifier of a transaction, or a long one",
            ))?;
        let sender_nonce = attributes::bytes(attributes, SENDER_NONCE)
            .filter(|nonce| NONCE.contains(&nonce.len()))
            .ok_or(MessageError::Malformed(
                "it has no nonce, or one of another length",
            ))?;
        Ok(Self {
            kind,
            transaction_id: transaction_id.to_owned(),
            sender_nonce: sender_nonce.to_vec(),
            content: content.value().to_vec(),
            info: info.clone(),
            signer,
        })
    }

    /// What is asked for.
    #[must_use]
    pub const fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The identifier that the answer repeats.
    #[must_use]
    pub fn transaction_id(&self) -> &str {
        &self.transaction_id
    }

    /// The nonce that the answer repeats.
    #[must_use]
    pub fn sender_nonce(&self) -> &[u8] {
        &self.sender_nonce
    }

    /// The certificate with whose key it is signed: the sender's own word, or one of ours.
    #[must_use]
    pub const fn signer(&self) -> &Certificate {
        &self.signer
    }

    /// What is encrypted in it.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Verifies digest and signature by the key of [`Self::signer`].
    ///
    /// # Errors
    /// [`MessageError::Algorithm`], [`MessageError::OtherContent`], [`MessageError::Signature`], or
    /// [`MessageError::Malformed`] if an attribute is missing.
    pub fn verify(&self) -> Result<(), MessageError> {
        let attributes = self.info.signed_attrs.as_ref();
        let attributes = attributes.ok_or(MessageError::Malformed("no attributes are signed"))?;
        let content_type = attributes::value(attributes, CONTENT_TYPE)
            .and_then(|value| value.decode_as::<ObjectIdentifier>().ok());
        if content_type != Some(ID_DATA) {
            return Err(MessageError::Malformed(
                "the signed type of content is not data",
            ));
        }
        let algorithm = digest_by(self.info.digest_alg.oid)?;
        let signed = attributes::bytes(attributes, MESSAGE_DIGEST);
        if signed != Some(digest::digest(algorithm, &self.content).as_ref()) {
            return Err(MessageError::OtherContent);
        }
        let malformed = |_| MessageError::Malformed("its parts cannot be encoded");
        let key = &self.signer.tbs_certificate.subject_public_key_info;
        let spki = key.to_der().map_err(malformed)?;
        // RFC 5652, section 5.4: over the attributes as a SET OF, in DER.
        let message = attributes.to_der().map_err(malformed)?;
        let algorithm = signature_algorithm(&self.info)?;
        key::verify(&spki, &algorithm, &message, self.info.signature.as_bytes())
            .map_err(MessageError::Signature)
    }
}

/// The one certificate that the signature names.
fn signer_of(data: &SignedData, info: &SignerInfo) -> Result<Certificate, MessageError> {
    let SignerIdentifier::IssuerAndSerialNumber(wanted) = &info.sid else {
        return Err(MessageError::Malformed(
            "its signer is not named by issuer and serial number",
        ));
    };
    let certificates = data.certificates.as_ref().map(|set| set.0.as_slice());
    let certificates = certificates.unwrap_or_default();
    if certificates.len() > MAX_CERTIFICATES {
        return Err(MessageError::Malformed("it has more than 8 certificates"));
    }
    let mut named = certificates.iter().filter_map(|choice| match choice {
        CertificateChoices::Certificate(one)
            if one.tbs_certificate.issuer == wanted.issuer
                && one.tbs_certificate.serial_number == wanted.serial_number =>
        {
            Some(one)
        }
        _ => None,
    });
    match (named.next(), named.next()) {
        (Some(signer), None) => Ok(signer.clone()),
        _ => Err(MessageError::Malformed(
            "the signer's certificate is not in it once",
        )),
    }
}

fn digest_by(oid: ObjectIdentifier) -> Result<&'static digest::Algorithm, MessageError> {
    match oid {
        ID_SHA_256 => Ok(&digest::SHA256),
        ID_SHA_384 => Ok(&digest::SHA384),
        ID_SHA_512 => Ok(&digest::SHA512),
        other => Err(MessageError::Algorithm(other)),
    }
}

/// The signature's algorithm with its digest, which most clients name beside it only, and which must be the same otherwise.
fn signature_algorithm(info: &SignerInfo) -> Result<AlgorithmIdentifierOwned, MessageError> {
    let oid = match info.digest_alg.oid {
        ID_SHA_256 => SHA_256_WITH_RSA_ENCRYPTION,
        ID_SHA_384 => SHA_384_WITH_RSA_ENCRYPTION,
        ID_SHA_512 => SHA_512_WITH_RSA_ENCRYPTION,
        other => return Err(MessageError::Algorithm(other)),
    };
    match info.signature_algorithm.oid {
        named if named == RSA_ENCRYPTION || named == oid => Ok(AlgorithmIdentifierOwned {
            oid,
            parameters: None,
        }),
        other => Err(MessageError::Algorithm(other)),
    }
}
