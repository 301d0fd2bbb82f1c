//! Reading the common name of a certificate.

use const_oid::db::rfc4519::COMMON_NAME;
use der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use pki::cert::Certificate;
use pki::profile::ServiceRole;

/// The last common name of the subject, which is the most specific one.
pub(crate) fn common_name(certificate: &Certificate) -> Option<String> {
    let subject = &certificate.tbs_certificate.subject;
    let value = subject
        .0
        .iter()
        .flat_map(|rdn| rdn.0.iter())
        .rfind(|attribute| attribute.oid == COMMON_NAME)?;
    let any = &value.value;
    any.decode_as::<Utf8StringRef<'_>>()
        .map(|s| s.as_str().to_owned())
        .or_else(|_| {
            any.decode_as::<PrintableStringRef<'_>>()
                .map(|s| s.as_str().to_owned())
        })
        .or_else(|_| {
            any.decode_as::<Ia5StringRef<'_>>()
                .map(|s| s.as_str().to_owned())
        })
        .or_else(|_| {
            any.decode_as::<TeletexStringRef<'_>>()
                .map(|s| s.as_str().to_owned())
        })
        .ok()
}

/// The role of a service's certificate: by its extended key usage or, of those from before there were any for
/// it, by its subject. Whoever is named for bundles has no other role, whatever else the certificate says.
pub(crate) fn service_role(certificate: &Certificate) -> Option<ServiceRole> {
    let named = match common_name(certificate).as_deref() {
        Some(crate::bundle::SIGNER) => ServiceRole::TrustBundle,
        _ => ServiceRole::Receipts,
    };
    let role = ServiceRole::of(certificate, named)?;
    (named != ServiceRole::TrustBundle || role == named).then_some(role)
}
