//! The authorities of this host's registry as texts, for those who set devices, gateways and servers up.

use pki::profile::CaKind;
use registry::{AuthorityRecord, Registry};
use time::OffsetDateTime;

use crate::failure::{OrHint as _, Outcome};

/// The generations of a kind whose certificates are in use.
fn certificates_of_kind(registry: &Registry, kind: CaKind) -> Vec<AuthorityRecord> {
    let records = registry.authority_records(OffsetDateTime::now_utc());
    let of_kind = records.into_iter();
    of_kind
        .filter(|record| record.is_needed && record.id.kind() == kind)
        .collect()
}

/// The issuing authorities, in PEM.
pub fn authorities_pem(registry: &Registry) -> Outcome<String> {
    let authorities = registry.authorities();
    let pem = authorities
        .iter()
        .skip(1)
        .map(pki::cert::to_pem)
        .collect::<Result<String, _>>();
    pem.or_hint("cannot write the authorities", "check the folder pki")
}

/// All generations of an issuing authority, in PEM.
pub(crate) fn authorities_of_kind_pem(registry: &Registry, kind: CaKind) -> Outcome<String> {
    let of_kind = certificates_of_kind(registry, kind);
    let pem = of_kind
        .iter()
        .map(|one| pki::cert::to_pem(&one.certificate));
    let pem = pem.collect::<Result<String, _>>();
    pem.or_hint("cannot write an authority", "check the folder pki")
}

/// The authority that issued a certificate, in PEM.
pub(crate) fn issuer_pem(registry: &Registry, issued: &registry::IssuedRecord) -> Outcome<String> {
    const HINT: &str = "check the folder pki";
    let id = issued.issuer().or_hint("an authority", HINT)?;
    let records = registry.authority_records(OffsetDateTime::now_utc());
    let issuer = records.iter().find(|record| record.id == id);
    let pem = issuer.map(|record| pki::cert::to_pem(&record.certificate));
    let pem = pem.transpose().or_hint("cannot write an authority", HINT)?;
    Ok(pem.unwrap_or_default())
}
