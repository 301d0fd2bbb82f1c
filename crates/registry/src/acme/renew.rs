//! Renewals of servers, as many as their invitations cover.
//!
//! ```text
//! c1 ─ downloaded ─► in use;  c2 issued ─ downloaded ─► both are good, the server changes over when it likes
//!                             c3 issued ────────────────► c1 is superseded
//! ```
//!
//! A server shows its certificate to its clients and not to the site, which knows only what was downloaded. So the former
//! certificate ends with the renewal after the next: no more than two are good at a time, and one that waits.

use audit::Actor;
use pki::csr::{CertificationRequest, CsrError};
use pki::name::Subject;
use pki::profile::CaKind;
use pki::spki::spki_sha256;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::admission;
use crate::admission::superseded_events;
use crate::batch::{Decision, Issuance};
use crate::enrol::Line;
use crate::invitations::{self, Stored};
use crate::invited::{actor, invited_by};
use crate::key_use::check_key;
use crate::orders::{self, ServerOrder};
use crate::origin::Origin;
use crate::signing::Signing;
use crate::{Approvals, EnrolError, Issued, Order, Registry, RegistryError, holders};

const SERVICES: CaKind = CaKind::Services;

impl Registry {
    /// Certifies a key of a server whose invitation gave a certificate before.
    pub(super) async fn renew_server(
        &self,
        invitation: &Stored,
        order: &ServerOrder,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let csr = CertificationRequest::Pkcs10(csr).verify()?;
        order.check_names(&csr)?;
        let spki = spki_sha256(&csr.spki).map_err(|_| CsrError::Malformed)?;
        // Who approved it need not be there any more: renewals are what was agreed to for years.
        if self.inner.config.registration.approvals == Approvals::Required {
            self.check_approved_renewals(invitation).await?;
        }
        self.check_not_of_site(&order.names).await?;
        let wanted = Order::new(
            invitation.profile,
            Subject::new(&invitation.holder),
            csr.spki,
        )
        .with_alt_names(order.alt_names());
        let actor = actor(invitation);
        let renewal = ServersRenewal {
            invitation: invitation.clone(),
            order: order.clone(),
            wanted,
            spki,
            now,
        };
        self.issue_together(renewal, Signing::default(), &actor, now)
            .await
    }

    /// Notes that a server has its certificate, which counts as a renewal then.
    pub(super) async fn note_download(
        &self,
        serial: &str,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let mut tx = self.write(now).await?;
        let holder: Option<String> = sqlx::query_scalar(
            "UPDATE issued SET first_used_at = ? WHERE authority = ? AND serial = ?
             AND first_used_at IS NULL AND superseded_at IS NULL RETURNING holder_id",
        )
        .bind(now.unix_timestamp())
        .bind(SERVICES.name())
        .bind(serial)
        .fetch_optional(&mut **tx)
        .await?;
        let Some(holder) = holder else {
            return Ok(());
        };
        let actor = Actor::service(&holder);
        let event = admission::first_use(SERVICES, &holder, actor, serial, now);
        tx.record(vec![event]).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// A server whose invitation gave a certificate before.
struct ServersRenewal {
    invitation: Stored,
    order: ServerOrder,
    /// The certificate, as the order says.
    wanted: Order,
    spki: String,
    now: OffsetDateTime,
}

impl Issuance for ServersRenewal {
    type Error = EnrolError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, EnrolError> {
        let (invitation, now) = (&self.invitation, self.now);
        let holder = &invitation.holder;
        let again = invitations::by_id(&mut **tx, &invitation.id).await?;
        if again.as_ref() != Some(invitation) {
            return Err(EnrolError::WrongCode);
        }
        holders::admit_issuing(tx, invitation.profile, holder, now).await?;
        orders::check_ready(tx, &self.order, &self.spki, now).await?;
        check_key(tx, &self.spki, Some((SERVICES, holder))).await?;
        let line = Line {
            authority: SERVICES,
            holder,
            lineage: &invitation.id,
            profile: invitation.profile,
        };
        line.check_renewals_of(tx, invitation, now).await?;
        let origin = Origin::Renewal {
            lineage: invitation.id.clone(),
            renews: newest(tx, invitation).await?,
            invited: Some(invited_by(invitation)),
        };
        let actor = actor(invitation);
        let issued = registry.issue_in(tx, &self.wanted, &origin, &actor, signing, now);
        let Some((issued, mut events)) = issued.await? else {
            return Ok(Decision::Unsigned);
        };
        orders::fulfil(tx, &self.order, &issued.serial).await?;
        if let Some((by, older)) = supersede_older(tx, invitation, now).await? {
            events.extend(superseded_events(
                SERVICES, holder, &actor, &older, &by, now,
            ));
        }
        Ok(Decision::Issued(Box::new(issued), events))
    }
}

/// The certificate that a renewal comes after: the newest that the server has, or the first.
async fn newest(
    tx: &mut Transaction<'static, Sqlite>,
    invitation: &Stored,
) -> Result<String, RegistryError> {
    let downloaded: Option<String> = sqlx::query_scalar(
        "SELECT serial FROM issued WHERE authority = ? AND holder_id = ? AND lineage = ?
         AND first_used_at IS NOT NULL ORDER BY rowid DESC LIMIT 1",
    )
    .bind(SERVICES.name())
    .bind(&invitation.holder)
    .bind(&invitation.id)
    .fetch_optional(&mut **tx)
    .await?;
    let first = || invitation.used.as_ref().map(|(_, serial)| serial.clone());
    let serial = downloaded.or_else(first);
    serial.ok_or(RegistryError::Corrupt("invitation"))
}

/// Ends what is older than the newest certificate that the server has and that is good; gives that, too.
async fn supersede_older(
    tx: &mut Transaction<'static, Sqlite>,
    invitation: &Stored,
    now: OffsetDateTime,
) -> Result<Option<(String, Vec<String>)>, RegistryError> {
    let newest: Option<(i64, String)> = sqlx::query_as(
        "SELECT i.rowid, i.serial FROM issued i WHERE i.authority = ? AND i.holder_id = ? AND i.lineage = ?
         AND i.first_used_at IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)
         ORDER BY i.rowid DESC LIMIT 1",
    )
    .bind(SERVICES.name())
    .bind(&invitation.holder)
    .bind(&invitation.id)
    .fetch_optional(&mut **tx)
    .await?;
    let Some((row, serial)) = newest else {
        return Ok(None);
    };
    let older: Vec<String> = sqlx::query_scalar(
        "UPDATE issued SET superseded_at = ?5, unlisted = 1
         WHERE authority = ?1 AND holder_id = ?2 AND lineage = ?3 AND rowid < ?4
         AND superseded_at IS NULL AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = issued.authority AND r.serial = issued.serial)
         RETURNING serial",
    )
    .bind(SERVICES.name())
    .bind(&invitation.holder)
    .bind(&invitation.id)
    .bind(row)
    .bind(now.unix_timestamp())
    .fetch_all(&mut **tx)
    .await?;
    Ok(Some((serial, older)))
}
