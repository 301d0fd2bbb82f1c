//! The protocol, request by request.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use pki::Certificate;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use registry::{Issued, est};
use tower::ServiceExt;

use crate::fixture::{NOW, World, an_order, csr, key, openssl, world};
use crate::holders::{STOLEN, change, enrolled};

fn router(world: &World) -> Router {
    est::router(world.registry.clone(), Arc::new(|| NOW))
        .merge(est::public_router(world.registry.clone(), Arc::new(|| NOW)))
}

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn certificates(&self) -> Vec<Certificate> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        let letters: String = self.text().split_whitespace().collect();
        pki::pkcs7::parse_certs_only(&STANDARD.decode(letters).unwrap()).unwrap()
    }
}

async fn send(router: Router, request: Request<Body>) -> Answer {
    let response: Response<Body> = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body,
    }
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// An enrolment in base64 with line ends, as clients send it.
fn post(path: &str, csr: &[u8], credentials: Option<&str>) -> Request<Body> {
    let mut request = Request::post(path).header("content-type", "application/pkcs10");
    if let Some(credentials) = credentials {
        let value = format!("Basic {}", STANDARD.encode(credentials));
        request = request.header("authorization", value);
    }
    let letters = STANDARD.encode(csr);
    let lines: Vec<&str> = letters
        .as_bytes()
        .chunks(64)
        .map(|l| std::str::from_utf8(l).unwrap())
        .collect();
    request
        .body(Body::from(lines.join("\r\n") + "\r\n"))
        .unwrap()
}

const ENROLL: &str = "/.well-known/est/simpleenroll";
const REENROLL: &str = "/.well-known/est/simplereenroll";

#[tokio::test]
async fn cacerts_are_read_by_openssl() {
    let world = world().await;
    let answer = send(router(&world), get("/.well-known/est/cacerts")).await;
    assert_eq!(answer.header("content-type"), "application/pkcs7-mime");
    assert_eq!(answer.header("content-transfer-encoding"), "base64");
    let certificates = answer.certificates();
    assert_eq!(certificates.len(), 4);
    assert!(certificates.contains(world.registry.root()));
    // The body with a label around it is PEM.
    let pem = format!(
        "-----BEGIN PKCS7-----\n{}-----END PKCS7-----\n",
        answer.text()
    );
    std::fs::write(world.folder.path().join("ca.p7"), pem.replace('\r', "")).unwrap();
    let text = openssl(
        &["pkcs7", "-in", "ca.p7", "-print_certs", "-noout"],
        world.folder.path(),
    );
    assert_eq!(text.matches("subject=").count(), 4, "{text}");
}

#[tokio::test]
async fn device_enrols_with_name_and_code() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let key = key();
    let credentials = format!("camera-17:{}", code.as_str());
    let request = post(ENROLL, &csr("camera-17", &key), Some(&credentials));
    let answer = send(router(&world), request).await;
    assert_eq!(
        answer.header("content-type"),
        "application/pkcs7-mime; smime-type=certs-only"
    );
    let certificates = answer.certificates();
    assert_eq!(certificates.len(), 1);
    let chain = pki::CertificateChain::new(certificates).unwrap();
    let trust = world.registry.trust();
    let identity = trust
        .validate(chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
    assert_eq!(identity.common_name, "camera-17");
}

#[tokio::test]
async fn request_of_openssl_is_accepted() {
    let world = world().await;
    let code = world.code("camera-17").await;
    openssl(
        &[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            "k.pem",
            "-subj",
            "/CN=camera-17",
            "-outform",
            "DER",
            "-out",
            "r.der",
        ],
        world.folder.path(),
    );
    let der = std::fs::read(world.folder.path().join("r.der")).unwrap();
    let credentials = format!("camera-17:{}", code.as_str());
    let answer = send(router(&world), post(ENROLL, &der, Some(&credentials))).await;
    assert_eq!(answer.certificates().len(), 1);
}

#[tokio::test]
async fn wrong_credentials_are_challenged_without_saying_what_is_wrong() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let der = csr("camera-17", &key());
    let mut texts = std::collections::BTreeSet::new();
    let other = format!("camera-18:{}", code.as_str());
    for credentials in [
        None,
        Some("camera-17:guess"),
        Some(other.as_str()),
        Some("no colon"),
    ] {
        let answer = send(router(&world), post(ENROLL, &der, credentials)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert!(
            answer
                .header("www-authenticate")
                .starts_with("Basic realm=")
        );
        texts.insert(answer.text().to_owned());
    }
    assert_eq!(texts.len(), 1);
    let mut bearer = post(ENROLL, &der, None);
    bearer
        .headers_mut()
        .insert("authorization", "Bearer x".parse().unwrap());
    assert_eq!(
        send(router(&world), bearer).await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn bad_requests_have_distinct_statuses() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let credentials = format!("camera-17:{}", code.as_str());
    let good = csr("camera-17", &key());
    let status = async |request| {
        let answer = send(router(&world), request).await;
        (answer.status.as_u16(), answer.text().trim_end().to_owned())
    };

    let (code, text) = status(post(ENROLL, b"no request", Some(&credentials))).await;
    assert_eq!(code, 400);
    assert_eq!(
        text,
        "certification request refused: malformed certification request"
    );
    let (code, text) = status(post(ENROLL, &csr("camera-18", &key()), Some(&credentials))).await;
    assert_eq!(code, 400);
    assert!(text.contains("camera-18"), "{text}");

    let mut typed = post(ENROLL, &good, Some(&credentials));
    typed
        .headers_mut()
        .insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(status(typed).await.0, 415);
    let mut raw = post(ENROLL, &good, Some(&credentials));
    *raw.body_mut() = Body::from("%%%");
    assert_eq!(status(raw).await, (400, "body is not base64".to_owned()));
    let large = post(ENROLL, &vec![0; 20_000], Some(&credentials));
    assert_eq!(status(large).await.0, 413);
    assert_eq!(status(get(ENROLL)).await.0, 405);

    assert_eq!(status(post(ENROLL, &good, Some(&credentials))).await.0, 200);
    let used = post(ENROLL, &csr("camera-17", &key()), Some(&credentials));
    assert_eq!(status(used).await.0, 401);
}

#[tokio::test]
async fn events_of_enrolment_have_the_address() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let from: std::net::SocketAddr = "192.0.2.7:4711".parse().unwrap();
    for (code, status) in [("wrong", 401), (code.as_str(), 200)] {
        let credentials = format!("camera-17:{code}");
        let mut request = post(ENROLL, &csr("camera-17", &key()), Some(&credentials));
        request
            .extensions_mut()
            .insert(axum::extract::ConnectInfo(from));
        assert_eq!(send(router(&world), request).await.status.as_u16(), status);
    }
    let mut events = world.audit.events();
    events.retain(|event| event.action != "registry.open");
    assert_eq!(events.len(), 3);
    // The invitation comes from the command line.
    let addresses = events
        .iter()
        .map(|e| e.details.get("address").and_then(|v| v.as_str()));
    assert!(addresses.eq([None, Some("192.0.2.7"), Some("192.0.2.7")]));
}

async fn device(world: &World, name: &str) -> Issued {
    let issue =
        world
            .registry
            .issue_device(name, key().spki(), Clearance::Confidential, an_order(), NOW);
    issue.await.unwrap()
}

fn with_peer(mut request: Request<Body>, issued: &Issued) -> Request<Body> {
    let peer = PeerCertificates(Arc::new(issued.chain.ders().to_vec()));
    request.extensions_mut().insert(peer);
    request
}

#[tokio::test]
async fn device_renews_with_its_certificate_and_keeps_name_and_clearance() {
    let world = world().await;
    let present = device(&world, "camera-17").await;
    let next = key();
    let request = with_peer(post(REENROLL, &csr("camera-17", &next), None), &present);
    let renewed = send(router(&world), request).await.certificates();
    let chain = pki::CertificateChain::new(renewed).unwrap();
    let trust = world.registry.trust();
    let identity = trust
        .validate(chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
    assert_eq!(identity.common_name, "camera-17");
    assert_eq!(identity.clearance, Clearance::Confidential);
    assert_eq!(
        chain.leaf().tbs_certificate.subject_public_key_info,
        next.spki()
    );
    trust
        .validate(present.chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
}

#[tokio::test]
async fn renewal_is_refused_without_with_a_revoked_and_with_a_strange_certificate() {
    let world = world().await;
    let present = device(&world, "camera-17").await;
    let refused = async |request| {
        let answer = send(router(&world), request).await;
        (answer.status.as_u16(), answer.text().to_owned())
    };
    let request = || post(REENROLL, &csr("camera-17", &key()), None);
    assert_eq!(refused(request()).await.0, 403);
    let other = post(REENROLL, &csr("camera-18", &key()), None);
    assert_eq!(refused(with_peer(other, &present)).await.0, 400);

    let user = world
        .registry
        .issue_user(
            pki::name::Subject {
                uid: Some("camera-17".to_owned()),
                ..pki::name::Subject::new("camera-17")
            },
            key().spki(),
            Clearance::Restricted,
            false,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let (code, text) = refused(with_peer(request(), &user)).await;
    assert_eq!(code, 403);
    assert!(text.contains("did not come by an invitation"), "{text}");

    world
        .registry
        .revoke(
            CaKind::Devices,
            &present.serial,
            RevocationReason::KeyCompromise,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let (code, text) = refused(with_peer(request(), &present)).await;
    assert_eq!(code, 403);
    assert!(
        text.contains("revoked") && text.contains("key-compromise"),
        "{text}"
    );
}

#[tokio::test]
async fn lists_are_served_to_anybody() {
    let world = world().await;
    let public = est::public_router(world.registry.clone(), Arc::new(|| NOW));
    for name in ["root", "users", "devices", "services"] {
        for router in [router(&world), public.clone()] {
            let answer = send(router, get(&format!("/crl/{name}.crl"))).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.header("content-type"), "application/pkix-crl");
            pki::crl::parse(&answer.body).unwrap();
        }
    }
    // Whoever has the list is not sent it again; a revocation makes another one of it.
    let path = "/crl/devices.crl";
    let tag = send(public.clone(), get(path))
        .await
        .header("etag")
        .to_owned();
    let known = |tag: &str| {
        let request = Request::get(path).header("if-none-match", tag);
        send(public.clone(), request.body(Body::empty()).unwrap())
    };
    for form in [tag.clone(), format!("\"x\", W/{tag}"), "*".to_owned()] {
        let answer = known(&form).await;
        assert_eq!(answer.status, StatusCode::NOT_MODIFIED, "{form}");
        assert_eq!((answer.header("etag"), answer.body.len()), (&*tag, 0));
    }
    assert_eq!(known("\"x\"").await.status, StatusCode::OK);
    enrolled(&world, "camera-17").await;
    change(&world, STOLEN).await.unwrap();
    let answer = known(&tag).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_ne!(answer.header("etag"), tag);
    for path in [
        "/crl/other.crl",
        "/crl/users",
        "/crl/..%2f..%2fregistry.sqlite",
    ] {
        assert_eq!(
            send(router(&world), get(path)).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    let answer = send(public, get("/.well-known/est/cacerts")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}
