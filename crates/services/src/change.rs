//! Changes of a record, field by field.

use std::collections::BTreeSet;

use access::Role;
use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};

use crate::{Client, ClientKey, Connection, Icon, Service, ServiceError};

/// New values of some fields; the others stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    pub name: Option<String>,
    pub address: Option<String>,
    pub icon: Option<Icon>,
    pub owner: Option<String>,
    pub level: Option<Clearance>,
    pub roles: Option<BTreeSet<Role>>,
    pub units: Option<BTreeSet<String>>,
    pub connection: Option<ConnectionChange>,
}

/// A new connection, or new values of some fields of the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionChange {
    Link,
    Openid(ClientChange),
}

/// New values of some fields of a client; a new client needs redirect addresses and a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientChange {
    pub redirects: Option<Vec<String>>,
    pub key: Option<ClientKey>,
    /// `Some(None)` ends back-channel logout.
    #[serde(skip_serializing_if = "Option::is_none", with = "given")]
    pub logout: Option<Option<String>>,
    pub logout_trust: Option<String>,
}

/// Tells a field that is `null` from one that is absent.
mod given {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde demands this signature")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<String>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().and_then(Option::as_ref).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Option<String>>, D::Error> {
        Option::deserialize(from).map(Some)
    }
}

impl Change {
    /// The record with these changes; it is checked when it is stored.
    ///
    /// # Errors
    /// [`ServiceError`] if a connection would begin without what it needs.
    pub fn of(self, old: &Service) -> Result<Service, ServiceError> {
        let connection = match self.connection {
            None => old.connection.clone(),
            Some(ConnectionChange::Link) => Connection::Link,
            Some(ConnectionChange::Openid(change)) => Connection::Openid(change.of(old.client())?),
        };
        Ok(Service {
            id: old.id.clone(),
            name: self.name.unwrap_or_else(|| old.name.clone()),
            address: self.address.unwrap_or_else(|| old.address.clone()),
            icon: self.icon.unwrap_or(old.icon),
            owner: self.owner.unwrap_or_else(|| old.owner.clone()),
            level: self.level.unwrap_or(old.level),
            roles: self.roles.unwrap_or_else(|| old.roles.clone()),
            units: self.units.unwrap_or_else(|| old.units.clone()),
            connection,
        })
    }
}

impl ClientChange {
    /// The client with these changes, or a new one.
    ///
    /// # Errors
    /// [`ServiceError`] if a new client has no redirect address or no key.
    pub fn of(self, old: Option<&Client>) -> Result<Client, ServiceError> {
        let missing = |field, problem| ServiceError { field, problem };
        let redirects = self
            .redirects
            .or_else(|| old.map(|old| old.redirects.clone()));
        let key = self.key.or_else(|| old.map(|old| old.key.clone()));
        let logout = self
            .logout
            .or_else(|| old.map(|old| old.logout.clone()))
            .flatten();
        let logout_trust = self.logout_trust.or_else(|| old?.logout_trust.clone());
        Ok(Client {
            redirects: redirects.ok_or_else(|| missing("redirects", "must be given"))?,
            key: key.ok_or_else(|| missing("key", "must be given: a secret or a public key"))?,
            // Trust without an address means nothing.
            logout_trust: logout_trust.filter(|_| logout.is_some()),
            logout,
        })
    }
}
