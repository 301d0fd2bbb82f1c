//! Enrolment and renewal against a fake EST server (RFC 7030).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use camera::{AgentError, CameraEvent, EnrolError, Enrolment, Identity};
use pki::issue::{CertificateRequest, Validity};
use pki::profile::Profile;
use pki::tls::ClientAuth;
use pki::{csr, pkcs7};
use time::OffsetDateTime;
use tokio::net::TcpListener;

use crate::fake_centre::serve;
use crate::stage::{DEVICE, PASSPHRASE, Stage, World, until};

struct Registry {
    world: World,
    /// Lifetime of new certificates, in days; those before now count as two thirds used.
    short: Mutex<bool>,
    /// Answers before the first certificate, the last one first.
    not_yet: Mutex<Vec<StatusCode>>,
    enrolled: AtomicU32,
    renewed: AtomicU32,
}

type Shared = State<Arc<Registry>>;

fn certs_only(certificates: &[pki::Certificate]) -> Response {
    let der = pkcs7::encode_certs_only(certificates).unwrap();
    let kind = "application/pkcs7-mime; smime-type=certs-only";
    ([("content-type", kind)], STANDARD.encode(der)).into_response()
}

async fn cacerts(State(registry): Shared) -> Response {
    certs_only(&[
        registry.world.root.certificate().clone(),
        registry.world.devices.certificate().clone(),
        registry.world.services.certificate().clone(),
    ])
}

fn issue(registry: &Registry, body: &str) -> Response {
    let request = csr::parse_and_verify(&STANDARD.decode(body).unwrap()).unwrap();
    assert_eq!(request.subject.common_name, DEVICE);
    let now = OffsetDateTime::now_utc();
    let validity = if *registry.short.lock().unwrap() {
        Validity {
            not_before: now - time::Duration::days(80),
            not_after: now + time::Duration::days(10),
        }
    } else {
        Validity::starting(now, time::Duration::days(90))
    };
    let request = CertificateRequest::new(Profile::Device, request.subject, request.spki, validity);
    certs_only(&[registry.world.devices.issue(&request, now).unwrap()])
}

async fn simpleenroll(State(registry): Shared, headers: HeaderMap, body: String) -> Response {
    let login = headers.get("authorization").and_then(|v| v.to_str().ok());
    if login != Some(&format!("Basic {}", STANDARD.encode("camera-17:one-time"))) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    assert_eq!(headers["content-type"], "application/pkcs10");
    let statuses = &mut *registry.not_yet.lock().unwrap();
    if let Some(status) = statuses.pop() {
        return status.into_response();
    }
    registry.enrolled.fetch_add(1, Ordering::SeqCst);
    issue(&registry, &body)
}

async fn simplereenroll(State(registry): Shared, body: String) -> Response {
    registry.renewed.fetch_add(1, Ordering::SeqCst);
    *registry.short.lock().unwrap() = false;
    issue(&registry, &body)
}

/// A stage without identity or roots, and the registry it can enrol at.
async fn scene(code: &str) -> (Stage, Arc<Registry>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut stage = Stage::new(1);
    let world = std::mem::replace(&mut stage.world, World::new());
    std::fs::remove_file(stage.path("identity.pem")).unwrap();
    std::fs::remove_file(stage.path("roots.pem")).unwrap();
    std::fs::write(stage.path("code"), format!("{code}\n")).unwrap();
    let fingerprint = pki::cert::fingerprint_sha256(&world.root.certificate_der());
    stage.config.enrolment = Some(Enrolment {
        host: "127.0.0.1".into(),
        port,
        server_name: Some("localhost".into()),
        code_file: Some(stage.path("code")),
        root_fingerprint: Some(fingerprint.to_uppercase()),
    });
    let server = world.leaf(Profile::Server, "localhost");
    let trust = world.trust();
    let registry = Arc::new(Registry {
        world,
        short: Mutex::new(false),
        not_yet: Mutex::default(),
        enrolled: AtomicU32::new(0),
        renewed: AtomicU32::new(0),
    });
    let router = Router::new()
        .route("/.well-known/est/cacerts", get(cacerts))
        .route("/.well-known/est/simpleenroll", post(simpleenroll))
        .route("/.well-known/est/simplereenroll", post(simplereenroll))
        .with_state(Arc::clone(&registry));
    serve(listener, router, &server, ClientAuth::Optional, trust);
    (stage, registry)
}

#[tokio::test(flavor = "multi_thread")]
async fn first_certificate_comes_by_code_and_pinned_root() {
    let (stage, registry) = scene("one-time").await;
    let running = stage.start().await;
    assert!(running.saw(|e| *e == CameraEvent::Enrolled { renewed: false }));
    running.stop().await;
    assert!(!stage.path("code").exists());
    assert!(stage.path("roots.pem").exists());
    let stored = std::fs::read_to_string(stage.path("identity.pem")).unwrap();
    assert!(stored.contains("ENCRYPTED PRIVATE KEY"));
    let identity = Identity::load(&stage.path("identity.pem"), &PASSPHRASE);
    let identity = identity.unwrap().unwrap();
    assert_eq!(identity.chain.certificates().len(), 2);
    assert!(Identity::load(&stage.path("identity.pem"), &"wrong".into()).is_err());
    // Not again at the next start.
    stage.start().await.stop().await;
    assert_eq!(registry.enrolled.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn enrolment_is_tried_until_the_server_is_ready() {
    let (stage, registry) = scene("one-time").await;
    *registry.not_yet.lock().unwrap() = vec![
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::ACCEPTED,
    ];
    stage.start().await.stop().await;
    assert_eq!(registry.enrolled.load(Ordering::SeqCst), 1);
    assert!(registry.not_yet.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_without_dns_or_server_waits_and_keeps_its_code() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    for host in ["registry.invalid", "127.0.0.1"] {
        let (mut stage, registry) = scene("one-time").await;
        let enrolment = stage.config.enrolment.as_mut().unwrap();
        (enrolment.host, enrolment.port) = (host.into(), port);
        let started = tokio::time::timeout(Duration::from_secs(2), stage.try_start()).await;
        assert!(started.is_err(), "{host}: the agent ended");
        assert!(stage.path("code").exists(), "{host}");
        assert_eq!(registry.enrolled.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_past_two_thirds_is_renewed_with_a_new_key() {
    let (stage, registry) = scene("one-time").await;
    *registry.short.lock().unwrap() = true;
    let running = stage.start().await;
    until("the renewal", || {
        running.saw(|e| *e == CameraEvent::Enrolled { renewed: true })
    })
    .await;
    running.stop().await;
    assert_eq!(registry.renewed.load(Ordering::SeqCst), 1);
    let identity = Identity::load(&stage.path("identity.pem"), &PASSPHRASE);
    assert!(identity.unwrap().unwrap().renew_at() > OffsetDateTime::now_utc());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_code_and_wrong_root_get_nothing() {
    let refused = |stage: Stage| async move {
        let error = stage.try_start().await.err();
        assert!(!stage.path("identity.pem").exists());
        match error {
            Some(AgentError::Enrol(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let (stage, registry) = scene("guessed").await;
    assert!(matches!(
        refused(stage).await,
        EnrolError::Refused { status: 401, .. }
    ));
    assert_eq!(registry.enrolled.load(Ordering::SeqCst), 0);

    let (mut stage, registry) = scene("one-time").await;
    let enrolment = stage.config.enrolment.as_mut().unwrap();
    enrolment.root_fingerprint = Some("00".repeat(32));
    assert!(matches!(refused(stage).await, EnrolError::WrongRoot));
    assert_eq!(registry.enrolled.load(Ordering::SeqCst), 0);

    let (mut stage, _registry) = scene("one-time").await;
    stage.config.enrolment.as_mut().unwrap().root_fingerprint = None;
    assert!(matches!(refused(stage).await, EnrolError::NoRoot));

    let (mut stage, _registry) = scene("one-time").await;
    stage.config.enrolment.as_mut().unwrap().code_file = None;
    assert!(matches!(refused(stage).await, EnrolError::NoCode));
}
