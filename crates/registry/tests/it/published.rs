//! Certificates of people for publication: those that others may encrypt to, and no others.

use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::profile::CaKind;
use registry::{HolderChange, Issued, published_certificates};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, World, an_order, key, world};

const LATER: OffsetDateTime = NOW.saturating_add(Duration::HOUR);

async fn officer(world: &World, uid: &str, at: OffsetDateTime) -> Issued {
    let subject = Subject {
        uid: Some(uid.into()),
        ..Subject::new("O. Example")
    };
    let (spki, level) = (key().spki(), Clearance::Restricted);
    let issued = world
        .registry
        .issue_user(subject, spki, level, false, an_order(), at);
    issued.await.unwrap()
}

async fn published(world: &World, uid: &str, now: OffsetDateTime) -> Vec<Vec<u8>> {
    let published = published_certificates(&world.registry, uid, now);
    published.await.unwrap()
}

fn leaf(issued: &Issued) -> Vec<u8> {
    issued.chain.ders()[0].to_vec()
}

#[tokio::test]
async fn valid_certificates_are_published_newest_first() {
    let world = world().await;
    let first = officer(&world, "officer-1", NOW).await;
    officer(&world, "officer-2", NOW).await;
    assert_eq!(published(&world, "officer-1", NOW).await, [leaf(&first)]);
    let second = officer(&world, "officer-1", LATER).await;
    assert_eq!(
        published(&world, "officer-1", LATER).await,
        [leaf(&second), leaf(&first)]
    );
    let kept: [Vec<u8>; 0] = [];
    assert_eq!(published(&world, "nobody", LATER).await, kept);
    // A certificate is not published at its last instant.
    let end = second.not_after;
    let before = published(&world, "officer-1", end - Duration::SECOND).await;
    assert_eq!(before, [leaf(&second)]);
    assert_eq!(published(&world, "officer-1", end).await, kept);
}

#[tokio::test]
async fn revoked_and_held_certificates_are_not_published() {
    let world = world().await;
    let first = officer(&world, "officer-1", NOW).await;
    let second = officer(&world, "officer-1", LATER).await;
    let reason = RevocationReason::KeyCompromise;
    world
        .registry
        .revoke(CaKind::Users, &first.serial, reason, an_order(), LATER)
        .await
        .unwrap();
    assert_eq!(published(&world, "officer-1", LATER).await, [leaf(&second)]);
    let change = async |change| {
        let changed =
            world
                .registry
                .change_holder(CaKind::Users, "officer-1", change, an_order(), LATER);
        changed.await.unwrap();
        published(&world, "officer-1", LATER).await.len()
    };
    assert_eq!(change(HolderChange::Suspend).await, 0);
    assert_eq!(change(HolderChange::Resume).await, 1);
    assert_eq!(change(HolderChange::Revoke(reason)).await, 0);
}
