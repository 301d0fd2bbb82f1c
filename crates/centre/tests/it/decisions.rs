//! Decisions of reviewers who did not see each other's.

use centre::{Decision, ReviewError};
use pki::clearance::Clearance;

use crate::review::deliver;
use crate::site::Site;
use crate::world::CAMERA;

#[tokio::test]
async fn decision_on_an_older_page_is_refused_and_a_repeated_one_recorded_once() {
    let site = Site::new().await;
    let block = &deliver(&site, &site.world.camera(CAMERA), 1, |_, _| ()).await[0];
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let review = site.centre.review();
    let decided = async |decision, reason: &str, seen| {
        let outcome = review.decide(&who, &id, decision, reason, seen).await;
        (outcome, site.events("evidence.decide").len())
    };
    let (unseen, count) = decided(Decision::Accepted, "clear", 1).await;
    let expected = ReviewError::Unseen { seen: 1, found: 0 };
    assert_eq!(unseen.unwrap_err().to_string(), expected.to_string());
    assert_eq!(count, 0);
    let (first, count) = decided(Decision::Accepted, "clear", 0).await;
    first.unwrap();
    assert_eq!(count, 1);
    let (again, count) = decided(Decision::Accepted, "clear", 0).await;
    again.unwrap();
    assert_eq!(count, 1, "a second click");
    for (decision, reason) in [
        (Decision::Rejected, "clear"),
        (Decision::Accepted, "plate legible"),
    ] {
        let (stale, count) = decided(decision, reason, 0).await;
        let stale = stale.unwrap_err();
        assert!(matches!(&stale, ReviewError::Stale { decision, .. } if decision == "accepted"));
        assert_eq!(count, 1, "{stale}");
    }
    // Who has seen it may confirm it or decide otherwise.
    let (second, count) = decided(Decision::Accepted, "clear", 1).await;
    second.unwrap();
    assert_eq!(count, 2);
    let (stale, count) = decided(Decision::Accepted, "clear", 0).await;
    assert!(matches!(stale, Err(ReviewError::Stale { .. })));
    assert_eq!(count, 2, "another decision came between");
}

#[tokio::test]
async fn of_decisions_at_once_on_one_page_one_counts() {
    let site = Site::new().await;
    let block = &deliver(&site, &site.world.camera(CAMERA), 1, |_, _| ()).await[0];
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let review = site.centre.review();
    let reasons: Vec<String> = (0..8).map(|number| format!("reason {number}")).collect();
    let all = reasons
        .iter()
        .map(|reason| review.decide(&who, &id, Decision::Accepted, reason, 0));
    let outcomes = futures_util::future::join_all(all).await;
    assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 1);
    assert_eq!(site.events("evidence.decide").len(), 1);
}
