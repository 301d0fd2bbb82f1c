//! An entry of the directory.

use std::collections::BTreeSet;

use access::{PersonRecord, Role};
use pki::clearance::Clearance;
use pki::name::{is_mailbox, is_plain, is_user_id};
use serde::{Deserialize, Serialize};

/// Names go into certificates, mails and commands.
const NAME_RULE: &str = "must have at most 64 bytes and no control or invisible characters, and begin with neither space, '-' nor '.'";

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
    /// Organisation, as `O` in certificates.
    pub organisation: String,
    /// Country of the organisation, two capital letters (ISO 3166-1), as `C` in certificates; empty for the site's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub country: String,
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
        let fits = |value: &str| value.len() <= 64 && is_plain(value) && value.trim() == value;
        if !is_user_id(&self.uid) {
            let rule = "must be 1 to 64 letters, digits, '-', '.' or '_', and begin with a letter, digit or '_'";
            return refuse("uid", rule);
        }
        for (field, value) in [("name", &self.name), ("organisation", &self.organisation)] {
            if value.is_empty() || !fits(value) {
                return refuse(field, NAME_RULE);
            }
        }
        for (field, value) in [("given_name", &self.given_name), ("surname", &self.surname)] {
            if !fits(value) {
                return refuse(field, NAME_RULE);
            }
        }
        let is_capital = |b: u8| b.is_ascii_uppercase();
        let country = &self.country;
        if !country.is_empty() && (country.len() != 2 || !country.bytes().all(is_capital)) {
            return refuse("country", "must be two capital letters, as FR, or left out");
        }
        if !is_mailbox(&self.email) {
            return refuse("email", "must be one address like name@example.org");
        }
        if self.units.iter().any(|unit| unit.is_empty() || !fits(unit)) {
            return refuse("units", NAME_RULE);
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
