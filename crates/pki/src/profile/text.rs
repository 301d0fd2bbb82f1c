//! Profiles as text (TOML).

use const_oid::ObjectIdentifier;
use serde::Deserialize;
use time::Duration;
use untrusted_text::is_hidden;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};

use super::definition::{Definition, Issuer, KeyUsageTable, Names, Presence};
use super::error::{ProfileError, mistake};
use super::kind::CaKind;
use super::purpose;
use crate::clearance::Clearance;
use crate::oid::eku;

/// Longest text of a profile, in bytes: it stands in requests for it, and in their events, which are bounded.
pub const MAX_PROFILE_TEXT: usize = 3 * 1024;
/// Purposes of one profile at most; our choice.
const MAX_PURPOSES: usize = 16;
/// Longest [`Definition::lifetime`], in days: what no authority outlives.
const MAX_DAYS: u32 = 3650;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    issuer: String,
    administrators_only: Option<bool>,
    #[serde(default)]
    clearance: Presence,
    highest_clearance: Option<u8>,
    days: Option<u32>,
    #[serde(default)]
    centre_makes_key: bool,
    #[serde(default)]
    archive_key: bool,
    #[serde(default)]
    ocsp_no_check: bool,
    authority: Option<Authority>,
    #[serde(default)]
    names: Names,
    key_usage: KeyUsageNames,
    extended_key_usage: Option<ExtendedKeyUsage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Authority {
    path_length: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyUsageNames {
    rsa: Option<Vec<String>>,
    ecdsa: Option<Vec<String>>,
    ed25519: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ExtendedKeyUsage {
    critical: bool,
    time_stamping_among_others: bool,
    purposes: Vec<String>,
}

impl Definition {
    /// Reads a profile without asking what it may say.
    pub(super) fn read(text: &str) -> Result<Self, ProfileError> {
        if text.len() > MAX_PROFILE_TEXT {
            let problem = format!("{} bytes are too many", text.len());
            let advice = format!("keep it within {MAX_PROFILE_TEXT} bytes, comments included");
            return mistake("profile", "", problem, advice);
        }
        check_visible(text)?;
        let text: Text = toml::from_str(text).map_err(|error| ProfileError {
            place: place(text, error.span().map_or(0, |span| span.start)),
            value: String::new(),
            // It quotes what stands there, in which escapes of TOML have become characters.
            problem: visible(&error.message().replace('\n', " ")),
            advice: "`cordon pki profile show user` is a whole profile".to_owned(),
        })?;
        text.checked()
    }
}

impl Text {
    fn checked(self) -> Result<Definition, ProfileError> {
        let issuer = issuer(&self.issuer)?;
        let is_ca = self.authority.is_some();
        let key_usage = KeyUsageTable {
            rsa: usages("key_usage.rsa", self.key_usage.rsa, &RSA, is_ca)?,
            ecdsa: usages("key_usage.ecdsa", self.key_usage.ecdsa, &ECDSA, is_ca)?,
            ed25519: usages("key_usage.ed25519", self.key_usage.ed25519, &ED25519, is_ca)?,
        };
        if key_usage.each().iter().all(|(_, usage)| usage.is_none()) {
            let advice = "name the usages of one kind of key at least: rsa, ecdsa or ed25519";
            return mistake("key_usage", "", "no key could have it", advice);
        }
        let extended = self.extended_key_usage.unwrap_or_default();
        let purposes = purposes(&extended, is_ca)?;
        let definition = Definition {
            highest_clearance: highest(self.clearance, self.highest_clearance)?,
            name: self.name,
            issuer,
            administrators_only: self.administrators_only,
            path_len: self.authority.map(|authority| authority.path_length),
            key_usage,
            purposes,
            critical_purposes: extended.critical,
            time_stamping_among_others: extended.time_stamping_among_others,
            names: self.names,
            clearance: self.clearance,
            lifetime: lifetime(self.days)?,
            centre_makes_key: self.centre_makes_key,
            archive_key: self.archive_key,
            ocsp_no_check: self.ocsp_no_check,
        };
        definition.check_consistent()?;
        Ok(definition)
    }
}

impl Definition {
    /// Rules of the standards for what stands in several places.
    fn check_consistent(&self) -> Result<(), ProfileError> {
        let of_people = self.issuer == Issuer::Authority(CaKind::Users);
        if self.administrators_only == Some(true) && !of_people {
            let problem = "only people are administrators";
            return mistake("administrators_only", "true", problem, "leave it out");
        }
        let stamps = self.purposes.contains(&eku::TIME_STAMPING);
        if stamps && !self.critical_purposes {
            let advice = "write critical = true (RFC 3161, section 2.3)";
            let problem = "time stamping is a purpose, and the extension is not critical";
            return mistake("extended_key_usage.critical", "false", problem, advice);
        }
        if stamps && self.purposes.len() > 1 && !self.time_stamping_among_others {
            let advice = "make it a profile of its own (RFC 3161, section 2.3)";
            let problem = "time stamping is one of several purposes";
            return mistake("extended_key_usage.purposes", "", problem, advice);
        }
        if self.purposes.contains(&eku::OCSP_SIGNING) != self.ocsp_no_check {
            let advice = "signers of OCSP responses have both, and nobody else has either";
            let problem = "does not go with the purposes";
            return mistake(
                "ocsp_no_check",
                self.ocsp_no_check.to_string(),
                problem,
                advice,
            );
        }
        if self.archive_key && !self.centre_makes_key {
            let problem = "there would be no key to archive";
            let advice = "write centre_makes_key = true: nobody else has the key";
            return mistake("archive_key", "true", problem, advice);
        }
        for (kind, usage) in self.key_usage.each() {
            let place = format!("key_usage.{kind}");
            let Some(usage) = usage else { continue };
            if self.centre_makes_key && usage.non_repudiation() {
                let problem = "what is signed with a key that the centre made proves nothing";
                let advice = "leave nonRepudiation out, or centre_makes_key";
                return mistake(place, "nonRepudiation", problem, advice);
            }
            let signs_only = |purpose| self.purposes.contains(&purpose);
            let signs = usage.digital_signature() || usage.non_repudiation();
            if self.archive_key && signs {
                let problem = "whoever recovers the key could sign with it";
                let advice = "leave digitalSignature and nonRepudiation out, or archive_key";
                return mistake(place, "", problem, advice);
            }
            let encrypts =
                usage.key_encipherment() || usage.data_encipherment() || usage.key_agreement();
            if stamps && self.purposes.len() == 1 && encrypts {
                let advice = "use digitalSignature, nonRepudiation or both";
                return mistake(
                    place,
                    "",
                    "a time-stamping authority only signs (RFC 3161, section 2.3)",
                    advice,
                );
            }
            let signing = [
                eku::OCSP_SIGNING,
                eku::DOCUMENT_SIGNING,
                eku::SMART_CARD_LOGON,
            ];
            if signing.into_iter().any(signs_only) && !signs {
                let problem = "a purpose is to sign, and no usage allows that";
                return mistake(place, "", problem, "add digitalSignature");
            }
        }
        Ok(())
    }
}

/// Usages of keys that encrypt with the key itself.
const RSA: [&str; 4] = [
    "digitalSignature",
    "nonRepudiation",
    "keyEncipherment",
    "dataEncipherment",
];
/// RFC 5480, section 3.
const ECDSA: [&str; 3] = ["digitalSignature", "nonRepudiation", "keyAgreement"];
/// RFC 8410, section 5.
const ED25519: [&str; 2] = ["digitalSignature", "nonRepudiation"];
const OF_AUTHORITIES: [&str; 2] = ["keyCertSign", "cRLSign"];

fn usages(
    place: &str,
    names: Option<Vec<String>>,
    possible: &[&str],
    is_ca: bool,
) -> Result<Option<KeyUsage>, ProfileError> {
    let Some(names) = names else { return Ok(None) };
    let possible = if is_ca { &OF_AUTHORITIES } else { possible };
    let advice = || format!("use {}", possible.join(", "));
    let mut usage = None;
    for name in &names {
        if !possible.contains(&name.as_str()) {
            let problem = "is no usage of such a key in such a certificate";
            return mistake(place, format!("{name:?}"), problem, advice());
        }
        let bit = bit(name);
        usage = Some(match usage {
            None => bit.into(),
            Some(before) => before | bit,
        });
    }
    match usage {
        Some(usage) => Ok(Some(KeyUsage(usage))),
        None => {
            let advice = format!("{}, or leave the line out", advice());
            mistake(
                place,
                "[]",
                "a key without any usage is good for nothing",
                advice,
            )
        }
    }
}

fn bit(name: &str) -> KeyUsages {
    match name {
        "digitalSignature" => KeyUsages::DigitalSignature,
        "nonRepudiation" => KeyUsages::NonRepudiation,
        "keyEncipherment" => KeyUsages::KeyEncipherment,
        "dataEncipherment" => KeyUsages::DataEncipherment,
        "keyAgreement" => KeyUsages::KeyAgreement,
        "keyCertSign" => KeyUsages::KeyCertSign,
        _ => KeyUsages::CRLSign,
    }
}

fn issuer(name: &str) -> Result<Issuer, ProfileError> {
    Ok(match name {
        "itself" => Issuer::Itself,
        "root" => Issuer::Root,
        "each" => Issuer::Each,
        name => match name.parse::<CaKind>() {
            Ok(kind) => Issuer::Authority(kind),
            Err(_) => {
                let problem = "is no authority";
                return mistake(
                    "issuer",
                    format!("{name:?}"),
                    problem,
                    "use users, devices or services",
                );
            }
        },
    })
}

fn purposes(
    extended: &ExtendedKeyUsage,
    is_ca: bool,
) -> Result<Vec<ObjectIdentifier>, ProfileError> {
    const PLACE: &str = "extended_key_usage.purposes";
    let names = &extended.purposes;
    if is_ca != names.is_empty() {
        let problem = "every certificate but those of authorities says what it is for";
        return mistake(
            PLACE,
            "",
            problem,
            "name a purpose, for instance clientAuth",
        );
    }
    if names.len() > MAX_PURPOSES {
        let advice = format!("name at most {MAX_PURPOSES}");
        return mistake(
            PLACE,
            "",
            format!("{} purposes are too many", names.len()),
            advice,
        );
    }
    let mut purposes = Vec::with_capacity(names.len());
    for name in names {
        let Some(purpose) = purpose::by_name(name) else {
            let advice = "use a name as clientAuth, or an object identifier in dots; \
                          `cordon pki profile show user` has several";
            return mistake(PLACE, format!("{name:?}"), "is no purpose", advice);
        };
        if purposes.contains(&purpose) {
            return mistake(
                PLACE,
                format!("{name:?}"),
                "is there twice",
                "leave one out",
            );
        }
        purposes.push(purpose);
    }
    Ok(purposes)
}

fn highest(presence: Presence, level: Option<u8>) -> Result<Option<Clearance>, ProfileError> {
    const PLACE: &str = "highest_clearance";
    let Some(level) = level else { return Ok(None) };
    if presence == Presence::None {
        let advice = "leave it out, or write clearance = \"optional\"";
        let problem = "such a certificate has no clearance";
        return mistake(PLACE, level.to_string(), problem, advice);
    }
    match Clearance::try_from(level) {
        Ok(clearance) => Ok(Some(clearance)),
        Err(_) => mistake(PLACE, level.to_string(), "is no clearance", "use 0 to 4"),
    }
}

fn lifetime(days: Option<u32>) -> Result<Option<Duration>, ProfileError> {
    match days {
        Some(days) if days == 0 || days > MAX_DAYS => {
            let advice = format!("use 1 to {MAX_DAYS}, or leave it out");
            mistake(
                "days",
                days.to_string(),
                "is no lifetime of a certificate",
                advice,
            )
        }
        days => Ok(days.map(|days| Duration::days(i64::from(days)))),
    }
}

/// Refuses what is read and signed as something else than it is: whoever approves a profile sees all of it.
fn check_visible(text: &str) -> Result<(), ProfileError> {
    let mut before = '\n';
    for (at, c) in text.char_indices() {
        let next = text.get(at.saturating_add(c.len_utf8())..);
        let is_seen = match c {
            '\n' | '\t' => true,
            '\r' => next.is_some_and(|rest| rest.starts_with('\n')) && before != '\r',
            _ => !is_hidden(c),
        };
        if !is_seen {
            let value = format!("U+{:04X}", u32::from(c));
            let problem = "is not seen, or changes how others are seen";
            return mistake(place(text, at), value, problem, "leave the character out");
        }
        before = c;
    }
    Ok(())
}

fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// Line and column of a mistake at this byte, both from 1.
fn place(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count().saturating_add(1);
    let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let column = before.len().saturating_sub(start).saturating_add(1);
    format!("line {line}, column {column}")
}
