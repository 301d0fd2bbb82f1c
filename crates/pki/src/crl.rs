//! Certificate revocation lists: issuing and verified reading (RFC 5280, section 5).
//!
//! Complete lists, lists for a part of the certificates (by distribution point, by reason, for
//! authorities or end entities only) and delta lists are processed; indirect lists are refused.

mod error;
pub(crate) mod list;
pub(crate) mod revocation;
mod scope;
mod verify;

use const_oid::db::rfc5912::{ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_CRL_NUMBER, ID_CE_CRL_REASONS};
use der::Encode;
use der::asn1::{BitString, Uint};
use time::OffsetDateTime;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, CrlNumber};
use x509_cert::serial_number::SerialNumber;

pub use self::error::{CrlError, MAX_CRL_LEN};
pub use self::list::{RevokedEntry, VerifiedCrl};
pub use self::revocation::{RevocationReason, UnknownReason};
pub use self::scope::CrlScope;
pub(crate) use self::scope::{Points, distribution_points};
pub(crate) use self::verify::{is_negative, verify_parsed};
pub use self::verify::{parse, verify};
use crate::extension::{extension, to_x509_time};
use crate::issue::{CertificateAuthority, IssueError};

impl CertificateAuthority {
    /// Issues a complete CRL in DER. `number` must grow from one CRL to the next.
    ///
    /// # Errors
    /// [`IssueError::ValidityInverted`] if `next_update` is not after `this_update`;
    /// [`IssueError::Serial`], [`IssueError::Sign`] or [`IssueError::Encode`].
    pub fn crl(
        &self,
        number: u64,
        revoked: &[RevokedEntry],
        this_update: OffsetDateTime,
        next_update: OffsetDateTime,
    ) -> Result<Vec<u8>, IssueError> {
        if next_update <= this_update {
            return Err(IssueError::ValidityInverted);
        }
        let authority = AuthorityKeyIdentifier {
            key_identifier: Some(self.key_id()?.0),
            ..AuthorityKeyIdentifier::default()
        };
        let number = CrlNumber(Uint::new(&number.to_be_bytes())?);
        let entries = revoked
            .iter()
            .map(entry_to_der)
            .collect::<Result<Vec<_>, _>>()?;
        let tbs_cert_list = TbsCertList {
            version: x509_cert::Version::V2,
            signature: self.key().signature_algorithm(),
            issuer: self.certificate().tbs_certificate.subject.clone(),
            this_update: to_x509_time(this_update)?,
            next_update: Some(to_x509_time(next_update)?),
            // RFC 5280, section 5.1.2.6: absent when nothing is revoked.
            revoked_certificates: (!entries.is_empty()).then_some(entries),
            crl_extensions: Some(vec![
                extension(ID_CE_AUTHORITY_KEY_IDENTIFIER, false, &authority)?,
                extension(ID_CE_CRL_NUMBER, false, &number)?,
            ]),
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
