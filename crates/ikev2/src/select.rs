//! Choosing algorithms: what is offered, what is accepted, and where they differ (RFC 7296 §2.7).

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use offload::{Encryption, Integrity, Mode, Suite};

use crate::crypto::exchange::Group;
use crate::crypto::prf::Prf;
use crate::wire::{
    EncrId, IntegId, KeyExchangeId, PrfId, Proposal, Protocol, Transform, TransformType,
};

/// Algorithms of one proposal for an IKE SA; within each list the first is preferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeProposal {
    /// Encryption; either all combined modes or none.
    pub encryption: Vec<Encryption>,
    /// Integrity; empty with combined modes.
    pub integrity: Vec<Integrity>,
    /// Pseudorandom functions.
    pub prf: Vec<Prf>,
    /// First key exchange.
    pub groups: Vec<Group>,
    /// Additional key exchanges (RFC 9370), in order: alternatives for each.
    pub additional: Vec<Vec<Group>>,
}

/// Algorithms of one proposal for a Child SA with ESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspProposal {
    /// Encryption; either all combined modes or none.
    pub encryption: Vec<Encryption>,
    /// Integrity; empty with combined modes.
    pub integrity: Vec<Integrity>,
    /// Key exchanges when the Child SA is made or replaced later (perfect forward secrecy).
    pub groups: Vec<Group>,
    /// Further key exchanges (RFC 9370) after the one with `groups`, in order: alternatives for each.
    pub additional: Vec<Vec<Group>>,
    /// Whether it may also be replaced without a key exchange, or without the further ones. A peer that
    /// did not plan for one refuses the first rekeying otherwise, an hour after all seemed well.
    pub without_group: bool,
    /// Sequence numbers: `true` for 64 bits, in order of preference.
    pub extended_sequence: Vec<bool>,
}

/// The algorithms of an IKE SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeSuite {
    /// Encryption.
    pub encryption: Encryption,
    /// Integrity, unless encryption authenticates.
    pub integrity: Option<Integrity>,
    /// Pseudorandom function.
    pub prf: Prf,
    /// First key exchange.
    pub group: Group,
    /// Additional key exchanges.
    pub additional: Vec<Group>,
}

/// The algorithms of a Child SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspSuite {
    /// Encryption and integrity.
    pub suite: Suite,
    /// Key exchange of its own.
    pub group: Option<Group>,
    /// Further key exchanges.
    pub additional: Vec<Group>,
    /// 64-bit sequence numbers.
    pub extended_sequence: bool,
}

/// Two sides that have no algorithms in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no proposal in common: {first_difference}; theirs {theirs}; ours {ours}")]
pub struct NegotiationFailure {
    /// The peer's proposals.
    pub theirs: String,
    /// Ours.
    pub ours: String,
    /// First difference of the pair that comes closest.
    pub first_difference: String,
}

fn encryption_to_wire(encryption: Encryption) -> Transform {
    let id = match encryption.mode() {
        Mode::Null => EncrId::NULL,
        Mode::AesCbc => EncrId::AES_CBC,
        Mode::AesCtr => EncrId::AES_CTR,
        Mode::AesCcm => match encryption.icv_len() {
            8 => EncrId::AES_CCM_8,
            12 => EncrId::AES_CCM_12,
            _ => EncrId::AES_CCM_16,
        },
        Mode::AesGcm => EncrId::AES_GCM_16,
        Mode::AesGmac => EncrId::NULL_AUTH_AES_GMAC,
        Mode::ChaCha20Poly1305 => EncrId::CHACHA20_POLY1305,
        #[cfg(feature = "legacy-algorithms")]
        Mode::LegacyCbc if encryption == Encryption::DesCbc => EncrId::DES,
        #[cfg(feature = "legacy-algorithms")]
        Mode::LegacyCbc => EncrId::DES_3,
    };
    // Ciphers with one size of key have no attribute for it (RFC 7296 §3.3.5).
    let bits = match encryption.mode() {
        Mode::Null | Mode::ChaCha20Poly1305 => None,
        #[cfg(feature = "legacy-algorithms")]
        Mode::LegacyCbc => None,
        _ => u16::try_from(encryption.cipher_key_len().saturating_mul(8)).ok(),
    };
    Transform {
        key_bits: bits,
        ..Transform::new(TransformType::ENCR, id.0)
    }
}

fn encryption_from_wire(transform: &Transform) -> Option<Encryption> {
    Encryption::ALL
        .iter()
        .copied()
        .filter(|encryption| !is_legacy(*encryption))
        .find(|encryption| encryption_to_wire(*encryption) == *transform)
}

/// Whether an algorithm is there for measurements only; no peer may choose it.
#[cfg(feature = "legacy-algorithms")]
const fn is_legacy(encryption: Encryption) -> bool {
    matches!(encryption.mode(), Mode::LegacyCbc)
}

#[cfg(not(feature = "legacy-algorithms"))]
const fn is_legacy(_: Encryption) -> bool {
    false
}

const fn integrity_id(integrity: Integrity) -> IntegId {
    match integrity {
        Integrity::HmacSha1_96 => IntegId::HMAC_SHA1_96,
        Integrity::HmacSha256_128 => IntegId::HMAC_SHA2_256_128,
        Integrity::HmacSha384_192 => IntegId::HMAC_SHA2_384_192,
        Integrity::HmacSha512_256 => IntegId::HMAC_SHA2_512_256,
        Integrity::AesXcbc96 => IntegId::AES_XCBC_96,
        #[cfg(feature = "legacy-algorithms")]
        Integrity::HmacMd5_96 => IntegId(1),
    }
}

fn integrity_from_id(id: u16) -> Option<Integrity> {
    [
        Integrity::HmacSha1_96,
        Integrity::HmacSha256_128,
        Integrity::HmacSha384_192,
        Integrity::HmacSha512_256,
        Integrity::AesXcbc96,
    ]
    .into_iter()
    .find(|integrity| integrity_id(*integrity).0 == id)
}

const fn prf_id(prf: Prf) -> PrfId {
    match prf {
        Prf::HmacSha1 => PrfId::HMAC_SHA1,
        Prf::HmacSha256 => PrfId::HMAC_SHA2_256,
        Prf::HmacSha384 => PrfId::HMAC_SHA2_384,
        Prf::HmacSha512 => PrfId::HMAC_SHA2_512,
        Prf::Aes128Xcbc => PrfId::AES128_XCBC,
    }
}

pub(crate) fn prf_from_id(id: u16) -> Option<Prf> {
    [
        Prf::HmacSha1,
        Prf::HmacSha256,
        Prf::HmacSha384,
        Prf::HmacSha512,
        Prf::Aes128Xcbc,
    ]
    .into_iter()
    .find(|prf| prf_id(*prf).0 == id)
}

fn additional_kinds() -> impl Iterator<Item = TransformType> {
    (TransformType::ADDKE1.0..=TransformType::ADDKE7.0).map(TransformType)
}

fn group_transforms(kind: TransformType, groups: &[Group]) -> impl Iterator<Item = Transform> {
    groups
        .iter()
        .map(move |group| Transform::new(kind, group.id().0))
}

impl IkeProposal {
    /// As a wire proposal; `spi` is empty in a first exchange.
    pub fn to_wire(&self, number: u8, spi: &[u8]) -> Proposal {
        let mut transforms: Vec<_> = self
            .encryption
            .iter()
            .copied()
            .map(encryption_to_wire)
            .collect();
        transforms.extend(
            self.integrity
                .iter()
                .map(|i| Transform::new(TransformType::INTEG, integrity_id(*i).0)),
        );
        transforms.extend(
            self.prf
                .iter()
                .map(|prf| Transform::new(TransformType::PRF, prf_id(*prf).0)),
        );
        transforms.extend(group_transforms(TransformType::KE, &self.groups));
        for (kind, groups) in additional_kinds().zip(&self.additional) {
            transforms.extend(group_transforms(kind, groups));
        }
        Proposal {
            number,
            protocol: Protocol::IKE,
            spi: spi.to_vec(),
            transforms,
        }
    }
}

impl EspProposal {
    /// As a wire proposal. In IKE_AUTH there is no key exchange for the Child SA, so `with_groups` is
    /// false there.
    pub fn to_wire(&self, number: u8, spi: u32, with_groups: bool) -> Proposal {
        let mut transforms: Vec<_> = self
            .encryption
            .iter()
            .copied()
            .map(encryption_to_wire)
            .collect();
        transforms.extend(
            self.integrity
                .iter()
                .map(|i| Transform::new(TransformType::INTEG, integrity_id(*i).0)),
        );
        if with_groups {
            let further = additional_kinds().zip(self.additional.iter().map(Vec::as_slice));
            let first = (TransformType::KE, self.groups.as_slice());
            for (kind, groups) in std::iter::once(first).chain(further) {
                transforms.extend(group_transforms(kind, groups));
                if self.without_group && !groups.is_empty() {
                    transforms.push(Transform::new(kind, KeyExchangeId::NONE.0));
                }
            }
        }
        transforms.extend(
            self.extended_sequence
                .iter()
                .map(|esn| Transform::new(TransformType::ESN, u16::from(*esn))),
        );
        Proposal {
            number,
            protocol: Protocol::ESP,
            spi: spi.to_be_bytes().to_vec(),
            transforms,
        }
    }
}

/// The transforms of one proposal by type.
fn of_kind(proposal: &Proposal, kind: TransformType) -> Vec<Transform> {
    let of_kind = |transform: &&Transform| transform.kind == kind && !transform.unknown_attribute;
    proposal
        .transforms
        .iter()
        .filter(of_kind)
        .copied()
        .collect()
}

/// Whether leaving a type out means the same as offering its number 0.
const fn may_be_absent(kind: TransformType) -> bool {
    // NONE for integrity and key exchanges, "no extended sequence numbers" for ESN.
    kind.0 >= TransformType::INTEG.0 && kind.0 <= TransformType::ADDKE7.0
}

fn match_kind(
    kind: TransformType,
    ours: &[Transform],
    theirs: &[Transform],
    preferred: Option<KeyExchangeId>,
) -> Option<Option<Transform>> {
    let zero = Transform::new(kind, 0);
    let common = |transform: &&Transform| theirs.contains(transform);
    match (ours.is_empty(), theirs.is_empty()) {
        (true, true) => Some(None),
        (true, false) => (may_be_absent(kind) && theirs.contains(&zero)).then_some(Some(zero)),
        (false, true) => (may_be_absent(kind) && ours.contains(&zero)).then_some(None),
        (false, false) => {
            let wanted = |t: &&Transform| preferred.is_some_and(|id| id.0 == t.id);
            let preferred = (kind == TransformType::KE)
                .then(|| ours.iter().filter(common).find(wanted))
                .flatten();
            preferred
                .or_else(|| ours.iter().find(common))
                .map(|t| Some(*t))
        }
    }
}

/// One transform of each type from the pair, or the types without any.
fn match_pair(
    ours: &Proposal,
    theirs: &Proposal,
    preferred: Option<KeyExchangeId>,
) -> Result<Vec<Transform>, Vec<TransformType>> {
    let all = ours.transforms.iter().chain(&theirs.transforms);
    let kinds: BTreeSet<_> = all.map(|transform| transform.kind).collect();
    let (mut chosen, mut missing) = (Vec::new(), Vec::new());
    for kind in kinds {
        match match_kind(
            kind,
            &of_kind(ours, kind),
            &of_kind(theirs, kind),
            preferred,
        ) {
            Some(transform) => chosen.extend(transform),
            None => missing.push(kind),
        }
    }
    if missing.is_empty() {
        Ok(chosen)
    } else {
        Err(missing)
    }
}

/// Chooses among the peer's proposals by our preference. Of key exchange methods that both allow,
/// `preferred` (the one whose value is already there) comes first: it saves a round trip.
///
/// The answer has the number and SPI of the peer's proposal.
///
/// # Errors
/// [`NegotiationFailure`] if no pair agrees on every type.
pub fn choose(
    ours: &[Proposal],
    theirs: &[Proposal],
    preferred: Option<KeyExchangeId>,
) -> Result<Proposal, NegotiationFailure> {
    let mut closest: Option<(usize, String)> = None;
    for our in ours {
        for their in theirs.iter().filter(|their| their.protocol == our.protocol) {
            match match_pair(our, their, preferred) {
                Ok(transforms) => {
                    return Ok(Proposal {
                        transforms,
                        ..their.clone()
                    });
                }
                Err(missing) => {
                    if closest
                        .as_ref()
                        .is_none_or(|(count, _)| missing.len() < *count)
                    {
                        closest = Some((missing.len(), difference(our, their, &missing)));
                    }
                }
            }
        }
    }
    Err(NegotiationFailure {
        theirs: render_all(theirs),
        ours: render_all(ours),
        first_difference: closest.map_or_else(|| "different protocols".into(), |(_, text)| text),
    })
}

/// Checks an answer to `offered`: one proposal, one transform of each type, all of them offered.
///
/// # Errors
/// [`NegotiationFailure`] if the answer is not a choice from the offer.
pub fn check_choice(
    offered: &[Proposal],
    answer: &[Proposal],
) -> Result<Proposal, NegotiationFailure> {
    let failure = |text: &str| NegotiationFailure {
        theirs: render_all(answer),
        ours: render_all(offered),
        first_difference: text.into(),
    };
    let [chosen] = answer else {
        return Err(failure("the answer is not one proposal"));
    };
    let kinds: BTreeSet<_> = chosen
        .transforms
        .iter()
        .map(|transform| transform.kind)
        .collect();
    if kinds.len() != chosen.transforms.len() {
        return Err(failure("the answer has several transforms of one type"));
    }
    let same_number: Vec<_> = offered
        .iter()
        .filter(|offer| offer.number == chosen.number)
        .cloned()
        .collect();
    choose(&same_number, answer, None)
}

fn difference(ours: &Proposal, theirs: &Proposal, missing: &[TransformType]) -> String {
    let Some(kind) = missing.first().copied() else {
        return String::new();
    };
    let list = |proposal| {
        let names: Vec<_> = of_kind(proposal, kind).iter().map(transform_name).collect();
        if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(" ")
        }
    };
    format!("{kind}: theirs {}, ours {}", list(theirs), list(ours))
}

fn transform_name(transform: &Transform) -> String {
    let id = transform.id;
    let mut name = match transform.kind {
        TransformType::ENCR => EncrId(id).to_string(),
        TransformType::PRF => format!("PRF_{}", PrfId(id)),
        TransformType::INTEG => IntegId(id).to_string(),
        TransformType::ESN if id == 0 => "NO_ESN".into(),
        TransformType::ESN if id == 1 => "ESN".into(),
        TransformType::ESN => format!("ESN({id})"),
        kind if may_be_absent(kind) => KeyExchangeId(id).to_string(),
        kind => format!("{kind}:{id}"),
    };
    if let Some(bits) = transform.key_bits {
        let _ = write!(name, "_{bits}");
    }
    name
}

pub(crate) fn render_all(proposals: &[Proposal]) -> String {
    let render = |proposal: &Proposal| {
        let names: Vec<_> = proposal.transforms.iter().map(transform_name).collect();
        format!("{}:{}", proposal.protocol, names.join("/"))
    };
    proposals.iter().map(render).collect::<Vec<_>>().join(", ")
}

/// Algorithms of proposals for an IKE SA, for people.
pub(crate) fn describe(proposals: &[IkeProposal]) -> String {
    let all: Vec<_> = proposals.iter().map(|one| one.to_wire(1, &[])).collect();
    render_all(&all)
}

fn one(proposal: &Proposal, kind: TransformType) -> Option<&Transform> {
    proposal
        .transforms
        .iter()
        .find(|transform| transform.kind == kind)
}

fn group_of(proposal: &Proposal, kind: TransformType) -> Option<Option<Group>> {
    match one(proposal, kind).map(|transform| KeyExchangeId(transform.id)) {
        None | Some(KeyExchangeId::NONE) => Some(None),
        Some(id) => Group::from_id(id).map(Some),
    }
}

/// The further key exchanges, which need a first one; no method comes twice (RFC 9370 §2.2.2).
fn additional_of(chosen: &Proposal, first: Option<Group>) -> Option<Vec<Group>> {
    let mut seen: Vec<Group> = first.into_iter().collect();
    for kind in additional_kinds() {
        match group_of(chosen, kind)? {
            Some(group) if seen.is_empty() || seen.contains(&group) => return None,
            group => seen.extend(group),
        }
    }
    Some(seen.split_off(usize::from(first.is_some())))
}

fn integrity_of(proposal: &Proposal) -> Option<Option<Integrity>> {
    match one(proposal, TransformType::INTEG).map(|transform| transform.id) {
        None | Some(0) => Some(None),
        Some(id) => integrity_from_id(id).map(Some),
    }
}

impl IkeSuite {
    /// The suite of a chosen proposal; none if it has algorithms that do not go together.
    pub fn from_wire(chosen: &Proposal) -> Option<Self> {
        let encryption = encryption_from_wire(one(chosen, TransformType::ENCR)?)?;
        let integrity = integrity_of(chosen)?;
        // An IKE SA without encryption would give the identities away and RFC 8247 forbids it.
        if !encryption.encrypts() || Suite::new(encryption, integrity).is_err() {
            return None;
        }
        let group = group_of(chosen, TransformType::KE)??;
        Some(Self {
            encryption,
            integrity,
            prf: prf_from_id(one(chosen, TransformType::PRF)?.id)?,
            group,
            additional: additional_of(chosen, Some(group))?,
        })
    }
}

impl EspSuite {
    /// The suite of a chosen proposal; none if it has algorithms that do not go together.
    pub fn from_wire(chosen: &Proposal) -> Option<Self> {
        let encryption = encryption_from_wire(one(chosen, TransformType::ENCR)?)?;
        let group = group_of(chosen, TransformType::KE)?;
        Some(Self {
            suite: Suite::new(encryption, integrity_of(chosen)?).ok()?,
            group,
            additional: additional_of(chosen, group)?,
            extended_sequence: one(chosen, TransformType::ESN).is_some_and(|esn| esn.id == 1),
        })
    }
}

/// Algorithms that protect packets, by their registered names, as explanations have them.
fn packet_name(encryption: Encryption, integrity: Option<Integrity>) -> String {
    let mut name = transform_name(&encryption_to_wire(encryption));
    if let Some(integrity) = integrity {
        let _ = write!(name, "/{}", integrity_id(integrity));
    }
    name
}

/// The algorithms of a Child SA by their registered names.
pub fn suite_name(suite: &Suite) -> String {
    packet_name(suite.encryption(), suite.integrity())
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&packet_name(self.encryption, self.integrity))?;
        write!(f, "/PRF_{}/{}", prf_id(self.prf), self.group.id())?;
        self.additional
            .iter()
            .try_for_each(|group| write!(f, "+{}", group.id()))
    }
}
