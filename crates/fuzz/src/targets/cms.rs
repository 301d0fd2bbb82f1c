//! CMS messages: from nothing, and as edits of valid ones. An edited message that still verifies
//! or decrypts must give the original content.

use std::sync::OnceLock;

use crate::support::{edit, world};
use evidence::cms::{self, Placement};

const CONTENT: &[u8] = b"{\"what\":\"was signed\"}";

fn samples() -> &'static (Vec<u8>, Vec<u8>) {
    static SAMPLES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let w = world();
        let signed = cms::sign(
            &w.camera_key,
            &w.camera,
            CONTENT,
            Placement::Attached,
            w.now,
        )
        .unwrap();
        (
            signed,
            cms::encrypt(CONTENT, std::slice::from_ref(&w.recipient)).unwrap(),
        )
    })
}

fn check(der: &[u8], edited: bool) {
    if let Ok(verified) = cms::parse_signed_data(der).and_then(|m| m.verify())
        && edited
        // An edit may exchange the certificate for none of ours; then content proves nothing.
        && verified.signer_chain.leaf() == world().camera.leaf()
    {
        assert_eq!(verified.content, CONTENT);
    }
    let keys = world().recipient_keys();
    if let Ok(plain) = cms::parse_auth_enveloped_data(der).and_then(|m| m.decrypt(&keys)) {
        assert_eq!(plain.as_slice(), CONTENT);
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let (signed, enveloped) = samples();
    match mode % 3 {
        0 => check(rest, false),
        1 => check(&edit(signed, rest), true),
        _ => check(&edit(enveloped, rest), true),
    }
}
