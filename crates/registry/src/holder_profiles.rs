//! Profiles of holders, and those of the site's own services.

use pki::profile::{CaKind, Profile};

/// The authority among whose holders somebody with such a certificate has a state. Those of the site's own
/// services have none: their holder is this installation, and they are for no client.
pub(crate) const fn has_state(profile: Profile) -> Option<CaKind> {
    match profile {
        Profile::User { .. } => Some(CaKind::Users),
        Profile::Device | Profile::VpnDevice => Some(CaKind::Devices),
        Profile::Gateway | Profile::NetworkServer => Some(CaKind::Services),
        Profile::Named { authority, .. } => Some(authority),
        Profile::Root
        | Profile::IssuingCa(_)
        | Profile::Server
        | Profile::ServiceSigner
        | Profile::TrustBundleSigner
        | Profile::ServiceRecipient
        | Profile::OcspSigner(_)
        | Profile::CmpSigner
        | Profile::ScepAuthority
        | Profile::CeremonySigner => None,
    }
}

/// Names of the profiles of the site's own services.
pub(crate) fn own_profiles() -> Vec<String> {
    let all = Profile::ALL.into_iter();
    all.filter(|one| one.issued_by() == Some(CaKind::Services) && has_state(*one).is_none())
        .map(|one| one.to_string())
        .collect()
}
