//! Types of details.

use audit::Event;
use serde_json::Value;

/// Form of a detail in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One line of text.
    Text,
    /// Text with line breaks.
    Document,
    /// Whole number.
    Number,
    /// Truth value.
    Flag,
    /// Number, or text if it is too large for JSON.
    NumberOrText,
}

impl Kind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Document => "lines of text",
            Self::Number => "number",
            Self::Flag => "true or false",
            Self::NumberOrText => "number, or text if too large",
        }
    }
}

/// A value that can be a detail of an event.
pub trait Detail: Sized {
    const KIND: Kind;
    const IS_OPTIONAL: bool = false;

    #[must_use]
    fn write(self, key: &str, event: Event) -> Event;

    /// Reads the detail `key`; `None` if it is missing or of another type.
    fn read(key: &str, event: &Event) -> Option<Self>;
}

impl Detail for String {
    const KIND: Kind = Kind::Text;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_detail(key, self)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        event.details.get(key)?.as_str().map(str::to_owned)
    }
}

impl Detail for u64 {
    const KIND: Kind = Kind::Number;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_detail(key, self)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        event.details.get(key)?.as_u64()
    }
}

impl Detail for i64 {
    const KIND: Kind = Kind::Number;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_detail(key, self)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        event.details.get(key)?.as_i64()
    }
}

impl Detail for bool {
    const KIND: Kind = Kind::Flag;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_detail(key, self)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        event.details.get(key)?.as_bool()
    }
}

impl Detail for Value {
    const KIND: Kind = Kind::NumberOrText;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_detail(key, self)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        event.details.get(key).cloned()
    }
}

/// Text that keeps its line breaks, such as a file that was approved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(pub String);

impl Detail for Document {
    const KIND: Kind = Kind::Document;

    fn write(self, key: &str, event: Event) -> Event {
        event.with_document(key, &self.0)
    }

    fn read(key: &str, event: &Event) -> Option<Self> {
        String::read(key, event).map(Self)
    }
}

impl<T: Detail> Detail for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_OPTIONAL: bool = true;

    fn write(self, key: &str, event: Event) -> Event {
        match self {
            Some(value) => value.write(key, event),
            None => event,
        }
    }

    /// An optional detail of another type counts as missing.
    fn read(key: &str, event: &Event) -> Option<Self> {
        Some(T::read(key, event))
    }
}
