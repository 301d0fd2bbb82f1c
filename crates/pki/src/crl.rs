//! Certificate revocation lists: issuing and verified reading (RFC 5280, section 5).
//!
//! Complete lists, lists for a part of the certificates (by distribution point, by reason, for
//! authorities or end entities only) and delta lists are processed; indirect lists are refused.

mod error;
pub(crate) mod list;
pub(crate) mod revocation;
mod scope;
mod verify;

use const_oid::db::rfc5280::{ID_CE_DELTA_CRL_INDICATOR, ID_CE_FRESHEST_CRL};
use const_oid::db::rfc5912::{ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_CRL_NUMBER, ID_CE_CRL_REASONS};
use der::Encode;
use der::asn1::{BitString, Uint};
use time::OffsetDateTime;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, BaseCrlNumber, CrlNumber, CrlReason};
use x509_cert::serial_number::SerialNumber;

pub use self::error::{CrlError, MAX_CRL_LEN};
pub use self::list::{RevokedEntry, VerifiedCrl};
pub use self::revocation::{RevocationReason, UnknownReason};
pub use self::scope::CrlScope;
use self::scope::issuing_distribution_point;
pub(crate) use self::scope::{Points, distribution_points};
pub(crate) use self::verify::{is_negative, verify_parsed};
pub use self::verify::{parse, verify};
use crate::extension::{extension, to_x509_time};
use crate::issue::{CertificateAuthority, IssueError, distribution_point};

/// What a CRL is to say.
#[derive(Clone, Copy, Debug)]
pub struct CrlRequest<'a> {
    /// Grows from one CRL of a scope to the next; complete and delta CRLs share the sequence (RFC 5280, section 5.2.3).
    pub number: u64,
    /// Of a delta CRL, those revoked since its base.
    pub revoked: &'a [RevokedEntry],
    pub this_update: OffsetDateTime,
    pub next_update: OffsetDateTime,
    /// Addresses of its distribution point: it speaks for the certificates alone that name one of them. Empty: for all.
    pub points: &'a [String],
    pub form: CrlForm<'a>,
}

/// Tells whether a CRL is complete by itself.
#[derive(Clone, Copy, Debug)]
pub enum CrlForm<'a> {
    Complete {
        /// Where its delta CRL is published (RFC 5280, section 5.2.6).
        freshest_url: Option<&'a str>,
    },
    /// What changed since a complete CRL (RFC 5280, section 5.2.4).
    Delta {
        /// Number of that complete CRL.
        base: u64,
        /// Serial numbers that were on hold there and are not any more.
        released: &'a [Vec<u8>],
    },
}

impl CertificateAuthority {
    /// Issues a complete CRL in DER that speaks for all certificates. `number` must grow from one CRL to the next.
    ///
    /// # Errors
    /// As [`Self::sign_crl`].
    pub fn crl(
        &self,
        number: u64,
        revoked: &[RevokedEntry],
        this_update: OffsetDateTime,
        next_update: OffsetDateTime,
    ) -> Result<Vec<u8>, IssueError> {
        self.sign_crl(&CrlRequest {
            number,
            revoked,
            this_update,
            next_update,
            points: &[],
            form: CrlForm::Complete { freshest_url: None },
        })
    }

    /// Issues a CRL in DER.
    ///
    /// # Errors
    /// [`IssueError::ValidityInverted`] if `next_update` is not after `this_update`; [`IssueError::DeltaBeforeBase`];
    /// [`IssueError::Name`] for an address that is none;
    /// [`IssueError::Serial`], [`IssueError::Sign`] or [`IssueError::Encode`].
    pub fn sign_crl(&self, request: &CrlRequest<'_>) -> Result<Vec<u8>, IssueError> {
        if request.next_update <= request.this_update {
            return Err(IssueError::ValidityInverted);
        }
        let mut entries = request
            .revoked
            .iter()
            .map(entry_to_der)
            .collect::<Result<Vec<_>, _>>()?;
        if let CrlForm::Delta { base, released } = request.form {
            if base > request.number {
                return Err(IssueError::DeltaBeforeBase);
            }
            for serial in released {
                entries.push(release_to_der(serial, request.this_update)?);
            }
        }
        let tbs_cert_list = TbsCertList {
            version: x509_cert::Version::V2,
            signature: self.key().signature_algorithm(),
            issuer: self.certificate().tbs_certificate.subject.clone(),
            this_update: to_x509_time(request.this_update)?,
            next_update: Some(to_x509_time(request.next_update)?),
            // RFC 5280, section 5.1.2.6: absent when nothing is revoked.
            revoked_certificates: (!entries.is_empty()).then_some(entries),
            crl_extensions: Some(self.crl_extensions(request)?),
        };
        let signature = self
            .key()
            .sign(&tbs_cert_list.to_der()?)
            .map_err(IssueError::Sign)?;
        let crl = CertificateList {
            signature_algorithm: tbs_cert_list.signature.clone(),
            tbs_cert_list,
            signature: BitString::from_bytes(&signature)?,
        };
        Ok(crl.to_der()?)
    }

    fn crl_extensions(&self, request: &CrlRequest<'_>) -> Result<Vec<Extension>, IssueError> {
        let authority = AuthorityKeyIdentifier {
            key_identifier: Some(self.key_id()?.0),
            ..AuthorityKeyIdentifier::default()
        };
        let number = CrlNumber(Uint::new(&request.number.to_be_bytes())?);
        let mut list = vec![
            extension(ID_CE_AUTHORITY_KEY_IDENTIFIER, false, &authority)?,
            extension(ID_CE_CRL_NUMBER, false, &number)?,
        ];
        if !request.points.is_empty() {
            list.push(issuing_distribution_point(request.points)?);
        }
        match request.form {
            CrlForm::Complete { freshest_url: None } => {}
            CrlForm::Complete {
                freshest_url: Some(url),
            } => list.push(distribution_point(ID_CE_FRESHEST_CRL, url)?),
            CrlForm::Delta { base, .. } => {
                let base = BaseCrlNumber(Uint::new(&base.to_be_bytes())?);
                list.push(extension(ID_CE_DELTA_CRL_INDICATOR, true, &base)?);
            }
        }
        Ok(list)
    }
}

fn entry_to_der(entry: &RevokedEntry) -> Result<RevokedCert, IssueError> {
    let reason = entry.revocation.reason;
    // RFC 5280, section 5.3.1: the reason "unspecified" SHOULD be expressed by absence.
    let extensions = (reason != RevocationReason::Unspecified)
        .then(|| extension(ID_CE_CRL_REASONS, false, &reason.to_code()).map(|e| vec![e]))
        .transpose()?;
    Ok(RevokedCert {
        serial_number: SerialNumber::new(&entry.serial).map_err(|_| IssueError::Serial)?,
        revocation_date: to_x509_time(entry.revocation.at)?,
        crl_entry_extensions: extensions,
    })
}

fn release_to_der(serial: &[u8], at: OffsetDateTime) -> Result<RevokedCert, IssueError> {
    let reason = extension(ID_CE_CRL_REASONS, false, &CrlReason::RemoveFromCRL)?;
    Ok(RevokedCert {
        serial_number: SerialNumber::new(serial).map_err(|_| IssueError::Serial)?,
        revocation_date: to_x509_time(at)?,
        crl_entry_extensions: Some(vec![reason]),
    })
}
