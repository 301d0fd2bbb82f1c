//! Finds a path from an end entity to an anchor (RFC 4158), within bounds.
//!
//! Depth first, anchors before other authorities, those with the right key identifier before others.
//! A signature is verified as soon as an issuer is tried, so that nobody's name alone leads further.
//! A complete path that is refused does not end the search: a renewed or cross-certified authority has
//! several certificates, and one of them may do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::certificate::{ParsedCertificate, name};
use super::error::PathError;
use crate::cert::MAX_CHAIN_LEN;
use crate::name::shown;

/// Signatures that are verified for one end entity; a path of the site has three. A certificate that
/// needs more is refused.
const MAX_SIGNATURES: usize = 64;
/// Issuers that are tried for one end entity, and complete paths that are checked. The same.
const MAX_STEPS: usize = 512;
/// Complete paths that are checked: each costs name and policy comparisons.
const MAX_PATHS: usize = 32;

/// Who is known, and what is known about their signatures.
pub(super) struct Candidates<'a> {
    pub(super) anchors: &'a [Arc<ParsedCertificate>],
    /// Sent by the peer, or known.
    pub(super) others: &'a [Arc<ParsedCertificate>],
    /// Signatures among known authorities that verified before, as fingerprints of certificate and issuer.
    pub(super) verified: &'a dyn VerifiedSignatures,
}

/// Remembers signatures on certificates of known authorities.
pub(super) trait VerifiedSignatures {
    fn holds(&self, certificate: &ParsedCertificate, issuer: &ParsedCertificate) -> bool;
    fn remember(&self, certificate: &ParsedCertificate, issuer: &ParsedCertificate);
}

/// Decides about a complete path, the end entity first, the anchor last.
type Check<'a, T> = &'a dyn Fn(&[Arc<ParsedCertificate>]) -> Result<T, PathError>;

/// A search for one end entity.
pub(super) struct Search<'a, T> {
    candidates: &'a Candidates<'a>,
    check: Check<'a, T>,
    anchors: BTreeSet<[u8; 32]>,
    signatures: BTreeMap<([u8; 32], [u8; 32]), bool>,
    steps: usize,
    paths: usize,
    exhausted: bool,
    /// Why the best attempt failed: that of the first complete path, else the first signature.
    refusal: Option<(Rank, PathError)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Signature,
    Issuer,
    Path,
}

impl<'a, T> Search<'a, T> {
    pub(super) fn new(candidates: &'a Candidates<'a>, check: Check<'a, T>) -> Self {
        Self {
            candidates,
            check,
            anchors: candidates.anchors.iter().map(|a| a.fingerprint).collect(),
            signatures: BTreeMap::new(),
            steps: 0,
            paths: 0,
            exhausted: false,
            refusal: None,
        }
    }

    /// The first path that passes, the end entity first, the anchor last.
    pub(super) fn run(
        mut self,
        leaf: &Arc<ParsedCertificate>,
    ) -> Result<(Vec<Arc<ParsedCertificate>>, T), PathError> {
        let mut path = vec![Arc::clone(leaf)];
        if let Some(found) = self.extend(&mut path) {
            return Ok((path, found));
        }
        Err(match self.refusal {
            // Whoever needs that many attempts is not told which of them was the nearest.
            _ if self.exhausted => PathError::TooComplex {
                subject: name(leaf),
            },
            Some((_, refusal)) => refusal,
            None if leaf.is_self_issued() => PathError::SelfSigned {
                subject: name(leaf),
            },
            None => PathError::UnknownIssuer {
                issuer: shown(&leaf.certificate.tbs_certificate.issuer),
            },
        })
    }

    fn extend(&mut self, path: &mut Vec<Arc<ParsedCertificate>>) -> Option<T> {
        let top = Arc::clone(path.last()?);
        let candidates = self.candidates;
        for anchor in issuers(&top, candidates.anchors) {
            if anchor.fingerprint == top.fingerprint || !self.step() {
                continue;
            }
            if !self.is_signed(&top, anchor) {
                continue;
            }
            if self.paths >= MAX_PATHS {
                self.exhausted = true;
                return None;
            }
            self.paths = self.paths.saturating_add(1);
            path.push(Arc::clone(anchor));
            match (self.check)(path) {
                Ok(found) => return Some(found),
                Err(refusal) => self.refuse(Rank::Path, refusal),
            }
            path.pop();
        }
        // The anchor is one more.
        if path.len().saturating_add(1) >= MAX_CHAIN_LEN {
            return None;
        }
        for issuer in issuers(&top, candidates.others) {
            let is_in_path = path.iter().any(|one| one.fingerprint == issuer.fingerprint);
            if is_in_path || self.anchors.contains(&issuer.fingerprint) || !self.step() {
                continue;
            }
            if !self.is_signed(&top, issuer) {
                continue;
            }
            if !issuer.is_authority() {
                let subject = name(issuer);
                self.refuse(Rank::Issuer, PathError::NotAnAuthority { subject });
                continue;
            }
            path.push(Arc::clone(issuer));
            if let Some(found) = self.extend(path) {
                return Some(found);
            }
            path.pop();
        }
        None
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.exhausted |= self.steps > MAX_STEPS;
        !self.exhausted
    }

    fn is_signed(&mut self, certificate: &ParsedCertificate, issuer: &ParsedCertificate) -> bool {
        let pair = (certificate.fingerprint, issuer.fingerprint);
        if let Some(known) = self.signatures.get(&pair) {
            return *known;
        }
        if self.candidates.verified.holds(certificate, issuer) {
            return true;
        }
        if self.signatures.len() >= MAX_SIGNATURES {
            self.exhausted = true;
            return false;
        }
        let outcome = certificate.is_signed_by(issuer);
        let subject = name(certificate);
        match outcome {
            Some(true) => self.candidates.verified.remember(certificate, issuer),
            Some(false) => self.refuse(Rank::Signature, PathError::BadSignature { subject }),
            None => {
                let oid = certificate.certificate.signature_algorithm.oid;
                let refusal = PathError::SignatureAlgorithm { subject, oid };
                self.refuse(Rank::Signature, refusal);
            }
        }
        self.signatures.insert(pair, outcome == Some(true));
        outcome == Some(true)
    }

    fn refuse(&mut self, rank: Rank, refusal: PathError) {
        if self.refusal.as_ref().is_none_or(|(known, _)| *known < rank) {
            self.refusal = Some((rank, refusal));
        }
    }
}

/// Those whose subject is the issuer of `certificate`, the likely ones first. Key identifiers only order
/// them (RFC 5280, section 4.2.1.1): a signature decides.
fn issuers<'a>(
    certificate: &ParsedCertificate,
    all: &'a [Arc<ParsedCertificate>],
) -> Vec<&'a Arc<ParsedCertificate>> {
    let mut named: Vec<_> = all
        .iter()
        .filter(|one| one.subject == certificate.issuer)
        .collect();
    named.sort_by_key(
        |one| match (&one.subject_key_id, &certificate.authority_key_id) {
            (Some(own), Some(wanted)) if own == wanted => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        },
    );
    named
}
