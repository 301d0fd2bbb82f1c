//! What a ceremony does, written and agreed upon before it.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::KeyAlgorithm;
use pki::name::is_plain;
use pki::profile::CaKind;
use serde::{Deserialize, Deserializer};

use crate::generation::AuthorityId;

/// Most acts and most participants; our choice: nobody follows more.
const MOST: usize = 32;
/// Longest text in a script, in bytes.
const MAX_TEXT: usize = 200;
/// Longest life of a root or an authority, in years.
const MAX_YEARS: u32 = 30;
/// Longest time until the next revocation list of the root, in days.
const MAX_LIST_DAYS: u32 = 3650;

/// A script, as its file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What the ceremony is for.
    pub title: String,
    /// O of the root and of the authorities.
    pub organisation: String,
    /// C of the same, two upper-case letters.
    pub country: Option<String>,
    /// Where the site publishes lists, for instance `http://pki.example.org/crl`; goes into the authorities' certificates.
    pub crl_base_url: Option<String>,
    /// Days until the root's next list must be there.
    pub list_days: u32,
    /// Who is present; each confirms each act.
    #[serde(rename = "participant")]
    pub participants: Vec<Participant>,
    #[serde(rename = "act")]
    pub acts: Vec<Act>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Participant {
    pub name: String,
    /// What this person is there for: administrator, witness, auditor.
    pub duty: String,
}

/// One thing that the root's key signs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// Makes the root's key and certificate; the first act of the first ceremony.
    CreateRoot {
        #[serde(deserialize_with = "named")]
        algorithm: KeyAlgorithm,
        years: u32,
    },
    /// Certifies the key of another root of the same name, so that whoever trusts this root accepts what that one certified.
    CrossCertify {
        /// File beside the script with that root's certificate.
        certificate: String,
        years: u32,
    },
    /// Certifies the key of an issuing authority, by the request that the site made.
    CertifyAuthority {
        #[serde(deserialize_with = "named")]
        kind: CaKind,
        /// Its generation; the first where nothing is said.
        #[serde(default = "first_generation")]
        generation: NonZeroU16,
        /// File beside the script.
        request: String,
        /// The highest clearance that it may grant, 0 to 4.
        highest_clearance: Clearance,
        years: u32,
    },
    /// Revokes the certificate of an issuing authority.
    RevokeAuthority {
        /// File beside the script.
        certificate: String,
        #[serde(deserialize_with = "named")]
        reason: RevocationReason,
    },
    /// Makes the root's revocation list anew.
    IssueList {},
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateRoot { algorithm, years } => {
                write!(f, "create the root, {algorithm}, for {years} years")
            }
            Self::CrossCertify { certificate, years } => {
                write!(
                    f,
                    "certify the other root of {certificate}, for {years} years"
                )
            }
            Self::CertifyAuthority {
                kind,
                generation,
                request,
                highest_clearance,
                years,
            } => write!(
                f,
                "certify the {} authority by {request}, up to {highest_clearance}, for {years} years",
                AuthorityId::of(*kind, *generation)
            ),
            Self::RevokeAuthority {
                certificate,
                reason,
            } => write!(f, "revoke the authority of {certificate}: {reason}"),
            Self::IssueList {} => f.write_str("make the root's revocation list anew"),
        }
    }
}

const fn first_generation() -> NonZeroU16 {
    NonZeroU16::MIN
}

fn named<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(serde::de::Error::custom)
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("{field} must have 1 to {MAX_TEXT} bytes of plain text")]
    Text { field: &'static str },
    #[error("there must be 1 to {MOST} {what}")]
    Number { what: &'static str },
    #[error("{0} is there twice")]
    Twice(String),
    #[error("country must be two upper-case letters")]
    Country,
    #[error("list_days must be 1 to {MAX_LIST_DAYS}")]
    ListDays,
    #[error("act {act}: years must be 1 to {MAX_YEARS}")]
    Years { act: usize },
    #[error("act {act}: {file:?} is no name of a file beside the script")]
    File { act: usize, file: String },
    #[error(
        "act {act}: certificate-hold is not a reason to revoke an authority, as no list releases it; use another reason"
    )]
    Hold { act: usize },
    #[error("act {act}: the root is created first")]
    NotFirst { act: usize },
}

impl Script {
    /// Holds the script against what a ceremony can do.
    ///
    /// # Errors
    /// [`ScriptError`], the first mistake.
    pub fn check(&self) -> Result<(), ScriptError> {
        text("title", &self.title)?;
        text("organisation", &self.organisation)?;
        if let Some(url) = &self.crl_base_url {
            text("crl_base_url", url)?;
        }
        let capital = |country: &String| {
            country.len() == 2 && country.bytes().all(|b| b.is_ascii_uppercase())
        };
        if !self.country.as_ref().is_none_or(capital) {
            return Err(ScriptError::Country);
        }
        if !(1..=MAX_LIST_DAYS).contains(&self.list_days) {
            return Err(ScriptError::ListDays);
        }
        self.check_participants()?;
        if !(1..=MOST).contains(&self.acts.len()) {
            return Err(ScriptError::Number { what: "acts" });
        }
        for (number, act) in (1..).zip(&self.acts) {
            check_act(number, act)?;
        }
        Ok(())
    }

    fn check_participants(&self) -> Result<(), ScriptError> {
        if !(1..=MOST).contains(&self.participants.len()) {
            return Err(ScriptError::Number {
                what: "participants",
            });
        }
        let mut names = std::collections::BTreeSet::new();
        for one in &self.participants {
            text("a participant's name", &one.name)?;
            text("a participant's duty", &one.duty)?;
            if !names.insert(&one.name) {
                return Err(ScriptError::Twice(one.name.clone()));
            }
        }
        Ok(())
    }
}

fn check_act(number: usize, act: &Act) -> Result<(), ScriptError> {
    match act {
        Act::CreateRoot { years, .. }
        | Act::CertifyAuthority { years, .. }
        | Act::CrossCertify { years, .. }
            if !(1..=MAX_YEARS).contains(years) =>
        {
            return Err(ScriptError::Years { act: number });
        }
        Act::CreateRoot { .. } if number > 1 => {
            return Err(ScriptError::NotFirst { act: number });
        }
        Act::RevokeAuthority {
            reason: RevocationReason::CertificateHold,
            ..
        } => return Err(ScriptError::Hold { act: number }),
        _ => {}
    }
    match act {
        Act::CertifyAuthority { request: file, .. }
        | Act::RevokeAuthority {
            certificate: file, ..
        }
        | Act::CrossCertify {
            certificate: file, ..
        } => {
            let letter = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            let is_name = !file.is_empty() && file.len() <= 64 && file.bytes().all(letter);
            if is_name && is_plain(file) {
                Ok(())
            } else {
                Err(ScriptError::File {
                    act: number,
                    file: file.clone(),
                })
            }
        }
        Act::CreateRoot { .. } | Act::IssueList {} => Ok(()),
    }
}

fn text(field: &'static str, text: &str) -> Result<(), ScriptError> {
    if (1..=MAX_TEXT).contains(&text.len()) && is_plain(text) {
        Ok(())
    } else {
        Err(ScriptError::Text { field })
    }
}
