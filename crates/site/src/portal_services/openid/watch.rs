//! Ends logins to applications with what they rest on: the session in the portal, the person's rights, the service's record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use oidc::{Cause, Ended, Login, LoginKind};
use portal::Shell;
use services::Service;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::super::foreign::SiteServices;
use super::state::Tag;
use crate::failure::Outcome;

/// Pause between two looks: a login ends this long after its ground, and its application hears of it within five seconds.
const EVERY: Duration = Duration::from_secs(1);
/// Pause between two decisions about all logins while the directory does not change: rules follow from its rows.
const DECIDE: Duration = Duration::from_secs(30);

/// Looks at all logins until a stop is asked for.
pub(crate) async fn watch(
    services: SiteServices,
    shell: Shell,
    stop: CancellationToken,
) -> Outcome {
    let mut changes = services.site.directory.changes();
    let mut decided = Instant::now();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let now = OffsetDateTime::now_utc();
        services.site.openid_keys.roll_when_due(now);
        let mut ended = services.openid.provider().expire(now.unix_timestamp());
        // Marked as seen before the look: a change during it is looked at again.
        let changed = changes.has_changed().unwrap_or(false);
        let decides = changed || decided.elapsed() >= DECIDE;
        if decides {
            changes.mark_unchanged();
            decided = Instant::now();
        }
        ended.extend(over(&services, &shell, decides).await);
        services.openid.ended(&ended).await;
    }
}

/// Ends the logins whose session or rights have ended.
async fn over(services: &SiteServices, shell: &Shell, decides: bool) -> Vec<Ended> {
    let logins: Vec<Login<Tag>> = services.openid.provider().logins().cloned().collect();
    if logins.is_empty() {
        return Vec::new();
    }
    let sessions = shell.open_sessions();
    let changed = changed_people(services, &logins).await;
    let registered = match decides {
        true => registered(services).await,
        false => None,
    };
    let cause = |login: &Login<Tag>| {
        let person = &login.person;
        if person.login == LoginKind::Password && !sessions.contains(&person.session) {
            return Some(Cause::Session);
        }
        if changed.contains(&person.uid) {
            return Some(Cause::Rights);
        }
        let registered = registered.as_ref()?;
        let service = registered.get(&login.client);
        let is_open = service.is_some_and(|service| {
            service.client().is_some() && services.decide(&login.tag.principal, service).allowed
        });
        (!is_open).then_some(Cause::Rights)
    };
    let over = logins
        .iter()
        .filter_map(|login| Some((login, cause(login)?)));
    let over: Vec<_> = over.collect();
    let mut provider = services.openid.provider();
    let ended = over
        .into_iter()
        .filter_map(|(login, cause)| provider.end(&login.client, &login.person.session, cause));
    ended.collect()
}

/// People whose rights are not those with which a login of theirs began.
async fn changed_people(services: &SiteServices, logins: &[Login<Tag>]) -> BTreeSet<String> {
    let mut epochs = BTreeMap::new();
    for login in logins {
        let uid = &login.person.uid;
        if !epochs.contains_key(uid) {
            epochs.insert(uid.clone(), services.gate.epoch(uid).await);
        }
    }
    let changed = logins
        .iter()
        .filter(|login| match epochs.get(&login.person.uid) {
            Some(Ok(epoch)) => *epoch != login.tag.epoch,
            // A database that cannot be read now says nothing about anybody.
            Some(Err(refused)) => !refused.temporary,
            None => false,
        });
    changed.map(|login| login.person.uid.clone()).collect()
}

async fn registered(services: &SiteServices) -> Option<BTreeMap<String, Service>> {
    match services.site.directory.services().await {
        Ok(all) => {
            let all = all.into_iter().map(|one| one.service);
            Some(all.map(|service| (service.id.clone(), service)).collect())
        }
        Err(error) => {
            tracing::warn!(error = %error_report::Report(&error), "cannot read the registry of services");
            None
        }
    }
}
