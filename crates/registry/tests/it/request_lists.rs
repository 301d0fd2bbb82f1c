//! Lists of requests a page at a time, and what is kept of each version.

use approval::{Act, Request};
use pki::clearance::Clearance;
use pki::profile::CaKind;
use registry::{RequestFilter, RequestSummary, Step, Wanted};
use store::sqlx::{self, Connection as _, SqliteConnection};
use time::Duration;

use crate::fixture::{NOW, World, key, world};
use crate::staff::{Staff, code, event, issue, rights};

/// Requests on one page.
const PAGE: usize = 50;

async fn pages(world: &World, filter: &RequestFilter) -> Vec<Vec<RequestSummary>> {
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = world
            .registry
            .request_page(filter, before.as_ref(), NOW)
            .await;
        let page = page.unwrap();
        pages.push(page.rows);
        before = page.older;
        if before.is_none() {
            return pages;
        }
    }
}

/// `count` requests about one person, two of each second, by people who take turns.
async fn many(world: &World, staff: &Staff<'_>, count: usize) -> Vec<Request> {
    let list = world.registry.list(CaKind::Users, Some("registrar-2"));
    let serial = list.await.unwrap()[0].serial.clone();
    let askers = ["applicant", "registrar-3", "registrar-4"];
    let mut requests = Vec::new();
    for (index, asker) in askers.into_iter().cycle().take(count).enumerate() {
        let wanted = Wanted {
            act: Act::Renew {
                subject: "registrar-2".to_owned(),
                serial: serial.clone(),
                clearance: Clearance::Confidential,
                rights: rights("registrar-2"),
            },
            csr: None,
        };
        let at = NOW + Duration::seconds(i64::try_from(index / 2).unwrap());
        let by = staff.principal(asker);
        let draft = world.registry.draft_request(wanted, by, "why", at).await;
        requests.push(draft.unwrap());
    }
    requests
}

#[tokio::test]
async fn pages_have_every_request_once_and_the_latest_first() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let requests = many(&world, &staff, 2 * PAGE + 1).await;
    let about = RequestFilter::Subject("registrar-2".to_owned());
    let draft = RequestFilter::State("draft".to_owned());
    for filter in [RequestFilter::All, RequestFilter::Waiting, about, draft] {
        let pages = pages(&world, &filter).await;
        let sizes: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(sizes, [PAGE, PAGE, 1], "{filter:?}");
        let rows: Vec<RequestSummary> = pages.concat();
        let in_order = |pair: &[RequestSummary]| {
            (pair[0].changed_at, &pair[0].id) > (pair[1].changed_at, &pair[1].id)
        };
        assert!(rows.windows(2).all(in_order), "{filter:?}");
        let mut found: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut made: Vec<&str> = requests.iter().map(|r| r.id().0.as_str()).collect();
        found.sort_unstable();
        made.sort_unstable();
        assert_eq!(found, made, "{filter:?}");
    }
    for nothing in [
        RequestFilter::State("refused".to_owned()),
        RequestFilter::State("' OR 1=1".to_owned()),
        RequestFilter::Subject("registrar".to_owned()),
    ] {
        assert_eq!(pages(&world, &nothing).await, [Vec::new()], "{nothing:?}");
    }
    // One that is over leaves the queue and stays in the other lists.
    staff
        .step(&requests[0], Step::Withdraw, "applicant")
        .await
        .unwrap();
    let waiting = pages(&world, &RequestFilter::Waiting).await.concat();
    assert_eq!(waiting.len(), 2 * PAGE);
    let all = pages(&world, &RequestFilter::All).await.concat();
    assert_eq!(all.len(), 2 * PAGE + 1);
}

#[tokio::test]
async fn a_page_is_read_from_an_index_without_sorting() {
    let world = world().await;
    let file = world.folder.path().join("registry.sqlite");
    let mut book = SqliteConnection::connect(&file.to_string_lossy())
        .await
        .unwrap();
    for (index, condition) in [
        ("requests_open", "WHERE open = 1 AND"),
        ("requests_by_state", "WHERE state = 'draft' AND"),
        ("requests_by_subject", "WHERE subject = 'x' AND"),
        ("requests_by_change", "WHERE"),
    ] {
        let query = format!(
            "EXPLAIN QUERY PLAN SELECT id FROM requests INDEXED BY {index} {condition}
             (changed_at, id) < (7, 'a') ORDER BY changed_at DESC, id DESC LIMIT 51"
        );
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .fetch_all(&mut book)
            .await
            .unwrap();
        let plan: Vec<String> = plan.into_iter().map(|row| row.3).collect();
        assert_eq!(plan.len(), 1, "{plan:?}");
        let searched = plan[0].starts_with("SEARCH") && plan[0].contains(index);
        assert!(searched, "{plan:?}");
    }
}

#[tokio::test]
async fn history_keeps_each_content_and_events_say_by_which_certificate_and_what_was_before() {
    let world = world().await;
    let staff = Staff::new(&world.registry).await;
    let key = key();
    let by = staff.principal("applicant");
    let address = Some("192.0.2.7".parse().unwrap());
    let wanted = issue("camera-17", &key, Clearance::Secret);
    let registry = world.registry.at_address(address);
    let draft = registry
        .draft_request(wanted, by, "new", NOW)
        .await
        .unwrap();
    let other = crate::fixture::key();
    let edit = Step::Edit {
        wanted: Box::new(issue("camera-18", &other, Clearance::Secret)),
        reason: "other road".to_owned(),
    };
    let edited = staff.step(&draft, edit, "applicant").await.unwrap();
    let asked = staff
        .step(&edited, Step::Submit, "applicant")
        .await
        .unwrap();
    let record = registry.request(&draft.id().0).await.unwrap();
    let subjects: Vec<Option<&str>> = record
        .history
        .iter()
        .map(|change| change.content.as_ref()?.act.subject())
        .collect();
    assert_eq!(subjects, [Some("camera-17"), Some("camera-18"), None]);
    // What others see as JSON is as it was.
    let json = serde_json::to_value(&record.history).unwrap();
    assert!(json[0].get("content").is_none(), "{json}");

    let began = event(&world, "request.draft");
    assert_eq!(began.details["address"], "192.0.2.7");
    let certificate = &staff.members["applicant"].certificate;
    let login = format!("certificate {}", pki::cert::fingerprint_sha256(certificate));
    let told = event(&world, "request.edit");
    for event in [&began, &told, &event(&world, "request.submit")] {
        assert_eq!(event.details["login"], login.as_str());
    }
    let old = told.details["old_act"].as_str().unwrap();
    assert!(
        old.contains("camera-17") && !old.contains("camera-18"),
        "{old}"
    );
    assert_eq!(told.details["old_why"], "new");
    assert_eq!(told.details["why"], "other road");

    // Earlier versions of the program kept no content.
    let file = world.folder.path().join("registry.sqlite");
    let mut book = SqliteConnection::connect(&file.to_string_lossy())
        .await
        .unwrap();
    sqlx::query("UPDATE request_history SET content = NULL")
        .execute(&mut book)
        .await
        .unwrap();
    let record = registry.request(&draft.id().0).await.unwrap();
    assert!(record.history.iter().all(|change| change.content.is_none()));
    assert_eq!(record.history.len(), 3);

    // A signature over what it said before is none over what it says now, whoever made it.
    let member = &staff.members["registrar-3"];
    let stale = Step::Approve {
        certificate: member.certificate.clone(),
        signature: member.key.sign(&draft.statement().unwrap()).unwrap(),
    };
    let replayed = staff.step(&asked, stale, "registrar-3").await;
    assert_eq!(code(replayed), "bad-signature");
}
