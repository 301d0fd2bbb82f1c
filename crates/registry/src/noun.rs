//! What holders of certificates are called.

use pki::profile::{CaKind, Profile};

/// What holders of an authority's certificates are called in events; a server has a [noun](noun_of) of its own.
pub(crate) const fn noun(authority: CaKind) -> &'static str {
    match authority {
        CaKind::Users => "person",
        CaKind::Devices => "device",
        CaKind::Services => "gateway",
    }
}

/// What holders of certificates of this profile are called in events.
pub(crate) const fn noun_of(profile: Profile) -> &'static str {
    match profile {
        Profile::NetworkServer
        | Profile::Named {
            authority: CaKind::Services,
            ..
        } => "server",
        Profile::Named { authority, .. } => noun(authority),
        Profile::User { .. } => noun(CaKind::Users),
        Profile::Device | Profile::VpnDevice => noun(CaKind::Devices),
        _ => noun(CaKind::Services),
    }
}

/// What holders of an authority's certificates are called where it is not known of which kind they are.
pub(crate) const fn called(authority: CaKind) -> &'static str {
    match authority {
        CaKind::Services => "gateway or server",
        other => noun(other),
    }
}
