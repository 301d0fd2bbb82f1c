//! The listener's side: answers the hosts that the configuration names.

use std::path::PathBuf;
use std::sync::Arc;

use audit::Actor;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use peering::PeerId;
use pkcs8::der::Decode as _;
use pkcs8::spki::SubjectPublicKeyInfoOwned;
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use registry::{AuthorityId, AuthorityRecord, AuthorityState, Registry};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::seam::{Issuing, Own, alt_names};
use super::wire::{
    ANNOUNCE, Announcement, Base64, ISSUE, IssueAnswer, IssueQuestion, LONGEST_QUESTION, List,
    OCSP, OcspAnswer, OcspQuestion, OwnName, TRUST, ToldAuthority, TrustAnswer, TrustContent,
    TrustQuestion, tag_of,
};
use crate::config::Host;
use crate::failure::{Failure, OrHint as _, Outcome};

/// The site's other hosts, as the configuration names them.
#[derive(Clone)]
pub(crate) struct Hosts(pub(crate) Arc<Vec<Host>>);

impl Hosts {
    fn of(&self, caller: &PeerCertificates) -> Option<&Host> {
        let peer = PeerId::of_spki(caller.0.first()?);
        self.0.iter().find(|host| host.peer == peer)
    }
}

/// The certificates that cameras are to seal to, as the host with the centre announced them last: `DIR/recipients.json`.
#[derive(Clone)]
pub(crate) struct Announced {
    path: PathBuf,
    hosts: Hosts,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    peer: PeerId,
    recipients_pem: String,
}

impl Announced {
    /// In this data folder, by those of `hosts` that have a centre.
    pub(crate) fn new(data: &std::path::Path, hosts: Hosts) -> Self {
        let path = data.join("recipients.json");
        Self { path, hosts }
    }

    /// In PEM, newest first, if `registry` issued them and has not revoked them; none if nothing was announced by a host that
    /// is still named.
    pub(crate) fn pem(&self, registry: &Registry) -> Outcome<Option<String>> {
        let Some(kept) = self.kept()? else {
            return Ok(None);
        };
        check_recipients(registry, &kept.recipients_pem)?;
        Ok(Some(kept.recipients_pem))
    }

    fn kept(&self) -> Outcome<Option<Kept>> {
        let what = || format!("cannot read {}", self.path.display());
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).or_hint(what(), "check the folder's rights"),
        };
        let kept: Kept = serde_json::from_slice(&bytes).or_hint(
            what(),
            "remove it: the centre's host announces its certificates again",
        )?;
        let named = self.hosts.0.iter();
        let mut named = named.filter(|host| host.peer == kept.peer && host.intake.is_some());
        Ok(named.next().is_some().then_some(kept))
    }

    /// [`tag_of`] what is kept of this host.
    fn tag(&self, peer: PeerId) -> String {
        match self.kept() {
            Ok(Some(kept)) if kept.peer == peer => tag_of(&kept.recipients_pem),
            _ => String::new(),
        }
    }

    fn keep(&self, new: &Kept) -> Outcome {
        let what = || format!("cannot write {}", self.path.display());
        let bytes = serde_json::to_vec(new).or_hint(what(), "see the log")?;
        durable::write_atomic(&self.path, &bytes, 0o644)
            .or_hint(what(), "check the folder's rights and the room on its disk")
    }
}

/// Checks that cameras may seal to these.
fn check_recipients(registry: &Registry, pem: &str) -> Outcome {
    const HINT: &str = "see the log of the centre's host";
    let chain = pki::cert::CertificateChain::from_pem(pem);
    let certificates = chain.or_hint("the sealing certificates are damaged", HINT)?;
    let now = OffsetDateTime::now_utc();
    for der in certificates.ders() {
        let purpose = pki::path::Purpose::Recipient;
        let validated = registry
            .trust()
            .validate(std::slice::from_ref(der), purpose, now);
        validated.or_hint("a sealing certificate is refused", HINT)?;
    }
    Ok(())
}

#[derive(Clone)]
struct Door {
    registry: Registry,
    hosts: Hosts,
    announced: Announced,
}

/// Answers peers. The listener has admitted their keys.
pub(crate) fn router(registry: Registry, hosts: Hosts, announced: Announced) -> Router {
    Router::new()
        .route(TRUST, post(trust))
        .route(ISSUE, post(issue))
        .route(OCSP, post(ocsp))
        .route(ANNOUNCE, post(announce))
        .layer(DefaultBodyLimit::max(LONGEST_QUESTION))
        .with_state(Door {
            registry,
            hosts,
            announced,
        })
}

async fn trust(
    State(door): State<Door>,
    Extension(caller): Extension<PeerCertificates>,
    Json(question): Json<TrustQuestion>,
) -> Response {
    let host = door.hosts.of(&caller);
    let recipients = host.map(|host| door.announced.tag(host.peer));
    let recipients = recipients.unwrap_or_default();
    let now = OffsetDateTime::now_utc();
    match trust_of(&door.registry, &question.known, recipients, now) {
        Ok(answer) => Json(answer).into_response(),
        Err(failure) => {
            let error = failure.message();
            tracing::error!(
                error,
                "another host does not learn of authorities and lists"
            );
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

fn trust_of(
    registry: &Registry,
    known: &str,
    recipients: String,
    now: OffsetDateTime,
) -> Outcome<TrustAnswer> {
    let issuing: &dyn Issuing = registry;
    let records = registry.authority_records(now);
    let mut authorities = Vec::new();
    let mut tag = String::new();
    let told = CaKind::ALL.map(|kind| issuing.told_to_cameras(kind, now));
    let is_told = |id: AuthorityId| told.iter().flatten().any(|(told, _)| *told == id);
    for record in &records {
        let der = pki::cert::to_der(&record.certificate);
        let is_replaced = is_replaced(&records, record, is_told);
        let is_told = is_told(record.id);
        tag.push_str(&format!("{} {is_told} {is_replaced};", record.id));
        authorities.push(ToldAuthority {
            id: record.id.to_string(),
            certificate: Base64(der.or_hint("an authority", "check pki")?),
            is_told,
            is_replaced,
        });
    }
    let lists = issuing.lists(now);
    for (_, list) in &lists {
        tag.push_str(&list.tag);
    }
    let content = (tag != known).then(|| -> Outcome<TrustContent> {
        let root = pki::cert::to_der(registry.root()).or_hint("the root", "check pki")?;
        let lists = lists.iter().map(|(of, list)| List {
            of: of.map(|id| id.to_string()),
            der: Base64(list.der.to_vec()),
        });
        Ok(TrustContent {
            root: Base64(root),
            authorities,
            lists: lists.collect(),
        })
    });
    Ok(TrustAnswer {
        tag,
        issues: issuing.issues(now),
        recipients,
        content: content.transpose()?,
    })
}

/// Tells whether certificates by this authority are to be replaced: it was revoked or has ended for cameras, and another one
/// issues.
fn is_replaced(
    records: &[AuthorityRecord],
    one: &AuthorityRecord,
    is_told: impl Fn(AuthorityId) -> bool,
) -> bool {
    let is_over = one.is_revoked || (one.state == AuthorityState::Retired && !is_told(one.id));
    let successor = |record: &AuthorityRecord| {
        let issues = record.state == AuthorityState::Issuing;
        issues && record.id.kind() == one.id.kind() && !record.is_revoked
    };
    is_over && records.iter().any(successor)
}

async fn issue(
    State(door): State<Door>,
    Extension(caller): Extension<PeerCertificates>,
    Json(question): Json<IssueQuestion>,
) -> Json<IssueAnswer> {
    Json(match issued(&door, &caller, question).await {
        Ok(chain) => IssueAnswer::Chain(chain),
        Err(failure) => IssueAnswer::Refused {
            message: failure.message(),
            hint: failure.hint().to_owned(),
        },
    })
}

async fn issued(
    door: &Door,
    caller: &PeerCertificates,
    question: IssueQuestion,
) -> Outcome<Vec<Base64>> {
    const HINT: &str = "see the log of the registry's host";
    let host = door.hosts.of(caller).ok_or_else(|| {
        let error = anyhow::anyhow!("the registry's host does not know this one");
        Failure::new(error, "name its key under [[hosts.peers]] there")
    })?;
    let foreign = question
        .names
        .iter()
        .find(|name| !host.names.contains(name));
    if let Some(name) = foreign {
        let error = anyhow::anyhow!("{name} is no name of the host {}", host.name);
        return Err(Failure::new(
            error,
            "name it under [[hosts.peers]] on the registry's host",
        ));
    }
    let own = match question.own {
        OwnName::Server => Own::Server,
        OwnName::Receipts => Own::Receipts,
        OwnName::TrustBundle => Own::TrustBundle,
        OwnName::Sealing(number) => Own::Sealing(number),
    };
    let spki = SubjectPublicKeyInfoOwned::from_der(&question.spki.0);
    let spki = spki.or_hint("the key is damaged", HINT)?;
    let first = question.names.first().map_or("", String::as_str);
    let order = own.order(spki, alt_names(&question.names), first);
    let actor = Actor::service(format!("host {}", host.name));
    let issued = door
        .registry
        .issue_own(order, actor, OffsetDateTime::now_utc())
        .await;
    let chain = issued.or_hint("cannot issue the certificate", HINT)?.chain;
    Ok(chain
        .ders()
        .iter()
        .map(|der| Base64(der.to_vec()))
        .collect())
}

async fn ocsp(State(door): State<Door>, Json(question): Json<OcspQuestion>) -> Json<OcspAnswer> {
    let now = OffsetDateTime::now_utc();
    let response = match pki::cert::from_der(&question.certificate.0) {
        Ok(certificate) => Issuing::ocsp_response(&door.registry, &certificate, now).await,
        Err(_) => None,
    };
    Json(OcspAnswer {
        response: response.map(|der| Base64(der.to_vec())),
    })
}

/// Takes the certificates that cameras are to seal to, if this registry issued them for that.
async fn announce(
    State(door): State<Door>,
    Extension(caller): Extension<PeerCertificates>,
    Json(announcement): Json<Announcement>,
) -> Response {
    let host = door.hosts.of(&caller);
    let centre = host.filter(|host| host.intake.is_some());
    match centre.map(|host| taken(&door, host.peer, announcement)) {
        Some(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Some(Err(failure)) => {
            let error = failure.message();
            tracing::error!(error, "the centre's sealing certificates are not taken");
            (StatusCode::BAD_REQUEST, error).into_response()
        }
        None => StatusCode::FORBIDDEN.into_response(),
    }
}

fn taken(door: &Door, peer: PeerId, announcement: Announcement) -> Outcome {
    check_recipients(&door.registry, &announcement.recipients_pem)?;
    door.announced.keep(&Kept {
        peer,
        recipients_pem: announcement.recipients_pem,
    })
}
