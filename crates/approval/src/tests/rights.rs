//! Acts about people count by what the people may do.

use super::*;

/// A certificate of a level below its holder's acts in the holder's name nevertheless.
#[test]
fn certificate_of_an_approver_or_of_a_cleared_person_needs_two_whatever_its_own_level() {
    let staff = Staff::new();
    let rights = |clearance, role| Rights {
        clearance,
        roles: BTreeSet::from([role]),
        units: BTreeSet::new(),
    };
    let subject = || "person-9".to_owned();
    let low = Clearance::Unclassified;
    for (has, role, needs) in [
        (low, Role::Officer, 1),
        (low, Role::Auditor, 1),
        (low, Role::Registrar, 2),
        (low, Role::Administrator, 2),
        (Clearance::Secret, Role::Officer, 2),
    ] {
        let rights = Some(rights(has, role));
        let acts = [
            Act::Issue {
                subject: subject(),
                profile: "user".to_owned(),
                clearance: low,
                spki_sha256: "ab".repeat(32),
                account: None,
                rights: rights.clone(),
                distinguished_name: None,
                by_password: false,
            },
            Act::Invite {
                subject: subject(),
                profile: "user".to_owned(),
                clearance: low,
                unit: None,
                hours: 24,
                renewals: 0,
                names: Vec::new(),
                account: None,
                rights: rights.clone(),
                distinguished_name: None,
            },
            Act::Renew {
                subject: subject(),
                serial: "0a".to_owned(),
                clearance: low,
                rights: rights.clone(),
            },
            Act::ChangeHolder {
                subject: subject(),
                holder: HolderKind::Person,
                change: HolderStep::Resume,
                clearance: low,
                urgency: Urgency::Regular,
                rights,
            },
        ];
        for act in acts {
            let name = act.name();
            let mut request = submitted(act);
            for uid in ["registrar-3", "registrar-4"].into_iter().take(needs) {
                assert_eq!(code(staff.authorize(&request)), "wrong-state", "{name}");
                request = staff.approve(&request, uid).unwrap();
            }
            assert!(staff.authorize(&request).is_ok(), "{name} of {role}");
        }
    }
}

#[test]
fn role_that_approves_is_given_and_its_level_raised_by_two() {
    let policy = Policy::default();
    let rights = |clearance, roles: &[Role]| Rights {
        clearance,
        roles: roles.iter().copied().collect(),
        units: BTreeSet::new(),
    };
    let (none, one) = (Clearance::Unclassified, Clearance::Restricted);
    let both = [Role::Registrar, Role::Administrator];
    for (old, new, needs) in [
        (rights(none, &[]), rights(none, &[Role::Officer]), 1),
        (rights(none, &[]), rights(none, &[Role::Registrar]), 2),
        (rights(none, &[Role::Registrar]), rights(none, &both), 2),
        (rights(none, &both), rights(one, &both), 2),
        (rights(one, &both), rights(none, &both), 1),
        (rights(one, &both), rights(one, &[Role::Registrar]), 1),
        (rights(one, &[Role::Officer]), rights(none, &both), 2),
    ] {
        let subject = "person-9".to_owned();
        let act = Act::ChangePerson { subject, old, new };
        assert_eq!(policy.approvals(&act), needs, "{act:?}");
    }
}

/// A code that one person approved does not become an approver's by a later change of roles.
#[test]
fn what_was_approved_for_less_is_not_enough_for_the_rights_of_today() {
    let staff = Staff::new();
    let officer = Rights {
        roles: BTreeSet::from([Role::Officer]),
        ..Rights::default()
    };
    let registrar = Rights {
        roles: BTreeSet::from([Role::Registrar]),
        ..Rights::default()
    };
    let act = |rights| Act::Invite {
        subject: "person-9".to_owned(),
        profile: "user".to_owned(),
        clearance: Clearance::Unclassified,
        unit: None,
        hours: 24,
        renewals: 2,
        names: Vec::new(),
        account: None,
        rights,
        distinguished_name: None,
    };
    let policy = Policy::default();
    let carried_out = |rights, approvers: &[&str]| {
        let mut request = submitted(act(rights));
        for uid in approvers {
            request = staff.approve(&request, uid).unwrap();
        }
        let authorized = staff.authorize(&request).unwrap();
        let step = authorized.carry_out("code", Actor::service("registry"), NOW);
        done(step.unwrap())
    };
    let check = |request: &Request, rights| {
        let today = Clearance::TopSecret;
        let taken_up = request.check_carried_out("code", &policy, &staff, Some(rights), today);
        let renewed = request.check_signed_for(&policy, rights);
        assert_eq!(taken_up.is_ok(), renewed.is_ok());
        renewed.map_err(|refusal| refusal.code())
    };
    let by_one = carried_out(Some(officer.clone()), &["registrar-2"]);
    assert_eq!(check(&by_one, &officer), Ok(()));
    assert_eq!(check(&by_one, &registrar), Err("quorum-missing"));
    let by_two = carried_out(Some(registrar.clone()), &["registrar-2", "registrar-3"]);
    assert_eq!(check(&by_two, &registrar), Ok(()));
    // Approved by a version that did not ask for rights.
    let before = carried_out(None, &["registrar-2"]);
    assert_eq!(check(&before, &registrar), Ok(()));
}
