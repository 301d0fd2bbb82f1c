//! Certificates of the built-in profiles, extension by extension.

use std::fmt::Write as _;

use const_oid::db::rfc5912::{ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_SUBJECT_KEY_IDENTIFIER};
use pki::key::KeyAlgorithm;
use pki::profile::Profile;

use crate::fixture::{World, key, request};

/// One line for each profile and kind of key: extensions in their order, with an exclamation mark where they are critical,
/// and values in hexadecimal, but for key identifiers.
fn described() -> String {
    let world = World::new();
    let mut lines = String::new();
    for algorithm in [
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::Ed25519,
    ] {
        for profile in Profile::ALL {
            if profile == Profile::Root {
                continue;
            }
            let Ok(certificate) = world
                .authority(profile)
                .issue(&request(profile, &key(algorithm, 9)), crate::fixture::NOW)
            else {
                writeln!(lines, "{profile} {algorithm}: none").unwrap();
                continue;
            };
            write!(lines, "{profile} {algorithm}:").unwrap();
            for extension in certificate.tbs_certificate.extensions.unwrap() {
                let of_key = [ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_SUBJECT_KEY_IDENTIFIER];
                let value = match of_key.contains(&extension.extn_id) {
                    true => "key".to_owned(),
                    false => hex::encode(extension.extn_value.as_bytes()),
                };
                let mark = if extension.critical { "!" } else { "" };
                write!(lines, " {}{mark}={value}", extension.extn_id).unwrap();
            }
            lines.push('\n');
        }
    }
    lines
}

/// The file was written before profiles were files.
#[test]
fn built_in_profiles_give_the_extensions_that_they_always_gave() {
    let expected = include_str!("../data/profiles.txt");
    for (is, should) in described().lines().zip(expected.lines()) {
        assert_eq!(is, should);
    }
    assert_eq!(described().lines().count(), expected.lines().count());
}
