//! Who is behind a request: from certificates and passwords to principals and devices.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::Principal;
use audit::{Actor, Event, RepeatBounds, Repeats};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use centre::{Device, DeviceRefused, Problem};
use directory::Entry;
use event_catalogue::context::Repeated;
use event_catalogue::site::{LoginProof, LoginRefused};
use event_catalogue::{Details as _, Recorded as _};
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use portal::{Epoch, Refused};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use registry::{AdmissionError, HolderRefused, HolderState};
use time::OffsetDateTime;

use crate::parts::Site;

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

/// Validates peers against the registry and the directory, on every request.
pub struct Gate {
    site: Site,
    /// Object of its events: `portal` or `ldap`.
    door: &'static str,
    certificates: Mutex<Repeats>,
    logins: Mutex<Repeats>,
    refusals: Refusals,
}

impl Gate {
    pub fn new(site: Site) -> Self {
        Self {
            site,
            door: "portal",
            certificates: Mutex::new(Repeats::new(CERTIFICATES)),
            logins: Mutex::new(Repeats::new(LOGINS)),
            refusals: Refusals::default(),
        }
    }

    /// A gate for another door of the same site, with the same metrics.
    pub fn for_ldap(&self) -> Self {
        Self {
            door: "ldap",
            refusals: self.refusals.clone(),
            ..Self::new(self.site.clone())
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
        let now = OffsetDateTime::now_utc();
        let admitted = self
            .site
            .registry
            .at_address(from)
            .admit(&peer.0, Purpose::ClientUser, now)
            .await;
        let refused = match admitted {
            Ok(admitted) => {
                let identity = admitted.identity();
                let uid = identity.uid.clone().unwrap_or_default();
                match self.site.directory.get(&uid).await {
                    Ok(Some(person)) => {
                        match Principal::by_certificate(identity, &person.record()) {
                            Ok(principal) => return Ok(principal.at_address(from)),
                            Err(error) => refusal(error.code(), &error),
                        }
                    }
                    Ok(None) => Refused {
                        code: "not-in-directory".to_owned(),
                        message: format!("nobody in the directory has the user id {uid}"),
                        temporary: false,
                    },
                    Err(error) => refusal("directory-failed", &error),
                }
            }
            Err(error) => refusal(error.code(), &error),
        };
        if !refused.temporary {
            self.note_refusal(peer, &refused, from).await;
        }
        Err(refused)
    }

    /// The camera that presents `peer`.
    pub async fn device(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<Device, DeviceRefused> {
        let now = OffsetDateTime::now_utc();
        let admitted = self
            .site
            .registry
            .at_address(from)
            .admit(&peer.0, Purpose::ClientDevice, now)
            .await;
        match admitted {
            Ok(admitted) if is_for_evidence(peer) => {
                Ok(Device(admitted.identity().common_name.clone()))
            }
            Ok(admitted) => {
                let refused = Refused {
                    code: "vpn-only".to_owned(),
                    message: format!(
                        "the certificate of {} is for tunnels only",
                        admitted.identity().common_name
                    ),
                    temporary: false,
                };
                self.note_refusal(peer, &refused, from).await;
                Err(DeviceRefused {
                    code: refused.code,
                    message: refused.message,
                    failure: None,
                })
            }
            Err(error) => {
                let refused = refusal(error.code(), &error);
                let failure = match &error {
                    // A disk that is full, for instance: nothing about this device.
                    AdmissionError::Registry(failure) => Some(Problem::internal(failure)),
                    _ => {
                        self.note_refusal(peer, &refused, from).await;
                        None
                    }
                };
                Err(DeviceRefused {
                    code: refused.code,
                    message: refused.message,
                    failure,
                })
            }
        }
    }

    /// The person with this name and password, and the epoch of what was checked.
    pub async fn password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(Principal, Epoch), Refused> {
        let now = OffsetDateTime::now_utc();
        // The registry's epoch before the password is checked, so that a revocation meanwhile
        // leaves a session that has ended already. Only who knows the password learns what the registry says
        // of the person.
        let registry = self.registry_epoch(uid).await;
        let directory = &self.site.directory;
        let refused = match (directory.login(uid, password, from, now).await, registry) {
            (Ok(entry), Ok(registry)) => match Principal::by_password(&entry.person.record()) {
                Ok(principal) => {
                    let epoch = Epoch([entry.epoch, registry]);
                    return Ok((principal.at_address(from), epoch));
                }
                Err(error) => refusal(error.code(), &error),
            },
            (Ok(_), Err(refused)) => refused,
            (Err(error), _) => refusal(error.code(), &error),
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
        let (present, entry) = self.standing(uid).await?;
        let principal = Principal::by_password(&entry.person.record())
            .map_err(|error| refusal(error.code(), &error))?;
        if epoch != present {
            return Err(Refused {
                code: "session-ended".to_owned(),
                message: "your password or your rights were changed; log in anew".to_owned(),
                temporary: false,
            });
        }
        Ok(principal.at_address(from))
    }

    /// The epoch of a person's rights, which changes with each right that is taken away, after a login by certificate or password.
    pub async fn epoch(&self, uid: &str) -> Result<Epoch, Refused> {
        Ok(self.standing(uid).await?.0)
    }

    async fn standing(&self, uid: &str) -> Result<(Epoch, Entry), Refused> {
        let registry = self.registry_epoch(uid).await?;
        match self.site.directory.entry(uid).await {
            Ok(Some(entry)) => Ok((Epoch([entry.epoch, registry]), entry)),
            Ok(None) => Err(Refused {
                code: "not-in-directory".to_owned(),
                message: "your entry was removed from the directory".to_owned(),
                temporary: false,
            }),
            Err(error) => Err(refusal("directory-failed", &error)),
        }
    }

    /// The registry's part of a person's epoch. A person refused by the registry gets no
    /// session; one that never had a certificate is the directory's alone.
    async fn registry_epoch(&self, uid: &str) -> Result<i64, Refused> {
        match self.site.registry.holder_state(CaKind::Users, uid).await {
            Ok(None) => Ok(0),
            Ok(Some((HolderState::Enrolled, epoch))) => Ok(epoch),
            Ok(Some((state, _))) => {
                let refused = HolderRefused {
                    authority: CaKind::Users,
                    holder: uid.to_owned(),
                    state,
                };
                Err(refusal(refused.code(), &refused))
            }
            Err(error) => Err(refusal("registry-failed", &error)),
        }
    }

    async fn note_refusal(&self, peer: &PeerCertificates, refused: &Refused, from: Option<IpAddr>) {
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
        let audit = self.site.portal_audit.clone();
        let recorded = self.site.audit_pool.run(move || audit.record(event)).await;
        match recorded {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => tracing::error!(%error, "an audit event could not be recorded"),
            Err(error) => tracing::error!(%error, "an audit event could not be recorded"),
        }
        false
    }
}

/// Whether the device's certificate is a camera's, rather than one for tunnels.
fn is_for_evidence(peer: &PeerCertificates) -> bool {
    let leaf = peer.0.first().and_then(|der| pki::cert::from_der(der).ok());
    leaf.is_some_and(|leaf| pki::profile::signs_evidence(&leaf))
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

fn refusal(code: &str, error: &dyn std::error::Error) -> Refused {
    Refused {
        code: code.to_owned(),
        message: error.to_string(),
        // A database that cannot be read or written now says nothing about anybody.
        temporary: matches!(code, "registry-failed" | "directory-failed"),
    }
}

/// Puts the [`Device`] or the reason of its refusal beside each request.
pub async fn devices(
    State(gate): State<std::sync::Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let from = address(&request);
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.device(&peer, from).await {
            Ok(device) => drop(request.extensions_mut().insert(device)),
            Err(refused) => drop(request.extensions_mut().insert(refused)),
        }
    }
    next.run(request).await
}

/// Puts the [`Principal`] or the reason of its refusal beside each request.
pub async fn people(
    State(gate): State<std::sync::Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let from = address(&request);
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.person(&peer, from).await {
            Ok(principal) => drop(request.extensions_mut().insert(principal)),
            Err(Refused {
                code,
                message,
                temporary,
            }) => {
                let failure = temporary.then(|| {
                    let status = http::StatusCode::SERVICE_UNAVAILABLE;
                    Problem::new(status, &code, message.clone(), "try again in a minute")
                });
                drop(request.extensions_mut().insert(DeviceRefused {
                    code,
                    message,
                    failure,
                }));
            }
        }
    }
    next.run(request).await
}
