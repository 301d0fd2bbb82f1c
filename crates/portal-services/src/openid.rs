//! The endpoints of the OpenID Connect provider.
//!
//! They are thin: [`oidc`] says what a request means, [`OpenId`] decides and keeps what there is to keep.

use access::Principal;
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::{Extension, Json};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode, Uri};
use oidc::{
    AuthorizationRequest, AuthorizeError, ErrorResponse, LoginKind, Need, ParameterError,
    Parameters, TokenError,
};
use portal::{
    App, Fields, Login, NoViewer, PageError, Proof, Texts, Viewer, continue_to, unreadable,
};
use serde::Deserialize;
use serde_json::{Value, json};

pub const METADATA: &str = "/.well-known/openid-configuration";
pub const AUTHORIZE: &str = "/openid/authorize";
pub const TOKEN: &str = "/openid/token";
pub const USERINFO: &str = "/openid/userinfo";
pub const KEYS: &str = "/openid/keys";
pub const LOGOUT: &str = "/openid/logout";

/// A login in the portal, from which an application gets its own.
#[derive(Clone, Debug)]
pub struct PortalLogin {
    pub principal: Principal,
    /// What admits the person again.
    pub proof: Proof,
    pub kind: LoginKind,
    /// Time of the proof, in seconds since the Unix epoch.
    pub since: i64,
    /// The session in the portal.
    pub session: String,
}

/// Why no code is issued.
#[derive(Debug)]
pub enum NoCode {
    /// The person gets a page.
    Page(PageError),
    /// The application hears of it.
    Redirect(ErrorResponse),
}

/// The provider behind the endpoints.
pub trait OpenId: Send + Sync + 'static {
    fn issuer(&self) -> &str;

    /// The discovery document.
    fn metadata(&self) -> Value;

    /// The published keys (JWKS).
    ///
    /// # Errors
    /// [`PageError::Failed`].
    fn keys(&self) -> Result<Value, PageError>;

    /// Reads an authorization request of a registered application.
    fn examine(
        &self,
        parameters: &Parameters,
    ) -> impl Future<Output = Result<AuthorizationRequest, AuthorizeError>> + Send;

    /// Decides whether the person may log in to the application, records that, and issues a code.
    fn authorize(
        &self,
        login: PortalLogin,
        request: AuthorizationRequest,
    ) -> impl Future<Output = Result<String, NoCode>> + Send;

    /// Exchanges a code for tokens.
    fn token(
        &self,
        authorization: Option<&str>,
        form: &Parameters,
    ) -> impl Future<Output = Result<Value, TokenError>> + Send;

    /// Claims of the person behind an access token.
    fn userinfo(&self, token: &str) -> impl Future<Output = Option<Value>> + Send;

    /// Ends all logins of a session in the portal. Gives how many there were.
    fn log_out(&self, login: PortalLogin) -> impl Future<Output = Result<usize, PageError>> + Send;
}

#[derive(Template)]
#[template(path = "logout.html")]
struct LogoutView {
    t: Texts,
    token: String,
    /// Logins that ended; none before the person confirmed.
    ended: Option<usize>,
}

fn portal_login(viewer: &Viewer) -> PortalLogin {
    PortalLogin {
        principal: viewer.principal().clone(),
        proof: viewer.proof().clone(),
        kind: match viewer.login() {
            Login::Certificate => LoginKind::Certificate,
            Login::Password => LoginKind::Password,
        },
        since: viewer.since(),
        session: viewer.session().to_owned(),
    }
}

pub(crate) async fn metadata<S: OpenId>(State(app): State<App<S>>) -> Response {
    public(app.service.metadata())
}

pub(crate) async fn keys<S: OpenId>(State(app): State<App<S>>) -> Response {
    match app.service.keys() {
        Ok(keys) => public(keys),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// What applications may keep for some minutes: as long as a rollover of keys is announced before.
fn public(value: Value) -> Response {
    ([(CACHE_CONTROL, "public, max-age=300")], Json(value)).into_response()
}

pub(crate) async fn authorize<S: OpenId>(
    State(app): State<App<S>>,
    Extension(texts): Extension<Texts>,
    viewer: Result<Viewer, NoViewer>,
    headers: HeaderMap,
    uri: Uri,
    RawQuery(query): RawQuery,
) -> Response {
    let refuse = |reason: &str| unreadable(&texts, StatusCode::BAD_REQUEST, reason);
    let parameters = match Parameters::parse(&query.unwrap_or_default()) {
        Ok(parameters) => parameters,
        Err(error) => return refuse(&error.to_string()),
    };
    let issuer = app.service.issuer();
    let back = |error: ErrorResponse| Redirect::to(&error.location(issuer)).into_response();
    let request = match app.service.examine(&parameters).await {
        Ok(request) => request,
        Err(AuthorizeError::Page(reason)) => return refuse(reason),
        Err(AuthorizeError::Redirect(error)) => return back(error),
    };
    let here = uri.path_and_query().map_or("/", |here| here.as_str());
    let log_in = || Redirect::to(&portal::login_address(here)).into_response();
    let viewer = match viewer {
        Ok(viewer) => viewer,
        Err(NoViewer::Anonymous) if request.silent => {
            return back(request.refused("login_required", "nobody is logged in"));
        }
        // The browser keeps the session's cookie (SameSite=Strict) from a request that another site began. A page of the
        // portal asks again.
        Err(NoViewer::Anonymous) if began_elsewhere(&headers) => {
            return continue_to(&app.shell, &texts, here);
        }
        Err(NoViewer::Anonymous) => return log_in(),
        Err(NoViewer::Refused(..)) if request.silent => {
            return back(request.refused("access_denied", "the person is not let in"));
        }
        Err(refused) => return refused.into_response(),
    };
    let login = portal_login(&viewer);
    let age = viewer.age().as_secs();
    match request.check(login.kind, age) {
        Ok(()) => {}
        Err(Need::Login) => return log_in(),
        Err(Need::Refused(error)) => return back(error),
    }
    let answer = request.clone();
    match app.service.authorize(login, request).await {
        Ok(code) => Redirect::to(&answer.answer(issuer, &code)).into_response(),
        Err(NoCode::Redirect(error)) => back(error),
        Err(NoCode::Page(PageError::Denied { .. })) if answer.silent => {
            back(answer.refused("access_denied", "the access rules refuse"))
        }
        Err(NoCode::Page(error)) => viewer.error(error),
    }
}

fn began_elsewhere(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site == "cross-site" || site == "same-site")
}

pub(crate) async fn token<S: OpenId>(
    State(app): State<App<S>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let form = form(&headers, &body);
    let authorization = headers.get(AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap_or_default());
    let answer = match form {
        Ok(form) => app.service.token(authorization, &form).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(tokens) => Json(tokens).into_response(),
        Err(error) => {
            let answer = json!({ "error": error.code(), "error_description": error.to_string() });
            match error {
                TokenError::InvalidClient(_) => {
                    let ask = [(WWW_AUTHENTICATE, "Basic realm=\"cordon\"")];
                    (StatusCode::UNAUTHORIZED, ask, Json(answer)).into_response()
                }
                _ => (StatusCode::BAD_REQUEST, Json(answer)).into_response(),
            }
        }
    }
}

fn form(headers: &HeaderMap, body: &str) -> Result<Parameters, TokenError> {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(TokenError::InvalidRequest("the body is not a form"));
    }
    Parameters::parse(body).map_err(|error| match error {
        ParameterError::TooLong => TokenError::InvalidRequest("the request is too long"),
        ParameterError::Twice => TokenError::InvalidRequest("a parameter is given twice"),
    })
}

pub(crate) async fn userinfo<S: OpenId>(State(app): State<App<S>>, headers: HeaderMap) -> Response {
    let header = headers.get(AUTHORIZATION);
    let header = header.and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let claims = match token {
        Some((_, token)) => app.service.userinfo(token.trim()).await,
        None => None,
    };
    match claims {
        Some(claims) => Json(claims).into_response(),
        None => {
            let ask = [(WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")];
            (StatusCode::UNAUTHORIZED, ask).into_response()
        }
    }
}

/// Asks before it logs out: any page can lead a browser here.
pub(crate) async fn ask_logout<S: OpenId>(State(_): State<App<S>>, viewer: Viewer) -> Response {
    logout_page(&viewer, None)
}

#[derive(Deserialize)]
pub(crate) struct LogoutForm {
    #[serde(default)]
    token: String,
}

pub(crate) async fn log_out<S: OpenId>(
    State(app): State<App<S>>,
    viewer: Viewer,
    Fields(form): Fields<LogoutForm>,
) -> Response {
    if !viewer.made(&form.token) {
        return viewer.foreign_form();
    }
    match app.service.log_out(portal_login(&viewer)).await {
        Ok(ended) => logout_page(&viewer, Some(ended)),
        Err(error) => viewer.error(error),
    }
}

fn logout_page(viewer: &Viewer, ended: Option<usize>) -> Response {
    let t = viewer.texts().clone();
    let title = t.say("services-logout-title").to_string();
    let token = viewer.token().to_owned();
    let view = LogoutView { t, token, ended };
    viewer.page(StatusCode::OK, &title, crate::page::PATH, &view)
}
