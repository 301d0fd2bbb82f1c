//! Requests: each way on which one must not come through.

use approval::{Act, HolderKind, HolderStep, Refusal, State, Urgency};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{HolderChange, MAX_OPEN_OF_ONE, RequestError, Step, Wanted};

use crate::fixture::{NOW, an_order, csr, key, world};
use crate::staff::{Staff, code, event, issue, order, rights};

#[tokio::test]
async fn two_approve_and_then_there_is_the_certificate_that_they_saw() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let key = key();
    let wanted = issue("camera-17", &key, Clearance::Secret);
    let request = staff.submitted(wanted).await;
    let objection = Step::Return {
        reason: "which road?".to_owned(),
    };
    let request = staff.step(&request, objection, "registrar-3").await;
    let request = request.unwrap();
    let edit = Step::Edit {
        wanted: Box::new(issue("camera-18", &key, Clearance::Secret)),
        reason: "for the northern road".to_owned(),
    };
    assert_eq!(
        code(staff.step(&request, edit.clone(), "registrar-3").await),
        "not-requester"
    );
    let edit = Step::Edit {
        wanted: Box::new(issue("camera-17", &key, Clearance::Secret)),
        reason: "for the northern road".to_owned(),
    };
    let request = staff.step(&request, edit, "applicant").await.unwrap();
    let request = staff
        .step(&request, Step::Submit, "applicant")
        .await
        .unwrap();
    let one = staff.approve(&request, "registrar-3").await.unwrap();
    assert_eq!(code(staff.authorize(&one).await), "wrong-state");
    let both = staff.approve(&one, "registrar-4").await.unwrap();

    let warrant = staff.authorize(&both).await.unwrap();
    let issued = world
        .registry
        .issue(order("camera-17", &key, Clearance::Secret), warrant, NOW)
        .await
        .unwrap();
    let record = world.registry.request(&request.id().0).await.unwrap();
    let State::Issued { result, .. } = record.request.state() else {
        panic!("{:?}", record.request.state())
    };
    assert_eq!(*result, issued.serial);
    let steps: Vec<&str> = record.history.iter().map(|c| c.step.as_str()).collect();
    let expected = [
        "draft", "submit", "return", "edit", "submit", "approve", "approve", "issue",
    ];
    assert_eq!(steps, expected);
    // Of which others have to know these, and nobody of drafts, of edits before the request is handed in, and of a first approval.
    let changes = world.registry.request_changes(0, 500).await.unwrap();
    let told: Vec<&str> = changes.iter().map(|c| c.step.as_str()).collect();
    assert_eq!(told, ["submit", "return", "submit", "approve", "issue"]);
    let newest = world.registry.newest_request_change().await.unwrap();
    assert_eq!(changes.last().map(|c| c.number), Some(newest));
    let before = world.registry.newest_request_change_before(NOW);
    assert_eq!(before.await.unwrap(), 0);
    let later = NOW + time::Duration::SECOND;
    let before = world.registry.newest_request_change_before(later);
    assert_eq!(before.await.unwrap(), newest);
    assert_eq!(record.certificates.len(), 2);
    // Every step and the certificate have their events, and the act's own has everybody in it.
    let told = event(&world, "request.issue");
    assert_eq!(told.details["result"], issued.serial.as_str());
    assert_eq!(told.details["approvers"], "registrar-3 registrar-4");
    assert_eq!(told.details["version"], record.request.version());
    assert_eq!(
        event(&world, "request.return").reason.as_deref(),
        Some("which road?")
    );
    let certified = event(&world, "certificate.issue");
    assert_eq!(certified.details["request"], request.id().0.as_str());
    // Once.
    assert_eq!(code(staff.authorize(&record.request).await), "wrong-state");
}

#[tokio::test]
async fn what_nobody_could_carry_out_is_refused_before_anybody_signs_it() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let by = staff.principal("applicant");
    let draft = async |wanted| code(world.registry.draft_request(wanted, by, "why", NOW).await);
    let (mine, other) = (key(), key());
    let good = issue("camera-17", &mine, Clearance::Restricted);

    let mut forged = good.clone();
    let last = forged.csr.as_mut().unwrap().last_mut().unwrap();
    *last ^= 1;
    assert_eq!(draft(forged).await, "csr-refused");
    let swapped = Wanted {
        csr: Some(csr("camera-17", &other)),
        ..good.clone()
    };
    assert_eq!(draft(swapped).await, "other-key");
    let others = Wanted {
        csr: Some(csr("camera-18", &mine)),
        ..good.clone()
    };
    assert_eq!(draft(others).await, "other-subject");
    let none = Wanted { csr: None, ..good };
    assert_eq!(draft(none).await, "csr-missing");
    let above = issue("camera-17", &mine, Clearance::TopSecret);
    assert_eq!(draft(above).await, "above-authority");
    let used = &staff.members["registrar-2"].key;
    let used = issue("camera-17", used, Clearance::Restricted);
    assert_eq!(draft(used).await, "key-in-use");
    let without = |act| Wanted { act, csr: None };
    let application = Act::AddApplication {
        name: "map".to_owned(),
        clearance: Clearance::Restricted,
    };
    assert_eq!(draft(without(application)).await, "not-available");
    let revoke = |serial: &str, clearance| Act::Revoke {
        subject: "applicant".to_owned(),
        serial: serial.to_owned(),
        clearance,
        cause: RevocationReason::KeyCompromise,
        urgency: Urgency::Regular,
    };
    assert_eq!(
        draft(without(revoke("0a", Clearance::Secret))).await,
        "registry"
    );
    let list = world.registry.list(CaKind::Users, Some("applicant")).await;
    let serial = &list.unwrap()[0].serial;
    // A lower clearance would ask for fewer approvals.
    let lower = without(revoke(serial, Clearance::Unclassified));
    assert_eq!(draft(lower).await, "other-certificate");
    let suspend = |clearance| Act::ChangeHolder {
        subject: "registrar-4".to_owned(),
        holder: HolderKind::Person,
        change: HolderStep::Suspend,
        clearance,
        urgency: Urgency::Regular,
        rights: None,
    };
    let lower = without(suspend(Clearance::Secret));
    assert_eq!(draft(lower).await, "other-clearance");
    assert!(
        world
            .registry
            .requests(false, NOW)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn who_asked_is_the_subject_lacks_role_or_level_or_certificate_does_not_approve() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let key = key();
    let request = staff
        .submitted(issue("camera-17", &key, Clearance::Secret))
        .await;
    for (uid, expected) in [
        ("applicant", "role-missing"),
        ("administrator-4", "role-missing"),
        ("registrar-2", "above-approver"),
    ] {
        assert_eq!(code(staff.approve(&request, uid).await), expected, "{uid}");
    }
    let member = &staff.members["registrar-3"];
    let other = Step::Approve {
        certificate: staff.members["registrar-4"].certificate.clone(),
        signature: member.key.sign(&request.statement().unwrap()).unwrap(),
    };
    assert_eq!(
        code(staff.step(&request, other, "registrar-3").await),
        "other-certificate"
    );
    let forged = Step::Approve {
        certificate: member.certificate.clone(),
        signature: member.key.sign(b"something else").unwrap(),
    };
    assert_eq!(
        code(staff.step(&request, forged, "registrar-3").await),
        "bad-signature"
    );
    // Whose own request it is, and whom it is about.
    let own = world.registry.draft_request(
        issue("camera-18", &crate::fixture::key(), Clearance::Restricted),
        staff.principal("registrar-3"),
        "why",
        NOW,
    );
    let own = own.await.unwrap();
    let own = staff.step(&own, Step::Submit, "registrar-3").await.unwrap();
    assert_eq!(
        code(staff.approve(&own, "registrar-3").await),
        "own-request"
    );
    let one = staff.approve(&request, "registrar-3").await.unwrap();
    assert_eq!(
        code(staff.approve(&one, "registrar-3").await),
        "approved-twice"
    );
    // Between the two approvals the first approver is disabled, and remains so until the act; or loses the certificate.
    staff.members.get_mut("registrar-3").unwrap().record.active = false;
    let both = staff.approve(&one, "registrar-4").await.unwrap();
    let refused = staff.authorize(&both).await.unwrap_err();
    assert!(
        matches!(
            &refused,
            RequestError::Refused(Refusal::Quorum {
                have: 1,
                need: 2,
                ..
            })
        ),
        "{refused}"
    );
    staff.members.get_mut("registrar-3").unwrap().record.active = true;
    drop(staff.authorize(&both).await.unwrap());
    let users = CaKind::Users;
    let revoke = HolderChange::Revoke(RevocationReason::KeyCompromise);
    let revoked = world
        .registry
        .change_holder(users, "registrar-4", revoke, an_order(), NOW);
    revoked.await.unwrap();
    assert_eq!(code(staff.authorize(&both).await), "quorum-missing");
}

#[tokio::test]
async fn the_second_of_two_editors_is_told_who_changed_what() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let request = staff
        .submitted(issue("camera-17", &key(), Clearance::Secret))
        .await;
    let refuse = || Step::Refuse {
        reason: "no such road".to_owned(),
    };
    staff.approve(&request, "registrar-3").await.unwrap();
    let late = staff
        .step(&request, refuse(), "registrar-4")
        .await
        .unwrap_err();
    let RequestError::Changed {
        shown,
        current,
        by,
        step,
        ..
    } = &late
    else {
        panic!("{late}")
    };
    assert_eq!((*shown, *current), (2, 3));
    assert_eq!((by.as_str(), step.as_str()), ("registrar-3", "approve"));
    // At the same time: one of them.
    let present = world
        .registry
        .request(&request.id().0)
        .await
        .unwrap()
        .request;
    let (one, other) = tokio::join!(
        staff.step(&present, refuse(), "registrar-4"),
        staff.step(&present, Step::Withdraw, "applicant"),
    );
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let changed = one.err().or(other.err()).unwrap();
    assert_eq!(changed.code(), "changed-meanwhile");
}

#[tokio::test]
async fn a_requester_has_so_many_open_requests_and_versions_and_no_more() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let (registry, by) = (&world.registry, staff.principal("applicant"));
    let list = registry
        .list(CaKind::Users, Some("registrar-2"))
        .await
        .unwrap();
    let wanted = || Wanted {
        act: Act::Renew {
            subject: "registrar-2".to_owned(),
            serial: list[0].serial.clone(),
            clearance: Clearance::Confidential,
            rights: rights("registrar-2"),
        },
        csr: None,
    };
    let mut last = None;
    for _ in 0..MAX_OPEN_OF_ONE {
        last = Some(
            registry
                .draft_request(wanted(), by, "why", NOW)
                .await
                .unwrap(),
        );
    }
    let more = registry.draft_request(wanted(), by, "why", NOW).await;
    assert_eq!(code(more), "too-many-requests");
    // Somebody else is not kept from asking.
    let other = staff.principal("registrar-3");
    registry
        .draft_request(wanted(), other, "why", NOW)
        .await
        .unwrap();
    let mut request = last.unwrap();
    while request.version() < registry::MAX_VERSIONS {
        let edit = Step::Edit {
            wanted: Box::new(wanted()),
            reason: "why".to_owned(),
        };
        request = staff.step(&request, edit, "applicant").await.unwrap();
    }
    let submit = staff.step(&request, Step::Submit, "applicant").await;
    assert_eq!(code(submit), "too-many-versions");
    staff
        .step(&request, Step::Withdraw, "applicant")
        .await
        .unwrap();
    registry
        .draft_request(wanted(), by, "why", NOW)
        .await
        .unwrap();
}
