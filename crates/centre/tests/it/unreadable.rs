//! Values of the index that cannot be read: one missing row, which is repaired and reported.

use std::sync::Arc;

use centre::{Decision, Filter};
use pki::clearance::Clearance;

use crate::forged::{dump, forge, scene};
use crate::rebuilt::start;
use crate::site::Site;

/// Columns, and the condition that names one row.
const VALUES: [(&str, &str, &str); 13] = [
    ("violations", "id", "sequence = 2"),
    ("violations", "device", "sequence = 2"),
    ("violations", "kind", "sequence = 2"),
    ("violations", "place", "sequence = 2"),
    ("violations", "plate", "sequence = 2"),
    ("violations", "manifest", "sequence = 2"),
    ("blocks", "device", "sequence = 2"),
    ("blocks", "verdict", "sequence = 2"),
    ("blocks", "manifest_sha256", "sequence = 2"),
    ("chain", "previous", "sequence = 2"),
    ("custody", "actor", "action = 'evidence.view'"),
    ("reviews", "reason", "true"),
    ("audiences", "unit", "classification = 3"),
];

async fn pages(site: &Site, id: &str, what: &str) -> usize {
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    let details = review.get(&who, id).await;
    assert_eq!(details.unwrap().reviews[0].reason, "clear", "{what}");
    let cameras = review.cameras(&who).await;
    assert_eq!(cameras.unwrap().len(), 1, "{what}");
    let page = review.list(&who, &Filter::default()).await;
    page.unwrap().rows.len()
}

#[tokio::test]
async fn unreadable_value_hides_one_row_until_it_is_repaired() {
    for (table, column, row) in VALUES {
        let (site, _, secret) = scene().await;
        let (who, id) = (site.world.reviewer(Clearance::Secret), secret.violation());
        let decided = site.centre.review();
        let decided = decided
            .decide(&who, &id, Decision::Accepted, "clear", 0)
            .await;
        decided.unwrap();
        assert_eq!(pages(&site, &id, "before").await, 2);
        let before = dump(&site).await;
        let what = format!("{table}.{column}");
        forge(
            &site,
            &format!("UPDATE {table} SET {column} = CAST(X'ff41' AS TEXT) WHERE {row}"),
        )
        .await;
        assert!(pages(&site, &id, &what).await >= 1, "{what}");
        for _ in 0..4 {
            site.centre.scrub().step().await;
        }
        assert!(!site.events("evidence.index-repair").is_empty(), "{what}");
        assert_eq!(pages(&site, &id, &what).await, 2, "{what}");
        let now = dump(&site).await;
        for (now, before) in now.iter().zip(&before) {
            // The looks in between are steps of the record.
            if now.0 != "custody" {
                assert_eq!(now, before, "{what}");
            }
        }
        site.centre.scrub().step().await;
        let problems = site.centre.scrub().problems(crate::world::now());
        assert_eq!(problems.len(), 1, "{what}: {problems:?}");
    }
}

#[tokio::test]
async fn index_with_unreadable_values_starts_or_is_refused_and_can_be_rebuilt() {
    for (table, column, row) in VALUES {
        let (site, _, secret) = scene().await;
        let (who, id) = (site.world.reviewer(Clearance::Secret), secret.violation());
        let decided = site.centre.review();
        let decided = decided
            .decide(&who, &id, Decision::Accepted, "clear", 0)
            .await;
        decided.unwrap();
        site.centre.review().get(&who, &id).await.unwrap();
        let what = format!("{table}.{column}");
        forge(
            &site,
            &format!("UPDATE {table} SET {column} = CAST(X'ff41' AS TEXT) WHERE {row}"),
        )
        .await;
        // As after an upgrade: the start makes the search again.
        forge(&site, "UPDATE violation_text_version SET version = 1").await;
        match start(&site).await {
            Ok(_) => {}
            Err(centre::SetupError::IndexIncomplete { missing: 1, .. }) => {}
            Err(other) => panic!("{what}: {other:?}"),
        }
        let options = crate::site::Options {
            audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
            ..crate::site::Options::default()
        };
        let setup = crate::site::setup(&site.world, &site.folder, options);
        let (rebuilt, _) = centre::Centre::rebuild_index(setup).await.unwrap();
        assert_eq!((rebuilt.accepted, rebuilt.lost.len()), (2, 0), "{what}");
        let centre = start(&site).await.unwrap();
        for _ in 0..3 {
            centre.scrub().step().await;
        }
        let problems = centre.scrub().problems(crate::world::now());
        assert!(problems.is_empty(), "{what}: {problems:?}");
    }
}
