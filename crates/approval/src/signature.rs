//! Signed approvals.

use access::{Credential, Principal};
use pki::cert::fingerprint_sha256;
use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{Refusal, Request};

/// A person's signed approval of a request's content. There is none with a bad signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub(crate) uid: String,
    /// Clearance of the approver in the session of the approval.
    pub(crate) clearance: Clearance,
    /// SHA-256 of the approver's certificate, in hexadecimal.
    pub(crate) certificate_sha256: String,
    /// Signature over [`Request::statement`].
    pub(crate) signature: Vec<u8>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
}

impl Approval {
    /// Checks that `who` signed the statement of `request` with the key of the session's certificate.
    ///
    /// `certificate` is that certificate (DER), whose path was validated for the session.
    ///
    /// # Errors
    /// [`Refusal::NoCertificate`], [`Refusal::OtherCertificate`], [`Refusal::Signature`].
    pub fn verify(
        request: &Request,
        who: &Principal,
        certificate: &[u8],
        signature: Vec<u8>,
        at: OffsetDateTime,
    ) -> Result<Self, Refusal> {
        let Credential::Certificate { fingerprint } = who.credential() else {
            return Err(Refusal::NoCertificate(who.uid().to_owned()));
        };
        if *fingerprint != fingerprint_sha256(certificate) {
            return Err(Refusal::OtherCertificate);
        }
        pki::cert::verify_signature(certificate, &request.statement()?, &signature)
            .map_err(Refusal::Signature)?;
        Ok(Self {
            uid: who.uid().to_owned(),
            clearance: who.clearance(),
            certificate_sha256: fingerprint.clone(),
            signature,
            at,
        })
    }

    /// User id of the approver.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The signature over the request's statement, for export.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// SHA-256 of the approver's certificate, in hexadecimal.
    #[must_use]
    pub fn certificate_sha256(&self) -> &str {
        &self.certificate_sha256
    }

    /// Time of the approval.
    #[must_use]
    pub const fn at(&self) -> OffsetDateTime {
        self.at
    }
}
