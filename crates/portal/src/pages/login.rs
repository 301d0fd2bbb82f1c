//! Login by name and password, and logout.

use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{Extensions, HeaderMap, StatusCode};
use serde::Deserialize;

use super::layout::{Frame, page};
use crate::App;
use crate::backend::Backend;
use crate::error::foreign_form;
use crate::form::Fields;
use crate::session::COOKIE;
use crate::who::{address, cookie};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
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

pub(crate) async fn form<B: Backend>(_: State<App<B>>) -> Response {
    login_page(StatusCode::OK, "", "")
}

pub(crate) async fn login<B: Backend>(
    State(app): State<App<B>>,
    extensions: Extensions,
    headers: HeaderMap,
    Fields(form): Fields<LoginForm>,
) -> Response {
    let from = address(&extensions);
    match app
        .backend
        .by_password(&form.uid, &form.password, from)
        .await
    {
        Ok((principal, epoch)) => {
            match app.sessions.start(principal.uid(), epoch, Instant::now()) {
                Ok(value) => {
                    // Who logs in anew leaves no session behind.
                    if let Some(old) = cookie(&headers).and_then(|old| app.sessions.end(&old)) {
                        // It has ended, recorded or not; the backend logs the failure.
                        let _ = app.backend.note_session(&old, "session.end", from).await;
                    }
                    let noted = app
                        .backend
                        .note_session(principal.uid(), "session.start", from)
                        .await;
                    if noted.is_err() {
                        app.sessions.end(&value);
                        return login_page(
                            StatusCode::SERVICE_UNAVAILABLE,
                            &form.uid,
                            "The login could not be recorded. Try again in a minute.",
                        );
                    }
                    let cookie =
                        format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict");
                    (AppendHeaders([(SET_COOKIE, cookie)]), Redirect::to("/")).into_response()
                }
                Err(error) => {
                    tracing::error!(%error, "cannot open a session");
                    login_page(
                        StatusCode::SERVICE_UNAVAILABLE,
                        &form.uid,
                        "Try again in a minute.",
                    )
                }
            }
        }
        Err(refused) => login_page(StatusCode::FORBIDDEN, &form.uid, &refused.message),
    }
}

pub(crate) async fn logout<B: Backend>(
    State(app): State<App<B>>,
    extensions: Extensions,
    headers: HeaderMap,
    Fields(form): Fields<LogoutForm>,
) -> Response {
    if let Some(value) = cookie(&headers) {
        if !app.sessions.form_token_matches(&value, &form.token) {
            return foreign_form(Frame::nobody("Form refused"));
        }
        if let Some(uid) = app.sessions.end(&value) {
            // The session has ended, recorded or not; the backend logs the failure.
            let _ = app
                .backend
                .note_session(&uid, "session.end", address(&extensions))
                .await;
        }
    }
    let gone = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    (AppendHeaders([(SET_COOKIE, gone)]), Redirect::to("/login")).into_response()
}

/// Longest user id in characters that a page gives back to be mended.
const MAX_UID: usize = 64;

fn login_page(status: StatusCode, uid: &str, problem: &str) -> Response {
    let frame = Frame::nobody("Log in");
    let uid: String = uid.chars().take(MAX_UID).collect();
    page(
        status,
        &LoginPage {
            frame,
            uid,
            problem: problem.to_owned(),
        },
    )
}
