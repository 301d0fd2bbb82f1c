//! What the registry knows of an act before anybody approves it, and once more when it is carried out.

use approval::{Act, HolderKind, Refusal};
use pki::clearance::Clearance;
use pki::csr;
use pki::name::{WindowsAccount, is_host_name};
use pki::profile::{CaKind, Definition, Presence, Profile};
use pki::spki::spki_sha256;
use store::sqlx;
use time::OffsetDateTime;

use super::error::RequestError;
use super::records::Wanted;
use crate::codes::check_device_name;
use crate::names::check_names;
use crate::warrant::authority_of;
use crate::{Registry, RegistryError};

/// Longest time that a code is good for, in hours: 30 days.
pub const MAX_INVITATION_HOURS: u32 = 720;
/// Renewals that one approval may cover. Our choice: with certificates of a year, somebody looks every ten.
pub const MAX_INVITED_RENEWALS: u8 = 10;
/// Refuses what no invitation may say.
pub(crate) fn check_invitation(
    profile: Profile,
    hours: u32,
    renewals: u8,
) -> Result<(), RegistryError> {
    // Devices renew by themselves as long as they are enrolled.
    let most = match profile {
        Profile::NetworkServer => MAX_INVITED_RENEWALS,
        profile if profile.is_of_person() => MAX_INVITED_RENEWALS,
        Profile::VpnDevice => 0,
        _ => return Err(RegistryError::NotInvited(profile)),
    };
    if hours == 0 || hours > MAX_INVITATION_HOURS {
        return Err(RegistryError::InvitationTime(hours));
    }
    if renewals > most {
        return Err(RegistryError::InvitationRenewals { renewals, most });
    }
    Ok(())
}

/// Makes sure that an account of Windows is named where the profile has one, and nowhere else.
pub(crate) fn check_account(
    definition: &Definition,
    account: Option<&WindowsAccount>,
) -> Result<(), RegistryError> {
    let wanted = definition.names().security_identifier;
    let is_right = match account {
        None => wanted != Presence::Required,
        Some(account) => wanted != Presence::None && account.check().is_ok(),
    };
    match is_right {
        true => Ok(()),
        false => Err(RegistryError::Account(definition.name().to_owned())),
    }
}

/// Refuses a key that has a certificate, whoever's.
pub(crate) async fn check_new_key(
    database: impl sqlx::SqliteExecutor<'_>,
    spki: &str,
) -> Result<(), RequestError> {
    let holder: Option<String> =
        sqlx::query_scalar("SELECT holder_id FROM issued WHERE spki_sha256 = ? LIMIT 1")
            .bind(spki)
            .fetch_optional(database)
            .await?;
    match holder {
        Some(holder) => Err(RequestError::KeyInUse(holder)),
        None => Ok(()),
    }
}

impl Registry {
    /// Refuses what nobody could carry out, before anybody signs it.
    pub(super) async fn check_wanted(
        &self,
        wanted: &Wanted,
        now: OffsetDateTime,
    ) -> Result<(), RequestError> {
        self.check_rights(&wanted.act).await?;
        match &wanted.act {
            Act::Issue {
                subject,
                profile: name,
                clearance,
                spki_sha256,
                account,
                ..
            } => {
                let profile = self.asked_for(name, *clearance, account.as_ref())?;
                if profile == Profile::NetworkServer {
                    return Err(RequestError::NotAvailable(format!("profile {name:?}")));
                }
                let csr = wanted.csr.as_deref().ok_or(RequestError::NoCsr)?;
                self.check_csr(csr, profile, subject, spki_sha256).await
            }
            Act::Invite {
                subject,
                profile: name,
                clearance,
                hours,
                renewals,
                names,
                account,
                ..
            } => {
                let profile = self.asked_for(name, *clearance, account.as_ref())?;
                check_invitation(profile, *hours, *renewals)?;
                check_names(profile, subject, names, *clearance)?;
                match profile {
                    Profile::NetworkServer => self.check_not_of_site(names).await?,
                    profile if profile.is_of_person() => {}
                    _ => check_device_name(subject)?,
                }
                Ok(())
            }
            Act::RecoverKey {
                subject,
                serial,
                clearance,
                ..
            } => self.check_recovery(serial, subject, *clearance).await,
            Act::ChangeProfile {
                profile,
                clearance,
                definition,
            } => {
                self.profile_of_act(profile, *clearance, definition)?;
                Ok(())
            }
            Act::Renew {
                subject,
                serial,
                clearance,
                ..
            }
            | Act::Revoke {
                subject,
                serial,
                clearance,
                ..
            } => self.check_certificate(serial, subject, *clearance).await,
            Act::ChangeHolder {
                subject,
                holder,
                clearance,
                ..
            } => self.check_holder(*holder, subject, *clearance).await,
            Act::AddAuthority { name, .. } => {
                let id = name.parse().map_err(RequestError::UnknownAuthority)?;
                self.check_ready(id, now)?;
                match self.activation(id)? == wanted.act {
                    true => Ok(()),
                    false => Err(RequestError::OtherAuthority(id)),
                }
            }
            // The directory is the caller's.
            Act::ChangePerson { .. } => Ok(()),
            other => Err(RequestError::NotAvailable(other.name().to_owned())),
        }
    }

    /// The profile of a request, which may have the clearance and the account of Windows that are asked for.
    fn asked_for(
        &self,
        name: &str,
        clearance: Clearance,
        account: Option<&WindowsAccount>,
    ) -> Result<Profile, RequestError> {
        let unknown = || RequestError::NotAvailable(format!("profile {name:?}"));
        let profile = self.requested_profile(name).ok_or_else(unknown)?;
        self.check_bound(profile, clearance)?;
        let definition = self.definition(profile)?;
        check_account(&definition, account)?;
        Ok(profile)
    }

    fn check_bound(&self, profile: Profile, wanted: Clearance) -> Result<(), RequestError> {
        let kind = profile.issued_by().ok_or(RegistryError::NotALeaf)?;
        let definition = self.definition(profile)?;
        let of_profile = self.clearance_of_profile(&definition)?;
        let bounds = [self.issuing(kind)?.max_clearance()?, Some(of_profile)];
        match bounds.into_iter().flatten().min() {
            Some(bound) if wanted > bound => Err(Refusal::AboveAuthority { bound, wanted }.into()),
            _ => Ok(()),
        }
    }

    async fn check_csr(
        &self,
        der: &[u8],
        profile: Profile,
        subject: &str,
        spki: &str,
    ) -> Result<(), RequestError> {
        let csr = csr::parse_and_verify(der)?;
        let is_person = profile.is_of_person();
        // A person's certificate gets the directory's names; the request may leave them out, not change them.
        let requested = match is_person {
            true => csr.subject.uid.as_ref(),
            false => Some(&csr.subject.common_name),
        };
        if let Some(requested) = requested.filter(|requested| *requested != subject) {
            return Err(RequestError::OtherSubject {
                requested: requested.clone(),
                subject: subject.to_owned(),
            });
        }
        match profile.issued_by() {
            Some(CaKind::Devices) => check_device_name(subject)?,
            // A server of the network is known by a name of a host, whatever it is for.
            Some(CaKind::Services) if !is_host_name(subject) => {
                let why = format!("{subject:?} is no name of one host in lower case");
                return Err(RegistryError::ServerNames(why).into());
            }
            _ => {}
        }
        let found = spki_sha256(&csr.spki).map_err(|_| csr::CsrError::Malformed)?;
        if found != spki {
            return Err(RequestError::OtherKey);
        }
        self.check_key_list(&csr.spki)?;
        check_new_key(self.inner.people.read(), spki).await
    }

    async fn check_certificate(
        &self,
        serial: &str,
        subject: &str,
        clearance: Clearance,
    ) -> Result<(), RequestError> {
        let unknown = || RegistryError::UnknownSerial {
            authority: CaKind::Users,
            serial: serial.to_owned(),
        };
        let (_, record) = self.find(serial).await?.ok_or_else(unknown)?;
        let other = |field| RequestError::OtherCertificate {
            serial: serial.to_owned(),
            field,
        };
        if record.uid.as_deref().unwrap_or(&record.holder) != subject {
            return Err(other("the subject"));
        }
        if record.clearance.unwrap_or_default() != clearance {
            return Err(other("the clearance"));
        }
        match record.revoked {
            Some(_) => Err(RequestError::AlreadyRevoked(serial.to_owned())),
            None => Ok(()),
        }
    }

    async fn check_holder(
        &self,
        holder: HolderKind,
        subject: &str,
        clearance: Clearance,
    ) -> Result<(), RequestError> {
        let authority = authority_of(holder);
        if self.holder_state(authority, subject).await?.is_none() {
            let holder = subject.to_owned();
            return Err(RegistryError::UnknownHolder { authority, holder }.into());
        }
        let has = self.holder_clearance(authority, subject).await?;
        if clearance < has {
            return Err(RequestError::OtherClearance {
                subject: subject.to_owned(),
                has,
                says: clearance,
            });
        }
        Ok(())
    }

    /// The highest clearance of a holder's certificates, revoked ones too: what a readmission leads back to.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn holder_clearance(
        &self,
        authority: CaKind,
        holder: &str,
    ) -> Result<Clearance, RegistryError> {
        let level: Option<i64> = sqlx::query_scalar(
            "SELECT max(clearance) FROM issued WHERE authority = ? AND holder_id = ?",
        )
        .bind(authority.name())
        .bind(holder)
        .fetch_one(self.readers(authority))
        .await?;
        let level = u8::try_from(level.unwrap_or(0));
        level
            .ok()
            .and_then(|level| Clearance::try_from(level).ok())
            .ok_or(RegistryError::Corrupt("clearance"))
    }
}
