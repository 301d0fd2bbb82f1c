//! Certificates that were admitted before: their signatures are not verified again, all else is.

use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::path::{PathError, Purpose};
use pki::status::{IssuerId, Revocation};
use registry::AdmissionError;
use rustls_pki_types::CertificateDer;
use time::Duration;

use crate::fixture::{NOW, an_order, key, world};

#[tokio::test]
async fn admitted_certificate_is_refused_from_its_revocation_on() {
    let world = world().await;
    let registry = &world.registry;
    let issued = registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let chain = issued.chain.ders();
    for _ in 0..3 {
        registry
            .admit(chain, Purpose::ClientDevice, NOW)
            .await
            .unwrap();
    }
    // As a list of another site's making says it: the database knows nothing of it.
    let tbs = &issued.chain.leaf().tbs_certificate;
    let revocation = Revocation {
        at: NOW,
        reason: RevocationReason::KeyCompromise,
    };
    registry
        .trust()
        .status()
        .revoke(
            IssuerId::of(&tbs.issuer),
            tbs.serial_number.as_bytes(),
            revocation,
        )
        .unwrap();
    let refused = registry.admit(chain, Purpose::ClientDevice, NOW).await;
    assert!(
        matches!(
            refused,
            Err(AdmissionError::Path(PathError::Revoked { .. }))
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn admitted_certificate_is_refused_outside_of_its_dates_and_purpose_and_chain() {
    let world = world().await;
    let registry = &world.registry;
    let issued = registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let chain = issued.chain.ders();
    registry
        .admit(chain, Purpose::ClientDevice, NOW)
        .await
        .unwrap();
    let path = |result: Result<_, AdmissionError>| match result {
        Err(AdmissionError::Path(error)) => error,
        other => panic!("{other:?}"),
    };
    let later = NOW + Duration::days(3000);
    let error = path(registry.admit(chain, Purpose::ClientDevice, later).await);
    assert!(matches!(error, PathError::Expired { .. }), "{error:?}");
    let earlier = NOW - Duration::days(3000);
    let error = path(registry.admit(chain, Purpose::ClientDevice, earlier).await);
    assert!(matches!(error, PathError::NotYetValid { .. }), "{error:?}");
    path(registry.admit(chain, Purpose::ClientUser, NOW).await);
    // One bit of the signature: another chain, whatever was accepted before.
    let mut forged: Vec<CertificateDer<'static>> =
        chain.iter().map(|der| der.clone().into_owned()).collect();
    let mut leaf = forged[0].to_vec();
    *leaf.last_mut().unwrap() ^= 1;
    forged[0] = leaf.into();
    path(registry.admit(&forged, Purpose::ClientDevice, NOW).await);
    registry
        .admit(chain, Purpose::ClientDevice, NOW)
        .await
        .unwrap();
}
