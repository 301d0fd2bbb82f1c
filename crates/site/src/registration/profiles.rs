//! Profiles of certificates, chosen by name or by what the holder is.

use access::Role;
use audit::Actor;
use directory::Person;
use pki::clearance::Clearance;
use pki::profile::{CaKind, Definition, Profile};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::refusal::direct;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::Site;

pub const HINT: &str = "`cordon pki profile list` names the profiles, `show` shows one";

/// Reads a profile's file.
pub fn parse(text: &str) -> Outcome<Definition> {
    Definition::parse(text).map_err(|error| {
        let advice = error.advice.clone();
        Failure::new(anyhow::Error::new(error), advice)
    })
}

/// The profile of a person's certificate: the one that was chosen, or the one of her roles.
pub fn of_person(site: &Site, person: &Person, chosen: Option<&str>) -> Outcome<Profile> {
    let administrator = person.roles.contains(&Role::Administrator);
    let profile = match chosen {
        None => Profile::User { administrator },
        Some(name) => named(site, name, CaKind::Users)?,
    };
    let definition = site.registry.definition(profile).or_hint("profile", HINT)?;
    if definition.is_for_administrators() && !administrator {
        let what = anyhow::anyhow!("{} is no administrator", person.uid);
        return Err(Failure::new(what, "choose another profile"));
    }
    Ok(profile)
}

/// The profile of this name, of certificates of this authority.
pub fn named(site: &Site, name: &str, authority: CaKind) -> Outcome<Profile> {
    match site.registry.requested_profile(name) {
        Some(profile) if profile.issued_by() == Some(authority) => Ok(profile),
        Some(_) => {
            let what = anyhow::anyhow!("{name:?} is no profile of certificates of {authority}");
            Err(Failure::new(what, HINT))
        }
        None => {
            let what = anyhow::anyhow!("there is no profile {name:?}");
            Err(Failure::new(what, HINT))
        }
    }
}

/// The highest clearance in certificates of a profile.
pub fn highest_clearance(site: &Site, profile: Profile) -> Outcome<Clearance> {
    let definition = site.registry.definition(profile).or_hint("profile", HINT)?;
    let highest = site.registry.clearance_of_profile(&definition);
    highest.or_hint("profile", HINT)
}

/// The profiles of certificates that are issued on request.
pub fn list(site: &Site) -> Value {
    json!({ "profiles": site.registry.profiles() })
}

/// Puts a profile in force on an order of `who`.
pub async fn put(site: &Site, text: &str, who: &Actor, now: OffsetDateTime) -> Outcome<Value> {
    parse(text)?;
    let warrant = direct(site, who, "profile --file FILE")?;
    let changed = site.registry.change_profile(text, warrant, now).await;
    let changed = changed.or_hint("the profile is not in force", HINT)?;
    serde_json::to_value(changed).or_hint("profile", "report this")
}
