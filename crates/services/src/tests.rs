use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

fn client() -> Client {
    Client {
        redirects: vec!["https://wiki.example.org/callback".to_owned()],
        key: ClientKey::Secret(SecretHash::of("secret")),
        logout: None,
        logout_trust: None,
    }
}

fn wiki() -> Service {
    Service {
        id: "wiki".to_owned(),
        name: "Wiki".to_owned(),
        address: "https://wiki.example.org/".to_owned(),
        icon: Icon::Document,
        owner: "IT department".to_owned(),
        level: Clearance::Restricted,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::new(),
        connection: Connection::Openid(client()),
    }
}

fn refused(change: impl FnOnce(&mut Service)) -> &'static str {
    let mut service = wiki();
    change(&mut service);
    service.check().unwrap_err().field
}

fn refused_client(change: impl FnOnce(&mut Client)) -> &'static str {
    let mut client = client();
    change(&mut client);
    client.check().unwrap_err().field
}

#[test]
fn record_with_bad_field_is_refused_by_name() {
    wiki().check().unwrap();
    for id in ["", "Wiki", "1wiki", "wi_ki", "a/b", &"x".repeat(33)] {
        assert_eq!(refused(|s| s.id = id.to_owned()), "id", "{id}");
    }
    assert_eq!(refused(|s| s.name = "x".repeat(65)), "name");
    assert_eq!(refused(|s| s.name = "Wi\u{202e}ki".to_owned()), "name");
    assert_eq!(refused(|s| s.owner = String::new()), "owner");
    assert_eq!(refused(|s| s.roles.clear()), "roles");
    let many = |s: &mut Service| s.units = (0..65).map(|n| format!("u{n}")).collect();
    assert_eq!(refused(many), "units");
    let mut longest = wiki();
    longest.id = "x".repeat(32);
    longest.name = "ж".repeat(64);
    longest.units = (0..64).map(|n| format!("u{n}")).collect();
    longest.check().unwrap();
}

#[test]
fn address_that_browsers_read_otherwise_is_refused() {
    for good in [
        "https://a.example/",
        "https://a.example:8443/x?y=z",
        "https://[::1]:8/",
    ] {
        assert!(is_https(good), "{good}");
    }
    for bad in [
        "http://a.example/",
        "HTTPS://a.example/",
        "https:a.example",
        "https:///a",
        "//a.example/",
        "/a",
        "https://u:p@a.example/",
        "https://u@a.example/",
        "https://a.example/#x",
        "https://a.example\\@b.example/",
        "https://a.example/ x",
        "https://a.example/\n",
        "https://a.exámple/",
        "javascript:alert(1)",
        "",
    ] {
        assert!(!is_https(bad), "{bad}");
    }
    let long = |len: usize| format!("https://a.example/{}", "x".repeat(len - 18));
    assert!(is_https(&long(MAX_ADDRESS)));
    assert!(!is_https(&long(MAX_ADDRESS + 1)));
}

#[test]
fn client_with_bad_field_is_refused_by_name() {
    assert_eq!(refused_client(|c| c.redirects.clear()), "redirects");
    let nine = |c: &mut Client| c.redirects = vec!["https://a.example/".to_owned(); 9];
    assert_eq!(refused_client(nine), "redirects");
    let http = |c: &mut Client| c.redirects.push("http://a.example/".to_owned());
    assert_eq!(refused_client(http), "redirects");
    let logout = |c: &mut Client| c.logout = Some("http://a.example/".to_owned());
    assert_eq!(refused_client(logout), "logout");
    let pem = || Some("-----BEGIN CERTIFICATE-----".to_owned());
    assert_eq!(refused_client(|c| c.logout_trust = pem()), "logout_trust");
    let hash =
        |c: &mut Client| c.key = ClientKey::Secret(serde_json::from_str(r#""secret""#).unwrap());
    assert_eq!(refused_client(hash), "key");
}

#[test]
fn jwk_of_another_kind_or_with_private_half_is_refused() {
    let x = URL_SAFE_NO_PAD.encode([1; 32]);
    let jwk = |kty: &str, crv: &str, y: &[u8], more: &str| {
        let y = URL_SAFE_NO_PAD.encode(y);
        ClientKey::from_jwk(&format!(
            r#"{{"kty":"{kty}","crv":"{crv}","x":"{x}","y":"{y}","use":"sig"{more}}}"#
        ))
    };
    let good = jwk("EC", "P-256", &[2; 32], "").unwrap();
    assert_eq!(good.point().unwrap().len(), 65);
    assert_eq!(good.method(), "private_key_jwt");
    jwk("EC", "P-384", &[2; 32], "").unwrap_err();
    jwk("oct", "P-256", &[2; 32], "").unwrap_err();
    jwk("EC", "P-256", &[2; 31], "").unwrap_err();
    jwk("EC", "P-256", &[2; 32], r#","d":"AA""#).unwrap_err();
    ClientKey::from_jwk("{}").unwrap_err();
}

#[test]
fn secret_matches_itself_only() {
    let hash = SecretHash::of("secret");
    assert!(hash.matches("secret"));
    assert!(!hash.matches("Secret") && !hash.matches(""));
}

/// The record as version 1 stores it.
const GOLDEN: &str = include_str!("../tests/service-v1.json");

#[test]
fn stored_record_of_version_1_is_read() {
    assert_eq!(Service::from_record(GOLDEN).unwrap(), wiki());
    assert_eq!(wiki().to_record().unwrap(), GOLDEN.trim_end());
}

#[test]
fn stored_record_that_is_newer_or_damaged_is_refused() {
    let newer = GOLDEN.replace(r#"{"v":1,"#, r#"{"v":2,"#);
    assert!(matches!(
        Service::from_record(&newer),
        Err(RecordError::TooNew(2))
    ));
    let unknown = GOLDEN.replace(r#""owner""#, r#""holder""#);
    assert!(matches!(
        Service::from_record(&unknown),
        Err(RecordError::Json(_))
    ));
    let bad = GOLDEN.replace("https://wiki.example.org/\"", "http://wiki.example.org/\"");
    assert!(matches!(
        Service::from_record(&bad),
        Err(RecordError::Service(_))
    ));
}

#[test]
fn change_replaces_given_fields_only() {
    let old = wiki();
    assert_eq!(Change::default().of(&old).unwrap(), old);
    let logout = |logout| Change {
        connection: Some(ConnectionChange::Openid(ClientChange {
            logout,
            ..ClientChange::default()
        })),
        ..Change::default()
    };
    let address = Some("https://wiki.example.org/out".to_owned());
    // As it goes over the control socket.
    let sent = |change: Change| -> Change {
        serde_json::from_str(&serde_json::to_string(&change).unwrap()).unwrap()
    };
    let with = sent(logout(Some(address.clone()))).of(&old).unwrap();
    assert_eq!(with.client().unwrap().logout, address);
    assert_eq!(with.client().unwrap().redirects, client().redirects);
    assert_eq!(sent(logout(None)).of(&with).unwrap(), with);
    assert_eq!(sent(logout(Some(None))).of(&with).unwrap(), old);
    let level = Change {
        level: Some(Clearance::Secret),
        ..Change::default()
    };
    assert_eq!(level.of(&old).unwrap().level, Clearance::Secret);
}

#[test]
fn link_becomes_client_with_redirect_and_key_only() {
    let link = Service {
        connection: Connection::Link,
        ..wiki()
    };
    let openid = |redirects, key| Change {
        connection: Some(ConnectionChange::Openid(ClientChange {
            redirects,
            key,
            ..ClientChange::default()
        })),
        ..Change::default()
    };
    let (redirects, key) = (Some(client().redirects), Some(client().key));
    assert_eq!(
        openid(redirects.clone(), key.clone()).of(&link).unwrap(),
        wiki()
    );
    assert_eq!(openid(None, key).of(&link).unwrap_err().field, "redirects");
    assert_eq!(openid(redirects, None).of(&link).unwrap_err().field, "key");
}
