//! `[keys]`: algorithms of new keys, and the tokens that have those of authorities.

use std::path::PathBuf;

use pki::key::KeyAlgorithm;
use pki::profile::CaKind;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Keys {
    /// Algorithm of the authorities' keys in files.
    pub(crate) authority: String,
    /// Algorithm of the keys of users, devices and services.
    pub(crate) leaf: String,
    /// The users authority's key on a token (RFC 7512). Empty: in a file; so with the others.
    pub(crate) users_ca: String,
    pub(crate) devices_ca: String,
    pub(crate) services_ca: String,
    /// File with the PIN of the tokens.
    pub(crate) pin_file: PathBuf,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            authority: "ecdsa-p384".to_owned(),
            leaf: "ecdsa-p256".to_owned(),
            users_ca: String::new(),
            devices_ca: String::new(),
            services_ca: String::new(),
            pin_file: PathBuf::new(),
        }
    }
}

impl Keys {
    /// The name of an authority's key on a token, if it is on one.
    pub(crate) fn token_of(&self, kind: CaKind) -> Option<&str> {
        let name = match kind {
            CaKind::Users => &self.users_ca,
            CaKind::Devices => &self.devices_ca,
            CaKind::Services => &self.services_ca,
        };
        (!name.is_empty()).then_some(name)
    }

    /// The first wrong value: its setting, and what is wrong.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        for (setting, value) in [
            ("keys.authority", &self.authority),
            ("keys.leaf", &self.leaf),
        ] {
            if value.parse::<KeyAlgorithm>().is_err() {
                let known: Vec<&str> = KeyAlgorithm::ALL.iter().map(|a| a.name()).collect();
                return Some((setting, format!("must be one of {}", known.join(", "))));
            }
        }
        for (setting, kind) in [
            ("keys.users_ca", CaKind::Users),
            ("keys.devices_ca", CaKind::Devices),
            ("keys.services_ca", CaKind::Services),
        ] {
            let Some(name) = self.token_of(kind) else {
                continue;
            };
            if let Err(what) = keyhost::check_token(name) {
                return Some((setting, format!("must name a key on a token: {what}")));
            }
            if self.pin_file.as_os_str().is_empty() {
                let problem = "must name the file with the token's PIN".to_owned();
                return Some(("keys.pin_file", problem));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_on_a_token_needs_a_whole_name_and_a_pin() {
        let module = "pkcs11:module-path=/usr/lib/libsofthsm2.so;token=t;object=users-ca";
        let keys = |name: &str, pin: &str| Keys {
            users_ca: name.to_owned(),
            pin_file: pin.into(),
            ..Keys::default()
        };
        assert_eq!(Keys::default().mistake(), None);
        assert_eq!(keys(module, "/etc/cordon/pin").mistake(), None);
        let setting = |keys: Keys| keys.mistake().map(|(setting, _)| setting);
        assert_eq!(setting(keys(module, "")), Some("keys.pin_file"));
        for wrong in [
            "users.key",
            "pkcs11:object=users-ca",
            "pkcs11:module-path=lib.so;id=%01",
        ] {
            assert_eq!(
                setting(keys(wrong, "pin")),
                Some("keys.users_ca"),
                "{wrong}"
            );
        }
    }
}
