//! How a message is protected, and whether that holds.

use const_oid::ObjectIdentifier;
use der::{Decode, Encode};
use x509_cert::Certificate;

use super::failure::FailureInfo;
use super::mac::{ID_PBM, ID_PBMAC1, Mac, MacError};
use super::message::Message;
use crate::key::{self, VerifyError};

/// Protection of a message.
#[derive(Clone, Debug)]
pub enum Protection {
    /// By a secret that sender and recipient share.
    Secret(SecretProtection),
    /// By a signature with the key of the first certificate beside it.
    Signature,
}

/// The part of a message protected by a secret that is to be verified.
#[derive(Clone, Debug)]
pub struct SecretProtection {
    mac: Mac,
    protected: Vec<u8>,
    tag: Vec<u8>,
}

impl SecretProtection {
    /// Whether it was made with `secret`. Derives a key, which takes some milliseconds.
    #[must_use]
    pub fn verify(&self, secret: &[u8]) -> bool {
        self.mac.verify(secret, &self.protected, &self.tag)
    }

    #[must_use]
    pub const fn mac(&self) -> &Mac {
        &self.mac
    }
}

/// Why the protection of a message does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ProtectionError {
    #[error("the CMP message is not protected")]
    Missing,
    #[error("the CMP message's protection")]
    Secret(#[from] MacError),
    #[error("the certificate of the CMP message's signer is not beside it")]
    NoCertificate,
    #[error("algorithm {0} is not accepted in protection by a signature")]
    Algorithm(ObjectIdentifier),
    #[error("the CMP message's signature does not match")]
    Mismatch,
}

impl ProtectionError {
    /// Code of the answer to the sender.
    #[must_use]
    pub const fn failure(&self) -> FailureInfo {
        match self {
            Self::Secret(MacError::Malformed) => FailureInfo::BadDataFormat,
            Self::Secret(_) | Self::Algorithm(_) => FailureInfo::BadAlg,
            Self::Missing | Self::NoCertificate | Self::Mismatch => FailureInfo::BadMessageCheck,
        }
    }
}

impl Message<'_> {
    /// The protection of the message; whether that holds is not said yet.
    ///
    /// # Errors
    /// [`ProtectionError::Missing`] or [`ProtectionError::Secret`].
    pub fn protection(&self) -> Result<Protection, ProtectionError> {
        let algorithm = self.header.protection_algorithm.as_ref();
        let tag = self.protection.as_ref().and_then(|bits| bits.as_bytes());
        let (Some(algorithm), Some(tag)) = (algorithm, tag) else {
            return Err(ProtectionError::Missing);
        };
        Ok(match Mac::of(algorithm)? {
            Some(mac) => Protection::Secret(SecretProtection {
                mac,
                protected: self.protected.clone(),
                tag: tag.to_vec(),
            }),
            None => Protection::Signature,
        })
    }

    /// Verifies the signature with the key of the first certificate beside the message. Whose certificate that is, and
    /// whether it is one to trust, is not said by it.
    ///
    /// # Errors
    /// [`ProtectionError`], one variant per reason.
    pub fn verify_signature(&self) -> Result<(), ProtectionError> {
        let algorithm = self.header.protection_algorithm.as_ref();
        let signature = self.protection.as_ref().and_then(|bits| bits.as_bytes());
        let (Some(algorithm), Some(signature)) = (algorithm, signature) else {
            return Err(ProtectionError::Missing);
        };
        if [ID_PBM, ID_PBMAC1].contains(&algorithm.oid) {
            return Err(ProtectionError::Algorithm(algorithm.oid));
        }
        let signer = self.signer().ok_or(ProtectionError::NoCertificate)?;
        let signer = Certificate::from_der(signer).map_err(|_| ProtectionError::NoCertificate)?;
        let spki = signer.tbs_certificate.subject_public_key_info.to_der();
        let spki = spki.map_err(|_| ProtectionError::NoCertificate)?;
        key::verify(&spki, algorithm, &self.protected, signature).map_err(|error| match error {
            VerifyError::Algorithm { oid, .. } => ProtectionError::Algorithm(oid),
            VerifyError::Key(_) | VerifyError::Mismatch => ProtectionError::Mismatch,
        })
    }
}
