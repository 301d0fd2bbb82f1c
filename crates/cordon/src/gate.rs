//! Who is behind a request: from certificates and passwords to principals and devices.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::Principal;
use audit::{Actor, Event, Outcome as AuditOutcome};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use centre::{Device, DeviceRefused};
use directory::Person;
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use portal::Refused;
use registry::{HolderRefused, HolderState};
use time::OffsetDateTime;

use crate::site::Site;

/// A refused certificate is recorded once in this time: its holder must not fill the log.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);
/// Refused certificates remembered for that.
const MAX_REFUSED: usize = 10_000;

/// Validates peers against the registry and the directory, anew on every request.
pub(crate) struct Gate {
    site: Site,
    refused: Mutex<HashMap<String, Instant>>,
}

impl Gate {
    pub(crate) fn new(site: Site) -> Self {
        Self {
            site,
            refused: Mutex::default(),
        }
    }

    /// The person who presents `peer`.
    pub(crate) async fn person(&self, peer: &PeerCertificates) -> Result<Principal, Refused> {
        let now = OffsetDateTime::now_utc();
        let admitted = self
            .site
            .registry
            .admit(&peer.0, Purpose::ClientUser, now)
            .await;
        let refused = match admitted {
            Ok(admitted) => {
                let identity = admitted.identity();
                let uid = identity.uid.clone().unwrap_or_default();
                match self.site.directory.get(&uid).await {
                    Ok(Some(person)) => {
                        match Principal::by_certificate(identity, &person.record()) {
                            Ok(principal) => return Ok(principal),
                            Err(error) => refusal(error.code(), &error),
                        }
                    }
                    Ok(None) => Refused {
                        code: "not-in-directory".to_owned(),
                        message: format!("nobody in the directory has the user id {uid}"),
                    },
                    Err(error) => refusal("directory-failed", &error),
                }
            }
            Err(error) => refusal(error.code(), &error),
        };
        self.note_refusal(peer, &refused).await;
        Err(refused)
    }

    /// The camera that presents `peer`.
    pub(crate) async fn device(&self, peer: &PeerCertificates) -> Result<Device, DeviceRefused> {
        let now = OffsetDateTime::now_utc();
        let admitted = self
            .site
            .registry
            .admit(&peer.0, Purpose::ClientDevice, now)
            .await;
        match admitted {
            Ok(admitted) => Ok(Device(admitted.identity().common_name.clone())),
            Err(error) => {
                let refused = refusal(error.code(), &error);
                self.note_refusal(peer, &refused).await;
                Err(DeviceRefused {
                    code: refused.code,
                    message: refused.message,
                })
            }
        }
    }

    /// The person with this name and password.
    pub(crate) async fn password(&self, uid: &str, password: &str) -> Result<Principal, Refused> {
        let now = OffsetDateTime::now_utc();
        let refused = match self.site.directory.login(uid, password, now).await {
            Ok(person) => match self.by_password(&person).await {
                Ok(principal) => return Ok(principal),
                Err(refused) => refused,
            },
            Err(error) => refusal(error.code(), &error),
        };
        // What was typed as a name may be a password; only a plausible name is recorded.
        let plausible = uid.len() <= 64
            && uid
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let actor = Actor::unknown(if plausible { uid } else { "(not a user id)" });
        self.record(actor, "session.refuse", &refused).await;
        Err(refused)
    }

    /// Who the holder of a password session is by now.
    pub(crate) async fn session(&self, uid: &str) -> Result<Principal, Refused> {
        match self.site.directory.get(uid).await {
            Ok(Some(person)) => self.by_password(&person).await,
            Ok(None) => Err(Refused {
                code: "not-in-directory".to_owned(),
                message: "your entry was removed from the directory".to_owned(),
            }),
            Err(error) => Err(refusal("directory-failed", &error)),
        }
    }

    /// The principal of somebody whose password was checked. A person whom the registry revoked
    /// is refused here as well; one that never had a certificate is the directory's alone.
    async fn by_password(&self, person: &Person) -> Result<Principal, Refused> {
        let state = self
            .site
            .registry
            .holder_state(CaKind::Users, &person.uid)
            .await;
        match state {
            Ok(None | Some(HolderState::Enrolled)) => {}
            Ok(Some(state)) => {
                let refused = HolderRefused {
                    authority: CaKind::Users,
                    holder: person.uid.clone(),
                    state,
                };
                return Err(refusal(refused.code(), &refused));
            }
            Err(error) => return Err(refusal("registry-failed", &error)),
        }
        Principal::by_password(&person.record()).map_err(|error| refusal(error.code(), &error))
    }

    async fn note_refusal(&self, peer: &PeerCertificates, refused: &Refused) {
        let leaf = peer
            .0
            .first()
            .map(|der| pki::cert::fingerprint_sha256(der))
            .unwrap_or_default();
        {
            let now = Instant::now();
            let mut known = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if known
                .get(&leaf)
                .is_some_and(|at| now.duration_since(*at) < REFUSAL_PAUSE)
            {
                return;
            }
            if known.len() >= MAX_REFUSED {
                known.retain(|_, at| now.duration_since(*at) < REFUSAL_PAUSE);
            }
            known.insert(leaf.clone(), now);
        }
        let actor = Actor::unknown(format!("certificate {leaf}"));
        self.record(actor, "certificate.refuse", refused).await;
    }

    async fn record(&self, actor: Actor, action: &str, refused: &Refused) {
        let now = OffsetDateTime::now_utc();
        let event = Event::new(now, actor, action, "portal", AuditOutcome::Deny)
            .with_reason(&refused.message)
            .with_detail("code", refused.code.clone());
        self.note(event).await;
    }

    /// Records an event whose failure cannot undo anything any more; it is logged loudly.
    pub(crate) async fn note(&self, event: Event) {
        let audit = self.site.portal_audit.clone();
        let recorded = self.site.audit_pool.run(move || audit.record(event)).await;
        match recorded {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "an audit event could not be recorded"),
            Err(error) => tracing::error!(%error, "an audit event could not be recorded"),
        }
    }
}

fn refusal(code: &str, error: &dyn std::error::Error) -> Refused {
    Refused {
        code: code.to_owned(),
        message: error.to_string(),
    }
}

/// Puts the [`Device`] or the reason of its refusal beside each request.
pub(crate) async fn devices(
    State(gate): State<std::sync::Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.device(&peer).await {
            Ok(device) => drop(request.extensions_mut().insert(device)),
            Err(refused) => drop(request.extensions_mut().insert(refused)),
        }
    }
    next.run(request).await
}

/// Puts the [`Principal`] or the reason of its refusal beside each request.
pub(crate) async fn people(
    State(gate): State<std::sync::Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(peer) = request.extensions().get::<PeerCertificates>().cloned() {
        match gate.person(&peer).await {
            Ok(principal) => drop(request.extensions_mut().insert(principal)),
            Err(Refused { code, message }) => {
                drop(
                    request
                        .extensions_mut()
                        .insert(DeviceRefused { code, message }),
                );
            }
        }
    }
    next.run(request).await
}
