//! Decisions already taken.
//!
//! A decision follows from its question and from the rules, which never change while they are loaded. So it holds for as
//! long as the rules do, and for every question that differs only in what no rule can see: rules see attributes, and of
//! names those that they spell out.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use access::{Action, Context, Decision, Login, Principal, Resource, Role};
use pki::clearance::Clearance;

/// Decisions that are kept. A site has some dozens: one for each action and each combination of clearance, roles, units
/// and classification that occurs.
const KEPT: usize = 4096;

/// Names that the rules spell out, which makes them part of the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) users: bool,
    pub(crate) violations: bool,
    pub(crate) blocks: bool,
    pub(crate) services: bool,
}

/// All that a decision follows from, apart from the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    uid: Option<String>,
    login: Login,
    clearance: Clearance,
    roles: BTreeSet<Role>,
    units: BTreeSet<String>,
    action: Action,
    resource: Asked,
    context: Context,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    System,
    Violation {
        id: Option<String>,
        unit: String,
        classification: Clearance,
    },
    Block {
        id: Option<String>,
        unit: String,
        classification: Clearance,
    },
    Service {
        id: Option<String>,
        level: Clearance,
        roles: BTreeSet<Role>,
        units: BTreeSet<String>,
    },
}

impl Question {
    pub(crate) fn new(
        who: &Principal,
        action: Action,
        resource: &Resource,
        context: Context,
        named: Named,
    ) -> Self {
        Self {
            uid: named.users.then(|| who.uid().to_owned()),
            login: who.credential().login(),
            clearance: who.clearance(),
            roles: who.roles().clone(),
            units: who.units().clone(),
            action,
            resource: match resource {
                Resource::System => Asked::System,
                Resource::Violation {
                    id,
                    unit,
                    classification,
                } => Asked::Violation {
                    id: named.violations.then(|| id.clone()),
                    unit: unit.clone(),
                    classification: *classification,
                },
                Resource::Block {
                    id,
                    unit,
                    classification,
                } => Asked::Block {
                    id: named.blocks.then(|| id.clone()),
                    unit: unit.clone(),
                    classification: *classification,
                },
                Resource::Service {
                    id,
                    level,
                    roles,
                    units,
                } => Asked::Service {
                    id: named.services.then(|| id.clone()),
                    level: *level,
                    roles: roles.clone(),
                    units: units.clone(),
                },
            },
            context,
        }
    }
}

/// Decisions by question.
#[derive(Debug, Default)]
pub(crate) struct DecisionCache(Mutex<HashMap<Question, Decision>>);

impl DecisionCache {
    /// The decision about `question`, by `decide` if it is new.
    pub(crate) fn get(&self, question: Question, decide: impl FnOnce() -> Decision) -> Decision {
        let known = |cache: &Self| {
            let decisions = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
            decisions.get(&question).cloned()
        };
        if let Some(decision) = known(self) {
            return decision;
        }
        // Not under the lock: others need not wait for it, and two that decide the same decide alike.
        let decision = decide();
        let mut decisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= KEPT {
            // Seldom, and what is in use comes back at once.
            decisions.clear();
        }
        decisions.insert(question, decision.clone());
        decision
    }
}
