//! Languages of the pages: texts in Fluent files, and which language a request gets.
//!
//! Each crate of pages brings its texts in `locales/CODE.ftl` and names them in [`Application::texts`]; the shell puts the
//! files of a language together. English is complete and stands in where another language lacks a text.
//!
//! [`Application::texts`]: crate::Application::texts

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};
use http::HeaderMap;
use http::header::{ACCEPT_LANGUAGE, COOKIE};
use unic_langid::LanguageIdentifier;

/// The cookie with the language that somebody chose; it says nothing else.
pub(crate) const LANGUAGE_COOKIE: &str = "__Host-cordon-language";
/// The language that has every text.
const COMPLETE: &str = "en";
/// Longest list of accepted languages in bytes that is read; browsers send some dozens.
const MAX_ACCEPT: usize = 1024;

/// Texts of one language: its code (BCP 47) and a Fluent file.
#[derive(Clone, Copy, Debug)]
pub struct TextFile {
    pub code: &'static str,
    pub content: &'static str,
}

/// The shell's own texts.
pub(crate) const TEXTS: &[TextFile] = &[
    TextFile {
        code: "en",
        content: include_str!("../locales/en.ftl"),
    },
    TextFile {
        code: "pl",
        content: include_str!("../locales/pl.ftl"),
    },
];

/// Why texts cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("language \"{0}\" is not a language code such as \"en\"")]
    Code(String),
    #[error("texts of language {code}: {problem}")]
    Syntax { code: String, problem: String },
    #[error("texts of language {code}: \"{id}\" occurs twice")]
    Twice { code: String, id: String },
    #[error("there are no texts in English")]
    NoEnglish,
}

struct Language {
    code: String,
    /// Its name in itself.
    name: String,
    bundle: FluentBundle<FluentResource>,
}

/// All languages of the pages.
#[derive(Clone)]
pub struct Languages {
    all: Arc<[Arc<Language>]>,
    /// The text that every page shows above its content, if there is one.
    notice: Option<&'static str>,
}

impl fmt::Debug for Languages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codes = self.all.iter().map(|language| &language.code);
        f.debug_list().entries(codes).finish()
    }
}

impl Languages {
    /// Puts the files of each language together.
    ///
    /// # Errors
    /// [`TextError`]: a file is not Fluent, two have the same text, or English is missing.
    pub fn new(files: &[TextFile]) -> Result<Self, TextError> {
        let codes: BTreeSet<_> = files.iter().map(|file| file.code).collect();
        let mut languages = Vec::new();
        for code in codes {
            let of_code = files.iter().filter(|file| file.code == code);
            languages.push(Arc::new(Language::new(code, of_code)?));
        }
        let complete = languages.iter().position(|one| one.code == COMPLETE);
        languages.swap(0, complete.ok_or(TextError::NoEnglish)?);
        Ok(Self {
            all: languages.into(),
            notice: None,
        })
    }

    /// The same with a text that every page shows above its content.
    pub(crate) fn with_notice(self, notice: Option<&'static str>) -> Self {
        Self { notice, ..self }
    }

    /// The texts in the language with this code, if there is one.
    pub fn named(&self, code: &str) -> Option<Texts> {
        let language = self.all.iter().find(|one| one.code == code)?.clone();
        Some(self.texts(language))
    }

    /// The texts for a request: as its cookie says, else the first language that its browser accepts, else English.
    pub(crate) fn choose(&self, headers: &HeaderMap) -> Texts {
        let chosen = cookie(headers).and_then(|code| self.named(&code));
        let accepted = || {
            accepted(headers)
                .iter()
                .find_map(|code| self.named(primary(code)))
        };
        chosen
            .or_else(accepted)
            .unwrap_or_else(|| self.texts(self.complete()))
    }

    /// Code and own name of each language.
    pub(crate) fn list(&self) -> Vec<(String, String)> {
        let entries = self.all.iter();
        entries
            .map(|one| (one.code.clone(), one.name.clone()))
            .collect()
    }

    fn texts(&self, language: Arc<Language>) -> Texts {
        Texts {
            language,
            complete: self.complete(),
            notice: self.notice,
        }
    }

    fn complete(&self) -> Arc<Language> {
        #[expect(
            clippy::indexing_slicing,
            reason = "`new` refuses a list without English"
        )]
        self.all[0].clone()
    }
}

impl Language {
    fn new<'a>(code: &str, files: impl Iterator<Item = &'a TextFile>) -> Result<Self, TextError> {
        let id: LanguageIdentifier = code.parse().map_err(|_| TextError::Code(code.to_owned()))?;
        let mut bundle = FluentBundle::new_concurrent(vec![id]);
        // Pages are made of elements, which isolate already.
        bundle.set_use_isolating(false);
        for file in files {
            let resource = FluentResource::try_new(file.content.to_owned());
            let resource = resource.map_err(|(_, problems)| TextError::Syntax {
                code: code.to_owned(),
                problem: problems
                    .first()
                    .map_or_else(String::new, ToString::to_string),
            })?;
            bundle.add_resource(resource).map_err(|problems| {
                let first = problems.first().map_or_else(String::new, |one| match one {
                    fluent_bundle::FluentError::Overriding { id, .. } => id.clone(),
                    other => other.to_string(),
                });
                TextError::Twice {
                    code: code.to_owned(),
                    id: first,
                }
            })?;
        }
        let mut language = Self {
            code: code.to_owned(),
            name: String::new(),
            bundle,
        };
        language.name = language
            .format("language-name", &FluentArgs::new())
            .unwrap_or_else(|| code.to_owned());
        Ok(language)
    }

    fn format(&self, id: &str, arguments: &FluentArgs<'_>) -> Option<String> {
        let pattern = self.bundle.get_message(id)?.value()?;
        let mut problems = Vec::new();
        let text = self
            .bundle
            .format_pattern(pattern, Some(arguments), &mut problems);
        if !problems.is_empty() {
            tracing::error!(id, language = self.code, ?problems, "text has a fault");
        }
        Some(text.into_owned())
    }
}

/// The texts of a page, in the language of its reader.
#[derive(Clone)]
pub struct Texts {
    language: Arc<Language>,
    complete: Arc<Language>,
    notice: Option<&'static str>,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Texts").field(&self.language.code).finish()
    }
}

impl Texts {
    /// Code of the language.
    pub fn code(&self) -> &str {
        &self.language.code
    }

    /// The text that every page shows above its content.
    pub(crate) const fn notice(&self) -> Option<&'static str> {
        self.notice
    }

    /// The text with this identifier; what it varies by is added with [`Text::with`].
    pub fn say<'a>(&'a self, id: &'a str) -> Text<'a> {
        Text {
            texts: self,
            id,
            arguments: FluentArgs::new(),
        }
    }

    /// The text for a value that machines name, such as a state; the value itself where no text is known.
    pub fn value(&self, kind: &str, value: &str) -> String {
        let id = format!("{kind}-{value}");
        let none = FluentArgs::new();
        let languages = [&self.language, &self.complete];
        let found = languages.iter().find_map(|one| one.format(&id, &none));
        found.unwrap_or_else(|| value.to_owned())
    }
}

/// A text with what it varies by.
pub struct Text<'a> {
    texts: &'a Texts,
    id: &'a str,
    arguments: FluentArgs<'a>,
}

impl<'a> Text<'a> {
    /// The text with `value` at `name`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Argument<'a>) -> Self {
        self.arguments.set(name, value.argument());
        self
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let languages = [&self.texts.language, &self.texts.complete];
        let text = languages
            .iter()
            .find_map(|one| one.format(self.id, &self.arguments));
        match text {
            Some(text) => f.write_str(&text),
            // The tests of each crate of pages look for this mark.
            None => write!(f, "\u{27e6}{}\u{27e7}", self.id),
        }
    }
}

/// A value by which a text varies: a number, for plurals, or another text.
pub trait Argument<'a> {
    fn argument(self) -> FluentValue<'a>;
}

impl<'a> Argument<'a> for &'a str {
    fn argument(self) -> FluentValue<'a> {
        FluentValue::from(self)
    }
}

impl<'a> Argument<'a> for &'a String {
    fn argument(self) -> FluentValue<'a> {
        FluentValue::from(self.as_str())
    }
}

impl<'a> Argument<'a> for &'a &String {
    fn argument(self) -> FluentValue<'a> {
        FluentValue::from(self.as_str())
    }
}

impl<'a> Argument<'a> for &'a &str {
    fn argument(self) -> FluentValue<'a> {
        FluentValue::from(*self)
    }
}

impl<'a> Argument<'a> for String {
    fn argument(self) -> FluentValue<'a> {
        FluentValue::from(self)
    }
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl<'a> Argument<'a> for $kind {
            fn argument(self) -> FluentValue<'a> {
                FluentValue::from(self)
            }
        }

        impl<'a> Argument<'a> for &$kind {
            fn argument(self) -> FluentValue<'a> {
                FluentValue::from(*self)
            }
        }

        // Templates lend what they already hold by reference.
        impl<'a> Argument<'a> for &&$kind {
            fn argument(self) -> FluentValue<'a> {
                FluentValue::from(**self)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, usize, i32, i64);

/// The language in the cookie.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(COOKIE).iter();
    let pairs = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == LANGUAGE_COOKIE)
        .map(|(_, value)| value.to_owned())
}

/// Accepted languages, the most wanted first (RFC 9110, section 12.5.4).
fn accepted(headers: &HeaderMap) -> Vec<String> {
    let value = headers.get(ACCEPT_LANGUAGE);
    let value = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    if value.len() > MAX_ACCEPT {
        return Vec::new();
    }
    let ranges = value.split(',').filter_map(|range| {
        let (code, weight) = range.split_once(";").unwrap_or((range, "q=1"));
        let weight: f32 = weight.trim().strip_prefix("q=")?.parse().ok()?;
        (weight > 0.0).then(|| (code.trim().to_ascii_lowercase(), weight))
    });
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranges.into_iter().map(|(code, _)| code).collect()
}

/// The language of a code such as `pl-PL`.
fn primary(code: &str) -> &str {
    code.split('-').next().unwrap_or(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [TextFile; 3] = [
        TextFile {
            code: "pl",
            content: "language-name = Polski\nfiles = { $count ->\n    [one] { $count } plik\n    [few] { $count } pliki\n   *[many] { $count } plików\n }\n",
        },
        TextFile {
            code: "en",
            content: "language-name = English\nfiles = { $count ->\n    [one] { $count } file\n   *[other] { $count } files\n }\n",
        },
        TextFile {
            code: "en",
            content: "only-english = Only { $name }\nstate-open = still open\n",
        },
    ];

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let value = value.parse().unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value)])
    }

    #[test]
    fn plurals_follow_the_rules_of_the_language() {
        let languages = Languages::new(&FILES).unwrap();
        let said = |code: &str| {
            let texts = languages.named(code).unwrap();
            [1_u64, 3, 5, 22].map(|n| texts.say("files").with("count", n).to_string())
        };
        assert_eq!(said("en"), ["1 file", "3 files", "5 files", "22 files"]);
        assert_eq!(said("pl"), ["1 plik", "3 pliki", "5 plików", "22 pliki"]);
    }

    #[test]
    fn english_stands_in_and_an_unknown_text_is_marked() {
        let languages = Languages::new(&FILES).unwrap();
        let polish = languages.named("pl").unwrap();
        let text = polish.say("only-english").with("name", "<b>");
        assert_eq!(text.to_string(), "Only <b>");
        assert_eq!(polish.say("nothing").to_string(), "\u{27e6}nothing\u{27e7}");
        assert_eq!(polish.value("state", "open"), "still open");
        assert_eq!(polish.value("state", "lost"), "lost");
    }

    #[test]
    fn request_gets_the_language_of_its_cookie_or_its_browser() {
        let languages = Languages::new(&FILES).unwrap();
        for (name, value, code) in [
            ("accept-language", "pl", "pl"),
            ("accept-language", "pl-PL,pl;q=0.9,en;q=0.8", "pl"),
            ("accept-language", "en;q=0.3, pl;q=0.7", "pl"),
            ("accept-language", "de, en", "en"),
            ("accept-language", "pl;q=0", "en"),
            ("accept-language", "pl;q=much, *", "en"),
            ("accept-language", "", "en"),
            ("cookie", "a=b; __Host-cordon-language=pl", "pl"),
            ("cookie", "__Host-cordon-language=../x", "en"),
        ] {
            let texts = languages.choose(&headers(name, value));
            assert_eq!(texts.code(), code, "{name}: {value}");
        }
        let long = format!("pl,{}", "x".repeat(MAX_ACCEPT));
        let texts = languages.choose(&headers("accept-language", &long));
        assert_eq!(texts.code(), "en");
    }

    #[test]
    fn files_that_contradict_one_another_are_refused() {
        let file = |code, content| TextFile { code, content };
        let twice = [file("en", "a = 1\n"), file("en", "a = 2\n")];
        let error = Languages::new(&twice).unwrap_err();
        assert!(error.to_string().contains("\"a\" occurs twice"), "{error}");
        let broken = Languages::new(&[file("en", "a = {\n")]).unwrap_err();
        assert!(matches!(broken, TextError::Syntax { .. }));
        let no_code = Languages::new(&[file("!", "a = 1\n")]).unwrap_err();
        assert_eq!(no_code, TextError::Code("!".to_owned()));
        let no_english = Languages::new(&[file("pl", "a = 1\n")]).unwrap_err();
        assert_eq!(no_english, TextError::NoEnglish);
    }
}
