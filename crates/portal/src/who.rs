//! Who is behind a request.

use std::net::SocketAddr;
use std::time::Instant;

use access::Principal;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use http::header::COOKIE as COOKIE_HEADER;
use http::request::Parts;
use pki::tls::PeerCertificates;
use subtle::ConstantTimeEq as _;

use crate::backend::Backend;
use crate::error::refused_page;
use crate::session::COOKIE;
use crate::{App, Refused};

/// Method by which somebody proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// A certificate in the TLS handshake.
    Certificate,
    Password,
}

/// The person a page is made for; a handler that takes one cannot be reached without it.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) principal: Principal,
    pub(crate) login: Login,
    /// The certificate shown, in DER; empty for a password login.
    pub(crate) certificate: Vec<u8>,
    /// Token that forms on the page must carry.
    pub(crate) token: String,
}

impl Viewer {
    /// Whether a form with this token comes from a page made for this person.
    pub(crate) fn made(&self, token: &str) -> bool {
        self.token.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

/// Why there is no viewer.
pub(crate) enum NoViewer {
    /// Nobody in particular: the login form helps.
    Anonymous,
    /// Somebody, but not let in.
    Refused(Refused),
}

impl IntoResponse for NoViewer {
    fn into_response(self) -> Response {
        match self {
            Self::Anonymous => Redirect::to("/login").into_response(),
            Self::Refused(refused) => refused_page(&refused),
        }
    }
}

impl<B: Backend> FromRequestParts<App<B>> for Viewer {
    type Rejection = NoViewer;

    async fn from_request_parts(parts: &mut Parts, app: &App<B>) -> Result<Self, NoViewer> {
        // A certificate wins over a cookie: a refused one must not be hidden by an old session.
        let from = address(&parts.extensions);
        if let Some(peer) = parts.extensions.get::<PeerCertificates>() {
            let principal = app
                .backend
                .by_certificate(peer, from)
                .await
                .map_err(NoViewer::Refused)?;
            let leaf = peer.0.first();
            let fingerprint = leaf.map(|c| pki::cert::fingerprint_sha256(c));
            let token = app.sessions.form_token(&fingerprint.unwrap_or_default());
            return Ok(Self {
                principal,
                login: Login::Certificate,
                certificate: leaf.map(|c| c.to_vec()).unwrap_or_default(),
                token,
            });
        }
        let cookie = cookie(&parts.headers).ok_or(NoViewer::Anonymous)?;
        let (uid, epoch) = app
            .sessions
            .find(&cookie, Instant::now())
            .ok_or(NoViewer::Anonymous)?;
        match app.backend.by_session(&uid, epoch, from).await {
            Ok(principal) => {
                let token = app.sessions.form_token(&cookie);
                Ok(Self {
                    principal,
                    login: Login::Password,
                    certificate: Vec::new(),
                    token,
                })
            }
            Err(refused) => {
                if !refused.temporary {
                    app.sessions.end(&cookie);
                }
                Err(NoViewer::Refused(refused))
            }
        }
    }
}

/// The value of the session cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(COOKIE_HEADER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == COOKIE).then(|| value.to_owned())
        })
}

/// The peer's address, where the listener told it.
pub(crate) fn address(parts: &http::Extensions) -> Option<std::net::IpAddr> {
    parts
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip())
}
