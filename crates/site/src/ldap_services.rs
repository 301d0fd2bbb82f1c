//! The directory's people, rules and records, as the LDAP listener asks for them.

mod uses;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::{Action, Context, Credential, Principal, Resource};
use audit::{Actor, Event};
use event_catalogue::context::{LookUp, Repeated};
use event_catalogue::site::{DirectoryBound, DirectoryUseCounted};
use event_catalogue::{Details as _, Recorded as _};
use ldap::{Ended, Refused, Services, Standing};
use ldap_directory::{
    Authority, Bound, Content, Fetched, Late, Member, Name, NameError, Tree, View,
};
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use portal::Epoch;
use registry::{AuthorityId, CrlName, published_certificates};
use time::OffsetDateTime;

use crate::gate::{Gate, at_address};
use crate::parts::Site;
use uses::Uses;

/// Age up to which a check of a bind is used again, unless the directory changed meanwhile. Our choice: what the registry
/// takes away counts within a second, and a client that asks a thousand times in it costs one check.
const CHECKED: Duration = Duration::from_secs(1);
/// Different contents of copies that are remembered. Our choice: a site has one or two replicas; with more searches than this, each
/// refresh may send everything.
const MAX_COPIES: usize = 32;
/// Name of the root's entry.
const ROOT: &str = "root";

/// See the module; clones are handles to one.
#[derive(Clone)]
pub(crate) struct LdapServices(Arc<Inner>);

struct Inner {
    site: Site,
    gate: Gate,
    base: Name,
    tree: Mutex<Option<Known>>,
    /// Held by the one that makes the tree.
    making: tokio::sync::Mutex<()>,
    binds: Mutex<Uses>,
    searches: Mutex<Uses>,
    copies: Mutex<Copies>,
}

/// States of what clients keep copies of.
#[derive(Default)]
struct Copies {
    /// Hash and number by the search that gives the content.
    known: HashMap<String, (Vec<u8>, String)>,
    /// The greatest number that was given.
    last: Option<OffsetDateTime>,
}

impl Copies {
    /// See [`Services::csn`]. A start forgets the states, and each client gets everything once.
    fn csn(&mut self, key: String, hash: Vec<u8>, now: OffsetDateTime) -> String {
        if let Some((known, csn)) = self.known.get(&key)
            && *known == hash
        {
            return csn.clone();
        }
        if self.known.len() >= MAX_COPIES && !self.known.contains_key(&key) {
            self.known.clear();
        }
        // Greater than every number before it, also after the clock went back.
        let least = self.last.map(|last| last + time::Duration::MICROSECOND);
        let at = least.map_or(now, |least| least.max(now));
        self.last = Some(at);
        let (date, clock) = (at.date(), at.time());
        let csn = format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}.{:06}Z#000000#000#000000",
            date.year(),
            u8::from(date.month()),
            date.day(),
            clock.hour(),
            clock.minute(),
            clock.second(),
            clock.microsecond()
        );
        self.known.insert(key, (hash, csn.clone()));
        csn
    }
}

/// Entries of one state of the directory.
struct Known {
    changes: u64,
    tree: Arc<Tree>,
}

/// A person who is bound.
pub(crate) struct Identity {
    uid: String,
    from: IpAddr,
    proof: Proof,
    checked: Mutex<Option<Checked>>,
}

enum Proof {
    Password(Epoch),
    Certificate(PeerCertificates),
}

#[derive(Clone)]
struct Checked {
    at: Instant,
    /// State of the directory.
    changes: u64,
    principal: Principal,
}

impl LdapServices {
    pub(crate) fn new(site: &Site, gate: Gate) -> Result<Self, NameError> {
        Ok(Self(Arc::new(Inner {
            base: site.config.ldap_base()?,
            site: site.clone(),
            gate,
            tree: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            binds: Mutex::default(),
            searches: Mutex::default(),
            copies: Mutex::default(),
        })))
    }

    /// Records how many binds, searches and refusals were only counted, once their interval is over.
    pub(crate) async fn record_counted(&self) {
        self.0.gate.record_counted_refusals().await;
        for (counted, uses) in [("binds", &self.0.binds), ("searches", &self.0.searches)] {
            let due = lock(uses).due(Instant::now());
            for (uid, count) in due {
                let now = OffsetDateTime::now_utc();
                let counted = counted.to_owned();
                let actor = Actor::user(uid.clone(), uid.clone());
                let event = DirectoryUseCounted { counted }.into_event(now, actor, "ldap");
                // Without a record the count waits for the next one.
                let _ = self.0.note(event, uses, &uid, count).await;
            }
        }
    }
}

impl Inner {
    fn changes(&self) -> u64 {
        *self.site.directory.changes().borrow()
    }

    fn known_tree(&self) -> Option<Arc<Tree>> {
        let changes = self.changes();
        let known = lock(&self.tree);
        let known = known.as_ref().filter(|known| known.changes == changes);
        known.map(|known| Arc::clone(&known.tree))
    }

    async fn make_tree(&self) -> Option<Arc<Tree>> {
        let _turn = self.making.lock().await;
        if let Some(tree) = self.known_tree() {
            return Some(tree);
        }
        // What changes while people are read has another tree made.
        let changes = self.changes();
        let people = match self.site.directory.list().await {
            Ok(people) => people,
            Err(error) => {
                tracing::error!(%error, "the directory cannot be read for LDAP");
                return None;
            }
        };
        let active = people.into_iter().filter(|person| person.active);
        let members = active.map(|person| Member {
            clearance: person.clearance.level(),
            roles: person
                .roles
                .iter()
                .map(|role| role.name().to_owned())
                .collect(),
            units: person.units,
            uid: person.uid,
            name: person.name,
            given_name: person.given_name,
            surname: person.surname,
            mail: person.email,
            organisation: person.organisation,
        });
        let kinds = CaKind::ALL.iter().map(|kind| kind.name());
        let authorities = std::iter::once(ROOT).chain(kinds).map(|name| Authority {
            name: name.to_owned(),
        });
        let content = Content {
            base: self.base.clone(),
            organisation: self.site.config.site.organisation.clone(),
            namespace: self.site.config.site.log_origin.clone(),
            members: members.collect(),
            authorities: authorities.collect(),
        };
        let made = tokio::task::spawn_blocking(move || Arc::new(Tree::new(&content))).await;
        let tree = made
            .inspect_err(|error| tracing::error!(%error, "the entries for LDAP cannot be made"))
            .ok()?;
        for uid in tree.hidden() {
            tracing::warn!(
                uid,
                "LDAP does not show a person: the user id of another one differs in case only"
            );
        }
        let known = Known {
            changes,
            tree: Arc::clone(&tree),
        };
        *lock(&self.tree) = Some(known);
        Some(tree)
    }

    /// The person behind a bind, as they are now.
    async fn principal(&self, identity: &Identity) -> Result<Principal, Ended> {
        // Before the check: a change during it has the next request check again.
        let changes = self.changes();
        let checked = lock(&identity.checked).clone();
        if let Some(checked) = checked
            && checked.changes == changes
            && checked.at.elapsed() < CHECKED
        {
            return Ok(checked.principal);
        }
        let from = Some(identity.from);
        let found = match &identity.proof {
            Proof::Password(epoch) => self.gate.session(&identity.uid, *epoch, from).await,
            Proof::Certificate(peer) => self.gate.person(peer, from).await,
        };
        let principal = found.map_err(|refused| match refused.temporary {
            true => Ended::Unknown,
            false => Ended::Lost,
        })?;
        *lock(&identity.checked) = Some(Checked {
            at: Instant::now(),
            changes,
            principal: principal.clone(),
        });
        Ok(principal)
    }

    fn view(&self, principal: &Principal) -> View {
        let may = |action| {
            let decision = self.site.access.decide(
                principal,
                action,
                &Resource::system(),
                &Context::default(),
            );
            decision.allowed
        };
        View {
            contacts: may(Action::DirectoryLookUp),
            rights: may(Action::DirectoryRead),
        }
    }

    /// Binds a person, once that is recorded.
    async fn bind(
        &self,
        principal: Principal,
        proof: Proof,
        from: IpAddr,
        dn: Option<&str>,
    ) -> Result<Bound<Identity>, Refused> {
        // A person who was disabled a moment ago has lost the entry.
        let dn = dn.ok_or_else(|| refused("this person has lost the entry in the directory"))?;
        let method = match principal.credential() {
            Credential::Certificate { .. } => "external",
            Credential::Password | Credential::Console => "simple",
        };
        let uid = principal.uid();
        let more = lock(&self.binds).note(uid, Instant::now());
        if let Some(more) = more {
            let method = method.to_owned();
            let actor = Actor::user(principal.uid(), principal.name());
            let now = OffsetDateTime::now_utc();
            let event = DirectoryBound { method }.into_event(now, actor, "ldap");
            let event = at_address(event, Some(from));
            self.note(event, &self.binds, uid, more).await?;
        }
        Ok(Bound {
            dn: dn.to_owned(),
            identity: Identity {
                uid: principal.uid().to_owned(),
                from,
                proof,
                checked: Mutex::default(),
            },
        })
    }

    /// Writes the event of a use that reports `more` others.
    async fn note(
        &self,
        event: Event,
        uses: &Mutex<Uses>,
        uid: &str,
        more: u64,
    ) -> Result<(), Refused> {
        let not_recorded = (more > 0).then_some(more);
        let event = Repeated { not_recorded }.add_to(event);
        let is_written = self.gate.note(event).await;
        lock(uses).wrote(is_written, uid, more, Instant::now());
        is_written.then_some(()).ok_or_else(unavailable)
    }
}

impl Services for LdapServices {
    type Identity = Identity;

    async fn tree(&self) -> Option<Arc<Tree>> {
        match self.0.known_tree() {
            Some(tree) => Some(tree),
            None => self.0.make_tree().await,
        }
    }

    async fn by_password(
        &self,
        name: &Name,
        password: &str,
        from: IpAddr,
    ) -> Result<Bound<Identity>, Refused> {
        let tree = self.tree().await.ok_or_else(unavailable)?;
        let wrong = || refused("the name or the password is wrong");
        let typed = name.first("uid").filter(|_| tree.is_for_people(name));
        // An unknown name takes as long as a known one, and is throttled like it.
        let uid = tree.uid_of(name).or(typed).ok_or_else(wrong)?;
        let found = self.0.gate.password(uid, password, Some(from)).await;
        let (principal, epoch) = found.map_err(of_gate)?;
        let tree = self.tree().await.ok_or_else(unavailable)?;
        let dn = tree.dn_of(principal.uid());
        self.0
            .bind(principal, Proof::Password(epoch), from, dn)
            .await
    }

    async fn by_certificate(
        &self,
        peer: PeerCertificates,
        authorization: Option<&str>,
        from: IpAddr,
    ) -> Result<Bound<Identity>, Refused> {
        let principal = self
            .0
            .gate
            .person(&peer, Some(from))
            .await
            .map_err(of_gate)?;
        let tree = self.tree().await.ok_or_else(unavailable)?;
        let dn = tree.dn_of(principal.uid());
        if !authorization.is_none_or(|name| is_name_of(name, &principal, &tree)) {
            return Err(refused("a certificate acts for its own holder only"));
        }
        self.0
            .bind(principal, Proof::Certificate(peer), from, dn)
            .await
    }

    async fn standing(&self, identity: &Identity) -> Result<Standing, Ended> {
        let principal = self.0.principal(identity).await?;
        Ok(Standing {
            uid: identity.uid.clone(),
            view: self.0.view(&principal),
        })
    }

    async fn record(&self, identity: &Identity, shape: &str) -> Result<(), Refused> {
        let principal = self
            .0
            .principal(identity)
            .await
            .map_err(|_| unavailable())?;
        let action = Action::DirectoryLookUp;
        let resource = Resource::system();
        let decision =
            self.0
                .site
                .access
                .decide(&principal, action, &resource, &Context::default());
        let more = lock(&self.0.searches).note(principal.uid(), Instant::now());
        if let Some(more) = more {
            let event = decision.event(OffsetDateTime::now_utc(), &principal, action, &resource);
            let filter = Some(shape.to_owned());
            let event = LookUp { filter }.add_to(event);
            let searches = &self.0.searches;
            self.0.note(event, searches, principal.uid(), more).await?;
        }
        match decision.allowed {
            true => Ok(()),
            false => Err(refused(&decision.reasons.join("; "))),
        }
    }

    fn csn(&self, key: String, hash: Vec<u8>) -> String {
        lock(&self.0.copies).csn(key, hash, OffsetDateTime::now_utc())
    }

    async fn fetch(&self, late: &Late) -> Option<Fetched> {
        let (registry, now) = (&self.0.site.registry, OffsetDateTime::now_utc());
        match late {
            Late::Certificates(uid) => {
                let certificates = published_certificates(registry, uid, now).await;
                let certificates = certificates.inspect_err(|error| {
                    tracing::error!(%error, "certificates for LDAP cannot be read");
                });
                Some(Fetched {
                    user_certificates: certificates.ok()?,
                    ..Fetched::default()
                })
            }
            Late::Authority(name) if name == ROOT => {
                let certificate = pki::cert::to_der(registry.root()).ok()?;
                Some(of_authority(vec![certificate], [CrlName::Root], registry))
            }
            Late::Authority(name) => {
                let records = registry.authority_records(now).into_iter();
                let records = records.filter(|one| one.is_needed && one.id.kind().name() == name);
                let records: Vec<_> = records.collect();
                let ids: Vec<AuthorityId> = records.iter().map(|one| one.id).collect();
                let certificates = records.iter();
                let certificates =
                    certificates.filter_map(|one| pki::cert::to_der(&one.certificate).ok());
                let lists = ids.into_iter().map(CrlName::Issuing);
                Some(of_authority(certificates.collect(), lists, registry))
            }
        }
    }
}

fn of_authority(
    authority_certificates: Vec<Vec<u8>>,
    lists: impl IntoIterator<Item = CrlName>,
    registry: &registry::Registry,
) -> Fetched {
    let lists = lists.into_iter().filter_map(|name| registry.crl(name));
    Fetched {
        authority_certificates,
        revocation_lists: lists.map(|list| list.to_vec()).collect(),
        ..Fetched::default()
    }
}

/// Whether an authorization identity (RFC 4513, section 5.2.1.8) is the person's own.
fn is_name_of(name: &str, principal: &Principal, tree: &Tree) -> bool {
    if let Some(uid) = name.strip_prefix("u:") {
        return uid == principal.uid();
    }
    let name = name.strip_prefix("dn:").map(Name::parse);
    name.is_some_and(|name| name.is_ok_and(|name| tree.uid_of(&name) == Some(principal.uid())))
}

fn refused(message: &str) -> Refused {
    Refused {
        message: message.to_owned(),
        is_temporary: false,
    }
}

fn unavailable() -> Refused {
    Refused {
        message: "the server cannot answer now: try again in a minute".to_owned(),
        is_temporary: true,
    }
}

fn of_gate(reason: portal::Refused) -> Refused {
    match reason.temporary {
        true => unavailable(),
        false => refused(&reason.message),
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-28 12:00 UTC);

    #[test]
    fn csn_changes_with_the_content_and_only_grows() {
        let mut copies = Copies::default();
        let mut csn = |hash: u8, now| copies.csn("all".to_owned(), vec![hash], now);
        let first = csn(1, NOW);
        assert_eq!(first, "20261128120000.000000Z#000000#000#000000");
        assert_eq!(csn(1, NOW + Duration::HOUR), first);
        let second = csn(2, NOW);
        // Back to the former content, and to a former time.
        let third = csn(1, NOW - Duration::HOUR);
        assert!(first < second && second < third, "{first} {second} {third}");
        assert_eq!(third, "20261128120000.000002Z#000000#000#000000");
    }

    #[test]
    fn states_of_copies_are_bounded() {
        let mut copies = Copies::default();
        for n in 0..200 {
            copies.csn(n.to_string(), vec![0], NOW);
            assert!(copies.known.len() <= MAX_COPIES);
        }
        let last = copies.csn("199".to_owned(), vec![0], NOW);
        assert_eq!(copies.csn("199".to_owned(), vec![0], NOW), last);
    }
}
