//! The list of violations with its filter.

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use centre_api::{Cursor, Filter, Page, Summary};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use time::macros::format_description;
use time::{Date, OffsetDateTime};

use portal::{App, PageError, Texts, Viewer, format};

use crate::Evidence;

pub(crate) const PATH: &str = "/violations";

/// The filter as the form sends it: every field may be missing or empty.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct FilterForm {
    from: String,
    to: String,
    place: String,
    device: String,
    plate: String,
    speed: String,
    state: String,
    before: String,
    after: String,
}

#[derive(Template)]
#[template(path = "violations.html")]
struct ViolationsPage {
    t: Texts,
    form: FilterForm,
    list: Page<Summary>,
    older: Option<String>,
    newer: Option<String>,
}

pub(crate) async fn list<E: Evidence>(
    State(app): State<App<E>>,
    viewer: Viewer,
    form: Result<Query<FilterForm>, QueryRejection>,
) -> Response {
    let form = match form {
        Ok(Query(form)) => form,
        Err(error) => return viewer.error(PageError::Invalid(error.body_text())),
    };
    let filter = match form.parse(viewer.texts()) {
        Ok(filter) => filter,
        Err(message) => return viewer.error(PageError::Invalid(message)),
    };
    match app.service.violations(viewer.principal(), &filter).await {
        Ok(list) => {
            let older = list.older.map(|at| form.address("before", at.0));
            let newer = list.newer.map(|at| form.address("after", at.0));
            let view = ViolationsPage {
                t: viewer.texts().clone(),
                form,
                list,
                older,
                newer,
            };
            let title = view.t.say("violations-title").to_string();
            viewer.page(StatusCode::OK, &title, PATH, &view)
        }
        Err(error) => viewer.error(error),
    }
}

impl FilterForm {
    fn parse(&self, t: &Texts) -> Result<Filter, String> {
        let wrong = |kind: &str, field: &str, value: &str| {
            let name = t.say(field).to_string();
            let text = t.say(kind).with("field", name).with("value", value);
            text.to_string()
        };
        let number = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| wrong("wrong-number", "filter-speed", text)),
        };
        let state = match self.state.as_str() {
            state @ ("" | "open" | "accepted" | "rejected") => state.to_owned(),
            other => return Err(wrong("wrong-choice", "filter-state", other)),
        };
        let place = |text: &str, field: &str| match text {
            "" => Ok(None),
            text => text
                .parse()
                .map(|at| Some(Cursor(at)))
                .map_err(|_| wrong("wrong-place", field, text)),
        };
        let day = |text: &str, field: &str| {
            day(text).map_err(|()| wrong("wrong-date", field, text.trim()))
        };
        Ok(Filter {
            from: day(&self.from, "filter-from")?,
            // The form names the last day wanted, the filter the first instant not wanted.
            to: match day(&self.to, "filter-to")? {
                Some(last) => Some(
                    last.checked_add(time::Duration::DAY)
                        .ok_or_else(|| wrong("wrong-day", "filter-to", &self.to))?,
                ),
                None => None,
            },
            place: self.place.trim().to_owned(),
            device: self.device.trim().to_owned(),
            plate: self.plate.trim().to_owned(),
            min_speed: number(&self.speed)?,
            state,
            before: place(&self.before, "older")?,
            after: place(&self.after, "newer")?,
        })
    }

    /// This list's address on the `side` of a place in it.
    fn address(&self, side: &str, place: i64) -> String {
        let fields = [
            ("from", &self.from),
            ("to", &self.to),
            ("place", &self.place),
            ("device", &self.device),
            ("plate", &self.plate),
            ("speed", &self.speed),
            ("state", &self.state),
        ];
        let mut address = format!("/violations?{side}={place}");
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            address.push('&');
            address.push_str(name);
            address.push('=');
            for byte in value.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                        address.push(char::from(byte));
                    }
                    _ => address.push_str(&format!("%{byte:02X}")),
                }
            }
        }
        address
    }
}

fn day(text: &str) -> Result<Option<OffsetDateTime>, ()> {
    const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]");
    match text.trim() {
        "" => Ok(None),
        text => Date::parse(text, FORMAT)
            .map(|day| Some(day.midnight().assume_utc()))
            .map_err(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portal::Languages;

    fn texts() -> Texts {
        let languages = Languages::new(crate::TEXTS).unwrap();
        languages.named("en").unwrap()
    }

    #[test]
    fn empty_form_means_everything() {
        let filter = FilterForm::default().parse(&texts()).unwrap();
        assert_eq!(filter, Filter::default());
    }

    #[test]
    fn days_include_the_last_one() {
        let form = FilterForm {
            from: "2026-11-20".into(),
            to: "2026-11-21".into(),
            ..FilterForm::default()
        };
        let filter = form.parse(&texts()).unwrap();
        assert_eq!(
            filter.to.unwrap() - filter.from.unwrap(),
            time::Duration::days(2)
        );
    }

    #[test]
    fn nonsense_is_named() {
        for (form, word) in [
            (
                FilterForm {
                    from: "yesterday".into(),
                    ..FilterForm::default()
                },
                "From: ",
            ),
            (
                FilterForm {
                    speed: "fast".into(),
                    ..FilterForm::default()
                },
                "From km/h: ",
            ),
            (
                FilterForm {
                    speed: "-3".into(),
                    ..FilterForm::default()
                },
                "From km/h: ",
            ),
            (
                FilterForm {
                    state: "lost".into(),
                    ..FilterForm::default()
                },
                "State: ",
            ),
        ] {
            let message = form.parse(&texts()).unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }

    #[test]
    fn addresses_escape_what_was_typed() {
        let form = FilterForm {
            place: "A4 & <b>".into(),
            ..FilterForm::default()
        };
        assert_eq!(
            form.address("before", -2),
            "/violations?before=-2&place=A4%20%26%20%3Cb%3E"
        );
    }
}
