//! What every page keeps to.

use std::collections::{BTreeMap, BTreeSet};

use portal::TextFile;

use crate::{Answer, EVIL};

/// Security headers are on every answer.
pub fn assert_headers(answer: &Answer, what: &str) {
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
    assert!(!policy.contains("unsafe"), "{what}");
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(answer.header("x-frame-options"), "DENY", "{what}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer", "{what}");
    assert!(
        !answer.header("strict-transport-security").is_empty(),
        "{what}"
    );
    assert!(!answer.header("cache-control").is_empty(), "{what}");
}

/// Texts that the shell did not find.
fn marked(html: &str) -> String {
    let found = html.split('\u{27e6}').skip(1);
    let names = found.filter_map(|rest| rest.split('\u{27e7}').next());
    names.collect::<Vec<_>>().join(", ")
}

/// The attributes of each tag of `name`.
fn tags<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("<{name}");
    let tags = html.split(&start).skip(1);
    let tags = tags.filter(|rest| rest.starts_with([' ', '>', '\n']));
    tags.map(|rest| rest.split('>').next().unwrap()).collect()
}

/// The page is whole, nothing typed became markup, and every text was found.
pub fn assert_sound(html: &str, path: &str) {
    assert!(html.starts_with("<!doctype html>"), "{path}");
    let languages = tags(html, "html");
    assert!(
        matches!(*languages, [" lang=\"en\"" | " lang=\"pl\""]),
        "{path}: {languages:?}"
    );
    // The shell marks a text that no language has.
    assert!(!html.contains('\u{27e6}'), "{path}: {}", marked(html));
    assert_eq!(tags(html, "title").len(), 1, "{path}");
    assert!(!html.contains("<title> ·"), "{path}");
    assert_eq!(tags(html, "h1").len(), 1, "{path}");
    assert_eq!(tags(html, "main").len(), 1, "{path}");
    assert!(
        tags(html, "script").is_empty() && !html.contains("onerror=alert(1)>"),
        "{path}"
    );
    assert!(!html.contains(EVIL), "{path}");
    for image in tags(html, "img") {
        assert!(image.contains(" alt="), "{path}: {image}");
    }
    for kind in ["input", "select", "textarea"] {
        for part in html
            .split(&format!("<{kind}"))
            .collect::<Vec<_>>()
            .windows(2)
        {
            let hidden = part[1].starts_with(" type=\"hidden\"");
            let (opened, closed) = (part[0].rfind("<label"), part[0].rfind("</label"));
            assert!(
                hidden || opened > closed,
                "{path}: a {kind} without a label"
            );
        }
    }
    for element in [
        "div", "section", "form", "table", "ul", "li", "a", "p", "span", "dl", "tr", "td", "th",
    ] {
        let closed = html.matches(&format!("</{element}>")).count();
        assert_eq!(tags(html, element).len(), closed, "{path}: {element}");
    }
}

/// Identifiers of the texts in a file, each with the names of its variables.
fn texts(file: &TextFile) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut texts: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut current = "";
    for line in file.content.lines() {
        let begins = line.starts_with(|c: char| c.is_ascii_alphabetic());
        if let Some((id, _)) = line.split_once(" =").filter(|_| begins) {
            current = id;
            texts.entry(id).or_default();
        }
        for (at, _) in line.match_indices('$') {
            let name = line[at + 1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            texts.entry(current).or_default().extend(name.take(1));
        }
    }
    texts
}

/// Each language has the same texts, with the same variables.
pub fn assert_translated(files: &[TextFile]) {
    let [english, others @ ..] = files else {
        panic!("there are no texts");
    };
    assert!(!others.is_empty(), "there is one language only");
    for file in others {
        assert_eq!(texts(file), texts(english), "{}", file.code);
    }
}
