//! Why a CMS message was refused.

use const_oid::ObjectIdentifier;
use der::ErrorKind;
use pki::key::{KeyError, VerifyError};

/// Largest message that is parsed, in bytes.
pub const MAX_MESSAGE_LEN: usize = 1024 * 1024;

/// Why a CMS message could not be made or was refused.
#[derive(Debug, thiserror::Error)]
pub enum CmsError {
    /// More than [`MAX_MESSAGE_LEN`] bytes.
    #[error("message of {len} bytes is larger than {MAX_MESSAGE_LEN}")]
    TooLarge { len: usize },
    /// BER with indefinite lengths, as streaming writers make; we accept DER only.
    #[error("message uses indefinite lengths, which der forbids")]
    IndefiniteLength,
    /// Bytes follow the message.
    #[error("message has trailing data")]
    TrailingData,
    /// Not the ASN.1 structure expected.
    #[error("malformed message")]
    Malformed(#[source] der::Error),
    /// Readable, but not the one distinguished encoding.
    #[error("message is not in distinguished encoding")]
    NotDer,
    /// A message we made ourselves could not be encoded.
    #[error("cannot encode message")]
    Encode(#[source] der::Error),
    /// Another type of message or content.
    #[error("content type is {found}, expected {expected}")]
    ContentType {
        found: ObjectIdentifier,
        expected: ObjectIdentifier,
    },
    /// A structure version that RFC 5652 does not give to this content.
    #[error("unexpected version of {structure}")]
    Version {
        /// Name of the structure.
        structure: &'static str,
    },
    /// The content is not in the message although it should be.
    #[error("message has no content")]
    ContentMissing,
    /// The content is in the message although it was given separately.
    #[error("message has a content of its own")]
    ContentPresent,
    /// Not exactly one signer.
    #[error("message has {found} signers, expected 1")]
    SignerCount { found: usize },
    /// A digest algorithm outside SHA-256, SHA-384 and SHA-512, or one that is not listed.
    #[error("digest algorithm {found} is not accepted")]
    DigestAlgorithm { found: ObjectIdentifier },
    /// The digest is not the one that belongs to the signature algorithm.
    #[error("digest algorithm {digest} does not belong to signature algorithm {signature}")]
    DigestForSignature {
        digest: ObjectIdentifier,
        signature: ObjectIdentifier,
    },
    /// A signed attribute that CAdES-BES or our profile requires is absent.
    #[error("signed attribute {name} is missing")]
    AttributeMissing {
        /// Name of the attribute.
        name: &'static str,
    },
    /// A signed attribute is there twice, has not one value, or cannot be read.
    #[error("signed attribute {name} is malformed")]
    AttributeMalformed {
        /// Name of the attribute.
        name: &'static str,
    },
    /// The content-type attribute differs from the type of the content.
    #[error("signed attribute content-type does not match the content")]
    ContentTypeAttribute,
    /// The message-digest attribute differs from the digest of the content.
    #[error("content does not match the signed digest")]
    MessageDigest,
    /// The certificate that the signer names is not in the message.
    #[error("certificate of the signer is not in the message")]
    SignerCertificateMissing,
    /// The signing-certificate-v2 attribute names another certificate.
    #[error("signing-certificate-v2 names another certificate")]
    SigningCertificate,
    /// The signature does not verify.
    #[error("signature is not valid")]
    Signature(#[source] VerifyError),
    /// No recipient was given, or too many.
    #[error("{count} recipients, expected 1 to {max}")]
    RecipientCount { count: usize, max: usize },
    /// No recipient entry names one of our certificates.
    #[error("message is not for any of our keys")]
    NotForUs,
    /// The recipient entry uses a key management algorithm that we refuse.
    #[error("key management algorithm {found} is not accepted")]
    KeyManagementAlgorithm {
        /// Algorithm found, or the hash, mask or wrap inside of it.
        found: ObjectIdentifier,
    },
    /// The recipient entry is for us but malformed.
    #[error("malformed recipient entry")]
    RecipientEntry,
    /// The content encryption key could not be recovered: wrong key or altered entry.
    #[error("cannot recover the content encryption key")]
    KeyUnwrap,
    /// Not AES-256-GCM.
    #[error("content encryption algorithm {found} is not accepted")]
    ContentEncryptionAlgorithm { found: ObjectIdentifier },
    /// Nonce of other than 12 bytes or tag of other than 16.
    #[error("aes-gcm parameters are not a 12-byte nonce and a 16-byte tag")]
    GcmParameters,
    /// Authenticated attributes are present, which our profile has no use for.
    #[error("authenticated attributes are not supported")]
    AuthenticatedAttributes,
    /// The content was altered or encrypted under another key.
    #[error("content authentication failed")]
    Authentication,
    /// A public key that cannot be a recipient's or a private key that cannot sign.
    #[error("unusable key")]
    Key(#[source] KeyError),
    /// The crypto library or its random generator failed.
    #[error("crypto library failed to {operation}")]
    Library {
        /// The operation that failed.
        operation: &'static str,
    },
    /// A time outside what X.509 can express.
    #[error("time is out of range")]
    Time,
}

impl CmsError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "cms-too-large",
            Self::IndefiniteLength => "cms-indefinite-length",
            Self::TrailingData => "cms-trailing-data",
            Self::Malformed(_) => "cms-malformed",
            Self::NotDer => "cms-not-der",
            Self::Encode(_) => "cms-encode",
            Self::ContentType { .. } => "cms-content-type",
            Self::Version { .. } => "cms-version",
            Self::ContentMissing => "cms-content-missing",
            Self::ContentPresent => "cms-content-present",
            Self::SignerCount { .. } => "cms-signer-count",
            Self::DigestAlgorithm { .. } => "cms-digest-algorithm",
            Self::DigestForSignature { .. } => "cms-digest-for-signature",
            Self::AttributeMissing { .. } => "cms-attribute-missing",
            Self::AttributeMalformed { .. } => "cms-attribute-malformed",
            Self::ContentTypeAttribute => "cms-content-type-attribute",
            Self::MessageDigest => "cms-message-digest",
            Self::SignerCertificateMissing => "cms-signer-certificate-missing",
            Self::SigningCertificate => "cms-signing-certificate",
            Self::Signature(_) => "cms-signature",
            Self::RecipientCount { .. } => "cms-recipient-count",
            Self::NotForUs => "cms-not-for-us",
            Self::KeyManagementAlgorithm { .. } => "cms-key-management-algorithm",
            Self::RecipientEntry => "cms-recipient-entry",
            Self::KeyUnwrap => "cms-key-unwrap",
            Self::ContentEncryptionAlgorithm { .. } => "cms-content-encryption-algorithm",
            Self::GcmParameters => "cms-gcm-parameters",
            Self::AuthenticatedAttributes => "cms-authenticated-attributes",
            Self::Authentication => "cms-authentication",
            Self::Key(_) => "cms-key",
            Self::Library { .. } => "cms-library",
            Self::Time => "cms-time",
        }
    }

    pub(super) fn from_decode(error: der::Error) -> Self {
        match error.kind() {
            ErrorKind::IndefiniteLength => Self::IndefiniteLength,
            ErrorKind::TrailingData { .. } => Self::TrailingData,
            _ => Self::Malformed(error),
        }
    }
}
