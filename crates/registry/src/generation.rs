//! Generations of the issuing authorities.
//!
//! An authority ends with its certificate, or when its key is stolen. Then another generation of its kind takes over: an
//! authority of its own, with its own key, name, serial numbers, lists and signer of OCSP responses. Relying parties trust
//! the root, so that they need nothing but the chain.
//!
//! ```text
//! key and request ─► certified, installed ─► ready ─► issuing ─► retired
//! ```
//!
//! Of each kind exactly one generation issues (`authorities_issuing` in the database). The others sign what relying parties
//! need to check what they issued: lists, and the certificates of those who sign OCSP responses for them. A generation of
//! which everything has expired signs nothing any more. At most one waits; it may be dropped, and is retired then without
//! having issued anything. There may be any number of generations one after the other, and no number is used twice.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use pki::name::Subject;
use pki::profile::CaKind;

/// Names an issuing authority: a generation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorityId {
    kind: CaKind,
    generation: NonZeroU16,
}

impl AuthorityId {
    /// The authority with which a site begins.
    #[must_use]
    pub const fn first(kind: CaKind) -> Self {
        Self::of(kind, NonZeroU16::MIN)
    }

    #[must_use]
    pub const fn of(kind: CaKind, generation: NonZeroU16) -> Self {
        Self { kind, generation }
    }

    /// A generation by its number, from 1 on; `None` for another number.
    #[must_use]
    pub fn new(kind: CaKind, generation: i64) -> Option<Self> {
        let generation = u16::try_from(generation).ok().and_then(NonZeroU16::new)?;
        Some(Self::of(kind, generation))
    }

    /// The generation after this one; `None` after 65535.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Some(Self::of(self.kind, self.generation.checked_add(1)?))
    }

    #[must_use]
    pub const fn kind(self) -> CaKind {
        self.kind
    }

    #[must_use]
    pub const fn generation(self) -> u16 {
        self.generation.get()
    }

    /// The end of the common name that its certificate has, whatever the organisation.
    fn name_end(self) -> String {
        let kind = self.kind;
        match self.generation() {
            1 => format!(" {kind} CA"),
            later => format!(" {kind} CA G{later}"),
        }
    }

    /// Tells whether a certificate by its common name is this generation's: files may have changed places.
    pub(crate) fn is_name(self, common_name: &str) -> bool {
        common_name.ends_with(&self.name_end())
    }
}

/// The first generation has its kind's name alone, which addresses in certificates of older versions have.
impl fmt::Display for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation() {
            1 => self.kind.fmt(f),
            generation => write!(f, "{}-g{generation}", self.kind),
        }
    }
}

impl FromStr for AuthorityId {
    type Err = UnknownAuthority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = match text.rsplit_once("-g") {
            None => text.parse().ok().map(Self::first),
            Some((kind, generation)) => kind
                .parse()
                .ok()
                .zip(generation.parse().ok())
                .and_then(|(kind, generation)| Self::new(kind, generation)),
        };
        let id = id.ok_or_else(|| UnknownAuthority(text.to_owned()))?;
        // One spelling only: `users-g1` and `users-g+2` are nobody's.
        match id.to_string() == text {
            true => Ok(id),
            false => Err(UnknownAuthority(text.to_owned())),
        }
    }
}

/// Not the name of an [`AuthorityId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no issuing authority is called {0:?}")]
pub struct UnknownAuthority(pub String);

/// The name that an authority's certificate has.
pub(crate) struct CertifiedName {
    subject: Subject,
}

impl CertifiedName {
    /// Each generation has a name of its own: lists and OCSP responses go by the issuer's name, and relying parties do not
    /// all look at its key too.
    pub(crate) fn new(organisation: &str, country: Option<&str>, id: AuthorityId) -> Self {
        let subject = Subject {
            organisation: Some(organisation.to_owned()),
            country: country.map(str::to_owned),
            ..Subject::new(format!("{organisation}{}", id.name_end()))
        };
        Self { subject }
    }

    pub(crate) fn subject(self) -> Subject {
        self.subject
    }

    /// Compares the name that somebody asks for.
    pub(crate) fn check(&self, asked: &Subject) -> Result<(), String> {
        if *asked == self.subject {
            return Ok(());
        }
        Err(format!(
            "it asks for the name {}, and the script is about {}",
            shown(asked),
            shown(&self.subject)
        ))
    }
}

fn shown(subject: &Subject) -> String {
    let name = subject.to_name();
    name.map_or_else(|_| "that is none".to_owned(), |name| name.to_string())
}

/// Role of an authority among the generations of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityState {
    /// Certified and installed; issues nothing yet.
    Ready,
    /// The one that issues.
    Issuing,
    /// Signs what is needed to check what it issued.
    Retired,
}

impl AuthorityState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Issuing => "issuing",
            Self::Retired => "retired",
        }
    }
}

impl FromStr for AuthorityState {
    type Err = crate::RegistryError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let all = [Self::Ready, Self::Issuing, Self::Retired];
        let found = all.into_iter().find(|state| state.name() == name);
        found.ok_or(crate::RegistryError::Corrupt("state of an authority"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_one_kind_and_generation() {
        let all = CaKind::ALL.map(AuthorityId::first);
        let all = all.into_iter().flat_map(|id| [id, id.next().unwrap()]);
        let all: Vec<_> = all.collect();
        for organisation in ["LEA-EU", "Users CA G2", "LEA users CA"] {
            for id in &all {
                let name = CertifiedName::new(organisation, None, *id).subject();
                let named = all.iter().filter(|one| one.is_name(&name.common_name));
                assert_eq!(named.collect::<Vec<_>>(), [id], "{}", name.common_name);
            }
        }
    }

    #[test]
    fn authority_is_read_as_it_is_written_and_in_no_other_spelling() {
        let first = AuthorityId::first(CaKind::Users);
        assert_eq!(first.to_string(), "users");
        assert_eq!(first.next().unwrap().to_string(), "users-g2");
        for id in [first, first.next().unwrap()] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in [
            "",
            "root",
            "users-g1",
            "users-g0",
            "users-g02",
            "users-g+2",
            "users-g70000",
            "users-2",
            "users-g",
            "-g2",
        ] {
            assert!(text.parse::<AuthorityId>().is_err(), "{text}");
        }
        assert_eq!(AuthorityId::new(CaKind::Users, 65535).unwrap().next(), None);
    }
}
