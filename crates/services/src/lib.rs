//! The registry of services: foreign applications that people open through the portal.
//!
//! A [`Service`] says who may open it (least level, roles, units) and how Cordon and the application trust each other
//! ([`Connection`]). This crate holds the record and its rules; the directory stores it, the access rules decide about it.
//!
//! Start with [`Service::check`].
#![forbid(unsafe_code)]

mod address;
mod change;
mod client;

use std::collections::BTreeSet;

use access::{Resource, Role};
use pki::clearance::Clearance;
use pki::name::is_plain;
use serde::{Deserialize, Serialize};

pub use address::{MAX_ADDRESS, is_https};
pub use change::{Change, ClientChange, ConnectionChange};
pub use client::{Client, ClientKey, SecretHash};

/// Services that a site has at most: the home page asks the access rules about each of them.
pub const MAX_SERVICES: usize = 200;
/// Longest identifier: it is part of addresses and of audit events.
pub const MAX_ID: usize = 32;
/// Longest name and owner in characters: one line of a tile.
const MAX_NAME_CHARS: usize = 64;
/// Units that a service names at most; a service for more people names none.
const MAX_UNITS: usize = 64;
/// Version of the stored record.
const VERSION: u32 = 1;

/// A picture on the tile, drawn by the portal's style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Icon {
    Application,
    Chart,
    Document,
    Mail,
    Map,
    People,
    Search,
    Video,
}

impl Icon {
    pub const ALL: [Self; 8] = [
        Self::Application,
        Self::Chart,
        Self::Document,
        Self::Mail,
        Self::Map,
        Self::People,
        Self::Search,
        Self::Video,
    ];

    /// The name in records and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Chart => "chart",
            Self::Document => "document",
            Self::Mail => "mail",
            Self::Map => "map",
            Self::People => "people",
            Self::Search => "search",
            Self::Video => "video",
        }
    }
}

impl std::str::FromStr for Icon {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let found = Self::ALL.into_iter().find(|icon| icon.name() == text);
        found.ok_or(ServiceError {
            field: "icon",
            problem: "must be application, chart, document, mail, map, people, search or video",
        })
    }
}

/// How a person's login reaches the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// Not at all: the portal only links to an application with a login of its own.
    Link,
    /// By OpenID Connect, with Cordon as the provider.
    Openid(Client),
}

impl Connection {
    /// The kind's name in commands and events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Openid(_) => "openid",
        }
    }
}

/// A foreign application and the people who may open it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Identifier in addresses, rules and events; it is also the client identifier of OpenID Connect.
    pub id: String,
    /// Name on the tile.
    pub name: String,
    /// Address of the application's first page.
    pub address: String,
    pub icon: Icon,
    /// The office or person that answers for the application.
    pub owner: String,
    /// Clearance that a person needs at least.
    pub level: Clearance,
    /// A person needs one of these roles.
    pub roles: BTreeSet<Role>,
    /// A person works for one of these units. Empty: for any unit.
    #[serde(default)]
    pub units: BTreeSet<String>,
    pub connection: Connection,
}

/// A field of a record breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ServiceError {
    /// Name of the field.
    pub field: &'static str,
    pub problem: &'static str,
}

/// A stored record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the record is not valid JSON of a service")]
    Json(#[from] serde_json::Error),
    /// A later program wrote it.
    #[error("the record has version {0}, this program knows only {VERSION}")]
    TooNew(u32),
    #[error(transparent)]
    Service(#[from] ServiceError),
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    v: u32,
    service: T,
}

impl Service {
    /// Checks every field.
    ///
    /// # Errors
    /// [`ServiceError`] for the first field that breaks a rule.
    pub fn check(&self) -> Result<(), ServiceError> {
        let refuse = |field, problem| Err(ServiceError { field, problem });
        if !is_id(&self.id) {
            let rule = "must be 1 to 32 small letters, digits and '-', and begin with a letter";
            return refuse("id", rule);
        }
        for (field, value) in [("name", &self.name), ("owner", &self.owner)] {
            if !is_line(value) {
                let rule = "must have 1 to 64 characters, without control or invisible ones";
                return refuse(field, rule);
            }
        }
        if !is_https(&self.address) {
            let rule = "must be an https:// address without user, fragment and spaces";
            return refuse("address", rule);
        }
        if self.roles.is_empty() {
            return refuse("roles", "must name at least one role");
        }
        if self.units.len() > MAX_UNITS {
            return refuse(
                "units",
                "must be at most 64; name none for people of any unit",
            );
        }
        if !self.units.iter().all(|unit| is_line(unit)) {
            return refuse("units", "must have names of 1 to 64 visible characters");
        }
        match &self.connection {
            Connection::Link => Ok(()),
            Connection::Openid(client) => client.check(),
        }
    }

    /// The resource that the access rules decide about.
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource::service(&self.id, self.level, &self.roles, &self.units)
    }

    /// The client of OpenID Connect, if the application is one.
    #[must_use]
    pub const fn client(&self) -> Option<&Client> {
        match &self.connection {
            Connection::Openid(client) => Some(client),
            Connection::Link => None,
        }
    }

    /// The record as it is stored.
    ///
    /// # Errors
    /// [`RecordError::Json`] if the record cannot be encoded.
    pub fn to_record(&self) -> Result<String, RecordError> {
        let stored = Stored {
            v: VERSION,
            service: self,
        };
        Ok(serde_json::to_string(&stored)?)
    }

    /// Reads a stored record, and checks it again.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn from_record(text: &str) -> Result<Self, RecordError> {
        // The version first: a later record may have other fields.
        let stored: Stored<serde_json::Value> = serde_json::from_str(text)?;
        if stored.v > VERSION {
            return Err(RecordError::TooNew(stored.v));
        }
        let service: Self = serde_json::from_value(stored.service)?;
        service.check()?;
        Ok(service)
    }
}

/// Tells whether `text` can be the identifier of a service.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= MAX_ID
        && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && text.bytes().all(allowed)
}

fn is_line(text: &str) -> bool {
    !text.is_empty()
        && text.chars().count() <= MAX_NAME_CHARS
        && is_plain(text)
        && text.trim() == text
}

#[cfg(test)]
mod tests;
