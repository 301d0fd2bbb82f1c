//! Invitations, by whose code somebody has a key of her own certified.

use approval::Act;
use audit::Actor;
use event_catalogue::{Recorded as _, registry as events};
use pki::clearance::Clearance;
use pki::issue::IssueError;
use pki::name::{Subject, WindowsAccount};
use pki::profile::{CaKind, Profile, ProfileName};
use store::sqlx::{self, FromRow, Row as _, Sqlite, SqlitePool, Transaction, sqlite::SqliteRow};
use time::{Duration, OffsetDateTime};

use crate::codes::{OneTimeCode, check_device_name, verifier};
use crate::error::noun_of;
use crate::holders::{self, HolderRefused, HolderState};
use crate::names::{self, check_names};
use crate::requests::{check_account, check_invitation, names_without_unit};
use crate::sealing::SealingKey;
use crate::{Registry, RegistryError, Warrant};

/// Random bytes in the identifier of an invitation.
const ID_BYTES: usize = 6;

/// What an invitation gives.
#[derive(Clone, Debug)]
pub struct Invitation {
    pub profile: Profile,
    /// The certificate's names: of a person by user id, of a device by common name.
    pub subject: Subject,
    pub clearance: Clearance,
    /// How long the code is good for.
    pub hours: u32,
    /// How often a person or server renews the certificate with it.
    pub renewals: u8,
    /// By which a server is reached, its own first; nobody else has any.
    pub names: Vec<String>,
    /// The account in Windows that a certificate logs on to, where its profile names one.
    pub account: Option<WindowsAccount>,
}

/// An invitation with its code, which is stored nowhere.
pub struct Invited {
    /// Identifier in events.
    pub id: String,
    pub code: OneTimeCode,
    pub expires_at: OffsetDateTime,
    /// Names of the server that was invited.
    pub names: Vec<String>,
}

/// An invitation in the database.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) authority: CaKind,
    pub(crate) holder: String,
    pub(crate) profile: Profile,
    pub(crate) subject: Subject,
    pub(crate) clearance: Clearance,
    pub(crate) renewals: u8,
    /// The request that approved it.
    pub(crate) request: Option<String>,
    pub(crate) expires_at: i64,
    /// For which key it was used, and the certificate issued then.
    pub(crate) used: Option<(String, String)>,
    /// Names of a server.
    pub(crate) names: Vec<String>,
    pub(crate) account: Option<WindowsAccount>,
}

impl Invitation {
    /// Whose certificates the subject has, and its name among them.
    fn holder(&self) -> Result<(CaKind, String), RegistryError> {
        let authority = self.profile.issued_by().ok_or(RegistryError::NotALeaf)?;
        let subject = &self.subject;
        let holder = match authority {
            CaKind::Users => subject.uid.clone(),
            _ => Some(subject.common_name.clone()),
        };
        Ok((authority, holder.ok_or(RegistryError::NotCovered("name"))?))
    }

    /// Makes sure that it is what was approved, or may be ordered.
    fn check(&self, warrant: &Warrant) -> Result<(), RegistryError> {
        let (_, holder) = self.holder()?;
        let Some(authorized) = warrant.approved() else {
            return Ok(());
        };
        let Act::Invite {
            subject,
            profile,
            clearance,
            unit,
            hours,
            renewals,
            names,
            account,
            distinguished_name,
            ..
        } = authorized.act()
        else {
            return Err(RegistryError::NotCovered("act"));
        };
        let other_name = distinguished_name.is_some()
            && *distinguished_name != names_without_unit(&self.subject)?;
        let differs = [
            (other_name, "name"),
            (holder != *subject, "subject"),
            (self.profile.to_string() != *profile, "profile"),
            (self.clearance != *clearance, "clearance"),
            (self.subject.unit != *unit, "unit"),
            (self.hours != *hours, "time"),
            (self.renewals != *renewals, "number of renewals"),
            (self.names != *names, "list of names"),
            (self.account != *account, "account"),
        ];
        match differs.into_iter().find(|(differs, _)| *differs) {
            Some((_, what)) => Err(RegistryError::NotCovered(what)),
            None => Ok(()),
        }
    }
}

impl Registry {
    /// Makes a code by which the subject has a key certified once, as `invitation` says; an earlier code of the subject
    /// that was not used becomes void.
    ///
    /// Whoever has the code can have a key of their own certified until it is used: it goes to its subject alone.
    ///
    /// # Errors
    /// [`RegistryError::NotInvited`], [`RegistryError::InvitationTime`], [`RegistryError::InvitationRenewals`],
    /// [`RegistryError::ServerNames`] and [`RegistryError::AcmeOff`] of a server, whose code is kept for ACME,
    /// [`RegistryError::NotCovered`] for something else than was approved, [`RegistryError::Issue`] for a
    /// clearance above the authority's bound, [`RegistryError::Holder`]; or as [`Self::issue`].
    pub async fn invite(
        &self,
        invitation: &Invitation,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Invited, RegistryError> {
        let sealing = match invitation.profile {
            Profile::NetworkServer => {
                Some(self.inner.acme.sealing().ok_or(RegistryError::AcmeOff)?)
            }
            _ => None,
        };
        self.invite_with(invitation, sealing, warrant, now).await
    }

    /// The same for CMP: the code is also kept, encrypted, until it was used or is over, because a message authentication code
    /// is verified with the secret itself and not with a digest of it.
    ///
    /// # Errors
    /// As [`Self::invite`], [`RegistryError::CmpOff`] and [`RegistryError::NotForCmp`].
    pub async fn invite_for_cmp(
        &self,
        invitation: &Invitation,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Invited, RegistryError> {
        if invitation.profile == Profile::NetworkServer {
            return Err(RegistryError::NotForCmp);
        }
        let sealing = self.inner.cmp.sealing().ok_or(RegistryError::CmpOff)?;
        self.invite_with(invitation, Some(sealing), warrant, now)
            .await
    }

    async fn invite_with(
        &self,
        invitation: &Invitation,
        sealing: Option<&SealingKey>,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Invited, RegistryError> {
        invitation.check(&warrant)?;
        check_invitation(invitation.profile, invitation.hours, invitation.renewals)?;
        let turn = self.begin_warrant(&warrant, now).await?;
        let registry = self.on_behalf(&warrant);
        let outcome = registry.invite_by(invitation, sealing, warrant, now);
        self.end_warrant(turn, outcome.await).await
    }

    async fn invite_by(
        &self,
        invitation: &Invitation,
        sealing: Option<&SealingKey>,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Invited, RegistryError> {
        let (authority, holder) = invitation.holder()?;
        if authority == CaKind::Devices {
            check_device_name(&holder)?;
        }
        let (profile, names) = (invitation.profile, &invitation.names);
        check_names(profile, &holder, names, invitation.clearance)?;
        let account = invitation.account.as_ref();
        let definition = self.definition(profile)?;
        check_account(&definition, account)?;
        self.check_not_of_site(names).await?;
        let requested = invitation.clearance;
        let of_profile = Some(self.clearance_of_profile(&definition)?);
        let bounds = [self.issuing(authority)?.max_clearance()?, of_profile];
        if let Some(allowed) = bounds.into_iter().flatten().min()
            && requested > allowed
        {
            return Err(IssueError::ClearanceAboveAuthority { requested, allowed }.into());
        }
        let code = OneTimeCode::generate()?;
        let mut bytes = [0; ID_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
        let id = hex::encode(bytes);
        let hours = Duration::hours(i64::from(invitation.hours));
        let expires_at = now.saturating_add(hours);
        let sealed = match sealing {
            Some(key) => Some(key.seal(code.as_str(), &id, &holder)?),
            None => None,
        };
        let request = warrant.approved().map(|approved| approved.request());
        let request = request.map(|request| request.id().0.clone());
        let mut tx = self.write(now).await?;
        if let Some(approved) = warrant.approved() {
            self.check_profile_seen(profile, approved.request())?;
        }
        if let Some(state) = holders::state_in(&mut tx, authority, &holder).await?
            && state != HolderState::Enrolled
        {
            return Err(HolderRefused {
                authority,
                holder,
                state,
            }
            .into());
        }
        if profile == Profile::NetworkServer {
            names::check_free(&mut tx, &holder, names, now).await?;
        }
        sqlx::query(
            "DELETE FROM invitations WHERE authority = ? AND holder_id = ? AND used_serial IS NULL",
        )
        .bind(authority.name())
        .bind(&holder)
        .execute(&mut **tx)
        .await?;
        sqlx::query(
            "INSERT INTO invitations (id, authority, holder_id, verifier, profile, subject, clearance,
                 renewals, request, expires_at, sealed, names, principal, sid)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&id)
        .bind(authority.name())
        .bind(&holder)
        .bind(verifier(&holder, code.as_str()).as_ref())
        .bind(invitation.profile.to_string())
        .bind(encoded(&invitation.subject)?)
        .bind(i64::from(invitation.clearance.level()))
        .bind(i64::from(invitation.renewals))
        .bind(request)
        .bind(expires_at.unix_timestamp())
        .bind(sealed)
        .bind(names::to_row(names))
        .bind(account.map(|account| account.principal.as_str()))
        .bind(account.map(|account| account.sid.as_str()))
        .execute(&mut **tx)
        .await?;
        let resource = format!("{}/{holder}", noun_of(profile));
        let actor: Actor = warrant.by().clone();
        let is_server = profile == Profile::NetworkServer;
        let invited = events::Invited {
            invitation: Some(id.clone()),
            profile: Some(invitation.profile.to_string()),
            clearance: Some(invitation.clearance.level().into()),
            renewals: Some(invitation.renewals.into()),
            expires_at: Some(expires_at.unix_timestamp()),
            names: is_server.then(|| names.join(" ")),
            cmp: (!is_server && sealing.is_some()).then_some(true),
            unit: invitation.subject.unit.clone(),
            principal: account.map(|account| account.principal.clone()),
            sid: account.map(|account| account.sid.as_str().to_owned()),
        };
        let event = invited.into_event(now, actor, resource);
        let mut events = vec![event];
        events.extend(self.finish_in(&mut tx, warrant, &id, now).await?);
        tx.record(events).await?;
        tx.commit().await?;
        Ok(Invited {
            id,
            code,
            expires_at,
            names: names.clone(),
        })
    }
}

/// The names as they will stand in the certificate.
pub(crate) fn encoded(subject: &Subject) -> Result<Vec<u8>, RegistryError> {
    Ok(subject.to_der().map_err(IssueError::Name)?)
}

const SELECT: &str =
    "SELECT id, authority, holder_id, profile, subject, clearance, renewals, request,
    expires_at, used_spki, used_serial, names, principal, sid FROM invitations ";

/// Whether anybody of this name was ever invited.
pub(crate) async fn any(readers: &SqlitePool, holder: &str) -> Result<bool, RegistryError> {
    let any = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM invitations WHERE holder_id = ?)");
    Ok(any.bind(holder).fetch_one(readers).await?)
}

/// The invitation that this code is for. What is compared in the database are digests of a hundred random bits and
/// more: how long that takes says nothing of the code.
pub(crate) async fn by_code(
    readers: &SqlitePool,
    holder: &str,
    code: &str,
) -> Result<Option<Stored>, RegistryError> {
    let query = format!("{SELECT} WHERE holder_id = ? AND verifier = ?");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(holder)
        .bind(verifier(holder, code).as_ref())
        .fetch_optional(readers)
        .await?)
}

/// Invitations of this name whose codes are kept for CMP, with these: of a person and of a device, as names of both may be
/// the same.
pub(crate) async fn sealed(
    readers: &SqlitePool,
    holder: &str,
    most: u8,
) -> Result<Vec<(Stored, Vec<u8>)>, RegistryError> {
    let query = "SELECT id, authority, holder_id, profile, subject, clearance, renewals, request,
        expires_at, used_spki, used_serial, names, principal, sid, sealed FROM invitations
        WHERE holder_id = ? AND sealed IS NOT NULL AND names IS NULL ORDER BY rowid DESC LIMIT ?";
    let rows: Vec<SqliteRow> = sqlx::query(query)
        .bind(holder)
        .bind(most)
        .fetch_all(readers)
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.push((Stored::from_row(&row)?, row.try_get("sealed")?));
    }
    Ok(found)
}

/// The invitation of a server whose code is kept for ACME, with that.
pub(crate) async fn sealed_of_server(
    readers: &SqlitePool,
    id: &str,
) -> Result<Option<(Stored, Vec<u8>)>, RegistryError> {
    let query = "SELECT id, authority, holder_id, profile, subject, clearance, renewals, request,
        expires_at, used_spki, used_serial, names, principal, sid, sealed FROM invitations
        WHERE id = ? AND sealed IS NOT NULL AND names IS NOT NULL";
    let row: Option<SqliteRow> = sqlx::query(query).bind(id).fetch_optional(readers).await?;
    let Some(row) = row else {
        return Ok(None);
    };
    Ok(Some((Stored::from_row(&row)?, row.try_get("sealed")?)))
}

/// Deletes the code that was kept for CMP or ACME: of one invitation, or of all that are over at `now`.
pub(crate) async fn forget_sealed(
    tx: &mut Transaction<'static, Sqlite>,
    which: Forget<'_>,
) -> Result<(), RegistryError> {
    let (id, over) = match which {
        Forget::Of(id) => (Some(id), None),
        Forget::Over(now) => (None, Some(now.unix_timestamp())),
    };
    // First with zeros of the same length in its place, so that the page does not keep it.
    for value in ["zeroblob(length(sealed))", "NULL"] {
        let update = format!(
            "UPDATE invitations SET sealed = {value}
             WHERE sealed IS NOT NULL AND (id = ?1 OR expires_at <= ?2)"
        );
        sqlx::query(sqlx::AssertSqlSafe(update))
            .bind(id)
            .bind(over)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// See [`forget_sealed`].
pub(crate) enum Forget<'a> {
    Of(&'a str),
    Over(OffsetDateTime),
}

pub(crate) async fn by_id(
    database: impl sqlx::SqliteExecutor<'_>,
    id: &str,
) -> Result<Option<Stored>, RegistryError> {
    let query = format!("{SELECT} WHERE id = ?");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(id)
        .fetch_optional(database)
        .await?)
}

pub(crate) async fn mark_used(
    tx: &mut Transaction<'static, Sqlite>,
    id: &str,
    spki: &str,
    serial: &str,
) -> Result<(), RegistryError> {
    sqlx::query("UPDATE invitations SET used_spki = ?, used_serial = ? WHERE id = ?")
        .bind(spki)
        .bind(serial)
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl FromRow<'_, SqliteRow> for Stored {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let unreadable = |column: &str| sqlx::Error::ColumnDecode {
            index: column.to_owned(),
            source: "not written by this program".into(),
        };
        let authority: String = row.try_get("authority")?;
        let name: String = row.try_get("profile")?;
        let subject: Vec<u8> = row.try_get("subject")?;
        let clearance: i64 = row.try_get("clearance")?;
        let renewals: i64 = row.try_get("renewals")?;
        let spki: Option<String> = row.try_get("used_spki")?;
        let serial: Option<String> = row.try_get("used_serial")?;
        let principal: Option<String> = row.try_get("principal")?;
        let sid: Option<String> = row.try_get("sid")?;
        let account = principal.zip(sid).map(|(principal, sid)| {
            let account = WindowsAccount::new(principal, &sid);
            account.map_err(|_| unreadable("sid"))
        });
        let kind: CaKind = authority.parse().map_err(|_| unreadable("authority"))?;
        let clearance = u8::try_from(clearance).ok();
        let clearance = clearance.and_then(|level| Clearance::try_from(level).ok());
        Ok(Self {
            id: row.try_get("id")?,
            authority: kind,
            holder: row.try_get("holder_id")?,
            profile: profile_in(kind, &name).ok_or_else(|| unreadable("profile"))?,
            subject: Subject::from_der(&subject).map_err(|_| unreadable("subject"))?,
            clearance: clearance.ok_or_else(|| unreadable("clearance"))?,
            renewals: u8::try_from(renewals).map_err(|_| unreadable("renewals"))?,
            request: row.try_get("request")?,
            expires_at: row.try_get("expires_at")?,
            used: spki.zip(serial),
            names: names::from_row(row.try_get("names")?),
            account: account.transpose()?,
        })
    }
}

/// The profile of a row; whether there is one of this name, the registry knows.
fn profile_in(authority: CaKind, name: &str) -> Option<Profile> {
    let mut known = Profile::ON_REQUEST.into_iter();
    let known = known.find(|one| one.to_string() == name);
    let named = || {
        Some(Profile::Named {
            name: ProfileName::new(name)?,
            authority,
        })
    };
    known.or_else(named)
}
