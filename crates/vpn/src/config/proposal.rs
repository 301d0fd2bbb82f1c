//! Algorithms as the file names them.

use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use offload::{Encryption, Integrity};
use serde::{Deserialize, Deserializer};

use tunnel::config::{ENCRYPTION, INTEGRITY, named};

/// Alternatives for an IKE SA.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct IkeProposalConfig {
    encryption: Vec<Named<Encryption>>,
    #[serde(default)]
    integrity: Vec<Named<Integrity>>,
    prf: Vec<Named<Prf>>,
    groups: Vec<Named<Group>>,
    /// Further key exchanges after the first, one after the other.
    #[serde(default)]
    additional: Vec<Named<Group>>,
}

/// Alternatives for a Child SA.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EspProposalConfig {
    encryption: Vec<Named<Encryption>>,
    #[serde(default)]
    integrity: Vec<Named<Integrity>>,
    /// Key exchanges when it gets new keys; a peer without them is taken as well.
    #[serde(default)]
    groups: Vec<Named<Group>>,
    /// Further key exchanges after the first, one after the other; a peer without them is taken as well.
    #[serde(default)]
    additional: Vec<Named<Group>>,
    /// 64-bit sequence numbers: only, or never; either unless given.
    extended_sequence: Option<bool>,
}

/// Something that has a name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named<T>(T);

impl<T: Copy> Named<T> {
    fn all(names: &[Self]) -> Vec<T> {
        names.iter().map(|named| named.0).collect()
    }
}

const PRF: &[(&str, Prf)] = &[
    ("hmac-sha2-256", Prf::HmacSha256),
    ("hmac-sha2-384", Prf::HmacSha384),
    ("hmac-sha2-512", Prf::HmacSha512),
    ("hmac-sha1", Prf::HmacSha1),
    ("aes-128-xcbc", Prf::Aes128Xcbc),
];

const GROUP: &[(&str, Group)] = &[
    ("x25519", Group::X25519),
    ("p256", Group::P256),
    ("p384", Group::P384),
    ("modp2048", Group::Modp2048),
    ("modp3072", Group::Modp3072),
    ("modp4096", Group::Modp4096),
    ("ml-kem-768", Group::MlKem768),
];

macro_rules! by_name {
    ($($kind:ty: $table:expr),*) => {$(
        impl<'de> Deserialize<'de> for Named<$kind> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                named(deserializer, $table).map(Self)
            }
        }
    )*};
}

by_name!(Encryption: ENCRYPTION, Integrity: INTEGRITY, Prf: PRF, Group: GROUP);

/// Whether a list of ciphers goes together with one of integrity algorithms.
fn check_suite(encryption: &[Encryption], integrity: &[Integrity]) -> Result<(), &'static str> {
    let combined = encryption
        .iter()
        .filter(|cipher| cipher.is_combined())
        .count();
    match (combined, encryption.len(), integrity.is_empty()) {
        (_, 0, _) => Err("`encryption` is empty"),
        (some, all, _) if some != 0 && some != all => {
            Err("ciphers that authenticate and others need proposals of their own")
        }
        (0, _, true) => Err("these ciphers need `integrity`"),
        (1.., _, false) => Err("these ciphers take no `integrity`"),
        _ => Ok(()),
    }
}

impl IkeProposalConfig {
    pub(crate) fn proposal(&self) -> Result<IkeProposal, &'static str> {
        let (encryption, integrity) = (Named::all(&self.encryption), Named::all(&self.integrity));
        check_suite(&encryption, &integrity)?;
        if !encryption.iter().all(|cipher| cipher.encrypts()) {
            return Err("IKE needs encryption");
        }
        let groups = Named::all(&self.groups);
        if groups.is_empty() || self.prf.is_empty() {
            return Err("`groups` and `prf` must not be empty");
        }
        if groups.iter().any(|group| !group.is_first()) {
            return Err("ml-kem-768 is for `additional` only");
        }
        let additional = Named::all(&self.additional);
        Ok(IkeProposal {
            encryption,
            integrity,
            prf: Named::all(&self.prf),
            groups,
            additional: additional.into_iter().map(|group| vec![group]).collect(),
        })
    }
}

impl EspProposalConfig {
    pub(crate) fn proposal(&self) -> Result<EspProposal, &'static str> {
        let (encryption, integrity) = (Named::all(&self.encryption), Named::all(&self.integrity));
        check_suite(&encryption, &integrity)?;
        let groups = Named::all(&self.groups);
        if groups.iter().any(|group| !group.is_first()) {
            return Err("ml-kem-768 is for `additional` only");
        }
        let additional = Named::all(&self.additional);
        if groups.is_empty() && !additional.is_empty() {
            return Err("`additional` needs `groups`");
        }
        Ok(EspProposal {
            encryption,
            integrity,
            groups,
            additional: additional.into_iter().map(|group| vec![group]).collect(),
            without_group: true,
            extended_sequence: match self.extended_sequence {
                Some(only) => vec![only],
                None => vec![true, false],
            },
        })
    }
}

/// Proposals without `ike`: with a key exchange against quantum computers where the
/// peer knows it, else without.
pub(crate) fn usual_ike() -> Vec<IkeProposal> {
    let with = |additional| IkeProposal {
        encryption: usual_ciphers(),
        integrity: vec![],
        prf: vec![Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512],
        groups: vec![Group::X25519, Group::P256, Group::P384],
        additional,
    };
    vec![with(vec![vec![Group::MlKem768]]), with(vec![])]
}

pub(crate) fn usual_esp() -> Vec<EspProposal> {
    let with = |additional| EspProposal {
        encryption: usual_ciphers(),
        integrity: vec![],
        groups: vec![Group::X25519, Group::P256, Group::P384],
        additional,
        without_group: true,
        extended_sequence: vec![true, false],
    };
    // The keys derive from those of the IKE SA, which has ML-KEM already, so it is for peers that insist: theirs
    // would not be replaced. In a proposal of its own, as older peers pass over one with types that they do not know.
    vec![with(vec![]), with(vec![vec![Group::MlKem768]])]
}

fn usual_ciphers() -> Vec<Encryption> {
    vec![
        Encryption::AesGcm256,
        Encryption::AesGcm128,
        Encryption::ChaCha20Poly1305,
    ]
}
