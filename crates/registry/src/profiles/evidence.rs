//! What shows, at a start, that the profiles in the database were put in force.
//!
//! ```text
//! row ─► its event in the log ─► its request, the newest one of the name ─► approvals: signatures and certificates
//! ```
//!
//! Where acts need approvals no row is believed. What contradicts the log or a later request stops the start. What an order put
//! in force, or fewer approvals than are needed by now, waits: nothing is issued by it until it is approved, also not by the
//! profile of this name that is built in, which may say more. Whether the log has later changes than the database,
//! [`Completeness`](crate::Completeness) shows.

use std::collections::BTreeMap;

use access::{PersonRecord, Role};
use approval::{Act, Approval, People, Request, State};
use audit::rows::TRANSACTION;
use audit::{Event, Outcome};
use event_catalogue::registry::ProfileChanged;
use pki::cert;
use pki::path::Purpose;
use pki::profile::CaKind;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use store::sqlx;
use time::OffsetDateTime;

use super::{InForce, ProfileRecord};
use crate::requests::RequestError;
use crate::{Approvals, Registry, RegistryError};

/// Name, file, request, seconds and nanoseconds of the change, index of its event.
type Row = (String, String, Option<String>, i64, u32, Option<i64>);

/// A request for a change that was carried out.
struct CarriedOut {
    id: String,
    at: OffsetDateTime,
}

/// Those who signed, as their certificates say who they are: which role they had, was asked when the request was carried out,
/// and whether they have it still does not matter to what has been in force since.
#[derive(Default)]
struct Signers {
    people: BTreeMap<String, PersonRecord>,
    certificates: BTreeMap<String, Vec<u8>>,
}

impl People for Signers {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        self.people.get(uid).cloned()
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        self.certificates.get(sha256).cloned()
    }
}

impl Registry {
    /// Reads what was put in force before.
    pub(crate) async fn load_profiles(&self) -> Result<(), RegistryError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT name, definition, request, changed_at, changed_nanos, entry FROM profiles",
        )
        .fetch_all(self.inner.sql.read())
        .await?;
        let needs_approval = self.inner.config.registration.approvals == Approvals::Required;
        let mut newest = match needs_approval {
            true => self.newest_changes().await?,
            false => BTreeMap::new(),
        };
        for (name, text, request, seconds, nanos, entry) in rows {
            let newest = newest.remove(&name);
            let at = crate::records::instant(seconds)?.replace_nanosecond(nanos);
            let at = at.map_err(|_| RegistryError::Corrupt("time"))?;
            let mut one = InForce::new(name, text, request, at)?;
            if needs_approval {
                let waits = self.unapproved(&one.record, entry, at, newest).await?;
                one.record.waits = one.record.waits.or(waits);
            }
            if let Some(why) = &one.record.waits {
                let name = &one.record.name;
                tracing::warn!(profile = %name, reason = %why, "nothing is issued by a profile until it is approved");
            }
            self.inner.profiles.put(one);
        }
        match newest.into_keys().next() {
            Some(missing) => Err(RegistryError::ProfileMissing(missing)),
            None => Ok(()),
        }
    }

    /// The newest change of each profile that a request brought about.
    async fn newest_changes(&self) -> Result<BTreeMap<String, CarriedOut>, RegistryError> {
        let rows: Vec<(String, Vec<u8>, i64)> = sqlx::query_as(
            "SELECT r.id, r.content, h.at FROM requests r JOIN request_history h
                 ON h.request = r.id AND h.step = r.act
             WHERE r.act = 'change-profile' AND r.state IN ('issued', 'delivered')
             ORDER BY h.rowid",
        )
        .fetch_all(self.inner.sql.read())
        .await?;
        let mut newest = BTreeMap::new();
        for (id, content, at) in rows {
            let request: Request =
                serde_json::from_slice(&content).map_err(|_| RegistryError::Corrupt("request"))?;
            if let Act::ChangeProfile { profile, .. } = request.act() {
                let at = crate::records::instant(at)?;
                newest.insert(profile.clone(), CarriedOut { id, at });
            }
        }
        Ok(newest)
    }

    /// Explains that a profile is not to be in force; `None` if it is, an error where database and log contradict one another.
    async fn unapproved(
        &self,
        record: &ProfileRecord,
        entry: Option<i64>,
        changed: OffsetDateTime,
        newest: Option<CarriedOut>,
    ) -> Result<Option<String>, RegistryError> {
        let contradicted = || RegistryError::ProfileNotApproved(record.name.clone());
        let Some(entry) = entry else {
            let why =
                "an earlier version put it in force, which did not note where the log says so";
            return Ok(Some(why.to_owned()));
        };
        let event = self.event_of(entry).await?;
        let committed: i64 = sqlx::query_scalar("SELECT committed FROM writing")
            .fetch_one(self.inner.sql.read())
            .await?;
        let event = event.filter(|event| tells_of(event, record, changed, committed));
        let Some(event) = event else {
            return match self.has_lost_log().await? {
                true => Ok(Some("the log that says so was lost".to_owned())),
                false => Err(contradicted()),
            };
        };
        match (&record.request, newest) {
            (None, Some(later)) if later.at > event.at => Err(contradicted()),
            (None, _) => Ok(Some("it was put in force by an order".to_owned())),
            (Some(id), Some(newest)) if *id == newest.id => self.disapproved(record, id).await,
            (Some(_), _) => Err(contradicted()),
        }
    }

    /// The event at an index of the log.
    async fn event_of(&self, entry: i64) -> Result<Option<Event>, RegistryError> {
        let Ok(index) = u64::try_from(entry) else {
            return Ok(None);
        };
        let audit = std::sync::Arc::clone(&self.inner.audit);
        let read = self.inner.pool.run(move || audit.event(index));
        let read = read.await.map_err(|_| RegistryError::Interrupted)?;
        read.map_err(RegistryError::Audit)
    }

    /// Explains that the approvals of a change are not enough; `None` if they are.
    async fn disapproved(
        &self,
        record: &ProfileRecord,
        id: &str,
    ) -> Result<Option<String>, RegistryError> {
        let contradicted = || RegistryError::ProfileNotApproved(record.name.clone());
        let found = match self.request(id).await {
            Ok(found) => found,
            Err(RequestError::Unknown(_)) => return Err(contradicted()),
            Err(RequestError::Registry(error)) => return Err(error),
            Err(_) => return Err(RegistryError::Corrupt("request")),
        };
        let request = found.request;
        let is_same = matches!(request.act(), Act::ChangeProfile { profile, definition, .. }
            if *profile == record.name && *definition == record.text);
        let carried_out = matches!(request.state(),
            State::Issued { result, .. } | State::Delivered { result, .. } if *result == record.sha256);
        if !is_same || !carried_out {
            return Err(contradicted());
        }
        // A file that this version does not accept waits for that reason.
        let Ok(bound) = self.bound(request.act()) else {
            return Ok(None);
        };
        let mut signers = Signers::default();
        for approval in request.state().approvals() {
            for der in &found.certificates {
                self.note_signer(&mut signers, approval, der).await?;
            }
        }
        let policy = &self.inner.config.registration.policy;
        let checked = request.check_carried_out(&record.sha256, policy, &signers, None, bound);
        Ok(checked.err().map(|refusal| refusal.to_string()))
    }

    /// Takes a certificate for that of an approval, if it was issued here, was good at that time, and says who approved.
    async fn note_signer(
        &self,
        signers: &mut Signers,
        approval: &Approval,
        der: &[u8],
    ) -> Result<(), RegistryError> {
        if cert::fingerprint_sha256(der) != approval.certificate_sha256() {
            return Ok(());
        }
        let chain = [CertificateDer::from(der)];
        let path = self
            .inner
            .trust
            .validate_path(&chain, Purpose::ClientUser, approval.at());
        let Ok((identity, _)) = path else {
            return Ok(());
        };
        let known: Option<(Vec<u8>, Option<i64>)> = sqlx::query_as(
            "SELECT i.certificate, r.at FROM issued i
                 LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial
             WHERE i.authority = ? AND i.serial = ?",
        )
        .bind(CaKind::Users.name())
        .bind(&identity.serial_hex)
        .fetch_optional(self.inner.sql.read())
        .await?;
        let revoked_before =
            |at: Option<i64>| at.is_some_and(|at| at < approval.at().unix_timestamp());
        let counts = known.is_some_and(|(known, at)| known == der && !revoked_before(at));
        if !counts || identity.uid.as_deref() != Some(approval.uid()) {
            return Ok(());
        }
        let person = PersonRecord {
            uid: approval.uid().to_owned(),
            name: identity.common_name.clone(),
            organisation: String::new(),
            clearance: identity.clearance,
            roles: [Role::Administrator].into(),
            units: std::collections::BTreeSet::new(),
            active: true,
        };
        signers.people.insert(person.uid.clone(), person);
        let sha256 = approval.certificate_sha256().to_owned();
        signers.certificates.insert(sha256, der.to_vec());
        Ok(())
    }
}

/// Tells whether an event is that of the change which a record shows, at the same time, in a transaction that was committed.
fn tells_of(
    event: &Event,
    record: &ProfileRecord,
    changed: OffsetDateTime,
    committed: i64,
) -> bool {
    // Events have milliseconds.
    let milliseconds = |at: OffsetDateTime| at.unix_timestamp_nanos().div_euclid(1_000_000);
    let text = |name: &str| event.details.get(name).and_then(Value::as_str);
    let transaction = event.details.get(TRANSACTION).and_then(Value::as_i64);
    event.action == ProfileChanged::ACTION
        && event.outcome == Outcome::Ok
        && milliseconds(event.at) == milliseconds(changed)
        && event.resource == format!("profile/{}", record.name)
        && text("sha256") == Some(&record.sha256)
        && text("request") == record.request.as_deref()
        && transaction.is_some_and(|number| number <= committed)
}
