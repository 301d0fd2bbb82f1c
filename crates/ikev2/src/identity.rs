//! Identities as they are compared (RFC 7296 §3.5), and patterns for those of peers.
//!
//! Two identities are the same if nobody could mean one by the other: host names without regard to case (RFC 4343),
//! domains of mail addresses likewise, distinguished names as `pki` compares them (RFC 5280 §7.1), all others byte
//! by byte. Whatever is counted, bounded or replaced for each peer goes by an [`IdentityKey`], so that no other
//! spelling makes another peer.

use std::fmt;

use pki::name::{ComparedName, NamePattern};

use crate::wire::{IdType, Identification};

/// An identity in the form in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdentityKey {
    kind: IdType,
    data: Vec<u8>,
}

impl IdentityKey {
    /// Type and data, for whoever keeps something for each identity.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&[self.kind.0], self.data.as_slice()].concat()
    }
}

impl Identification {
    /// The form in which it is compared.
    pub fn key(&self) -> IdentityKey {
        let data = match self.kind {
            IdType::FQDN => self.data.to_ascii_lowercase(),
            IdType::RFC822_ADDR => {
                let at = self.data.iter().rposition(|byte| *byte == b'@');
                let (local, host) = self.data.split_at(at.unwrap_or(0));
                [local, &host.to_ascii_lowercase()].concat()
            }
            // What is no name has no other spelling either.
            IdType::DER_ASN1_DN => ComparedName::from_der(&self.data)
                .map_or_else(|| self.data.clone(), |name| name.to_bytes()),
            _ => self.data.clone(),
        };
        let kind = self.kind;
        IdentityKey { kind, data }
    }

    /// Whether both are one identity.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || (self.kind == other.kind && self.key() == other.key())
    }
}

/// A pattern for identities of peers. What it stands for is proved by certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdPattern {
    /// Hosts with one label more than this domain, which has no dot in front.
    HostIn(String),
    /// Mail addresses of this domain, and of none below it.
    MailAt(String),
    /// Distinguished names with some values left open.
    Name(NamePattern),
}

impl IdPattern {
    /// Whether it stands for an identity.
    pub fn matches(&self, id: &Identification) -> bool {
        match (self, id.kind) {
            (Self::HostIn(domain), IdType::FQDN) => {
                let (label, rest) = split_at(&id.data, |all| all.iter().position(|b| *b == b'.'));
                is_label(label) && rest.eq_ignore_ascii_case(domain.as_bytes())
            }
            (Self::MailAt(domain), IdType::RFC822_ADDR) => {
                let (local, host) = split_at(&id.data, |all| all.iter().rposition(|b| *b == b'@'));
                let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'@';
                !local.is_empty()
                    && local.iter().all(plain)
                    && host.eq_ignore_ascii_case(domain.as_bytes())
            }
            (Self::Name(pattern), IdType::DER_ASN1_DN) => {
                ComparedName::from_der(&id.data).is_some_and(|name| pattern.matches(&name))
            }
            _ => false,
        }
    }

    /// Whether some identity fits both.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::HostIn(one), Self::HostIn(two)) | (Self::MailAt(one), Self::MailAt(two)) => {
                one.eq_ignore_ascii_case(two)
            }
            (Self::Name(one), Self::Name(two)) => one.overlaps(two),
            _ => false,
        }
    }

    /// Number of parts that are left open.
    fn open_parts(&self) -> usize {
        match self {
            Self::HostIn(_) | Self::MailAt(_) => 1,
            Self::Name(pattern) => pattern.open_values(),
        }
    }
}

/// Bytes before and behind a separator; nothing twice where there is none.
fn split_at(data: &[u8], find: impl Fn(&[u8]) -> Option<usize>) -> (&[u8], &[u8]) {
    let at = find(data);
    let parts = at.and_then(|at| Some((data.get(..at)?, data.get(at.checked_add(1)?..)?)));
    parts.unwrap_or_default()
}

/// Letters, digits, hyphens and underscores: no star of a wildcard certificate, and nothing invisible.
fn is_label(label: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    (1..=63).contains(&label.len()) && label.iter().all(plain)
}

/// Identities that a peer may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerId {
    /// This one. With certificates, the caller also checks that the certificate says so.
    Exactly(Identification),
    /// Those that a pattern stands for. The caller checks that the peer's certificate says which it is.
    Matching(IdPattern),
    /// Any that authenticates.
    Any,
}

impl PeerId {
    /// Whether a peer may have this identity.
    pub fn accepts(&self, id: &Identification) -> bool {
        match self {
            Self::Exactly(expected) => expected.is_same(id),
            Self::Matching(pattern) => pattern.matches(id),
            Self::Any => true,
        }
    }

    /// Parts that are left open: of several that accept a peer, that with the fewest counts.
    pub fn open_parts(&self) -> usize {
        match self {
            Self::Exactly(_) => 0,
            Self::Matching(pattern) => pattern.open_parts().max(1),
            Self::Any => usize::MAX,
        }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(id) => id.fmt(f),
            Self::Matching(IdPattern::HostIn(domain)) => write!(f, "*.{domain}"),
            Self::Matching(IdPattern::MailAt(domain)) => write!(f, "*@{domain}"),
            Self::Matching(IdPattern::Name(pattern)) => pattern.fmt(f),
            Self::Any => f.write_str("any"),
        }
    }
}

#[cfg(test)]
mod tests;
