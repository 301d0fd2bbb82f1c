//! Peers that are known by their keys, whoever issued their certificates.

use der::Encode as _;
use ikev2::wire::Identification;
use pki::path::{AuthorityKinds, PathError, PathPolicy, Purpose, check_unchained};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{Accepted, Basis, PeerError};
use crate::identity;
use crate::requirement::Requirement;
use pki::name::shown;

/// Decides about a peer's own certificate (DER) by its key, and whether it speaks for `id`. Nobody vouches for what
/// it says, so the connection names the one identity that its key proves. The public key comes back as DER
/// SubjectPublicKeyInfo.
///
/// # Errors
/// [`PeerError`].
pub(crate) fn verify_key(
    certificate: &[u8],
    id: &Identification,
    requirement: &Requirement,
    now: OffsetDateTime,
) -> Result<(Vec<u8>, Accepted), PeerError> {
    // A key is no better for being known: lengths and uses are those of every other peer's.
    let policy = PathPolicy::new(Purpose::Ike).with_authority(AuthorityKinds::Any);
    let leaf = check_unchained(&CertificateDer::from(certificate), &policy, now)?;
    let subject = shown(&leaf.tbs_certificate.subject);
    // Before the names: without the key, what the certificate says is anybody's word.
    if let Err(unmet) = requirement.check_key(&leaf) {
        return Err(PeerError::Requirement { subject, unmet });
    }
    if !identity::speaks_for(&leaf, id) {
        let claimed = identity::show(id);
        return Err(PeerError::Identity { subject, claimed });
    }
    let validity = &leaf.tbs_certificate.validity;
    let basis = Basis::Key {
        not_before: validity.not_before.to_system_time().into(),
        not_after: validity.not_after.to_system_time().into(),
    };
    let key = leaf.tbs_certificate.subject_public_key_info.to_der();
    let key = key.map_err(|source| PathError::Malformed { source })?;
    let accepted = Accepted {
        subject,
        undetermined: None,
        // Without a record of a path there is nothing to be shown again.
        resumable: false,
        basis,
    };
    Ok((key, accepted))
}
