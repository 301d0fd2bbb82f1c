//! Subject names and alternative names.

pub(crate) mod canonical;
mod pattern;
mod plain;
mod windows;

use std::net::IpAddr;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc4519::{
    COMMON_NAME, COUNTRY_NAME, GIVEN_NAME, ORGANIZATION_NAME, ORGANIZATIONAL_UNIT_NAME, SN,
};
use der::Tag;
use der::Tagged;
use der::asn1::{Any, Ia5String, OctetString, PrintableString, SetOfVec, Utf8StringRef};
use der::{Decode, Encode};
use untrusted_text::UntrustedText;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::pkix::name::{GeneralName, OtherName};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};

pub use self::pattern::{ComparedName, NamePattern, NameTextError};
pub use self::plain::{is_host_name, is_mailbox, is_plain, is_readable, is_user_id};
pub use self::windows::{NotAnAccount, SecurityIdentifier, WindowsAccount};
use crate::oid;

/// Upper bound of most attributes, in characters (RFC 5280, appendix A: `ub-common-name`, ...).
const MAX_ATTRIBUTE_CHARS: usize = 64;
/// Upper bound of an e-mail address, in characters (RFC 5280: `ub-emailaddress-length`).
const MAX_EMAIL_CHARS: usize = 255;
/// Upper bound of a URL or principal name, in characters; our choice.
const MAX_URL_CHARS: usize = 1024;
/// Most RDNs and alternative names read from a name that is not ours.
const MAX_NAMES: usize = 64;

/// Who a certificate is about, in the fields of the published profile.
///
/// Empty or over-long fields and control and format characters are refused when the name is encoded, [`is_plain`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// CN: the display name of a person, `camera-17`, or a host name.
    pub common_name: String,
    /// C: two upper-case letters.
    pub country: Option<String>,
    /// O, for instance `LEA-EU`.
    pub organisation: Option<String>,
    pub unit: Option<String>,
    pub given_name: Option<String>,
    pub surname: Option<String>,
    /// UID: the officer number, or whatever the directory knows the holder by.
    pub uid: Option<String>,
    /// E-mail address; issuing also puts it into subjectAltName.
    pub email: Option<String>,
}

/// A name in subjectAltName.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    /// Host name, in ASCII (RFC 5280 wants A-labels).
    Dns(String),
    Ip(IpAddr),
    Email(String),
    /// Windows user principal name, for smart-card logon.
    Upn(String),
}

/// Why a name could not be encoded or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A field is empty.
    #[error("{field} is empty")]
    Empty {
        /// Name of the field.
        field: &'static str,
    },
    /// A field is longer than the standard allows.
    #[error("{field} is longer than {max} characters")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        max: usize,
    },
    /// A field holds characters that may not stand there.
    #[error("{field} holds characters that are not allowed")]
    BadCharacter {
        /// Name of the field.
        field: &'static str,
    },
    /// An attribute occurs twice, so it is not clear which is meant.
    #[error("attribute {0} occurs more than once")]
    Duplicate(ObjectIdentifier),
    /// The encoding cannot be read, or has too many parts.
    #[error("malformed name")]
    Malformed,
}

impl Subject {
    /// The name as text (RFC 4514).
    ///
    /// # Errors
    /// As [`Self::to_name`].
    pub fn distinguished_name(&self) -> Result<String, NameError> {
        Ok(self.to_name()?.to_string())
    }

    /// A subject with only a common name.
    pub fn new(common_name: impl Into<String>) -> Self {
        Self {
            common_name: common_name.into(),
            ..Self::default()
        }
    }

    /// Encodes the name: C, O, OU, CN, GN, SN, UID, e-mail, each in its own RDN.
    ///
    /// # Errors
    /// [`NameError`] naming the field that is wrong.
    pub fn to_name(&self) -> Result<Name, NameError> {
        let mut rdns = Vec::new();
        if let Some(country) = &self.country {
            if country.len() != 2 || !country.bytes().all(|b| b.is_ascii_uppercase()) {
                return Err(NameError::BadCharacter { field: "country" });
            }
            let value = PrintableString::new(country).map_err(|_| NameError::Malformed)?;
            rdns.push(rdn(COUNTRY_NAME, Any::from(&value))?);
        }
        push_text(
            &mut rdns,
            ORGANIZATION_NAME,
            "organisation",
            self.organisation.as_deref(),
        )?;
        push_text(
            &mut rdns,
            ORGANIZATIONAL_UNIT_NAME,
            "unit",
            self.unit.as_deref(),
        )?;
        push_text(
            &mut rdns,
            COMMON_NAME,
            "common name",
            Some(&self.common_name),
        )?;
        push_text(
            &mut rdns,
            GIVEN_NAME,
            "given name",
            self.given_name.as_deref(),
        )?;
        push_text(&mut rdns, SN, "surname", self.surname.as_deref())?;
        push_text(&mut rdns, oid::UID, "uid", self.uid.as_deref())?;
        if let Some(email) = &self.email {
            if !is_mailbox(email) {
                let field = "e-mail address";
                return Err(NameError::BadCharacter { field });
            }
            let value = email_string(email)?;
            rdns.push(rdn(oid::EMAIL_ADDRESS, Any::from(&value))?);
        }
        Ok(RdnSequence(rdns))
    }

    /// Reads the fields we know out of `name`; others are skipped, CN may be absent (then empty).
    ///
    /// # Errors
    /// [`NameError::Duplicate`] if a field occurs twice, [`NameError::Malformed`] otherwise.
    pub fn from_name(name: &Name) -> Result<Self, NameError> {
        if name.0.len() > MAX_NAMES {
            return Err(NameError::Malformed);
        }
        let mut subject = Self::default();
        let mut common_name = None;
        for attribute in name.0.iter().flat_map(|rdn| rdn.0.iter()) {
            let slot = match attribute.oid {
                COMMON_NAME => &mut common_name,
                COUNTRY_NAME => &mut subject.country,
                ORGANIZATION_NAME => &mut subject.organisation,
                ORGANIZATIONAL_UNIT_NAME => &mut subject.unit,
                GIVEN_NAME => &mut subject.given_name,
                SN => &mut subject.surname,
                oid::UID => &mut subject.uid,
                oid::EMAIL_ADDRESS => &mut subject.email,
                _ => continue,
            };
            if slot.is_some() {
                return Err(NameError::Duplicate(attribute.oid));
            }
            *slot = Some(text(&attribute.value)?);
        }
        subject.common_name = common_name.unwrap_or_default();
        Ok(subject)
    }

    /// Encodes the name in DER.
    ///
    /// # Errors
    /// As [`Self::to_name`].
    pub fn to_der(&self) -> Result<Vec<u8>, NameError> {
        let name = self.to_name()?;
        name.to_der().map_err(|_| NameError::Malformed)
    }

    /// Reads a name in DER.
    ///
    /// # Errors
    /// As [`Self::from_name`].
    pub fn from_der(der: &[u8]) -> Result<Self, NameError> {
        Self::from_name(&Name::from_der(der).map_err(|_| NameError::Malformed)?)
    }
}

impl AltName {
    pub(crate) fn to_general_name(&self) -> Result<GeneralName, NameError> {
        match self {
            Self::Dns(host) => {
                let ok = host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._*".contains(&b));
                checked("DNS name", host, MAX_EMAIL_CHARS, ok)?;
                Ok(GeneralName::DnsName(ia5(host)?))
            }
            Self::Ip(address) => Ok(GeneralName::from(*address)),
            Self::Email(address) => Ok(GeneralName::Rfc822Name(email_string(address)?)),
            Self::Upn(principal) => {
                let ok = is_plain(principal);
                checked("principal name", principal, MAX_URL_CHARS, ok)?;
                let value = Utf8StringRef::new(principal).map_err(|_| NameError::Malformed)?;
                Ok(GeneralName::OtherName(OtherName {
                    type_id: oid::UPN,
                    value: value.into(),
                }))
            }
        }
    }

    pub(crate) fn from_general_name(name: &GeneralName) -> Option<Self> {
        match name {
            GeneralName::DnsName(host) => Some(Self::Dns(host.as_str().to_owned())),
            GeneralName::Rfc822Name(address) => Some(Self::Email(address.as_str().to_owned())),
            GeneralName::IpAddress(octets) => ip_address(octets).map(Self::Ip),
            GeneralName::OtherName(other) if other.type_id == oid::UPN => {
                other.value.decode_as::<String>().ok().map(Self::Upn)
            }
            _ => None,
        }
    }
}

fn ip_address(octets: &OctetString) -> Option<IpAddr> {
    let bytes = octets.as_bytes();
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Checks a URL for use in an extension: ASCII without spaces, `http` or `https` or `ldap`.
pub(crate) fn url(text: &str) -> Result<Ia5String, NameError> {
    let scheme = ["http://", "https://", "ldap://"]
        .iter()
        .any(|s| text.starts_with(s));
    let ok = scheme && text.bytes().all(|b| b.is_ascii_graphic());
    checked("URL", text, MAX_URL_CHARS, ok)?;
    ia5(text)
}

fn email_string(email: &str) -> Result<Ia5String, NameError> {
    let shape = email.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !domain.contains('@')
    });
    let ok = shape && email.bytes().all(|b| b.is_ascii_graphic());
    checked("e-mail address", email, MAX_EMAIL_CHARS, ok)?;
    ia5(email)
}

fn ia5(text: &str) -> Result<Ia5String, NameError> {
    Ia5String::new(text).map_err(|_| NameError::Malformed)
}

/// A distinguished name for people (RFC 4514), on one line and of bounded length: its holder chose it, and it may never have
/// been checked. The standard doubles backslashes, so that the escapes of invisible characters cannot be forged.
#[must_use]
pub fn shown(name: &Name) -> String {
    UntrustedText::from_escaped(&name.to_string()).into()
}

fn checked(field: &'static str, text: &str, max: usize, ok: bool) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { field });
    }
    if text.chars().count() > max {
        return Err(NameError::TooLong { field, max });
    }
    if ok {
        Ok(())
    } else {
        Err(NameError::BadCharacter { field })
    }
}

fn push_text(
    rdns: &mut Vec<RelativeDistinguishedName>,
    oid: ObjectIdentifier,
    field: &'static str,
    text: Option<&str>,
) -> Result<(), NameError> {
    let Some(text) = text else { return Ok(()) };
    let ok = is_plain(text) && text.trim() == text;
    checked(field, text, MAX_ATTRIBUTE_CHARS, ok)?;
    let value = Utf8StringRef::new(text).map_err(|_| NameError::Malformed)?;
    rdns.push(rdn(oid, Any::from(value))?);
    Ok(())
}

fn rdn(oid: ObjectIdentifier, value: Any) -> Result<RelativeDistinguishedName, NameError> {
    let attribute = AttributeTypeAndValue { oid, value };
    let set = SetOfVec::try_from(vec![attribute]).map_err(|_| NameError::Malformed)?;
    Ok(RelativeDistinguishedName(set))
}

fn text(value: &Any) -> Result<String, NameError> {
    match value.tag() {
        // TeletexString, BMPString and UniversalString are legacy encodings that RFC 5280 tells
        // new certificates not to use (section 4.1.2.4).
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            std::str::from_utf8(value.value())
                .map(str::to_owned)
                .map_err(|_| NameError::Malformed)
        }
        _ => Err(NameError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no profile of ours gives, as a stranger's certificate has it.
    fn foreign(common_name: &str) -> Name {
        let value = Any::from(Utf8StringRef::new(common_name).unwrap());
        let rdns = vec![rdn(COMMON_NAME, value).unwrap()];
        RdnSequence(rdns)
    }

    #[test]
    fn name_of_a_stranger_is_shown_on_one_line_and_unambiguously() {
        for (name, expected) in [
            ("camera-17", "CN=camera-17"),
            ("Žofie", "CN=Žofie"),
            ("a\u{85}b", r"CN=a\u{85}b"),
            (r"a\u{85}b", r"CN=a\\u{85}b"),
            ("a\u{202e}\u{200b}b", r"CN=a\u{202e}\u{200b}b"),
        ] {
            assert_eq!(shown(&foreign(name)), expected);
        }
        for name in ["a\nb", "a\r\tb", "\0", "\u{1b}[2K"] {
            let text = shown(&foreign(name));
            assert!(!text.chars().any(untrusted_text::is_hidden), "{text:?}");
        }
        let long = shown(&foreign(&"\u{85}".repeat(100_000)));
        assert!(long.len() < untrusted_text::MAX_BYTES + 8);
    }

    fn officer() -> Subject {
        Subject {
            common_name: "Žofie Dvořák".into(),
            country: Some("EU".into()),
            organisation: Some("LEA-EU".into()),
            unit: Some("Traffic".into()),
            given_name: Some("Žofie".into()),
            surname: Some("Dvořák".into()),
            uid: Some("officer-4711".into()),
            email: Some("zofie@example.org".into()),
        }
    }

    #[test]
    fn subject_round_trips() {
        let subject = officer();
        assert_eq!(
            Subject::from_name(&subject.to_name().unwrap()).unwrap(),
            subject
        );
    }

    #[test]
    fn wrong_fields_are_named() {
        let field = |s: Subject| s.to_name().unwrap_err();
        assert_eq!(
            field(Subject {
                country: Some("eu".into()),
                ..officer()
            }),
            NameError::BadCharacter { field: "country" }
        );
        assert_eq!(
            field(Subject::new("")),
            NameError::Empty {
                field: "common name"
            }
        );
        Subject::new("x".repeat(64)).to_name().unwrap();
        assert_eq!(
            field(Subject::new("x".repeat(65))),
            NameError::TooLong {
                field: "common name",
                max: 64
            }
        );
        assert_eq!(
            field(Subject::new("a\nb")),
            NameError::BadCharacter {
                field: "common name"
            }
        );
        for email in [
            "nobody",
            "@example.org",
            "a@",
            "a@b@c",
            "ž@example.org",
            "a b@example.org",
        ] {
            assert_eq!(
                field(Subject {
                    email: Some(email.into()),
                    ..officer()
                }),
                NameError::BadCharacter {
                    field: "e-mail address"
                },
                "{email}"
            );
        }
    }

    #[test]
    fn repeated_attribute_is_refused() {
        let mut name = officer().to_name().unwrap();
        let again = name.0.last().unwrap().clone();
        name.0.push(again);
        assert_eq!(
            Subject::from_name(&name),
            Err(NameError::Duplicate(oid::EMAIL_ADDRESS))
        );
    }

    #[test]
    fn alternative_names_round_trip() {
        for name in [
            AltName::Dns("portal.example.org".into()),
            AltName::Ip("192.0.2.7".parse().unwrap()),
            AltName::Ip("2001:db8::7".parse().unwrap()),
            AltName::Email("a@example.org".into()),
            AltName::Upn("a@example.org".into()),
        ] {
            let general = name.to_general_name().unwrap();
            assert_eq!(AltName::from_general_name(&general), Some(name));
        }
        assert!(AltName::Dns("a b".into()).to_general_name().is_err());
        assert!(url("javascript:alert(1)").is_err());
    }
}
