//! The profiles that are built in.

use std::sync::{Arc, LazyLock};

use super::definition::{Definition, SharedDefinition};
use super::kind::Profile;

/// Their files.
pub(super) const FILES: [&str; 23] = [
    include_str!("../../profiles/root.toml"),
    include_str!("../../profiles/issuing-authority.toml"),
    include_str!("../../profiles/user.toml"),
    include_str!("../../profiles/administrator.toml"),
    include_str!("../../profiles/user-centre-key.toml"),
    include_str!("../../profiles/administrator-centre-key.toml"),
    include_str!("../../profiles/smart-card-logon.toml"),
    include_str!("../../profiles/mail-signing.toml"),
    include_str!("../../profiles/mail-encryption.toml"),
    include_str!("../../profiles/document-signing.toml"),
    include_str!("../../profiles/device.toml"),
    include_str!("../../profiles/vpn-device.toml"),
    include_str!("../../profiles/server.toml"),
    include_str!("../../profiles/network-server.toml"),
    include_str!("../../profiles/gateway.toml"),
    include_str!("../../profiles/time-stamping.toml"),
    include_str!("../../profiles/service-signer.toml"),
    include_str!("../../profiles/trust-bundle-signer.toml"),
    include_str!("../../profiles/service-recipient.toml"),
    include_str!("../../profiles/ocsp-signer.toml"),
    include_str!("../../profiles/cmp-signer.toml"),
    include_str!("../../profiles/scep-authority.toml"),
    include_str!("../../profiles/ceremony-signer.toml"),
];

static READ: LazyLock<Vec<(SharedDefinition, &'static str)>> = LazyLock::new(|| {
    let read = |text| Some((Arc::new(Definition::read(text).ok()?), text));
    // A test reads each of them, so none is left out.
    FILES.into_iter().filter_map(read).collect()
});

/// The profile of this name that is built in.
pub(super) fn by_name(name: &str) -> Option<&'static SharedDefinition> {
    let mut known = READ.iter();
    known
        .find(|(one, _)| one.name() == name)
        .map(|(one, _)| one)
}

/// Profiles that are built in, with their files.
pub fn built_in() -> impl Iterator<Item = (&'static SharedDefinition, &'static str)> {
    READ.iter().map(|(one, text)| (one, *text))
}

impl Profile {
    /// Returns its built-in definition; `None` of a profile that only a site knows.
    #[must_use]
    pub fn definition(self) -> Option<&'static SharedDefinition> {
        match self {
            Self::IssuingCa(_) => by_name("issuing authority"),
            Self::OcspSigner(_) => by_name("OCSP signer"),
            other => by_name(&other.to_string()),
        }
    }
}
