//! Another generation takes over: it is taken up beside the others, and then put to use.
//!
//! Each step is whole after a crash: a certificate in the folder is taken up when the registry is opened next, and which
//! generation issues changes in one transaction, after its event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use approval::Act;
use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::registry::{AuthorityActivated, AuthorityDropped, AuthorityReady};
use pki::Certificate;
use pki::issue::CertificateAuthority;
use pki::key::Passphrase;
use pki::profile::CaKind;
use store::sqlx;
use time::OffsetDateTime;

use crate::authority::{Authorities, Authority, Standing, Standings, standings};
use crate::generation::{AuthorityId, AuthorityState};
use crate::records::instant;
use crate::{Registry, RegistryError, Warrant, files};

/// Outcome of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activated {
    pub former: AuthorityId,
    pub issuing: AuthorityId,
}

/// The certificates that the folder has, and of those that cannot be used why not.
#[derive(Default)]
struct Found {
    certificates: BTreeMap<AuthorityId, Certificate>,
    unusable: BTreeMap<AuthorityId, String>,
}

impl Registry {
    /// Takes up certificates of authorities that came into the folder since it was opened, of new generations and of renewed
    /// ones. New generations have their lists from then on, and issue nothing until they are
    /// [put to use](Self::activate_authority). Gives those that are new.
    ///
    /// # Errors
    /// [`RegistryError`]: files, a wrong passphrase, database.
    pub async fn take_authorities(
        &self,
        passphrase: &Passphrase,
        now: OffsetDateTime,
    ) -> Result<Vec<AuthorityId>, RegistryError> {
        let before = self.held();
        self.load_authorities(passphrase, now).await?;
        self.note_authorities(now).await?;
        let held = self.held();
        let is_new = |id: &&AuthorityId| !before.all.contains_key(id);
        let new: Vec<AuthorityId> = held.all.keys().filter(is_new).copied().collect();
        for id in &new {
            if self.is_needed(&held, *id, now) {
                self.renew_crl(*id, now).await?;
            }
        }
        Ok(new)
    }

    /// Opens the authorities of the folder. Those that are open already, with the same certificate, stay as they are. What issues
    /// nothing and cannot be used is left out: a site does not end because of a file that it does not need.
    pub(crate) async fn load_authorities(
        &self,
        passphrase: &Passphrase,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let _turn = self.inner.authority_turn.lock().await;
        let standings = Standings(standings(self.inner.sql.read()).await?);
        let found = self.find_authorities(&standings, now)?;
        let mut standings = standings;
        for id in found.certificates.keys() {
            // Noted once the database was held against the log.
            standings.0.entry(*id).or_insert(Standing {
                state: AuthorityState::Ready,
                needed_until: None,
            });
        }
        let before = self.held();
        let mut held = Authorities {
            standings,
            unusable: found.unusable,
            ..Authorities::default()
        };
        for (id, certificate) in found.certificates {
            let known = before.all.get(&id);
            if let Some(known) = known.filter(|one| *one.certificate() == certificate) {
                held.all.insert(id, Arc::clone(known));
                continue;
            }
            let standing = held.standings.get(id);
            let issues = standing.is_some_and(|one| one.state == AuthorityState::Issuing);
            let is_over = standing.is_none_or(|one| one.is_over(now));
            // A key is derived from the passphrase, or a token asked: not of one that signs nothing any more.
            let key = match is_over {
                true => None,
                false => match self.load_key(passphrase, id).await {
                    Ok(key) => Some(key),
                    Err(error) if issues => return Err(error),
                    Err(error) => {
                        let error = error_report::Report(&error);
                        tracing::error!(%error, authority = %id, "its key cannot be used");
                        None
                    }
                },
            };
            let mut authority = Authority::new(id, certificate, key);
            if let Some(known) = known {
                authority.list_turn = Arc::clone(&known.list_turn);
            }
            held.all.insert(id, Arc::new(authority));
        }
        for kind in CaKind::ALL {
            held.issuing(kind)?;
        }
        for (id, reason) in &held.unusable {
            tracing::error!(%reason, authority = %id, "not used: it issues nothing");
        }
        let certificates = held.all.values().map(|one| one.certificate().clone());
        let certificates: Vec<Certificate> = certificates.collect();
        self.inner.trust.add_intermediates(&certificates)?;
        self.set_held(held);
        Ok(())
    }

    async fn load_key(
        &self,
        passphrase: &Passphrase,
        id: AuthorityId,
    ) -> Result<CertificateAuthority, RegistryError> {
        let (registry, secret) = (self.clone(), passphrase.clone());
        let load = move || {
            let inner = &registry.inner;
            files::load(&inner.directory, &inner.config, &secret, id)
        };
        let loaded = self.inner.pool.run(load).await;
        loaded.map_err(|_| RegistryError::Interrupted)?
    }

    /// Reads the certificates of the folder.
    fn find_authorities(
        &self,
        standings: &Standings,
        now: OffsetDateTime,
    ) -> Result<Found, RegistryError> {
        let directory = &self.inner.directory;
        let certified = files::certified(directory)?;
        // And those of which the file has gone, while anybody needs them.
        let known = standings.0.iter().filter(|(_, one)| !one.is_over(now));
        let known: BTreeSet<_> = known.map(|(id, _)| *id).collect();
        let mut found = Found::default();
        for id in certified.union(&known).copied() {
            let issues = standings
                .get(id)
                .is_some_and(|one| one.state == AuthorityState::Issuing);
            let certificate = files::certificate(directory, id);
            let certificate =
                certificate.and_then(
                    |one| match pki::cert::is_signed_by(&one, &self.inner.root) {
                        true => Ok(one),
                        false => Err(RegistryError::WrongKind { expected: id }),
                    },
                );
            match certificate {
                Ok(certificate) => drop(found.certificates.insert(id, certificate)),
                Err(error) if issues => return Err(error),
                Err(error) => {
                    let reason = error_report::Report(&error).to_string();
                    found.unusable.insert(id, reason);
                }
            }
        }
        Ok(found)
    }

    /// Has the database know every authority that has a good certificate.
    pub(crate) async fn note_authorities(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let known = standings(self.inner.sql.read()).await?;
        let held = self.standings();
        let new = held.0.keys().filter(|id| !known.contains_key(id));
        let new: Vec<AuthorityId> = new.copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut tx = self.write(now).await?;
        let mut events = Vec::new();
        for id in new {
            sqlx::query(
                "INSERT OR IGNORE INTO authorities (kind, generation, state, changed_at)
                 VALUES (?, ?, 'ready', ?)",
            )
            .bind(id.kind().name())
            .bind(id.generation())
            .bind(now.unix_timestamp())
            .execute(&mut **tx)
            .await?;
            let (by, authority) = (Actor::service("registry"), format!("authority/{id}"));
            let event = AuthorityReady {}.into_event(now, by, authority);
            events.push(event.with_reason("its certificate was found in the folder"));
        }
        tx.record(events).await?;
        tx.commit().await
    }

    /// Has `id` issue from now on whatever its kind issues; the one before goes on signing lists, and OCSP responses by its
    /// delegate, about what it issued. Recorded before it takes effect.
    ///
    /// # Errors
    /// [`RegistryError::NotActivated`] with the reason; [`RegistryError::NotCovered`] for something else than was approved;
    /// [`RegistryError::Audit`] or [`RegistryError::Store`], and then the one before issues.
    pub async fn activate_authority(
        &self,
        id: AuthorityId,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Activated, RegistryError> {
        let _turn = self.inner.authority_turn.lock().await;
        self.check_activation(&warrant, id)?;
        self.check_ready(id, now)?;
        let turn = self.begin_warrant(&warrant, now).await?;
        let outcome = self.on_behalf(&warrant).activate_by(id, warrant, now).await;
        self.end_warrant(turn, outcome).await
    }

    /// Makes sure that this generation is what was approved.
    fn check_activation(&self, warrant: &Warrant, id: AuthorityId) -> Result<(), RegistryError> {
        match warrant.approved().map(|approved| approved.act()) {
            None => Ok(()),
            Some(act) if self.activation(id)? == *act => Ok(()),
            Some(_) => Err(RegistryError::NotCovered("authority")),
        }
    }

    /// The act by which `id` takes over: approvers see the certificate, and how far it may clear.
    ///
    /// # Errors
    /// [`RegistryError::NoAuthority`], or [`RegistryError::NoKey`].
    pub fn activation(&self, id: AuthorityId) -> Result<Act, RegistryError> {
        let authority = self.authority(id)?;
        let der = pki::cert::to_der(authority.certificate())?;
        Ok(Act::AddAuthority {
            name: id.to_string(),
            clearance: authority.max_clearance()?.unwrap_or_default(),
            certificate_sha256: pki::cert::fingerprint_sha256(&der),
        })
    }

    /// Refuses a generation that could not issue.
    pub(crate) fn check_ready(
        &self,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let held = self.held();
        let authority = held.get(id)?;
        let (begin, end) = authority.validity();
        let mut reasons = [
            (
                held.state(id) != Some(AuthorityState::Ready),
                "it is not one that waits to be put to use".to_owned(),
            ),
            (
                now < begin,
                format!("its certificate is valid from {} on", shown(begin)),
            ),
            (
                now > end,
                format!("its certificate expired on {}", shown(end)),
            ),
            (
                self.revocation_of(authority).is_some(),
                "the root's list names its certificate".to_owned(),
            ),
            (!authority.has_key(), "its key cannot be used".to_owned()),
            (
                !self.has_list(id),
                "it has no revocation list yet; ask again".to_owned(),
            ),
        ]
        .into_iter();
        match reasons.find(|(holds, _)| *holds) {
            None => Ok(()),
            Some((_, reason)) => Err(RegistryError::NotActivated { id, reason }),
        }
    }

    async fn activate_by(
        &self,
        id: AuthorityId,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Activated, RegistryError> {
        let mut tx = self.write(now).await?;
        let former = self.issuing_in(&mut tx, id.kind()).await?;
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT max(not_after) FROM issued WHERE authority = ? AND generation = ?",
        )
        .bind(id.kind().name())
        .bind(former.generation())
        .fetch_one(&mut **tx)
        .await?;
        sqlx::query(
            "UPDATE authorities SET state = 'retired', changed_at = ?3, needed_until = ?4
             WHERE kind = ?1 AND generation = ?2",
        )
        .bind(id.kind().name())
        .bind(former.generation())
        .bind(now.unix_timestamp())
        .bind(last)
        .execute(&mut **tx)
        .await?;
        let changed = sqlx::query(
            "UPDATE authorities SET state = 'issuing', changed_at = ?3
             WHERE kind = ?1 AND generation = ?2 AND state = 'ready'",
        )
        .bind(id.kind().name())
        .bind(id.generation())
        .bind(now.unix_timestamp())
        .execute(&mut **tx)
        .await?;
        if changed.rows_affected() != 1 {
            let reason = "somebody else has put it to use".to_owned();
            return Err(RegistryError::NotActivated { id, reason });
        }
        let der = pki::cert::to_der(self.authority(id)?.certificate())?;
        let activated = AuthorityActivated {
            old: Some(former.to_string()),
            new: id.to_string(),
            certificate_sha256: Some(pki::cert::fingerprint_sha256(&der)),
        };
        let object = format!("authority/{}", id.kind());
        let event = activated.into_event(now, warrant.by().clone(), object);
        let mut events = vec![event];
        events.extend(
            self.finish_in(&mut tx, warrant, &id.to_string(), now)
                .await?,
        );
        tx.record(events).await?;
        let needed_until = last.map(instant).transpose()?;
        // Before the turn to write ends with the commit: whoever issues next holds the database against it.
        let before = self.held();
        let mut held = Authorities::clone(&before);
        let standing = |state, needed_until| Standing {
            state,
            needed_until,
        };
        let retired = standing(AuthorityState::Retired, needed_until);
        held.standings.0.insert(former, retired);
        let issuing = standing(AuthorityState::Issuing, None);
        held.standings.0.insert(id, issuing);
        self.set_held(held);
        if let Err(error) = tx.commit().await {
            let mut held = Authorities::clone(&before);
            // Whether it took effect all the same is in the database.
            if let Ok(known) = standings(self.inner.sql.read()).await {
                held.standings = Standings(known);
            }
            self.set_held(held);
            return Err(error);
        }
        if let Err(error) = self.note_issuing(now).await {
            // The next start finds it out by the log.
            tracing::warn!(error = %error_report::Report(&error), "which authorities issue is not noted in the log");
        }
        Ok(Activated {
            former,
            issuing: id,
        })
    }

    /// Gives a generation that waits up: it is retired without having issued anything, and its key is removed. Its number and name
    /// are not used again. Recorded before it takes effect.
    ///
    /// # Errors
    /// [`RegistryError::NotDropped`] with the reason; [`RegistryError::Audit`], [`RegistryError::Io`] or
    /// [`RegistryError::Store`], and then it waits as before, perhaps without its key.
    pub async fn drop_authority(
        &self,
        id: AuthorityId,
        who: Actor,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let _turn = self.inner.authority_turn.lock().await;
        let held = self.held();
        let reason = match held.state(id) {
            Some(AuthorityState::Ready) => None,
            Some(AuthorityState::Issuing) => Some("it issues"),
            Some(AuthorityState::Retired) => Some("it does not wait any more to be put to use"),
            None => Some("the site knows no such authority"),
        };
        if let Some(reason) = reason {
            return Err(RegistryError::NotDropped { id, reason });
        }
        let mut tx = self.write(now).await?;
        sqlx::query(
            "UPDATE authorities SET state = 'retired', changed_at = ?3, needed_until = NULL
             WHERE kind = ?1 AND generation = ?2 AND state = 'ready'",
        )
        .bind(id.kind().name())
        .bind(id.generation())
        .bind(now.unix_timestamp())
        .execute(&mut **tx)
        .await?;
        let resource = format!("authority/{}", id.kind());
        let mut dropped = AuthorityDropped {
            dropped: id.to_string(),
            certificate_sha256: None,
        };
        if let Ok(authority) = held.get(id) {
            let der = pki::cert::to_der(authority.certificate())?;
            dropped.certificate_sha256 = Some(pki::cert::fingerprint_sha256(&der));
        }
        let event = dropped.into_event(now, who, resource);
        tx.record(vec![event]).await?;
        // Before the commit: what is dropped has no key, and one that has lost it can be dropped once more.
        files::remove_key(&self.inner.directory, &self.inner.config, id)?;
        tx.commit().await?;
        let mut held = Authorities::clone(&held);
        held.unusable.remove(&id);
        let retired = Standing {
            state: AuthorityState::Retired,
            needed_until: None,
        };
        held.standings.0.insert(id, retired);
        self.set_held(held);
        Ok(())
    }
}

/// An instant for people, to the second.
fn shown(at: OffsetDateTime) -> String {
    use time::format_description::well_known::Rfc3339;
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

#[cfg(test)]
mod tests {
    use audit::{Actor, MemorySink};
    use pki::cert::{self, CertificateChain};
    use pki::clearance::Clearance;
    use pki::crl::RevocationReason;
    use pki::issue::{CertificateRequest, Validity};
    use pki::key::{KeyAlgorithm, PrivateKey};
    use pki::name::Subject;
    use pki::path::Purpose;
    use pki::profile::Profile;
    use store::Sql;
    use time::Duration;
    use time::macros::datetime;

    use super::*;
    use crate::schema::MIGRATIONS;
    use crate::{Config, CrlName, Order, Passphrases};

    const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
    /// Number of the list that the version before published last.
    const LAST_LIST: i64 = 1_900_000_000;

    /// A certificate as the version before issued and stored it.
    async fn stored(sql: &Sql, authority: &CertificateAuthority, name: &str) -> CertificateChain {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let validity = Validity::starting(NOW, Duration::days(365));
        let mut request =
            CertificateRequest::new(Profile::Device, Subject::new(name), key.spki(), validity);
        request.clearance = Some(Clearance::Restricted);
        let leaf = authority.issue(&request, NOW).unwrap();
        let mut tx = sql.write().await.unwrap();
        sqlx::query(
            "INSERT INTO issued (authority, serial, profile, holder, uid, clearance, spki_sha256,
                issued_at, not_after, certificate, holder_id, lineage, renewal, shard)
             VALUES ('devices', ?1, 'device', ?2, NULL, 1, '00', 1, ?3, ?4, ?2, 'enrolment', 0, 7)",
        )
        .bind(cert::serial_hex(&leaf))
        .bind(name)
        .bind(validity.not_after.unix_timestamp())
        .bind(cert::to_der(&leaf).unwrap())
        .execute(&mut *tx)
        .await
        .unwrap();
        sqlx::query("INSERT INTO holders (authority, holder_id, state, changed_at) VALUES ('devices', ?, 'enrolled', 1)")
            .bind(name)
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        CertificateChain::new(vec![leaf, authority.certificate().clone()]).unwrap()
    }

    #[tokio::test]
    async fn database_of_the_version_before_is_the_first_generation() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            authority_algorithm: KeyAlgorithm::EcdsaP256,
            crl_base_url: Some("http://pki.example.org/crl".into()),
            ..Config::new("LEA-EU")
        };
        let secrets = Passphrases {
            root: "root secret".into(),
            issuing: "issuing secret".into(),
        };
        Registry::init(folder.path(), &config, &secrets, NOW).unwrap();
        let first = AuthorityId::first(CaKind::Devices);
        let authority = files::load(folder.path(), &config, &secrets.issuing, first).unwrap();
        let before = MIGRATIONS.iter().take_while(|one| one.version < 10);
        let before: Vec<store::Migration> = before.copied().collect();
        let sql = Sql::open(&folder.path().join("registry.sqlite"), &before)
            .await
            .unwrap();
        let good = stored(&sql, &authority, "camera-1").await;
        let bad = stored(&sql, &authority, "camera-2").await;
        let serial = cert::serial_hex(bad.leaf());
        let mut tx = sql.write().await.unwrap();
        for statement in [
            format!("INSERT INTO revoked VALUES ('devices', '{serial}', 1, 'key-compromise', 7, {LAST_LIST})"),
            format!("INSERT INTO crl_numbers VALUES ('devices', {LAST_LIST})"),
            "INSERT INTO crl_shards VALUES ('devices', 7, 'http://pki.example.org/crl/devices-007.crl')".to_owned(),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        sql.close().await;

        let sink = Arc::new(MemorySink::default());
        let open = Registry::open(folder.path(), config.clone(), &secrets.issuing, sink, NOW);
        let registry = open.await.unwrap();
        let states: Vec<_> = registry
            .authority_records(NOW)
            .iter()
            .map(|one| (one.id, one.state))
            .collect();
        let expected = CaKind::ALL.map(|kind| (AuthorityId::first(kind), AuthorityState::Issuing));
        assert_eq!(states, expected);
        for (chain, is_good) in [(&good, true), (&bad, false)] {
            let admitted = registry
                .admit(chain.ders(), Purpose::ClientDevice, NOW)
                .await;
            assert_eq!(admitted.is_ok(), is_good);
            let record = registry
                .issued(CaKind::Devices, &cert::serial_hex(chain.leaf()))
                .await
                .unwrap();
            assert_eq!(record.issuer().unwrap(), first);
        }
        // Numbers go on, and the shard has what it had.
        for name in [CrlName::Issuing(first), CrlName::Shard(first, 7)] {
            let der = registry.crl_for(name, NOW).await.unwrap().unwrap().der;
            let list = registry.trust().accept_crl(&der, NOW).unwrap();
            assert!(files::list_number(&list).unwrap() > LAST_LIST.unsigned_abs());
            let listed: Vec<_> = list
                .entries
                .iter()
                .map(|one| hex::encode(&one.serial))
                .collect();
            assert_eq!(listed, std::slice::from_ref(&serial), "{name}");
        }
        let (here, standings) = (folder.path(), registry.standings());
        let next = Registry::next_generation(here, &standings, CaKind::Devices, NOW).unwrap();
        Registry::make_generation(here, &config, &secrets, &standings, next, NOW).unwrap();
        registry
            .take_authorities(&secrets.issuing, NOW)
            .await
            .unwrap();
        let order = registry.direct(Actor::service("test")).unwrap();
        registry.activate_authority(next, order, NOW).await.unwrap();
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let order = Order::new(Profile::Device, Subject::new("camera-3"), key.spki());
        let warrant = registry.direct(Actor::service("test")).unwrap();
        let order = order.with_clearance(Clearance::Restricted);
        let issued = registry.issue(order, warrant, NOW).await.unwrap();
        let record = registry
            .issued(CaKind::Devices, &issued.serial)
            .await
            .unwrap();
        assert_eq!(record.issuer().unwrap(), next);
        let warrant = registry.direct(Actor::service("test")).unwrap();
        let serial = cert::serial_hex(good.leaf());
        let reason = RevocationReason::KeyCompromise;
        registry
            .revoke(CaKind::Devices, &serial, reason, warrant, NOW)
            .await
            .unwrap();
        assert!(
            registry
                .admit(good.ders(), Purpose::ClientDevice, NOW)
                .await
                .is_err()
        );
    }
}
