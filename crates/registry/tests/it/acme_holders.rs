//! States, keys and bounds of servers and their accounts.

use std::sync::Arc;

use pki::CertificateChain;
use pki::acme::to_base64url;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::PrivateKey;
use pki::name::{AltName, Subject};
use pki::profile::{CaKind, Profile};
use registry::{
    Approvals, Config, HolderChange, HolderState, Invitation, MAX_RENEWALS, Registration, Registry,
    RegistryError,
};
use serde_json::{Value, json};
use time::Duration;

use crate::acme_client::{
    Client, acme_config, acme_world, at, count, csr_for, execute, invite, jwk, last_code, secret,
    server, signed, try_invite,
};
use crate::fixture::{Broken, NOW, SECRETS, World, an_order, key, registrar};

const WEB: &str = "web-1.police.example";
const FORBIDDEN: (&str, u16) = ("unauthorized", 403);

async fn change(world: &World, change: HolderChange) {
    let changed = world
        .registry
        .change_holder(CaKind::Services, WEB, change, an_order(), NOW);
    changed.await.unwrap();
}

fn owned((kind, status): (&str, u16)) -> (String, u16) {
    (kind.to_owned(), status)
}

async fn reopened(world: World, config: Config) -> World {
    world.registry.close(NOW).await;
    let (sink, secret) = (world.audit.clone(), &SECRETS.issuing);
    let opened = Registry::open(world.folder.path(), config, secret, sink, NOW);
    World {
        registry: opened.await.unwrap(),
        ..world
    }
}

#[tokio::test]
async fn suspended_server_gets_nothing_and_a_revoked_one_loses_its_account() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 5).await).await;
    let order = client.order(&[WEB]).await.ok();
    client.certificate(&[WEB], &key()).await.unwrap();
    change(&world, HolderChange::Suspend).await;
    let mut events = world.audit.events();
    let listed = events.pop().unwrap();
    assert_eq!(listed.action, "revocation-list.add");
    let event = events.pop().unwrap();
    assert_eq!(
        (event.action.as_str(), event.resource.as_str()),
        ("server.suspend", "server/web-1.police.example")
    );
    assert_eq!(client.order(&[WEB]).await.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "holder-suspended");
    let order = order.json();
    let url = order["finalize"].as_str().unwrap();
    let finalized = client
        .post(url, &json!({ "csr": csr_for(&[WEB], &key()) }))
        .await;
    assert_eq!(finalized.problem(), owned(FORBIDDEN));
    // Nor does it read what it has ordered, or end its account.
    let certificate = url.replace("finalize", "certificate");
    let deactivate = json!({ "status": "deactivated" });
    for (url, payload) in [(&certificate, &Value::Null), (&client.kid, &deactivate)] {
        let answer = client.post(url, payload).await;
        assert_eq!(answer.problem(), owned(FORBIDDEN), "{url}");
    }
    change(&world, HolderChange::Resume).await;
    let pem = client.certificate(&[WEB], &key()).await.unwrap();
    change(
        &world,
        HolderChange::Revoke(RevocationReason::KeyCompromise),
    )
    .await;
    let serial = pki::cert::serial_hex(CertificateChain::from_pem(&pem).unwrap().leaf());
    let record = world
        .registry
        .issued(CaKind::Services, &serial)
        .await
        .unwrap();
    assert!(record.revoked.is_some());
    assert_eq!(client.order(&[WEB]).await.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "acme-account-ended");
    let refused = try_invite(&world, &server(&[WEB], 0)).await;
    assert!(matches!(refused, Err(RegistryError::Holder(_))));
    // Readmitted, it begins anew; whoever has the old account's key has nothing.
    change(&world, HolderChange::Readmit).await;
    assert_eq!(client.order(&[WEB]).await.problem(), owned(FORBIDDEN));
    let anew = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    anew.certificate(&[WEB], &key()).await.unwrap();
    let again = client.register("0123456789ab", "AAAA").await;
    assert_eq!(again.problem(), owned(FORBIDDEN));
    let state = world
        .registry
        .holder_state(CaKind::Services, WEB)
        .await
        .unwrap();
    assert_eq!(state.unwrap().0, HolderState::Enrolled);
}

#[tokio::test]
async fn server_that_was_invited_and_suspended_gets_no_account() {
    let world = acme_world().await;
    let invited = invite(&world, &[WEB], 0).await;
    change(&world, HolderChange::Suspend).await;
    let client = Client::new(&world.registry);
    let refused = client.register(&invited.id, &secret(&invited)).await;
    assert_eq!(refused.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "holder-suspended");
    assert_eq!(count(&world, "acme_accounts").await, 0);
}

#[tokio::test]
async fn keys_are_strong_the_servers_own_and_no_accounts() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 5).await).await;
    let other = Client::enrolled(&world.registry, &invite(&world, &["db.example"], 5).await).await;
    let of_other = key();
    other.certificate(&["db.example"], &of_other).await.unwrap();
    let refused = |outcome: Result<String, (String, u16)>, code: &str| {
        assert_eq!(outcome.unwrap_err(), owned(("badCSR", 400)), "{code}");
        assert_eq!(last_code(&world), code);
    };
    refused(
        client.certificate(&[WEB], &client.key).await,
        "key-of-account",
    );
    refused(
        client.certificate(&[WEB], &other.key).await,
        "key-of-account",
    );
    refused(client.certificate(&[WEB], &of_other).await, "key-in-use");
    let order = client.order(&[WEB]).await.ok();
    let mut changed = pki::acme::from_base64url(&csr_for(&[WEB], &key())).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    let roca = std::fs::read("../pki/tests/data/roca-2048.csr").unwrap();
    for (csr, code) in [
        (to_base64url(&roca), "key-roca"),
        (to_base64url(b"no request"), "csr-refused"),
        (to_base64url(&changed), "not-proven"),
    ] {
        let answer = client.finalize(&order, &csr).await;
        assert_eq!(answer.problem(), owned(("badCSR", 400)), "{code}");
        assert_eq!(last_code(&world), code);
    }
    let mine = key();
    client.certificate(&[WEB], &mine).await.unwrap();
    // The server's own key may be certified again, as it may for devices, until it is compromised.
    let again = client.certificate(&[WEB], &mine).await.unwrap();
    let der = to_base64url(CertificateChain::from_pem(&again).unwrap().ders()[0].as_ref());
    let revoke = json!({ "certificate": der, "reason": 1 });
    client.post(&at("revoke-cert"), &revoke).await.ok();
    refused(client.certificate(&[WEB], &mine).await, "key-in-use");
    refused(client.certificate(&[WEB], &of_other).await, "key-in-use");
    // A certificate's key gets no account.
    let mut thief = Client::new(&world.registry);
    thief.key = of_other;
    let third = invite(&world, &["mail.example"], 0).await;
    let taken = thief.register(&third.id, &secret(&third)).await;
    assert_eq!(taken.problem(), owned(("badPublicKey", 400)));
}

#[tokio::test]
async fn certificates_own_key_revokes_it() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    let mine = key();
    let pem = client.certificate(&[WEB], &mine).await.unwrap();
    let der = to_base64url(CertificateChain::from_pem(&pem).unwrap().ders()[0].as_ref());
    let mut owner = Client::new(&world.registry);
    owner.key = mine;
    let url = at("revoke-cert");
    for reason in [2, 6, 7, 8, 9, 10, u64::MAX] {
        let answer = owner
            .post_with_jwk(&url, &json!({ "certificate": der, "reason": reason }))
            .await;
        assert_eq!(answer.problem(), owned(("badRevocationReason", 400)));
    }
    for certificate in [
        to_base64url(b"none"),
        to_base64url(&pki::cert::to_der(world.registry.root()).unwrap()),
    ] {
        let answer = owner
            .post_with_jwk(&url, &json!({ "certificate": certificate }))
            .await;
        assert_eq!(answer.problem(), owned(("malformed", 404)));
    }
    owner
        .post_with_jwk(&url, &json!({ "certificate": der }))
        .await
        .ok();
    let again = owner
        .post_with_jwk(&url, &json!({ "certificate": der }))
        .await;
    assert_eq!(again.problem(), owned(("alreadyRevoked", 400)));
}

fn key_change(client: &Client, new: &PrivateKey, account: &str, old: &Value, url: &str) -> Value {
    let header = json!({ "alg": "ES256", "jwk": jwk(new), "url": url });
    signed(
        new,
        &header,
        &json!({ "account": account, "oldKey": old, "by": client.kid }),
    )
}

#[tokio::test]
async fn account_changes_its_key_by_both_and_is_deactivated() {
    let world = acme_world().await;
    let mut client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    let other = Client::enrolled(&world.registry, &invite(&world, &["db.example"], 0).await).await;
    let (url, new, old) = (at("key-change"), key(), jwk(&client.key));
    let own = client.kid.clone();
    for (body, problem) in [
        (
            key_change(&client, &new, &other.kid, &old, &url),
            ("malformed", 400),
        ),
        (
            key_change(&client, &new, &own, &jwk(&new), &url),
            ("malformed", 400),
        ),
        (
            key_change(&client, &new, &own, &old, &at("new-order")),
            ("malformed", 400),
        ),
        (
            key_change(&client, &client.key, &own, &old, &url),
            ("malformed", 409),
        ),
        (
            key_change(&client, &other.key, &own, &old, &url),
            ("malformed", 409),
        ),
        (json!({ "account": own, "oldKey": old }), ("malformed", 400)),
    ] {
        let answer = client.post(&url, &body).await;
        assert_eq!(answer.problem(), owned(problem), "{body}");
        if problem.1 == 409 {
            assert!(answer.header("location").starts_with(&at("account/")));
        }
    }
    let mut forged = key_change(&client, &new, &own, &old, &url);
    forged["signature"] = json!(to_base64url(&[1; 64]));
    let answer = client.post(&url, &forged).await;
    assert_eq!(answer.problem(), owned(FORBIDDEN));
    let change = key_change(&client, &new, &own, &old, &url);
    client.post(&url, &change).await.ok();
    assert_eq!(client.order(&[WEB]).await.problem(), owned(FORBIDDEN));
    client.key = new;
    client.certificate(&[WEB], &key()).await.unwrap();
    let event = world.audit.events().into_iter().find(|event| {
        event.action == "enrolment.account-key" && event.outcome == audit::Outcome::Ok
    });
    assert!(event.unwrap().details.contains_key("new"));

    let refused = client.post(&own, &json!({ "status": "valid" })).await;
    assert_eq!(refused.problem(), owned(("malformed", 400)));
    let kept = client.post(&own, &json!({ "contact": [] })).await.ok();
    assert_eq!(kept.json()["status"], "valid");
    let ended = client
        .post(&own, &json!({ "status": "deactivated" }))
        .await
        .ok();
    assert_eq!(ended.json()["status"], "deactivated");
    for answer in [
        client.order(&[WEB]).await,
        client.post(&own, &Value::Null).await,
        client.register("0123456789ab", "AAAA").await,
    ] {
        assert_eq!(answer.problem(), owned(FORBIDDEN));
        assert_eq!(last_code(&world), "acme-account-ended");
    }
}

#[tokio::test]
async fn floods_of_orders_requests_and_renewals_have_their_bounds() {
    let world = acme_world().await;
    let names: Vec<String> = (0..16).map(|n| format!("n{n}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let client = Client::enrolled(&world.registry, &invite(&world, &names, 10).await).await;
    let mut refused = 0;
    for round in 0..3 {
        for name in &names {
            let answer = client.order(&[name]).await;
            if !answer.status.is_success() {
                assert_eq!(answer.problem(), owned(("rateLimited", 429)));
                assert!(answer.header("retry-after").parse::<u32>().is_ok());
                refused += 1;
            }
        }
        assert_eq!(count(&world, "acme_orders").await, 8, "{round}");
    }
    assert_eq!(refused, 24);
    // They make room once their hour is over.
    *client.clock.lock().unwrap() = NOW + Duration::hours(1);
    let mut issued = 0_u32;
    let outcome = loop {
        let order = client.order(&names[..1]).await.ok();
        let done = client.finalize(&order, &csr_for(&names[..1], &key())).await;
        if !done.status.is_success() {
            break done.problem();
        }
        issued += 1;
    };
    assert_eq!(outcome, owned(("rateLimited", 429)));
    assert_eq!(issued, 1 + MAX_RENEWALS);
    assert!(count(&world, "acme_orders").await <= 16);
    let mut last = client.order(&names[..1]).await;
    for _ in 0..300 {
        last = client.post(&client.kid, &Value::Null).await;
        if last.status.as_u16() == 429 {
            break;
        }
    }
    assert_eq!(last.problem(), owned(("rateLimited", 429)));
    // What is refused for that uses up no nonce: the memory of those is of all accounts.
    let header = json!({ "alg": "ES256", "nonce": client.nonce().await, "url": client.kid, "kid": client.kid });
    let again = signed(&client.key, &header, &Value::Null);
    for _ in 0..2 {
        let refused = client.deliver(&client.kid, &again).await;
        assert_eq!(refused.problem(), owned(("rateLimited", 429)));
    }
    // Nobody else is kept out by it, and nothing is recorded without end.
    let other = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    other.certificate(&[WEB], &key()).await.unwrap();
    let denied = world
        .audit
        .events()
        .into_iter()
        .filter(|event| event.outcome == audit::Outcome::Deny);
    assert!(denied.count() < 60);
}

#[tokio::test]
async fn order_whose_row_was_changed_gets_no_other_names() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 1).await).await;
    for names in ["other.example", "", "web.example other.example"] {
        let order = client.order(&[WEB]).await.ok();
        let change = format!("UPDATE acme_orders SET names = '{names}' WHERE serial IS NULL");
        execute(&world, &change).await;
        let names: Vec<&str> = names.split_whitespace().collect();
        let refused = client.finalize(&order, &csr_for(&names, &key())).await;
        assert_eq!(
            refused.problem(),
            owned(("orderNotReady", 403)),
            "{names:?}"
        );
    }
    client.certificate(&[WEB], &key()).await.unwrap();
}

#[tokio::test]
async fn restart_takes_nonces_and_leaves_accounts_and_orders() {
    let world = acme_world().await;
    let invited = invite(&world, &[WEB], 1).await;
    let mut client = Client::enrolled(&world.registry, &invited).await;
    let order = client.order(&[WEB]).await.ok();
    let nonce = client.nonce().await;
    let world = reopened(world, acme_config()).await;
    client.router = Client::new(&world.registry).router;
    let url = order.header("location").to_owned();
    let header = json!({ "alg": "ES256", "nonce": nonce, "url": url, "kid": client.kid });
    let old = client
        .deliver(&url, &signed(&client.key, &header, &Value::Null))
        .await;
    assert_eq!(old.problem(), owned(("badNonce", 400)));
    // The one that comes along is good.
    let header = json!({ "alg": "ES256", "nonce": old.header("replay-nonce"), "url": url, "kid": client.kid });
    client
        .deliver(&url, &signed(&client.key, &header, &Value::Null))
        .await
        .ok();
    let done = client.finalize(&order, &csr_for(&[WEB], &key())).await.ok();
    assert_eq!(done.json()["status"], "valid");
    // Switched off, it is gone; the codes are still under the same key when it is on again.
    let next = invite(&world, &["db.example"], 0).await;
    let world = reopened(world, crate::fixture::config()).await;
    let world = reopened(world, acme_config()).await;
    Client::enrolled(&world.registry, &next).await;
}

#[tokio::test]
async fn names_of_others_are_not_given_to_a_server_nor_its_names_to_others() {
    let world = acme_world().await;
    let registry = &world.registry;
    let dns = |name: &str| vec![AltName::Dns(name.to_owned())];
    registry
        .issue_server(dns("Portal.example"), key().spki(), registrar(), NOW)
        .await
        .unwrap();
    registry
        .issue_gateway(dns("vpn.example"), key().spki(), an_order(), NOW)
        .await
        .unwrap();
    invite(&world, &[WEB, "www.example"], 1).await;
    let long = "x".repeat(65);
    for names in [
        &["portal.example"][..],
        &["db.example", "portal.example"],
        &["vpn.example"],
        &["db.example", WEB],
        &["www.example"],
        &["*.example"],
        &["Db.example"],
        &["192.0.2.1"],
        &["db.example", "db.example"],
        &[long.as_str()],
    ] {
        let refused = try_invite(&world, &server(names, 0)).await;
        assert!(
            matches!(refused, Err(RegistryError::ServerNames(_))),
            "{names:?}"
        );
    }
    let base = || server(&["db.example"], 0);
    let wrong = [
        Invitation {
            names: Vec::new(),
            ..base()
        },
        Invitation {
            names: vec!["other.example".to_owned()],
            ..base()
        },
        Invitation {
            clearance: Clearance::Restricted,
            ..base()
        },
        Invitation {
            renewals: 11,
            ..base()
        },
        Invitation {
            profile: Profile::Server,
            ..base()
        },
        Invitation {
            profile: Profile::Gateway,
            ..base()
        },
        Invitation {
            profile: Profile::VpnDevice,
            subject: Subject::new("phone-1"),
            ..base()
        },
    ];
    for invitation in wrong {
        assert!(
            try_invite(&world, &invitation).await.is_err(),
            "{invitation:?}"
        );
    }
    for name in [WEB, "www.example", "*.example"] {
        let gateway = registry
            .issue_gateway(dns(name), key().spki(), an_order(), NOW)
            .await;
        assert!(
            matches!(gateway, Err(RegistryError::NameOfTheSite(_))),
            "{name}"
        );
    }
    let own = registry.issue_own(
        registry::Order::new(
            Profile::NetworkServer,
            Subject::new("x.example"),
            key().spki(),
        )
        .with_alt_names(dns("x.example")),
        registrar(),
        NOW,
    );
    assert!(matches!(own.await, Err(RegistryError::NotCovered(_))));
    // A name that the site takes for itself later is renewed for nobody else.
    let client = Client::enrolled(registry, &invite(&world, &["late.example"], 1).await).await;
    client.certificate(&["late.example"], &key()).await.unwrap();
    registry
        .issue_server(dns("late.example"), key().spki(), registrar(), NOW)
        .await
        .unwrap();
    let refused = client.certificate(&["late.example"], &key()).await;
    assert_eq!(refused, Err(owned(("rejectedIdentifier", 403))));
    // What was issued before a restart counts after it.
    let world = reopened(world, acme_config()).await;
    for name in ["vpn.example", "portal.example", "late.example"] {
        let refused = try_invite(&world, &server(&[name], 0)).await;
        assert!(
            matches!(refused, Err(RegistryError::ServerNames(_))),
            "{name}"
        );
    }
    // The names of a server that is gone are free.
    change(&world, HolderChange::Retire).await;
    invite(&world, &["www.example"], 0).await;
}

#[tokio::test]
async fn names_in_a_certificate_are_read_once_in_the_life_of_the_process() {
    let world = acme_world().await;
    let gateway = |name: &str| vec![AltName::Dns(name.to_owned())];
    for name in ["vpn.example", "vpn-2.example"] {
        let issued = world
            .registry
            .issue_gateway(gateway(name), key().spki(), an_order(), NOW);
        issued.await.unwrap();
        try_invite(&world, &server(&["web.example"], 0))
            .await
            .unwrap();
    }
    // What is there by now is known, and not looked at for the next order.
    execute(&world, "UPDATE issued SET certificate = x'00'").await;
    for name in ["vpn.example", "vpn-2.example"] {
        let refused = try_invite(&world, &server(&[name], 0)).await;
        assert!(matches!(refused, Err(RegistryError::ServerNames(_))));
    }
    world.registry.close(NOW).await;
    let world = World {
        audit: Arc::default(),
        ..world
    };
    let world = reopened(world, acme_config()).await;
    let unreadable = try_invite(&world, &server(&["web.example"], 0)).await;
    assert!(matches!(unreadable, Err(RegistryError::Corrupt(_))));
}

#[tokio::test]
async fn nothing_happens_that_cannot_be_recorded_and_nobody_revokes_without_approval() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 1).await).await;
    let pem = client.certificate(&[WEB], &key()).await.unwrap();
    let next = invite(&world, &["db.example"], 0).await;
    let order = client.order(&[WEB]).await.ok();
    world.registry.close(NOW).await;
    let opened = Registry::open(
        world.folder.path(),
        acme_config(),
        &SECRETS.issuing,
        Arc::new(Broken::default()),
        NOW,
    );
    let broken = opened.await.unwrap();
    let mut refused = Client::new(&broken);
    let answer = refused.register(&next.id, &secret(&next)).await;
    assert_eq!(answer.problem(), owned(("serverInternal", 500)));
    (refused.key, refused.kid) = (client.key, client.kid);
    let finalized = refused.finalize(&order, &csr_for(&[WEB], &key())).await;
    assert_eq!(finalized.problem(), owned(("serverInternal", 500)));
    let own = refused.kid.clone();
    let ended = refused
        .post(&own, &json!({ "status": "deactivated" }))
        .await;
    assert_eq!(ended.problem(), owned(("serverInternal", 500)));
    broken.close(NOW).await;
    assert_eq!(
        count(&world, "acme_accounts WHERE state = 'valid'").await,
        1
    );
    assert_eq!(
        count(&world, "issued WHERE profile = 'network server'").await,
        1
    );

    let required = Config {
        registration: Registration {
            approvals: Approvals::Required,
            ..Registration::default()
        },
        ..acme_config()
    };
    let world = reopened(world, required).await;
    refused.router = Client::new(&world.registry).router;
    let der = to_base64url(CertificateChain::from_pem(&pem).unwrap().ders()[0].as_ref());
    let answer = refused
        .post(&at("revoke-cert"), &json!({ "certificate": der }))
        .await;
    assert_eq!(answer.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "approval-required");
    let renewed = refused.finalize(&order, &csr_for(&[WEB], &key())).await;
    assert_eq!(renewed.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "approval-required");
    let bound = Client::new(&world.registry)
        .register(&next.id, &secret(&next))
        .await;
    assert_eq!(bound.problem(), owned(FORBIDDEN));
    assert_eq!(last_code(&world), "approval-required");
}
