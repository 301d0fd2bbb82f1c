//! An entry of the directory.

use std::collections::BTreeSet;

use access::{PersonRecord, Role};
use pki::clearance::Clearance;
use pki::name::{is_mailbox, is_plain, is_user_id};
use serde::{Deserialize, Serialize};

/// Longest name, in characters: RFC 5280 (appendix A, `ub-common-name`) counts characters, not bytes.
const MAX_NAME_CHARS: usize = 64;
/// Names go into certificates, mails and commands.
const NAME_RULE: &str = "must have at most 64 characters and no control or invisible characters, and begin with neither space, '-' nor '.'";

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
        let fits = |value: &str| {
            value.chars().count() <= MAX_NAME_CHARS && is_plain(value) && value.trim() == value
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Person {
        Person {
            uid: "x-1".into(),
            name: name.into(),
            given_name: String::new(),
            surname: name.into(),
            email: "x@example.org".into(),
            organisation: name.into(),
            country: String::new(),
            clearance: Clearance::Restricted,
            roles: BTreeSet::new(),
            units: BTreeSet::from([name.to_owned()]),
            active: true,
        }
    }

    #[test]
    fn names_of_64_characters_in_any_script_are_accepted() {
        for letter in ["x", "ж", "語", "𝔘"] {
            named(&letter.repeat(64)).check().unwrap();
            let refused = named(&letter.repeat(65)).check().unwrap_err();
            assert_eq!((refused.field, refused.problem), ("name", NAME_RULE));
        }
    }

    #[test]
    fn each_long_name_is_refused_by_its_field() {
        let long = "Ё".repeat(65);
        for field in ["organisation", "surname", "units"] {
            let mut person = named("Ё");
            match field {
                "organisation" => person.organisation = long.clone(),
                "surname" => person.surname = long.clone(),
                _ => drop(person.units.insert(long.clone())),
            }
            assert_eq!(person.check().unwrap_err().field, field);
        }
    }
}
