//! Distinguished names in the form in which they are compared (RFC 5280, section 7.1).
//!
//! Two encodings of one name (PrintableString and UTF8String, other case, other spaces) are the same
//! name. Strings are prepared as RFC 4518 has it, except for Unicode normalisation: names that differ
//! in composition only (`é` as one character or as two) are different names here.

use der::{Encode as _, Tag, Tagged as _};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::{Name, RelativeDistinguishedName};

/// A name, one comparable byte string per RDN, the outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CanonicalName(Vec<Vec<u8>>);

impl CanonicalName {
    pub(crate) fn of(name: &Name) -> Self {
        Self(name.0.iter().map(canonical_rdn).collect())
    }

    /// `name` with one more RDN below it.
    pub(crate) fn child(&self, rdn: &RelativeDistinguishedName) -> Self {
        let mut all = self.0.clone();
        all.push(canonical_rdn(rdn));
        Self(all)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this name is `base` or lies below it.
    pub(crate) fn is_within(&self, base: &Self) -> bool {
        self.0.starts_with(&base.0)
    }

    /// One byte string for the whole name; different names have different ones.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for rdn in &self.0 {
            push(&mut out, rdn);
        }
        out
    }
}

/// Attributes of an RDN are a set: their order in the encoding says nothing.
fn canonical_rdn(rdn: &RelativeDistinguishedName) -> Vec<u8> {
    let mut attributes: Vec<Vec<u8>> = rdn.0.iter().map(canonical_attribute).collect();
    attributes.sort_unstable();
    let mut out = Vec::new();
    for attribute in &attributes {
        push(&mut out, attribute);
    }
    out
}

fn canonical_attribute(attribute: &AttributeTypeAndValue) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, attribute.oid.as_bytes());
    let value = &attribute.value;
    if let Some(text) = decoded(value.tag(), value.value()) {
        out.push(1);
        push(&mut out, prepared(&text).as_bytes());
    } else {
        out.push(0);
        // What was parsed can be encoded; should it not, no other value has the empty encoding.
        push(&mut out, &value.to_der().unwrap_or_default());
    }
    out
}

/// The text of a string type; `None` for other types and for bytes that are not of their type.
fn decoded(tag: Tag, value: &[u8]) -> Option<String> {
    match tag {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::VisibleString => {
            std::str::from_utf8(value).ok().map(str::to_owned)
        }
        // T.61 in name only: everybody who writes it writes Latin-1.
        Tag::TeletexString => Some(value.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().copied().map(u16::from_be_bytes).collect();
            rest.is_empty().then(|| String::from_utf16(&units).ok())?
        }
        _ => None,
    }
}

/// Map, fold case, and handle spaces (RFC 4518, sections 2.2 and 2.6.1).
fn prepared(text: &str) -> String {
    let mapped = text.chars().filter(|c| !is_ignored(*c));
    let folded: String = mapped.flat_map(char::to_lowercase).collect();
    let mut words = folded.split(char::is_whitespace).filter(|w| !w.is_empty());
    let mut out = String::with_capacity(folded.len());
    if let Some(first) = words.next() {
        out.push_str(first);
    }
    for word in words {
        out.push(' ');
        out.push_str(word);
    }
    out
}

/// Characters mapped to nothing: whoever slips one into a name does not make another name of it.
pub(super) const fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{6dd}' | '\u{70f}' | '\u{1806}' | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2063}'
        | '\u{206a}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

/// Appends a byte string with its length, so that the borders between strings cannot move.
pub(super) fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> CanonicalName {
        CanonicalName::of(&text.parse().unwrap())
    }

    #[test]
    fn names_that_differ_in_case_and_spaces_are_equal() {
        let plain = name("CN=Good CA,O=Test Certificates");
        assert_eq!(plain, name("CN=good   ca,O=TEST Certificates"));
        assert_ne!(plain, name("CN=GoodCA,O=Test Certificates"));
        assert_ne!(plain, name("CN=Good CA"));
    }

    #[test]
    fn name_below_another_is_within_it() {
        let base = name("O=Test,C=US");
        assert!(name("CN=a,O=test,C=us").is_within(&base));
        assert!(base.is_within(&base));
        assert!(!name("CN=a,C=US").is_within(&base));
        assert!(!base.is_within(&name("CN=a,O=Test,C=US")));
    }

    #[test]
    fn invisible_characters_make_no_other_name() {
        assert_eq!(prepared("pol\u{ad}i\u{200b}ce"), "police");
        assert_eq!(prepared(" A \u{a0} b\t"), "a b");
        assert_eq!(decoded(Tag::BmpString, &[0, 65, 1]), None);
        assert_eq!(decoded(Tag::BmpString, &[0, 65]), Some("A".into()));
    }
}
