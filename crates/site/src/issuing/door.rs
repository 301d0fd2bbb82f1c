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
use time::OffsetDateTime;

use super::seam::{Issuing, Own, alt_names};
use super::wire::{
    ANNOUNCE, Announcement, Base64, ISSUE, IssueAnswer, IssueQuestion, LONGEST_QUESTION, List,
    OCSP, OcspAnswer, OcspQuestion, OwnName, TRUST, ToldAuthority, TrustAnswer, TrustContent,
    TrustQuestion,
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

/// The certificates that cameras are to seal to, as the centre's host announced them last: `DIR/recipients.pem`.
#[derive(Clone)]
pub(crate) struct Announced(PathBuf);

impl Announced {
    /// In this data folder.
    pub(crate) fn new(data: &std::path::Path) -> Self {
        Self(data.join("recipients.pem"))
    }

    /// In PEM, newest first; none if nothing was announced.
    pub(crate) fn pem(&self) -> Outcome<Option<String>> {
        match std::fs::read_to_string(&self.0) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).or_hint(
                format!("cannot read {}", self.0.display()),
                "check the folder's rights",
            ),
        }
    }

    fn keep(&self, pem: &str) -> Outcome {
        if self.pem()?.as_deref() == Some(pem) {
            return Ok(());
        }
        durable::write_atomic(&self.0, pem.as_bytes(), 0o644).or_hint(
            format!("cannot write {}", self.0.display()),
            "check the folder's rights and the room on its disk",
        )
    }
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

async fn trust(State(door): State<Door>, Json(question): Json<TrustQuestion>) -> Response {
    match trust_of(&door.registry, &question.known, OffsetDateTime::now_utc()) {
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

fn trust_of(registry: &Registry, known: &str, now: OffsetDateTime) -> Outcome<TrustAnswer> {
    let issuing: &dyn Issuing = registry;
    let records = registry.authority_records(now);
    let mut authorities = Vec::new();
    let mut tag = String::new();
    for kind in CaKind::ALL {
        for (id, certificate) in issuing.told_to_cameras(kind, now) {
            let der = pki::cert::to_der(&certificate).or_hint("an authority", "check pki")?;
            let is_replaced = is_replaced(&records, id);
            tag.push_str(&format!("{id} {is_replaced};"));
            authorities.push(ToldAuthority {
                id: id.to_string(),
                certificate: Base64(der),
                is_replaced,
            });
        }
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
        content: content.transpose()?,
    })
}

/// Whether certificates by this authority, which cameras know, are to be replaced: it was revoked, and another one issues.
fn is_replaced(records: &[AuthorityRecord], id: AuthorityId) -> bool {
    let revoked = |record: &AuthorityRecord| record.id == id && record.is_revoked;
    let successor = |record: &AuthorityRecord| {
        let issues = record.state == AuthorityState::Issuing;
        issues && record.id.kind() == id.kind() && !record.is_revoked
    };
    records.iter().any(revoked) && records.iter().any(successor)
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
        Failure::new(error, "name its key under [[registry_for.hosts]] there")
    })?;
    let foreign = question
        .names
        .iter()
        .find(|name| !host.names.contains(name));
    if let Some(name) = foreign {
        let error = anyhow::anyhow!("{name} is no name of the host {}", host.name);
        return Err(Failure::new(
            error,
            "name it under [[registry_for.hosts]] on the registry's host",
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
    let host = door.hosts.of(&caller).map(|host| host.name.clone());
    match host.map(|_| taken(&door, &announcement)) {
        Some(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Some(Err(failure)) => {
            let error = failure.message();
            tracing::error!(error, "the centre's sealing certificates are not taken");
            (StatusCode::BAD_REQUEST, error).into_response()
        }
        None => StatusCode::FORBIDDEN.into_response(),
    }
}

fn taken(door: &Door, announcement: &Announcement) -> Outcome {
    const HINT: &str = "see the log of the centre's host";
    let chain = pki::cert::CertificateChain::from_pem(&announcement.recipients_pem);
    let certificates = chain.or_hint("the sealing certificates are damaged", HINT)?;
    let now = OffsetDateTime::now_utc();
    for der in certificates.ders() {
        let validated = door.registry.trust().validate(
            std::slice::from_ref(der),
            pki::path::Purpose::Recipient,
            now,
        );
        validated.or_hint("a sealing certificate is refused", HINT)?;
    }
    door.announced.keep(&announcement.recipients_pem)
}
