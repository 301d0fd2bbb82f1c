//! The issuing authorities of an open site: renewed, followed by another generation, and activated.

use std::path::PathBuf;

use audit::{Actor, AuditSink};
use event_catalogue::Recorded as _;
use event_catalogue::registry::AuthorityMade;
use pki::key::Passphrase;
use pki::profile::CaKind;
use registry::{
    AuthorityId, AuthorityState, Delivery, Installed, Passphrases, Registry, RegistryError,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::control::rfc3339;
use crate::failure::{OrHint as _, Outcome};
use crate::parts::{Site, registry_settings};

const LOG: &str = "see the log";
/// What is to be done about a delivery that does not fit.
pub const CHECK: &str = "check the ceremony's folder with `cordon pki ceremony check`";

/// All of them, for machines.
pub fn list(site: &Site, now: OffsetDateTime) -> Value {
    let records = site.registry.authority_records(now);
    let shown = records.iter().map(|record| {
        let (begin, end) = record.validity();
        json!({
            "name": record.id.to_string(),
            "kind": record.id.kind().name(),
            "generation": record.id.generation(),
            "state": record.state.name(),
            "subject": pki::name::shown(&record.certificate.tbs_certificate.subject),
            "serial": pki::cert::serial_hex(&record.certificate),
            "not_before": rfc3339(begin),
            "not_after": rfc3339(end),
            "sha256": pki::cert::to_der(&record.certificate)
                .map(|der| pki::cert::fingerprint_sha256(&der))
                .unwrap_or_default(),
            "pem": pki::cert::to_pem(&record.certificate).unwrap_or_default(),
            "revoked": record.is_revoked,
            "key": record.has_key,
            "needed": record.is_needed,
            "valid": record.is_valid(now),
            "expired": end < now,
        })
    });
    let unusable = site.registry.unusable_authorities().into_iter();
    let unusable = unusable.map(|one| {
        json!({
            "name": one.id.to_string(),
            "kind": one.id.kind().name(),
            "generation": one.id.generation(),
            "state": one.state.map(AuthorityState::name),
            "reason": one.reason,
        })
    });
    json!({
        "authorities": shown.collect::<Vec<_>>(),
        "unusable": unusable.collect::<Vec<_>>(),
    })
}

/// Advice about an act that was refused.
pub fn hint(error: &RegistryError, otherwise: &str) -> String {
    match error {
        RegistryError::GenerationWaits(id) => format!(
            "`cordon pki activate-authority {id}` (or `cordon registry request new authority --name {id}`) puts it to use, \
             `cordon pki drop-authority {id}` gives it up"
        ),
        _ => otherwise.to_owned(),
    }
}

/// Gives new certificates to the authorities that issue or wait to do so.
pub async fn renew(
    site: &Site,
    root_passphrase: Zeroizing<String>,
    who: Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let records = site.registry.authority_records(now).into_iter();
    let renewed = records.filter(|record| record.state != AuthorityState::Retired);
    let ids: Vec<AuthorityId> = renewed.map(|record| record.id).collect();
    let (data, settings) = (site.data.clone(), registry_settings(&site.config));
    let sink = site.portal_audit.clone();
    let names: Vec<String> = ids.iter().map(AuthorityId::to_string).collect();
    let renewed = tokio::task::spawn_blocking(move || {
        let root = Passphrase::from(root_passphrase.as_str());
        crate::parts::renew_authorities(&data, &settings, &root, &ids, &*sink, who, now)
    });
    renewed
        .await
        .or_hint("cannot renew the authorities", LOG)??;
    take_up(site, now).await?;
    Ok(json!({ "renewed": names }))
}

/// Makes another generation of an authority with the root's key.
pub async fn make(
    site: &Site,
    kind: &str,
    root_passphrase: Zeroizing<String>,
    who: Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    const HINT: &str =
        "put root.key back into the folder pki for the time, and check its passphrase";
    let kind: CaKind = kind
        .parse()
        .or_hint("kind of authority", "use users, devices or services")?;
    let (data, settings) = (site.data.clone(), registry_settings(&site.config));
    let passphrases = Passphrases {
        root: Passphrase::from(root_passphrase.as_str()),
        issuing: site.credentials.passphrase().clone(),
    };
    let sink = site.portal_audit.clone();
    let standings = site.registry.standings();
    let made = tokio::task::spawn_blocking(move || {
        let id = Registry::next_generation(&data, &standings, kind, now)?;
        let resource = format!("authority/{kind}");
        let new = id.to_string();
        let recorded = sink.record(AuthorityMade { new }.into_event(now, who, resource));
        recorded.map_err(RegistryError::Audit)?;
        Registry::make_generation(&data, &settings, &passphrases, &standings, id, now)?;
        Ok::<_, RegistryError>(id)
    });
    let made = made.await.or_hint("cannot make the authority", LOG)?;
    let hint = made.as_ref().err().map(|error| hint(error, HINT));
    let id = made.or_hint("cannot make the authority", hint.unwrap_or_default())?;
    let list = site.registry.take_root_list(now);
    list.or_hint(
        "the root's list is renewed, but not in force",
        "restart the site",
    )?;
    take_up(site, now).await?;
    Ok(json!({ "authority": id.to_string() }))
}

/// Has a generation issue in place of the one before.
pub async fn activate(site: &Site, name: &str, who: &Actor, now: OffsetDateTime) -> Outcome<Value> {
    let id: AuthorityId = name.parse().or_hint(
        "name of an authority",
        "`cordon pki authorities` shows them",
    )?;
    let warrant = crate::registration::direct(site, who, "authority --name NAME")?;
    let activated = site.registry.activate_authority(id, warrant, now).await;
    let activated = activated.or_hint(
        "not put to use",
        "`cordon pki authorities` shows the authorities and their states",
    )?;
    Ok(json!({
        "issuing": activated.issuing.to_string(),
        "former": activated.former.to_string(),
    }))
}

/// Gives a generation that waits up.
pub async fn drop(site: &Site, name: &str, who: Actor, now: OffsetDateTime) -> Outcome<Value> {
    const HINT: &str = "`cordon pki authorities` shows the authorities and their states";
    let id: AuthorityId = name.parse().or_hint("name of an authority", HINT)?;
    let dropped = site.registry.drop_authority(id, who, now).await;
    dropped.or_hint("not dropped", HINT)?;
    // No client asks about what it issued: its signer of OCSP responses ends with it.
    site.credentials.renew(Some(&site.registry), now).await?;
    Ok(json!({ "dropped": id.to_string() }))
}

/// Has the open site know authorities that came into its folder.
async fn take_up(site: &Site, now: OffsetDateTime) -> Outcome<Vec<AuthorityId>> {
    const HINT: &str = "restart the site, which takes them up as well";
    let secret = site.credentials.passphrase();
    let new = site.registry.take_authorities(secret, now).await;
    let new = new.or_hint("the certificates are there, but not taken up", HINT)?;
    // The signer of OCSP responses for a new generation is ready before the first request.
    site.credentials.renew(Some(&site.registry), now).await?;
    site.credentials.announce_renewal();
    Ok(new)
}

/// Installs what the ceremony in a folder made, given with the root's digest, if there is one, and the passphrase of the
/// authorities' keys.
pub async fn install(
    site: &Site,
    order: (PathBuf, Option<String>, Zeroizing<String>),
    who: Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let (data, settings) = (site.data.clone(), registry_settings(&site.config));
    let sink = site.portal_audit.clone();
    let standings = site.registry.standings();
    let installed = tokio::task::spawn_blocking(move || {
        let (folder, root, passphrase) = order;
        let delivery = Delivery {
            folder: &folder,
            root: root.as_deref(),
        };
        let passphrase = Passphrase::from(passphrase.as_str());
        let record = (&*sink as &dyn AuditSink, who);
        let delivery = (&delivery, &standings);
        Registry::install_authorities(&data, &settings, &passphrase, delivery, record, now)
    });
    let installed = installed
        .await
        .or_hint("cannot install the authorities", LOG)?;
    let hint = installed.as_ref().err().map(|error| hint(error, CHECK));
    let installed =
        installed.or_hint("cannot install the authorities", hint.unwrap_or_default())?;
    // An authority that the list revokes is out from now on.
    site.registry.take_root_list(now).or_hint(
        "the root's list is installed, but not in force",
        "restart the site",
    )?;
    let new = take_up(site, now).await?;
    let mut value = describe(&installed);
    if let Value::Object(fields) = &mut value {
        let new: Vec<String> = new.iter().map(AuthorityId::to_string).collect();
        fields.insert("ready".to_owned(), json!(new));
    }
    Ok(value)
}

/// Describes an installation for machines.
pub fn describe(installed: &Installed) -> Value {
    let names = installed.authorities.iter();
    json!({
        "authorities": names.map(AuthorityId::to_string).collect::<Vec<_>>(),
        "ceremony": installed.ceremony,
        "title": installed.title,
        "root_sha256": installed.root_digest,
    })
}
