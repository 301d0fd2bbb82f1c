//! Certificates, requests, lists and certificate bags from outside.

use std::sync::OnceLock;

use crate::support::{edit, world};
use pki::cert::CertificateChain;
use pki::path::Purpose;

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    match mode % 6 {
        0 => drop(pki::csr::parse_and_verify(rest)),
        1 => {
            static CSR: OnceLock<Vec<u8>> = OnceLock::new();
            let csr = CSR.get_or_init(|| {
                let subject = pki::name::Subject::new("camera-17");
                pki::csr::build(&world().camera_key, &subject, &[]).unwrap()
            });
            let edited = edit(csr, rest);
            // The outer algorithm identifier is not signed, so other bytes may verify, but they
            // cannot ask for anything else.
            if let Ok(altered) = pki::csr::parse_and_verify(&edited) {
                let original = pki::csr::parse_and_verify(csr).unwrap();
                assert_eq!(format!("{altered:?}"), format!("{original:?}"));
            }
        }
        2 => {
            let chain = world().camera.ders();
            let leaf = edit(&chain[0], rest);
            let edited = vec![leaf.clone().into(), chain[1].clone()];
            let valid = world()
                .trust()
                .validate(&edited, Purpose::DeviceSigner, world().now);
            assert!(
                valid.is_err() || leaf == chain[0].as_ref(),
                "an altered certificate is valid"
            );
        }
        3 => drop(pki::pkcs7::parse_certs_only(rest)),
        4 => drop(pki::crl::parse(rest)),
        _ => {
            drop(CertificateChain::from_ders([rest.to_vec()]));
            if let Ok(text) = std::str::from_utf8(rest) {
                drop(CertificateChain::from_pem(text));
            }
        }
    }
}
