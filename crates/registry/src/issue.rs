//! Issuing on order, with a record of each certificate.

use approval::Act;
use audit::{Actor, Event, Outcome};
use der::Encode as _;
use event_catalogue::{Recorded as _, registry as events};
use pki::cert::{self, CertificateChain};
use pki::clearance::Clearance;
use pki::issue::{CertificateRequest, Validity};
use pki::key::KeyError;
use pki::name::{AltName, Subject};
use pki::profile::{CaKind, Definition, Presence, Profile};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use pki::spki::{SubjectPublicKeyInfoOwned, spki_sha256};

use crate::admission::{supersede_unused, superseded_events};
use crate::batch::{Decision, Issuance};
use crate::certificate_order::Order;
use crate::generation::AuthorityId;
use crate::key_use;
use crate::lists::OwnShard;
use crate::origin::Origin;
use crate::protocol::Protocol;
use crate::requests::check_new_key;
use crate::signing::Signing;
use crate::{Registry, RegistryError, Warrant, holders};

/// Lineage of the certificates that a device got with one-time codes; serial numbers are
/// hexadecimal, so none of them is called like this.
const ENROLMENT: &str = "enrolment";
/// Lineage of the certificate that a person got by the founding of the site.
pub(crate) const FOUNDING: &str = "founding";

/// A certificate just issued.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate and its issuing authority's, as TLS and PKCS#12 want them.
    pub chain: CertificateChain,
    /// Which authority issued it.
    pub authority: CaKind,
    /// Serial number, as [`pki::cert::serial_hex`] writes it.
    pub serial: String,
    /// Last instant of validity.
    pub not_after: OffsetDateTime,
}

/// An order, or what the site has made for itself.
struct Ordered {
    order: Order,
    origin: Origin,
    actor: Actor,
    /// Of an order; used up by the certificate.
    warrant: Option<Warrant>,
    now: OffsetDateTime,
}

impl Issuance for Ordered {
    type Error = RegistryError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, RegistryError> {
        let approved = self.warrant.as_ref().and_then(Warrant::approved);
        // Of two approved requests for one key, only the first is carried out.
        if let Some(Act::Issue { spki_sha256, .. }) = approved.map(|approved| approved.act()) {
            check_new_key(&mut **tx, spki_sha256).await?;
        }
        // Of two runs of a founding only one certifies a person.
        if matches!(self.origin, Origin::Founding) {
            let spki = spki_sha256(&self.order.spki).map_err(|_| KeyError::Malformed)?;
            check_new_key(&mut **tx, &spki).await?;
        }
        // Inside of the transaction: no profile changes meanwhile.
        if let Some(approved) = approved {
            registry.check_profile_seen(self.order.profile, approved.request())?;
        }
        let (order, origin, actor, now) = (&self.order, &self.origin, &self.actor, self.now);
        let issued = registry.issue_in(tx, order, origin, actor, signing, now);
        let Some((issued, mut events)) = issued.await? else {
            return Ok(Decision::Unsigned);
        };
        if let Some(warrant) = self.warrant.take() {
            events.extend(registry.finish_in(tx, warrant, &issued.serial, now).await?);
        }
        Ok(Decision::Issued(Box::new(issued), events))
    }
}

impl Registry {
    /// Issues a certificate; recorded in database and audit log when this returns.
    ///
    /// # Errors
    /// [`RegistryError::NotALeaf`], [`RegistryError::Issue`] with the authority's reason,
    /// [`RegistryError::NotCovered`] for something else than was approved, or a server of the network, which is invited;
    /// [`RegistryError::Audit`] or [`RegistryError::Store`]; then nothing was issued.
    pub async fn issue(
        &self,
        order: Order,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        if order.profile == Profile::NetworkServer {
            return Err(RegistryError::NotCovered("profile"));
        }
        self.check_order(&warrant, &order).await?;
        let turn = self.begin_warrant(&warrant, now).await?;
        let outcome = self.on_behalf(&warrant).issue_by(order, warrant, now).await;
        self.end_warrant(turn, outcome).await
    }

    async fn issue_by(
        &self,
        order: Order,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let (actor, mut signing) = (warrant.by().clone(), Signing::default());
        let request = warrant
            .approved()
            .map(|approved| approved.request().id().0.clone());
        if request.is_none() {
            self.sign_first(&order, &actor, &mut signing, now).await?;
        }
        let ordered = Ordered {
            order,
            origin: Origin::Order { request },
            actor: actor.clone(),
            warrant: Some(warrant),
            now,
        };
        self.issue_together(ordered, signing, &actor, now).await
    }

    /// Has the certificate of a direct order signed before anything is looked up, so that it needs the database once.
    async fn sign_first(
        &self,
        order: &Order,
        actor: &Actor,
        signing: &mut Signing,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        self.inner.config.clock.check(now)?;
        let kind = order.profile.issued_by().ok_or(RegistryError::NotALeaf)?;
        let (id, request) = self.requested(order, self.issuing(kind)?.id, signing, now)?;
        if let Err(refused) = self.check_key_list(&order.spki) {
            let event = event(&request, id, actor.clone(), Outcome::Deny, now);
            self.record(event.with_reason(refused.to_string())).await?;
            return Err(refused);
        }
        self.sign_outside(signing, actor, now).await
    }

    /// Makes the request that an authority is to sign for an order, `issuing` unless the order names another one; `signing`
    /// knows it from then on.
    fn requested(
        &self,
        order: &Order,
        issuing: AuthorityId,
        signing: &mut Signing,
        now: OffsetDateTime,
    ) -> Result<(AuthorityId, CertificateRequest), RegistryError> {
        let id = order.issuer.unwrap_or(issuing);
        let (_, end) = self.authority(id)?.validity();
        let definition = self.definition(order.profile)?;
        let mut request = self.complete(order, &definition, end, now);
        request.definition = Some(definition);
        let shard = self.shard_of(signing, id)?;
        request.crl_url = shard.map(|shard| shard.crl_url.clone());
        request.freshest_crl_url = shard.map(|shard| shard.delta_url.clone());
        request.issuer_url = self.inner.config.ca_url(&id.to_string());
        signing.want(id, &request);
        Ok((id, request))
    }

    /// Issues a certificate for a service of this site, which has it made for itself.
    ///
    /// # Errors
    /// As [`Self::issue`]; [`RegistryError::NotCovered`] for a profile of anybody else.
    pub async fn issue_own(
        &self,
        order: Order,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        if holders::has_state(order.profile).is_some() {
            return Err(RegistryError::NotCovered("profile"));
        }
        let ordered = Ordered {
            order,
            origin: Origin::Own,
            actor: actor.clone(),
            warrant: None,
            now,
        };
        let signing = Signing::default();
        self.issue_together(ordered, signing, &actor, now).await
    }

    /// Issues a certificate for whoever signs OCSP responses about what this authority issued. Each signs for itself, also
    /// one that issues nothing else yet or any more (RFC 6960, section 4.2.2.2).
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub async fn issue_ocsp_signer(
        &self,
        issuer: AuthorityId,
        subject: Subject,
        spki: SubjectPublicKeyInfoOwned,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let mut order = Order::new(Profile::OcspSigner(issuer.kind()), subject, spki);
        order.issuer = Some(issuer);
        self.issue_own(order, actor, now).await
    }

    /// Issues a certificate for a person.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub async fn issue_user(
        &self,
        subject: Subject,
        spki: SubjectPublicKeyInfoOwned,
        clearance: Clearance,
        administrator: bool,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let order = Order::new(Profile::User { administrator }, subject, spki);
        self.issue(order.with_clearance(clearance), warrant, now)
            .await
    }

    /// Issues a certificate for a device called `name`.
    ///
    /// # Errors
    /// As [`Self::issue`], and [`RegistryError::DeviceName`].
    pub async fn issue_device(
        &self,
        name: &str,
        spki: SubjectPublicKeyInfoOwned,
        clearance: Clearance,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        crate::codes::check_device_name(name)?;
        let order = Order::new(Profile::Device, Subject::new(name), spki);
        self.issue(order.with_clearance(clearance), warrant, now)
            .await
    }

    /// Issues a certificate for a device that only opens tunnels: no block that it signed is evidence, and
    /// none that it sends is taken.
    ///
    /// # Errors
    /// As [`Self::issue_device`].
    pub async fn issue_vpn_device(
        &self,
        name: &str,
        spki: SubjectPublicKeyInfoOwned,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        crate::codes::check_device_name(name)?;
        let order = Order::new(Profile::VpnDevice, Subject::new(name), spki);
        self.issue(order.with_clearance(Clearance::Unclassified), warrant, now)
            .await
    }

    /// Issues a certificate for a TLS server reachable under `names`; the first is its CN.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub async fn issue_server(
        &self,
        names: Vec<AltName>,
        spki: SubjectPublicKeyInfoOwned,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let order = Order::new(Profile::Server, Subject::new(host(&names)), spki);
        self.issue_own(order.with_alt_names(names), actor, now)
            .await
    }

    /// Issues a certificate for a gateway reachable under `names`; the first is its CN, by which the
    /// registry knows it. It renews over EST.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub async fn issue_gateway(
        &self,
        names: Vec<AltName>,
        spki: SubjectPublicKeyInfoOwned,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let name = host(&names);
        if let Some(name) = self.not_for_gateways(&names).await? {
            return Err(RegistryError::NameOfTheSite(name));
        }
        let order = Order::new(Profile::Gateway, Subject::new(name), spki);
        self.issue(order.with_alt_names(names), warrant, now).await
    }

    /// Issues a certificate for a central role: [`Profile::ServiceSigner`] or
    /// [`Profile::ServiceRecipient`].
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub async fn issue_service(
        &self,
        profile: Profile,
        name: &str,
        spki: SubjectPublicKeyInfoOwned,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        self.issue_own(Order::new(profile, Subject::new(name), spki), actor, now)
            .await
    }

    /// Issues inside a transaction, in which the state of the holder is read; gives the events that are to be recorded before
    /// it is committed. `None` if the certificate is to be [signed](Self::sign_outside) first.
    pub(crate) async fn issue_in(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        order: &Order,
        origin: &Origin,
        actor: &Actor,
        signing: &mut Signing,
        now: OffsetDateTime,
    ) -> Result<Option<(Issued, Vec<Event>)>, RegistryError> {
        self.inner.config.clock.check(now)?;
        let kind = order.profile.issued_by().ok_or(RegistryError::NotALeaf)?;
        // As the database has it: another generation may have taken over since the certificate was signed.
        let issuing = self.issuing_in(tx, kind).await?;
        let (id, request) = self.requested(order, issuing, signing, now)?;
        let authority = self.authority(id)?;
        let subject = &request.subject;
        let holder = match (kind, &subject.uid) {
            (CaKind::Users, Some(uid)) => uid.clone(),
            _ => subject.common_name.clone(),
        };
        let spki = spki_sha256(&order.spki).map_err(|_| KeyError::Malformed)?;
        let admitted = match holders::admit_issuing(tx, order.profile, &holder, now).await {
            Ok(()) => {
                self.check_key(tx, order, origin, (&spki, kind, &holder))
                    .await
            }
            refused => refused,
        };
        if let Err(e) = admitted {
            let event = event(&request, id, actor.clone(), Outcome::Deny, now);
            self.record(event.with_reason(e.to_string())).await?;
            return Err(e);
        }
        let Some(certificate) = signing.take() else {
            return Ok(None);
        };
        let shard = signing.shard();
        let chain = CertificateChain::new(vec![certificate, authority.certificate().clone()])?;
        let serial = cert::serial_hex(chain.leaf());
        let lineage = match origin {
            Origin::Order { .. } | Origin::Own => serial.clone(),
            Origin::Founding => FOUNDING.to_owned(),
            Origin::Enrolment => ENROLMENT.to_owned(),
            Origin::Invitation(invited) => invited.id.clone(),
            Origin::Renewal { lineage, .. } => lineage.clone(),
        };
        // A renewal that comes late takes the place of nothing: somebody may have kept it on its way, to end by it the
        // certificate that its sender has got since. The first that is used ends the others.
        let may_be_late = self.protocol.is_some_and(Protocol::may_come_late)
            && matches!(origin, Origin::Renewal { .. });
        let replaced = match may_be_late {
            true => Vec::new(),
            false => supersede_unused(tx, kind, &holder, &lineage, now).await?,
        };
        // A second certificate of a person is no secret: its event says how many there are.
        let others: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM issued i WHERE i.authority = ?1 AND i.holder_id = ?2
             AND i.superseded_at IS NULL AND i.not_after > ?3 AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
        )
        .bind(kind.name())
        .bind(&holder)
        .bind(now.unix_timestamp())
        .fetch_one(&mut **tx)
        .await?;
        sqlx::query(
            "INSERT INTO issued (authority, serial, profile, holder, uid, clearance, spki_sha256,
                issued_at, not_after, certificate, holder_id, lineage, renewal, shard, generation)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(kind.name())
        .bind(&serial)
        .bind(order.profile.to_string())
        .bind(&request.subject.common_name)
        .bind(&request.subject.uid)
        .bind(request.clearance.map(|c| i64::from(c.level())))
        .bind(&spki)
        .bind(now.unix_timestamp())
        .bind(request.validity.not_after.unix_timestamp())
        .bind(cert::to_der(chain.leaf())?)
        .bind(&holder)
        .bind(lineage)
        .bind(matches!(origin, Origin::Renewal { .. }))
        .bind(shard.map(OwnShard::number))
        .bind(id.generation())
        .execute(&mut **tx)
        .await?;
        if let Some(shard) = shard {
            shard.note(tx, id).await?;
        }
        let mut events = superseded_events(kind, &holder, actor, &replaced, &serial, now);
        let issued_event = events::Issued {
            serial: Some(serial.clone()),
            others: u64::try_from(others).ok(),
            fingerprint: Some(chain.leaf_fingerprint()),
            spki_sha256: Some(spki),
            origin: Some(origin.kind().name().to_owned()),
            profile_sha256: self.changed_profile(order.profile),
            renews: origin.renews().map(str::to_owned),
            invitation: origin.invitation().map(str::to_owned),
            ..requested(&request, id)
        };
        let name = &request.subject.common_name;
        let object = format!("certificate/{kind}/{name}");
        let issued_event = issued_event.into_event(now, actor.clone(), object);
        let issued_event = match &order.archived {
            Some(key) => key.told(issued_event),
            None => issued_event,
        };
        events.push(origin.explained(issued_event));
        let issued = Issued {
            chain,
            authority: kind,
            serial,
            not_after: request.validity.not_after,
        };
        if let Some(key) = &order.archived {
            key.keep(tx, issued.authority, &issued.serial).await?;
        }
        Ok(Some((issued, events)))
    }

    /// Whether the holder may have a certificate for the key of an order. By enrolment and invitation this was asked before,
    /// with the words of these.
    async fn check_key(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        order: &Order,
        origin: &Origin,
        (spki, kind, holder): (&str, CaKind, &str),
    ) -> Result<(), RegistryError> {
        self.check_key_list(&order.spki)?;
        match origin {
            Origin::Order { .. } | Origin::Founding => {
                key_use::check_key(tx, spki, Some((kind, holder))).await
            }
            _ => Ok(()),
        }
    }

    /// Refuses a key of [`Config::weak_keys`](crate::Config).
    pub(crate) fn check_key_list(
        &self,
        spki: &SubjectPublicKeyInfoOwned,
    ) -> Result<(), RegistryError> {
        let der = spki.to_der().map_err(|_| KeyError::Malformed)?;
        match self.inner.config.weak_keys.has(&der) {
            true => Err(RegistryError::KeyListed),
            false => Ok(()),
        }
    }

    fn complete(
        &self,
        order: &Order,
        definition: &Definition,
        issuer_end: OffsetDateTime,
        now: OffsetDateTime,
    ) -> CertificateRequest {
        let config = &self.inner.config;
        let mut subject = order.subject.clone();
        subject
            .organisation
            .get_or_insert_with(|| config.organisation.clone());
        if subject.country.is_none() {
            subject.country.clone_from(&config.country);
        }
        let lifetime = config.lifetimes.of(order.profile);
        let lifetime = definition.lifetime().unwrap_or(lifetime).min(lifetime);
        let mut validity = Validity::starting(now, lifetime);
        // In an authority's last year its leaves live shorter, rather than there being none.
        validity.not_after = validity.not_after.min(issuer_end);
        let spki = order.spki.clone();
        let mut request = CertificateRequest::new(order.profile, subject, spki, validity);
        request.alt_names.clone_from(&order.alt_names);
        request.clearance = order.clearance;
        // Such a certificate does not say it: who sees it is not concerned with that.
        if definition.clearance() == Presence::None {
            request.clearance = order.clearance.filter(|one| *one > Clearance::Unclassified);
        }
        if let Some(account) = &order.account {
            request
                .alt_names
                .push(AltName::Upn(account.principal.clone()));
            request.sid = Some(account.sid.clone());
        }
        request.ocsp_url.clone_from(&config.ocsp_url);
        request
    }
}

/// Issues what a founding has verified.
pub(crate) async fn issue_founded(
    registry: &Registry,
    order: Order,
    actor: Actor,
    now: OffsetDateTime,
) -> Result<Issued, RegistryError> {
    let ordered = Ordered {
        order,
        origin: Origin::Founding,
        actor: actor.clone(),
        warrant: None,
        now,
    };
    registry
        .issue_together(ordered, Signing::default(), &actor, now)
        .await
}

/// The first name of a server.
fn host(names: &[AltName]) -> String {
    match names.first() {
        Some(AltName::Dns(host)) => host.clone(),
        Some(AltName::Ip(address)) => address.to_string(),
        _ => String::from("server"),
    }
}

pub(crate) fn event(
    request: &CertificateRequest,
    id: AuthorityId,
    actor: Actor,
    outcome: Outcome,
    now: OffsetDateTime,
) -> Event {
    let (kind, name) = (id.kind(), &request.subject.common_name);
    let object = format!("certificate/{kind}/{name}");
    requested(request, id).ended(outcome, now, actor, object)
}

/// What the event of a certificate says of its request.
fn requested(request: &CertificateRequest, id: AuthorityId) -> events::Issued {
    let principal = request.alt_names.iter().rev().find_map(|name| match name {
        AltName::Upn(principal) => Some(principal.clone()),
        _ => None,
    });
    let names = (request.profile == Profile::NetworkServer).then(|| {
        let names = request.alt_names.iter().filter_map(|name| match name {
            AltName::Dns(host) => Some(host.as_str()),
            _ => None,
        });
        names.collect::<Vec<&str>>().join(" ")
    });
    events::Issued {
        profile: Some(request.profile.to_string()),
        issuer: Some(id.to_string()),
        clearance: request.clearance.map(|clearance| clearance.level().into()),
        uid: request.subject.uid.clone(),
        unit: request.subject.unit.clone(),
        sid: request.sid.as_ref().map(|sid| sid.as_str().to_owned()),
        principal,
        names,
        serial: None,
        others: None,
        fingerprint: None,
        spki_sha256: None,
        origin: None,
        profile_sha256: None,
        renews: None,
        invitation: None,
    }
}
