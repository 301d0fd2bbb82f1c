//! Small helpers around X.509 extensions and times, shared by issuing and validation.

use std::time::Duration;

use aws_lc_rs::digest;
use const_oid::ObjectIdentifier;
use der::asn1::{GeneralizedTime, OctetString, UtcTime};
use der::{Decode, Encode};
use spki::SubjectPublicKeyInfoOwned;
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::time::Time;

/// Wraps `value`, encoded, in an extension.
pub(crate) fn extension<T: Encode>(
    oid: ObjectIdentifier,
    critical: bool,
    value: &T,
) -> der::Result<Extension> {
    raw_extension(oid, critical, value.to_der()?)
}

/// Wraps DER bytes in an extension.
pub(crate) fn raw_extension(
    extn_id: ObjectIdentifier,
    critical: bool,
    der: Vec<u8>,
) -> der::Result<Extension> {
    Ok(Extension {
        extn_id,
        critical,
        extn_value: OctetString::new(der)?,
    })
}

/// The value of the extension `oid`. An extension that occurs twice is an error (RFC 5280, 4.2).
pub(crate) fn find(
    extensions: Option<&Vec<Extension>>,
    oid: ObjectIdentifier,
) -> der::Result<Option<&[u8]>> {
    let mut found = extensions
        .into_iter()
        .flatten()
        .filter(|e| e.extn_id == oid);
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(extension), None) => Ok(Some(extension.extn_value.as_bytes())),
        (Some(_), Some(_)) => Err(der::ErrorKind::Failed.into()),
    }
}

/// The extension `oid` of `certificate`, decoded as `T`.
pub(crate) fn decoded<'a, T: Decode<'a>>(
    certificate: &'a Certificate,
    oid: ObjectIdentifier,
) -> der::Result<Option<T>> {
    find(certificate.tbs_certificate.extensions.as_ref(), oid)?
        .map(T::from_der)
        .transpose()
}

/// Subject key identifier: the first 160 bits of SHA-256 over the key bits (RFC 7093, method 1).
pub(crate) fn key_identifier(
    spki: &SubjectPublicKeyInfoOwned,
) -> der::Result<SubjectKeyIdentifier> {
    let hash = digest::digest(&digest::SHA256, spki.subject_public_key.raw_bytes());
    let short: Vec<u8> = hash.as_ref().iter().copied().take(20).collect();
    Ok(SubjectKeyIdentifier(OctetString::new(short)?))
}

/// Converts to X.509 time: UTCTime to the year 2049, GeneralizedTime after (RFC 5280, 4.1.2.5).
/// Fractions of a second are cut off; times before 1970 are an error.
pub(crate) fn to_x509_time(at: OffsetDateTime) -> der::Result<Time> {
    let secs = u64::try_from(at.unix_timestamp())
        .map_err(|_| der::Error::from(der::ErrorKind::DateTime))?;
    let since_epoch = Duration::from_secs(secs);
    if at.year() <= 2049 {
        Ok(Time::UtcTime(UtcTime::from_unix_duration(since_epoch)?))
    } else {
        Ok(Time::GeneralTime(GeneralizedTime::from_unix_duration(
            since_epoch,
        )?))
    }
}

/// Converts from X.509 time.
pub(crate) fn from_x509_time(at: Time) -> OffsetDateTime {
    // X.509 times end with the year 9999, as those of the `time` crate do.
    i64::try_from(at.to_unix_duration().as_secs())
        .ok()
        .and_then(|secs| OffsetDateTime::from_unix_timestamp(secs).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn times_change_form_in_2050() {
        let last = datetime!(2049-12-31 23:59:59 UTC);
        assert!(matches!(to_x509_time(last).unwrap(), Time::UtcTime(_)));
        let first = datetime!(2050-01-01 0:00 UTC);
        assert!(matches!(to_x509_time(first).unwrap(), Time::GeneralTime(_)));
        for at in [last, first] {
            assert_eq!(from_x509_time(to_x509_time(at).unwrap()), at);
        }
        assert!(to_x509_time(datetime!(1969-12-31 23:59:59 UTC)).is_err());
    }
}
