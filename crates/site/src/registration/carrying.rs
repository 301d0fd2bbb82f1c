//! Carrying out what was approved.

use std::collections::BTreeMap;

use access::PersonRecord;
use approval::{Act, People};
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::profile::Profile;
use registry::{Invited, Issued, Order, RegistryError, RequestError, RequestRecord};
use time::OffsetDateTime;

use super::acts::{authority_of, certificate, entry, rights_of, subject_of};
use super::inviting::{approved, invite_with};
use super::refusal::{LOOK, told};
use super::{person, profiles};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::parts::Site;

/// The directory and the approvers' certificates at one instant.
#[derive(Default)]
struct Snapshot {
    people: BTreeMap<String, PersonRecord>,
    certificates: BTreeMap<String, Vec<u8>>,
}

impl People for Snapshot {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        self.people.get(uid).cloned()
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        self.certificates.get(sha256).cloned()
    }
}

impl Snapshot {
    async fn of(site: &Site, record: &RequestRecord, now: OffsetDateTime) -> Outcome<Self> {
        let mut snapshot = Self::default();
        let id = &record.request.id().0;
        for approval in record.request.state().approvals() {
            let entry = site.directory.get(approval.uid()).await;
            if let Some(entry) = entry.or_hint("cannot read the directory", "see the log")? {
                snapshot.people.insert(entry.uid.clone(), entry.record());
            }
            let sha256 = approval.certificate_sha256();
            let found = site.registry.approver_certificate(id, sha256, now).await;
            if let Some(der) = told(found)? {
                snapshot.certificates.insert(sha256.to_owned(), der);
            }
        }
        Ok(snapshot)
    }
}

/// What came of an act.
pub enum Carried {
    Issued(Issued),
    /// With a code, which is stored nowhere, and the user id of a person.
    Invited(Invited, Option<String>),
    /// An archived key, encrypted to the recovery certificate.
    Recovered(Vec<u8>),
    Done,
}

/// Carries out what was approved, of which `giver` saw the version of `seen`; with `cmp`, an invitation's code is for CMP, too.
pub async fn carry(
    site: &Site,
    giver: &Giver,
    (id, seen): (&str, u64),
    cmp: bool,
    now: OffsetDateTime,
) -> Outcome<Carried> {
    let (by, _) = person(giver)?;
    let record = told(site.registry.request(id).await)?;
    let people = Snapshot::of(site, &record, now).await?;
    let registry = &site.registry;
    let actor = giver.actor.clone();
    let warrant = registry.authorize_request(id, seen, &people, by, actor.clone(), now);
    let warrant = told(warrant.await)?;
    match record.request.act() {
        Act::Issue {
            subject,
            profile,
            clearance,
            account,
            ..
        } => {
            let order = order(site, subject, profile, *clearance, &record).await?;
            let order = order.with_account(account.clone());
            let issued = done(registry.issue(order, warrant, now).await)?;
            return Ok(Carried::Issued(issued));
        }
        Act::Invite { .. } => {
            let invitation = approved(site, record.request.act()).await?;
            let invited = invite_with(site, &invitation, cmp, warrant, now).await;
            let invited = done(invited)?;
            return Ok(Carried::Invited(invited, invitation.subject.uid));
        }
        Act::RecoverKey { .. } => {
            let envelope = done(registry.recover_key(warrant, now).await)?;
            return Ok(Carried::Recovered(envelope));
        }
        Act::ChangeProfile { definition, .. } => {
            done(registry.change_profile(definition, warrant, now).await)?;
        }
        Act::Renew { .. } => {
            return Ok(Carried::Issued(done(registry.renew(warrant, now).await)?));
        }
        Act::Revoke { serial, cause, .. } => {
            let (kind, _) = certificate(site, serial).await?;
            done(registry.revoke(kind, serial, *cause, warrant, now).await)?;
        }
        Act::ChangeHolder {
            subject,
            holder,
            change,
            ..
        } => {
            let (kind, change) = (authority_of(*holder), (*change).into());
            done(
                registry
                    .change_holder(kind, subject, change, warrant, now)
                    .await,
            )?;
        }
        Act::AddAuthority { name, .. } => {
            let id = told(name.parse().map_err(RequestError::UnknownAuthority))?;
            done(registry.activate_authority(id, warrant, now).await)?;
        }
        Act::ChangePerson { subject, old, new } => {
            let mut entry = entry(site, subject).await?;
            let present = rights_of(&entry);
            // One that an interrupted attempt has changed already is as it should be.
            if present != *old && present != *new {
                let what = anyhow::anyhow!("the rights of {subject} were changed meanwhile");
                return Err(Failure::new(what, "have the request refused, and ask anew"));
            }
            (entry.clearance, entry.roles, entry.units) =
                (new.clearance, new.roles.clone(), new.units.clone());
            let update = site.directory.update(&entry, actor, now);
            let done = registry.carry_out_elsewhere(warrant, subject, update, now);
            done.await.or_hint("not carried out", LOOK)?;
        }
        other => return told(Err(RequestError::NotAvailable(other.name().to_owned()))),
    }
    Ok(Carried::Done)
}

fn done<T>(outcome: Result<T, RegistryError>) -> Outcome<T> {
    outcome.or_hint("not carried out", LOOK)
}

async fn order(
    site: &Site,
    subject: &str,
    profile: &str,
    clearance: Clearance,
    record: &RequestRecord,
) -> Outcome<Order> {
    let csr = record.csr.as_deref().unwrap_or_default();
    let csr = pki::csr::parse_and_verify(csr).or_hint("certification request", "ask anew")?;
    let Some(profile) = site.registry.requested_profile(profile) else {
        return told(Err(RequestError::NotAvailable(profile.to_owned())));
    };
    let names = match profile.is_of_person() {
        true => {
            let entry = entry(site, subject).await?;
            if !matches!(profile, Profile::User { .. }) {
                profiles::of_person(site, &entry, Some(&profile.to_string()))?;
            }
            subject_of(&site.config, &entry)
        }
        false => Subject::new(subject),
    };
    Ok(Order::new(profile, names, csr.spki).with_clearance(clearance))
}
