//! Certificates that are in use: which of them are still to be accepted.

use pki::profile::CaKind;
use registry::HolderChange;

use crate::fixture::world;
use crate::holders::{STOLEN, change, enrolled};

#[tokio::test]
async fn certificate_in_use_stands_as_long_as_it_and_its_holder_do() {
    let world = world().await;
    let registry = &world.registry;
    let issued = enrolled(&world, "camera-17").await;
    let code = async |kind, serial: &str| {
        let standing = registry.check_standing(kind, serial).await;
        standing.err().map(|refused| refused.code())
    };
    let own = issued.serial.as_str();
    assert_eq!(code(CaKind::Devices, own).await, None);
    // Numbers are an authority's.
    let nobody = Some("certificate-not-issued");
    assert_eq!(code(CaKind::Users, own).await, nobody);
    assert_eq!(code(CaKind::Devices, "00ff").await, nobody);
    assert!(
        registry
            .refused_holders(CaKind::Devices)
            .await
            .unwrap()
            .is_empty()
    );
    change(&world, HolderChange::Suspend).await.unwrap();
    assert_eq!(code(CaKind::Devices, own).await, Some("holder-suspended"));
    let refused = registry.refused_holders(CaKind::Devices).await.unwrap();
    assert_eq!(refused, ["camera-17"]);
    change(&world, HolderChange::Resume).await.unwrap();
    assert_eq!(code(CaKind::Devices, own).await, None);
    change(&world, STOLEN).await.unwrap();
    assert_eq!(
        code(CaKind::Devices, own).await,
        Some("certificate-revoked")
    );
    change(&world, HolderChange::Readmit).await.unwrap();
    // The holder has another one now; this stays revoked.
    enrolled(&world, "camera-17").await;
    assert_eq!(
        code(CaKind::Devices, own).await,
        Some("certificate-revoked")
    );
    assert!(
        registry
            .refused_holders(CaKind::Devices)
            .await
            .unwrap()
            .is_empty()
    );
}
