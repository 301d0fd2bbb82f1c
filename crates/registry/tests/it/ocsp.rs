//! OCSP responses: what is said, of whom, for how long.

use std::sync::Arc;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use const_oid::ObjectIdentifier;
use const_oid::db::rfc6960::ID_PKIX_OCSP_NONCE;
use der::asn1::OctetString;
use der::{Decode as _, Encode as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::ocsp::responder::{MAX_REQUEST, Refusal};
use pki::ocsp::{CertStatus, Query};
use pki::path::Purpose;
use pki::profile::{CaKind, Profile};
use pki::status::StatusCache;
use registry::{AuthorityId, Issued, Order, Registry, est};
use time::{Duration, OffsetDateTime};
use tower::ServiceExt as _;
use x509_cert::ext::Extension;
use x509_ocsp::{
    BasicOcspResponse, OcspRequest, OcspResponse, Request as OneRequest, TbsRequest, Version,
};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, world};

/// Has an authority's responses signed; what the site does at its start.
pub(crate) async fn with_signer(registry: &Registry, kind: CaKind, now: OffsetDateTime) -> Issued {
    let key = key();
    let order = Order::new(Profile::OcspSigner(kind), Subject::new("OCSP"), key.spki());
    let issued = registry.issue(order, an_order(), now).await.unwrap();
    registry
        .set_ocsp_signer(AuthorityId::first(kind), key, &issued.chain)
        .unwrap();
    issued
}

async fn camera(world: &World) -> Issued {
    let (spki, clearance) = (key().spki(), Clearance::Restricted);
    let issued = world
        .registry
        .issue_device("camera-17", spki, clearance, an_order(), NOW);
    issued.await.unwrap()
}

fn query(world: &World, issued: &Issued) -> Query {
    let issuer = world.registry.authority_certificate(issued.authority);
    Query::new(
        issued.chain.leaf(),
        &[&issuer.unwrap()],
        &StatusCache::new(),
    )
    .unwrap()
}

#[tokio::test]
async fn response_follows_the_database_at_once() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let issued = camera(&world).await;
    let query = query(&world, &issued);
    let answer = registry.ocsp_response(query.request(), NOW).await.unwrap();
    let until = NOW + Duration::hours(12);
    assert_eq!(
        query.status(&answer.der, NOW),
        Ok((CertStatus::Good, until))
    );
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Devices, &issued.serial, reason, an_order(), NOW);
    revoked.await.unwrap();
    let answer = registry.ocsp_response(query.request(), NOW).await.unwrap();
    let status = query.status(&answer.der, NOW).unwrap().0;
    assert_eq!(status, CertStatus::Revoked(NOW));
}

#[tokio::test]
async fn certificates_of_a_revoked_authority_are_revoked() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let query = query(&world, &camera(&world).await);
    let status = async || {
        let answer = registry.ocsp_response(query.request(), NOW).await.unwrap();
        query.status(&answer.der, NOW).unwrap().0
    };
    assert_eq!(status().await, CertStatus::Good);
    let (folder, root) = (world.folder.path(), &SECRETS.root);
    for (kind, expected) in [
        (CaKind::Users, CertStatus::Good),
        (CaKind::Devices, CertStatus::Revoked(NOW)),
    ] {
        let reason = RevocationReason::CaCompromise;
        let id = AuthorityId::first(kind);
        Registry::revoke_authority(folder, &config(), root, id, reason, NOW).unwrap();
        registry.take_root_list(NOW).unwrap();
        assert_eq!(status().await, expected, "{kind}");
    }
}

#[tokio::test]
async fn response_is_signed_once_in_half_its_time() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let issued = camera(&world).await;
    let query = query(&world, &issued);
    let at = |now| registry.ocsp_response(query.request(), now);
    let first = at(NOW).await.unwrap();
    let half = Duration::hours(6);
    let same = at(NOW + half - Duration::SECOND).await.unwrap();
    assert!(Arc::ptr_eq(&first.der, &same.der));
    let next = at(NOW + half).await.unwrap();
    assert_eq!(next.next_update, NOW + half * 3);
    // After a clock that was ahead was set right nothing of the future is handed out.
    let right = at(NOW).await.unwrap();
    assert_eq!(right.next_update, NOW + half * 2);
    // A response does not outlive the certificate of its signer.
    let signer = with_signer(registry, CaKind::Devices, NOW).await;
    let late = signer.not_after - Duration::HOUR;
    assert_eq!(at(late).await.unwrap().next_update, signer.not_after);
}

#[tokio::test]
async fn nothing_is_said_of_certificates_of_others() {
    let world = world().await;
    let registry = &world.registry;
    for kind in CaKind::ALL {
        with_signer(registry, kind, NOW).await;
    }
    let issued = camera(&world).await;
    let good = query(&world, &issued).request().to_vec();
    // Another hierarchy of the same names, whose certificates this one has not issued.
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    let other = crate::fixture::open(folder.path(), Arc::<audit::MemorySink>::default()).await;
    let foreign = World {
        folder,
        registry: other,
        audit: Arc::default(),
    };
    let theirs = query(&foreign, &camera(&foreign).await);
    let refused = registry.ocsp_response(theirs.request(), NOW).await;
    assert_eq!(refused.unwrap_err(), Refusal::Unauthorized);
    // A number of ours that was never given out.
    let serial = hex::decode(&issued.serial).unwrap();
    let at = good
        .windows(serial.len())
        .position(|w| *w == serial)
        .unwrap();
    let mut unknown = good.clone();
    unknown[at + serial.len() - 1] ^= 1;
    let refused = registry.ocsp_response(&unknown, NOW).await;
    assert_eq!(refused.unwrap_err(), Refusal::Unauthorized);
    // Parameters of a hash that nobody has: each would be one more signature.
    let null = good.windows(2).position(|w| *w == [5, 0]).unwrap();
    let mut parameters = good.clone();
    parameters[null] = 4;
    for bad in [
        &good[..good.len() - 1],
        b"",
        &[0x30; MAX_REQUEST + 1],
        &parameters,
    ] {
        let refused = registry.ocsp_response(bad, NOW).await;
        assert_eq!(refused.unwrap_err(), Refusal::MalformedRequest);
    }
}

#[tokio::test]
async fn signer_of_responses_is_nobody_else() {
    let world = world().await;
    let registry = &world.registry;
    let trust = registry.trust();
    for kind in CaKind::ALL {
        let signer = with_signer(registry, kind, NOW).await;
        assert!(registry.holder_state(kind, "OCSP").await.unwrap().is_none());
        for purpose in [
            Purpose::Client,
            Purpose::ClientEnrolment,
            Purpose::Server,
            Purpose::Signer,
            Purpose::Recipient,
            Purpose::Ike,
            Purpose::VpnDevice,
        ] {
            let refused = trust.validate(signer.chain.ders(), purpose, NOW);
            assert!(refused.is_err(), "{kind} {purpose:?}");
        }
    }
}

#[tokio::test]
async fn requests_come_by_post_and_get_and_nothing_else_is_there() {
    let world = world().await;
    with_signer(&world.registry, CaKind::Devices, NOW).await;
    let issued = camera(&world).await;
    let query = query(&world, &issued);
    let send = async |request: Request<Body>| {
        let router = est::public_router(world.registry.clone(), Arc::new(|| NOW));
        let answer = router.oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        (parts.status, parts.headers, body)
    };
    let post = |body: Vec<u8>| Request::post("/ocsp").body(Body::from(body)).unwrap();
    let letters = STANDARD.encode(query.request());
    let letters = letters
        .replace('/', "%2F")
        .replace('+', "%2B")
        .replace('=', "%3D");
    let get = Request::get(format!("/ocsp/{letters}")).body(Body::empty());
    for request in [post(query.request().to_vec()), get.unwrap()] {
        let (status, headers, body) = send(request).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["content-type"], "application/ocsp-response");
        let cache = headers["cache-control"].to_str().unwrap();
        assert!(cache.starts_with("max-age=21600, "), "{cache}");
        assert_eq!(query.status(&body, NOW).unwrap().0, CertStatus::Good);
    }
    let (status, headers, body) = send(post(b"none".to_vec())).await;
    assert_eq!(
        (status, body),
        (StatusCode::OK, Refusal::MalformedRequest.to_der())
    );
    assert!(
        headers["cache-control"]
            .to_str()
            .unwrap()
            .starts_with("max-age=0,")
    );
    let (status, ..) = send(post(vec![0; MAX_REQUEST + 1])).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // Enrolment is not for plain HTTP.
    for path in ["/.well-known/est/cacerts", "/.well-known/est/simpleenroll"] {
        let (status, ..) = send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}

/// A request about certificates of one authority, with a nonce.
fn request(queries: &[&Query], nonce: Option<&[u8]>) -> Vec<u8> {
    let asked = queries.iter().flat_map(|query| {
        let request = OcspRequest::from_der(query.request()).unwrap();
        request.tbs_request.request_list
    });
    let nonce = nonce.map(|nonce| vec![extension(ID_PKIX_OCSP_NONCE, false, nonce)]);
    whole(asked.collect(), nonce)
}

fn whole(request_list: Vec<OneRequest>, request_extensions: Option<Vec<Extension>>) -> Vec<u8> {
    let tbs_request = TbsRequest {
        version: Version::V1,
        requestor_name: None,
        request_list,
        request_extensions,
    };
    let request = OcspRequest {
        tbs_request,
        optional_signature: None,
    };
    request.to_der().unwrap()
}

fn extension(extn_id: ObjectIdentifier, critical: bool, value: &[u8]) -> Extension {
    let inner = OctetString::new(value).unwrap().to_der().unwrap();
    Extension {
        extn_id,
        critical,
        extn_value: OctetString::new(inner).unwrap(),
    }
}

/// Nonce and serial numbers of a response, whose signature the queries check.
fn told(der: &[u8]) -> (Option<Vec<u8>>, usize) {
    let response = OcspResponse::from_der(der).unwrap();
    let bytes = response.response_bytes.unwrap().response;
    let data = BasicOcspResponse::from_der(bytes.as_bytes())
        .unwrap()
        .tbs_response_data;
    let nonce = data.response_extensions.map(|extensions| {
        assert_eq!(extensions.len(), 1);
        let value = OctetString::from_der(extensions[0].extn_value.as_bytes());
        value.unwrap().into_bytes()
    });
    (nonce, data.responses.len())
}

#[tokio::test]
async fn nonce_is_repeated_and_several_certificates_are_answered_at_once() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let (one, two) = (camera(&world).await, camera(&world).await);
    let reason = RevocationReason::Superseded;
    let revoked = registry.revoke(CaKind::Devices, &two.serial, reason, an_order(), NOW);
    revoked.await.unwrap();
    let (first, second) = (query(&world, &one), query(&world, &two));
    for length in [1, 32, 128] {
        let nonce = vec![7; length];
        let asked = request(&[&first, &second], Some(&nonce));
        let answer = registry.ocsp_response(&asked, NOW).await.unwrap();
        assert!(!answer.shared);
        assert_eq!(told(&answer.der), (Some(nonce), 2));
        assert_eq!(first.status(&answer.der, NOW).unwrap().0, CertStatus::Good);
        assert_eq!(
            second.status(&answer.der, NOW).unwrap().0,
            CertStatus::Revoked(NOW)
        );
    }
    let shared = registry
        .ocsp_response(&request(&[&first], None), NOW)
        .await
        .unwrap();
    assert!(shared.shared);
    assert_eq!(told(&shared.der), (None, 1));
}

#[tokio::test]
async fn request_with_a_wrong_nonce_too_many_certificates_or_an_unknown_critical_extension_is_malformed()
 {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let users = with_signer(registry, CaKind::Users, NOW).await;
    let one = query(&world, &camera(&world).await);
    let single = OcspRequest::from_der(one.request())
        .unwrap()
        .tbs_request
        .request_list;
    let nonce = |bytes: &[u8]| extension(ID_PKIX_OCSP_NONCE, false, bytes);
    let unknown = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.32473.1");
    let mut critical = single.clone();
    critical[0].single_request_extensions = Some(vec![extension(unknown, true, b"x")]);
    for bad in [
        whole(single.clone(), Some(vec![nonce(b"")])),
        whole(single.clone(), Some(vec![nonce(&[7; 129])])),
        whole(single.clone(), Some(vec![nonce(b"one"), nonce(b"two")])),
        whole(single.clone(), Some(vec![extension(unknown, true, b"x")])),
        whole(critical, None),
        whole(vec![single[0].clone(); 17], None),
        whole(Vec::new(), None),
    ] {
        let refused = registry.ocsp_response(&bad, NOW).await.unwrap_err();
        assert_eq!(refused, Refusal::MalformedRequest, "{}", hex::encode(bad));
    }
    // What is not critical is not looked at.
    let known = whole(single, Some(vec![extension(unknown, false, b"x")]));
    assert!(registry.ocsp_response(&known, NOW).await.unwrap().shared);
    // No responder of one authority speaks for another one.
    let mixed = request(&[&one, &query(&world, &users)], None);
    let refused = registry.ocsp_response(&mixed, NOW).await.unwrap_err();
    assert_eq!(refused, Refusal::Unauthorized);
}

#[tokio::test]
async fn strangers_with_nonces_cost_a_bounded_number_of_signatures() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let one = query(&world, &camera(&world).await);
    let mut own = 0;
    for number in 0_u32..300 {
        let asked = request(&[&one], Some(&number.to_be_bytes()));
        own += u32::from(!registry.ocsp_response(&asked, NOW).await.unwrap().shared);
    }
    assert_eq!(own, 200);
    // Several cannot be answered from what is signed; the next second they can.
    let several = request(&[&one, &one], None);
    let refused = registry.ocsp_response(&several, NOW).await.unwrap_err();
    assert_eq!(refused, Refusal::TryLater);
    let later = registry
        .ocsp_response(&several, NOW + Duration::SECOND)
        .await;
    assert_eq!(told(&later.unwrap().der).1, 2);
}
