//! An entry of the directory.

use std::collections::BTreeSet;

use access::{PersonRecord, Role};
use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// User id, the officer number; never given to somebody else.
    pub uid: String,
    /// Full name as shown.
    pub name: String,
    /// Given name, for certificates.
    #[serde(default)]
    pub given_name: String,
    #[serde(default)]
    pub surname: String,
    pub email: String,
    pub organisation: String,
    /// Highest clearance this person may use.
    pub clearance: Clearance,
    /// Roles of the person.
    #[serde(default)]
    pub roles: BTreeSet<Role>,
    /// Units the person works for; need-to-know.
    #[serde(default)]
    pub units: BTreeSet<String>,
    /// Whether the person may log in at all.
    #[serde(default = "yes")]
    pub active: bool,
}

fn yes() -> bool {
    true
}

/// A field of an entry breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct PersonError {
    /// Name of the field.
    pub field: &'static str,
    pub problem: &'static str,
}

impl Person {
    /// Checks every field.
    ///
    /// # Errors
    /// [`PersonError`] for the first field that breaks a rule.
    pub fn check(&self) -> Result<(), PersonError> {
        let refuse = |field, problem| Err(PersonError { field, problem });
        let uid_ok = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
        if self.uid.is_empty() || self.uid.len() > 64 || !self.uid.bytes().all(uid_ok) {
            return refuse("uid", "must be 1 to 64 letters, digits, '-', '.' or '_'");
        }
        for (field, value) in [("name", &self.name), ("organisation", &self.organisation)] {
            if value.trim().is_empty() || value.len() > 64 || value.chars().any(char::is_control) {
                return refuse(field, "must have 1 to 64 characters");
            }
        }
        for (field, value) in [("given_name", &self.given_name), ("surname", &self.surname)] {
            if value.len() > 64 || value.chars().any(char::is_control) {
                return refuse(field, "must have at most 64 characters");
            }
        }
        let mail_ok = self.email.is_ascii()
            && self.email.len() <= 128
            && self
                .email
                .split_once('@')
                .is_some_and(|(l, d)| !l.is_empty() && d.contains('.'))
            && !self
                .email
                .contains(|c: char| c.is_whitespace() || c.is_control());
        if !mail_ok {
            return refuse("email", "must look like name@example.org");
        }
        if self.units.iter().any(|u| u.is_empty() || u.len() > 64) {
            return refuse("units", "each must have 1 to 64 characters");
        }
        Ok(())
    }

    /// Builds the part of this entry on which access decisions rest.
    #[must_use]
    pub fn record(&self) -> PersonRecord {
        PersonRecord {
            uid: self.uid.clone(),
            name: self.name.clone(),
            organisation: self.organisation.clone(),
            clearance: self.clearance,
            roles: self.roles.clone(),
            units: self.units.clone(),
            active: self.active,
        }
    }
}
