//! Setting up and opening.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use audit::MemorySink;
use pki::file::FileError;
use pki::key::Passphrase;
use registry::{Registry, RegistryError};
use time::Duration;

use crate::fixture::{NOW, SECRETS, config, openssl, world};

#[tokio::test]
async fn hierarchy_is_made_once_and_its_keys_are_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!Registry::is_initialised(folder.path()).unwrap());
    // What a crash leaves does not stand in the way.
    fs::create_dir_all(folder.path().join("pki.unfinished/crl")).unwrap();
    fs::write(folder.path().join("pki.unfinished/root.key"), "half a key").unwrap();
    Registry::init(folder.path(), &config(), &SECRETS, NOW).unwrap();
    assert!(Registry::is_initialised(folder.path()).unwrap());
    assert!(!folder.path().join("pki.unfinished").exists());
    let before = fs::read(folder.path().join("pki/root.pem")).unwrap();
    assert!(matches!(
        Registry::init(folder.path(), &config(), &SECRETS, NOW),
        Err(RegistryError::AlreadyInitialised(_))
    ));
    assert_eq!(
        fs::read(folder.path().join("pki/root.pem")).unwrap(),
        before
    );
    for name in ["root", "users-ca", "devices-ca", "services-ca"] {
        let path = folder.path().join(format!("pki/{name}.key"));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    }
}

#[tokio::test]
async fn opening_needs_the_issuing_passphrase_but_not_the_root_key() {
    let world = world().await;
    world.registry.close(NOW).await;
    fs::remove_file(world.folder.path().join("pki/root.key")).unwrap();
    let open = |passphrase: Passphrase| {
        let audit = Arc::new(MemorySink::default());
        let folder = world.folder.path().to_owned();
        async move { Registry::open(&folder, config(), &passphrase, audit, NOW).await }
    };
    open(SECRETS.issuing.clone()).await.unwrap();
    assert!(matches!(
        open("guess".into()).await.err(),
        Some(RegistryError::File(FileError::Key { .. }))
    ));
    let empty = tempfile::tempdir().unwrap();
    let audit = Arc::new(MemorySink::default());
    assert!(matches!(
        Registry::open(empty.path(), config(), &"".into(), audit, NOW)
            .await
            .err(),
        Some(RegistryError::NotInitialised(_))
    ));
}

#[tokio::test]
async fn swapped_authority_files_are_noticed() {
    let world = world().await;
    world.registry.close(NOW).await;
    let pki = world.folder.path().join("pki");
    for extension in ["pem", "key"] {
        fs::copy(
            pki.join(format!("users-ca.{extension}")),
            pki.join(format!("devices-ca.{extension}")),
        )
        .unwrap();
    }
    let audit = Arc::new(MemorySink::default());
    let outcome = Registry::open(world.folder.path(), config(), &SECRETS.issuing, audit, NOW).await;
    let devices = registry::AuthorityId::first(pki::profile::CaKind::Devices);
    assert!(matches!(
        outcome.err(),
        Some(RegistryError::WrongKind { expected }) if expected == devices
    ));
}

#[tokio::test]
async fn openssl_accepts_hierarchy_and_lists() {
    let world = world().await;
    let pki = world.folder.path().join("pki");
    let at = (NOW + Duration::HOUR).unix_timestamp().to_string();
    for name in ["users", "devices", "services"] {
        let ca = format!("{name}-ca.pem");
        openssl(
            &[
                "verify",
                "-x509_strict",
                "-attime",
                &at,
                "-CAfile",
                "root.pem",
                "-crl_check",
                "-CRLfile",
                "crl/root.crl",
                &ca,
            ],
            &pki,
        );
        let list = format!("crl/{name}.crl");
        let text = openssl(
            &[
                "crl", "-inform", "DER", "-in", &list, "-CAfile", &ca, "-noout", "-text",
            ],
            &pki,
        );
        assert!(text.contains("verify OK"), "{text}");
        assert!(text.contains("No Revoked Certificates"), "{text}");
    }
}
