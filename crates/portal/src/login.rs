//! Login by name and password, and logout.

use std::time::Instant;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{Extensions, HeaderMap, StatusCode};
use serde::Deserialize;

use crate::error::foreign_form;
use crate::form::Fields;
use crate::frame::{Frame, page};
use crate::language::Texts;
use crate::session::COOKIE;
use crate::shell::Shell;
use crate::viewer::{address, cookie};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    t: Texts,
    uid: String,
    problem: String,
}

#[derive(Deserialize)]
pub(crate) struct LoginForm {
    uid: String,
    password: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct LogoutForm {
    token: String,
}

pub(crate) async fn form(
    State(shell): State<Shell>,
    Extension(texts): Extension<Texts>,
) -> Response {
    login_page(&shell, &texts, StatusCode::OK, "", "")
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
    let again = |status, problem: &str| login_page(&shell, &texts, status, uid, problem);
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
    (AppendHeaders([(SET_COOKIE, cookie)]), Redirect::to("/")).into_response()
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
    uid: &str,
    problem: &str,
) -> Response {
    let title = texts.say("login-title").to_string();
    let languages = shell.languages().list();
    let frame = Frame::nobody(texts, &title).with_languages(languages, "/login");
    let content = LoginPage {
        t: texts.clone(),
        uid: uid.chars().take(MAX_UID).collect(),
        problem: problem.to_owned(),
    };
    page(status, frame, &content)
}
