//! Who is behind a request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use access::Principal;
use askama::Template;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::COOKIE as COOKIE_HEADER;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use listener::Handshake;
use pki::tls::PeerCertificates;
use subtle::ConstantTimeEq as _;

use crate::error::{Failed, refused_page};
use crate::format;
use crate::frame::{Frame, MenuEntry, Person, page};
use crate::identity::{Epoch, PageError, Refused};
use crate::language::Texts;
use crate::session::COOKIE;
use crate::shell::{App, Shell};

/// Longest time for which a TLS session can be resumed (`pki::tls` takes no older ticket): so old may the proof of a key be
/// on a connection that resumed one.
const RESUMED: Duration = Duration::from_hours(12);

/// Method by which somebody proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// A certificate in the TLS handshake.
    Certificate,
    Password,
}

/// What a person showed, for a caller that admits them again.
#[derive(Clone, Debug)]
pub enum Proof {
    Certificate(PeerCertificates),
    /// A password session of this epoch.
    Password(Epoch),
}

/// The person a page is made for. A handler that takes one cannot be reached without it.
#[derive(Clone)]
pub struct Viewer {
    pub(crate) principal: Principal,
    pub(crate) login: Login,
    proof: Proof,
    session: String,
    since: SystemTime,
    /// Token that forms on the page must carry.
    pub(crate) token: String,
    /// Path of the page that is read; `/` for a form that was posted.
    pub(crate) address: String,
    texts: Texts,
    shell: Shell,
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Viewer");
        debug.field("principal", &self.principal);
        debug.field("login", &self.login).finish_non_exhaustive()
    }
}

impl Viewer {
    /// Method by which the person proved who they are.
    pub fn login(&self) -> Login {
        self.login
    }

    /// The certificate shown, in DER; empty for a password login.
    pub fn certificate(&self) -> &[u8] {
        match &self.proof {
            Proof::Certificate(peer) => peer.0.first().map_or(&[], |leaf| leaf),
            Proof::Password(_) => &[],
        }
    }

    /// What the person showed.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Name of the person's session for applications; it opens nothing. A certificate has one session as long as the
    /// process runs.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Time of the login, in seconds since the Unix epoch: the earliest at which a key may have been proved.
    pub fn since(&self) -> i64 {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    /// Age of the login.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }

    /// Token that forms for this person must carry.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Whether a form with this token comes from a page made for this person.
    pub fn made(&self, token: &str) -> bool {
        self.token.as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// The texts in the person's language.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    pub(crate) fn shell(&self) -> &Shell {
        &self.shell
    }

    /// The person.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// A page of the application at `current` in the frame, with this title.
    pub fn page(
        &self,
        status: StatusCode,
        title: &str,
        current: &str,
        content: &impl Template,
    ) -> Response {
        page(status, self.frame(status, title, current), content)
    }

    /// The page for a request that came to nothing.
    pub fn error(&self, error: PageError) -> Response {
        self.failed(Failed::of(error))
    }

    /// The page for an address that leads nowhere.
    pub fn missing(&self) -> Response {
        self.error(PageError::NotFound)
    }

    /// The page for a form that was not made for this person.
    pub fn foreign_form(&self) -> Response {
        self.failed(Failed::foreign_form())
    }

    fn failed(&self, failed: Failed) -> Response {
        let title = failed.title(&self.texts);
        let frame = self.frame(failed.status, &title, "");
        failed.page(frame)
    }

    /// A frame whose choice of language leads back to the page, or home from a page for what did not work.
    fn frame(&self, status: StatusCode, title: &str, current: &str) -> Frame {
        let t = &self.texts;
        let principal = &self.principal;
        let person = Person {
            name: principal.name().to_owned(),
            organisation: principal.organisation().to_owned(),
            clearance: format::level(t, principal.clearance().level()),
            by_password: self.login == Login::Password,
            token: self.token.clone(),
        };
        let menu = self.shell.offered(self).map(|application| {
            let tile = application.tile();
            MenuEntry {
                path: tile.path,
                title: t.say(tile.title).to_string(),
                current: tile.path == current,
            }
        });
        let back = match status == StatusCode::OK {
            true => &self.address,
            false => "/",
        };
        Frame::nobody(t, title)
            .with_languages(self.shell.languages().list(), back)
            .for_person(person, menu.collect(), current)
    }

    async fn of(parts: &Parts, shell: &Shell) -> Result<Self, NoViewer> {
        let texts: Option<&Texts> = parts.extensions.get();
        let texts = texts.cloned();
        let texts = texts.unwrap_or_else(|| shell.languages().choose(&parts.headers));
        let refused = |refused| NoViewer::Refused(texts.clone(), refused);
        // A certificate wins over a cookie: a refused one must not be hidden by an old session.
        let from = address(&parts.extensions);
        let (principal, login, proof, token, session, since);
        if let Some(peer) = parts.extensions.get::<PeerCertificates>() {
            let found = shell.identity().by_certificate(peer, from).await;
            principal = found.map_err(refused)?;
            let leaf = peer.0.first();
            let fingerprint = leaf.map(|c| pki::cert::fingerprint_sha256(c));
            let fingerprint = fingerprint.unwrap_or_default();
            token = shell.sessions().form_token(&fingerprint);
            session = shell.sessions().of_certificate(&fingerprint);
            since = proved(&parts.extensions, SystemTime::now());
            proof = Proof::Certificate(peer.clone());
            login = Login::Certificate;
        } else {
            let cookie = cookie(&parts.headers).ok_or(NoViewer::Anonymous)?;
            let (found, epoch) = of_session(shell, &cookie, from).await?;
            principal = found.map_err(refused)?;
            token = shell.sessions().form_token(&cookie);
            let named = shell.sessions().named(&cookie);
            (session, since) = named.ok_or(NoViewer::Anonymous)?;
            proof = Proof::Password(epoch);
            login = Login::Password;
        }
        let address = match parts.method == Method::GET {
            true => parts.uri.path().to_owned(),
            false => "/".to_owned(),
        };
        Ok(Self {
            principal,
            login,
            proof,
            session,
            since,
            token,
            address,
            texts,
            shell: shell.clone(),
        })
    }
}

/// The earliest time at which the connection's client may have proved its key.
fn proved(extensions: &http::Extensions, now: SystemTime) -> SystemTime {
    let earliest = |at: SystemTime| at.checked_sub(RESUMED).unwrap_or(UNIX_EPOCH);
    match extensions.get::<Handshake>() {
        Some(Handshake { at, resumed: false }) => *at,
        Some(Handshake { at, resumed: true }) => earliest(*at),
        None => earliest(now),
    }
}

/// The holder of a password session, and its epoch.
async fn of_session(
    shell: &Shell,
    cookie: &str,
    from: Option<IpAddr>,
) -> Result<(Result<Principal, Refused>, Epoch), NoViewer> {
    let session = shell.sessions().find(cookie, Instant::now());
    let (uid, epoch) = session.ok_or(NoViewer::Anonymous)?;
    let found = shell.identity().by_session(&uid, epoch, from).await;
    if found.as_ref().is_err_and(|refused| !refused.temporary) {
        shell.sessions().end(cookie);
    }
    Ok((found, epoch))
}

/// Why there is no viewer.
pub enum NoViewer {
    /// Nobody in particular: the login form helps.
    Anonymous,
    /// Somebody, but not let in.
    Refused(Texts, Refused),
}

impl IntoResponse for NoViewer {
    fn into_response(self) -> Response {
        match self {
            Self::Anonymous => Redirect::to("/login").into_response(),
            Self::Refused(texts, refused) => refused_page(&texts, &refused),
        }
    }
}

impl FromRequestParts<Shell> for Viewer {
    type Rejection = NoViewer;

    async fn from_request_parts(parts: &mut Parts, shell: &Shell) -> Result<Self, NoViewer> {
        Self::of(parts, shell).await
    }
}

impl<S: Send + Sync + 'static> FromRequestParts<App<S>> for Viewer {
    type Rejection = NoViewer;

    async fn from_request_parts(parts: &mut Parts, app: &App<S>) -> Result<Self, NoViewer> {
        Self::of(parts, &app.shell).await
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
pub(crate) fn address(parts: &http::Extensions) -> Option<IpAddr> {
    parts
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_handshake_counts_as_old() {
        let now = UNIX_EPOCH + Duration::from_hours(100);
        let of = |handshake: Option<Handshake>| {
            let mut extensions = http::Extensions::new();
            handshake.map(|handshake| extensions.insert(handshake));
            now.duration_since(proved(&extensions, now)).unwrap()
        };
        let handshake = |resumed| Some(Handshake { at: now, resumed });
        assert_eq!(of(handshake(false)), Duration::ZERO);
        assert_eq!(of(handshake(true)), RESUMED);
        assert_eq!(of(None), RESUMED);
    }
}
