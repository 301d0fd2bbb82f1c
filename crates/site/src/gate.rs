//! Who is behind a request: from certificates and passwords to principals and devices.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::Principal;
use audit::{Actor, AuditSink, Event, RepeatBounds, Repeats};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use centre::{Device, DeviceRefused, Problem};
use event_catalogue::context::Repeated;
use event_catalogue::site::{LoginProof, LoginRefused};
use event_catalogue::{Details as _, Recorded as _};
use pki::tls::PeerCertificates;
use pool::Pool;
use portal::{Epoch, Refused};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use time::OffsetDateTime;

use crate::admission::{Admission, DISK_FULL};

/// A refused certificate is recorded once in this time, with how often it was refused meanwhile: its
/// holder must not fill the log.
const CERTIFICATES: RepeatBounds = RepeatBounds {
    recorded: 1,
    interval: Duration::from_secs(600),
    causes: 10_000,
};
/// The same of logins refused to one address: anybody may ask.
const LOGINS: RepeatBounds = RepeatBounds {
    recorded: 10,
    interval: Duration::from_secs(600),
    causes: 10_000,
};

/// Refusals by action and reason; clones count the same.
pub type Refusals = Family<Vec<(&'static str, String)>, Counter>;

/// Lets people and cameras in as [`Admission`] says, on every request, and records refusals.
pub struct Gate {
    admission: Arc<dyn Admission>,
    audit: Arc<dyn AuditSink>,
    audit_pool: Pool,
    /// Object of its events: `portal` or `ldap`.
    door: &'static str,
    certificates: Mutex<Repeats>,
    logins: Mutex<Repeats>,
    refusals: Refusals,
}

impl Gate {
    pub(crate) fn new(
        admission: Arc<dyn Admission>,
        audit: Arc<dyn AuditSink>,
        audit_pool: Pool,
    ) -> Self {
        Self {
            admission,
            audit,
            audit_pool,
            door: "portal",
            certificates: Mutex::new(Repeats::new(CERTIFICATES)),
            logins: Mutex::new(Repeats::new(LOGINS)),
            refusals: Refusals::default(),
        }
    }

    /// A gate for another door of the same site, with the same metrics.
    pub(crate) fn for_door(&self, door: &'static str) -> Self {
        Self {
            door,
            refusals: self.refusals.clone(),
            ..Self::new(
                self.admission.clone(),
                self.audit.clone(),
                self.audit_pool.clone(),
            )
        }
    }

    /// Counts for the metrics.
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
    }

    /// The person who presents `peer`.
    pub async fn person(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        let admitted = self.admission.person(peer, from).await;
        if let Err(refused) = &admitted {
            self.note_refusal(peer, refused, from).await;
        }
        admitted
    }

    /// The camera that presents `peer`.
    pub async fn device(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<Device, Refused> {
        let admitted = self.admission.device(peer, from).await;
        if let Err(refused) = &admitted {
            self.note_refusal(peer, refused, from).await;
        }
        admitted.map(Device)
    }

    /// The person with this name and password, and the epoch of what was checked.
    pub async fn password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(Principal, Epoch), Refused> {
        let refused = match self.admission.password(uid, password, from).await {
            Ok(admitted) => return Ok(admitted),
            Err(refused) => refused,
        };
        // What was typed as a name may be a password; only a plausible name is recorded.
        let plausible = uid.len() <= 64
            && uid
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let actor = Actor::unknown(if plausible { uid } else { "(not a user id)" });
        self.count(LoginProof::Session, &refused);
        let address = from.map_or_else(|| "nowhere".to_owned(), |at| at.to_string());
        let more = lock(&self.logins).note(&address, Instant::now());
        if let Some(more) = more {
            self.record(actor, LoginProof::Session, &refused, from, more)
                .await;
        }
        Err(refused)
    }

    /// Finds the holder of a password session, unless it has ended.
    pub async fn session(
        &self,
        uid: &str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        self.admission.session(uid, epoch, from).await
    }

    /// The epoch of a person's rights, which changes with each right that is taken away, after a login by certificate or password.
    pub async fn epoch(&self, uid: &str) -> Result<Epoch, Refused> {
        self.admission.epoch(uid).await
    }

    /// A fault on this side says nothing about the certificate, and is logged where it arises.
    async fn note_refusal(&self, peer: &PeerCertificates, refused: &Refused, from: Option<IpAddr>) {
        if refused.temporary {
            return;
        }
        let leaf = peer
            .0
            .first()
            .map(|der| pki::cert::fingerprint_sha256(der))
            .unwrap_or_default();
        self.count(LoginProof::Certificate, refused);
        let more = lock(&self.certificates).note(&leaf, Instant::now());
        if let Some(more) = more {
            let actor = Actor::unknown(format!("certificate {leaf}"));
            self.record(actor, LoginProof::Certificate, refused, from, more)
                .await;
        }
    }

    fn count(&self, kind: LoginProof, refused: &Refused) {
        // Codes are names in our code, so that there are few of them.
        let labels = vec![
            ("action", kind.action().to_owned()),
            ("reason", refused.code.clone()),
        ];
        self.refusals.get_or_create(&labels).inc();
    }

    /// Records how many refusals were only counted, once their interval is over.
    pub async fn record_counted_refusals(&self) {
        let now = Instant::now();
        let (certificates, logins) = (
            lock(&self.certificates).due(now),
            lock(&self.logins).due(now),
        );
        let certificates = certificates
            .into_iter()
            .map(|due| (LoginProof::Certificate, due));
        let logins = logins.into_iter().map(|due| (LoginProof::Session, due));
        for (kind, (cause, count)) in certificates.chain(logins) {
            let now = OffsetDateTime::now_utc();
            let refused = LoginRefused { kind, code: None };
            let event = refused.into_event(now, Actor::unknown(cause), self.door);
            let more = Repeated {
                not_recorded: Some(count),
            };
            self.note(more.add_to(event.with_reason("more of the same")))
                .await;
        }
    }

    async fn record(
        &self,
        actor: Actor,
        kind: LoginProof,
        refused: &Refused,
        from: Option<IpAddr>,
        more: u64,
    ) {
        let now = OffsetDateTime::now_utc();
        let code = Some(refused.code.clone());
        let event = LoginRefused { kind, code }.into_event(now, actor, self.door);
        let not_recorded = (more > 0).then_some(more);
        let event = Repeated { not_recorded }.add_to(event.with_reason(&refused.message));
        // The refusal stands, recorded or not.
        self.note(at_address(event, from)).await;
    }

    /// Records an event and says whether that went well; a failure is logged loudly.
    pub async fn note(&self, event: Event) -> bool {
        let audit = self.audit.clone();
        let recorded = self.audit_pool.run(move || audit.record(event)).await;
        match recorded {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => tracing::error!(%error, "an audit event could not be recorded"),
            Err(error) => tracing::error!(%error, "an audit event could not be recorded"),
        }
        false
    }
}

/// The event with where the request came from.
pub fn at_address(event: Event, from: Option<IpAddr>) -> Event {
    match from {
        Some(address) => event.with_detail("address", address.to_string()),
        None => event,
    }
}

fn lock(repeats: &Mutex<Repeats>) -> MutexGuard<'_, Repeats> {
    repeats.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(request: &Request) -> Option<IpAddr> {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    info.map(|info| info.0.ip())
}

/// The answer of the services behind an interface to a refused caller.
fn refused_request(refused: Refused) -> DeviceRefused {
    let Refused {
        code,
        message,
        temporary,
    } = refused;
    let failure = temporary.then(|| {
        let status = match code.as_str() {
            DISK_FULL => http::StatusCode::INSUFFICIENT_STORAGE,
            _ => http::StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, &code, message.clone(), "try again in a minute")
    });
    DeviceRefused {
        code,
        message,
        failure,
    }
}

/// Puts the [`Device`] or the reason of its refusal beside each request.
pub async fn devices(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let from = address(&request);
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.device(&peer, from).await {
            Ok(device) => drop(request.extensions_mut().insert(device)),
            Err(refused) => drop(request.extensions_mut().insert(refused_request(refused))),
        }
    }
    next.run(request).await
}

/// Puts the [`Principal`] or the reason of its refusal beside each request.
pub async fn people(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let from = address(&request);
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.person(&peer, from).await {
            Ok(principal) => drop(request.extensions_mut().insert(principal)),
            Err(refused) => drop(request.extensions_mut().insert(refused_request(refused))),
        }
    }
    next.run(request).await
}
