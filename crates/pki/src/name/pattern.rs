//! Distinguished names as identities: written as text (RFC 4514), with values left open, and compared.
//!
//! Compared as RFC 5280, section 7.1 has it, and narrower wherever that would make two names out of one that
//! people see: a name with invisible characters or with an attribute twice in one part is nobody's identity, and
//! folding case turns no letter of another alphabet into an ASCII one. For the validation of paths,
//! [`super::canonical`] is wider on purpose: there, two names that are equal mean more constraints.

use std::fmt;

use const_oid::ObjectIdentifier;
use const_oid::db::DB;
use const_oid::db::rfc4519::{COUNTRY_NAME, DN_QUALIFIER, DOMAIN_COMPONENT, SERIAL_NUMBER};
use der::asn1::{Any, PrintableStringRef, SetOfVec};
use der::{Decode as _, Encode as _, Tag, Tagged as _};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};

use super::canonical::{is_ignored, push};
use crate::oid::EMAIL_ADDRESS;

/// Parts of a name at most; our choice, several times what anybody uses.
const MAX_PARTS: usize = 64;

/// Why a text is no distinguished name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameTextError {
    /// No parts, or more than anybody needs.
    #[error("a distinguished name has from 1 to {MAX_PARTS} parts")]
    Count,
    /// A part without an equals sign.
    #[error("{0:?} is no part of a distinguished name, as CN=gateway is one")]
    NoValue(String),
    /// A type that has no such name.
    #[error("{0:?} is no type of an attribute: a name like CN, O, OU, C, or an object identifier")]
    UnknownType(String),
    /// An empty value, a bad escape, or characters that the type does not have.
    #[error("the value of {0:?} is empty, or has characters that may not stand there")]
    BadValue(String),
    /// A star inside of a value.
    #[error("the star in {0:?} stands for a whole value or not at all; a star itself is \\2a")]
    Star(String),
    /// One type twice in one part.
    #[error("{0} stands twice in one part of the name")]
    Repeated(ObjectIdentifier),
}

/// A value in the form in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Text(String),
    /// DER of a type that is no text of RFC 5280, compared byte by byte.
    Other(Vec<u8>),
}

impl Value {
    /// None for what nobody's identity has in it.
    fn of(value: &Any) -> Option<Self> {
        let bytes = value.value();
        let text = match value.tag() {
            Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
                std::str::from_utf8(bytes).ok()?.to_owned()
            }
            Tag::BmpString => {
                let (pairs, rest) = bytes.as_chunks::<2>();
                let units: Vec<u16> = pairs.iter().copied().map(u16::from_be_bytes).collect();
                let text = rest.is_empty().then(|| String::from_utf16(&units).ok());
                text.flatten()?
            }
            _ => return value.to_der().ok().map(Self::Other),
        };
        Self::of_text(&text)
    }

    fn of_text(text: &str) -> Option<Self> {
        let invisible = |c: char| c.is_control() || is_ignored(c);
        if text.chars().any(invisible) {
            return None;
        }
        let folded: String = text.chars().flat_map(folded).collect();
        let words: Vec<&str> = folded.split_whitespace().collect();
        (!words.is_empty()).then(|| Self::Text(words.join(" ")))
    }
}

/// Folds the case of a letter. What would become an ASCII letter without being one (the Kelvin sign) stays what it
/// is: nobody who sees `K` means it.
fn folded(c: char) -> impl Iterator<Item = char> {
    let foreign = !c.is_ascii() && c.to_lowercase().any(|low| low.is_ascii());
    let folded = (!foreign).then(|| c.to_lowercase());
    folded.into_iter().flatten().chain(foreign.then_some(c))
}

/// A distinguished name in the form in which identities are compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComparedName(Vec<Vec<(ObjectIdentifier, Value)>>);

impl ComparedName {
    /// Reads a name (DER). None if it is malformed, empty, or has something in it that no identity has.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Self::of(&Name::from_der(der).ok()?)
    }

    /// As [`Self::from_der`] for a name that was read before.
    #[must_use]
    pub fn of(name: &Name) -> Option<Self> {
        let part = |rdn: &RelativeDistinguishedName| {
            let attributes = rdn.0.iter();
            let attributes = attributes.map(|one| Some((one.oid, Value::of(&one.value)?)));
            sorted(attributes.collect::<Option<_>>()?).ok()
        };
        let count = name.0.len();
        let parts = name.0.iter().map(part).collect::<Option<Vec<_>>>()?;
        (1..=MAX_PARTS).contains(&count).then_some(Self(parts))
    }

    /// One byte string for the whole name; different names have different ones.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.0 {
            let mut bytes = Vec::new();
            for (oid, value) in part {
                push(&mut bytes, oid.as_bytes());
                let (kind, value) = match value {
                    Value::Text(text) => (1, text.as_bytes()),
                    Value::Other(der) => (0, der.as_slice()),
                };
                bytes.push(kind);
                push(&mut bytes, value);
            }
            push(&mut out, &bytes);
        }
        out
    }
}

/// Attributes of one part are a set. One with a type twice does not say which of the two counts.
fn sorted<T: Ord>(
    mut attributes: Vec<(ObjectIdentifier, T)>,
) -> Result<Vec<(ObjectIdentifier, T)>, NameTextError> {
    attributes.sort_unstable();
    let mut pairs = attributes.iter().zip(attributes.iter().skip(1));
    match pairs.find(|(one, two)| one.0 == two.0) {
        Some((repeated, _)) => Err(NameTextError::Repeated(repeated.0)),
        None => Ok(attributes),
    }
}

/// A distinguished name in which a star may stand for whole values: `CN=*, O=Example Police, C=PL`.
///
/// The text has the order of RFC 4514, as `openssl x509 -nameopt RFC2253` and `cordon vpn status` show it: the
/// part that the certificate has last comes first. A name that fits has the same parts in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// The outermost part first, as in DER; a value that is left open is none.
    parts: Vec<Vec<(ObjectIdentifier, Option<Value>)>>,
    /// The name, where nothing is left open.
    name: Option<Name>,
    text: String,
}

impl NamePattern {
    /// Reads a text.
    ///
    /// # Errors
    /// [`NameTextError`].
    pub fn parse(text: &str) -> Result<Self, NameTextError> {
        let (mut parts, mut rdns) = (Vec::new(), Vec::new());
        for part in split(text, ',').into_iter().rev() {
            let (mut compared, mut encoded) = (Vec::new(), Vec::new());
            for attribute in split(part, '+') {
                let (oid, value) = parsed(attribute.trim_start())?;
                let bad = || NameTextError::BadValue(attribute.trim().to_owned());
                match value {
                    None => compared.push((oid, None)),
                    Some(value) => {
                        compared.push((oid, Some(Value::of(&value).ok_or_else(bad)?)));
                        encoded.push(AttributeTypeAndValue { oid, value });
                    }
                }
            }
            parts.push(sorted(compared)?);
            let set = SetOfVec::try_from(encoded);
            let set = set.map_err(|_| NameTextError::BadValue(part.trim().to_owned()))?;
            rdns.push(RelativeDistinguishedName(set));
        }
        if parts.len() > MAX_PARTS {
            return Err(NameTextError::Count);
        }
        let exact = parts.iter().flatten().all(|(_, value)| value.is_some());
        Ok(Self {
            parts,
            name: exact.then_some(RdnSequence(rdns)),
            text: text.to_owned(),
        })
    }

    /// The name, where no value is left open.
    #[must_use]
    pub const fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Number of values that are left open.
    #[must_use]
    pub fn open_values(&self) -> usize {
        let values = self.parts.iter().flatten();
        values.filter(|(_, value)| value.is_none()).count()
    }

    /// Whether a name has the same parts in the same order, and the same values where this one has any. A value
    /// that is left open is some text.
    #[must_use]
    pub fn matches(&self, name: &ComparedName) -> bool {
        let fits = |(ours, theirs): (&Option<Value>, &Value)| match ours {
            Some(ours) => ours == theirs,
            None => matches!(theirs, Value::Text(_)),
        };
        self.pairs(&name.0).is_some_and(|mut all| all.all(fits))
    }

    /// Whether some name fits both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let may_be_same = |(ours, theirs): (&Option<Value>, &Option<Value>)| {
            ours.is_none() || theirs.is_none() || ours == theirs
        };
        let pairs = self.pairs(&other.parts);
        pairs.is_some_and(|mut all| all.all(may_be_same))
    }

    /// Values of this name beside those of another one with the same types in the same order.
    fn pairs<'a, T>(
        &'a self,
        parts: &'a [Vec<(ObjectIdentifier, T)>],
    ) -> Option<impl Iterator<Item = (&'a Option<Value>, &'a T)>> {
        let alike = |one: &[(ObjectIdentifier, Option<Value>)], two: &[(ObjectIdentifier, T)]| {
            let mut types = one.iter().zip(two);
            one.len() == two.len() && types.all(|(one, two)| one.0 == two.0)
        };
        let mut both = self.parts.iter().zip(parts);
        let same = self.parts.len() == parts.len() && both.all(|(one, two)| alike(one, two));
        let values = self.parts.iter().flatten().zip(parts.iter().flatten());
        same.then(|| values.map(|(one, two)| (&one.1, &two.1)))
    }
}

impl fmt::Display for NamePattern {
    /// The text as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parts between separators that are not escaped.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !escaped {
            parts.push(text.get(start..at).unwrap_or_default());
            start = at.saturating_add(c.len_utf8());
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Type and value of an attribute; none for a value that is left open.
fn parsed(attribute: &str) -> Result<(ObjectIdentifier, Option<Any>), NameTextError> {
    let no_value = || NameTextError::NoValue(attribute.to_owned());
    let (name, value) = attribute.split_once('=').ok_or_else(no_value)?;
    let oid = attribute_type(name.trim())?;
    let value = value.trim_start();
    // A space at the end may be an escaped one.
    let value = match value.ends_with("\\ ") {
        true => value,
        false => value.trim_end(),
    };
    let encoded = match (value.strip_prefix('#'), unescaped(value)) {
        _ if value == "*" => return Ok((oid, None)),
        // DER in hexadecimal digits, as values are shown whose type has no name (RFC 4514, section 2.4).
        (Some(digits), _) => {
            let der = hex::decode(digits).ok();
            der.and_then(|der| Any::from_der(&der).ok())
        }
        (None, Some((_, true))) => return Err(NameTextError::Star(attribute.to_owned())),
        (None, Some((text, false))) => encode(oid, &text),
        (None, None) => None,
    };
    let encoded = encoded.ok_or_else(|| NameTextError::BadValue(attribute.to_owned()))?;
    Ok((oid, Some(encoded)))
}

fn attribute_type(name: &str) -> Result<ObjectIdentifier, NameTextError> {
    if name.eq_ignore_ascii_case("E") || name.eq_ignore_ascii_case("email") {
        return Ok(EMAIL_ADDRESS);
    }
    let known = DB.by_name(name).copied();
    let number = || ObjectIdentifier::new(name);
    let unknown = |_| NameTextError::UnknownType(name.to_owned());
    known.map_or_else(|| number().map_err(unknown), Ok)
}

/// Resolves escapes (RFC 4514, section 2.4); says as well whether a star stands there that is not escaped.
fn unescaped(value: &str) -> Option<(String, bool)> {
    let (mut bytes, mut star) = (Vec::new(), false);
    let mut rest = value.chars();
    let mut utf8 = [0; 4];
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                let next = rest.next()?;
                match next.to_digit(16) {
                    Some(high) => {
                        let byte = high
                            .checked_mul(16)?
                            .checked_add(rest.next()?.to_digit(16)?)?;
                        bytes.push(u8::try_from(byte).ok()?);
                    }
                    None if " \"#=\\+,;<>*".contains(next) => {
                        bytes.extend(next.encode_utf8(&mut utf8).bytes());
                    }
                    None => return None,
                }
            }
            '"' | ';' | '<' | '>' => return None,
            _ => {
                star |= c == '*';
                bytes.extend(c.encode_utf8(&mut utf8).bytes());
            }
        }
    }
    String::from_utf8(bytes).ok().map(|text| (text, star))
}

/// Encodes a value in the type of string that RFC 5280 (appendix A.1) gives the attribute.
fn encode(oid: ObjectIdentifier, text: &str) -> Option<Any> {
    let tag = match oid {
        COUNTRY_NAME | SERIAL_NUMBER | DN_QUALIFIER => {
            PrintableStringRef::new(text).ok()?;
            Tag::PrintableString
        }
        DOMAIN_COMPONENT | EMAIL_ADDRESS => {
            text.is_ascii().then_some(())?;
            Tag::Ia5String
        }
        _ => Tag::Utf8String,
    };
    Any::new(tag, text.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
