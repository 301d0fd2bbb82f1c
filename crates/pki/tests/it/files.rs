//! A hierarchy survives being written to files and read again.

use pki::file;
use pki::issue::CertificateAuthority;
use pki::oid::ExtensionArc;
use pki::profile::Profile;

use crate::fixture::{NOW, World, key, request};

#[test]
fn authority_read_from_files_issues_what_the_world_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let algorithm = pki::KeyAlgorithm::EcdsaP384;
    let chain = pki::CertificateChain::new(vec![world.users.certificate().clone()]).unwrap();
    file::save_chain(&dir.path().join("users.pem"), &chain).unwrap();
    file::save_private(
        &dir.path().join("users.key"),
        &key(algorithm, 1),
        &"secret".into(),
    )
    .unwrap();

    let certificate = file::load_chain(&dir.path().join("users.pem"))
        .unwrap()
        .leaf()
        .clone();
    let private = file::load_private(&dir.path().join("users.key"), &"secret".into()).unwrap();
    let users = CertificateAuthority::new(certificate, private, ExtensionArc::default()).unwrap();
    let profile = Profile::User {
        administrator: false,
    };
    let leaf = users
        .issue(&request(profile, &key(algorithm, 9)), NOW)
        .unwrap();
    let leaf = pki::CertificateChain::new(vec![leaf]).unwrap();
    world
        .trust()
        .validate(leaf.ders(), pki::path::Purpose::ClientUser, NOW)
        .unwrap();
}
