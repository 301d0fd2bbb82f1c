//! Reading CRLs: form, signature, dates, scope.

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::{ID_CE_DELTA_CRL_INDICATOR, ID_CE_ISSUING_DISTRIBUTION_POINT};
use const_oid::db::rfc5912::{
    ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_CRL_NUMBER, ID_CE_CRL_REASONS, ID_CE_KEY_USAGE,
    ID_CE_SUBJECT_KEY_IDENTIFIER,
};
use der::{Decode as _, Encode as _};
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::crl::{CertificateList, RevokedCert};
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BaseCrlNumber, CrlNumber, CrlReason, KeyUsage, SubjectKeyIdentifier,
};

use super::error::{CrlError, MAX_CRL_LEN};
use super::list::{CrlWindow, RevokedEntry, VerifiedCrl};
use super::revocation::{Revocation, RevocationReason};
use super::scope::CrlScope;
use crate::extension::{decoded, find, from_x509_time};
use crate::issuer_id::IssuerId;
use crate::key;
use crate::name::canonical::CanonicalName;
use crate::name::shown;

/// Extensions that may be critical in a CRL we read. Any other may change what the list means: taken for
/// one without it, it would hide revocations. RFC 5280 forbids to mark number and key identifier so.
const KNOWN_CRITICAL: [ObjectIdentifier; 2] =
    [ID_CE_ISSUING_DISTRIBUTION_POINT, ID_CE_DELTA_CRL_INDICATOR];

/// Parses a CRL without checking anything but its form.
///
/// # Errors
/// [`CrlError::TooLong`] or [`CrlError::Malformed`].
pub fn parse(der: &[u8]) -> Result<CertificateList, CrlError> {
    if der.len() > MAX_CRL_LEN {
        return Err(CrlError::TooLong);
    }
    let crl = CertificateList::from_der(der).map_err(|_| CrlError::Malformed {
        reason: "not a DER CertificateList",
    })?;
    if crl.tbs_cert_list.version != x509_cert::Version::V2 {
        return Err(CrlError::Malformed {
            reason: "not version 2",
        });
    }
    if crl.tbs_cert_list.signature != crl.signature_algorithm {
        return Err(CrlError::Malformed {
            reason: "two different signature algorithms",
        });
    }
    Ok(crl)
}

/// Parses a complete CRL and checks that `issuer` signed it and that it is current at `now`.
///
/// The caller has established trust in `issuer`. [`crate::path::TrustStore::accept_crl`] does so itself,
/// and takes partial and delta CRLs too.
///
/// # Errors
/// [`CrlError`], one variant per reason.
pub fn verify(
    der: &[u8],
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Result<VerifiedCrl, CrlError> {
    let verified = verify_parsed(&parse(der)?, issuer, now)?;
    if verified.base.is_some() {
        return Err(CrlError::UnsupportedCritical(ID_CE_DELTA_CRL_INDICATOR));
    }
    if !verified.scope.is_complete() {
        return Err(CrlError::UnsupportedCritical(
            ID_CE_ISSUING_DISTRIBUTION_POINT,
        ));
    }
    Ok(verified)
}

pub(crate) fn verify_parsed(
    crl: &CertificateList,
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Result<VerifiedCrl, CrlError> {
    let tbs = &crl.tbs_cert_list;
    let name = CanonicalName::of(&tbs.issuer);
    if name != CanonicalName::of(&issuer.tbs_certificate.subject) {
        return Err(CrlError::UnknownIssuer {
            issuer: shown(&tbs.issuer),
        });
    }
    check_signature(crl, issuer)?;
    let malformed = |reason| CrlError::Malformed { reason };
    let extensions = tbs.crl_extensions.as_ref();
    let unknown =
        |e: &&x509_cert::ext::Extension| e.critical && !KNOWN_CRITICAL.contains(&e.extn_id);
    if let Some(unknown) = extensions.into_iter().flatten().find(unknown) {
        return Err(CrlError::UnsupportedCritical(unknown.extn_id));
    }
    let value = |oid| find(extensions, oid).map_err(|_| malformed("an extension occurs twice"));
    let number = value(ID_CE_CRL_NUMBER)?
        .and_then(|der| CrlNumber::from_der(der).ok())
        .ok_or(malformed("no CRL number"))?;
    let scope = match value(ID_CE_ISSUING_DISTRIBUTION_POINT)? {
        Some(der) => CrlScope::of(der, &name)?,
        None => CrlScope::complete(),
    };
    let base = value(ID_CE_DELTA_CRL_INDICATOR)?
        .map(BaseCrlNumber::from_der)
        .transpose()
        .map_err(|_| malformed("unreadable base number"))?
        .map(|base| base.0.as_bytes().to_vec());
    let this_update = from_x509_time(tbs.this_update);
    // RFC 5280, section 5.1.2.5: nextUpdate MUST be there.
    let next_update = from_x509_time(tbs.next_update.ok_or(malformed("no next update"))?);
    if this_update > now {
        return Err(CrlError::FromTheFuture { this_update });
    }
    if next_update < now {
        return Err(CrlError::Stale { next_update });
    }
    let (mut entries, mut released) = (Vec::new(), Vec::new());
    for entry in tbs.revoked_certificates.iter().flatten() {
        // Certificates with such a number are refused, and without its sign it is another's number.
        if is_negative(entry.serial_number.as_bytes()) {
            continue;
        }
        match entry_from_der(entry)? {
            Change::Revoke(entry) => entries.push(entry),
            // Only a delta CRL may say so (section 5.3.1).
            Change::Release(serial) if base.is_some() => released.push(serial),
            Change::Release(_) => return Err(malformed("removeFromCRL in a complete CRL")),
        }
    }
    Ok(VerifiedCrl {
        issuer: IssuerId::of(&tbs.issuer),
        window: CrlWindow {
            number: number.0.as_bytes().to_vec(),
            this_update,
            next_update,
        },
        entries,
        scope,
        base,
        released,
        signer: None,
    })
}

fn check_signature(crl: &CertificateList, issuer: &Certificate) -> Result<(), CrlError> {
    let malformed = |_| CrlError::Malformed {
        reason: "unreadable extension",
    };
    let usage: Option<KeyUsage> = decoded(issuer, ID_CE_KEY_USAGE).map_err(malformed)?;
    if !usage.is_none_or(|u| u.crl_sign()) {
        return Err(CrlError::NotACrlSigner);
    }
    let own: Option<SubjectKeyIdentifier> =
        decoded(issuer, ID_CE_SUBJECT_KEY_IDENTIFIER).map_err(malformed)?;
    let named = find(
        crl.tbs_cert_list.crl_extensions.as_ref(),
        ID_CE_AUTHORITY_KEY_IDENTIFIER,
    )
    .map_err(malformed)?
    .map(AuthorityKeyIdentifier::from_der)
    .transpose()
    .map_err(malformed)?
    .and_then(|aki| aki.key_identifier);
    if let (Some(own), Some(named)) = (own, named)
        && own.0 != named
    {
        // Same name, other key: an authority that was renewed.
        return Err(CrlError::UnknownIssuer {
            issuer: shown(&crl.tbs_cert_list.issuer),
        });
    }
    let encoded = |_| CrlError::Malformed {
        reason: "cannot be encoded again",
    };
    let message = crl.tbs_cert_list.to_der().map_err(encoded)?;
    let spki = issuer
        .tbs_certificate
        .subject_public_key_info
        .to_der()
        .map_err(encoded)?;
    let signature = crl.signature.as_bytes().ok_or(CrlError::Malformed {
        reason: "signature is not whole bytes",
    })?;
    key::verify(&spki, &crl.signature_algorithm, &message, signature).map_err(CrlError::Signature)
}

/// Whether a number, as it stands in its encoding, is below zero.
pub(crate) fn is_negative(serial: &[u8]) -> bool {
    serial.first().is_some_and(|first| first & 0x80 != 0)
}

enum Change {
    Revoke(RevokedEntry),
    Release(Vec<u8>),
}

fn entry_from_der(entry: &RevokedCert) -> Result<Change, CrlError> {
    let extensions = entry.crl_entry_extensions.as_ref();
    // The certificate-issuer extension of indirect CRLs is critical and lands here.
    if let Some(unknown) = extensions
        .into_iter()
        .flatten()
        .find(|e| e.critical && e.extn_id != ID_CE_CRL_REASONS)
    {
        return Err(CrlError::UnsupportedCritical(unknown.extn_id));
    }
    let malformed = CrlError::Malformed {
        reason: "unreadable reason code",
    };
    let code = match find(extensions, ID_CE_CRL_REASONS) {
        Ok(None) => None,
        Ok(Some(der)) => Some(CrlReason::from_der(der).map_err(|_| malformed)?),
        Err(_) => return Err(malformed),
    };
    let serial = entry.serial_number.as_bytes().to_vec();
    let reason = match code.map(RevocationReason::from_code) {
        None => RevocationReason::Unspecified,
        Some(Some(reason)) => reason,
        Some(None) => return Ok(Change::Release(serial)),
    };
    Ok(Change::Revoke(RevokedEntry {
        serial,
        revocation: Revocation {
            at: from_x509_time(entry.revocation_date),
            reason,
        },
    }))
}
