//! TLS listeners: accept, shake hands, hand the connection to a router or to another protocol, stop gracefully.
//!
//! Every connection is accepted and none can hold its place for nothing: [`places`] shares them
//! between addresses, networks and certificates and takes them back from the idle, [`activity`]
//! ends what takes too long, from the accept on, [`turns`] bounds what one client has worked on at
//! the same time. A request reaches its router with the peer's
//! certificates and address as extensions; who that is, the router's layers decide.

#![forbid(unsafe_code)]

mod activity;
mod hello;
mod metrics;
mod pace;
mod places;
mod protocol;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use pki::tls::PeerCertificates;
use rustls::HandshakeKind;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use activity::{Activity, Overdue};
pub use activity::{Deadlines, Request};
pub use metrics::Metrics;
use metrics::{Counters, Reason};
use pace::Pace;
pub use places::{BOUNDS, Bounds};
use places::{Full, Id, Places};
pub use protocol::{Failed, Peer, Protocol, Service, Serving, Stream};
use turns::Turns;

/// The TLS handshake of a connection, beside each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Its end.
    pub at: SystemTime,
    /// It resumed a session: the client proved its key in an earlier handshake.
    pub resumed: bool,
}

/// For people: a browser sends its request at once.
pub const PEOPLE: Deadlines = Deadlines {
    first_request: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    stall: Duration::from_secs(60),
};
/// For cameras: over a bearer of some kbit/s the handshake alone takes twenty seconds. The shares
/// of [`places`], not this time, keep anonymous connections from filling the listener.
pub const DEVICES: Deadlines = Deadlines {
    first_request: Duration::from_secs(60),
    idle: Duration::from_secs(120),
    stall: Duration::from_secs(120),
};
/// Interval at which an HTTP/2 peer has to show that it is there, and the time for its answer.
const PING: Duration = Duration::from_secs(20);
/// HTTP/2 streams of a connection at the same time. Each may have a form's bytes under way, of strangers too.
const STREAMS: u32 = 64;
/// Time for requests under way to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after an accept failed, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound address with what answers there.
pub struct Listener {
    pub name: &'static str,
    pub socket: TcpListener,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub service: Service,
    pub bounds: Bounds,
    pub deadlines: Deadlines,
    pub metrics: Metrics,
    /// When it changes, connections end with the requests under way, and the other side connects again. `None`: never.
    pub anew: Option<watch::Receiver<()>>,
}

impl Listener {
    /// Serves until `stop` is cancelled, then lets requests under way end.
    pub async fn serve(mut self, stop: CancellationToken) -> io::Result<()> {
        let table = Table::new(self.bounds, self.metrics.of(self.name));
        let mut graceful = GracefulShutdown::new();
        let acceptor = self.tls.map(TlsAcceptor::from);
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = stop.cancelled() => break,
                () = changed(&mut self.anew) => {
                    let former = std::mem::take(&mut graceful);
                    tokio::spawn(former.shutdown());
                    continue;
                }
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = self.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Refused: every place belongs to a request that just began. The client tries again.
            let Some(place) = table.enter(peer) else {
                continue;
            };
            let connection = Connection {
                peer,
                place,
                acceptor: acceptor.clone(),
                service: self.service.clone(),
                stopping: stop.clone(),
                watcher: graceful.watcher(),
                deadlines: self.deadlines,
            };
            let name = self.name;
            tokio::spawn(async move {
                if let Err(reason) = connection.run(stream).await {
                    tracing::debug!(listener = name, %peer, %reason, "connection ended");
                }
            });
            // Those that are connected already have their turn between two that come.
            tokio::task::yield_now().await;
        }
        drop(self.socket);
        if tokio::time::timeout(DRAIN, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!(
                listener = self.name,
                "connections cut that did not end in time"
            );
        }
        Ok(())
    }
}

/// Waits for the next change.
async fn changed(anew: &mut Option<watch::Receiver<()>>) {
    let is_over = match anew {
        Some(anew) => anew.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending::<()>().await;
    }
}

/// The connections of a listener with the means to end them; clones are handles to it.
#[derive(Clone)]
struct Table {
    places: Arc<Mutex<Places>>,
    /// `None` where one host makes all the load on purpose.
    pace: Option<Arc<Mutex<Pace>>>,
    ends: Arc<Mutex<HashMap<Id, CancellationToken>>>,
    turns: Turns,
    counters: Counters,
}

impl Table {
    fn new(bounds: Bounds, counters: Counters) -> Self {
        Self {
            places: Arc::new(Mutex::new(Places::new(bounds))),
            pace: bounds.paced.then(Arc::default),
            ends: Arc::default(),
            turns: Turns::default(),
            counters,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a new connection its place, ending another one if need be.
    fn enter(&self, peer: SocketAddr) -> Option<Place> {
        let now = Instant::now();
        let Some(wait) = self.turn(peer.ip(), now) else {
            self.counters.count(Reason::TooFast);
            return None;
        };
        let entered = self.lock().enter(peer.ip(), now);
        let Ok((id, victim)) = entered else {
            self.counters.count(Reason::Refused);
            return None;
        };
        let end = CancellationToken::new();
        self.ends().insert(id, end.clone());
        if let Some(victim) = victim {
            self.shed(victim);
        }
        self.show();
        Some(Place {
            table: self.clone(),
            id,
            wait,
            end,
            activity: Activity::new(self.clone(), id, now),
        })
    }

    fn turn(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let Some(pace) = &self.pace else {
            return Some(Duration::ZERO);
        };
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.turn(audit::host_of(address), now)
    }

    fn shed(&self, victim: Id) {
        if let Some(end) = self.ends().remove(&victim) {
            end.cancel();
        }
        self.counters.count(Reason::Shed);
    }

    fn show(&self) {
        let (anonymous, proved) = self.lock().counts();
        self.counters.open(anonymous, proved);
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<Id, CancellationToken>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place, given back on drop.
struct Place {
    table: Table,
    id: Id,
    /// Until the connection's turn among those of its host.
    wait: Duration,
    end: CancellationToken,
    activity: Activity,
}

impl Place {
    /// Counts the connection as one of the certificate that it has shown, and gives its turns.
    fn prove(&self, certificates: Option<&PeerCertificates>) -> Result<Arc<Semaphore>, Full> {
        let Some(leaf) = certificates.and_then(|certificates| certificates.0.first()) else {
            return Ok(self.table.turns.of(None));
        };
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, leaf);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        let proved = self
            .table
            .lock()
            .prove(self.id, fingerprint, Instant::now());
        match proved {
            Ok(Some(victim)) => self.table.shed(victim),
            Ok(None) => {}
            Err(full) => {
                self.table.counters.count(Reason::Refused);
                return Err(full);
            }
        }
        self.table.show();
        Ok(self.table.turns.of(Some(fingerprint)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().leave(self.id);
        self.table.ends().remove(&self.id);
        self.table.show();
    }
}

type Watcher = hyper_util::server::graceful::Watcher;
struct Connection {
    peer: SocketAddr,
    place: Place,
    acceptor: Option<TlsAcceptor>,
    service: Service,
    stopping: CancellationToken,
    watcher: Watcher,
    deadlines: Deadlines,
}

impl Connection {
    /// Serves the connection until it ends, takes too long or has to give its place up.
    async fn run(self, stream: TcpStream) -> Result<(), Failed> {
        let (activity, end) = (self.place.activity.clone(), self.place.end.clone());
        let (counters, deadlines) = (self.place.table.counters.clone(), self.deadlines);
        tokio::select! {
            ended = self.shake_hands(stream) => ended,
            () = end.cancelled() => Err("it gave its place to another".into()),
            overdue = activity.overdue(deadlines) => {
                counters.count(Reason::Overdue(overdue));
                Err(match overdue {
                    Overdue::FirstRequest => "no complete request came in time",
                    Overdue::Idle => "no further request came in time",
                    Overdue::Stalled => "an answer was not read in time",
                }
                .into())
            }
        }
    }

    async fn shake_hands(self, stream: TcpStream) -> Result<(), Failed> {
        if !self.place.wait.is_zero() {
            tokio::time::sleep(self.place.wait).await;
        }
        // Small answers (offsets, receipts) must not wait for a full segment.
        stream.set_nodelay(true)?;
        let Some(acceptor) = self.acceptor.clone() else {
            return Box::pin(self.serve(stream, None, None)).await;
        };
        let stream = hello::first_record(stream).await?;
        // On the heap, so that a connection that says nothing is small.
        Box::pin(async move {
            let stream = acceptor.accept(stream).await?;
            let chain = stream.get_ref().1.peer_certificates();
            let certificates = chain.map(|chain| {
                PeerCertificates(Arc::new(
                    chain.iter().map(|c| c.clone().into_owned()).collect(),
                ))
            });
            let handshake = Handshake {
                at: SystemTime::now(),
                resumed: stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed),
            };
            self.serve(stream, certificates, Some(handshake)).await
        })
        .await
    }

    async fn serve(
        self,
        stream: impl Stream + 'static,
        certificates: Option<PeerCertificates>,
        handshake: Option<Handshake>,
    ) -> Result<(), Failed> {
        let turns = self
            .place
            .prove(certificates.as_ref())
            .map_err(|_: Full| "its certificate has too many connections")?;
        let Self {
            peer,
            place,
            service,
            stopping,
            watcher,
            deadlines,
            ..
        } = self;
        let activity = place.activity.clone();
        let router = match service {
            Service::Http(router) => router,
            Service::Other(protocol) => {
                let peer = Peer {
                    address: peer,
                    certificates,
                    stopping,
                    activity,
                };
                let served = protocol.serve(Box::new(stream), peer).await;
                // A stop waits for those that still watch.
                drop((watcher, place));
                return served;
            }
        };
        let io = TokioIo::new(stream);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let under_way = activity.request();
            let extensions = request.extensions_mut();
            extensions.insert(ConnectInfo(peer));
            if let Some(certificates) = &certificates {
                extensions.insert(certificates.clone());
            }
            if let Some(handshake) = handshake {
                extensions.insert(handshake);
            }
            let (router, turns) = (router.clone(), Arc::clone(&turns));
            async move {
                // One whose body is on its way waits for its client, who may be gone: it takes no turn from other clients.
                let turn = match request.body().is_end_stream() {
                    // Never closed, so an error cannot occur.
                    true => turns.acquire_owned().await.ok(),
                    false => None,
                };
                let Ok(answer) = router.oneshot(request.map(Body::new)).await;
                drop(turn);
                Ok::<_, Infallible>(answer.map(|body| under_way.watch(body)))
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // Ours ends first, and is counted.
            .header_read_timeout(deadlines.idle.saturating_mul(2))
            .max_buf_size(64 * 1024);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(STREAMS);
        let served = watcher
            .watch(builder.serve_connection(io, service).into_owned())
            .await;
        drop(place);
        served
    }
}

/// File descriptors that a listener's connections may take of all that the process has: an eighth
/// for each of four, the other half is for evidence, databases and log.
const DESCRIPTORS_PER_PLACE: u64 = 8;

/// Raises the process's limit of open files to what it may have, and gives the shares of a
/// listener that fit.
pub fn bounds_for_this_process() -> Bounds {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let bounds = bounds_for(files);
    if bounds.total < BOUNDS.total {
        tracing::warn!(
            files,
            connections = bounds.total,
            "few open files allowed, hence few connections; raise the limit (LimitNOFILE)"
        );
    }
    bounds
}

fn bounds_for(files: u64) -> Bounds {
    let total = usize::try_from(files / DESCRIPTORS_PER_PLACE).unwrap_or(usize::MAX);
    let total = total.clamp(8, BOUNDS.total);
    let part = |bound: usize| (bound * total).div_ceil(BOUNDS.total);
    Bounds {
        total,
        anonymous: part(BOUNDS.anonymous),
        address: part(BOUNDS.address),
        network: part(BOUNDS.network),
        certificate: BOUNDS.certificate.min(total),
        paced: BOUNDS.paced,
    }
}
