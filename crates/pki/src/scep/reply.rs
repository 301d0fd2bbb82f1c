//! Answers: a certificate, encrypted to whoever asked, or why there is none.

use aws_lc_rs::digest::{SHA256, digest};
use cms::cert::{CertificateChoices, IssuerAndSerialNumber};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use const_oid::db::rfc5911::{ID_DATA, ID_SIGNED_DATA};
use const_oid::db::rfc5912::{ID_SHA_256, RSA_ENCRYPTION};
use der::Encode;
use der::asn1::{Any, Null, OctetString, SetOfVec, Utf8StringRef};
use spki::AlgorithmIdentifierOwned;
use x509_cert::attr::Attribute;

use super::attributes::{
    CONTENT_TYPE, FAIL_INFO, FAIL_INFO_TEXT, MESSAGE_DIGEST, MESSAGE_TYPE, PKI_STATUS,
    RECIPIENT_NONCE, SENDER_NONCE, TRANSACTION_ID, attribute, octets, printable,
};
use super::envelope::{self, ContentCipher};
use super::message::Message;
use crate::cert::Certificate;
use crate::key::{KeyError, PrivateKey};
use crate::pkcs7::{self, Pkcs7Error};

/// Longest text beside a failure, in bytes (RFC 8894, section 3.2.1.4.3 has no bound; ours is that of one line).
const MAX_TEXT: usize = 255;

/// Why there is no certificate, in the protocol's terms (RFC 8894, section 3.2.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailInfo {
    BadAlg,
    BadMessageCheck,
    BadRequest,
    BadCertId,
}

impl FailInfo {
    const fn number(self) -> &'static str {
        match self {
            Self::BadAlg => "0",
            Self::BadMessageCheck => "1",
            Self::BadRequest => "2",
            Self::BadCertId => "4",
        }
    }
}

/// Why an answer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    #[error("cannot encode the answer")]
    Encode(#[from] der::Error),
    #[error("cannot sign the answer")]
    Sign(#[source] KeyError),
    #[error("cannot write the certificate")]
    Certificates(#[from] Pkcs7Error),
    /// Whoever asked has no RSA key.
    #[error("cannot encrypt to the key that has signed the request")]
    Encrypt,
}

/// What an answer says.
pub enum ReplyBody<'a> {
    Certificate {
        certificate: &'a Certificate,
        /// The cipher of the request: what its sender can do.
        cipher: ContentCipher,
    },
    Refused {
        failure: FailInfo,
        text: &'a str,
    },
}

/// An answer to a message.
pub struct Reply<'a> {
    pub body: ReplyBody<'a>,
    /// Ours, by chance.
    pub nonce: [u8; 16],
    /// The registration authority, whose key signs.
    pub signer: &'a Certificate,
}

impl Reply<'_> {
    /// Encodes and signs the answer to `message`.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn to_der(&self, message: &Message, key: &PrivateKey) -> Result<Vec<u8>, ReplyError> {
        let content = match &self.body {
            ReplyBody::Certificate {
                certificate,
                cipher,
            } => {
                // One certificate: some clients take the first, and a set has no order. Its issuer comes by GetCACert.
                let inner = pkcs7::encode_certs_only([*certificate])?;
                let encrypted = envelope::encrypt(&inner, *cipher, message.signer())?;
                Some(encrypted.ok_or(ReplyError::Encrypt)?)
            }
            ReplyBody::Refused { .. } => None,
        };
        let attributes = self.attributes(message, content.as_deref().unwrap_or_default())?;
        let signed = attributes.to_der()?;
        let signature = key.sign(&signed).map_err(ReplyError::Sign)?;
        let tbs = &self.signer.tbs_certificate;
        let sha256 = AlgorithmIdentifierOwned {
            oid: ID_SHA_256,
            parameters: Some(Any::from(Null)),
        };
        let info = SignerInfo {
            version: CmsVersion::V1,
            sid: SignerIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer: tbs.issuer.clone(),
                serial_number: tbs.serial_number.clone(),
            }),
            digest_alg: sha256.clone(),
            signed_attrs: Some(attributes),
            signature_algorithm: AlgorithmIdentifierOwned {
                oid: RSA_ENCRYPTION,
                parameters: Some(Any::from(Null)),
            },
            signature: OctetString::new(signature)?,
            unsigned_attrs: None,
        };
        let econtent = match content {
            Some(content) => Some(Any::encode_from(&OctetString::new(content)?)?),
            None => None,
        };
        let certificates = vec![CertificateChoices::Certificate(self.signer.clone())];
        let data = SignedData {
            version: CmsVersion::V1,
            digest_algorithms: SetOfVec::try_from(vec![sha256])?,
            encap_content_info: EncapsulatedContentInfo {
                econtent_type: ID_DATA,
                econtent,
            },
            certificates: Some(CertificateSet::from(SetOfVec::try_from(certificates)?)),
            crls: None,
            signer_infos: SignerInfos(SetOfVec::try_from(vec![info])?),
        };
        let outer = ContentInfo {
            content_type: ID_SIGNED_DATA,
            content: Any::encode_from(&data)?,
        };
        Ok(outer.to_der()?)
    }

    fn attributes(&self, message: &Message, content: &[u8]) -> der::Result<SetOfVec<Attribute>> {
        let mut all = vec![
            attribute(CONTENT_TYPE, &ID_DATA)?,
            octets(MESSAGE_DIGEST, digest(&SHA256, content).as_ref())?,
            // CertRep.
            printable(MESSAGE_TYPE, "3")?,
            printable(TRANSACTION_ID, message.transaction_id())?,
            octets(RECIPIENT_NONCE, message.sender_nonce())?,
            octets(SENDER_NONCE, &self.nonce)?,
        ];
        match &self.body {
            ReplyBody::Certificate { .. } => all.push(printable(PKI_STATUS, "0")?),
            ReplyBody::Refused { failure, text } => {
                all.push(printable(PKI_STATUS, "2")?);
                all.push(printable(FAIL_INFO, failure.number())?);
                let end = text.floor_char_boundary(MAX_TEXT);
                let text = text.get(..end).unwrap_or_default();
                all.push(attribute(FAIL_INFO_TEXT, &Utf8StringRef::new(text)?)?);
            }
        }
        SetOfVec::try_from(all)
    }
}
