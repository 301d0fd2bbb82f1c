//! The registry of another host.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use error_report::Report;
use peering::{Kind, Peer};
use pkcs8::der::Encode as _;
use pkcs8::spki::SubjectPublicKeyInfoOwned;
use pki::cert::{Certificate, CertificateChain};
use pki::path::TrustStore;
use pki::profile::CaKind;
use portal::Coming;
use registry::{AuthorityId, PublishedList};
use service_kit::{Health, every};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::seam::{Issuing, Own};
use super::wire::{
    ANNOUNCE, Announcement, Base64, ISSUE, IssueAnswer, IssueQuestion, LONGEST_ANSWER, OCSP,
    OcspAnswer, OcspQuestion, OwnName, TRUST, TrustAnswer, TrustContent, TrustQuestion, tag_of,
};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::peers::ask;

/// Interval between questions about authorities and lists.
const EVERY: Duration = Duration::from_secs(1);
/// Time without an answer after which health calls it a problem.
const SILENT: Duration = Duration::from_secs(10);
const HINT: &str =
    "check that the registry's host runs, its address and its key under [registry_host]";

/// What the registry's host said last.
struct Known {
    tag: String,
    issues: bool,
    authorities: Vec<Authority>,
    lists: Lists,
    /// Tag of the sealing certificates that the peer keeps.
    recipients: String,
    heard: Instant,
}

struct Authority {
    id: AuthorityId,
    certificate: Certificate,
    is_told: bool,
    is_replaced: bool,
}

struct State {
    peer: Arc<Peer>,
    root: Certificate,
    trust: TrustStore,
    clock: ClockFloor,
    known: RwLock<Known>,
}

/// Asks a peer. Clones are the same.
#[derive(Clone)]
pub(crate) struct Remote(Arc<State>);

impl Remote {
    /// Asks until the peer answers, as nothing can be done without. None when `stop` comes first.
    pub(crate) async fn connect(
        peer: Arc<Peer>,
        clock: ClockFloor,
        stop: &CancellationToken,
    ) -> Outcome<Option<Self>> {
        loop {
            match question(&peer, "").await {
                Ok(answer) => return Self::of(peer, clock, answer).map(Some),
                Err(failure) => {
                    let error = failure.message();
                    tracing::warn!(error, "waiting for the registry's host");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = stop.cancelled() => return Ok(None),
            }
        }
    }

    fn of(peer: Arc<Peer>, clock: ClockFloor, answer: TrustAnswer) -> Outcome<Self> {
        let content = answer.content.ok_or_else(|| incomplete("no authorities"))?;
        let root = pki::cert::from_der(&content.root.0).or_hint("the root", HINT)?;
        let trust = TrustStore::new(std::slice::from_ref(&root), &[]).or_hint("the root", HINT)?;
        let (authorities, lists) = taken(&trust, &content, &[])?;
        let known = Known {
            tag: answer.tag,
            issues: answer.issues,
            authorities,
            lists,
            recipients: answer.recipients,
            heard: Instant::now(),
        };
        Ok(Self(Arc::new(State {
            peer,
            root,
            trust,
            clock,
            known: RwLock::new(known),
        })))
    }

    /// The registry's host.
    pub(crate) fn peer(&self) -> Arc<Peer> {
        Arc::clone(&self.0.peer)
    }

    /// What paths of certificates are validated with.
    pub(crate) fn trust(&self) -> TrustStore {
        self.0.trust.clone()
    }

    /// Asks for changes until `stop`.
    pub(crate) async fn follow(self, stop: CancellationToken) -> Outcome {
        every(EVERY, stop, || async {
            if let Err(failure) = self.look().await {
                let error = failure.message();
                tracing::warn!(error, "authorities and lists are as they were");
            }
        })
        .await
    }

    async fn look(&self) -> Outcome {
        let tag = self.read(|known| known.tag.clone());
        let answer = question(&self.0.peer, &tag).await?;
        let content = match &answer.content {
            Some(content)
                if content.root.0 != pki::cert::to_der(&self.0.root).unwrap_or_default() =>
            {
                return Err(incomplete("another root"));
            }
            Some(content) => {
                let lists = self.read(|known| known.lists.clone());
                Some(taken(&self.0.trust, content, &lists)?)
            }
            None => None,
        };
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        (known.issues, known.heard) = (answer.issues, Instant::now());
        known.recipients = answer.recipients;
        if let Some((authorities, lists)) = content {
            (known.tag, known.authorities, known.lists) = (answer.tag, authorities, lists);
        }
        Ok(())
    }

    /// Tells the registry's host which certificates cameras are to seal to, unless it knows.
    pub(crate) async fn announce(&self, recipients_pem: String) -> Outcome {
        if self.read(|known| known.recipients == tag_of(&recipients_pem)) {
            return Ok(());
        }
        let announcement = Announcement { recipients_pem };
        let told = ask(
            &self.0.peer,
            Kind::Quick,
            ANNOUNCE,
            &announcement,
            LONGEST_ANSWER,
        )
        .await;
        told.or_hint(
            "the registry's host does not take the sealing certificates",
            HINT,
        )
    }

    /// What a person has to know of the way to the registry's host.
    pub(crate) fn health(&self) -> Health {
        let silent = self.read(|known| known.heard.elapsed());
        let mut health = Health::default();
        if silent >= SILENT {
            let (address, seconds) = (self.0.peer.address(), silent.as_secs());
            health.problems.push(format!(
                "the registry's host at {address} has not answered for {seconds} seconds: all callers are refused"
            ));
        }
        health
    }

    fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.0.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn question(peer: &Peer, known: &str) -> Outcome<TrustAnswer> {
    let known = known.to_owned();
    let answer = ask(
        peer,
        Kind::Long,
        TRUST,
        &TrustQuestion { known },
        LONGEST_ANSWER,
    )
    .await;
    answer.or_hint("the registry's host does not say whom to trust", HINT)
}

type Lists = Vec<(Option<AuthorityId>, PublishedList)>;
type Taken = (Vec<Authority>, Lists);

/// Reads authorities and lists, and has `trust` know them.
fn taken(
    trust: &TrustStore,
    content: &TrustContent,
    known: &[(Option<AuthorityId>, PublishedList)],
) -> Outcome<Taken> {
    let id = |text: &str| {
        text.parse::<AuthorityId>()
            .or_hint(format!("the authority {text}"), HINT)
    };
    let mut authorities = Vec::new();
    for told in &content.authorities {
        authorities.push(Authority {
            id: id(&told.id)?,
            certificate: pki::cert::from_der(&told.certificate.0).or_hint("an authority", HINT)?,
            is_told: told.is_told,
            is_replaced: told.is_replaced,
        });
    }
    let certificates: Vec<Certificate> = authorities
        .iter()
        .map(|one| one.certificate.clone())
        .collect();
    trust
        .add_intermediates(&certificates)
        .or_hint("the authorities", HINT)?;
    let now = OffsetDateTime::now_utc();
    let mut lists = Vec::new();
    for list in &content.lists {
        let of = list.of.as_deref().map(id).transpose()?;
        let new = PublishedList::new(list.der.0.clone().into());
        let is_known = known.iter().any(|(_, known)| known.tag == new.tag);
        // Holds are asked for at each request, and end there at once.
        let accepted = is_known
            || match trust.accept_own_crl(&list.der.0, now) {
                Ok(_) => true,
                Err(error) => {
                    let of = list.of.as_deref().unwrap_or("root");
                    tracing::warn!(error = %Report(&error), of, "a revocation list is not used");
                    false
                }
            };
        if accepted {
            lists.push((of, new));
        }
    }
    Ok((authorities, lists))
}

fn incomplete(what: &str) -> Failure {
    let error = anyhow::anyhow!("the registry's host answers with {what}");
    Failure::new(error, HINT)
}

impl Issuing for Remote {
    fn root(&self) -> Certificate {
        self.0.root.clone()
    }

    fn told_to_cameras(
        &self,
        kind: CaKind,
        _now: OffsetDateTime,
    ) -> Vec<(AuthorityId, Certificate)> {
        self.read(|known| {
            let all = known.authorities.iter();
            let of_kind = all.filter(|one| one.id.kind() == kind && one.is_told);
            of_kind
                .map(|one| (one.id, one.certificate.clone()))
                .collect()
        })
    }

    fn lists(&self, _now: OffsetDateTime) -> Vec<(Option<AuthorityId>, PublishedList)> {
        self.read(|known| known.lists.clone())
    }

    fn ocsp_response<'a>(
        &'a self,
        certificate: &'a Certificate,
        _now: OffsetDateTime,
    ) -> Coming<'a, Option<Arc<[u8]>>> {
        Box::pin(async move {
            let certificate = Base64(pki::cert::to_der(certificate).ok()?);
            let question = OcspQuestion { certificate };
            let answer = ask(&self.0.peer, Kind::Quick, OCSP, &question, LONGEST_ANSWER).await;
            match answer {
                Ok(OcspAnswer { response }) => response.map(|der| der.0.into()),
                Err(error) => {
                    tracing::warn!(error = %Report(&error), "no OCSP response");
                    None
                }
            }
        })
    }

    fn is_revoked(&self, certificate: &Certificate, now: OffsetDateTime) -> bool {
        self.0.trust.status().is_revoked(certificate, now).is_some()
    }

    fn is_replaced(&self, certificate: &Certificate, _now: OffsetDateTime) -> bool {
        let issuer = &certificate.tbs_certificate.issuer;
        self.read(|known| {
            let all = known.authorities.iter();
            let mut by = all.filter(|one| one.certificate.tbs_certificate.subject == *issuer);
            // One that is not told of issues no more.
            by.next().is_none_or(|one| one.is_replaced)
        })
    }

    fn is_clock_right(&self, now: OffsetDateTime) -> bool {
        self.0.clock.check(now).is_ok()
    }

    fn issues(&self, _now: OffsetDateTime) -> bool {
        self.read(|known| known.issues)
    }

    fn issue<'a>(
        &'a self,
        own: Own,
        spki: SubjectPublicKeyInfoOwned,
        names: &'a [String],
        _now: OffsetDateTime,
    ) -> Coming<'a, Outcome<CertificateChain>> {
        Box::pin(async move {
            let own = match own {
                Own::Server => OwnName::Server,
                Own::Receipts => OwnName::Receipts,
                Own::TrustBundle => OwnName::TrustBundle,
                Own::Sealing(number) => OwnName::Sealing(number),
                Own::Cmp | Own::Scep => return Err(incomplete("no such certificates")),
            };
            let spki = spki.to_der().or_hint("the key", HINT)?;
            let question = IssueQuestion {
                own,
                spki: Base64(spki),
                names: names.to_vec(),
            };
            let answer = ask(&self.0.peer, Kind::Long, ISSUE, &question, LONGEST_ANSWER).await;
            match answer.or_hint("no certificate", HINT)? {
                IssueAnswer::Chain(ders) => {
                    let ders = ders.into_iter().map(|der| der.0);
                    CertificateChain::from_ders(ders.collect::<Vec<_>>())
                        .or_hint("the certificate is damaged", HINT)
                }
                IssueAnswer::Refused { message, hint } => {
                    Err(Failure::new(anyhow::anyhow!("{message}"), hint))
                }
            }
        })
    }
}
