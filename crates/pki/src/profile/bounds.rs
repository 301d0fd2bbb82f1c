//! Bounds of profiles that an administrator writes.

use x509_cert::ext::pkix::KeyUsage;

use super::definition::{Definition, Issuer, Presence};
use super::error::{ProfileError, mistake};
use super::kind::{CaKind, MAX_NAME, Profile, ProfileName};
use super::{built_in, purpose};
use crate::oid::eku;

impl Definition {
    /// Reads a profile that an administrator wrote.
    ///
    /// A profile of a name that is built in keeps within that; another one keeps within what certificates of its authority
    /// may do at all. No profile of the site's own services, nor of an authority, is written by anybody.
    ///
    /// # Errors
    /// [`ProfileError`] for the first mistake.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let definition = Self::read(text)?;
        check(&definition)?;
        Ok(definition)
    }
}

/// Refuses what would let certificates do more than their authority's may.
fn check(new: &Definition) -> Result<(), ProfileError> {
    let Issuer::Authority(authority) = new.issuer else {
        let problem = "profiles of authorities, and of whoever signs for them, are built in";
        return mistake("issuer", "", problem, "use users, devices or services");
    };
    if let Some(built_in) = built_in::by_name(&new.name) {
        return match built_in.profile().is_some_and(Profile::is_on_request) {
            true => check_within(new, built_in),
            false => mistake(
                "name",
                format!("{:?}", new.name),
                "is a profile of the site's own services, which is built in",
                "choose another name",
            ),
        };
    }
    if ProfileName::new(&new.name).is_none() {
        let advice = format!(
            "use 1 to {MAX_NAME} lower-case letters, digits and hyphens, beginning with a letter"
        );
        return mistake(
            "name",
            format!("{:?}", new.name),
            "is no name of a profile",
            advice,
        );
    }
    if new.is_ca() {
        let problem = "a profile that is put in force makes no authorities";
        return mistake("authority", "", problem, "leave the section out");
    }
    if new.time_stamping_among_others {
        let problem = "is for the published user profile alone";
        return mistake(
            "extended_key_usage.time_stamping_among_others",
            "true",
            problem,
            "leave it out",
        );
    }
    let allowed = purpose::allowed(authority);
    for one in &new.purposes {
        if !allowed.contains(one) && !purpose::is_private(*one) {
            let names: Vec<String> = allowed
                .iter()
                .map(|one| purpose::purpose_name(*one))
                .collect();
            let problem = format!("is no purpose of certificates of {authority}");
            let advice = format!(
                "use {}, or an identifier of an arc of your own",
                names.join(", ")
            );
            let name = purpose::purpose_name(*one);
            return mistake(
                "extended_key_usage.purposes",
                format!("{name:?}"),
                problem,
                advice,
            );
        }
    }
    check_logon(new)?;
    check_uid(new)
}

/// A profile of a built-in name says what that says, or less.
fn check_within(new: &Definition, built_in: &Definition) -> Result<(), ProfileError> {
    let advice = || {
        format!(
            "keep within `cordon pki profile show '{}'`, or choose another name",
            built_in.name
        )
    };
    let wider = |place: &str, value: String| {
        mistake(
            place,
            value,
            "goes beyond the profile of this name that is built in",
            advice(),
        )
    };
    if new.issuer != built_in.issuer {
        return wider("issuer", String::new());
    }
    if new.administrators_only == Some(false) && built_in.is_for_administrators() {
        return wider("administrators_only", "false".to_owned());
    }
    if new.path_len.is_some() {
        return wider("authority", String::new());
    }
    for ((kind, usage), (_, most)) in new
        .key_usage
        .each()
        .into_iter()
        .zip(built_in.key_usage.each())
    {
        let is_within = match (usage, most) {
            (None, _) => true,
            (Some(usage), Some(most)) => is_part(usage, most),
            (Some(_), None) => false,
        };
        if !is_within {
            return wider(&format!("key_usage.{kind}"), String::new());
        }
    }
    for one in &new.purposes {
        if !built_in.purposes.contains(one) {
            let name = purpose::purpose_name(*one);
            return wider("extended_key_usage.purposes", format!("{name:?}"));
        }
    }
    let (own, most) = (new.names, built_in.names);
    for (field, own, most) in [
        ("names.uid", own.uid, most.uid),
        ("names.email", own.email, most.email),
        ("names.principal", own.principal, most.principal),
        ("names.host", own.host, most.host),
        (
            "names.security_identifier",
            own.security_identifier,
            most.security_identifier,
        ),
        ("clearance", new.clearance, built_in.clearance),
    ] {
        if !own.is_within(most) {
            return wider(field, String::new());
        }
    }
    for (field, own, most) in [
        (
            "extended_key_usage.time_stamping_among_others",
            new.time_stamping_among_others,
            built_in.time_stamping_among_others,
        ),
        (
            "centre_makes_key",
            new.centre_makes_key,
            built_in.centre_makes_key,
        ),
        ("archive_key", new.archive_key, built_in.archive_key),
        ("ocsp_no_check", new.ocsp_no_check, built_in.ocsp_no_check),
    ] {
        if own && !most {
            return wider(field, "true".to_owned());
        }
    }
    Ok(())
}

fn is_part(usage: KeyUsage, most: KeyUsage) -> bool {
    (usage.0 - most.0).is_empty()
}

/// A certificate by which somebody logs on elsewhere names the account, in both ways in which that is looked up.
fn check_logon(new: &Definition) -> Result<(), ProfileError> {
    use Presence::{None, Required};
    let logs_on = new.purposes.contains(&eku::SMART_CARD_LOGON);
    let names = new.names;
    let (principal, sid) = (names.principal, names.security_identifier);
    if logs_on && (principal, sid) != (Required, Required) {
        let problem = "who logs on is named by both (Microsoft KB5014754)";
        let advice = "write principal = \"required\" and security_identifier = \"required\"";
        return mistake("names", "", problem, advice);
    }
    if !logs_on && (principal, sid) != (None, None) {
        let problem = "an account of Windows is named, and logging on is no purpose";
        let advice = "leave principal and security_identifier out, or add smartCardLogon";
        return mistake("names", "", problem, advice);
    }
    Ok(())
}

/// Certificates of people say whose they are: it is by the user id that they are found and revoked.
fn check_uid(new: &Definition) -> Result<(), ProfileError> {
    match new.issuer {
        Issuer::Authority(CaKind::Users) if new.names.uid != Presence::Required => mistake(
            "names.uid",
            "",
            "a person is known by the user id",
            "write uid = \"required\"",
        ),
        _ => Ok(()),
    }
}
