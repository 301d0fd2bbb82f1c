//! Certificates of people whose key the centre makes.

use audit::Actor;
use pki::issue::IssueError;
use pki::key::PrivateKey;
use registry::{HolderState, Order, RegistryError};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::{Site, algorithm};
use crate::registration::{self, direct, profiles};

pub(super) async fn issue_user(
    site: &Site,
    uid: &str,
    profile: Option<&str>,
    password: &str,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let person = site
        .directory
        .get(uid)
        .await
        .or_hint("cannot read the directory", "see the log")?;
    let person = person.ok_or_else(|| {
        let error = anyhow::anyhow!("nobody in the directory has the user id {uid}");
        Failure::new(error, "add the person with `cordon directory import` first")
    })?;
    let warrant = direct(site, who, "issue --uid UID --csr FILE")?;
    let usual = match person.roles.contains(&access::Role::Administrator) {
        true => "administrator-centre-key",
        false => "user-centre-key",
    };
    let profile = profiles::of_person(site, &person, Some(profile.unwrap_or(usual)))?;
    let definition = site.registry.definition(profile);
    if !definition
        .or_hint("profile", profiles::HINT)?
        .centre_makes_key()
    {
        let what = anyhow::anyhow!("keys of {profile} certificates are made by their owners");
        let hint = "have the owner make it: `cordon registry invite` or `request new issue`";
        return Err(Failure::new(what, hint));
    }
    let key =
        PrivateKey::generate(algorithm(&site.config.keys.leaf)).or_hint("key", "try again")?;
    let most = profiles::highest_clearance(site, profile)?;
    let order = Order::new(
        profile,
        registration::subject_of(&site.config, &person),
        key.spki(),
    )
    .with_clearance(person.clearance.min(most));
    let archived = site.registry.archive(profile, &key);
    let archived = archived.or_hint("the key cannot be archived", "see registration.recovery")?;
    let is_archived = archived.is_some();
    let order = order.with_archived(archived);
    let issued = site.registry.issue(order, warrant, now).await;
    let hint = hint(&issued, "correct the directory entry");
    let issued = issued.or_hint(format!("cannot issue a certificate for {uid}"), hint)?;
    let name = format!("{} (Cordon)", person.name);
    let p12 = pki::pkcs12::export(&key, &issued.chain, &name, password)
        .or_hint("cannot make the PKCS#12 file", "use another password")?;
    let chain = issued
        .chain
        .to_pem()
        .or_hint("cannot write the certificate", "report this")?;
    Ok(json!({
        "uid": uid,
        "serial": issued.serial,
        "not_after": rfc3339(issued.not_after),
        "chain_pem": chain,
        "pkcs12_hex": hex::encode(p12),
        "archived": is_archived,
    }))
}

/// Returns the advice about a refusal: the holder's state has its own.
pub(super) fn hint<T>(outcome: &Result<T, RegistryError>, otherwise: &'static str) -> &'static str {
    match outcome {
        Err(RegistryError::Holder(refused)) => match refused.state {
            HolderState::Suspended => "end the suspension with `cordon registry resume`",
            HolderState::Revoked => "allow new certificates with `cordon registry readmit`",
            HolderState::Enrolled | HolderState::Retired => "use another name",
        },
        Err(RegistryError::Issue(IssueError::Sign(_))) => {
            "look after the token with the authority's key (docs/operations.md), then try again"
        }
        _ => otherwise,
    }
}

pub fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
