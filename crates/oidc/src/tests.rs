use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use services::{Client, ClientKey, SecretHash};

use super::*;
use crate::jose::{JoseError, SigningKey, verify};

const ISSUER: &str = "https://portal.example.org";
const REDIRECT: &str = "https://wiki.example.org/callback";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
/// The challenge of RFC 7636, appendix B.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn key() -> SigningKey {
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    SigningKey::from_pkcs8(pkcs8.unwrap().as_ref()).unwrap()
}

fn client(key: ClientKey) -> Client {
    Client {
        redirects: vec![
            REDIRECT.to_owned(),
            "https://wiki.example.org/x?y=z".to_owned(),
        ],
        key,
        logout: None,
        logout_trust: None,
    }
}

fn with_secret() -> Client {
    client(ClientKey::Secret(SecretHash::of("s+cret")))
}

fn query(changes: &[(&str, &str)]) -> Parameters {
    let mut all = vec![
        ("client_id", "wiki"),
        ("redirect_uri", REDIRECT),
        ("response_type", "code"),
        ("scope", "openid profile"),
        ("state", "s&t"),
        ("nonce", "n"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    all.retain(|(name, _)| changes.iter().all(|(other, _)| other != name));
    all.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(all);
    Parameters::parse(&text.finish()).unwrap()
}

fn read(changes: &[(&str, &str)]) -> Result<AuthorizationRequest, AuthorizeError> {
    AuthorizationRequest::read(&query(changes), "wiki", &with_secret())
}

fn redirected(changes: &[(&str, &str)]) -> &'static str {
    match read(changes) {
        Err(AuthorizeError::Redirect(error)) => {
            assert_eq!(error.redirect, REDIRECT);
            error.error
        }
        other => panic!("{changes:?}: {other:?}"),
    }
}

#[test]
fn parameter_given_twice_is_refused() {
    assert_eq!(Parameters::parse("a=1&a=2"), Err(ParameterError::Twice));
    assert_eq!(Parameters::parse("a=1&%61=2"), Err(ParameterError::Twice));
    let long = format!("a={}", "x".repeat(MAX_PARAMETERS - 2));
    assert!(Parameters::parse(&long).is_ok());
    assert_eq!(
        Parameters::parse(&format!("{long}x")),
        Err(ParameterError::TooLong)
    );
    assert_eq!(Parameters::parse("a=").unwrap().get("a"), None);
}

#[test]
fn request_with_foreign_redirect_is_sent_nowhere() {
    read(&[]).unwrap();
    for redirect in [
        "",
        "https://wiki.example.org/callback/",
        "https://wiki.example.org/callback?x",
        "https://WIKI.example.org/callback",
        "https://wiki.example.org:443/callback",
        "https://wiki.example.org/callback/../callback",
        "https://evil.example/callback",
    ] {
        let refused = read(&[("redirect_uri", redirect)]);
        assert!(
            matches!(refused, Err(AuthorizeError::Page(_))),
            "{redirect}"
        );
    }
}

#[test]
fn request_without_pkce_s256_or_with_other_flow_is_refused() {
    for (changes, error) in [
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (
            ("code_challenge", &format!("{}=", &CHALLENGE[1..])),
            "invalid_request",
        ),
        (("response_type", ""), "unsupported_response_type"),
        (("response_type", "token"), "unsupported_response_type"),
        (
            ("response_type", "code id_token"),
            "unsupported_response_type",
        ),
        (("response_mode", "fragment"), "invalid_request"),
        (("scope", "profile"), "invalid_scope"),
        (("scope", "openidx"), "invalid_scope"),
        (("request", "e30.e30."), "request_not_supported"),
        (
            ("request_uri", "https://a.example/"),
            "request_uri_not_supported",
        ),
        (("prompt", "none login"), "invalid_request"),
        (("max_age", "-1"), "invalid_request"),
        (("nonce", &"n".repeat(2049)), "invalid_request"),
    ] {
        assert_eq!(redirected(&[changes]), error, "{changes:?}");
    }
    read(&[("nonce", &"n".repeat(2048))]).unwrap();
}

#[test]
fn answers_carry_state_and_issuer_encoded() {
    let request = read(&[("redirect_uri", "https://wiki.example.org/x?y=z")]).unwrap();
    assert_eq!(
        request.answer(ISSUER, "c"),
        "https://wiki.example.org/x?y=z&code=c&iss=https%3A%2F%2Fportal.example.org&state=s%26t"
    );
    let refused = request.refused("access_denied", "no").location(ISSUER);
    assert!(refused.contains("error=access_denied") && refused.ends_with("state=s%26t"));
}

#[test]
fn login_must_reach_context_and_age() {
    use LoginKind::{Certificate, Password};
    let needs = |changes: &[(&str, &str)], kind, age| match read(changes).unwrap().check(kind, age)
    {
        Ok(()) => "ok",
        Err(Need::Login) => "log in",
        Err(Need::Refused(error)) => error.error,
    };
    let unmet = "unmet_authentication_requirements";
    let acr = |value| [("acr_values", value)];
    assert_eq!(needs(&acr(ACR_CERTIFICATE), Certificate, 0), "ok");
    assert_eq!(needs(&acr(ACR_PASSWORD), Certificate, 0), "ok");
    assert_eq!(needs(&acr(ACR_PASSWORD), Password, 0), "ok");
    assert_eq!(needs(&acr(ACR_CERTIFICATE), Password, 0), unmet);
    assert_eq!(needs(&acr("urn:other"), Certificate, 0), unmet);
    let age = |value| [("max_age", value)];
    assert_eq!(needs(&age("300"), Password, 300), "ok");
    assert_eq!(needs(&age("300"), Password, 301), "log in");
    assert_eq!(needs(&age("300"), Certificate, 301), "login_required");
    assert_eq!(needs(&age("0"), Password, 30), "ok");
    assert_eq!(needs(&age("0"), Password, 31), "log in");
    assert_eq!(needs(&[("prompt", "login")], Password, 31), "log in");
    let silent = [("prompt", "none"), ("max_age", "0")];
    assert_eq!(needs(&silent, Password, 31), "login_required");
}

fn person(uid: &str, session: &str) -> Person {
    Person {
        uid: uid.to_owned(),
        name: "Ana Nowak".to_owned(),
        given_name: "Ana".to_owned(),
        family_name: String::new(),
        email: "ana@example.org".to_owned(),
        clearance: 2,
        roles: vec!["officer".to_owned()],
        units: vec![],
        login: LoginKind::Certificate,
        since: 90,
        session: session.to_owned(),
    }
}

/// A provider, and random bytes that differ each time.
#[derive(Default)]
struct World {
    provider: Provider<()>,
    drawn: u64,
}

impl World {
    fn random(&mut self) -> [u8; 32] {
        self.drawn += 1;
        let mut random = [0; 32];
        random[..8].copy_from_slice(&self.drawn.to_be_bytes());
        random
    }

    fn begin_as(&mut self, uid: &str, session: &str, now: i64) -> Result<String, Full> {
        let random = self.random();
        let (request, person) = (read(&[]).unwrap(), person(uid, session));
        let grant = Grant {
            request,
            person,
            tag: (),
        };
        self.provider.begin(grant, random, now)
    }

    fn begin(&mut self, now: i64) -> String {
        self.begin_as("ana", "s1", now).unwrap()
    }

    fn redeem(&mut self, code: &str, now: i64) -> Redemption<()> {
        let random = self.random();
        self.provider
            .redeem("wiki", code, REDIRECT, VERIFIER, random, now)
    }
}

fn refusal(redemption: &Redemption<()>) -> &'static str {
    match redemption.outcome {
        Err(TokenError::InvalidGrant(what)) => what,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn code_becomes_one_login_and_its_replay_ends_it() {
    let mut world = World::default();
    let code = world.begin(100);
    let first = world.redeem(&code, 159).outcome.unwrap();
    assert_eq!(first.nonce.as_deref(), Some("n"));
    assert!(world.provider.of_token(&first.access_token, 458).is_some());
    assert!(world.provider.of_token(&first.access_token, 459).is_none());
    assert!(world.provider.of_token("other", 159).is_none());
    let again = world.redeem(&code, 160);
    assert_eq!(refusal(&again), "the code was used before");
    assert!(again.replayed.is_some());
    assert_eq!(again.ended[0].cause, Cause::Replay);
    assert!(world.provider.of_token(&first.access_token, 160).is_none());
    assert_eq!(world.provider.logins().count(), 0);
}

#[test]
fn code_expires_after_sixty_seconds() {
    let mut world = World::default();
    let code = world.begin(100);
    assert_eq!(
        refusal(&world.redeem(&code, 160)),
        "the code is unknown or has expired"
    );
    let unknown = world.redeem("unknown", 160);
    assert_eq!(refusal(&unknown), "the code is unknown or has expired");
}

#[test]
fn code_is_bound_and_used_up_by_a_wrong_attempt() {
    let long = format!("{VERIFIER}x");
    for (client, redirect, verifier, what) in [
        ("other", REDIRECT, VERIFIER, "the code is another client's"),
        (
            "wiki",
            "https://wiki.example.org/x?y=z",
            VERIFIER,
            "redirect_uri is not that of the request",
        ),
        (
            "wiki",
            REDIRECT,
            long.as_str(),
            "code_verifier does not fit the challenge",
        ),
        (
            "wiki",
            REDIRECT,
            "",
            "code_verifier does not fit the challenge",
        ),
        (
            "wiki",
            REDIRECT,
            CHALLENGE,
            "code_verifier does not fit the challenge",
        ),
    ] {
        let mut world = World::default();
        let code = world.begin(100);
        let random = world.random();
        let refused = world
            .provider
            .redeem(client, &code, redirect, verifier, random, 101);
        assert_eq!(refusal(&refused), what);
        assert_eq!(
            refusal(&world.redeem(&code, 102)),
            "the code was used before"
        );
        assert_eq!(world.provider.logins().count(), 0);
    }
}

#[test]
fn end_of_session_ends_logins_and_codes() {
    let mut world = World::default();
    let code = world.begin(100);
    let token = world.redeem(&code, 101).outcome.unwrap().access_token;
    let open = world.begin(102);
    let other = world.begin_as("ana", "s2", 102).unwrap();
    let ended = world.provider.end_session("s1");
    assert_eq!((ended.len(), ended[0].cause), (1, Cause::Session));
    assert!(world.provider.of_token(&token, 102).is_none());
    assert!(world.provider.grant(&open).is_none());
    world.redeem(&open, 103).outcome.unwrap_err();
    world.redeem(&other, 103).outcome.unwrap();
    let over = world.provider.expire(103 + LOGIN_LIFETIME);
    assert_eq!((over.len(), over[0].cause), (1, Cause::Lifetime));
    assert!(world.provider.expire(103 + LOGIN_LIFETIME).is_empty());
}

#[test]
fn one_person_has_bounded_codes_and_logins() {
    let mut world = World::default();
    let first = world.begin(100);
    let more: Vec<String> = (0..16).map(|n| world.begin(101 + n)).collect();
    assert!(world.provider.grant(&first).is_none());
    assert!(more.iter().all(|code| world.provider.grant(code).is_some()));
    let mut ended = Vec::new();
    for n in 0..65_u32 {
        let code = world.begin_as("ana", &format!("t{n}"), 200).unwrap();
        let redeemed = world.redeem(&code, 200 + i64::from(n % 60));
        redeemed.outcome.unwrap();
        ended.extend(redeemed.ended);
    }
    assert_eq!(world.provider.logins().count(), 64);
    assert_eq!((ended.len(), ended[0].cause), (1, Cause::Displaced));
    // Others have their own room.
    world.begin_as("eva", "e", 300).unwrap();
}

#[test]
fn full_table_of_codes_refuses_until_codes_are_forgotten() {
    let mut world = World::default();
    for n in 0..4000 {
        world.begin_as(&format!("p{}", n / 16), "s", 100).unwrap();
    }
    assert_eq!(world.begin_as("late", "s", 100), Err(Full));
    world.begin_as("late", "s", 400).unwrap();
}

#[test]
fn id_token_says_who_for_whom_and_how() {
    let mut world = World::default();
    let code = world.begin(100);
    let login = world.redeem(&code, 101).outcome.unwrap().login;
    let claims = id_token(ISSUER, "wiki", &login.person, login.scope, Some("n"), 101);
    assert_eq!(
        claims,
        json!({
            "iss": ISSUER, "aud": "wiki", "sub": "ana", "iat": 101, "exp": 401, "auth_time": 90,
            "acr": "urn:cordon:acr:certificate", "amr": ["pop"], "sid": "s1", "nonce": "n",
            "clearance": 2, "name": "Ana Nowak", "given_name": "Ana", "preferred_username": "ana",
        })
    );
    let least = Scope::parse("openid").unwrap();
    assert_eq!(
        userinfo(&login.person, least),
        json!({ "sub": "ana", "clearance": 2 })
    );
    let out = logout_token(ISSUER, "wiki", "ana", "s1", "j", 101);
    assert!(out.get("nonce").is_none());
    assert_eq!(
        out["events"]["http://schemas.openid.net/event/backchannel-logout"],
        json!({})
    );
}

fn point(key: &SigningKey) -> Vec<u8> {
    ClientKey::from_jwk(&key.jwk().unwrap().to_string())
        .unwrap()
        .point()
        .unwrap()
}

#[test]
fn jws_of_other_algorithm_or_key_is_refused() {
    let (own, other) = (key(), key());
    let claims = json!({ "sub": "wiki" });
    let jws = own.sign("JWT", &claims).unwrap();
    assert_eq!(verify(&jws, &point(&own)), Ok(claims.clone()));
    assert_eq!(verify(&jws, &point(&other)), Err(JoseError::Signature));
    let (_, rest) = jws.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let forged = |header: Value, signature: &str| {
        format!(
            "{}.{payload}.{signature}",
            URL_SAFE_NO_PAD.encode(header.to_string())
        )
    };
    for alg in ["none", "HS256", "RS256", "ES384", "es256"] {
        let refused = verify(&forged(json!({ "alg": alg }), ""), &point(&own));
        assert_eq!(refused, Err(JoseError::Algorithm), "{alg}");
    }
    let critical = forged(json!({ "alg": "ES256", "crit": ["exp"] }), signature);
    assert_eq!(verify(&critical, &point(&own)), Err(JoseError::Critical));
    let unsigned = forged(json!({ "alg": "ES256" }), "");
    assert_eq!(verify(&unsigned, &point(&own)), Err(JoseError::Signature));
    for text in ["", ".", "..", "a.b", "a.b.c", &"x".repeat(5000)] {
        assert_eq!(
            verify(text, &point(&own)),
            Err(JoseError::Malformed),
            "{text}"
        );
    }
}

fn form(pairs: &[(&str, &str)]) -> Parameters {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(pairs);
    Parameters::parse(&text.finish()).unwrap()
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

#[test]
fn client_secret_is_read_from_the_header_only() {
    let empty = Parameters::default();
    let shown = |header: &str| ClientProof::read(Some(header), &empty);
    let verified = |header: &str| {
        shown(header)
            .unwrap()
            .verify(&with_secret(), &[ISSUER], 100)
    };
    assert_eq!(verified(&basic("wiki:s%2Bcret")), Ok(None));
    // Form encoding makes a space of the plus.
    verified(&basic("wiki:s+cret")).unwrap_err();
    verified(&basic("wiki:")).unwrap_err();
    for header in ["", "Basic", "Basic !", "Bearer abc", &basic("wiki")] {
        shown(header).unwrap_err();
    }
    let secret = form(&[("client_id", "wiki"), ("client_secret", "s+cret")]);
    ClientProof::read(None, &secret).unwrap_err();
    ClientProof::read(None, &form(&[("client_id", "wiki")])).unwrap_err();
    let other = form(&[("client_id", "other")]);
    ClientProof::read(Some(&basic("wiki:s%2Bcret")), &other).unwrap_err();
    let key = client(ClientKey::from_jwk(&key().jwk().unwrap().to_string()).unwrap());
    let proof = shown(&basic("wiki:s%2Bcret")).unwrap();
    proof.verify(&key, &[ISSUER], 100).unwrap_err();
}

#[test]
fn client_assertion_must_be_for_this_issuer_now_and_once() {
    let own = key();
    let registered = client(ClientKey::from_jwk(&own.jwk().unwrap().to_string()).unwrap());
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    let good = json!({ "iss": "wiki", "sub": "wiki", "aud": ISSUER, "exp": 200, "jti": "1" });
    let shown = |claims: &Value| {
        let jws = own.sign("JWT", claims).unwrap();
        let form = form(&[("client_assertion_type", kind), ("client_assertion", &jws)]);
        ClientProof::read(None, &form).unwrap()
    };
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        shown(&claims).verify(
            &registered,
            &[ISSUER, "https://portal.example.org/token"],
            100,
        )
    };
    let assertion = with("nbf", json!(130)).unwrap().unwrap();
    with("aud", json!(["https://portal.example.org/token"])).unwrap();
    for (name, value) in [
        ("iss", json!("other")),
        ("aud", json!("https://other.example")),
        ("aud", json!([ISSUER, "https://other.example"])),
        ("aud", Value::Null),
        ("exp", json!(70)),
        ("exp", json!(3701)),
        ("exp", Value::Null),
        ("exp", json!("200")),
        ("nbf", json!(131)),
        ("iat", json!(131)),
        ("jti", Value::Null),
        ("jti", json!("x".repeat(257))),
    ] {
        let refused = with(name, value.clone());
        assert!(
            matches!(refused, Err(TokenError::InvalidClient(_))),
            "{name} {value}"
        );
    }
    let other = client(ClientKey::from_jwk(&key().jwk().unwrap().to_string()).unwrap());
    shown(&good).verify(&other, &[ISSUER], 100).unwrap_err();
    shown(&good)
        .verify(&with_secret(), &[ISSUER], 100)
        .unwrap_err();
    let mut provider = Provider::<()>::default();
    provider.accept("wiki", &assertion, 100).unwrap();
    provider.accept("wiki", &assertion, 229).unwrap_err();
    provider.accept("other", &assertion, 100).unwrap();
    for n in 0..4999 {
        let (id, until) = (format!("x{n}"), 230);
        provider
            .accept("wiki", &Assertion { id, until }, 100)
            .unwrap();
    }
    let more = Assertion {
        id: "more".to_owned(),
        until: 400,
    };
    provider.accept("wiki", &more, 229).unwrap_err();
    provider.accept("wiki", &more, 230).unwrap();
    let both = form(&[
        ("client_assertion_type", kind),
        ("client_assertion", "a.b.c"),
    ]);
    ClientProof::read(Some(&basic("wiki:x")), &both).unwrap_err();
    let jws = own.sign("JWT", &good).unwrap();
    ClientProof::read(None, &form(&[("client_assertion", &jws)])).unwrap_err();
}

#[test]
fn published_key_has_its_thumbprint_as_identifier() {
    let key = key();
    let jwk = key.jwk().unwrap();
    let text = format!(
        r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#,
        jwk["x"], jwk["y"]
    );
    let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()));
    assert_eq!(jwk["kid"], thumbprint);
    assert!(jwk.get("d").is_none());
}
