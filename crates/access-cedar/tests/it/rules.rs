use access::{
    Action, Context, Decision, PolicyDecisionPoint as _, Principal, Resource, Role, Target,
};
use access_cedar::{CedarRules, PolicyError};
use pki::clearance::Clearance;
use pki::path::SubjectKind;
use time::OffsetDateTime;

use crate::support::{identity, record};

const POLICIES: &str = include_str!("../../policies/cordon.cedar");
const SCHEMA: &str = include_str!("../../policies/cordon.cedarschema");

fn person(clearance: Clearance, roles: &[Role], units: &[&str]) -> Principal {
    // By way of a certificate, because a password would cap the clearance.
    let identity = identity(SubjectKind::User, Some("officer-4711"), clearance);
    Principal::by_certificate(&identity, &record(clearance, roles, units)).unwrap()
}

/// The rules once more, in another language and by another structure.
fn oracle(roles: &[Role], clearance: u8, same_unit: bool, action: Action, level: u8) -> bool {
    let has = |role| roles.contains(&role);
    let case_worker = has(Role::Officer) || has(Role::Reviewer);
    match action {
        Action::EvidenceList => case_worker,
        Action::EvidenceView | Action::EvidenceOpenMedium => {
            case_worker && clearance >= level && same_unit
        }
        Action::EvidenceReview | Action::EvidenceExport => {
            has(Role::Reviewer) && clearance >= level && same_unit
        }
        Action::CameraList => case_worker || has(Role::Auditor) || has(Role::Administrator),
        Action::AuditRead => has(Role::Auditor),
        Action::QuarantineList => {
            has(Role::Reviewer) || has(Role::Administrator) || has(Role::Auditor)
        }
        Action::QuarantineExamine | Action::QuarantineDecide => {
            (has(Role::Reviewer) || has(Role::Administrator)) && clearance >= level && same_unit
        }
        Action::RegistryRequest
        | Action::DirectoryRead
        | Action::RegistryRead
        | Action::DeviceEnrol
        | Action::DeviceChange => has(Role::Registrar) || has(Role::Administrator),
        Action::SiteRead => roles.iter().any(|role| *role != Role::Officer),
        Action::RegistryApply | Action::DirectoryLookUp => true,
        Action::DirectoryWrite
        | Action::PersonCertify
        | Action::PersonChange
        | Action::ProfilePut
        | Action::AuthorityChange
        | Action::ServiceWrite => has(Role::Administrator),
        Action::GatewayReport => false,
        // The service is for officers and registrars.
        Action::ServiceOpen => {
            (has(Role::Officer) || has(Role::Registrar)) && clearance >= level && same_unit
        }
    }
}

/// What an account of the site's machine may do without a person's certificate.
fn console_oracle(action: Action, level: u8, persons_only: bool) -> bool {
    match action {
        Action::SiteRead
        | Action::RegistryRead
        | Action::DirectoryRead
        | Action::QuarantineList
        | Action::GatewayReport => true,
        Action::DeviceEnrol
        | Action::DeviceChange
        | Action::PersonCertify
        | Action::PersonChange
        | Action::ProfilePut
        | Action::AuthorityChange
        | Action::DirectoryWrite => !persons_only,
        Action::ServiceWrite => !persons_only && level < 3,
        _ => false,
    }
}

fn service(level: Clearance, units: &[&str]) -> Resource {
    let roles = [Role::Officer, Role::Registrar].into();
    let units = units.iter().map(|&unit| unit.to_owned()).collect();
    Resource::service("wiki", level, &roles, &units)
}

fn resource(action: Action, level: Clearance) -> Resource {
    match action.target() {
        Target::System => Resource::system(),
        Target::Violation => Resource::violation("v-1", "traffic", level),
        Target::Block => Resource::block("ab", "traffic", level),
        Target::Service => service(level, &["traffic"]),
    }
}

/// Tries every action at every level for the console, and gives what differs.
fn console_differences(engine: &CedarRules) -> Vec<String> {
    let console = Principal::console("unix:0", "root");
    let mut differences = Vec::new();
    for (action, level, persons_only) in Action::ALL.into_iter().flat_map(|action| {
        let levels = Clearance::ALL.into_iter();
        levels.flat_map(move |level| [(action, level, false), (action, level, true)])
    }) {
        let context = Context { persons_only };
        let decision = engine.decide(&console, action, &resource(action, level), &context);
        let expected = console_oracle(action, level.level(), persons_only);
        // A refused command says that a person could give it.
        let of_item = action.target() != Target::System && !decision.allowed;
        let explained = decision
            .reasons
            .iter()
            .any(|reason| reason.contains("--as"));
        if decision.allowed != expected || (of_item && !explained) {
            differences.push(format!(
                "console {action} {level} {persons_only}: {decision:?}"
            ));
        }
    }
    differences
}

/// Tries every set of roles, clearance, unit, action and classification, and gives what differs, one by one.
fn differences(engine: &CedarRules) -> impl Iterator<Item = String> {
    let sets = (0..32u8).map(|mask| -> Vec<Role> {
        let bits = (0..5u8).zip(Role::ALL);
        let chosen = bits.filter(|(bit, _)| mask >> bit & 1 == 1);
        chosen.map(|(_, role)| role).collect()
    });
    let people = sets.flat_map(|roles| {
        Clearance::ALL.into_iter().flat_map(move |clearance| {
            let roles = roles.clone();
            ["traffic", "narcotics"].map(move |unit| (roles.clone(), clearance, unit))
        })
    });
    people.flat_map(move |(roles, clearance, unit)| {
        let who = person(clearance, &roles, &[unit, "press"]);
        let all = Action::ALL.into_iter().flat_map(|action| {
            // What is not about evidence has no classification.
            let levels = if action.target() == Target::System {
                1
            } else {
                5
            };
            Clearance::ALL
                .into_iter()
                .take(levels)
                .map(move |level| (action, level))
        });
        let mut differences = Vec::new();
        for (action, level) in all {
            let resource = resource(action, level);
            // What a person signs does not depend on whether everybody must.
            let persons_only = Context { persons_only: true };
            let decision = engine.decide(&who, action, &resource, &persons_only);
            let decide = || engine.decide(&who, action, &resource, &Context::default());
            for _ in 0..2 {
                assert_eq!(decide(), decision, "a decision that is known");
            }
            let expected = oracle(
                &roles,
                clearance.level(),
                unit == "traffic",
                action,
                level.level(),
            );
            assert_eq!(decision.allowed, decision.reasons.is_empty());
            if decision.allowed != expected {
                differences.push(format!(
                    "{roles:?} {clearance} {unit} {action} {level}: {decision:?}"
                ));
            }
        }
        differences
    })
}

#[test]
fn shipped_rules_equal_the_oracle_everywhere() {
    let rules = CedarRules::shipped().unwrap();
    assert_eq!(differences(&rules).next(), None);
    assert_eq!(console_differences(&rules), Vec::<String>::new());
}

/// Every rule matters: without it, some answer changes.
#[test]
fn each_rule_is_needed() {
    let rules: Vec<&str> = POLICIES.split("@id(").skip(1).collect();
    assert!(rules.len() >= 8);
    for rule in rules {
        let without = POLICIES.replace(&format!("@id({rule}"), "");
        let engine = CedarRules::new(&without, SCHEMA).unwrap();
        assert!(
            !console_differences(&engine).is_empty() || differences(&engine).next().is_some(),
            "nothing changes without @id({rule}"
        );
    }
}

fn view(who: &Principal, unit: &str, level: Clearance) -> Decision {
    let resource = Resource::violation("v-1", unit, level);
    CedarRules::shipped()
        .unwrap()
        .decide(who, Action::EvidenceView, &resource, &Context::default())
}

#[test]
fn refusals_name_the_rule_and_say_why() {
    let ana = person(Clearance::Confidential, &[Role::Officer], &["traffic"]);
    let above = view(&ana, "traffic", Clearance::Secret);
    assert_eq!(above.determining, ["no-read-up"]);
    assert_eq!(
        above.reasons,
        ["its classification is above your clearance"]
    );
    let both = view(&ana, "narcotics", Clearance::Secret);
    assert_eq!(both.determining, ["need-to-know", "no-read-up"]);
    assert_eq!(both.reasons.len(), 2);
    let clerk = person(Clearance::TopSecret, &[Role::Registrar], &["traffic"]);
    let nobody = view(&clerk, "traffic", Clearance::Unclassified);
    assert!(nobody.determining.is_empty());
    assert_eq!(nobody.reasons, ["no rule permits it for your roles"]);
}

#[test]
fn decisions_become_audit_events_with_their_rules() {
    let ana = person(Clearance::Confidential, &[Role::Officer], &["traffic"]);
    let resource = Resource::violation("v-1", "traffic", Clearance::Secret);
    let decision = view(&ana, "traffic", Clearance::Secret);
    let at = OffsetDateTime::from_unix_timestamp(1_795_000_000).unwrap();
    let event = decision.event(at, &ana, Action::EvidenceView, &resource);
    assert_eq!(event.outcome, audit::Outcome::Deny);
    assert_eq!(event.policies, ["no-read-up"]);
    assert_eq!(event.resource, "violation/v-1");
    assert_eq!(event.details["clearance"], serde_json::json!(2));
    event.to_canonical().unwrap();
}

#[test]
fn rules_that_do_not_fit_are_refused_with_the_reason() {
    let refused = |policies: &str| CedarRules::new(policies, SCHEMA).unwrap_err();
    assert!(matches!(
        refused("permit (principal"),
        PolicyError::Syntax(_)
    ));
    let misspelt = r#"@id("x") permit (principal, action, resource)
        when { principal.clearence > 1 };"#;
    let message = refused(misspelt).to_string();
    assert!(message.contains("clearence"), "{message}");
    let unnamed = "permit (principal, action, resource);";
    assert!(matches!(refused(unnamed), PolicyError::MissingId(_)));
    let rule = r#"@id("x") permit (principal, action, resource);"#;
    assert!(matches!(refused(&format!("{rule}{rule}")), PolicyError::MissingId(n) if n == "x"));
    let silent = r#"@id("x") forbid (principal, action, resource);"#;
    assert!(matches!(refused(silent), PolicyError::MissingReason(n) if n == "x"));
}

#[test]
fn names_with_quotes_and_line_breaks_stay_names() {
    let odd = "x\"; permit(principal, action, resource); //\n";
    let record = access::PersonRecord {
        uid: odd.into(),
        ..record(Clearance::Restricted, &[Role::Officer], &["traffic", odd])
    };
    let who = Principal::by_password(&record).unwrap();
    assert!(!view(&who, "traffic", Clearance::Secret).allowed);
    assert!(view(&who, odd, Clearance::Restricted).allowed);
}

#[test]
fn service_without_units_opens_to_people_of_any_unit() {
    let rules = CedarRules::shipped().unwrap();
    let opens = |units: &[&str], of: &[&str]| {
        let who = person(Clearance::Secret, &[Role::Officer], of);
        let resource = service(Clearance::Restricted, units);
        rules.decide(&who, Action::ServiceOpen, &resource, &Context::default())
    };
    assert!(opens(&[], &[]).allowed);
    assert!(opens(&[], &["traffic"]).allowed);
    assert!(opens(&["traffic", "press"], &["press"]).allowed);
    let refused = opens(&["traffic"], &[]);
    assert_eq!(refused.determining, ["service-of-other-units"]);
    assert!(!opens(&["traffic"], &["press"]).allowed);
}

#[test]
fn decision_about_one_service_does_not_answer_for_another() {
    let rules = format!(
        "{POLICIES}
        @id(\"closed\") @reason(\"it is closed\")
        forbid (principal, action, resource == Cordon::Service::\"closed\");"
    );
    let engine = CedarRules::new(&rules, SCHEMA).unwrap();
    let who = person(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let allowed = |id: &str, level: Clearance, roles: &[Role]| {
        let roles = roles.iter().copied().collect();
        let resource = Resource::service(id, level, &roles, &["traffic".to_owned()].into());
        let context = Context::default();
        engine
            .decide(&who, Action::ServiceOpen, &resource, &context)
            .allowed
    };
    for _ in 0..2 {
        assert!(allowed("wiki", Clearance::Secret, &[Role::Officer]));
        assert!(!allowed("closed", Clearance::Secret, &[Role::Officer]));
        assert!(!allowed("wiki", Clearance::TopSecret, &[Role::Officer]));
        assert!(!allowed("wiki", Clearance::Secret, &[Role::Auditor]));
    }
}

/// Cedar skips a rule that it cannot evaluate; a skipped `forbid` must not open the door.
#[test]
fn a_rule_that_cannot_be_evaluated_refuses() {
    let schema = SCHEMA.replace("unit: String,\n", "unit: String,\n    sealed: Bool,\n");
    assert_ne!(schema, SCHEMA);
    let rules = format!(
        "{POLICIES}\n@id(\"sealed\") @reason(\"it is sealed\")
        forbid (principal, action == Cordon::Action::\"evidence.view\", resource)
        when {{ resource.sealed }};"
    );
    let engine = CedarRules::new(&rules, &schema).unwrap();
    let ana = person(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let resource = Resource::violation("v-1", "traffic", Clearance::Restricted);
    let decision = engine.decide(&ana, Action::EvidenceView, &resource, &Context::default());
    assert!(!decision.allowed, "{decision:?}");
    assert_eq!(decision.reasons, ["a rule could not be evaluated"]);
}

/// Rules may name one violation or one person: a decision about another one says nothing of theirs then.
#[test]
fn decisions_about_named_entities_are_not_taken_for_those_about_others() {
    let rules = format!(
        "{POLICIES}
        @id(\"sealed\") @reason(\"it is sealed\")
        forbid (principal, action, resource == Cordon::Violation::\"v-2\");
        @id(\"banned\") @reason(\"not you\")
        forbid (principal, action, resource) when {{ principal == Cordon::User::\"banned\" }};"
    );
    let engine = CedarRules::new(&rules, SCHEMA).unwrap();
    let plain = record(Clearance::Restricted, &[Role::Officer], &["traffic"]);
    let banned = access::PersonRecord {
        uid: "banned".into(),
        ..plain.clone()
    };
    let allowed = |record: &access::PersonRecord, id: &str| {
        let who = Principal::by_password(record).unwrap();
        let resource = Resource::violation(id, "traffic", Clearance::Restricted);
        let decision = engine.decide(&who, Action::EvidenceView, &resource, &Context::default());
        decision.allowed
    };
    for _ in 0..2 {
        assert!(allowed(&plain, "v-1"));
        assert!(!allowed(&plain, "v-2"));
        assert!(!allowed(&banned, "v-1"));
        assert!(allowed(&plain, "v-3"));
    }
}
