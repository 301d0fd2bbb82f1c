//! Back-channel logout: tells applications that a login has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use audit::Actor;
use error_report::Report;
use event_catalogue::Recorded as _;
use event_catalogue::service::LoggedOut;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use services::Client;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::foreign::SiteServices;
use super::database::Waiting;
use super::state::random;
use crate::failure::Outcome;

/// Time for one delivery, from the connection to the answer. A slow application holds up only itself.
const PATIENCE: Duration = Duration::from_secs(4);
/// Pause between two looks at what is due.
const EVERY: Duration = Duration::from_secs(1);
/// Bytes of an answer at most.
const MAX_ANSWER: usize = 64 * 1024;
/// Applications at a time. The registry has no more services.
const AT_ONCE: usize = services::MAX_SERVICES;
/// Seconds after which a logout is given up: the login would have ended by itself.
const GIVEN_UP: i64 = oidc::LOGIN_LIFETIME;

/// Why a logout was not delivered.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error("cannot use the logout address {0}")]
    Address(String),
    #[error("cannot use the certificates for the logout address")]
    Trust,
    #[error("cannot use TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot use the site's trust")]
    OwnTrust(#[source] pki::tls::TlsError),
    #[error("cannot reach the application")]
    Connect(#[from] std::io::Error),
    #[error("the application does not speak HTTP")]
    Http(#[from] hyper::Error),
    #[error("the application does not answer in time")]
    Late,
    #[error("the application answers {0}")]
    Status(StatusCode),
    #[error("the logout token cannot be signed")]
    Sign,
}

/// Delivers what waits until a stop is asked for.
pub(crate) async fn deliver(services: SiteServices, stop: CancellationToken) -> Outcome {
    let services = Arc::new(services);
    let mut busy: BTreeMap<String, tokio::task::Id> = BTreeMap::new();
    let mut tasks: JoinSet<String> = JoinSet::new();
    loop {
        tokio::select! {
            () = services.openid.waiting.notified() => {}
            () = tokio::time::sleep(EVERY) => {}
            Some(done) = tasks.join_next() => {
                match done {
                    Ok(client) => drop(busy.remove(&client)),
                    Err(error) => busy.retain(|_, id| *id != error.id()),
                }
                continue;
            }
            // What is under way is sent again after the start.
            () = stop.cancelled() => return Ok(()),
        }
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let clients = match services.openid.logins.due_clients(now).await {
            Ok(clients) => clients,
            Err(error) => {
                tracing::warn!(error = %Report(&error), "cannot read logouts that wait");
                continue;
            }
        };
        for client in clients {
            if busy.contains_key(&client) || tasks.len() >= AT_ONCE {
                continue;
            }
            let (services, name) = (Arc::clone(&services), client.clone());
            let task = async move {
                match services.openid.logins.due(&name, now).await {
                    Ok(waiting) => to_client(&services, &name, waiting).await,
                    Err(error) => {
                        tracing::warn!(error = %Report(&error), "cannot read logouts that wait");
                    }
                }
                name
            };
            busy.insert(client, tasks.spawn(task).id());
        }
    }
}

/// Delivers the logouts of one client, one after the other, until one fails.
async fn to_client(services: &SiteServices, id: &str, waiting: Vec<Waiting>) {
    let found = match services.site.directory.service(id).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = %Report(&error), "cannot read the registry of services");
            return;
        }
    };
    let present = found.and_then(|one| one.service.client().cloned());
    for one in waiting {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        // A service that was removed has its logouts at the address of before.
        let former = || serde_json::from_str::<Client>(&one.registered).ok();
        let client = present.clone().or_else(former);
        let Some(client) = &client.filter(|client| client.logout.is_some()) else {
            // The application has no address, and keeps its own session as long as it likes.
            done(
                services,
                &one,
                false,
                "the application has no logout address",
            )
            .await;
            continue;
        };
        let sent = timeout(PATIENCE, send(services, id, client, &one));
        match sent.await.unwrap_or(Err(Undelivered::Late)) {
            Ok(()) => done(services, &one, true, "").await,
            Err(error) if now.saturating_sub(one.since) >= GIVEN_UP => {
                let why = Report(&error).to_string();
                done(services, &one, false, &why).await;
            }
            Err(error) => {
                tracing::warn!(service = %id, tries = one.tries, error = %Report(&error), "a logout is not delivered");
                let logins = &services.openid.logins;
                if let Err(error) = logins.put_off(id, one.tries, now).await {
                    tracing::error!(error = %Report(&error), "cannot put off a logout");
                }
                return;
            }
        }
    }
}

/// Records the end of a logout, then removes it.
async fn done(services: &SiteServices, one: &Waiting, delivered: bool, why: &str) {
    let logged_out = LoggedOut {
        uid: one.uid.clone(),
        cause: one.cause.clone(),
        delivered,
        tries: u64::try_from(one.tries).unwrap_or_default(),
    };
    let (now, actor) = (OffsetDateTime::now_utc(), Actor::service("portal"));
    let event = logged_out.into_event(now, actor, format!("service/{}", one.client));
    let event = match why {
        "" => event,
        why => event.with_reason(why),
    };
    // A log that cannot be written keeps it waiting; applications take a second logout of the same login.
    if !services.gate.note(event).await {
        return;
    }
    if let Err(error) = services.openid.logins.done(one).await {
        tracing::error!(error = %Report(&error), "cannot remove a logout that was delivered");
    }
}

async fn send(
    services: &SiteServices,
    id: &str,
    client: &Client,
    one: &Waiting,
) -> Result<(), Undelivered> {
    let address = client.logout.clone().unwrap_or_default();
    let bad = || Undelivered::Address(address.clone());
    let uri: Uri = address.parse().map_err(|_| bad())?;
    let authority = uri.authority().ok_or_else(bad)?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let port = authority.port_u16().unwrap_or(443);
    let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
    let tcp = TcpStream::connect((host.as_str(), port)).await?;
    let tls = TlsConnector::from(config(services, client)?);
    let stream = tls.connect(name, tcp).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::new(Bytes::from(format!(
            "logout_token={}",
            token(services, id, one)?
        ))));
    let answer = sender.send_request(request.map_err(|_| bad())?).await?;
    let status = answer.status();
    // Read, so that the application does not see a broken connection; what it says does not matter.
    let _ = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    match status.is_success() {
        true => Ok(()),
        false => Err(Undelivered::Status(status)),
    }
}

/// A logout token. Its letters are those of base64url and points, which a form takes as they are.
fn token(services: &SiteServices, id: &str, one: &Waiting) -> Result<String, Undelivered> {
    let unique = random().map_err(|_| Undelivered::Sign)?;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let issuer = &services.openid.issuer;
    let unique = hex::encode(unique);
    let claims = oidc::logout_token(issuer, id, &one.uid, &one.session, &unique, now);
    let key = services.site.openid_keys.current();
    let key = key.ok_or(Undelivered::Sign)?;
    key.sign("logout+jwt", &claims)
        .map_err(|_| Undelivered::Sign)
}

fn config(services: &SiteServices, client: &Client) -> Result<Arc<ClientConfig>, Undelivered> {
    let Some(pem) = &client.logout_trust else {
        let trust = services.site.registry.trust();
        return pki::tls::client_config(&trust, None, &["http/1.1"]).map_err(Undelivered::OwnTrust);
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| Undelivered::Trust)?;
        roots.add(certificate).map_err(|_| Undelivered::Trust)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Undelivered::Tls)?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}
