//! Trust bundles: which are taken over, and to whom a camera seals.

use std::sync::Arc;

use camera::CameraEvent;
use evidence::bundle::SIGNER;
use evidence::cms::RecipientKey;
use evidence::open::Opener;
use pki::file;
use pki::profile::Profile;
use time::Duration;
use tokio::net::TcpListener;

use crate::fake_centre::{Centre, Mischief};
use crate::stage::{Leaf, Running, Stage, names, until};

const WEEK: Duration = Duration::days(7);

async fn scene() -> (Stage, Arc<Centre>, Leaf) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stage = Stage::new(listener.local_addr().unwrap().port());
    let centre = Centre::new(&stage.world, &stage.recipient, Mischief::None);
    centre.listen(&stage.world, listener).await;
    let signer = stage.world.leaf(Profile::TrustBundleSigner, SIGNER);
    (stage, centre, signer)
}

fn recipient(stage: &Stage, name: &str) -> Leaf {
    stage.world.leaf(Profile::ServiceRecipient, name)
}

fn give(centre: &Centre, bundle: Vec<u8>) {
    *centre.bundle.lock().unwrap() = Some(bundle);
}

/// Makes the centre open with the keys of `leaves` only.
fn open_with(centre: &Centre, leaves: &[&Leaf]) {
    let key =
        |leaf: &&Leaf| RecipientKey::new(leaf.key.clone(), leaf.chain.leaf().clone()).unwrap();
    *centre.opener.lock().unwrap() = Opener::new(leaves.iter().map(key).collect());
}

fn refused(running: &Running, why: &str) -> bool {
    running.saw(|e| matches!(e, CameraEvent::TrustRefused { reason } if reason.contains(why)))
}

fn updated(running: &Running, number: u64) -> bool {
    running.saw(|e| matches!(e, CameraEvent::TrustUpdated { version } if *version == number))
}

#[tokio::test(flavor = "multi_thread")]
async fn camera_with_an_expired_recipient_seals_and_changes_to_that_of_the_bundle() {
    let (stage, centre, signer) = scene().await;
    let world = &stage.world;
    let expired = world.expired_leaf(Profile::ServiceRecipient, "centre intake", 30);
    file::save_chain(&stage.path("recipients.pem"), &expired.chain).unwrap();
    open_with(&centre, &[&expired]);
    // Nothing of the site is reachable yet: the picture must not lie about in the clear.
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("the block", || {
        running.saw(|e| matches!(e, CameraEvent::RecipientExpired { .. }))
            && running.metrics.snapshot().receipted == 1
    })
    .await;
    running.stop().await;
    let (next, later) = (recipient(&stage, "next"), recipient(&stage, "later"));
    give(&centre, world.bundle(1, &[&next], &signer));
    let running = stage.start().await;
    until("the bundle", || updated(&running, 1)).await;
    open_with(&centre, &[&next]);
    stage.picture("b", b"picture", 1);
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    running.stop().await;
    // It is remembered, for a start without contact.
    *centre.bundle.lock().unwrap() = None;
    let running = stage.start().await;
    stage.picture("c", b"picture", 1);
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    running.stop().await;
    give(&centre, world.bundle(2, &[&next, &later], &signer));
    let running = stage.start().await;
    until("the second bundle", || updated(&running, 2)).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_and_ambiguous_bundles_are_refused_also_after_a_restart() {
    let (stage, centre, signer) = scene().await;
    let (one, two) = (recipient(&stage, "one"), recipient(&stage, "two"));
    give(&centre, stage.world.bundle(7, &[&two], &signer));
    let running = stage.start().await;
    until("the bundle", || updated(&running, 7)).await;
    running.stop().await;
    for lost in [false, true] {
        if lost {
            std::fs::remove_file(stage.path("spool/trust/bundle.p7m")).unwrap();
        }
        give(&centre, stage.world.bundle(6, &[&one], &signer));
        let running = stage.start().await;
        until("the refusal", || refused(&running, "6 is older than 7")).await;
        running.stop().await;
        give(&centre, stage.world.bundle(7, &[&one], &signer));
        let running = stage.start().await;
        until("the refusal", || {
            refused(&running, "two trust bundles have the number 7")
        })
        .await;
        assert!(!running.saw(|e| matches!(e, CameraEvent::TrustUpdated { .. })));
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_is_refused_from_another_role_and_with_a_foreign_or_revoked_certificate() {
    let (stage, centre, signer) = scene().await;
    let world = &stage.world;
    let own = recipient(&stage, "own");
    let elsewhere = crate::stage::World::new();
    let foreign = elsewhere.leaf(Profile::ServiceRecipient, "foreign");
    let old = world.expired_leaf(Profile::TrustBundleSigner, SIGNER, 1);
    let device = world.leaf(Profile::Device, SIGNER);
    for (bundle, why) in [
        (
            world.bundle(1, &[&own], centre.signing_leaf()),
            "not by \"Trust Bundle\"",
        ),
        (world.bundle(1, &[&own], &old), "expired"),
        (world.bundle(1, &[&own], &device), "not trusted"),
        (
            elsewhere.bundle(
                1,
                &[&own],
                &elsewhere.leaf(Profile::TrustBundleSigner, SIGNER),
            ),
            "not trusted",
        ),
        (world.bundle(1, &[&foreign], &signer), "no usable recipient"),
        (
            world.bundle(1, &[centre.signing_leaf()], &signer),
            "no usable recipient",
        ),
        (world.bundle(1 << 52, &[&own], &signer), "beyond any clock"),
        (b"no CMS".to_vec(), "signature"),
    ] {
        give(&centre, bundle);
        let running = stage.start().await;
        until(why, || refused(&running, why)).await;
        running.stop().await;
        assert!(!names(stage.path("spool/trust")).contains(&"bundle.p7m".to_owned()));
    }
    // Revoked: whoever has the key of the role that signs bundles is out as soon as the lists say so.
    *centre.lists.lock().unwrap() = Some(world.lists(2, &[signer.chain.leaf()], WEEK));
    give(&centre, world.bundle(1, &[&own], &signer));
    let running = stage.start().await;
    until("the refusal", || refused(&running, "revoked")).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sealed_to_a_revoked_recipient_until_there_is_another() {
    let (stage, centre, signer) = scene().await;
    let world = &stage.world;
    let revoked = stage.recipient.chain.leaf();
    let lists = world.lists(2, &[revoked], WEEK);
    *centre.lists.lock().unwrap() = Some(lists.clone());
    let running = stage.start().await;
    // Each is kept once it counts.
    let folder = stage.path("spool/revocation");
    until("the lists", || {
        let kept: Vec<_> = names(folder.clone())
            .iter()
            .filter_map(|name| std::fs::read(folder.join(name)).ok())
            .collect();
        lists.iter().all(|list| kept.contains(list))
    })
    .await;
    stage.picture("a", b"picture", 1);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(running.metrics.snapshot().spooled, 0);
    assert_eq!(names(stage.path("watch")), ["a.jpg", "a.json"]);
    running.stop().await;
    let next = recipient(&stage, "next");
    open_with(&centre, &[&next]);
    give(&centre, world.bundle(1, &[&next], &signer));
    let running = stage.start().await;
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    running.stop().await;
}
