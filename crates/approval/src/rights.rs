//! Rights of people.

use std::collections::BTreeSet;

use access::Role;
use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};

/// Roles that approve acts.
const APPROVERS: [Role; 2] = [Role::Registrar, Role::Administrator];

/// Rights of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    pub clearance: Clearance,
    pub roles: BTreeSet<Role>,
    pub units: BTreeSet<String>,
}

impl Rights {
    /// Tells whether the person may approve acts of others.
    #[must_use]
    pub fn approves(&self) -> bool {
        APPROVERS.iter().any(|role| self.roles.contains(role))
    }

    /// Tells whether the person may approve something that `old` did not.
    pub(crate) fn approves_more_than(&self, old: &Self) -> bool {
        let mut approving = APPROVERS.iter().filter(|role| self.roles.contains(role));
        let is_raised = self.clearance > old.clearance;
        approving.any(|role| is_raised || !old.roles.contains(role))
    }

    /// Tells whether approvals count by the same clearance and roles; units do not matter for them.
    #[must_use]
    pub fn ranks_as(&self, other: &Self) -> bool {
        self.clearance == other.clearance && self.roles == other.roles
    }
}
