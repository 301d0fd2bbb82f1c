//! The rules and their evaluation.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr as _;

use cedar_policy::{
    Authorizer, Context as CedarContext, Decision as CedarDecision, Entities, Entity, EntityId,
    EntityTypeName, EntityUid, Policy, PolicyId, PolicySet, Request, RestrictedExpression, Schema,
    ValidationMode, Validator,
};
use error_report::Report;

use access::{Action, Context, Decision, PolicyDecisionPoint, Principal, Resource};

use pki::clearance::Clearance;

use crate::cache::{DecisionCache, Named, Question};

/// The rules as shipped.
const POLICIES: &str = include_str!("../policies/cordon.cedar");
/// Types and actions of the rules.
const SCHEMA: &str = include_str!("../policies/cordon.cedarschema");
/// Message when no rule permits.
const NO_RULE: &str = "no rule permits it for your roles";
/// Message when a rule could not be evaluated.
const BROKEN_RULE: &str = "a rule could not be evaluated";

/// Why a set of rules is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The rules are not proper Cedar.
    #[error("rules: {0}")]
    Syntax(String),
    /// The schema is not proper Cedar.
    #[error("schema: {0}")]
    Schema(String),
    /// The rules do not fit the schema.
    #[error("rules do not fit the schema: {0}")]
    Invalid(String),
    /// A rule without a name, or two with the same.
    #[error("rule {0} has no @id of its own")]
    MissingId(String),
    /// A refusal without words for the person it meets.
    #[error("rule {0} forbids without a @reason")]
    MissingReason(String),
    /// A name that Cedar does not take; cannot happen with the shipped schema.
    #[error("unusable name {0}")]
    Name(String),
}

/// The rules, ready to decide.
pub struct CedarRules {
    authorizer: Authorizer,
    policies: PolicySet,
    /// Name and reason by Cedar's own id.
    texts: HashMap<PolicyId, (String, Option<String>)>,
    names: Names,
    named: Named,
    cache: DecisionCache,
}

/// Names that every request needs, parsed once.
struct Names {
    user: EntityTypeName,
    violation: EntityTypeName,
    block: EntityTypeName,
    service: EntityTypeName,
    system: EntityUid,
    actions: BTreeMap<Action, EntityUid>,
}

impl CedarRules {
    /// The rules as shipped.
    ///
    /// # Errors
    /// None with the files of this crate; tests load them.
    pub fn shipped() -> Result<Self, PolicyError> {
        Self::new(POLICIES, SCHEMA)
    }

    /// Rules of one's own over a schema that has at least what the shipped one has.
    ///
    /// # Errors
    /// [`PolicyError`] with Cedar's words for the first problem.
    pub fn new(policies: &str, schema: &str) -> Result<Self, PolicyError> {
        let (schema, _) = Schema::from_cedarschema_str(schema)
            .map_err(|e| PolicyError::Schema(Report(&e).to_string()))?;
        let policies = PolicySet::from_str(policies)
            .map_err(|e| PolicyError::Syntax(Report(&e).to_string()))?;
        let report = Validator::new(schema).validate(&policies, ValidationMode::Strict);
        if let Some(problem) = report.validation_errors().next() {
            return Err(PolicyError::Invalid(problem.to_string()));
        }
        let names = Names::new()?;
        Ok(Self {
            authorizer: Authorizer::new(),
            texts: texts(&policies)?,
            named: named(&policies, &names),
            policies,
            names,
            cache: DecisionCache::default(),
        })
    }

    /// Evaluates all rules.
    fn evaluate(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        context: Context,
    ) -> Decision {
        let Some((request, entities)) = self.request(who, action, resource, context) else {
            return refusal(BROKEN_RULE);
        };
        let response = self
            .authorizer
            .is_authorized(&request, &self.policies, &entities);
        // Cedar skips a rule that it cannot evaluate. A skipped `forbid` would open the door, so a
        // permit counts only when every rule was evaluated.
        let broken = response.diagnostics().errors().next().is_some();
        if broken && response.decision() == CedarDecision::Allow {
            return refusal(BROKEN_RULE);
        }
        let deciding = response.diagnostics().reason();
        let deciding = deciding.filter_map(|id| self.texts.get(id));
        let (mut determining, reasons): (Vec<_>, Vec<_>) = deciding.cloned().unzip();
        determining.sort_unstable();
        if response.decision() == CedarDecision::Allow {
            return Decision {
                allowed: true,
                determining,
                reasons: Vec::new(),
            };
        }
        let mut reasons: Vec<String> = reasons.into_iter().flatten().collect();
        reasons.sort_unstable();
        if reasons.is_empty() {
            reasons.push(NO_RULE.to_owned());
        }
        Decision {
            allowed: false,
            determining,
            reasons,
        }
    }

    fn request(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        context: Context,
    ) -> Option<(Request, Entities)> {
        let user = self.user(who)?;
        let persons_only = RestrictedExpression::new_bool(context.persons_only);
        let context = CedarContext::from_pairs([("persons_only".to_owned(), persons_only)]).ok()?;
        let (resource_uid, resource) = self.resource(resource)?;
        let action = self.names.actions.get(&action)?.clone();
        let request = Request::new(user.uid(), action, resource_uid, context, None).ok()?;
        let entities = Entities::from_entities([user].into_iter().chain(resource), None).ok()?;
        Some((request, entities))
    }

    fn user(&self, who: &Principal) -> Option<Entity> {
        let clearance = level(who.clearance());
        let attributes = HashMap::from([
            ("clearance".to_owned(), clearance),
            (
                "login".to_owned(),
                RestrictedExpression::new_string(who.credential().login().name().to_owned()),
            ),
            (
                "roles".to_owned(),
                texts_set(who.roles().iter().map(|r| r.name()).collect()),
            ),
            (
                "units".to_owned(),
                texts_set(who.units().iter().map(String::as_str).collect()),
            ),
        ]);
        let uid =
            EntityUid::from_type_name_and_id(self.names.user.clone(), EntityId::new(who.uid()));
        Entity::new(uid, attributes, HashSet::new()).ok()
    }

    fn resource(&self, resource: &Resource) -> Option<(EntityUid, Option<Entity>)> {
        let (kind, id, attributes) = match resource {
            Resource::System => return Some((self.names.system.clone(), None)),
            Resource::Violation {
                id,
                unit,
                classification,
            } => (&self.names.violation, id, classified(unit, *classification)),
            Resource::Block {
                id,
                unit,
                classification,
            } => (&self.names.block, id, classified(unit, *classification)),
            Resource::Service {
                id,
                level,
                roles,
                units,
            } => {
                let roles = roles.iter().map(|role| role.name()).collect();
                let units = units.iter().map(String::as_str).collect();
                let attributes = HashMap::from([
                    ("level".to_owned(), self::level(*level)),
                    ("roles".to_owned(), texts_set(roles)),
                    ("units".to_owned(), texts_set(units)),
                ]);
                (&self.names.service, id, attributes)
            }
        };
        let uid = EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id));
        let entity = Entity::new(uid.clone(), attributes, HashSet::new()).ok()?;
        Some((uid, Some(entity)))
    }
}

/// Attributes of evidence.
fn classified(unit: &str, classification: Clearance) -> HashMap<String, RestrictedExpression> {
    HashMap::from([
        ("classification".to_owned(), level(classification)),
        (
            "unit".to_owned(),
            RestrictedExpression::new_string(unit.to_owned()),
        ),
    ])
}

fn level(level: Clearance) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::from(level.level()))
}

fn texts_set(texts: Vec<&str>) -> RestrictedExpression {
    let texts = texts
        .into_iter()
        .map(|text| RestrictedExpression::new_string(text.to_owned()));
    RestrictedExpression::new_set(texts)
}

impl PolicyDecisionPoint for CedarRules {
    fn decide(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        context: &Context,
    ) -> Decision {
        let question = Question::new(who, action, resource, *context, self.named);
        self.cache
            .get(question, || self.evaluate(who, action, resource, *context))
    }
}

impl std::fmt::Debug for CedarRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CedarRules")
            .field("rules", &self.texts.len())
            .finish_non_exhaustive()
    }
}

impl Names {
    fn new() -> Result<Self, PolicyError> {
        let kind = |name: &str| {
            EntityTypeName::from_str(name).map_err(|_| PolicyError::Name(name.to_owned()))
        };
        let action_kind = kind("Cordon::Action")?;
        let action = |action: Action| {
            let id = EntityId::new(action.name());
            (
                action,
                EntityUid::from_type_name_and_id(action_kind.clone(), id),
            )
        };
        Ok(Self {
            user: kind("Cordon::User")?,
            violation: kind("Cordon::Violation")?,
            block: kind("Cordon::Block")?,
            service: kind("Cordon::Service")?,
            system: EntityUid::from_type_name_and_id(
                kind("Cordon::System")?,
                EntityId::new("this"),
            ),
            actions: Action::ALL.into_iter().map(action).collect(),
        })
    }
}

/// Finds which names the rules spell out. Entities have no other way into a rule: our attributes are numbers and texts.
fn named(policies: &PolicySet, names: &Names) -> Named {
    let spelt = |kind: &EntityTypeName| {
        let mut literals = policies.policies().flat_map(Policy::entity_literals);
        literals.any(|literal| literal.type_name() == kind)
    };
    Named {
        users: spelt(&names.user),
        violations: spelt(&names.violation),
        blocks: spelt(&names.block),
        services: spelt(&names.service),
    }
}

/// Name and reason of every rule; a rule without them would leave a person without an answer.
fn texts(policies: &PolicySet) -> Result<HashMap<PolicyId, (String, Option<String>)>, PolicyError> {
    let mut texts = HashMap::new();
    let mut seen = HashSet::new();
    for policy in policies.policies() {
        let id = policy.id();
        let name = policy.annotation("id").filter(|name| !name.is_empty());
        let name = name
            .ok_or_else(|| PolicyError::MissingId(id.to_string()))?
            .to_owned();
        if !seen.insert(name.clone()) {
            return Err(PolicyError::MissingId(name));
        }
        let reason = policy.annotation("reason").map(str::to_owned);
        if policy.effect() == cedar_policy::Effect::Forbid && reason.is_none() {
            return Err(PolicyError::MissingReason(name));
        }
        texts.insert(id.clone(), (name, reason));
    }
    Ok(texts)
}

fn refusal(reason: &str) -> Decision {
    Decision {
        allowed: false,
        determining: Vec::new(),
        reasons: vec![reason.to_owned()],
    }
}
