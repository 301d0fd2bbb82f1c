//! `[keys]`: algorithms of new keys, and the tokens that have those of authorities.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pki::key::KeyAlgorithm;
use pki::profile::CaKind;
use registry::AuthorityId;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// Algorithm of the authorities' keys in files.
    pub authority: String,
    /// Algorithm of the keys of users, devices and services.
    pub leaf: String,
    /// The users authority's key on a token (RFC 7512). Empty: in a file; so with the others.
    pub(crate) users_ca: String,
    pub devices_ca: String,
    pub services_ca: String,
    /// Keys of later generations on tokens, by the authority's name, `devices-g2` for instance.
    pub later: BTreeMap<String, String>,
    /// File with the PIN of the tokens.
    pub pin_file: PathBuf,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            authority: "ecdsa-p384".to_owned(),
            leaf: "ecdsa-p256".to_owned(),
            users_ca: String::new(),
            devices_ca: String::new(),
            services_ca: String::new(),
            later: BTreeMap::new(),
            pin_file: PathBuf::new(),
        }
    }
}

impl Keys {
    /// The name of an authority's key on a token, if it is on one.
    pub fn token_of(&self, id: AuthorityId) -> Option<&str> {
        if id.generation() > 1 {
            return self.later.get(&id.to_string()).map(String::as_str);
        }
        let name = match id.kind() {
            CaKind::Users => &self.users_ca,
            CaKind::Devices => &self.devices_ca,
            CaKind::Services => &self.services_ca,
        };
        (!name.is_empty()).then_some(name)
    }

    /// The authorities whose keys are on tokens.
    pub fn on_tokens(&self) -> impl Iterator<Item = (AuthorityId, &str)> {
        let first = CaKind::ALL.map(AuthorityId::first).into_iter();
        let later = self.later.keys().filter_map(|name| name.parse().ok());
        first
            .chain(later)
            .filter_map(|id| Some((id, self.token_of(id)?)))
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
        let is_later = |name: &String| {
            let id = name.parse::<AuthorityId>();
            id.is_ok_and(|id| id.generation() > 1)
        };
        if let Some(wrong) = self.later.keys().find(|name| !is_later(name)) {
            let problem = format!("{wrong:?} is no later generation, as devices-g2 is");
            return Some(("keys.later", problem));
        }
        for (id, name) in self.on_tokens() {
            let setting = match (id.generation(), id.kind()) {
                (1, CaKind::Users) => "keys.users_ca",
                (1, CaKind::Devices) => "keys.devices_ca",
                (1, CaKind::Services) => "keys.services_ca",
                _ => "keys.later",
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
        let later = |authority: &str, name: &str| Keys {
            later: [(authority.to_owned(), name.to_owned())].into(),
            pin_file: "pin".into(),
            ..Keys::default()
        };
        assert_eq!(later("devices-g2", module).mistake(), None);
        for (authority, name) in [
            ("devices", module),
            ("devices-g1", module),
            ("cars-g2", module),
            ("devices-g2", "devices.key"),
        ] {
            let wrong = setting(later(authority, name));
            assert_eq!(wrong, Some("keys.later"), "{authority} {name}");
        }
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
