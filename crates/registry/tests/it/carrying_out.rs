//! Carrying out what was approved, and nothing else.

use access::Principal;
use approval::{Act, HolderKind, HolderStep, Rights, Urgency};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use registry::{
    Approvals, HolderChange, HolderState, Order, Registration, Registry, RegistryError,
    RequestError, Revoked, Step, Wanted,
};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, an_order, config, key, open, registrar, world};
use crate::staff::{Staff, carrier, code, event, issue, order, rights};

#[tokio::test]
async fn a_warrant_is_for_its_act_alone_and_for_once() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let (mine, other) = (key(), key());
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let registry = &world.registry;
    for (order, field) in [
        (order("camera-17", &other, Clearance::Restricted), "key"),
        (order("camera-18", &mine, Clearance::Restricted), "subject"),
        (order("camera-17", &mine, Clearance::Secret), "clearance"),
        (
            Order::new(Profile::VpnDevice, Subject::new("camera-17"), mine.spki())
                .with_clearance(Clearance::Restricted),
            "profile",
        ),
    ] {
        let warrant = staff.authorize(&request).await.unwrap();
        let refused = registry.issue(order, warrant, NOW).await;
        assert!(
            matches!(refused, Err(RegistryError::NotCovered(what)) if what == field),
            "{field}"
        );
    }
    let warrant = staff.authorize(&request).await.unwrap();
    let change = registry.change_holder(
        CaKind::Users,
        "registrar-4",
        HolderChange::Suspend,
        warrant,
        NOW,
    );
    assert!(matches!(change.await, Err(RegistryError::NotCovered(_))));
    // Two warrants, one certificate.
    let first = staff.authorize(&request).await.unwrap();
    let second = staff.authorize(&request).await.unwrap();
    let same = || order("camera-17", &mine, Clearance::Restricted);
    registry.issue(same(), first, NOW).await.unwrap();
    let refused = registry.issue(same(), second, NOW).await.unwrap_err();
    assert!(
        refused.to_string().contains("changed meanwhile"),
        "{refused}"
    );
    assert_eq!(registry.list(CaKind::Devices, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_approved_requests_for_one_key_the_second_is_not_carried_out() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let shared = key();
    let mut warrants = Vec::new();
    for device in ["camera-17", "camera-18"] {
        let wanted = issue(device, &shared, Clearance::Restricted);
        let request = staff.approved(wanted, &["registrar-2"]).await;
        warrants.push(staff.authorize(&request).await.unwrap());
    }
    let registry = &world.registry;
    let of = |device| order(device, &shared, Clearance::Restricted);
    let second = warrants.pop().unwrap();
    let first = warrants.pop().unwrap();
    registry.issue(of("camera-17"), first, NOW).await.unwrap();
    let refused = registry.issue(of("camera-18"), second, NOW).await;
    assert!(
        matches!(&refused, Err(RegistryError::Request(e)) if matches!(**e, RequestError::KeyInUse(_))),
        "{refused:?}"
    );
    assert_eq!(registry.list(CaKind::Devices, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn where_approvals_are_required_there_is_no_direct_warrant() {
    let world = world().await;
    world.registry.close(NOW).await;
    let required = registry::Config {
        registration: Registration {
            approvals: Approvals::Required,
            ..Registration::default()
        },
        ..config()
    };
    let secret = &crate::fixture::SECRETS.issuing;
    let audit = std::sync::Arc::new(audit::MemorySink::default());
    let registry = Registry::open(world.folder.path(), required, secret, audit, NOW);
    let registry = registry.await.unwrap();
    assert!(matches!(
        registry.direct(registrar()),
        Err(RegistryError::ApprovalRequired)
    ));
    // One made by another configuration is worth nothing here.
    let outcome = registry
        .issue(
            order("camera-17", &key(), Clearance::Restricted),
            an_order(),
            NOW,
        )
        .await;
    assert!(matches!(outcome, Err(RegistryError::ApprovalRequired)));
    // The site's own services go on; a device's certificate is none of them.
    let names = vec![pki::name::AltName::Dns("localhost".into())];
    registry
        .issue_server(names, key().spki(), registrar(), NOW)
        .await
        .unwrap();
    let own = registry
        .issue_own(
            order("camera-17", &key(), Clearance::Restricted),
            registrar(),
            NOW,
        )
        .await;
    assert!(matches!(own, Err(RegistryError::NotCovered("profile"))));
}

#[tokio::test]
async fn an_emergency_needs_one_at_once_and_a_second_within_a_day() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let list = world
        .registry
        .list(CaKind::Users, Some("registrar-4"))
        .await;
    let serial = list.unwrap()[0].serial.clone();
    let act = Act::Revoke {
        subject: "registrar-4".to_owned(),
        serial: serial.clone(),
        clearance: Clearance::TopSecret,
        cause: RevocationReason::KeyCompromise,
        urgency: Urgency::Emergency,
    };
    let request = staff
        .approved(Wanted { act, csr: None }, &["registrar-2"])
        .await;
    let warrant = staff.authorize(&request).await.unwrap();
    let registry = &world.registry;
    let reason = RevocationReason::Superseded;
    let other = registry.revoke(CaKind::Users, &serial, reason, warrant, NOW);
    assert!(matches!(other.await, Err(RegistryError::NotCovered(_))));
    let warrant = staff.authorize(&request).await.unwrap();
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Users, &serial, reason, warrant, NOW);
    assert_eq!(revoked.await.unwrap(), Revoked::Now);

    let late = NOW + Duration::DAY + Duration::SECOND;
    registry.alert_overdue(NOW + Duration::HOUR).await.unwrap();
    assert_eq!(
        registry
            .overdue_requests(NOW + Duration::HOUR)
            .await
            .unwrap(),
        0
    );
    for _ in 0..2 {
        registry.alert_overdue(late).await.unwrap();
    }
    assert_eq!(registry.overdue_requests(late).await.unwrap(), 1);
    let alarms = world.audited();
    let alarms = alarms
        .iter()
        .filter(|(action, _)| action == "request.overdue");
    assert_eq!(alarms.count(), 1);
    assert!(registry.requests(true, late).await.unwrap()[0].overdue);
    // A second approval, late or not, ends it.
    let present = registry.request(&request.id().0).await.unwrap().request;
    staff.approve(&present, "registrar-3").await.unwrap();
    assert_eq!(registry.overdue_requests(late).await.unwrap(), 0);
}

#[tokio::test]
async fn holders_are_changed_certificates_renewed_and_other_acts_done_on_request() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let registry = &world.registry;
    let suspend = Act::ChangeHolder {
        subject: "registrar-4".to_owned(),
        holder: HolderKind::Person,
        change: HolderStep::Suspend,
        clearance: Clearance::TopSecret,
        urgency: Urgency::Emergency,
        rights: None,
    };
    let wanted = Wanted {
        act: suspend,
        csr: None,
    };
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let change = HolderChange::Suspend;
    let changed = registry.change_holder(CaKind::Users, "registrar-4", change, warrant, NOW);
    assert_eq!(changed.await.unwrap().to, HolderState::Suspended);

    let list = registry
        .list(CaKind::Users, Some("registrar-3"))
        .await
        .unwrap();
    let renew = Act::Renew {
        subject: "registrar-3".to_owned(),
        serial: list[0].serial.clone(),
        clearance: Clearance::Secret,
        rights: rights("registrar-3"),
    };
    let wanted = Wanted {
        act: renew,
        csr: None,
    };
    let mut request = staff.submitted(wanted).await;
    assert_eq!(
        code(staff.approve(&request, "registrar-3").await),
        "concerns-approver"
    );
    // The registry suspends at the doors, which ask `admit`; here the session is from before.
    request = staff.approve(&request, "registrar-4").await.unwrap();
    assert_eq!(code(staff.authorize(&request).await), "wrong-state");

    let rights = |clearance| Rights {
        clearance,
        ..Rights::default()
    };
    let raise = || Wanted {
        act: Act::ChangePerson {
            subject: "applicant".to_owned(),
            old: rights(Clearance::Restricted),
            new: rights(Clearance::Confidential),
        },
        csr: None,
    };
    let draft = registry.draft_request(raise(), staff.principal("registrar-2"), "promoted", NOW);
    let draft = draft.await.unwrap();
    let request = staff
        .step(&draft, Step::Submit, "registrar-2")
        .await
        .unwrap();
    let request = staff.approve(&request, "administrator-4").await.unwrap();
    let by = staff.principal("applicant").clone();
    let id = &request.id().0;
    staff.certificates.insert(
        request.state().approvals()[0]
            .certificate_sha256()
            .to_owned(),
        staff.members["administrator-4"].certificate.clone(),
    );
    let stranger = registry.authorize_request(id, request.version(), &staff, &by, carrier(), NOW);
    assert_eq!(code(stranger.await), "role-missing");
    let by = staff.principal("registrar-2").clone();
    let warrant = registry.authorize_request(id, request.version(), &staff, &by, carrier(), NOW);
    let failing = async { Err(std::io::Error::other("directory is away")) };
    let failed = registry.carry_out_elsewhere(warrant.await.unwrap(), "applicant", failing, NOW);
    assert!(failed.await.is_err());
    let interrupted = event(&world, "request.interrupted");
    assert_eq!(interrupted.details["step"], "change-person");
    // Whether the directory changed anything is for its own events to say.
    let reason = interrupted.reason.unwrap();
    assert!(reason.contains("events of the person"), "{reason}");
    let warrant = registry.authorize_request(id, request.version(), &staff, &by, carrier(), NOW);
    let works = async { Ok::<(), std::io::Error>(()) };
    let done = registry.carry_out_elsewhere(warrant.await.unwrap(), "applicant", works, NOW);
    assert_eq!(done.await.unwrap().state().name(), "issued");
}

#[tokio::test]
async fn a_renewal_keeps_key_names_and_level() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let registry = &world.registry;
    let list = registry
        .list(CaKind::Users, Some("registrar-2"))
        .await
        .unwrap();
    let act = Act::Renew {
        subject: "registrar-2".to_owned(),
        serial: list[0].serial.clone(),
        clearance: Clearance::Confidential,
        rights: rights("registrar-2"),
    };
    let request = staff
        .approved(Wanted { act, csr: None }, &["registrar-3", "registrar-4"])
        .await;
    let warrant = staff.authorize(&request).await.unwrap();
    let issued = registry.renew(warrant, NOW + Duration::DAY).await.unwrap();
    let old = pki::cert::from_der(&list[0].certificate)
        .unwrap()
        .tbs_certificate;
    let new = &issued.chain.leaf().tbs_certificate;
    assert_eq!(new.subject, old.subject);
    assert_eq!(new.subject_public_key_info, old.subject_public_key_info);
    assert_ne!(new.serial_number, old.serial_number);
    let record = registry
        .issued(CaKind::Users, &issued.serial)
        .await
        .unwrap();
    assert_eq!(record.clearance, Some(Clearance::Confidential));
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen_and_is_settled() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let request = staff
        .submitted(issue("camera-17", &key(), Clearance::Secret))
        .await;
    let id = request.id().0.clone();
    let by: Principal = staff.principal("applicant").clone();
    world.registry.close(NOW).await;
    let mute = open(
        world.folder.path(),
        std::sync::Arc::new(crate::fixture::Broken(world.audit.clone())),
    )
    .await;
    let now: OffsetDateTime = NOW;
    let refused = mute
        .step_request(&id, request.version(), Step::Withdraw, &by, now)
        .await;
    assert_eq!(code(refused), "registry");
    mute.close(NOW).await;
    let audit = std::sync::Arc::new(audit::MemorySink::default());
    let registry = open(world.folder.path(), audit.clone()).await;
    let events = audit.events();
    let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["registry.open", "request.interrupted"]);
    assert_eq!(events[1].details["step"], "withdraw");
    let present = registry.request(&id).await.unwrap().request;
    assert_eq!(present, request);
}
