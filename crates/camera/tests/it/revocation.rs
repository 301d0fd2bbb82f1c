//! Cameras follow revocation: of the receipts' signer, with stale, missing and older lists.

use std::sync::Arc;

use camera::CameraEvent;
use pki::profile::{CaKind, Profile};
use time::Duration;
use tokio::net::TcpListener;

use crate::fake_centre::{Centre, Mischief};
use crate::stage::{Running, Stage, names, until};

const WEEK: Duration = Duration::days(7);

async fn scene() -> (Stage, Arc<Centre>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stage = Stage::new(listener.local_addr().unwrap().port());
    let centre = Centre::new(&stage.world, &stage.recipient, Mischief::None);
    centre.listen(&stage.world, listener).await;
    (stage, centre)
}

fn give(centre: &Centre, lists: Option<Vec<Vec<u8>>>) {
    *centre.lists.lock().unwrap() = lists;
}

/// The block was uploaded, its receipt refused some times, and it is still there.
async fn kept(stage: &Stage, running: &Running) {
    until("refused receipts", || {
        running.metrics.snapshot().receipts_refused > 2
    })
    .await;
    let snapshot = running.metrics.snapshot();
    assert_eq!((snapshot.receipted, snapshot.waiting_blocks), (0, 1));
    assert_eq!(names(stage.path("spool/blocks")).len(), 1);
    assert!(names(stage.path("spool/receipts")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_of_a_revoked_signer_deletes_nothing() {
    let (stage, centre) = scene().await;
    let lists = stage.world.lists(2, &[centre.signer()], WEEK);
    give(&centre, Some(lists));
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    kept(&stage, &running).await;
    assert!(running.saw(
        |e| matches!(e, CameraEvent::ReceiptRefused { reason, .. } if reason.contains("revoked"))
    ));
    running.stop().await;
    // Older lists, as a thief of the server's key has them, hide nothing, nor does a restart.
    give(&centre, Some(stage.world.lists(1, &[], WEEK)));
    let running = stage.start().await;
    kept(&stage, &running).await;
    assert!(running.saw(|e| matches!(e, CameraEvent::RevocationUnknown { .. })));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_list_takes_no_complete_one_from_the_disk() {
    let (stage, centre) = scene().await;
    let mut lists = stage.world.lists(2, &[centre.signer()], WEEK);
    lists.push(stage.world.empty_delta(3, 2, WEEK));
    give(&centre, Some(lists));
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    kept(&stage, &running).await;
    running.stop().await;
    // What the complete one revokes is known after a restart, to whom an older one is given.
    give(&centre, Some(stage.world.lists(1, &[], WEEK)));
    let running = stage.start().await;
    kept(&stage, &running).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn camera_without_lists_keeps_its_pictures_until_it_has_them() {
    let (stage, centre) = scene().await;
    give(&centre, None);
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    kept(&stage, &running).await;
    assert!(running.saw(|e| matches!(e, CameraEvent::RevocationUnknown { .. })));
    give(&centre, Some(stage.world.lists(1, &[], WEEK)));
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    assert!(running.saw(|e| *e == CameraEvent::RevocationKnown));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn camera_with_stale_lists_keeps_its_pictures() {
    let (stage, centre) = scene().await;
    // Issued a minute ago, good for half of one.
    give(
        &centre,
        Some(stage.world.lists(1, &[], Duration::seconds(30))),
    );
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    kept(&stage, &running).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_server_gets_no_block() {
    let (stage, centre) = scene().await;
    let services = stage.world.services.certificate();
    give(&centre, Some(stage.world.lists(2, &[services], WEEK)));
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("a refusal", || {
        running.saw(
            |e| matches!(e, CameraEvent::BearerFailed { reason, .. } if reason.contains("revoked")),
        )
    })
    .await;
    assert_eq!(*centre.received.lock().unwrap(), 0);
    running.stop().await;
    // In the spool if it was sealed before the camera knew; else it waits, for the recipient's
    // certificate is revoked with its authority.
    let kept = names(stage.path("spool/blocks")).len() + names(stage.path("watch")).len() / 2;
    assert_eq!(kept, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_of_a_signer_that_an_ocsp_response_calls_revoked_deletes_nothing() {
    let (stage, centre) = scene().await;
    let delegate = Profile::OcspSigner(CaKind::Services);
    let delegate = stage.world.leaf(delegate, "OCSP");
    let revoked = stage.world.response(centre.signer(), true, &delegate);
    // The lists know nothing of it.
    *centre.responses.lock().unwrap() = vec![revoked];
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    kept(&stage, &running).await;
    assert!(running.saw(
        |e| matches!(e, CameraEvent::ReceiptRefused { reason, .. } if reason.contains("revoked"))
    ));
    // What was once revoked stays so.
    let good = stage.world.response(centre.signer(), false, &delegate);
    *centre.responses.lock().unwrap() = vec![good];
    kept(&stage, &running).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_nobody_may_sign_and_good_ones_leave_the_lists_to_decide() {
    let (stage, centre) = scene().await;
    let delegate = Profile::OcspSigner(CaKind::Services);
    let delegate = stage.world.leaf(delegate, "OCSP");
    // A device, a service that is no delegate, and somebody who says so of himself.
    let device = stage.world.leaf(Profile::Device, "camera-18");
    let service = stage.world.leaf(Profile::ServiceSigner, "centre");
    let mut responses: Vec<Vec<u8>> = [&device, &service]
        .map(|signer| stage.world.response(centre.signer(), true, signer))
        .into();
    responses.push(stage.world.response(centre.signer(), false, &delegate));
    *centre.responses.lock().unwrap() = responses;
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    running.stop().await;
}
