//! Orders about the registry of services.
//!
//! The access rules decide about the record before and after a change: a record that the giver may not write can
//! neither be changed nor result from a change.

use std::sync::Arc;

use access::{Action, Context};
use directory::{Registered, ServiceStoreError};
use event_catalogue::Recorded as _;
use event_catalogue::service::KeyRolled;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use services::{Change, Connection, Service};
use time::OffsetDateTime;

use crate::config::Require;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::parts::Site;

/// What to do with the registry of services.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceOrder {
    List,
    Show {
        id: String,
    },
    Add {
        service: Service,
    },
    Change {
        id: String,
        change: Change,
    },
    Remove {
        id: String,
    },
    /// Have the next key sign tokens of OpenID Connect.
    RollKey,
}

impl ServiceOrder {
    /// Tells whether the order changes nothing.
    pub(crate) const fn reads(&self) -> bool {
        matches!(self, Self::List | Self::Show { .. })
    }
}

/// Carries out an order; changes are decided by the access rules here.
pub(crate) async fn carry_out(
    site: &Site,
    order: ServiceOrder,
    giver: &Giver,
    now: OffsetDateTime,
) -> Outcome<Value> {
    let actor = || giver.actor.clone();
    match order {
        ServiceOrder::List => {
            let all = site.directory.services().await;
            let all = all.or_hint("cannot list services", "see the log")?;
            let all: Vec<Value> = all.iter().map(shown).collect();
            Ok(json!({ "services": all }))
        }
        ServiceOrder::Show { id } => Ok(shown(&known(site, &id).await?)),
        ServiceOrder::Add { service } => {
            let hint = "see `cordon service add --help`";
            service.check().or_hint("cannot add the service", hint)?;
            permit(site, giver, &service, now).await?;
            let added = site.directory.add_service(&service, actor(), now).await;
            done(added, "add")?;
            Ok(shown(&known(site, &service.id).await?))
        }
        ServiceOrder::Change { id, change } => {
            let old = known(site, &id).await?;
            let hint = "see `cordon service change --help`";
            let new = change.of(&old.service);
            let new = new.or_hint(format!("cannot change the service {id}"), hint)?;
            permit(site, giver, &old.service, now).await?;
            permit(site, giver, &new, now).await?;
            let directory = &site.directory;
            let changed = directory.change_service(&new, old.revision, actor(), now);
            done(changed.await, "change")?;
            Ok(shown(&known(site, &id).await?))
        }
        ServiceOrder::RollKey => {
            let event = KeyRolled {}.into_event(now, actor(), "openid");
            let log = site.portal_audit.clone();
            let recorded = site.audit_pool.run(move || log.record(event)).await;
            let recorded = recorded.or_hint("the audit log", "try again")?;
            recorded.or_hint("not recorded, hence not done", "make room on the disk")?;
            let keys = Arc::clone(&site.openid_keys);
            // Making and decrypting keys takes its time.
            let rolled = tokio::task::spawn_blocking(move || keys.roll(now)).await;
            let key = rolled.or_hint("the key is not rolled over", "try again")??;
            Ok(json!({ "key": key }))
        }
        ServiceOrder::Remove { id } => {
            let old = known(site, &id).await?;
            permit(site, giver, &old.service, now).await?;
            let directory = &site.directory;
            let removed = directory.remove_service(&id, old.revision, actor(), now);
            done(removed.await, "remove")?;
            Ok(json!({ "id": id }))
        }
    }
}

async fn known(site: &Site, id: &str) -> Outcome<Registered> {
    let found = site.directory.service(id).await;
    let found = found.or_hint("cannot read the service", "see the log")?;
    found.ok_or_else(|| {
        let error = anyhow::anyhow!("there is no service {id}");
        Failure::new(error, "see `cordon service list`")
    })
}

fn done(outcome: Result<(), ServiceStoreError>, what: &str) -> Outcome {
    let hint = match &outcome {
        Err(ServiceStoreError::Stale { .. }) => "another change came first: give the command again",
        Err(ServiceStoreError::Taken(_)) => "choose another --id, or use `cordon service change`",
        Err(ServiceStoreError::Full) => "remove services that nobody uses",
        Err(ServiceStoreError::Invalid(_)) => "see `cordon service add --help`",
        _ => "see the log",
    };
    outcome.or_hint(format!("cannot {what} the service"), hint)
}

/// Asks the access rules whether `giver` may write this record. A refusal is an event.
async fn permit(site: &Site, giver: &Giver, service: &Service, now: OffsetDateTime) -> Outcome {
    let context = Context {
        persons_only: site.config.administration.require == Require::Certificate,
    };
    let (who, action, resource) = (&giver.principal, Action::ServiceWrite, service.resource());
    let decision = site.access.decide(who, action, &resource, &context);
    if decision.allowed {
        return Ok(());
    }
    let event = decision.event(now, who, action, &resource);
    let log = site.portal_audit.clone();
    let recorded = site.audit_pool.run(move || log.record(event)).await;
    if !matches!(recorded, Ok(Ok(_))) {
        tracing::error!("a refused command could not be recorded");
    }
    Err(Failure::new(
        anyhow::anyhow!(
            "{} may not {action} {resource}: {}",
            who.uid(),
            decision.reasons.join("; ")
        ),
        "ask an administrator to give the command, by --as FILE and --as-password-file FILE",
    ))
}

/// The record for a person; a client's key as its hash only.
fn shown(registered: &Registered) -> Value {
    let service = &registered.service;
    let mut value = json!({
        "id": service.id,
        "name": service.name,
        "address": service.address,
        "icon": service.icon,
        "owner": service.owner,
        "level": service.level,
        "roles": service.roles,
        "units": service.units,
        "connection": service.connection.name(),
        "revision": registered.revision,
    });
    if let (Connection::Openid(client), Some(object)) = (&service.connection, value.as_object_mut())
    {
        object.insert("redirects".to_owned(), json!(client.redirects));
        object.insert("key".to_owned(), json!(client.key.fingerprint()));
        object.insert("logout".to_owned(), json!(client.logout));
        object.insert("logout_trust".to_owned(), json!(client.logout_trust));
    }
    value
}
