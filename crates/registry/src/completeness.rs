//! Whether every certificate came about as the rules say: from the log alone, without the registry's database.
//!
//! The log says of each certificate how it came about, and of each approved act who approved it, with the approvers'
//! signatures and certificates. [`Completeness`] takes the events in order, then certificates that are known by other
//! means (the registry's book, what a TLS server has seen), and says what does not fit.

mod book;
mod founding;
mod generations;
mod invited;
mod keys;
mod profiles;
mod recorded;
mod report;
mod standing;
mod tracked;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use approval::{Act, Policy, RecordedApproval, act_of};
use audit::rows::{LOSS, ROWS};
use audit::{Event, Outcome};
use error_report::Report;
use event_catalogue::registry::{
    self as events, AuthorityActivated, Invited, ProfileChanged, Revoked, Settled,
};
use event_catalogue::request::{Interrupted, PREFIX};
use event_catalogue::{Details as _, Recorded as _, context};
use pki::Certificate;
use pki::cert;
use pki::path::{Identity, Purpose, TrustError, TrustStore};
use pki::profile::CaKind;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use time::OffsetDateTime;

use self::founding::Founding;
use self::generations::Generations;
use self::invited::{Offered, Offers};
use self::keys::Keys;
use self::profiles::Profiles;
use self::recorded::Recorded;
pub use self::report::{CompletenessReport, Gap};
use self::standing::Standings;
use self::tracked::{
    Approved, Archived, CarriedOut, Tracked, request_of, transaction_of, version_of,
};
use crate::founding::is_founding;
use crate::origin::OriginKind;
use crate::records::InBook;
use crate::sha256::sha256;

/// Goes through a log; see the [module](self).
pub struct Completeness {
    trust: TrustStore,
    authorities: Vec<Certificate>,
    policy: Policy,
    requests: BTreeMap<String, Tracked>,
    /// By fingerprint.
    recorded: HashMap<String, Recorded>,
    /// Serial numbers so far, by authority.
    serials: BTreeSet<(String, String)>,
    /// Issuing generation of each authority.
    generations: Generations,
    profiles: Profiles,
    /// Invitations, by identifier.
    offered: BTreeMap<String, Offered>,
    /// Devices with a one-time code.
    invited: BTreeSet<String>,
    /// Holders of a certificate so far, by authority and name.
    holders: BTreeSet<(String, String)>,
    /// Revoked certificates, by authority and serial number, with the transactions.
    revoked: BTreeMap<(String, String), u64>,
    /// Those that the registry's book has.
    revoked_in_book: BTreeSet<(String, String)>,
    standings: Standings,
    keys: Keys,
    founding: Founding,
    /// Archived keys by the events, by serial number.
    archived: BTreeMap<String, Archived>,
    /// Hashes of the rows of the registry's book, the newest last.
    rows: VecDeque<String>,
    last: Option<OffsetDateTime>,
    report: CompletenessReport,
}

/// Hashes of rows that are kept: a site that runs writes on while its log is read.
const ROWS_KEPT: usize = 10_000;

impl Completeness {
    /// Begins with the site's authorities, whose root the caller knows to be the true one, and the numbers of approvals
    /// that the site wants.
    ///
    /// # Errors
    /// Certificates that are none of authorities.
    pub fn new(
        root: &Certificate,
        authorities: &[Certificate],
        policy: Policy,
    ) -> Result<Self, TrustError> {
        Ok(Self {
            trust: TrustStore::new(std::slice::from_ref(root), authorities)?,
            authorities: authorities.to_vec(),
            policy,
            requests: BTreeMap::new(),
            recorded: HashMap::new(),
            serials: BTreeSet::new(),
            generations: Generations::default(),
            profiles: Profiles::default(),
            offered: BTreeMap::new(),
            invited: BTreeSet::new(),
            holders: BTreeSet::new(),
            revoked: BTreeMap::new(),
            revoked_in_book: BTreeSet::new(),
            standings: Standings::default(),
            keys: Keys::default(),
            founding: Founding::default(),
            archived: BTreeMap::new(),
            rows: VecDeque::new(),
            last: None,
            report: CompletenessReport::default(),
        })
    }

    /// Takes the next event of the log.
    pub fn note(&mut self, entry: u64, event: &Event) {
        self.last = Some(event.at);
        if is_founding(event) {
            let root = self.trust.roots().next();
            let refused = self.founding.noted(entry, event, root);
            if let Some(what) = refused {
                self.gap(entry, what);
            }
            return;
        }
        if event.role == "site" && event.action == LOSS {
            // The database that counts from here on begins its numbers anew.
            return self.opened_anew();
        }
        if event.role != "registry" {
            return;
        }
        if let Some(rows) = event.details.get(ROWS).and_then(Value::as_str) {
            self.rows.push_back(rows.to_owned());
            let over = self.rows.len().saturating_sub(ROWS_KEPT);
            self.rows.drain(..over);
        }
        match event.action.as_str() {
            Interrupted::ACTION => self.interrupted(event),
            _ if Settled::is(event) => self.opened(transaction_of(event)),
            _ if event.outcome != Outcome::Ok => {}
            events::Issued::ACTION => self.issued(entry, event),
            AuthorityActivated::ACTION => {
                let transaction = transaction_of(event);
                if !self.generations.activated(entry, transaction, event) {
                    self.gap(entry, "an authority was put to use that is none");
                }
            }
            ProfileChanged::ACTION => {
                let transaction = transaction_of(event);
                if !self.profiles.changed(entry, transaction, event) {
                    self.gap(
                        entry,
                        "a profile was changed, and the event does not say which",
                    );
                }
            }
            Revoked::ACTION => {
                let serial = event.details.get("serial").and_then(Value::as_str);
                let authority = event.resource.split('/').nth(1);
                let one = authority.zip(serial);
                let at = transaction_of(event);
                let one = one.map(|(authority, serial)| ((authority.into(), serial.into()), at));
                self.revoked.extend(one);
            }
            Invited::ACTION => match Offered::of_event(event) {
                Some((id, offered)) => {
                    self.offered.insert(id, offered);
                }
                None => {
                    let device = event.resource.strip_prefix("device/");
                    self.invited.extend(device.map(str::to_owned));
                }
            },
            _ if self.standings.changed(entry, event) => {}
            action => {
                if let Some(step) = action.strip_prefix(PREFIX) {
                    self.step(entry, step, event);
                }
            }
        }
    }

    /// Of what was recorded so far, transactions after `committed` have no effect.
    fn opened(&mut self, committed: u64) {
        self.recorded.retain(|_, one| one.transaction <= committed);
        self.archived.retain(|_, one| one.transaction <= committed);
        self.revoked
            .retain(|_, transaction| *transaction <= committed);
        self.standings.opened(committed);
        self.generations.opened(committed);
        self.profiles.opened(committed);
    }

    /// Keeps all that took effect so far, whatever later transactions are called.
    fn opened_anew(&mut self) {
        self.rows.clear();
        let recorded = self.recorded.values_mut();
        recorded.for_each(|one| one.transaction = 0);
        let archived = self.archived.values_mut();
        archived.for_each(|one| one.transaction = 0);
        let revoked = self.revoked.values_mut();
        revoked.for_each(|transaction| *transaction = 0);
        self.standings.opened_anew();
    }

    fn issued(&mut self, entry: u64, event: &Event) {
        let Some((fingerprint, mut one)) = Recorded::of_event(entry, event) else {
            return self.gap(entry, "an issued certificate without serial number");
        };
        let archived = context::Archived::of(event);
        if let Some(archived) = archived.and_then(|archived| archived.archived_sha256) {
            let archived = Archived {
                entry,
                transaction: one.transaction,
                digest: archived,
                in_book: false,
            };
            self.archived.insert(one.serial.clone(), archived);
        }
        let serial = (one.authority.clone(), one.serial.clone());
        if !self.serials.insert(serial) {
            let what = format!(
                "{}: serial number {} is there twice",
                one.authority, one.serial
            );
            self.gap(entry, what);
        }
        one.foreign = self.generations.unexplained(&one.profile, one.issuer);
        let file = one.profile_sha256.as_deref();
        one.off_profile = self.profiles.unexplained(&one.profile, file);
        if one.authority == CaKind::Users.name() {
            self.keys
                .issued(&one, self.founding.differs(&one).is_none());
        }
        let holder = (one.authority.clone(), one.holder.clone());
        let first = self.holders.insert(holder);
        one.prepared = match one.origin {
            Some(OriginKind::Enrolment) => self.invited.contains(&one.holder),
            Some(OriginKind::Invitation) => one
                .invitation
                .as_ref()
                .is_some_and(|id| self.offered.contains_key(id)),
            Some(OriginKind::Renewal) => !first,
            _ => true,
        };
        self.recorded.insert(fingerprint, one);
    }

    fn step(&mut self, entry: u64, step: &str, event: &Event) {
        let id = request_of(event);
        let request = self.requests.entry(id.clone()).or_default();
        let (version, former) = (version_of(event), request.last.0);
        request.last = (version, request.approvals.clone());
        if version <= former && former > 0 {
            let what = format!("request {id}: {step} made version {version}, which was there");
            self.gap(entry, what);
        }
        let request = self.requests.entry(id.clone()).or_default();
        match step {
            "approve" => self.approved(entry, &id, event),
            // The content is another one, or begins anew: approvals so far count no more.
            "draft" | "edit" | "return" | "submit" | "withdraw" | "refuse" => {
                request.approvals.clear();
            }
            carried_out => self.carried_out(entry, &id, carried_out, event),
        }
    }

    fn approved(&mut self, entry: u64, id: &str, event: &Event) {
        match self.approval(event) {
            Ok((approval, serial)) => {
                self.report.approvals += 1;
                let request = self.requests.entry(id.to_owned()).or_default();
                let act = approval.act;
                request
                    .approvals
                    .insert(approval.uid, Approved { act, serial });
            }
            Err(why) => {
                let what = format!("approval of request {id} by {}: {why}", event.actor.id);
                self.gap(entry, what);
            }
        }
    }

    /// The approval of an event with its certificate's serial number, if it counts; else the reason.
    fn approval(&self, event: &Event) -> Result<(RecordedApproval, String), String> {
        let approval =
            RecordedApproval::verify(event).map_err(|error| Report(&error).to_string())?;
        let chain = [CertificateDer::from(approval.certificate.as_slice())];
        let identity: Identity = self
            .trust
            .validate_path(&chain, Purpose::ClientUser, event.at)
            .map_err(|error| Report(&error).to_string())?
            .0;
        let serial = (CaKind::Users.name().to_owned(), identity.serial_hex.clone());
        let refused = if identity.uid.as_deref() != Some(&approval.uid) {
            "the certificate is another person's"
        } else if !self.recorded.contains_key(&identity.fingerprint) {
            // An authority's key could make an approver whom nobody knows.
            "the certificate is in no event before it"
        } else if self.revoked.contains_key(&serial) {
            "the certificate was revoked before"
        } else if approval.act.granted() > Some(identity.clearance) {
            "the certificate clears for less than was approved"
        } else if !self.keys.is_own(&identity.serial_hex)
            || !cert::from_der(&approval.certificate)
                .is_ok_and(|certificate| cert::has_non_repudiation(&certificate))
        {
            "the centre made the certificate's key, or had it"
        } else {
            return Ok((approval, identity.serial_hex));
        };
        Err(refused.to_owned())
    }

    fn carried_out(&mut self, entry: u64, id: &str, step: &str, event: &Event) {
        let act = match act_of(event) {
            Ok(act) if act.name() == step => act,
            _ => {
                let what = format!("request {id}: a step {step:?} that is no act");
                return self.gap(entry, what);
            }
        };
        *self.report.acts.entry(step.to_owned()).or_default() += 1;
        if let Act::RecoverKey { serial, .. } = &act {
            self.recovered(entry, id, serial, event);
        }
        let wanted = self.policy.approvals_before(&act);
        let request = self.requests.entry(id.to_owned()).or_default();
        // Who was retired, suspended or disabled after the signature does not count any more.
        let (standings, revoked) = (&self.standings, &self.revoked);
        let stands = |uid: &str, serial: &str| {
            let users = CaKind::Users.name();
            let key = (users.to_owned(), serial.to_owned());
            standings.is_enrolled(users, uid) && !revoked.contains_key(&key)
        };
        let found = request.approvals_of(&act, stands);
        let result = event.details.get("result").and_then(Value::as_str);
        let twice = request.carried_out.is_some();
        request.carried_out = Some(CarriedOut {
            entry,
            version: version_of(event),
            act,
            result: result.unwrap_or_default().to_owned(),
            at: event.at,
            enough: found >= wanted,
        });
        if twice {
            self.gap(entry, format!("request {id} was carried out once more"));
        }
        if found < wanted {
            let what = format!("request {id}: {step} with {found} of {wanted} approvals");
            self.gap(entry, what);
        }
    }

    /// What was given out is what was archived with the certificate: the site, which can open neither, could not tell.
    fn recovered(&mut self, entry: u64, id: &str, serial: &str, event: &Event) {
        let given = context::Archived::of(event);
        let given = given.and_then(|given| given.archived_sha256);
        let archived = self.archived.get(serial);
        let archived = archived.map(|archived| archived.digest.as_str());
        if given.is_none() || given.as_deref() != archived {
            let what = format!("request {id} gave out another key than was archived for {serial}");
            self.gap(entry, what);
        }
    }

    /// A step that ended between its event and its effect: the registry recorded that it had none. Its event is there
    /// or not; a certificate's may be there before it.
    fn interrupted(&mut self, event: &Event) {
        let (id, version) = (request_of(event), version_of(event));
        let request = self.requests.entry(id.clone()).or_default();
        if request.last.0 == version {
            request.approvals = std::mem::take(&mut request.last.1);
            request.last.0 = version.saturating_sub(1);
        }
        if let Some(done) = request.carried_out.take_if(|done| done.version == version) {
            let acts = self.report.acts.entry(done.act.name().to_owned());
            acts.and_modify(|count| *count = count.saturating_sub(1));
        }
        let done = request.carried_out.as_ref();
        let result = done.map(|done| done.result.clone());
        self.recorded.retain(|_, one| {
            one.request.as_ref() != Some(&id)
                || one.invitation.is_some()
                || Some(&one.serial) == result.as_ref()
        });
    }

    /// Looks for a certificate that somebody has seen. One that none of the issuing authorities signed is none of the
    /// registry's.
    pub fn look_for(&mut self, der: &[u8]) {
        self.compare(der, false);
    }

    /// Looks for a row of the registry's book.
    pub fn look_for_of_book(&mut self, row: InBook<'_>) {
        match row {
            InBook::Certificate(der) => self.compare(der, true),
            InBook::ArchivedKey { serial, message } => {
                self.compare_archived(serial, &sha256(message));
            }
            InBook::Revoked {
                authority,
                serial,
                is_ordered,
            } => {
                let key = (authority.to_owned(), serial.to_owned());
                if is_ordered && !self.revoked.contains_key(&key) {
                    let what =
                        format!("the revocation of certificate {serial} is in no event of the log");
                    self.report.gaps.push(Gap { entry: None, what });
                }
                self.revoked_in_book.insert(key);
            }
            InBook::Holder {
                authority,
                holder,
                state,
                is_disabled,
            } => {
                let compared = self
                    .standings
                    .compare((authority, holder), state, is_disabled);
                let gap = compared.map(|(entry, what)| Gap { entry, what });
                self.report.gaps.extend(gap);
            }
        }
    }

    /// Ends. `book` says that all rows of the registry's book were looked for.
    #[must_use]
    pub fn finish(mut self, book: bool) -> CompletenessReport {
        let recorded = std::mem::take(&mut self.recorded);
        let mut recorded: Vec<Recorded> = recorded.into_values().collect();
        recorded.sort_by_key(|one| one.entry);
        let offered = std::mem::take(&mut self.offered);
        let requests = std::mem::take(&mut self.requests);
        let offers = Offers::new(&offered, &requests, &recorded);
        for one in &recorded {
            let origin = one.origin.map_or("unknown", OriginKind::name);
            *self
                .report
                .certificates
                .entry(origin.to_owned())
                .or_default() += 1;
            let request = one.request.as_ref().and_then(|id| requests.get(id));
            let unexplained = match one.origin {
                Some(OriginKind::Founding) => self.founding.unexplained(one),
                _ if one.is_invited() => offers.unexplained(one),
                _ => one.unexplained(request.and_then(|request| request.carried_out.as_ref())),
            };
            let unexplained = unexplained.or_else(|| one.foreign.clone());
            let unexplained = unexplained.or_else(|| one.off_profile.clone());
            let lost = (book && !one.in_book)
                .then(|| "it is recorded as issued, and not in the registry's book".to_owned());
            for what in unexplained.into_iter().chain(lost) {
                let what = format!("certificate {} of {}: {what}", one.serial, one.holder);
                self.gap(one.entry, what);
            }
        }
        let missing: Vec<String> = self.founding.missing().collect();
        for what in missing {
            self.gap(0, what);
        }
        let approved = |id: &str, result: &str| {
            let request = requests.get(id);
            let done = request.and_then(|request| request.carried_out.as_ref());
            done.is_some_and(|done| done.enough && done.result == result)
        };
        let unapproved: Vec<_> = self.generations.unapproved(approved).collect();
        for (entry, what) in unapproved {
            self.gap(entry, what);
        }
        let revoked = std::mem::take(&mut self.revoked);
        for key in revoked.into_keys().filter(|_| book) {
            if !self.revoked_in_book.contains(&key) {
                let serial = key.1;
                let what =
                    format!("certificate {serial} was revoked, and is not in the registry's book");
                self.report.gaps.push(Gap { entry: None, what });
            }
        }
        let missing: Vec<_> = self.standings.missing().filter(|_| book).collect();
        for (entry, what) in missing {
            self.gap(entry, what);
        }
        let archived = std::mem::take(&mut self.archived);
        for (serial, one) in archived.iter().filter(|(_, one)| book && !one.in_book) {
            let what = format!(
                "the archived key of certificate {serial} is not in the registry's book any more"
            );
            self.gap(one.entry, what);
        }
        let carried_out = |id: &str| requests.get(id)?.carried_out.as_ref();
        for (entry, what) in self.profiles.unapproved(carried_out) {
            self.gap(entry, what);
        }
        self.requests = requests;
        self.overdue();
        self.report
    }

    /// Emergencies whose further approvals did not come in time.
    fn overdue(&mut self) {
        let mut late = Vec::new();
        for (id, request) in &self.requests {
            let Some(done) = &request.carried_out else {
                continue;
            };
            let wanted = self.policy.confirmations(&done.act);
            let found = request.approvals_of(&done.act, |_, _| true);
            let confirm_within = self.policy.confirm_within();
            let waited = self
                .last
                .is_some_and(|last| last - done.at > confirm_within);
            if done.enough && found < wanted && waited {
                let what =
                    format!("request {id}: {found} of {wanted} approvals, and the time is over");
                late.push((done.entry, what));
            }
        }
        for (entry, what) in late {
            self.gap(entry, what);
        }
    }

    fn gap(&mut self, entry: u64, what: impl Into<String>) {
        self.report.gaps.push(Gap {
            entry: Some(entry),
            what: what.into(),
        });
    }
}
