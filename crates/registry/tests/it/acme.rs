//! Servers that enrol over ACME, and what is refused to others.

use std::collections::BTreeSet;

use pki::CertificateChain;
use pki::acme::to_base64url;
use pki::name::{AltName, Subject};
use pki::path::Purpose;
use pki::profile::CaKind;
use serde_json::{Value, json};
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::sqlx::{self, Connection as _};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::acme_client::{
    Answer, Client, acme_world, at, binding, count, csr_for, events, get, invite, jwk, last_code,
    secret, send, signed,
};
use crate::completeness::{book, unordered_gaps};
use crate::fixture::{NOW, key, registrar};

const WEB: &str = "web-1.police.example";
const ALIAS: &str = "intranet.police.example";
const BOTH: [&str; 2] = [ALIAS, WEB];

fn chain(pem: &str) -> CertificateChain {
    CertificateChain::from_pem(pem).unwrap()
}

fn serial(pem: &str) -> String {
    pki::cert::serial_hex(chain(pem).leaf())
}

#[tokio::test]
async fn server_enrols_renews_and_revokes_by_its_account() {
    let world = acme_world().await;
    let invited = invite(&world, &[WEB, ALIAS], 2).await;
    assert_eq!(invited.names, [WEB, ALIAS]);
    let client = Client::enrolled(&world.registry, &invited).await;
    let order = client.order(&BOTH).await.ok();
    let value = order.json();
    assert_eq!(
        (order.status.as_u16(), &value["status"]),
        (201, &json!("ready"))
    );
    for address in value["authorizations"].as_array().unwrap() {
        let one = client
            .post(address.as_str().unwrap(), &Value::Null)
            .await
            .ok()
            .json();
        assert_eq!(
            (&one["status"], &one["challenges"]),
            (&json!("valid"), &json!([]))
        );
    }
    let mine = key();
    let done = client
        .finalize(&order, &csr_for(&BOTH, &mine))
        .await
        .ok()
        .json();
    assert_eq!(done["status"], "valid");
    let address = done["certificate"].as_str().unwrap();
    let pem = client.post(address, &Value::Null).await.ok();
    assert_eq!(
        pem.header("content-type"),
        "application/pem-certificate-chain"
    );
    let first = chain(&pem.text);
    assert_eq!(first.certificates().len(), 2);
    let names = pki::cert::alt_names(first.leaf()).unwrap();
    assert_eq!(names, BOTH.map(|name| AltName::Dns(name.to_owned())));
    let subject = Subject::from_name(&first.leaf().tbs_certificate.subject).unwrap();
    assert_eq!(subject.common_name, WEB);
    // It is for servers alone: nobody is let in by it.
    let admitted = world
        .registry
        .admit(first.ders(), Purpose::ClientEnrolment, NOW);
    assert!(admitted.await.is_err());

    // The answer got lost: the same key gets the same order, another one nothing.
    let again = client
        .finalize(&order, &csr_for(&BOTH, &mine))
        .await
        .ok()
        .json();
    assert_eq!(again["certificate"], done["certificate"]);
    let other = client.finalize(&order, &csr_for(&BOTH, &key())).await;
    assert_eq!(other.problem(), ("orderNotReady".to_owned(), 403));

    // A renewal that nobody downloads is none; two certificates are good at a time.
    let order = client.order(&[WEB]).await.ok();
    client.finalize(&order, &csr_for(&[WEB], &key())).await.ok();
    let second = client.certificate(&[WEB], &key()).await.unwrap();
    let third = client.certificate(&BOTH, &mine).await.unwrap();
    let used_up = client.certificate(&BOTH, &key()).await;
    assert_eq!(used_up, Err(("unauthorized".to_owned(), 403)));
    assert_eq!(last_code(&world), "no-renewals-left");
    let superseded: BTreeSet<String> = world
        .audit
        .events()
        .into_iter()
        .filter(|event| event.action == "certificate.supersede")
        .map(|event| event.details["serial"].as_str().unwrap().to_owned())
        .collect();
    let all = world
        .registry
        .list(CaKind::Services, Some(WEB))
        .await
        .unwrap();
    let mut good: Vec<String> = all.into_iter().map(|one| one.serial).collect();
    good.retain(|serial| !superseded.contains(serial));
    assert_eq!(good, [serial(&third), serial(&second)]);
    assert_eq!(superseded.len(), 2);

    let der = to_base64url(chain(&third).ders()[0].as_ref());
    let revoke = json!({ "certificate": der, "reason": 1 });
    client.post(&at("revoke-cert"), &revoke).await.ok();
    let again = client.post(&at("revoke-cert"), &revoke).await;
    assert_eq!(again.problem(), ("alreadyRevoked".to_owned(), 400));
    let listed = world
        .registry
        .issued(CaKind::Services, &serial(&third))
        .await
        .unwrap();
    assert_eq!(listed.revoked.unwrap().reason, "key-compromise");
    // The log alone shows that each has the invitation's names.
    let found = unordered_gaps(&world.registry, &events(&world), &book(&world.folder).await);
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn time_of_renewal_is_told_of_servers_certificates_and_is_past_for_revoked_ones() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 1).await).await;
    let issued = chain(&client.certificate(&[WEB], &key()).await.unwrap());
    let id = |certificate: &pki::Certificate, authority: Option<&[u8]>| {
        let own = pki::cert::authority_key_id(certificate).unwrap();
        let number = certificate.tbs_certificate.serial_number.as_bytes();
        let authority = authority.unwrap_or(&own);
        format!("{}.{}", to_base64url(authority), to_base64url(number))
    };
    let ask = async |id: &str| {
        let path = format!("/acme/renewal-info/{id}");
        send(&client.router, get(&path)).await
    };
    let mine = id(issued.leaf(), None);
    let told = ask(&mine).await.ok();
    assert_eq!(told.header("retry-after"), "21600");
    let instant = |answer: &Answer, name: &str| {
        let text = answer.json()["suggestedWindow"][name]
            .as_str()
            .unwrap()
            .to_owned();
        OffsetDateTime::parse(&text, &Rfc3339).unwrap()
    };
    let end = issued.leaf().tbs_certificate.validity.not_after;
    let end = OffsetDateTime::from(end.to_system_time());
    assert!(NOW < instant(&told, "start") && instant(&told, "start") < instant(&told, "end"));
    assert!(instant(&told, "end") < end);
    let site = vec![AltName::Dns("portal.example".to_owned())];
    let site = world
        .registry
        .issue_server(site, key().spki(), registrar(), NOW)
        .await
        .unwrap();
    let [first, _] = mine.split('.').collect::<Vec<_>>().try_into().unwrap();
    for other in [
        id(issued.leaf(), Some(&[7; 20])),
        id(site.chain.leaf(), None),
        format!("{first}.AQ"),
        format!("{first}.="),
        first.to_owned(),
        "A".repeat(65),
    ] {
        assert_eq!(ask(&other).await.status.as_u16(), 404, "{other}");
    }
    let revoke = json!({ "certificate": to_base64url(&pki::cert::to_der(issued.leaf()).unwrap()) });
    client.post(&at("revoke-cert"), &revoke).await.ok();
    let told = ask(&mine).await.ok();
    assert!(instant(&told, "end") <= NOW);
}

/// Else a site that is killed between the two would say of a certificate that there is none.
#[tokio::test]
async fn step_of_a_first_certificate_ends_in_the_transaction_that_issues_it() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 1).await).await;
    // Looks, as often as it can, for the one without the other.
    let file = SqliteConnectOptions::new().filename(world.folder.path().join("registry.sqlite"));
    let mut other = SqliteConnection::connect_with(&file.read_only(true))
        .await
        .unwrap();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let looking = tokio::spawn(async move {
        let mut looks = 0_u64;
        while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
            let waits: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM invitations i JOIN request_steps s ON s.request = i.id
                 WHERE i.used_serial IS NOT NULL)",
            )
            .fetch_one(&mut other)
            .await
            .unwrap();
            assert!(!waits, "the step waits still");
            looks += 1;
        }
        looks
    });
    client.certificate(&[WEB], &key()).await.unwrap();
    stop.send(()).unwrap();
    assert!(looking.await.unwrap() > 10);
    assert_eq!(count(&world, "request_steps").await, 0);
    let found = unordered_gaps(&world.registry, &events(&world), &book(&world.folder).await);
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn log_with_another_name_than_the_invitation_has_shows_a_gap() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 2).await).await;
    client.certificate(&[WEB], &key()).await.unwrap();
    client.certificate(&[WEB], &key()).await.unwrap();
    let book = book(&world.folder).await;
    let with = |action: &str, names: Value| {
        let change = |mut event: audit::Event| {
            if event.action == action && event.details.contains_key("names") {
                event.details.insert("names".to_owned(), names.clone());
            }
            event
        };
        events(&world).into_iter().map(change).collect::<Vec<_>>()
    };
    let gaps = |events: &[audit::Event]| unordered_gaps(&world.registry, events, &book);
    assert_eq!(gaps(&events(&world)), Vec::<String>::new());
    let fewer = gaps(&with("enrolment.invite", json!("db.example")));
    assert_eq!(
        fewer
            .iter()
            .filter(|gap| gap.contains("another name"))
            .count(),
        2,
        "{fewer:?}"
    );
    let other = gaps(&with(
        "certificate.issue",
        json!(format!("{WEB} db.example")),
    ));
    assert!(
        other
            .iter()
            .any(|gap| gap.contains("another list of names")),
        "{other:?}"
    );
}

#[tokio::test]
async fn no_certificate_has_a_name_that_the_invitation_does_not_hold() {
    let world = acme_world().await;
    let own = ["a.example", "b.example", "c.example"];
    let all = [
        "a.example",
        "b.example",
        "c.example",
        "x.example",
        "*.example",
    ];
    invite(&world, &["x.example"], 0).await;
    let client = Client::enrolled(&world.registry, &invite(&world, &own, 10).await).await;
    let subset = |bits: u32| {
        let chosen = all.iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0);
        chosen.map(|(_, name)| *name).collect::<Vec<_>>()
    };
    let mine = key();
    for ordered in 1..32_u32 {
        let order = client.order(&subset(ordered)).await;
        let allowed = ordered < 8;
        assert_eq!(order.status.is_success(), allowed, "{ordered}");
        if !allowed {
            assert_eq!(order.problem(), ("rejectedIdentifier".to_owned(), 403));
            assert!(!order.json()["subproblems"].as_array().unwrap().is_empty());
            continue;
        }
        for asked in (0..32).filter(|asked| *asked != ordered) {
            let done = client
                .finalize(&order, &csr_for(&subset(asked), &mine))
                .await;
            assert_eq!(
                done.problem(),
                ("badCSR".to_owned(), 400),
                "{ordered} {asked}"
            );
        }
        client
            .finalize(&order, &csr_for(&subset(ordered), &mine))
            .await
            .ok();
    }
    let issued = world.registry.list(CaKind::Services, None).await.unwrap();
    assert_eq!(issued.len(), 7);
    for record in issued {
        let certificate = pki::cert::from_der(&record.certificate).unwrap();
        for name in pki::cert::alt_names(&certificate).unwrap() {
            assert!(
                own.iter()
                    .any(|own| name == AltName::Dns((*own).to_owned())),
                "{name:?}"
            );
        }
    }
}

#[tokio::test]
async fn binding_is_good_once_for_its_invitation_and_its_key() {
    let world = acme_world().await;
    let (web, db) = (
        invite(&world, &[WEB], 0).await,
        invite(&world, &["db.example"], 0).await,
    );
    let url = at("new-account");
    let client = Client::new(&world.registry);
    let own = jwk(&client.key);
    let stranger = jwk(&key());
    let good = secret(&web);
    let foreign = secret(&db);
    for (bound, problem, code) in [
        (
            binding(&foreign, &web.id, &url, &own),
            "unauthorized",
            "wrong-code",
        ),
        (
            binding(&good, &db.id, &url, &own),
            "unauthorized",
            "wrong-code",
        ),
        (
            binding(&good, "0123456789ab", &url, &own),
            "unauthorized",
            "unauthorised",
        ),
        (
            binding(&good, WEB, &url, &own),
            "unauthorized",
            "unauthorised",
        ),
        (
            binding("AAAA", &web.id, &url, &own),
            "unauthorized",
            "wrong-code",
        ),
        (
            binding(&good, &web.id, &at("new-order"), &own),
            "malformed",
            "acme-binding-mismatch",
        ),
        (
            binding(&good, &web.id, &url, &stranger),
            "malformed",
            "acme-binding-mismatch",
        ),
        (
            signed(
                &client.key,
                &json!({ "alg": "ES256", "kid": web.id, "url": url }),
                &own,
            ),
            "malformed",
            "acme-payload",
        ),
        (
            json!({ "protected": "e30", "payload": "", "signature": "" }),
            "malformed",
            "acme-payload",
        ),
    ] {
        let answer = client
            .post_with_jwk(&url, &json!({ "externalAccountBinding": bound }))
            .await;
        assert_eq!(answer.problem().0, problem, "{code}");
        assert_eq!(last_code(&world), code);
    }
    let none = client
        .post_with_jwk(&url, &json!({ "contact": ["mailto:a@b.example"] }))
        .await;
    assert_eq!(none.problem(), ("externalAccountRequired".to_owned(), 403));
    let only = client
        .post_with_jwk(&url, &json!({ "onlyReturnExisting": true }))
        .await;
    assert_eq!(only.problem(), ("accountDoesNotExist".to_owned(), 400));
    assert_eq!(count(&world, "acme_accounts").await, 0);

    let made = client.register(&web.id, &good).await.ok();
    assert_eq!(
        (made.status.as_u16(), &made.json()["status"]),
        (201, &json!("valid"))
    );
    // The same key has its account, whatever binding it shows; another one has none by a code that was used.
    let again = client.register(&db.id, &foreign).await.ok();
    assert_eq!(again.status.as_u16(), 200);
    assert_eq!(again.header("location"), made.header("location"));
    let only = client
        .post_with_jwk(&url, &json!({ "onlyReturnExisting": true }))
        .await
        .ok();
    assert_eq!(only.header("location"), made.header("location"));
    let twice = Client::new(&world.registry).register(&web.id, &good).await;
    assert_eq!(twice.problem(), ("unauthorized".to_owned(), 403));
    let late = Client::new(&world.registry);
    *late.clock.lock().unwrap() = NOW + Duration::hours(24);
    let late = late.register(&db.id, &foreign).await;
    assert_eq!(late.problem(), ("unauthorized".to_owned(), 403));
    assert_eq!(count(&world, "acme_accounts").await, 1);
    assert_eq!(
        count(&world, "invitations WHERE sealed IS NOT NULL").await,
        1
    );
    // A later invitation voids the account of one that gave nothing yet, and its account ends the former one.
    let again = invite(&world, &[WEB], 0).await;
    let mut first = client;
    first.kid = made.header("location").to_owned();
    let void = first.order(&[WEB]).await;
    assert_eq!(void.problem(), ("unauthorized".to_owned(), 403));
    assert_eq!(last_code(&world), "acme-account-ended");
    let second = Client::enrolled(&world.registry, &again).await;
    second.certificate(&[WEB], &key()).await.unwrap();
    let third = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    let ended = second.order(&[WEB]).await;
    assert_eq!(ended.problem(), ("unauthorized".to_owned(), 403));
    third.certificate(&[WEB], &key()).await.unwrap();
}

#[tokio::test]
async fn wrong_bindings_are_counted_and_the_right_one_is_always_taken() {
    let world = acme_world().await;
    let web = invite(&world, &[WEB], 0).await;
    for kid in [web.id.as_str(), "ffffffffffff"] {
        let mut answers = Vec::new();
        for _ in 0..11 {
            let answer = Client::new(&world.registry).register(kid, "AAAA").await;
            answers.push(answer.problem());
        }
        let last = answers.pop().unwrap();
        assert_eq!(last, ("rateLimited".to_owned(), 429));
        assert!(
            answers
                .iter()
                .all(|one| *one == ("unauthorized".to_owned(), 403))
        );
    }
    Client::enrolled(&world.registry, &web).await;
}

#[tokio::test]
async fn nobody_reaches_what_is_another_accounts() {
    let world = acme_world().await;
    let web = Client::enrolled(&world.registry, &invite(&world, &[WEB], 1).await).await;
    let db = Client::enrolled(&world.registry, &invite(&world, &["db.example"], 1).await).await;
    let order = db.order(&["db.example"]).await.ok();
    let csr = csr_for(&["db.example"], &key());
    let stolen = web.finalize(&order, &csr).await;
    assert_eq!(stolen.problem(), ("malformed".to_owned(), 404));
    let done = db.finalize(&order, &csr).await.ok().json();
    let pem = db
        .post(done["certificate"].as_str().unwrap(), &Value::Null)
        .await
        .ok()
        .text;
    for url in [
        order.header("location"),
        done["certificate"].as_str().unwrap(),
        done["authorizations"][0].as_str().unwrap(),
        &db.kid,
        &format!("{}/orders", db.kid),
    ] {
        let answer = web.post(url, &Value::Null).await;
        assert_eq!(answer.problem(), ("malformed".to_owned(), 404), "{url}");
        let own = db.post(url, &Value::Null).await;
        assert!(own.status.is_success(), "{url}");
    }
    let ended = web.post(&db.kid, &json!({ "status": "deactivated" })).await;
    assert_eq!(ended.problem(), ("malformed".to_owned(), 404));
    let der = to_base64url(chain(&pem).ders()[0].as_ref());
    let revoke = json!({ "certificate": der });
    let answer = web.post(&at("revoke-cert"), &revoke).await;
    assert_eq!(answer.problem(), ("unauthorized".to_owned(), 403));
    let answer = web.post_with_jwk(&at("revoke-cert"), &revoke).await;
    assert_eq!(answer.problem(), ("unauthorized".to_owned(), 403));
    // Nothing is changed where there is only something to read.
    let order = order.header("location").to_owned();
    let authorization = done["authorizations"][0].as_str().unwrap();
    for url in [order.as_str(), authorization] {
        let answer = db.post(url, &json!({ "status": "deactivated" })).await;
        assert_eq!(answer.problem(), ("unauthorized".to_owned(), 403));
    }
}
