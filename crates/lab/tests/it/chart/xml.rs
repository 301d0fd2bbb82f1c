//! A reader of the XML that pictures use: elements, attributes in single quotes, text, five entities.

use std::collections::BTreeMap;

/// An element with what it holds.
#[derive(Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) text: String,
    pub(crate) children: Vec<Self>,
}

impl Element {
    /// All elements of a name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&Self> {
        let mut found = Vec::new();
        for child in &self.children {
            if child.name == name {
                found.push(child);
            }
            found.extend(child.all(name));
        }
        found
    }

    /// A number of the picture.
    pub(crate) fn number(&self, attribute: &str) -> f64 {
        let value = self.attributes.get(attribute).expect(attribute);
        value.parse().expect("a number")
    }
}

/// Reads a document of one element; panics at the first thing that is not well-formed.
pub(crate) fn parse(text: &str) -> Element {
    let (root, rest) = element(text.trim_end());
    assert_eq!(rest, "", "nothing follows the root");
    root
}

fn element(text: &str) -> (Element, &str) {
    let inside = text.strip_prefix('<').expect("an element");
    let end = inside.find([' ', '>', '/']).expect("a name's end");
    let (name, mut rest) = inside.split_at(end);
    let letters = |c: char| c.is_ascii_alphanumeric();
    assert!(!name.is_empty() && name.chars().all(letters), "{name}");
    let mut element = Element {
        name: name.to_owned(),
        ..Element::default()
    };
    while let Some(attribute) = rest.strip_prefix(' ') {
        let (name, value) = attribute.split_once("='").expect("a quoted attribute");
        let (value, after) = value.split_once('\'').expect("a closing quotation mark");
        let before = element.attributes.insert(name.to_owned(), plain(value));
        assert!(before.is_none(), "{name} stands twice");
        rest = after;
    }
    if let Some(rest) = rest.strip_prefix("/>") {
        return (element, rest);
    }
    rest = rest.strip_prefix('>').expect("the tag's end");
    loop {
        let (text, tag) = rest.split_at(rest.find('<').expect("a closing tag"));
        element.text.push_str(&plain(text));
        if let Some(closing) = tag.strip_prefix("</") {
            let (closed, rest) = closing.split_once('>').expect("the closing tag's end");
            assert_eq!(closed, element.name, "tags are closed in their order");
            return (element, rest);
        }
        let (child, after) = self::element(tag);
        element.children.push(child);
        rest = after;
    }
}

/// Text without entities.
fn plain(text: &str) -> String {
    assert!(!text.contains(['<', '>']), "{text}");
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, rest) = part.split_once(';').expect("an entity's end");
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            other => panic!("unknown entity {other}"),
        });
        out.push_str(rest);
    }
    out
}
