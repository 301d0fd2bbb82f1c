//! Invitations: what they give, by order or by an approved act.

use approval::Act;
use audit::Actor;
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::profile::Profile;
use registry::{Invitation, Invited, RegistryError, RequestError, Warrant};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::acts::{entry, level, names_of, rights_of, subject_of};
use super::profiles;
use super::refusal::{direct, told};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::orders::{ChosenProfile, Holder, InviteOrder};
use crate::parts::Site;

/// The act of an order, with what the site knows of its subject.
pub(super) async fn act(site: &Site, order: InviteOrder) -> Outcome<Act> {
    let invitation = look_up(site, order).await?;
    let subject = invitation.subject;
    let (mut rights, mut distinguished_name) = (None, None);
    if let Some(uid) = &subject.uid {
        let person = entry(site, uid).await?;
        rights = Some(rights_of(&person));
        distinguished_name = Some(names_of(site, &person)?);
    }
    Ok(Act::Invite {
        rights,
        distinguished_name,
        names: invitation.names,
        profile: invitation.profile.to_string(),
        clearance: invitation.clearance,
        unit: subject.unit,
        hours: invitation.hours,
        renewals: invitation.renewals,
        account: invitation.account,
        subject: subject.uid.unwrap_or(subject.common_name),
    })
}

async fn look_up(site: &Site, order: InviteOrder) -> Outcome<Invitation> {
    let mut names = Vec::new();
    let ChosenProfile { name, account } = order.profile;
    let (subject, profile, otherwise) = match order.holder {
        Holder::Uid(uid) => {
            let person = entry(site, &uid).await?;
            if let Some(unit) = order.unit.as_ref()
                && !person.units.contains(unit)
            {
                let error = anyhow::anyhow!("{uid} is not in the unit {unit}");
                return Err(Failure::new(error, "`cordon directory list` shows units"));
            }
            let profile = profiles::of_person(site, &person, name.as_deref())?;
            let most = profiles::highest_clearance(site, profile)?;
            let subject = Subject {
                unit: order.unit,
                ..subject_of(&site.config, &person)
            };
            (subject, profile, person.clearance.min(most))
        }
        _ if let Some(name) = name => {
            let what = format!("an invitation to the profile {name:?} of anybody but a person");
            return told(Err(RequestError::NotAvailable(what)));
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
        Holder::Server(name) => {
            let all = std::iter::once(&name).chain(&order.names);
            names.extend(all.map(|name| name.to_ascii_lowercase()));
            let subject = Subject::new(name.to_ascii_lowercase());
            (subject, Profile::NetworkServer, Clearance::Unclassified)
        }
    };
    Ok(Invitation {
        profile,
        subject,
        clearance: level(order.clearance, otherwise)?,
        hours: order.hours,
        renewals: order.renewals,
        names,
        account,
    })
}

/// The invitation of an approved act; names that the requester did not choose are the directory's.
pub(super) async fn approved(site: &Site, act: &Act) -> Outcome<Invitation> {
    let Act::Invite {
        subject,
        profile,
        clearance,
        unit,
        hours,
        renewals,
        names,
        account,
        ..
    } = act
    else {
        return told(Err(RequestError::NotAvailable(act.name().to_owned())));
    };
    let Some(profile) = site.registry.requested_profile(profile) else {
        return told(Err(RequestError::NotAvailable(profile.clone())));
    };
    let subject = match profile {
        profile if profile.is_of_person() => Subject {
            unit: unit.clone(),
            ..subject_of(&site.config, &entry(site, subject).await?)
        },
        _ => Subject::new(subject),
    };
    Ok(Invitation {
        profile,
        subject,
        clearance: *clearance,
        hours: *hours,
        renewals: *renewals,
        names: names.clone(),
        account: account.clone(),
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
pub async fn invite(
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
        Err(RegistryError::AcmeOff) => "set enrolment.acme in the configuration, and restart",
        _ => "`cordon registry list` shows devices and people with their states",
    };
    let invited = invited.or_hint("cannot make an invitation", hint)?;
    let subject = invitation.subject;
    let mut fields = Map::new();
    tell(site, &mut fields, &invited, subject.uid.as_deref())?;
    fields.insert(
        "holder".to_owned(),
        subject.uid.unwrap_or(subject.common_name).into(),
    );
    Ok(Value::Object(fields))
}

/// Adds an invitation to an answer, with its code, or for a server what certbot takes in place of it; for the person `uid` also
/// where it is used.
pub(super) fn tell(
    site: &Site,
    fields: &mut Map<String, Value>,
    invited: &Invited,
    uid: Option<&str>,
) -> Outcome {
    let code = match invited.names.is_empty() {
        true => Zeroizing::new(invited.code.as_str().to_owned()),
        false => certbot_settings(site, invited)?,
    };
    let expires = invited.expires_at.format(&Rfc3339).unwrap_or_default();
    fields.insert("invitation".to_owned(), invited.id.clone().into());
    fields.insert("code".to_owned(), code.as_str().into());
    fields.insert("expires".to_owned(), expires.into());
    if let Some(uid) = uid {
        let root = pki::cert::to_der(site.registry.root()).or_hint("root", "report this")?;
        let enrolment = json!({
            "uid": uid,
            "site": enrolment_address(site),
            "root_sha256": pki::cert::fingerprint_sha256(&root),
        });
        fields.insert("enrolment".to_owned(), enrolment);
    }
    Ok(())
}

/// Host and port of the enrolment listener.
fn enrolment_address(site: &Site) -> String {
    let config = &site.config;
    let host = config
        .site
        .names
        .first()
        .map_or("localhost", String::as_str);
    // An address of IPv6 is in brackets (RFC 3986, section 3.2.2).
    let port = config.listen.enrolment.port();
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Settings with which certbot enrols a server; any client takes the two `eab` values.
fn certbot_settings(site: &Site, invited: &Invited) -> Outcome<Zeroizing<String>> {
    let key = registry::binding_key(invited.code.as_str());
    let key = key.or_hint("cannot derive the key of the binding", "report this")?;
    let first = invited.names.first().map_or("", String::as_str);
    Ok(Zeroizing::new(format!(
        "# For certbot; see docs/acme.md. The key is good once.\n\
         server = https://{address}/acme/directory\n\
         eab-kid = {kid}\n\
         eab-hmac-key = {key}\n\
         cert-name = {first}\n\
         domains = {names}\n\
         key-type = ecdsa",
        address = enrolment_address(site),
        kid = invited.id,
        key = key.as_str(),
        names = invited.names.join(","),
    )))
}
