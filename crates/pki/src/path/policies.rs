//! Certificate policies (RFC 5280, sections 6.1.2 to 6.1.5).
//!
//! The standard describes a tree. Nodes of one depth with the same policy have the same expected
//! policies, so they are one node here; what the end needs of a node's ancestors is the policies that
//! hang directly below anyPolicy, and these it carries along. The cost is bounded by policies in a
//! certificate, where the tree doubles with each.

use std::collections::{BTreeMap, BTreeSet};

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ANY_POLICY;

use super::certificate::ParsedCertificate;

/// Policies, or mappings, in one certificate; a path with more is refused. Our choice: the largest bridge
/// maps a few dozen.
pub(super) const MAX_POLICIES: usize = 256;

/// What is asked of certificate policies: the initial values of RFC 5280, section 6.1.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDemand {
    /// Policies of which one is to hold for the whole path; none: any will do.
    pub acceptable: BTreeSet<ObjectIdentifier>,
    /// Refuses a path for which none of the acceptable policies holds. Without it, policies count only
    /// where an authority in the path demands them.
    pub require_explicit: bool,
    pub inhibit_mapping: bool,
    pub inhibit_any: bool,
}

/// Why policies refuse a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy holds for the whole path, or none that is acceptable.
    #[error("no acceptable certificate policy holds for the whole path")]
    NoneHolds,
    /// A mapping from or to anyPolicy (section 6.1.4 (a)).
    #[error("anyPolicy is mapped")]
    MapsAny,
    /// A policy occurs twice (section 4.2.1.4).
    #[error("a certificate policy occurs twice")]
    Repeated,
    #[error("a policy extension is empty")]
    Empty,
    /// More than anybody needs.
    #[error("more than {MAX_POLICIES} certificate policies")]
    TooMany,
}

#[derive(Clone, Debug)]
struct Node {
    expected: BTreeSet<ObjectIdentifier>,
    /// Ancestors, or itself, directly below anyPolicy.
    origins: BTreeSet<ObjectIdentifier>,
}

/// Nodes of one depth.
#[derive(Clone, Debug, Default)]
struct Level {
    any: bool,
    nodes: BTreeMap<ObjectIdentifier, Node>,
}

impl Level {
    fn is_empty(&self) -> bool {
        !self.any && self.nodes.is_empty()
    }

    fn add(&mut self, policy: ObjectIdentifier, origins: &BTreeSet<ObjectIdentifier>) {
        let node = self.nodes.entry(policy).or_insert_with(|| Node {
            expected: BTreeSet::from([policy]),
            origins: BTreeSet::new(),
        });
        node.origins.extend(origins);
    }
}

/// State variables (section 6.1.2), carried from certificate to certificate.
#[derive(Debug)]
pub(super) struct Policies<'a> {
    demand: &'a PolicyDemand,
    level: Level,
    explicit: usize,
    mapping: usize,
    inhibit_any: usize,
}

impl<'a> Policies<'a> {
    /// `count` is the number of certificates without the anchor.
    pub(super) fn new(demand: &'a PolicyDemand, count: usize) -> Self {
        let initial = |now: bool| if now { 0 } else { count.saturating_add(1) };
        Self {
            demand,
            level: Level {
                any: true,
                nodes: BTreeMap::new(),
            },
            explicit: initial(demand.require_explicit),
            mapping: initial(demand.inhibit_mapping),
            inhibit_any: initial(demand.inhibit_any),
        }
    }

    /// Basic certificate processing (section 6.1.3 (d) to (f)).
    pub(super) fn process(
        &mut self,
        certificate: &ParsedCertificate,
        is_last: bool,
    ) -> Result<(), PolicyError> {
        let exempt = !is_last && certificate.is_self_issued();
        self.level = match &certificate.policies {
            Some(policies) => self.next_level(policies, self.inhibit_any > 0 || exempt)?,
            None => Level::default(),
        };
        self.check()
    }

    fn next_level(
        &self,
        policies: &[ObjectIdentifier],
        any_counts: bool,
    ) -> Result<Level, PolicyError> {
        if policies.is_empty() {
            return Err(PolicyError::Empty);
        }
        if policies.len() > MAX_POLICIES {
            return Err(PolicyError::TooMany);
        }
        let unique: BTreeSet<_> = policies.iter().copied().collect();
        if unique.len() != policies.len() {
            return Err(PolicyError::Repeated);
        }
        let mut next = Level::default();
        for policy in unique.iter().filter(|policy| **policy != ANY_POLICY) {
            let mut matched = false;
            for node in self.level.nodes.values() {
                if node.expected.contains(policy) {
                    next.add(*policy, &node.origins);
                    matched = true;
                }
            }
            if !matched && self.level.any {
                next.add(*policy, &BTreeSet::from([*policy]));
            }
        }
        if unique.contains(&ANY_POLICY) && any_counts {
            for node in self.level.nodes.values() {
                // Those that are named above have these parents already.
                for policy in node.expected.iter().filter(|one| !unique.contains(*one)) {
                    next.add(*policy, &node.origins);
                }
            }
            next.any = self.level.any;
        }
        Ok(next)
    }

    fn check(&self) -> Result<(), PolicyError> {
        match self.explicit == 0 && self.level.is_empty() {
            true => Err(PolicyError::NoneHolds),
            false => Ok(()),
        }
    }

    /// Preparation for the next certificate (section 6.1.4 (a), (b), (h) to (j)).
    pub(super) fn prepare(&mut self, certificate: &ParsedCertificate) -> Result<(), PolicyError> {
        self.map(&certificate.policy_mappings)?;
        if !certificate.is_self_issued() {
            self.explicit = self.explicit.saturating_sub(1);
            self.mapping = self.mapping.saturating_sub(1);
            self.inhibit_any = self.inhibit_any.saturating_sub(1);
        }
        self.constrain(certificate);
        Ok(())
    }

    /// Applies policyConstraints and inhibitAnyPolicy, an anchor's too (RFC 5937, section 3.2).
    pub(super) fn constrain(&mut self, certificate: &ParsedCertificate) {
        let number = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        if let Some(constraints) = &certificate.policy_constraints {
            if let Some(skip) = constraints.require_explicit_policy {
                self.explicit = self.explicit.min(number(skip));
            }
            if let Some(skip) = constraints.inhibit_policy_mapping {
                self.mapping = self.mapping.min(number(skip));
            }
        }
        if let Some(skip) = certificate.inhibit_any_policy {
            self.inhibit_any = self.inhibit_any.min(number(skip));
        }
    }

    fn map(
        &mut self,
        mappings: &[(ObjectIdentifier, ObjectIdentifier)],
    ) -> Result<(), PolicyError> {
        if mappings.len() > MAX_POLICIES {
            return Err(PolicyError::TooMany);
        }
        let mut targets: BTreeMap<ObjectIdentifier, BTreeSet<ObjectIdentifier>> = BTreeMap::new();
        for (from, to) in mappings {
            if *from == ANY_POLICY || *to == ANY_POLICY {
                return Err(PolicyError::MapsAny);
            }
            targets.entry(*from).or_default().insert(*to);
        }
        for (from, to) in targets {
            if self.mapping == 0 {
                self.level.nodes.remove(&from);
            } else if let Some(node) = self.level.nodes.get_mut(&from) {
                node.expected = to;
            } else if self.level.any {
                let origins = BTreeSet::from([from]);
                let expected = to;
                self.level.nodes.insert(from, Node { expected, origins });
            }
        }
        Ok(())
    }

    /// Wrap-up (section 6.1.5 (a), (b), (g)).
    pub(super) fn finish(mut self, leaf: &ParsedCertificate) -> Result<(), PolicyError> {
        self.explicit = self.explicit.saturating_sub(1);
        let constraints = leaf.policy_constraints.as_ref();
        if constraints.and_then(|c| c.require_explicit_policy) == Some(0) {
            self.explicit = 0;
        }
        let acceptable = &self.demand.acceptable;
        if !acceptable.is_empty() && !acceptable.contains(&ANY_POLICY) {
            // anyPolicy at the end stands for each acceptable policy.
            let is_held = |node: &Node| node.origins.iter().any(|one| acceptable.contains(one));
            self.level.nodes.retain(|_, node| is_held(node));
        }
        self.check()
    }
}
