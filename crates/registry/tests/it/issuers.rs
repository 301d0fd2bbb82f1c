//! Issuers' certificates at the addresses that certificates name.

use std::path::Path;
use std::sync::Arc;

use audit::MemorySink;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::clearance::Clearance;
use registry::{Config, Issued, Registry, est};
use tower::ServiceExt as _;

use crate::fixture::{NOW, SECRETS, an_order, config, key, openssl, world};

async fn camera(registry: &Registry) -> Issued {
    let (spki, clearance) = (key().spki(), Clearance::Restricted);
    let issued = registry.issue_device("camera-17", spki, clearance, an_order(), NOW);
    issued.await.unwrap()
}

/// Status, type and body of an answer of the public listener.
async fn get(registry: &Registry, path: &str) -> (StatusCode, String, Vec<u8>) {
    let router = est::public_router(registry.clone(), Arc::new(|| NOW));
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status();
    let kind = answer.headers().get("content-type");
    let kind = kind.map_or("", |kind| kind.to_str().unwrap()).to_owned();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, kind, body.to_vec())
}

/// The address of the issuer that OpenSSL reads from a certificate.
fn issuer_address(folder: &Path, der: &[u8]) -> Option<String> {
    std::fs::write(folder.join("one.der"), der).unwrap();
    let arguments = "x509 -inform DER -in one.der -noout -text";
    let text = openssl(&arguments.split(' ').collect::<Vec<_>>(), folder);
    let (_, address) = text.split_once("CA Issuers - URI:")?;
    Some(address.lines().next().unwrap().to_owned())
}

#[tokio::test]
async fn issuers_are_where_certificates_say_up_to_the_root() {
    let world = world().await;
    let folder = tempfile::tempdir().unwrap();
    let issued = camera(&world.registry).await;
    let mut der = issued.chain.ders()[0].to_vec();
    for file in ["devices.cer", "root.cer"] {
        let address = issuer_address(folder.path(), &der).unwrap();
        assert_eq!(address, format!("http://pki.example.org/ca/{file}"));
        let path = address.strip_prefix("http://pki.example.org").unwrap();
        let (status, kind, body) = get(&world.registry, path).await;
        assert_eq!(
            (status, kind.as_str()),
            (StatusCode::OK, "application/pkix-cert")
        );
        let issuer = pki::cert::from_der(&body).unwrap();
        let subject = pki::cert::from_der(&der).unwrap();
        assert!(pki::cert::is_signed_by(&subject, &issuer), "{file}");
        der = body;
    }
    assert_eq!(der, pki::cert::to_der(world.registry.root()).unwrap());
    // The root is its own issuer.
    assert_eq!(issuer_address(folder.path(), &der), None);
}

#[tokio::test]
async fn other_names_lead_nowhere() {
    let world = world().await;
    for name in [
        "users",
        "users.crl",
        "users-g1.cer",
        "users-g2.cer",
        "root-g2.cer",
        "Users.cer",
        ".cer",
        "..%2Froot.key",
        "users.cer.key",
    ] {
        let (status, ..) = get(&world.registry, &format!("/ca/{name}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{name}");
    }
}

#[tokio::test]
async fn certificates_of_a_site_without_public_address_name_no_issuer() {
    let world = world().await;
    world.registry.close(NOW).await;
    let without = Config {
        ca_base_url: None,
        ..config()
    };
    let audit = Arc::<MemorySink>::clone(&world.audit);
    let registry = Registry::open(world.folder.path(), without, &SECRETS.issuing, audit, NOW);
    let registry = registry.await.unwrap();
    let issued = camera(&registry).await;
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(issuer_address(folder.path(), &issued.chain.ders()[0]), None);
}
