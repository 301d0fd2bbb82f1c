//! Signatures that were verified once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{PoisonError, RwLock};

use super::certificate::ParsedCertificate;
use super::search::VerifiedSignatures;

/// Certificates of known authorities' holders that are remembered; the oldest make room.
const HOLDERS: usize = 4096;

type Fingerprint = [u8; 32];
/// A certificate and its issuer's.
type Link = (Fingerprint, Fingerprint);

/// Signatures by known authorities, by the hashes of both certificates: that one was made is true for ever. Dates, purposes and
/// revocation are asked each time.
///
/// Nobody but those authorities can add one.
pub(super) struct KnownLinks {
    authorities: BTreeSet<Fingerprint>,
    verified: RwLock<Verified>,
}

#[derive(Default)]
struct Verified {
    links: BTreeSet<Link>,
    /// Those of other certificates than authorities', the oldest first.
    holders: VecDeque<Link>,
}

impl KnownLinks {
    pub(super) fn new(authorities: BTreeSet<Fingerprint>) -> Self {
        Self {
            authorities,
            verified: RwLock::default(),
        }
    }

    fn add(&self, link: Link) {
        if !self.authorities.contains(&link.1) {
            return;
        }
        let mut verified = self
            .verified
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if !verified.links.insert(link) || self.authorities.contains(&link.0) {
            return;
        }
        verified.holders.push_back(link);
        if verified.holders.len() > HOLDERS
            && let Some(oldest) = verified.holders.pop_front()
        {
            verified.links.remove(&oldest);
        }
    }

    fn contains(&self, link: &Link) -> bool {
        let verified = self.verified.read().unwrap_or_else(PoisonError::into_inner);
        verified.links.contains(link)
    }
}

impl VerifiedSignatures for KnownLinks {
    fn holds(&self, certificate: &ParsedCertificate, issuer: &ParsedCertificate) -> bool {
        self.contains(&(certificate.fingerprint, issuer.fingerprint))
    }

    fn remember(&self, certificate: &ParsedCertificate, issuer: &ParsedCertificate) {
        self.add((certificate.fingerprint, issuer.fingerprint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: usize) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint[..8].copy_from_slice(&number.to_be_bytes());
        fingerprint
    }

    #[test]
    fn holders_are_bounded_and_authorities_stay() {
        let [root, issuing, foreign] = [1, 2, 3].map(fingerprint);
        let links = KnownLinks::new([root, issuing].into());
        links.add((issuing, root));
        links.add((fingerprint(10), foreign));
        assert!(!links.contains(&(fingerprint(10), foreign)));
        for number in 0..=HOLDERS {
            links.add((fingerprint(100 + number), issuing));
            links.add((fingerprint(100 + number), issuing));
        }
        assert!(links.contains(&(issuing, root)));
        assert!(!links.contains(&(fingerprint(100), issuing)));
        assert!(links.contains(&(fingerprint(101), issuing)));
        assert!(links.contains(&(fingerprint(100 + HOLDERS), issuing)));
        let verified = links.verified.read().unwrap();
        assert_eq!(verified.links.len(), HOLDERS + 1);
    }
}
