//! Login by name and password, and logout.

use std::time::Instant;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use crate::error::foreign_form;
use crate::form::Fields;
use crate::frame::{Frame, page};
use crate::language::Texts;
use crate::language_choice::is_own;
use crate::session::COOKIE;
use crate::shell::Shell;
use crate::viewer::{address, cookie};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    t: Texts,
    uid: String,
    problem: String,
    /// Address to go to afterwards; empty for the home page.
    next: String,
}

#[derive(Template)]
#[template(path = "continue.html")]
struct ContinuePage {
    t: Texts,
    address: String,
}

/// Where to go after the login: an address of this portal.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Next {
    next: String,
}

/// The address of the login form that leads to `next` afterwards.
pub fn login_address(next: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("next", next);
    format!("/login?{}", query.finish())
}

/// A page from which the browser goes on to `address` of this portal by itself.
///
/// A redirect would not do: it belongs to the request before, which another site may have begun, or a form, whose redirects our
/// policy keeps here.
pub fn continue_to(shell: &Shell, texts: &Texts, address: &str) -> Response {
    let address = own(address);
    let title = texts.say("continue-title").to_string();
    let languages = shell.languages().list();
    let frame = Frame::nobody(texts, &title).with_languages(languages, "/");
    let content = ContinuePage {
        t: texts.clone(),
        address: address.to_owned(),
    };
    let mut response = page(StatusCode::OK, frame, &content);
    // An own address has printable characters of ASCII only.
    if let Ok(value) = HeaderValue::from_str(&format!("0; url={address}")) {
        response.headers_mut().insert("refresh", value);
    }
    response
}

fn own(address: &str) -> &str {
    match is_own(address) {
        true => address,
        false => "/",
    }
}

#[derive(Deserialize)]
pub(crate) struct LoginForm {
    uid: String,
    password: String,
    #[serde(default)]
    next: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct LogoutForm {
    token: String,
}

pub(crate) async fn form(
    State(shell): State<Shell>,
    Extension(texts): Extension<Texts>,
    next: Result<Query<Next>, QueryRejection>,
) -> Response {
    let next = next.map(|Query(next)| next.next).unwrap_or_default();
    login_page(&shell, &texts, StatusCode::OK, ("", &next), "")
}

pub(crate) async fn login(
    State(shell): State<Shell>,
    Extension(texts): Extension<Texts>,
    extensions: Extensions,
    headers: HeaderMap,
    Fields(form): Fields<LoginForm>,
) -> Response {
    let from = address(&extensions);
    let (uid, password) = (&form.uid, &form.password);
    let back = (uid.as_str(), form.next.as_str());
    let again = |status, problem: &str| login_page(&shell, &texts, status, back, problem);
    let found = shell.identity().by_password(uid, password, from).await;
    let (principal, epoch) = match found {
        Ok(found) => found,
        Err(refused) => return again(StatusCode::FORBIDDEN, &refused.message),
    };
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let sessions = shell.sessions();
    let value = match sessions.start(principal.uid(), epoch, Instant::now()) {
        Ok(value) => value,
        Err(error) => {
            tracing::error!(%error, "cannot open a session");
            return again(unavailable, &texts.say("login-later").to_string());
        }
    };
    // A new login ends the session before.
    if let Some(old) = cookie(&headers).and_then(|old| sessions.end(&old)) {
        shell.identity().session_ends(&old, from).await;
    }
    let recorded = shell.identity().session_begins(principal.uid(), from).await;
    if recorded.is_err() {
        sessions.end(&value);
        return again(unavailable, &texts.say("login-unrecorded").to_string());
    }
    let cookie = format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict");
    let next = match own(&form.next) {
        "/" => Redirect::to("/").into_response(),
        next => continue_to(&shell, &texts, next),
    };
    (AppendHeaders([(SET_COOKIE, cookie)]), next).into_response()
}

pub(crate) async fn logout(
    State(shell): State<Shell>,
    Extension(texts): Extension<Texts>,
    extensions: Extensions,
    headers: HeaderMap,
    Fields(form): Fields<LogoutForm>,
) -> Response {
    if let Some(value) = cookie(&headers) {
        if !shell.sessions().form_token_matches(&value, &form.token) {
            return foreign_form(&texts);
        }
        if let Some(uid) = shell.sessions().end(&value) {
            let from = address(&extensions);
            shell.identity().session_ends(&uid, from).await;
        }
    }
    let gone = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    (AppendHeaders([(SET_COOKIE, gone)]), Redirect::to("/login")).into_response()
}

/// Longest user id in characters that a page gives back to be mended.
const MAX_UID: usize = 64;

fn login_page(
    shell: &Shell,
    texts: &Texts,
    status: StatusCode,
    (uid, next): (&str, &str),
    problem: &str,
) -> Response {
    let title = texts.say("login-title").to_string();
    let languages = shell.languages().list();
    let frame = Frame::nobody(texts, &title).with_languages(languages, "/login");
    let content = LoginPage {
        t: texts.clone(),
        uid: uid.chars().take(MAX_UID).collect(),
        problem: problem.to_owned(),
        next: match own(next) {
            "/" => String::new(),
            next => next.to_owned(),
        },
    };
    page(status, frame, &content)
}
