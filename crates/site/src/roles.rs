//! The roles of a site, and what connects them.
//!
//! Each role has what it needs of the others as a value: the portal has a [`Gate`](crate::gate::Gate), the centre has the
//! site's [`TrustState`](crate::trust_state::TrustState).

pub(crate) mod centre;
pub(crate) mod directory;
pub(crate) mod host;
pub(crate) mod hosts;
pub(crate) mod portal;
pub(crate) mod registry;
pub(crate) mod registry_host;

use std::sync::Arc;
use std::time::Duration;

use pki::path::{Purpose, TrustStore};
use pki::tls::{ClientAuth, ServerTls};
use service_kit::Health;
use time::OffsetDateTime;
use tower_http::timeout::TimeoutLayer;

use crate::credentials::Credentials;
use crate::failure::{OrHint as _, Outcome};
use crate::parts::Site;

/// Longest time for one page or answer; uploads have their own limit per silence.
const REQUEST: Duration = Duration::from_secs(60);
/// Interval at which roles record counted refusals and remove what has ended.
const HOUSEKEEPING: Duration = Duration::from_mins(5);

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(http::StatusCode::REQUEST_TIMEOUT, REQUEST)
}

/// For people with browsers and address books: they come with a certificate or with a password.
fn tls_for_people(
    credentials: &Credentials,
    trust: TrustStore,
    alpn: &[&str],
) -> Outcome<Arc<rustls::ServerConfig>> {
    ServerTls::new(credentials.server())
        .with_client_auth(ClientAuth::Optional, trust, Purpose::ClientUser)
        .with_alpn(alpn)
        .build()
        .or_hint("cannot set up TLS", "check keys/server.pem")
}

/// What a person has to know of a whole site, whose roles may run or not.
pub(crate) async fn health(site: &Site, now: OffsetDateTime) -> Health {
    let mut health = host::health(&site.clock, &site.accelerator, now);
    let (registry, credentials) = (&site.registry, &site.credentials);
    health.extend(registry::health(registry, credentials, &site.config, now));
    health.extend(centre::health(&site.centre, &site.disk(), now).await);
    health
}
