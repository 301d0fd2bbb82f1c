//! Contents of messages: revocation requests, confirmations.

use aws_lc_rs::digest;
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, ID_CE_CRL_REASONS, SHA_384_WITH_RSA_ENCRYPTION,
    SHA_512_WITH_RSA_ENCRYPTION,
};
use const_oid::db::rfc8410::ID_ED_25519;
use der::{Decode, Encode};
use x509_cert::Certificate;
use x509_cert::ext::Extensions;
use x509_cert::ext::pkix::CrlReason;

use super::message::{BodyKind, Message, MessageError};
use super::wire::{CertStatus, RevDetails};
use crate::crl::RevocationReason;
use crate::crmf::{self, CertificateId};
use crate::csr::CsrError;

/// Largest status that accepts: `accepted`, `grantedWithMods`.
const MOST_ACCEPTED: u8 = 1;

/// A revocation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    pub certificate: CertificateId,
    pub reason: RevocationReason,
}

/// The holder's statement about a certificate just issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfirmation {
    /// The request's number in its transaction.
    pub id: i64,
    pub accepted: bool,
    hash: Vec<u8>,
}

impl<'a> Message<'a> {
    /// The certification request of an `ir`, `cr` or `kur`.
    ///
    /// # Errors
    /// [`CsrError::Malformed`], also for several requests in one message.
    pub fn certificate_request(&self) -> Result<crmf::Request<'a>, CsrError> {
        crmf::Request::parse(self.content)
    }

    /// The PKCS#10 request of a `p10cr`, in DER; not looked at yet.
    #[must_use]
    pub fn pkcs10(&self) -> &'a [u8] {
        self.content
    }

    /// The request of an `rr`: one certificate, by issuer and number (RFC 9483, section 4.2).
    ///
    /// # Errors
    /// [`MessageError::Malformed`], also for several certificates in one message and for reasons that end a hold.
    pub fn revocation(&self) -> Result<Revocation, MessageError> {
        let malformed = |_| MessageError::Malformed;
        let mut all = Vec::<RevDetails>::from_der(self.content).map_err(malformed)?;
        let (Some(details), true) = (all.pop(), all.is_empty()) else {
            return Err(MessageError::Malformed);
        };
        let template = details.certificate;
        let (Some(issuer), Some(serial)) = (template.issuer, template.serial_number) else {
            return Err(MessageError::Malformed);
        };
        Ok(Revocation {
            certificate: CertificateId {
                issuer: issuer.to_der().map_err(malformed)?,
                serial: serial.as_bytes().to_vec(),
            },
            reason: reason(details.entry.as_ref())?,
        })
    }

    /// The statement of a `certConf` about the certificate of its transaction.
    ///
    /// # Errors
    /// [`MessageError::Malformed`], also for several certificates in one message.
    pub fn confirmation(&self) -> Result<CertificateConfirmation, MessageError> {
        let malformed = |_| MessageError::Malformed;
        let mut all = Vec::<CertStatus>::from_der(self.content).map_err(malformed)?;
        let (Some(status), true) = (all.pop(), all.is_empty()) else {
            return Err(MessageError::Malformed);
        };
        let accepted = status
            .status
            .is_none_or(|info| info.status <= MOST_ACCEPTED);
        Ok(CertificateConfirmation {
            id: status.cert_req_id,
            accepted,
            hash: status.cert_hash.into_bytes(),
        })
    }

    /// Whether the body holds a CRMF request.
    #[must_use]
    pub fn has_certificate_request(&self) -> bool {
        use BodyKind::{Certification, Initialization, KeyUpdate};
        matches!(self.kind, Initialization | Certification | KeyUpdate)
    }
}

impl CertificateConfirmation {
    /// Whether it is about this certificate: by its digest, with the hash of the certificate's signature (RFC 9810, section
    /// 5.3.18; RFC 9481 for Ed25519).
    #[must_use]
    pub fn is_about(&self, certificate: &Certificate) -> bool {
        let Ok(der) = certificate.to_der() else {
            return false;
        };
        let algorithm = hash_of(certificate.signature_algorithm.oid);
        let digest = digest::digest(algorithm, &der);
        digest.as_ref() == self.hash.as_slice()
    }
}

fn hash_of(signature: ObjectIdentifier) -> &'static digest::Algorithm {
    match signature {
        ECDSA_WITH_SHA_384 | SHA_384_WITH_RSA_ENCRYPTION => &digest::SHA384,
        ECDSA_WITH_SHA_512 | SHA_512_WITH_RSA_ENCRYPTION | ID_ED_25519 => &digest::SHA512,
        _ => &digest::SHA256,
    }
}

fn reason(entry: Option<&Extensions>) -> Result<RevocationReason, MessageError> {
    let mut extensions = entry.into_iter().flatten();
    let Some(found) = extensions.find(|one| one.extn_id == ID_CE_CRL_REASONS) else {
        return Ok(RevocationReason::Unspecified);
    };
    let code = CrlReason::from_der(found.extn_value.as_bytes());
    let code = code.map_err(|_| MessageError::Malformed)?;
    RevocationReason::from_code(code).ok_or(MessageError::Malformed)
}
