//! Pages of the registry in a portal whose registry is on another host: the portal passes requests on, and the registry's host
//! makes the pages.
//!
//! Only people with a certificate get there. The portal has seen the handshake, so the registry's host takes its word for that;
//! who the person is and what they may do it decides itself. What people sign carries their own signature.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use error_report::Report;
use http::header::{
    ACCEPT_LANGUAGE, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use peering::Peer;
use pki::tls::PeerCertificates;
use portal::{App, Application, Outline, PageError, Shell, TextFile, Tile, Viewer};
use rustls::pki_types::CertificateDer;

/// The person's certificates in base64, the person's own first, with commas between.
const CHAIN: &str = "cordon-chain";
/// Address from which the person asks.
const FROM: &str = "cordon-from";
/// Headers of a browser that the pages read.
const PASSED: [HeaderName; 4] = [
    ACCEPT_LANGUAGE,
    CONTENT_TYPE,
    COOKIE,
    HeaderName::from_static("sec-fetch-site"),
];
/// Bytes of a form at most: certification requests and profiles.
const LONGEST_FORM: usize = 1 << 20;
/// Bytes of a page at most.
const LONGEST_PAGE: usize = 16 << 20;

/// An application whose pages the registry's host makes.
pub(crate) struct Forwarded {
    pub(crate) outline: Outline,
    pub(crate) peer: Arc<Peer>,
}

impl Application for Forwarded {
    fn tile(&self) -> Tile {
        self.outline.tile
    }

    fn is_offered_to(&self, viewer: &Viewer) -> bool {
        (self.outline.is_offered_to)(viewer)
    }

    fn texts(&self) -> &'static [TextFile] {
        self.outline.texts
    }

    fn router(&self, shell: &Shell) -> Router {
        let path = self.outline.tile.path;
        Router::new()
            .route(path, any(pass_on))
            .route(&format!("{path}/{{*rest}}"), any(pass_on))
            .with_state(App {
                shell: shell.clone(),
                service: Arc::clone(&self.peer),
            })
    }
}

async fn pass_on(viewer: Viewer, State(app): State<App<Peer>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some(chain) = parts.extensions.get::<PeerCertificates>() else {
        let reasons = vec!["certificates are asked for with a certificate".to_owned()];
        let policies = Vec::new();
        return viewer.error(PageError::Denied { reasons, policies });
    };
    let Ok(body) = to_bytes(body, LONGEST_FORM).await else {
        return viewer.error(PageError::Invalid("the form is too long".to_owned()));
    };
    let mut forwarded = http::Request::new(body.to_vec());
    *forwarded.method_mut() = parts.method;
    // The path alone: the host is the peer's business.
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    *forwarded.uri_mut() = path.parse().unwrap_or_default();
    let headers = forwarded.headers_mut();
    for name in PASSED {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(HOST, HeaderValue::from_static("registry"));
    let from = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    if let Err(error) = name_person(headers, chain, from.map(|from| from.0.ip())) {
        return viewer.error(PageError::Failed(error.to_string()));
    }
    match app.service.pass_on(forwarded, LONGEST_PAGE).await {
        Ok(answer) => taken_back(answer),
        Err(error) => {
            tracing::warn!(error = %Report(&error), "a page of the registry's host is not to be had");
            let message = "the host with the registry does not answer now".to_owned();
            viewer.error(PageError::Failed(message))
        }
    }
}

/// The answer without what concerns the connection between the hosts.
fn taken_back(answer: http::Response<hyper::body::Bytes>) -> Response {
    let (mut head, body) = answer.into_parts();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.version = http::Version::HTTP_11;
    Response::from_parts(head, Body::from(body))
}

fn name_person(
    headers: &mut HeaderMap,
    chain: &PeerCertificates,
    from: Option<IpAddr>,
) -> Result<(), http::header::InvalidHeaderValue> {
    let encoded: Vec<String> = chain.0.iter().map(|der| STANDARD.encode(der)).collect();
    headers.insert(CHAIN, HeaderValue::from_str(&encoded.join(","))?);
    if let Some(from) = from {
        headers.insert(FROM, HeaderValue::from_str(&from.to_string())?);
    }
    Ok(())
}

/// Puts the person of a request that a portal passed on in the place of that portal.
pub(crate) async fn of_portal(mut request: Request, next: Next) -> Response {
    let Some((chain, from)) = person(request.headers()) else {
        return (StatusCode::BAD_REQUEST, "no person is named\n").into_response();
    };
    for name in [CHAIN, FROM] {
        request.headers_mut().remove(name);
    }
    let extensions = request.extensions_mut();
    extensions.insert(chain);
    extensions.remove::<ConnectInfo<SocketAddr>>();
    if let Some(from) = from {
        extensions.insert(ConnectInfo(SocketAddr::new(from, 0)));
    }
    next.run(request).await
}

/// The person that the headers name.
fn person(headers: &HeaderMap) -> Option<(PeerCertificates, Option<IpAddr>)> {
    let chain = headers.get(CHAIN)?.to_str().ok()?;
    let ders: Result<Vec<_>, _> = chain.split(',').map(|der| STANDARD.decode(der)).collect();
    let ders = ders.ok()?.into_iter().map(CertificateDer::from).collect();
    let from = match headers.get(FROM) {
        Some(from) => Some(from.to_str().ok()?.parse().ok()?),
        None => None,
    };
    Some((PeerCertificates(Arc::new(ders)), from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn person_is_read_as_named_and_nothing_else_is() {
        let chain = PeerCertificates(Arc::new(vec![vec![1, 2].into(), vec![3].into()]));
        let from: IpAddr = "2001:db8::7".parse().unwrap();
        let mut headers = HeaderMap::new();
        name_person(&mut headers, &chain, Some(from)).unwrap();
        let (read, at) = person(&headers).unwrap();
        assert_eq!((read.0, at), (chain.0, Some(from)));
        for (name, wrong) in [(CHAIN, "no base64!"), (FROM, "nowhere")] {
            let mut changed = headers.clone();
            changed.insert(name, HeaderValue::from_static(wrong));
            assert!(person(&changed).is_none(), "{name}");
        }
        headers.remove(CHAIN);
        assert!(person(&headers).is_none());
    }
}
