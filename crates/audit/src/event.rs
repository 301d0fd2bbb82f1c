//! What is recorded: one versioned event, always in its canonical JSON form (RFC 8785).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};
use untrusted_text::{UntrustedText, escape_invisible, escape_invisible_in_lines, is_invisible};

/// Version of the event format written by this crate.
pub const EVENT_VERSION: u32 = 1;
/// Largest canonical event in bytes; a bound so that one event can never fill a journal.
pub const MAX_EVENT_BYTES: usize = 16 * 1024;
/// RFC 3339 in UTC with exactly three fractional digits: one instant has one spelling.
const AT_FORMAT: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// One thing that happened: who did what to what, when, with which outcome and why.
///
/// Build it with [`Event::new`] and the `with_*` methods. They escape control and format characters, and so does a journal
/// with what it writes: no text of an event can forge a line where it is shown. Strings that someone else wrote should come as
/// [`UntrustedText`](untrusted_text::UntrustedText) nevertheless, so that their escapes cannot be forged.
/// Keys, passwords and evidence content never belong in an event: it is kept for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub v: u32,
    /// When it happened, in milliseconds precision, UTC.
    #[serde(serialize_with = "write_at", deserialize_with = "read_at")]
    pub at: OffsetDateTime,
    /// The role that recorded it; filled in by the [`AuditSink`](crate::AuditSink).
    pub role: String,
    /// Person, device or service that acted.
    pub actor: Actor,
    /// The act, as `noun.verb` (`evidence.open`).
    pub action: String,
    /// Object of the act (`evidence/3f…`, `camera/camera-17`).
    pub resource: String,
    pub outcome: Outcome,
    /// Why, in words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ids of the access policies that decided it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Anything else, by name; integers, strings and truth values only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, Value>,
}

/// Person, device or service that acted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    /// Person, device or service.
    pub kind: ActorKind,
    /// Its stable identifier: user id, device common name or service name.
    pub id: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A person with an account.
    User,
    /// A camera or another machine in the field.
    Device,
    /// A part of Cordon.
    Service,
    /// Somebody who could not be identified, such as a refused login.
    Unknown,
}

/// End of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Access policy allowed it.
    Permit,
    /// Access policy, or a check before it, refused it.
    Deny,
    Ok,
    /// It was tried and failed.
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::Ok => "ok",
            Self::Fail => "fail",
        })
    }
}

/// Why bytes are not an event, or an event cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The canonical form is too long.
    #[error("event has {0} bytes, more than {MAX_EVENT_BYTES}")]
    TooLarge(usize),
    /// Not the JSON of an event.
    #[error("malformed event")]
    Malformed(#[from] serde_json::Error),
    /// A later version of the format.
    #[error("event version {0} is not known")]
    UnknownVersion(u32),
    /// An event, but not spelled canonically.
    #[error("event is not in canonical form")]
    NotCanonical,
    /// A detail that canonical JSON cannot carry without loss.
    #[error("event detail {0:?} is not a string, a truth value or a whole number below 2^53")]
    UnsuitableDetail(String),
    /// The time is outside the years 0 to 9999.
    #[error("event time is outside the years 0 to 9999")]
    UnsuitableTime,
}

impl Actor {
    /// A person with the user id `uid`; a blank name counts as none.
    pub fn user(uid: impl Into<String>, name: impl Into<String>) -> Self {
        let name = line(name.into());
        Self {
            kind: ActorKind::User,
            id: line(uid.into()),
            name: (!name.trim().is_empty()).then_some(name),
        }
    }

    /// The name, or the identifier of an actor without one. Earlier versions recorded blank names.
    #[must_use]
    pub fn shown(&self) -> &str {
        let name = self.name.as_deref();
        name.filter(|name| !name.trim().is_empty())
            .unwrap_or(&self.id)
    }

    /// A device with the common name `id`.
    pub fn device(id: impl Into<String>) -> Self {
        Self {
            kind: ActorKind::Device,
            id: line(id.into()),
            name: None,
        }
    }

    /// A part of Cordon.
    pub fn service(id: impl Into<String>) -> Self {
        Self {
            kind: ActorKind::Service,
            id: line(id.into()),
            name: None,
        }
    }

    /// Someone who was not identified; `id` is what is known, such as the claimed user id. It is their word, so that its
    /// escapes cannot be forged.
    pub fn unknown(id: impl AsRef<str>) -> Self {
        Self {
            kind: ActorKind::Unknown,
            id: UntrustedText::new(id.as_ref()).into(),
            name: None,
        }
    }
}

impl Event {
    /// An event at `at`, which is cut to milliseconds in UTC.
    pub fn new(
        at: OffsetDateTime,
        actor: Actor,
        action: impl Into<String>,
        resource: impl Into<String>,
        outcome: Outcome,
    ) -> Self {
        Self {
            v: EVENT_VERSION,
            at: to_millisecond(at),
            role: String::new(),
            actor,
            action: line(action.into()),
            resource: line(resource.into()),
            outcome,
            reason: None,
            policies: Vec::new(),
            details: BTreeMap::new(),
        }
    }

    /// The same event with the reason, in words for people.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(line(reason.into()));
        self
    }

    /// The same event with the ids of the policies that decided it.
    #[must_use]
    pub fn with_policies(mut self, policies: impl IntoIterator<Item = String>) -> Self {
        self.policies = policies.into_iter().map(line).collect();
        self
    }

    /// The same event with one more detail; a string, a truth value or a whole number.
    #[must_use]
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(line(text)),
            other => other,
        };
        self.details.insert(line(name.into()), value);
        self
    }

    /// The same event with a text of several lines as a detail, such as a file that was approved: its line breaks and tabs
    /// stay, and whoever shows it has to show lines.
    #[must_use]
    pub fn with_document(mut self, name: impl Into<String>, text: &str) -> Self {
        let text = escape_invisible_in_lines(text).into_owned();
        self.details.insert(line(name.into()), Value::String(text));
        self
    }

    /// The canonical JSON form (RFC 8785).
    ///
    /// # Errors
    /// [`EventError::TooLarge`] above [`MAX_EVENT_BYTES`]; [`EventError::UnsuitableDetail`] and
    /// [`EventError::UnsuitableTime`] for values that would not survive.
    pub fn to_canonical(&self) -> Result<Vec<u8>, EventError> {
        self.check_values()?;
        let bytes = serde_json_canonicalizer::to_vec(self)?;
        if bytes.len() > MAX_EVENT_BYTES {
            return Err(EventError::TooLarge(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads an event from its canonical form; any other spelling is refused.
    ///
    /// # Errors
    /// A variant of [`EventError`] for each way the bytes can be wrong.
    pub fn from_canonical(bytes: &[u8]) -> Result<Self, EventError> {
        if bytes.len() > MAX_EVENT_BYTES {
            return Err(EventError::TooLarge(bytes.len()));
        }
        let event: Self = serde_json::from_slice(bytes)?;
        if event.v != EVENT_VERSION {
            return Err(EventError::UnknownVersion(event.v));
        }
        if event.to_canonical()? != bytes {
            return Err(EventError::NotCanonical);
        }
        Ok(event)
    }

    /// The same event without control and format characters, also in fields that were set directly. Details keep their line
    /// breaks, as they may be [documents](Self::with_document).
    pub(crate) fn escaped(mut self) -> Self {
        self.map_lines(line);
        for value in self.details.values_mut() {
            if let Value::String(text) = value
                && let Cow::Owned(escaped) = escape_invisible_in_lines(text)
            {
                *text = escaped;
            }
        }
        self
    }

    /// Changes every text but the values of details.
    pub(crate) fn map_lines(&mut self, change: impl Fn(String) -> String) {
        let take = |text: &mut String| *text = change(std::mem::take(text));
        take(&mut self.actor.id);
        self.actor.name.as_mut().map(take);
        take(&mut self.action);
        take(&mut self.resource);
        self.reason.as_mut().map(take);
        self.policies.iter_mut().for_each(take);
        let details = std::mem::take(&mut self.details).into_iter();
        self.details = details.map(|(name, value)| (change(name), value)).collect();
    }

    /// Tells whether a text has control or format characters, as records of earlier versions may. Line breaks of
    /// [documents](Self::with_document) count, too.
    #[must_use]
    pub fn has_invisible_text(&self) -> bool {
        let texts = [&self.actor.id, &self.action, &self.resource].into_iter();
        let details = self.details.iter();
        let details = details.flat_map(|(name, value)| [Some(name.as_str()), value.as_str()]);
        texts
            .chain(&self.actor.name)
            .chain(&self.reason)
            .chain(&self.policies)
            .map(String::as_str)
            .chain(details.flatten())
            .any(|text| text.chars().any(is_invisible))
    }

    pub(crate) fn check_values(&self) -> Result<(), EventError> {
        if !(0..=9999).contains(&self.at.to_offset(UtcOffset::UTC).year()) {
            return Err(EventError::UnsuitableTime);
        }
        match self.details.iter().find(|(_, value)| !suitable(value)) {
            Some((name, _)) => Err(EventError::UnsuitableDetail(name.clone())),
            None => Ok(()),
        }
    }
}

/// Text of an event, which is one line wherever it is shown.
fn line(text: String) -> String {
    match escape_invisible(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

/// RFC 8785 writes numbers as IEEE 754 doubles, which hold whole numbers exactly up to 2^53.
pub(crate) fn suitable(value: &Value) -> bool {
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(n) => n.as_i64().is_some_and(|n| n.unsigned_abs() < EXACT),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn to_millisecond(at: OffsetDateTime) -> OffsetDateTime {
    let at = at.to_offset(UtcOffset::UTC);
    at.replace_millisecond(at.millisecond()).unwrap_or(at)
}

fn write_at<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    let text = at
        .to_offset(UtcOffset::UTC)
        .format(AT_FORMAT)
        .map_err(serde::ser::Error::custom)?;
    serializer.serialize_str(&text)
}

fn read_at<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    PrimitiveDateTime::parse(&text, AT_FORMAT)
        .map(PrimitiveDateTime::assume_utc)
        .map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    fn sample() -> Event {
        Event::new(
            datetime!(2026-11-21 10:00:00.123456 +01:00),
            Actor::user("u4711", "Example Officer"),
            "evidence.open",
            "evidence/42",
            Outcome::Permit,
        )
        .with_policies(["view".to_owned()])
        .with_detail("speed_kmh", 87)
    }

    #[test]
    fn canonical_form_is_fixed() {
        let expected = r#"{"action":"evidence.open","actor":{"id":"u4711","kind":"user","name":"Example Officer"},"at":"2026-11-21T09:00:00.123Z","details":{"speed_kmh":87},"outcome":"permit","policies":["view"],"resource":"evidence/42","role":"","v":1}"#;
        let bytes = sample().to_canonical().unwrap();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), expected);
        assert_eq!(Event::from_canonical(&bytes).unwrap(), sample());
    }

    #[test]
    fn other_spellings_are_refused() {
        let text = String::from_utf8(sample().to_canonical().unwrap()).unwrap();
        let not_canonical = text.replace(r#","v":1"#, r#", "v":1"#);
        assert!(matches!(
            Event::from_canonical(not_canonical.as_bytes()),
            Err(EventError::NotCanonical)
        ));
        let later = text.replace(r#""v":1"#, r#""v":2"#);
        assert!(matches!(
            Event::from_canonical(later.as_bytes()),
            Err(EventError::UnknownVersion(2))
        ));
        for bad in [
            text.replace(".123Z", ".1234Z"),
            text.replace("permit", "maybe"),
            text.replace(r#""v":1"#, r#""v":1,"x":0"#),
            text.replace(r#""role":"","#, ""),
        ] {
            assert!(
                matches!(
                    Event::from_canonical(bad.as_bytes()),
                    Err(EventError::Malformed(_))
                ),
                "{bad}"
            );
        }
    }

    #[test]
    fn size_is_bounded_on_both_sides() {
        let empty = sample().with_reason("").to_canonical().unwrap().len();
        let fits = sample().with_reason("x".repeat(MAX_EVENT_BYTES - empty));
        assert_eq!(fits.to_canonical().unwrap().len(), MAX_EVENT_BYTES);
        let large = sample().with_reason("x".repeat(MAX_EVENT_BYTES - empty + 1));
        assert!(matches!(
            large.to_canonical(),
            Err(EventError::TooLarge(n)) if n == MAX_EVENT_BYTES + 1
        ));
    }

    #[test]
    fn text_of_an_event_is_one_line() {
        let hostile = "x\u{85}y\nz\u{202e}";
        let shown = r"x\u{85}y\u{a}z\u{202e}";
        let at = datetime!(2026-11-21 10:00 UTC);
        let actor = Actor::user(hostile, hostile);
        let event = Event::new(at, actor, hostile, hostile, Outcome::Deny)
            .with_reason(hostile)
            .with_policies([hostile.to_owned()])
            .with_detail(hostile, hostile);
        assert!(!event.has_invisible_text());
        assert_eq!(
            (event.actor.id.as_str(), event.actor.name.as_deref()),
            (shown, Some(shown))
        );
        assert_eq!(
            (event.action.as_str(), event.resource.as_str()),
            (shown, shown)
        );
        assert_eq!(event.reason.as_deref(), Some(shown));
        assert_eq!(event.policies, [shown]);
        assert_eq!(event.details[shown], shown);
        for actor in [
            Actor::device(hostile),
            Actor::service(hostile),
            Actor::unknown(hostile),
        ] {
            assert_eq!(actor.id, shown);
        }
    }

    #[test]
    fn blank_name_is_not_recorded_and_shows_as_the_identifier() {
        for name in ["", " ", "\t"] {
            let actor = Actor::user("clerk-1", name.trim_end_matches('\t'));
            assert_eq!((actor.name.as_deref(), actor.shown()), (None, "clerk-1"));
            // As earlier versions recorded it.
            let former = Actor {
                name: Some(name.to_owned()),
                ..actor
            };
            assert_eq!(former.shown(), "clerk-1");
        }
        assert_eq!(Actor::user("clerk-1", "C. Lerk").shown(), "C. Lerk");
        assert_eq!(Actor::device("camera-17").shown(), "camera-17");
    }

    #[test]
    fn document_keeps_its_line_breaks_only() {
        let event = sample().with_document("definition", "a = 1\r\n\tb\u{85}");
        assert_eq!(event.details["definition"], "a = 1\r\n\tb\\u{85}");
        assert_eq!(event.clone().escaped(), event);
    }

    #[test]
    fn field_that_was_set_directly_is_escaped_on_the_way_to_a_journal() {
        let mut event = sample();
        event.reason = Some("a\u{85}b".to_owned());
        assert!(event.has_invisible_text());
        let escaped = event.escaped();
        assert_eq!(escaped.reason.as_deref(), Some(r"a\u{85}b"));
        assert!(!escaped.has_invisible_text());
    }

    #[test]
    fn details_that_would_not_survive_are_refused() {
        let exact = (1_i64 << 53) - 1;
        sample().with_detail("n", exact).to_canonical().unwrap();
        for value in [
            Value::from(exact + 1),
            Value::from(0.5),
            Value::Null,
            Value::from(vec![1]),
        ] {
            assert!(matches!(
                sample().with_detail("n", value).to_canonical(),
                Err(EventError::UnsuitableDetail(name)) if name == "n"
            ));
        }
    }
}
