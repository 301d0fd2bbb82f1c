//! Invitations: what they give, by order or by an approved act.

use access::Role;
use approval::Act;
use audit::Actor;
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::profile::Profile;
use registry::{Invitation, Invited, RegistryError, RequestError, Warrant};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::acts::{entry, level, subject_of};
use super::refusal::{direct, told};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::orders::{Holder, InviteOrder};
use crate::site::Site;

/// The act of an order, with what the site knows of its subject.
pub(super) async fn act(site: &Site, order: InviteOrder) -> Outcome<Act> {
    let invitation = look_up(site, order).await?;
    let subject = invitation.subject;
    Ok(Act::Invite {
        profile: invitation.profile.to_string(),
        clearance: invitation.clearance,
        unit: subject.unit,
        hours: invitation.hours,
        renewals: invitation.renewals,
        subject: subject.uid.unwrap_or(subject.common_name),
    })
}

async fn look_up(site: &Site, order: InviteOrder) -> Outcome<Invitation> {
    let (subject, profile, otherwise) = match order.holder {
        Holder::Uid(uid) => {
            let person = entry(site, &uid).await?;
            if let Some(unit) = order.unit.as_ref()
                && !person.units.contains(unit)
            {
                let error = anyhow::anyhow!("{uid} is not in the unit {unit}");
                return Err(Failure::new(error, "`cordon directory list` shows units"));
            }
            let administrator = person.roles.contains(&Role::Administrator);
            let subject = Subject {
                unit: order.unit,
                ..subject_of(site, &person)
            };
            (subject, Profile::User { administrator }, person.clearance)
        }
        Holder::Device(name) => (
            Subject::new(name),
            Profile::VpnDevice,
            Clearance::Unclassified,
        ),
        Holder::Gateway(_) => {
            let what = "an invitation of a gateway".to_owned();
            return told(Err(RequestError::NotAvailable(what)));
        }
    };
    Ok(Invitation {
        profile,
        subject,
        clearance: level(order.clearance, otherwise)?,
        hours: order.hours,
        renewals: order.renewals,
    })
}

/// The invitation of an approved act; names that nobody chooses are the directory's.
pub(super) async fn approved(site: &Site, act: &Act) -> Outcome<Invitation> {
    let Act::Invite {
        subject,
        profile,
        clearance,
        unit,
        hours,
        renewals,
    } = act
    else {
        return told(Err(RequestError::NotAvailable(act.name().to_owned())));
    };
    let Some(profile) = registry::profile(profile) else {
        return told(Err(RequestError::NotAvailable(profile.clone())));
    };
    let subject = match profile {
        Profile::User { .. } => Subject {
            unit: unit.clone(),
            ..subject_of(site, &entry(site, subject).await?)
        },
        _ => Subject::new(subject),
    };
    Ok(Invitation {
        profile,
        subject,
        clearance: *clearance,
        hours: *hours,
        renewals: *renewals,
    })
}

/// Makes an invitation; with `cmp`, its code is for CMP, too.
pub(super) async fn invite_with(
    site: &Site,
    invitation: &Invitation,
    cmp: bool,
    warrant: Warrant,
    now: OffsetDateTime,
) -> Result<Invited, RegistryError> {
    match cmp {
        true => site.registry.invite_for_cmp(invitation, warrant, now).await,
        false => site.registry.invite(invitation, warrant, now).await,
    }
}

/// Gives an invitation on an order of `who`.
pub(crate) async fn invite(
    site: &Site,
    order: InviteOrder,
    cmp: bool,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let warrant = direct(site, who, "invite --uid UID")?;
    let invitation = look_up(site, order).await?;
    let invited = invite_with(site, &invitation, cmp, warrant, now).await;
    let hint = match invited {
        Err(RegistryError::CmpOff) => "set enrolment.cmp in the configuration, and restart",
        _ => "`cordon registry list` shows devices and people with their states",
    };
    let invited = invited.or_hint("cannot make an invitation", hint)?;
    let subject = invitation.subject;
    let mut fields = Map::new();
    fields.insert(
        "holder".to_owned(),
        subject.uid.unwrap_or(subject.common_name).into(),
    );
    tell(&mut fields, &invited);
    Ok(Value::Object(fields))
}

/// Adds an invitation to an answer, with its code.
pub(super) fn tell(fields: &mut Map<String, Value>, invited: &Invited) {
    let expires = invited.expires_at.format(&Rfc3339).unwrap_or_default();
    fields.insert("invitation".to_owned(), invited.id.clone().into());
    fields.insert("code".to_owned(), invited.code.as_str().into());
    fields.insert("expires".to_owned(), expires.into());
}
