//! A quorum is distinct people with keys of their own: forged ones are refused, and named when they are forced into the log.

use approval::Act;
use audit::Event;
use pki::clearance::Clearance;
use pki::profile::{CaKind, Profile};
use registry::{HolderChange, Order, Wanted};

use crate::completeness::unordered_gaps;
use crate::fixture::{NOW, World, an_order, key, world};
use crate::staff::{Staff, code, event, issue, order, rights, subject};

/// Events as the site's log has them.
fn events(world: &World) -> Vec<Event> {
    let mut events = world.audit.events();
    for event in &mut events {
        "registry".clone_into(&mut event.role);
    }
    events
}

/// Gives a person a certificate whose key the centre made, by a profile of this version or of an earlier one.
async fn with_centre_key(staff: &mut Staff<'_>, uid: &'static str, profile: Profile) {
    let key = key();
    let order = Order::new(profile, subject(uid), key.spki());
    let order = order.with_clearance(staff.members[uid].record.clearance);
    let issued = staff.registry.issue(order, an_order(), NOW).await.unwrap();
    staff.replace(uid, key, &issued).await;
}

fn profiles(registry: &registry::Registry) -> [Profile; 2] {
    let earlier = Profile::User {
        administrator: false,
    };
    [
        registry.requested_profile("user-centre-key").unwrap(),
        earlier,
    ]
}

#[tokio::test]
async fn approval_with_a_key_of_the_centre_is_refused() {
    let world = world().await;
    for profile in profiles(&world.registry) {
        let mut staff = Staff::new(&world.registry).await;
        let wanted = issue("camera-17", &key(), Clearance::Restricted);
        let request = staff.submitted(wanted).await;
        with_centre_key(&mut staff, "registrar-2", profile).await;
        assert_eq!(
            code(staff.approve(&request, "registrar-2").await),
            "centre-key"
        );
        // Another one with a key of his own still approves.
        staff.approve(&request, "registrar-3").await.unwrap();
    }
}

#[tokio::test]
async fn renewed_certificate_for_a_key_of_the_centre_approves_nothing() {
    let world = world().await;
    let mut staff = Staff::new(&world.registry).await;
    let [_, earlier] = profiles(&world.registry);
    with_centre_key(&mut staff, "registrar-2", earlier).await;
    let former = pki::cert::from_der(&staff.members["registrar-2"].certificate).unwrap();
    let renew = Wanted {
        act: Act::Renew {
            subject: "registrar-2".to_owned(),
            serial: pki::cert::serial_hex(&former),
            clearance: Clearance::Confidential,
            rights: rights("registrar-2"),
        },
        csr: None,
    };
    let request = staff.approved(renew, &["registrar-3", "registrar-4"]).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let issued = world.registry.renew(warrant, NOW).await.unwrap();
    let key = staff.members["registrar-2"].key.clone();
    staff.replace("registrar-2", key, &issued).await;
    let wanted = issue("camera-17", &crate::fixture::key(), Clearance::Restricted);
    let request = staff.submitted(wanted).await;
    let refused = code(staff.approve(&request, "registrar-2").await);
    assert_eq!(refused, "centre-key");
}

/// A request for a camera's certificate that one registrar has approved.
async fn approved(world: &World) -> (Staff<'_>, approval::Request, pki::PrivateKey) {
    let staff = Staff::new(&world.registry).await;
    let mine = key();
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    (staff, request, mine)
}

#[tokio::test]
async fn approver_who_is_gone_before_the_act_does_not_count() {
    for change in [HolderChange::Retire, HolderChange::Suspend] {
        let world = world().await;
        let (mut staff, request, mine) = approved(&world).await;
        // Written to the log in the order of a forger, who carries out what has lost its approval.
        let warrant = staff.authorize(&request).await.unwrap();
        let device = order("camera-17", &mine, Clearance::Restricted);
        world.registry.issue(device, warrant, NOW).await.unwrap();
        let honest = events(&world);
        let found = unordered_gaps(&world.registry, &honest, &[]);
        assert_eq!(found, Vec::<String>::new());
        let changed =
            world
                .registry
                .change_holder(CaKind::Users, "registrar-2", change, an_order(), NOW);
        changed.await.unwrap();
        let gone = events(&world).split_off(honest.len());
        let carried_out = honest.iter().position(|event| {
            event.action == "certificate.issue" && event.resource.ends_with("/camera-17")
        });
        let mut forged = honest;
        let at = carried_out.unwrap();
        forged.splice(at..at, gone);
        let found = unordered_gaps(&world.registry, &forged, &[]);
        let named = |what: &String| what.contains("issue with 0 of 1 approvals");
        assert!(found.iter().any(named), "{found:?}");
    }
    let world = world().await;
    let (mut staff, request, _) = approved(&world).await;
    let retire = HolderChange::Retire;
    let changed =
        world
            .registry
            .change_holder(CaKind::Users, "registrar-2", retire, an_order(), NOW);
    changed.await.unwrap();
    let refused = staff.authorize(&request).await;
    assert_eq!(code(refused), "quorum-missing");
}

#[tokio::test]
async fn approval_with_a_key_of_the_centre_in_the_log_is_named() {
    let world = world().await;
    let (mut staff, request, mine) = approved(&world).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let device = order("camera-17", &mine, Clearance::Restricted);
    world.registry.issue(device, warrant, NOW).await.unwrap();
    let approver = event(&world, "request.approve").actor.id;
    let mut forged = events(&world);
    for event in &mut forged {
        if event.action == "certificate.issue"
            && event.details.get("uid").and_then(|uid| uid.as_str()) == Some(&approver)
        {
            event.details.insert("origin".to_owned(), "order".into());
            event.details.remove("invitation");
        }
    }
    let found = unordered_gaps(&world.registry, &forged, &[]);
    for named in [
        "the centre made the certificate's key",
        "issue with 0 of 1 approvals",
    ] {
        assert!(found.iter().any(|what| what.contains(named)), "{found:?}");
    }
}
