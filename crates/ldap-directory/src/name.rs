//! Distinguished names (RFC 4514): reading, comparing, writing.

use crate::schema;

/// Octets of a name at most. Our choice: four components of 64 characters fit several times over.
const MAX_OCTETS: usize = 2048;
/// Components at most, for the same reason.
const MAX_COMPONENTS: usize = 16;
/// Separates components in a key. It sorts before every character that a value can have, so that an entry comes right before
/// its subordinates.
pub(crate) const SEPARATOR: char = '\0';

/// Why a text is not a distinguished name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a component has no '='")]
    NoEquals,
    #[error("a component has no attribute type, or one with characters that types do not have")]
    Type,
    #[error("a character must be escaped, or an escape is incomplete")]
    Escape,
    #[error("a value is not UTF-8 or has a control character")]
    Text,
    #[error("the name has more than {MAX_OCTETS} octets or {MAX_COMPONENTS} components")]
    TooLong,
}

/// A distinguished name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Type and value of each component, the most specific one first.
    components: Vec<(String, String)>,
}

impl Name {
    /// Reads a name. The empty text is the empty name.
    ///
    /// # Errors
    /// [`NameError`]. Components with several values and values in hexadecimal are refused: no entry has them.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_OCTETS {
            return Err(NameError::TooLong);
        }
        let mut components = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self { components });
        }
        let mut rest = Some(text);
        while let Some(text) = rest {
            let (kind, value) = text.split_once('=').ok_or(NameError::NoEquals)?;
            let (value, after) = value_of(value)?;
            components.push((kind_of(kind)?, value));
            if components.len() > MAX_COMPONENTS {
                return Err(NameError::TooLong);
            }
            rest = after;
        }
        Ok(Self { components })
    }

    /// The value of the first component, if it is of type `kind`.
    #[must_use]
    pub fn first(&self, kind: &str) -> Option<&str> {
        let (first, value) = self.components.first()?;
        (first == kind).then_some(value.as_str())
    }

    /// The form in which names are compared and sorted: from the root downwards, values as the matching rules prepare them.
    #[must_use]
    pub fn key(&self) -> String {
        let components = self.components.iter().rev();
        let components = components.map(|(kind, value)| format!("{kind}={}", prepared(value)));
        components.collect::<Vec<_>>().join(&SEPARATOR.to_string())
    }

    /// The components as RFC 4514 writes them.
    #[must_use]
    pub fn text(&self) -> String {
        let components = self.components.iter();
        let components = components.map(|(kind, value)| format!("{kind}={}", escaped(value)));
        components.collect::<Vec<_>>().join(",")
    }
}

/// Prepares a text for comparison: letters in one case, no spaces at its ends, single ones inside (RFC 4518 in its plain
/// cases).
pub(crate) fn prepared(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>();
    words.join(" ").to_lowercase()
}

/// Escapes a value for a distinguished name (RFC 4514, section 2.4).
#[must_use]
pub fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (position, character) in value.chars().enumerate() {
        let at_end = position == 0 || position == last;
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => {
                text.push('\\');
                text.push(character);
            }
            '#' if position == 0 => text.push_str("\\#"),
            ' ' if at_end => text.push_str("\\ "),
            _ => text.push(character),
        }
    }
    text
}

/// The canonical name of an attribute type.
fn kind_of(text: &str) -> Result<String, NameError> {
    let text = text.trim();
    let is_type = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if text.is_empty() || !text.chars().all(is_type) {
        return Err(NameError::Type);
    }
    let known = schema::by_name(text).map(|known| known.name.to_owned());
    Ok(known
        .unwrap_or_else(|| text.to_owned())
        .to_ascii_lowercase())
}

/// Splits the value off that `text` begins with; what follows its comma is `None` at the name's end.
fn value_of(text: &str) -> Result<(String, Option<&str>), NameError> {
    let mut octets = Vec::new();
    // Spaces at the end belong to the value only if they are escaped.
    let mut significant = 0;
    let mut characters = text.trim_start().char_indices();
    let trimmed = text.trim_start();
    let mut after = None;
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => {
                octets.extend(unescaped(&mut characters)?);
                significant = octets.len();
            }
            ',' | ';' => {
                after = trimmed.get(position + 1..);
                break;
            }
            '"' | '+' | '<' | '>' | '#' if character != '#' || octets.is_empty() => {
                return Err(NameError::Escape);
            }
            _ => {
                octets.extend(character.to_string().into_bytes());
                if character != ' ' {
                    significant = octets.len();
                }
            }
        }
    }
    octets.truncate(significant);
    let value = String::from_utf8(octets).map_err(|_| NameError::Text)?;
    if value.is_empty() || value.chars().any(char::is_control) {
        return Err(NameError::Text);
    }
    Ok((value, after))
}

/// The octets of an escape, after its backslash.
fn unescaped(characters: &mut impl Iterator<Item = (usize, char)>) -> Result<Vec<u8>, NameError> {
    let (_, first) = characters.next().ok_or(NameError::Escape)?;
    let Some(high) = first.to_digit(16) else {
        let special = "\"+,;<>\\=# ".contains(first);
        let octet = u8::try_from(first).ok().filter(|_| special);
        return octet.map(|octet| vec![octet]).ok_or(NameError::Escape);
    };
    let (_, second) = characters.next().ok_or(NameError::Escape)?;
    let low = second.to_digit(16).ok_or(NameError::Escape)?;
    let octet = u8::try_from(high * 16 + low).map_err(|_| NameError::Escape)?;
    Ok(vec![octet])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        Name::parse(text).unwrap().key()
    }

    #[test]
    fn spellings_of_one_name_have_one_key() {
        let spellings = [
            "uid=ana-1,ou=people,o=LEA-EU",
            "UID=Ana-1, OU=People , o=lea-eu",
            "userid=ana-1;organizationalUnitName=people;2.5.4.10=LEA-EU",
            "uid=\\61na-1,ou=people,o=LEA\\2dEU",
        ];
        for spelling in spellings {
            assert_eq!(
                key(spelling),
                "o=lea-eu\0ou=people\0uid=ana-1",
                "{spelling}"
            );
        }
        assert_eq!(key(""), "");
        assert_eq!(key("cn=  two   words "), "cn=two words");
    }

    #[test]
    fn separators_in_values_make_no_components() {
        let name = Name::parse("uid=a\\,ou\\=people\\,o\\=x,ou=people,o=y").unwrap();
        assert_eq!(name.components.len(), 3);
        assert_eq!(name.first("uid"), Some("a,ou=people,o=x"));
        assert_eq!(Name::parse(&name.text()).unwrap(), name);
    }

    #[test]
    fn every_value_survives_writing_and_reading() {
        for value in ["#1", " a ", "a+b", "ж\"", "\\", "=,;<>", "x"] {
            let text = format!("cn={},o=x", escaped(value));
            let name = Name::parse(&text).unwrap();
            assert_eq!(name.first("cn"), Some(value), "{text}");
        }
    }

    #[test]
    fn malformed_names_are_refused() {
        let cases = [
            ("ana", NameError::NoEquals),
            ("uid=ana,", NameError::NoEquals),
            ("=ana", NameError::Type),
            ("u d=ana", NameError::Type),
            ("uid=ana+cn=x", NameError::Escape),
            ("uid=#0401", NameError::Escape),
            ("uid=\\", NameError::Escape),
            ("uid=\\4", NameError::Escape),
            ("uid=\\zz", NameError::Escape),
            ("uid=\\ff", NameError::Text),
            ("uid=a\\00b", NameError::Text),
            ("uid=", NameError::Text),
        ];
        for (text, error) in cases {
            assert_eq!(Name::parse(text), Err(error), "{text}");
        }
        let long = |count: usize| vec!["o=x"; count].join(",");
        assert!(Name::parse(&long(MAX_COMPONENTS)).is_ok());
        assert_eq!(
            Name::parse(&long(MAX_COMPONENTS + 1)),
            Err(NameError::TooLong)
        );
        let long = |count: usize| format!("o={}", "x".repeat(count));
        assert!(Name::parse(&long(MAX_OCTETS - 2)).is_ok());
        assert_eq!(Name::parse(&long(MAX_OCTETS - 1)), Err(NameError::TooLong));
    }
}
