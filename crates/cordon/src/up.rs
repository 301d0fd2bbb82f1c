//! All roles of a site on their listeners, until somebody says stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use listener::{DEVICES, Listener, PEOPLE};
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::tls::{ClientAuth, ServerTls};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

use crate::config::Messages;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::gate::{self, Gate};

use crate::notices::{self, Notices, Relay};
use crate::site::Site;
use crate::uninterrupted::Uninterrupted;
use crate::{control, databases, last_checkpoint, metrics, portal_services, renewal, rights};

/// Longest time for one page or answer; uploads have their own limit per silence.
const REQUEST: Duration = Duration::from_secs(60);
/// How often expired uploads are swept.
const HOUSEKEEPING: Duration = Duration::from_secs(300);

pub(crate) struct Running {
    pub(crate) portal: SocketAddr,
    pub(crate) intake: SocketAddr,
    pub(crate) enrolment: SocketAddr,
    pub(crate) metrics: SocketAddr,
    tasks: JoinSet<Outcome>,
    stop: CancellationToken,
}

impl Running {
    /// Binds every listener and starts serving.
    pub(crate) async fn start(site: &Site) -> Outcome<Self> {
        let stop = CancellationToken::new();
        let listen = &site.config.listen;
        let portal = bind("listen.portal", listen.portal).await?;
        let intake = bind("listen.intake", listen.intake).await?;
        let enrolment = bind("listen.enrolment", listen.enrolment).await?;
        let public = match listen.public {
            Some(address) => Some(bind("listen.public", address).await?),
            None => None,
        };
        let metrics_socket = bind("listen.metrics", listen.metrics).await?;
        let address = |socket: &TcpListener, setting| {
            socket
                .local_addr()
                .or_hint(setting, "check the network settings")
        };
        let addresses = (
            address(&portal, "listen.portal")?,
            address(&intake, "listen.intake")?,
            address(&enrolment, "listen.enrolment")?,
            address(&metrics_socket, "listen.metrics")?,
        );
        let gate = Arc::new(Gate::new(site.clone()));
        let relay = Relay::open(&site.config.mail)?;
        let told = notices::Metrics::default();
        let bounds = listener::bounds_for_this_process();
        let counters = listener::Metrics::default();
        let mut listeners = vec![
            Listener {
                name: "portal",
                socket: portal,
                tls: Some(portal_tls(site)?),
                router: portal_router(site, &gate)?,
                bounds,
                deadlines: PEOPLE,
                metrics: counters.clone(),
                anew: None,
            },
            Listener {
                name: "intake",
                socket: intake,
                tls: Some(intake_tls(site)?),
                router: intake_router(site, &gate),
                bounds,
                deadlines: DEVICES,
                metrics: counters.clone(),
                anew: Some(site.credentials.renewals()),
            },
            Listener {
                name: "enrolment",
                socket: enrolment,
                tls: Some(enrolment_tls(site)?),
                router: enrolment_router(site),
                bounds,
                deadlines: DEVICES,
                metrics: counters.clone(),
                anew: None,
            },
            Listener {
                name: "metrics",
                socket: metrics_socket,
                tls: None,
                router: metrics::router(site, &gate, &counters, &told),
                bounds,
                deadlines: PEOPLE,
                metrics: counters.clone(),
                anew: None,
            },
        ];
        listeners.extend(public.map(|socket| Listener {
            name: "public",
            socket,
            tls: None,
            router: public_router(site),
            bounds,
            deadlines: PEOPLE,
            metrics: counters,
            anew: None,
        }));
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let (name, stop) = (listener.name, stop.clone());
            tasks.spawn(async move {
                listener
                    .serve(stop)
                    .await
                    .or_hint(format!("listener {name}"), "see the log")
            });
        }
        tasks.spawn(housekeeping(site.clone(), gate, stop.clone()));
        tasks.spawn(crate::clock::follow(site.clone(), stop.clone()));
        tasks.spawn(renewal::run(site.clone(), stop.clone()));
        tasks.spawn(crate::silence::follow(site.clone(), stop.clone()));
        tasks.spawn(databases::watch(site.clone(), stop.clone()));
        tasks.spawn(databases::watch_index(site.clone(), stop.clone()));
        tasks.spawn(scrub(site.clone(), stop.clone()));
        let commands = control::listen(site)?;
        tasks.spawn(control::serve(site.clone(), commands, stop.clone()));
        tasks.spawn(last_checkpoint::follow(site.clone(), stop.clone()));
        let (portal, intake, enrolment, metrics) = addresses;
        if let Some(relay) = relay {
            let notices = Notices {
                site: site.clone(),
                relay,
                portal: portal_url(site, portal),
                metrics: told,
            };
            tasks.spawn(notices.run(stop.clone()));
        }
        Ok(Self {
            portal,
            intake,
            enrolment,
            metrics,
            tasks,
            stop,
        })
    }

    /// The portal's address for people.
    pub(crate) fn portal_url(&self, site: &Site) -> String {
        portal_url(site, self.portal)
    }

    /// A token that stops the site when it is cancelled.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until a stop is asked for or a role dies, then lets everything end.
    pub(crate) async fn until_stopped(mut self, site: &Site) -> Outcome {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended.unwrap_or_else(|panic| {
                Err(Failure::new(
                    anyhow::anyhow!("a role died: {panic}"),
                    "report this",
                ))
            });
            // A role that ends without being asked takes the others with it, and says so.
            if !self.stop.is_cancelled() {
                self.stop.cancel();
                outcome = ended.and_then(|()| {
                    Err(Failure::new(
                        anyhow::anyhow!("a role ended by itself"),
                        "see the log",
                    ))
                });
            } else if outcome.is_ok() {
                outcome = ended;
            }
        }
        site.close().await;
        outcome
    }
}

fn portal_url(site: &Site, portal: SocketAddr) -> String {
    let name = site.config.site.names.first();
    let name = name.map_or("localhost", String::as_str);
    format!("https://{name}:{}/", portal.port())
}

async fn bind(setting: &str, address: SocketAddr) -> Outcome<TcpListener> {
    TcpListener::bind(address).await.or_hint(
        format!("cannot listen on {address} ({setting})"),
        "stop what uses the port, or set another one in the configuration",
    )
}

/// People, with browsers: they come with a certificate or with a password.
fn portal_tls(site: &Site) -> Outcome<Arc<rustls::ServerConfig>> {
    let trust = site.registry.trust();
    ServerTls::new(site.credentials.server())
        .with_client_auth(ClientAuth::Optional, trust, Purpose::ClientUser)
        .with_alpn(&["h2", "http/1.1"])
        .build()
        .or_hint("cannot set up TLS", "check keys/server.pem")
}

/// Cameras, which may be behind a narrow link.
fn intake_tls(site: &Site) -> Outcome<Arc<rustls::ServerConfig>> {
    let trust = site.registry.trust();
    ServerTls::new(site.credentials.server())
        .with_client_auth(ClientAuth::Required, trust, Purpose::ClientDevice)
        .with_alpn(&["http/1.1"])
        .with_small_tickets()
        .build()
        .or_hint("cannot set up TLS", "check keys/server.pem")
}

/// Devices, gateways and people, also those whose certificate ended lately: the registry says what they may have. Strangers can
/// displace their sessions here, which matters little: they come once in months.
fn enrolment_tls(site: &Site) -> Outcome<Arc<rustls::ServerConfig>> {
    let grace = i64::from(site.config.enrolment.expired_grace_days);
    ServerTls::new(site.credentials.server())
        .with_client_auth(
            ClientAuth::Optional,
            site.registry.trust(),
            Purpose::ClientEnrolment,
        )
        .accept_expired(time::Duration::days(grace))
        .with_alpn(&["http/1.1"])
        .with_small_tickets()
        .build()
        .or_hint("cannot set up TLS", "check keys/server.pem")
}

/// EST, lists and OCSP; CMP, SCEP and ACME where they are on.
fn enrolment_router(site: &Site) -> Router {
    let registry = site.registry.clone();
    let est = registry::est::router(registry, Arc::new(OffsetDateTime::now_utc));
    let router = match site.config.enrolment.cmp {
        Messages::Off => est,
        Messages::Https | Messages::Http => est.merge(cmp_router(site)),
    };
    let router = match site.config.enrolment.scep {
        Messages::Off => router,
        Messages::Https | Messages::Http => router.merge(scep_router(site)),
    };
    let router = match site.config.enrolment.acme {
        false => router,
        true => router.merge(acme_router(site)),
    };
    Uninterrupted::default()
        .layer(router)
        .merge(lists_router(site))
        .layer(timeout())
}

/// Lists and OCSP; CMP and SCEP where they are answered without TLS.
fn public_router(site: &Site) -> Router {
    let router = match site.config.enrolment.cmp {
        Messages::Off | Messages::Https => Router::new(),
        Messages::Http => cmp_router(site),
    };
    let router = match site.config.enrolment.scep {
        Messages::Off | Messages::Https => router,
        Messages::Http => router.merge(scep_router(site)),
    };
    Uninterrupted::default()
        .layer(router)
        .merge(lists_router(site))
        .layer(timeout())
}

/// Lists and OCSP: requests that change nothing, and end with whoever asked.
fn lists_router(site: &Site) -> Router {
    let registry = site.registry.clone();
    registry::est::public_router(registry, Arc::new(OffsetDateTime::now_utc))
}

fn cmp_router(site: &Site) -> Router {
    let registry = site.registry.clone();
    registry::cmp::router(registry, Arc::new(OffsetDateTime::now_utc))
}

fn scep_router(site: &Site) -> Router {
    let registry = site.registry.clone();
    registry::scep::router(registry, Arc::new(OffsetDateTime::now_utc))
}

fn acme_router(site: &Site) -> Router {
    let registry = site.registry.clone();
    let hosts = site.config.site.names.clone();
    registry::acme::router(registry, Arc::new(OffsetDateTime::now_utc), hosts)
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(http::StatusCode::REQUEST_TIMEOUT, REQUEST)
}

fn portal_router(site: &Site, gate: &Arc<Gate>) -> Outcome<Router> {
    let people = axum::middleware::from_fn_with_state(gate.clone(), gate::people);
    // The layer that was added last is the first to see a request.
    let lasting = axum::middleware::from_fn_with_state(gate.clone(), rights::of_people);
    let api = site.centre.api_router().layer(lasting).layer(people);
    let pages = portal_services::shell(site, gate)?.router().merge(api);
    Ok(Uninterrupted::default().layer(pages).layer(timeout()))
}

fn intake_router(site: &Site, gate: &Arc<Gate>) -> Router {
    let devices = axum::middleware::from_fn_with_state(gate.clone(), gate::devices);
    let lists = axum::routing::get(revocation_lists).with_state(site.clone());
    site.centre
        .intake_router()
        .merge(Router::new().route("/intake/v1/revocation", lists))
        .merge(crate::trust_bundle::router(site))
        .merge(crate::log_proof::router(site))
        .layer(devices)
}

/// The lists that tell a camera whether the centre's certificates are still good.
async fn revocation_lists(State(site): State<Site>) -> Json<serde_json::Value> {
    let lists = site.lists_for_cameras();
    let lists: Vec<String> = lists.iter().map(|der| STANDARD.encode(der)).collect();
    let now = OffsetDateTime::now_utc();
    let issuers = site.registry.told_to_cameras(CaKind::Services, now);
    let issuers = issuers
        .iter()
        .map(|one| pki::cert::to_der(&one.certificate));
    let issuers = issuers.filter_map(|der| Some(STANDARD.encode(der.ok()?)));
    let issuers: Vec<String> = issuers.collect();
    let responses = site.credentials.ocsp_responses(&site.registry, now);
    let responses: Vec<String> = responses
        .await
        .iter()
        .map(|response| STANDARD.encode(response))
        .collect();
    Json(serde_json::json!({
        "schema": "cordon.revocation/1",
        "lists": lists,
        "authorities": issuers,
        "ocsp": responses,
    }))
}

/// Compares index and archive with the log, part by part.
async fn scrub(site: Site, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(centre::SCRUB_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        site.centre.scrub().step().await;
    }
}

/// Records counted refusals and sweeps expired uploads, every few minutes.
async fn housekeeping(site: Site, gate: Arc<Gate>, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(HOUSEKEEPING);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let now = OffsetDateTime::now_utc();
        gate.record_counted_refusals().await;
        site.centre.intake().record_counted_refusals().await;
        site.centre.review().record_counted_refusals().await;
        if let Err(error) = site.registry.record_counted_refusals(now).await {
            tracing::error!(%error, "refused enrolments are not recorded");
        }
        if let Err(error) = site.registry.forget_codes(now).await {
            tracing::error!(%error, "codes that are over are not deleted");
        }
        match site.centre.intake().sweep(now).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed expired uploads"),
            Err(error) => tracing::error!(%error, "expired uploads could not be removed"),
        }
    }
}
