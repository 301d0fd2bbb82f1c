//! Each way on which a request must not come through.

use super::*;

#[test]
fn one_approval_issues_a_low_level_and_two_a_high_one() {
    let staff = Staff::new();
    for (clearance, approvers) in [
        (Clearance::Unclassified, vec!["registrar-2"]),
        (Clearance::Confidential, vec!["registrar-2"]),
        (Clearance::Secret, vec!["registrar-3", "registrar-4"]),
        (Clearance::TopSecret, vec!["registrar-4", "both-4"]),
    ] {
        let mut request = submitted(issue("officer-9", clearance));
        for uid in &approvers {
            assert_eq!(code(staff.authorize(&request)), "wrong-state");
            request = staff.approve(&request, uid).unwrap();
        }
        let authorized = staff.authorize(&request).unwrap();
        assert_eq!(authorized.approvers().len(), approvers.len());
        let step = authorized
            .carry_out("0a1b", Actor::service("registry"), NOW)
            .unwrap();
        assert_eq!(step.event().action, "request.issue");
        let request = done(step);
        let request = done(request.deliver("registry", NOW).unwrap());
        assert_eq!(request.state().name(), "delivered");
        assert_eq!(code(staff.authorize(&request)), "wrong-state");
    }
}

#[test]
fn approver_without_role_or_clearance_is_refused() {
    let staff = Staff::new();
    let secret = submitted(issue("officer-9", Clearance::Secret));
    assert_eq!(
        code(staff.approve(&secret, "administrator-4")),
        "role-missing"
    );
    assert_eq!(
        code(staff.approve(&secret, "registrar-2")),
        "above-approver"
    );
}

#[test]
fn nobody_approves_what_they_asked_for_or_wrote_or_are_the_subject_of() {
    let staff = Staff::new();
    let id = RequestId("1".to_owned());
    let own = Request::draft(
        id,
        "registrar-3",
        None,
        issue("officer-9", Clearance::Restricted),
        "why",
        NOW,
    );
    let own = done(own.unwrap());
    let own = done(own.submit("registrar-3", own.version(), NOW).unwrap());
    assert_eq!(code(staff.approve(&own, "registrar-3")), "own-request");

    let about = submitted(issue("registrar-3", Clearance::Restricted));
    assert_eq!(
        code(staff.approve(&about, "registrar-3")),
        "concerns-approver"
    );

    let request = submitted(issue("officer-9", Clearance::Restricted));
    let editor = staff.principal("registrar-3");
    let act = issue("officer-9", Clearance::Confidential);
    let edited = request.edit(
        "registrar-3",
        Some(&editor),
        request.version(),
        act,
        "typo",
        NOW,
    );
    assert_eq!(
        code(staff.approve(&done(edited.unwrap()), "registrar-3")),
        "own-request"
    );

    let id = RequestId("2".to_owned());
    let act = issue("officer-9", Clearance::Restricted);
    let invited = Request::draft(id, "invitation-7", Some("registrar-3"), act, "why", NOW).unwrap();
    let invited = done(invited);
    let invited = done(
        invited
            .submit("invitation-7", invited.version(), NOW)
            .unwrap(),
    );
    assert_eq!(code(staff.approve(&invited, "registrar-3")), "own-request");
}

#[test]
fn second_approval_of_one_person_does_not_count() {
    let staff = Staff::new();
    let request = staff
        .approve(
            &submitted(issue("officer-9", Clearance::Secret)),
            "registrar-3",
        )
        .unwrap();
    assert_eq!(
        code(staff.approve(&request, "registrar-3")),
        "approved-twice"
    );
    assert_eq!(code(staff.authorize(&request)), "wrong-state");
}

#[test]
fn signature_over_other_content_is_refused() {
    let staff = Staff::new();
    let request = submitted(issue("officer-9", Clearance::Restricted));
    let other = submitted(issue("officer-8", Clearance::Restricted));
    let signature = staff
        .get("registrar-2")
        .key
        .sign(&other.statement().unwrap())
        .unwrap();
    assert_eq!(
        code(staff.approve_with(&request, "registrar-2", signature)),
        "bad-signature"
    );
    let signature = staff
        .get("registrar-3")
        .key
        .sign(&request.statement().unwrap())
        .unwrap();
    assert_eq!(
        code(staff.approve_with(&request, "registrar-2", signature)),
        "bad-signature"
    );
}

#[test]
fn approval_needs_the_certificate_of_the_session() {
    let staff = Staff::new();
    let request = submitted(issue("officer-9", Clearance::Restricted));
    let (who, other) = (staff.principal("registrar-2"), staff.get("registrar-3"));
    let signature = other.key.sign(&request.statement().unwrap()).unwrap();
    let policy = Policy::default();
    let shown = request.approve(&who, &other.certificate, signature.clone(), &policy, NOW);
    assert_eq!(code(shown), "other-certificate");
    let by_password = Principal::by_password(&staff.get("registrar-2").record).unwrap();
    let shown = request.approve(&by_password, &other.certificate, signature, &policy, NOW);
    assert_eq!(code(shown), "no-certificate");
}

#[test]
fn edit_records_what_was_before_as_far_as_the_event_has_room() {
    let old = |act: Act, reason: &str| {
        let id = RequestId("1".to_owned());
        let draft = Request::draft(id, "applicant", None, act, reason, NOW);
        let draft = done(draft.unwrap());
        let new = Act::AddApplication {
            name: "n".repeat(3900),
            clearance: Clearance::Secret,
        };
        // The longest in JSON of those that a reason may have: four bytes each.
        let why = "\u{1F4F7}".repeat(1000);
        let edited = draft.edit("applicant", None, 1, new, why, NOW).unwrap();
        let event = edited.event().clone();
        assert!(event.to_canonical().is_ok(), "{reason:.9}");
        let old = |name: &str| {
            let old = event.details.get(name);
            old.map(|old| old.as_str().unwrap().len())
        };
        assert_eq!(event.details["old_version"], 1);
        (old("old_act"), old("old_why"))
    };
    let named = |length: usize| Act::AddApplication {
        name: "o".repeat(length),
        clearance: Clearance::Secret,
    };
    let (act, why) = old(named(100), "new officer");
    assert!(act.is_some_and(|bytes| bytes > 100));
    assert_eq!(why, Some("new officer".len()));
    assert_eq!(old(named(3900), "new officer"), (None, Some(11)));
    let pictures = "\u{1F4F7}".repeat(1000);
    let (act, why) = old(named(2000), &pictures);
    assert!(act.is_some() && why.is_none());
    assert_eq!(old(named(3900), &pictures), (None, None));
}

#[test]
fn reason_with_hidden_characters_is_refused() {
    // A control character, one that turns the direction, one without width.
    for hidden in ["new\u{1}", "new\u{202E}officer", "new\u{200B}officer"] {
        let draft = issue("officer-9", Clearance::Restricted);
        let id = RequestId("1".to_owned());
        let refused = Request::draft(id, "applicant", None, draft, hidden, NOW);
        assert_eq!(code(refused), "reason-hidden-characters", "{hidden:?}");
    }
}

#[test]
fn edit_ends_approvals() {
    let staff = Staff::new();
    let request = staff
        .approve(
            &submitted(issue("officer-9", Clearance::Restricted)),
            "registrar-2",
        )
        .unwrap();
    assert_eq!(request.state().name(), "approved");
    let editor = staff.principal("registrar-3");
    let act = issue("officer-9", Clearance::Confidential);
    let edited = request.edit(
        "registrar-3",
        Some(&editor),
        request.version(),
        act,
        "level",
        NOW,
    );
    let edited = done(edited.unwrap());
    assert_eq!(
        *edited.state(),
        State::Submitted {
            approvals: Vec::new()
        }
    );
    assert_eq!(code(staff.authorize(&edited)), "wrong-state");
}

#[test]
fn applicant_cannot_edit_once_submitted_nor_another_person_before() {
    let request = submitted(issue("officer-9", Clearance::Restricted));
    let act = issue("officer-9", Clearance::Secret);
    let edit =
        |request: &Request, by| request.edit(by, None, request.version(), act.clone(), "more", NOW);
    assert_eq!(code(edit(&request, "applicant")), "role-missing");
    let id = RequestId("1".to_owned());
    let draft = Request::draft(id, "applicant", None, act.clone(), "why", NOW).unwrap();
    assert_eq!(code(edit(&done(draft), "officer-1")), "not-requester");
}

#[test]
fn second_editor_of_a_version_is_told() {
    let staff = Staff::new();
    let request = submitted(issue("officer-9", Clearance::Restricted));
    let (one, two) = (
        staff.principal("registrar-3"),
        staff.principal("registrar-4"),
    );
    let seen = request.version();
    let act = issue("officer-9", Clearance::Confidential);
    let request = done(
        request
            .edit("registrar-3", Some(&one), seen, act.clone(), "one", NOW)
            .unwrap(),
    );
    let second = request.edit("registrar-4", Some(&two), seen, act, "two", NOW);
    assert_eq!(code(second), "changed-meanwhile");
    assert_eq!(
        code(request.refuse(&two, seen, "no", NOW)),
        "changed-meanwhile"
    );
}

#[test]
fn approver_who_lost_account_role_clearance_or_certificate_does_not_count() {
    let losses: [fn(&mut Person); 4] = [
        |person| person.record.active = false,
        |person| person.record.roles.clear(),
        |person| person.record.clearance = Clearance::Restricted,
        |person| person.revoked = true,
    ];
    for (number, lose) in losses.into_iter().enumerate() {
        let mut staff = Staff::new();
        let request = submitted(issue("officer-9", Clearance::Secret));
        let request = staff.approve(&request, "registrar-3").unwrap();
        lose(staff.change("registrar-3"));
        let request = staff.approve(&request, "registrar-4").unwrap();
        let refused = staff.authorize(&request).unwrap_err();
        assert_eq!(refused.code(), "quorum-missing", "{number}");
        assert!(refused.to_string().contains("registrar-3"), "{refused}");
    }
}

#[test]
fn authority_grants_no_more_than_its_own_level() {
    let staff = Staff::new();
    let request = submitted(issue("officer-9", Clearance::Secret));
    let request = staff.approve(&request, "registrar-3").unwrap();
    let request = staff.approve(&request, "registrar-4").unwrap();
    let refused = request.authorize(&Policy::default(), &staff, Clearance::Confidential, NOW);
    assert_eq!(code(refused), "above-authority");
}

#[test]
fn emergency_goes_with_one_approval_and_waits_a_day_for_the_second() {
    let staff = Staff::new();
    let act = Act::Revoke {
        subject: "officer-9".to_owned(),
        serial: "0a".to_owned(),
        clearance: Clearance::Restricted,
        cause: RevocationReason::KeyCompromise,
        urgency: Urgency::Emergency,
    };
    let request = staff.approve(&submitted(act), "registrar-2").unwrap();
    let authorized = staff.authorize(&request).unwrap();
    let request = done(
        authorized
            .carry_out("0a", Actor::service("registry"), NOW)
            .unwrap(),
    );
    assert!(!request.is_overdue(NOW + Duration::DAY));
    assert!(request.is_overdue(NOW + Duration::DAY + Duration::SECOND));
    assert_eq!(code(request.deliver("registry", NOW)), "wrong-state");
    let request = staff.approve(&request, "registrar-3").unwrap();
    assert!(!request.is_overdue(NOW + Duration::WEEK));
    assert_eq!(code(staff.approve(&request, "registrar-4")), "wrong-state");
}

#[test]
fn keys_are_recovered_by_two_whatever_the_level() {
    let staff = Staff::new();
    let act = Act::RecoverKey {
        subject: "officer-9".to_owned(),
        serial: "0a".to_owned(),
        clearance: Clearance::Unclassified,
        rights: None,
    };
    let request = staff.approve(&submitted(act), "registrar-2").unwrap();
    assert_eq!(request.state().name(), "submitted");
    let request = staff.approve(&request, "registrar-3").unwrap();
    assert_eq!(staff.authorize(&request).unwrap().approvers().len(), 2);
}

#[test]
fn returned_request_says_why_and_can_be_mended() {
    let staff = Staff::new();
    let request = submitted(issue("officer-9", Clearance::Restricted));
    let registrar = staff.principal("registrar-2");
    assert_eq!(
        code(request.send_back(&registrar, request.version(), " ", NOW)),
        "reason-missing"
    );
    for text in [
        "wrong \u{202e}tinu",
        "wrong\u{1b}[2J unit",
        "wrong\u{200b} unit",
    ] {
        let sent = request.send_back(&registrar, request.version(), text, NOW);
        assert_eq!(code(sent), "reason-hidden-characters", "{text:?}");
    }
    let back = done(
        request
            .send_back(&registrar, request.version(), "wrong unit", NOW)
            .unwrap(),
    );
    assert_eq!(
        *back.state(),
        State::Returned {
            reason: "wrong unit".to_owned()
        }
    );
    assert_eq!(code(staff.approve(&back, "registrar-2")), "wrong-state");
    let act = issue("officer-9", Clearance::Confidential);
    let mended = back.edit("applicant", None, back.version(), act, "mended", NOW);
    let mended = done(mended.unwrap());
    let again = done(mended.submit("applicant", mended.version(), NOW).unwrap());
    assert_eq!(
        staff.approve(&again, "registrar-2").unwrap().state().name(),
        "approved"
    );
}

#[test]
fn stored_request_is_read_back_the_same() {
    let staff = Staff::new();
    let request = staff
        .approve(
            &submitted(issue("officer-9", Clearance::Secret)),
            "registrar-3",
        )
        .unwrap();
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
}

#[test]
fn stored_approval_that_was_forged_on_disk_does_not_count() {
    let staff = Staff::new();
    let request = staff
        .approve(
            &submitted(issue("officer-9", Clearance::Restricted)),
            "registrar-2",
        )
        .unwrap();
    let text = serde_json::to_string(&request).unwrap();
    let forged: Request = serde_json::from_str(&text.replace("officer-9", "officer-6")).unwrap();
    assert_eq!(code(staff.authorize(&forged)), "quorum-missing");
}

#[test]
fn policy_without_approval_or_with_less_above_is_refused() {
    assert!(Policy::new([1, 1, 1, 2, 2], Duration::DAY).is_ok());
    assert!(Policy::new([0, 1, 1, 2, 2], Duration::DAY).is_err());
    assert!(Policy::new([1, 2, 1, 2, 2], Duration::DAY).is_err());
    assert!(Policy::new([1; 5], Duration::MINUTE).is_err());
    assert!(
        serde_json::from_str::<Policy>(
            r#"{"approvals":[0,0,0,0,0],"confirm_within_seconds":86400}"#
        )
        .is_err()
    );
}

#[test]
fn act_that_fills_an_event_is_refused() {
    let units: BTreeSet<String> = (0..2000).map(|n| format!("unit-{n}")).collect();
    let new = Rights {
        units,
        ..Rights::default()
    };
    let act = Act::ChangePerson {
        subject: "officer-9".to_owned(),
        old: Rights::default(),
        new,
    };
    let id = RequestId("1".to_owned());
    assert_eq!(
        code(Request::draft(id, "applicant", None, act, "why", NOW)),
        "act-too-long"
    );
}

/// Every pair of approvers for every level: what is granted is at most the least of them and of the authority.
#[test]
fn grant_is_at_most_the_least_of_approvers_and_authority() {
    for wanted in Clearance::ALL {
        for bound in Clearance::ALL {
            for levels in Clearance::ALL
                .into_iter()
                .flat_map(|a| Clearance::ALL.map(|b| [a, b]))
            {
                let mut staff = Staff::new();
                let mut request = submitted(issue("officer-9", wanted));
                for (uid, level) in ["registrar-3", "registrar-4"].into_iter().zip(levels) {
                    staff.change(uid).record.clearance = level;
                    staff.change(uid).certified = Clearance::TopSecret;
                    if let Ok(approved) = staff.approve(&request, uid) {
                        request = approved;
                    }
                }
                let granted = request
                    .authorize(&Policy::default(), &staff, bound, NOW)
                    .is_ok();
                let able = levels.iter().filter(|level| **level >= wanted).count();
                let need = if wanted >= Clearance::Secret { 2 } else { 1 };
                assert_eq!(
                    granted,
                    wanted <= bound && able >= need,
                    "{wanted} {bound} {levels:?}"
                );
            }
        }
    }
}

#[test]
fn an_emergency_takes_away_only_and_what_gives_back_waits_for_everybody() {
    let staff = Staff::new();
    let change = |change| Act::ChangeHolder {
        subject: "officer-9".to_owned(),
        holder: HolderKind::Person,
        change,
        clearance: Clearance::Secret,
        urgency: Urgency::Emergency,
        rights: None,
    };
    let suspend = submitted(change(HolderStep::Suspend));
    let suspend = staff.approve(&suspend, "registrar-2").unwrap();
    drop(staff.authorize(&suspend).unwrap());
    for step in [HolderStep::Resume, HolderStep::Readmit] {
        let back = submitted(change(step));
        assert_eq!(code(staff.approve(&back, "registrar-2")), "above-approver");
        let back = staff.approve(&back, "registrar-3").unwrap();
        assert_eq!(code(staff.authorize(&back)), "wrong-state");
    }
}
