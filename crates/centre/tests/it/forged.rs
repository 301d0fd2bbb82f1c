//! An attacker who can write to the index and the archive, without any key, while the centre runs.

use std::sync::Arc;

use access::{Principal, Role};
use centre::{Asked, Decision, Filter, ReviewError};
use pki::clearance::Clearance;
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{AssertSqlSafe, Connection as _, SqliteConnection, raw_sql};

use crate::site::Site;
use crate::world::{Block, CAMERA, Shot, picture};

/// Changes the index of a running centre as another program would.
pub(crate) async fn forge(site: &Site, statements: &str) {
    let file = site.folder.path().join("centre.sqlite");
    let options = SqliteConnectOptions::new()
        .filename(file)
        .foreign_keys(false);
    let mut index = SqliteConnection::connect_with(&options).await.unwrap();
    raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(&mut index)
        .await
        .unwrap();
    index.close().await.unwrap();
}

/// A site with a public and a secret violation.
pub(crate) async fn scene() -> (Site, Block, Block) {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let public = camera.seal(&Shot {
        level: Clearance::Unclassified,
        ..Shot::first()
    });
    let secret = camera.seal(&Shot {
        level: Clearance::Secret,
        plate: "SE 0001".into(),
        media: vec![("x.jpg".into(), "image/jpeg".into(), picture(64, 48, 3))],
        ..Shot::after(&public)
    });
    for block in [&public, &secret] {
        assert_eq!(site.deliver(CAMERA, block).await.reason, None);
    }
    (site, public, secret)
}

fn officer(site: &Site) -> Principal {
    let roles = [Role::Officer];
    let world = &site.world;
    world.person(Clearance::Unclassified, &roles, &["traffic"])
}

async fn is_denied(site: &Site, who: &Principal, id: &str) -> bool {
    let review = site.centre.review();
    let opened = [
        review.get(who, id).await.map(drop),
        review.medium(who, id, 0).await.map(drop),
        review
            .medium_stream(who, id, 0, &Asked::default())
            .await
            .map(drop),
        review.thumbnail(who, id).await.map(drop),
    ];
    opened
        .iter()
        .all(|opened| matches!(opened, Err(ReviewError::Denied { .. })))
}

#[tokio::test]
async fn forged_classification_opens_nothing() {
    let (site, public, secret) = scene().await;
    let (low, id) = (officer(&site), secret.violation());
    assert!(is_denied(&site, &low, &id).await);
    let (public_id, review) = (public.violation(), site.centre.review());
    for statement in [
        // Moves it to the public group, with its columns as they are.
        format!(
            "UPDATE violations SET violation_group = (SELECT violation_group FROM violations
                WHERE id = '{public_id}') WHERE id = '{id}'"
        ),
        // And gives it a manifest that says so.
        format!(
            "UPDATE violations SET manifest = replace(manifest, '\"classification\":3',
                '\"classification\":0') WHERE id = '{id}'"
        ),
        "UPDATE audiences SET classification = 0, unit = 'traffic' WHERE classification = 3"
            .to_owned()
            .replace("UPDATE", "UPDATE OR REPLACE"),
    ] {
        forge(&site, &statement).await;
        assert!(is_denied(&site, &low, &id).await, "{statement}");
        let page = review.list(&low, &Filter::default()).await.unwrap();
        assert!(page.rows.iter().all(|row| row.id != id), "{statement}");
        // Who may see it, still does, as it was signed.
        let high = site.world.reviewer(Clearance::Secret);
        let details = review.get(&high, &id).await.unwrap();
        assert_eq!(details.summary.classification, 3, "{statement}");
        assert_eq!(details.media[0].name, "x.jpg");
    }
}

#[tokio::test]
async fn forged_unit_and_camera_open_nothing() {
    let (site, _, secret) = scene().await;
    let id = secret.violation();
    let harbour = site
        .world
        .person(Clearance::Secret, &[Role::Officer], &["harbour"]);
    assert!(is_denied(&site, &harbour, &id).await);
    forge(
        &site,
        "UPDATE audiences SET unit = 'harbour'; UPDATE violations SET device = 'camera-99'",
    )
    .await;
    assert!(is_denied(&site, &harbour, &id).await);
}

#[tokio::test]
async fn block_that_another_one_displaced_in_the_archive_is_not_shown() {
    let (site, public, secret) = scene().await;
    let low = officer(&site);
    let review = site.centre.review();
    assert!(review.medium(&low, &public.violation(), 0).await.is_ok());
    let object = site.object("archive", &public.hash());
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, &secret.bytes).unwrap();
    let refused = review.medium(&low, &public.violation(), 0).await;
    assert!(
        matches!(refused, Err(ReviewError::Exchanged(_))),
        "{refused:?}"
    );
    let refused = review
        .medium_stream(&low, &public.violation(), 0, &Asked::default())
        .await;
    assert!(matches!(refused, Err(ReviewError::Exchanged(_))));
    let refused = review.thumbnail(&low, &public.violation()).await;
    assert!(matches!(refused, Err(ReviewError::Exchanged(_))));
    // Nor does the name of the secret block in the row lead to it.
    std::fs::write(&object, &public.bytes).unwrap();
    let (from, to) = (public.violation(), secret.hash());
    forge(
        &site,
        &format!(
            "UPDATE violations SET block_sha256 = 'x' WHERE block_sha256 = '{to}';
             UPDATE violations SET block_sha256 = '{to}' WHERE id = '{from}'"
        ),
    )
    .await;
    let medium = review.medium(&low, &from, 0).await.unwrap();
    assert_eq!(medium.name, "front.jpg");
}

#[tokio::test]
async fn looks_that_were_removed_from_the_index_are_shown_and_numbered_on() {
    let (site, public, _) = scene().await;
    let (who, id) = (site.world.reviewer(Clearance::Secret), public.violation());
    let review = site.centre.review();
    for _ in 0..3 {
        review.medium(&who, &id, 0).await.unwrap();
    }
    for statement in [
        "DELETE FROM custody WHERE action = 'evidence.open-medium'",
        "DELETE FROM custody",
        "UPDATE custody SET actor = 'nobody'",
        "UPDATE custody SET action = 'evidence.list', at = 0",
        "INSERT INTO custody SELECT violation, 0, 'X', 'evidence.view', 99999, 9 FROM custody",
    ] {
        forge(&site, &statement.replace("INSERT", "INSERT OR IGNORE")).await;
        let details = review.get(&who, &id).await.unwrap();
        let events = site.sink.events();
        assert!(
            details.custody.len() >= 5,
            "{statement}: {:?}",
            details.custody
        );
        let about = events.iter().zip(0..).filter(|(event, index)| {
            event.resource == format!("violation/{id}") || *index == details.log_index.unwrap()
        });
        let logged: Vec<(u64, &str)> = about.map(|(e, i)| (i, e.action.as_str())).collect();
        let shown: Vec<(u64, &str)> = details
            .custody
            .iter()
            .map(|step| (step.log_index, step.action.as_str()))
            .collect();
        assert_eq!(shown, logged, "{statement}");
        assert_eq!(details.custody[1].actor, "Example Officer");
        let newest = events.last().unwrap();
        assert_eq!(newest.details["custody_count"], shown.len(), "{statement}");
        let before = &logged[logged.len() - 2];
        assert_eq!(newest.details["custody_previous"], before.0, "{statement}");
    }
}

#[tokio::test]
async fn forged_decisions_are_not_shown_and_removed_ones_are() {
    let (site, public, _) = scene().await;
    let (who, id) = (site.world.reviewer(Clearance::Secret), public.violation());
    let review = site.centre.review();
    forge(
        &site,
        &format!("INSERT INTO reviews VALUES ('{id}', 1, 'r', 'Reviewer', 'accepted', 'clear')"),
    )
    .await;
    let details = review.get(&who, &id).await.unwrap();
    assert_eq!(details.reviews, []);
    assert_eq!(details.summary.state, "open");
    let page = review.list(&who, &Filter::default()).await.unwrap();
    assert!(page.rows.iter().all(|row| row.state == "open"));
    review
        .decide(&who, &id, Decision::Rejected, "blurred", 0)
        .await
        .unwrap();
    forge(&site, "DELETE FROM reviews").await;
    let details = review.get(&who, &id).await.unwrap();
    assert_eq!(details.summary.state, "rejected");
    assert_eq!(details.reviews.len(), 1);
    assert_eq!(details.reviews[0].reason, "blurred");
}

#[tokio::test]
async fn plate_and_time_of_a_list_are_those_that_the_camera_signed() {
    let (site, public, _) = scene().await;
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    let before = review.list(&who, &Filter::default()).await.unwrap();
    forge(
        &site,
        "UPDATE violations SET plate = 'XX 1', place = 'nowhere', speed_kmh = 1, limit_kmh = 2,
            kind = 'parking', captured_at = 5",
    )
    .await;
    let after = review.list(&who, &Filter::default()).await.unwrap();
    assert_eq!(before.rows, after.rows);
    // A row of a block that the log does not know is not shown.
    let id = public.violation();
    forge(
        &site,
        &format!("UPDATE violations SET id = 'v-0000000000000000' WHERE id = '{id}'"),
    )
    .await;
    let after = review.list(&who, &Filter::default()).await.unwrap();
    assert_eq!(after.rows.len(), 1);
    let forged = review.get(&who, "v-0000000000000000").await;
    assert!(matches!(forged, Err(ReviewError::NotFound(_))));
    // Where its row is gone, the archive has it.
    let details = review.get(&who, &id).await.unwrap();
    assert_eq!(details.summary.plate.as_deref(), Some("KR 4711"));
}

/// The log is read at each start: what the index says of it then does not matter.
#[tokio::test]
async fn ledger_of_a_restart_is_that_of_the_running_centre() {
    let (site, public, _) = scene().await;
    let who = site.world.reviewer(Clearance::Secret);
    let id = public.violation();
    let review = site.centre.review();
    review
        .decide(&who, &id, Decision::Accepted, "clear", 0)
        .await
        .unwrap();
    let before = review.get(&who, &id).await.unwrap();
    forge(&site, "DELETE FROM reviews; DELETE FROM custody").await;
    let site = restart(site).await;
    let mut after = site.centre.review().get(&who, &id).await.unwrap();
    assert_eq!(after.custody.len(), before.custody.len() + 1);
    after.custody.pop();
    assert_eq!(after, before);
}

/// Tables that decide or show something, without places and signatures.
pub(crate) async fn dump(site: &Site) -> Vec<(&'static str, Vec<String>)> {
    const TABLES: [(&str, &str); 6] = [
        (
            "blocks",
            "SELECT concat_ws('|', block_sha256, device, size, verdict, reason, sequence,
                manifest_sha256, log_index, receipt IS NULL) FROM blocks ORDER BY 1",
        ),
        ("chain", "SELECT concat_ws('|', device, sequence, manifest_sha256, previous, block_sha256)
                FROM chain ORDER BY 1"),
        (
            "violations",
            "SELECT concat_ws('|', v.id, block_sha256, device, unit, classification, state, sequence,
                captured_at, kind, place, latitude, longitude, speed_kmh, limit_kmh, plate, lane,
                manifest) FROM violations v JOIN violation_groups g ON g.id = v.violation_group
                JOIN audiences a ON a.id = g.audience ORDER BY 1",
        ),
        (
            "custody",
            "SELECT concat_ws('|', violation, at, actor, action, log_index, count) FROM custody
             ORDER BY violation, log_index",
        ),
        (
            "reviews",
            "SELECT concat_ws('|', violation, at, uid, name, decision, reason) FROM reviews
             ORDER BY violation, rowid",
        ),
        ("cameras", "SELECT concat_ws('|', device, accepted, quarantined, head, known, dropped)
                FROM cameras ORDER BY 1"),
    ];
    let file = site.folder.path().join("centre.sqlite");
    let options = SqliteConnectOptions::new().filename(file);
    let mut index = SqliteConnection::connect_with(&options).await.unwrap();
    let mut all = Vec::new();
    for (table, question) in TABLES {
        let rows = store::sqlx::query_scalar(question)
            .fetch_all(&mut index)
            .await;
        all.push((table, rows.unwrap()));
    }
    index.close().await.unwrap();
    all
}

/// Two rounds.
async fn scrub(site: &Site) {
    for _ in 0..4 {
        site.centre.scrub().step().await;
    }
}

fn problems(site: &Site) -> Vec<String> {
    site.centre.scrub().problems(crate::world::now())
}

#[tokio::test]
async fn scrub_of_an_untouched_site_finds_nothing() {
    let (site, public, secret) = scene().await;
    let camera = site.world.camera(CAMERA);
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    review.medium(&who, &public.violation(), 0).await.unwrap();
    let decided = secret.violation();
    let decided = review.decide(&who, &decided, Decision::Accepted, "clear", 0);
    decided.await.unwrap();
    let notice = camera.seal(&Shot {
        dropped: Some(Vec::new()),
        ..Shot::after(&secret)
    });
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    let fork = camera.seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&public)
    });
    assert!(site.deliver(CAMERA, &fork).await.reason.is_some());
    let before = (site.sink.events().len(), dump(&site).await);
    scrub(&site).await;
    assert_eq!((site.sink.events().len(), dump(&site).await), before);
    assert_eq!(problems(&site), Vec::<String>::new());
}

#[tokio::test]
async fn scrub_repairs_each_forged_row_once_and_says_so() {
    let (site, public, secret) = scene().await;
    let (who, id, hash) = (
        site.world.reviewer(Clearance::Secret),
        secret.violation(),
        secret.hash(),
    );
    let review = site.centre.review();
    review.medium(&who, &id, 0).await.unwrap();
    let decided = review.decide(&who, &id, Decision::Accepted, "clear", 0);
    decided.await.unwrap();
    let before = dump(&site).await;
    let other = public.violation();
    let statements = [
        format!(
            "UPDATE violations SET violation_group = (SELECT violation_group FROM violations
            WHERE id = '{other}') WHERE id = '{id}'"
        ),
        format!("UPDATE violations SET plate = 'XX 1' WHERE id = '{id}'"),
        format!("UPDATE violations SET manifest = '{{}}' WHERE id = '{id}'"),
        format!("UPDATE violations SET position = position + 32768000000 WHERE id = '{id}'"),
        format!("UPDATE violations SET id = 'v-0000000000000000' WHERE id = '{id}'"),
        format!("UPDATE blocks SET device = 'camera-99' WHERE block_sha256 = '{hash}'"),
        format!("UPDATE blocks SET receipt = NULL WHERE block_sha256 = '{hash}'"),
        format!(
            "UPDATE blocks SET receipt = (SELECT receipt FROM blocks
            WHERE block_sha256 <> '{hash}') WHERE block_sha256 = '{hash}'"
        ),
        format!("UPDATE blocks SET verdict = 'quarantined' WHERE block_sha256 = '{hash}'"),
        format!("UPDATE blocks SET log_index = 0 WHERE block_sha256 = '{hash}'"),
        format!("UPDATE chain SET manifest_sha256 = 'x' WHERE block_sha256 = '{hash}'"),
        format!("DELETE FROM custody WHERE violation = '{id}' AND count = 2"),
        format!("UPDATE custody SET actor = 'X' WHERE violation = '{id}' AND count = 2"),
        format!("DELETE FROM reviews WHERE violation = '{id}'"),
        format!(
            "INSERT INTO reviews SELECT violation, at + 1, uid, name, 'rejected', reason
            FROM reviews WHERE violation = '{id}'"
        ),
        format!(
            "DELETE FROM violations WHERE id = '{id}';
            UPDATE violation_groups SET count = (SELECT count(*) FROM violations
                WHERE violation_group = violation_groups.id)"
        ),
    ];
    let repairs = |site: &Site| site.events("evidence.index-repair").len();
    for (n, statement) in statements.iter().enumerate() {
        forge(&site, statement).await;
        if !statement.contains("SET position") && !statement.contains("SET receipt = (") {
            assert_ne!(dump(&site).await, before, "{statement}");
        }
        scrub(&site).await;
        for (now, before) in dump(&site).await.iter().zip(&before) {
            // The counts of a camera that was exchanged are another matter.
            if now.0 != "cameras" {
                assert_eq!(now, before, "{statement}");
            }
        }
        assert_eq!(repairs(&site), n + 1, "{statement}");
        let receipt = centre_receipt(&site, &hash).await;
        assert_eq!(receipt.block_sha256.to_string(), hash, "{statement}");
    }
    let told = site.events("evidence.index-repair");
    assert!(told.iter().all(|e| e.resource == format!("index/{hash}")));
    assert_eq!(
        site.centre.metrics().index_repaired.get(),
        statements.len() as u64
    );
    assert_eq!(problems(&site).len(), 1);
    // Numbers go on.
    review.medium(&who, &id, 0).await.unwrap();
    assert_eq!(
        site.sink.events().last().unwrap().details["custody_count"],
        5
    );
}

async fn centre_receipt(site: &Site, hash: &str) -> evidence::receipt::Receipt {
    let path = format!("/intake/v1/blocks/{hash}/receipt");
    let request = crate::site::tus("GET", &path, CAMERA);
    let answer = site.intake(request.body(axum::body::Body::empty()).unwrap());
    site.verified(&answer.await.body)
}

#[tokio::test]
async fn scrub_of_an_emptied_index_makes_every_row_again() {
    let (site, public, secret) = scene().await;
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    review.medium(&who, &public.violation(), 0).await.unwrap();
    let decided = secret.violation();
    let decided = review.decide(&who, &decided, Decision::Rejected, "x", 0);
    decided.await.unwrap();
    let before = dump(&site).await;
    forge(
        &site,
        "DELETE FROM reviews; DELETE FROM custody; DELETE FROM violations; DELETE FROM chain;
         DELETE FROM blocks; DELETE FROM cameras; DELETE FROM gaps; DELETE FROM violation_groups;
         DELETE FROM audiences; DELETE FROM arrivals",
    )
    .await;
    scrub(&site).await;
    for (now, before) in dump(&site).await.iter().zip(&before) {
        let is_time = |row: &String| row.contains("evidence.receive");
        if now.0 == "custody" {
            // The time of a receipt is more exact in the index of the intake.
            assert!(now.1.len() == before.1.len() && now.1.iter().any(is_time));
        } else {
            assert_eq!(now, before);
        }
    }
    assert_eq!(
        centre::check::index(site.folder.path()).await.unwrap(),
        vec![]
    );
}

#[tokio::test]
async fn scrub_reports_damage_of_the_archive_once_until_it_is_gone() {
    let (site, public, secret) = scene().await;
    let events = |site: &Site| site.events("evidence.archive-damage").len();
    let object = site.object("archive", &public.hash());
    let mut changed = public.bytes.clone();
    changed[public.bytes.len() / 2] ^= 1;
    let damages = [
        (None, "it is missing"),
        (Some(&public.bytes[1..]), "bytes instead of"),
        (Some(&changed[..]), "its bytes do not have its hash"),
    ];
    for (n, (bytes, what)) in damages.into_iter().enumerate() {
        std::fs::remove_file(&object).unwrap();
        if let Some(bytes) = bytes {
            std::fs::write(&object, bytes).unwrap();
        }
        scrub(&site).await;
        assert_eq!(events(&site), n + 1, "{what}");
        let told = site.events("evidence.archive-damage");
        assert!(told[n].reason.as_deref().unwrap().contains(what));
        assert_eq!(told[n].resource, format!("index/{}", public.hash()));
        assert_eq!(site.centre.metrics().archive_damaged.get(), 1);
        let [problem] = &problems(&site)[..] else {
            panic!("{:?}", problems(&site));
        };
        assert!(
            problem.contains(&public.hash()) && problem.contains(what),
            "{problem}"
        );
        std::fs::write(&object, &public.bytes).unwrap();
        scrub(&site).await;
        assert_eq!(problems(&site), Vec::<String>::new(), "{what}");
        assert_eq!(site.centre.metrics().archive_damaged.get(), 0);
    }
    assert!(site.object("archive", &secret.hash()).exists());
}

#[tokio::test]
async fn block_that_only_the_index_knows_is_reported_and_not_shown() {
    let (site, ..) = scene().await;
    let hash = "ab".repeat(32);
    forge(
        &site,
        &format!(
            "INSERT INTO blocks SELECT '{hash}', device, size, received_at, verdict, reason, 9,
                manifest_sha256, 99, receipt, NULL FROM blocks LIMIT 1"
        ),
    )
    .await;
    scrub(&site).await;
    let told = site.events("evidence.index-unknown");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].resource, format!("index/{hash}"));
    assert_eq!(problems(&site).len(), 1);
    forge(
        &site,
        &format!("DELETE FROM blocks WHERE block_sha256 = '{hash}'"),
    )
    .await;
    scrub(&site).await;
    assert_eq!(site.centre.metrics().index_unknown.get(), 0);
}

/// A start signs no receipt for what only the index says.
#[tokio::test]
async fn forged_row_without_a_receipt_gets_none() {
    let (site, public, _) = scene().await;
    let camera = site.world.camera(CAMERA);
    let fork = camera.seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&public)
    });
    assert!(site.deliver(CAMERA, &fork).await.reason.is_some());
    let (made_up, fork) = ("ab".repeat(32), fork.hash());
    forge(
        &site,
        &format!(
            "INSERT INTO blocks SELECT '{made_up}', device, size, received_at, 'accepted', '', 9,
                manifest_sha256, NULL, NULL, NULL FROM blocks LIMIT 1;
             UPDATE blocks SET verdict = 'accepted', reason = '', sequence = 2, receipt = NULL,
                manifest_sha256 = (SELECT manifest_sha256 FROM blocks WHERE sequence = 2)
                WHERE block_sha256 = '{fork}'"
        ),
    )
    .await;
    let site = restart(site).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    for block in [made_up, fork] {
        let resource = format!("block/{block}");
        let events = site.sink.events();
        let received = |e: &audit::Event| e.resource == resource && e.action == "evidence.receive";
        assert!(!events.iter().any(received), "{block}");
    }
}

/// Starts the centre again on the same log.
pub(crate) async fn restart(site: Site) -> Site {
    let Site {
        centre,
        world,
        folder,
        sink,
    } = site;
    drop(centre);
    let options = crate::site::Options {
        audit: Some(sink.clone() as Arc<dyn audit::AuditSink>),
        ..crate::site::Options::default()
    };
    let site = Site::open(world, folder, options).await;
    Site { sink, ..site }
}
