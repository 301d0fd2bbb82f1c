//! `cordon pki profile`: profiles of certificates.

use std::path::Path;

use pki::key::KeyAlgorithm;
use pki::profile::{Definition, MAX_PROFILE_TEXT, Presence, built_in, purpose_name};
use serde_json::{Value, json};

use super::{list, text};
use crate::cli::{PkiProfile, SiteArgs};
use commandline::{Failure, OrHint as _, Outcome};
use site::control::{Request, ask};
use site::registration::profiles;

pub(super) async fn run(command: PkiProfile, json: bool) -> Outcome {
    match command {
        PkiProfile::List { site } => list_all(site.as_ref(), json).await,
        PkiProfile::Show { name, site } => show(&name, site.as_ref(), json).await,
        PkiProfile::Check { file } => check(&file, json),
        PkiProfile::Put { file, site } => put(&file, &site, json).await,
    }
}

/// The profile in a file.
pub(super) fn read(file: &Path) -> Outcome<String> {
    const HINT: &str = "name a profile's file (TOML)";
    let bytes = super::read_regular(file, MAX_PROFILE_TEXT as u64, HINT)?;
    let text = String::from_utf8(bytes.to_vec());
    text.or_hint(format!("{} is no text", file.display()), HINT)
}

/// The profiles of a site, or those that are built in.
async fn all(site: Option<&SiteArgs>) -> Outcome<Vec<Value>> {
    if let Some(site) = site {
        let value = ask(site, Request::ListProfiles).await?;
        return Ok(list(&value, "profiles").to_vec());
    }
    let built_in = built_in();
    let built_in =
        built_in.map(|(one, text)| json!({ "name": one.name(), "text": text, "built_in": true }));
    Ok(built_in.collect())
}

async fn list_all(site: Option<&SiteArgs>, json: bool) -> Outcome {
    let profiles = all(site).await?;
    let mut lines = String::new();
    for profile in &profiles {
        let from = match (text(profile, "request"), text(profile, "changed_at")) {
            (_, "") => "built in".to_owned(),
            ("", at) => format!("since {at}, by order"),
            (request, at) => format!("since {at}, by request {request}"),
        };
        let waits = match text(profile, "waits") {
            "" => String::new(),
            why => format!("; NOT IN FORCE: {why}"),
        };
        lines.push_str(&format!("{:<26} {from}{waits}\n", text(profile, "name")));
    }
    super::print(json, &json!({ "profiles": profiles }), &lines)
}

async fn show(name: &str, site: Option<&SiteArgs>, json: bool) -> Outcome {
    let profiles = all(site).await?;
    let found = profiles.iter().find(|one| text(one, "name") == name);
    let found = found.ok_or_else(|| {
        let what = anyhow::anyhow!("there is no profile {name:?}");
        Failure::new(what, profiles::HINT)
    })?;
    super::print(json, found, text(found, "text").trim_end())
}

fn check(file: &Path, json: bool) -> Outcome {
    let definition = Definition::parse(&read(file)?).map_err(|error| {
        let advice = error.advice.clone();
        let what = anyhow::Error::new(error).context(file.display().to_string());
        Failure::new(what, advice)
    })?;
    let purposes = definition.purposes().iter();
    let purposes: Vec<String> = purposes.map(|one| purpose_name(*one)).collect();
    let keys = KeyAlgorithm::ALL.into_iter();
    let keys: Vec<&str> = keys
        .filter(|key| definition.key_usage(*key).is_some())
        .map(KeyAlgorithm::name)
        .collect();
    let authority = definition
        .profile()
        .and_then(pki::profile::Profile::issued_by);
    let authority = authority
        .map(pki::profile::CaKind::name)
        .unwrap_or_default();
    let highest = definition.highest_clearance().map(pki::Clearance::level);
    let value = json!({
        "name": definition.name(),
        "issuer": authority,
        "keys": keys,
        "purposes": purposes,
        "clearance": definition.clearance() != Presence::None,
        "highest_clearance": highest,
        "centre_makes_key": definition.centre_makes_key(),
    });
    let summary = format!(
        "{}: certificates of {authority} for {}, with keys of {}",
        definition.name(),
        purposes.join(", "),
        keys.join(", "),
    );
    super::print(json, &value, &summary)
}

async fn put(file: &Path, site: &SiteArgs, json: bool) -> Outcome {
    let definition = read(file)?;
    let value = ask(site, Request::PutProfile { definition }).await?;
    let summary = format!("{} is in force", text(&value, "name"));
    super::print(json, &value, &summary)
}
