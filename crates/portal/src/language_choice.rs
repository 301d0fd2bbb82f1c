//! The language of a request, and the form that chooses another.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use http::StatusCode;
use http::header::SET_COOKIE;
use serde::Deserialize;

use crate::error::unreadable;
use crate::form::Fields;
use crate::language::{LANGUAGE_COOKIE, Texts};
use crate::shell::Shell;

/// Seconds that a browser keeps the choice: a year.
const KEPT: u32 = 365 * 24 * 3600;
/// Longest address in bytes to which somebody goes back after the choice.
const MAX_ADDRESS: usize = 2048;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Choice {
    language: String,
    /// Address of the page with the form.
    back: String,
}

/// Gives each request the texts of its language.
pub(crate) async fn of_request(
    State(shell): State<Shell>,
    mut request: Request,
    next: Next,
) -> Response {
    let texts = shell.languages().choose(request.headers());
    request.extensions_mut().insert(texts);
    next.run(request).await
}

/// Takes the language that somebody chose. It changes what the browser keeps and nothing here, so it wants no token.
pub(crate) async fn choose(
    State(shell): State<Shell>,
    texts: axum::Extension<Texts>,
    Fields(choice): Fields<Choice>,
) -> Response {
    let Some(chosen) = shell.languages().named(&choice.language) else {
        let message = texts
            .say("language-unknown")
            .with("language", &choice.language);
        return unreadable(&texts, StatusCode::BAD_REQUEST, &message.to_string());
    };
    let cookie = format!(
        "{LANGUAGE_COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={KEPT}",
        chosen.code()
    );
    let back = match is_own(&choice.back) {
        true => choice.back.as_str(),
        false => "/",
    };
    (AppendHeaders([(SET_COOKIE, cookie)]), Redirect::to(back)).into_response()
}

/// Whether an address leads to a page of this portal.
pub(crate) fn is_own(address: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'\\';
    let rest = address.strip_prefix('/');
    address.len() <= MAX_ADDRESS
        && rest.is_some_and(|rest| !rest.starts_with('/') && rest.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_leads_back_to_own_pages_only() {
        for own in ["/", "/violations?plate=KR%201", "/audit?before=4"] {
            assert!(is_own(own), "{own}");
        }
        let long = format!("/{}", "x".repeat(MAX_ADDRESS));
        for foreign in [
            "",
            "//example.org",
            "/\\example.org",
            "https://example.org",
            "violations",
            "/a\r\nSet-Cookie: b=c",
            "/a b",
            &long,
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
