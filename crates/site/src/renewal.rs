//! What has an end date is renewed while the site runs, and what is near its end says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::Actor;
use directory::Directory;
use error_report::Report;
use pki::cert::Certificate;
use pki::profile::CaKind;
use registry::{AuthorityId, AuthorityRecord, AuthorityState, CrlName, Registry, RegistryError};
use service_kit::Health;
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::credentials::Credentials;
use crate::disabled_people;
use crate::failure::Outcome;
use crate::keys::validity;

/// Interval between looks at the clock. Nothing is done, and nothing read from the disk, unless something
/// is due; a revocation of the site's own certificates takes effect that soon.
const TICK: Duration = Duration::from_secs(2);
/// Pause after a renewal that failed.
const PAUSE: Duration = Duration::from_secs(60);
/// A leaf that ends within this time was due a third of its life ago: renewing fails.
const LEAF_MARGIN: time::Duration = time::Duration::days(30);
/// The same for signers of OCSP responses, which live for a week and were due after two thirds of it.
const OCSP_MARGIN: time::Duration = time::Duration::days(1);
/// Time for people to come together, before the root's list ends.
const ROOT_LIST_WARNING: time::Duration = time::Duration::days(60);
/// An authority within this time of its end needs the root's key, and a person who fetches it.
const AUTHORITY_WARNING: time::Duration = time::Duration::days(730);

/// Renews certificates and revocation lists until `stop`.
pub(crate) async fn run(
    registry: Registry,
    directory: Directory,
    credentials: Arc<Credentials>,
    clock: ClockFloor,
    stop: CancellationToken,
) -> Outcome {
    let by = Actor::service("cordon");
    let (registry, directory, credentials) = (&registry, &directory, &*credentials);
    let by = &by;
    let follow = |now| disabled_people::follow(registry, directory, by, now);
    let renew = |now| renew(registry, credentials, now);
    on_ticks(TICK, &clock, &stop, follow, renew).await;
    Ok(())
}

/// Follows the directory every `tick` until `stop`, and renews unless a renewal failed within the last [`PAUSE`].
///
/// Nothing that fails to renew, such as a list whose key is away, delays the hold of a disabled person.
async fn on_ticks<F, R>(
    tick: Duration,
    clock: &ClockFloor,
    stop: &CancellationToken,
    follow: impl Fn(OffsetDateTime) -> F,
    renew: impl Fn(OffsetDateTime) -> R,
) where
    F: Future<Output = Result<(), RegistryError>>,
    R: Future<Output = bool>,
{
    let mut tick = tokio::time::interval(tick);
    // After a suspend of the machine one look is enough.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut paused_until: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return,
        }
        let now = OffsetDateTime::now_utc();
        // Nothing can be recorded or issued by a clock that went back.
        if clock.check(now).is_err() {
            continue;
        }
        if let Err(error) = follow(now).await {
            tracing::error!(error = %Report(&error), "certificates of disabled people are not on hold; trying again");
        }
        if paused_until.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        paused_until = match renew(now).await {
            true => None,
            false => Some(Instant::now() + PAUSE),
        };
    }
}

/// Renews what is due; false if anything failed.
async fn renew(registry: &Registry, credentials: &Credentials, now: OffsetDateTime) -> bool {
    let (mut is_done, mut renewed_own) = (true, false);
    match credentials.renew(Some(registry), now).await {
        Ok(renewed) => {
            for name in &renewed {
                tracing::info!(certificate = name.as_str(), "certificate renewed");
            }
            renewed_own = renewed
                .iter()
                .any(|name| ["server", "receipts"].contains(&name.as_str()));
        }
        Err(failure) => {
            tracing::error!(
                "certificates are not renewed, trying again: {}",
                failure.message()
            );
            is_done = false;
        }
    }
    if let Err(error) = registry.alert_overdue(now).await {
        tracing::error!(%error, "overdue approvals cannot be looked up; trying again");
        is_done = false;
    }
    credentials.staple(now).await;
    if let Err(error) = registry.refresh_crls(now).await {
        tracing::error!(%error, "revocation lists could not be renewed; trying again");
        is_done = false;
    }
    // After its OCSP response is there to be stapled, so at the next connection all of it is new.
    if renewed_own {
        credentials.announce_renewal();
    }
    is_done
}

/// Name and last instant of everything that has an end date.
pub(crate) fn ends(
    registry: &Registry,
    credentials: &Credentials,
    now: OffsetDateTime,
) -> Vec<(String, OffsetDateTime)> {
    // A generation that has ended counts no more: all that it issued has expired.
    ends_with(registry, credentials, now, |record| record.is_needed)
}

/// The same, with those authorities alone that `count`.
fn ends_with(
    registry: &Registry,
    credentials: &Credentials,
    now: OffsetDateTime,
    count: impl Fn(&AuthorityRecord) -> bool,
) -> Vec<(String, OffsetDateTime)> {
    let end = |certificate: &Certificate| validity(certificate).1;
    let own = credentials.certificates().into_iter();
    let mut all: Vec<(String, OffsetDateTime)> = own
        .map(|(name, certificate)| (name, end(&certificate)))
        .collect();
    all.push(("root-ca".to_owned(), end(registry.root())));
    let authorities = registry.authority_records(now).into_iter();
    let authorities = authorities.filter(count);
    all.extend(authorities.map(|record| (format!("{}-ca", record.id), record.validity().1)));
    all
}

/// When each revocation list ends. The hundreds of shards of an authority count as one list, which ends with the first of
/// them; so do their delta lists.
pub(crate) fn list_ends(registry: &Registry, now: OffsetDateTime) -> Vec<(String, OffsetDateTime)> {
    first_ends(registry.crl_ends(now))
}

fn first_ends(lists: Vec<(CrlName, OffsetDateTime)>) -> Vec<(String, OffsetDateTime)> {
    let mut ends = BTreeMap::new();
    for (list, end) in lists {
        let name = match list {
            CrlName::Shard(id, _) => format!("{id}-shards"),
            CrlName::ShardDelta(id, _) => format!("{id}-shards-delta"),
            other => other.to_string(),
        };
        let first = ends.entry(name).or_insert(end);
        *first = end.min(*first);
    }
    ends.into_iter().collect()
}

/// Assesses authorities, certificates, lists and profiles at `now`.
pub(crate) fn health(
    registry: &Registry,
    credentials: &Credentials,
    lifetimes: &registry::Lifetimes,
    now: OffsetDateTime,
) -> Health {
    // The certificates of an authority that issues no more end with it, as they were meant to.
    let issues = |record: &AuthorityRecord| record.state == AuthorityState::Issuing;
    let ends = ends_with(registry, credentials, now, issues);
    let mut health = assess(&ends, &list_ends(registry, now), now);
    let records = registry.authority_records(now);
    assess_authorities(&records, lifetimes, now, &mut health);
    for one in registry.unusable_authorities() {
        let what = format!("the {} authority is not used: {}", one.id, one.reason);
        match one.state {
            // What it issued cannot be verified.
            Some(AuthorityState::Retired) => health.problems.push(what),
            _ => health.warnings.push(what),
        }
    }
    for profile in registry.profiles() {
        if let Some(why) = &profile.waits {
            let name = &profile.name;
            health.warnings.push(format!(
                "nothing is issued by the profile {name:?}: {why}; have it approved"
            ));
        }
    }
    let overdue = registry.overdue_last_counted();
    if overdue > 0 {
        let warning = format!("{overdue} emergencies were not approved by a second person in time");
        health.warnings.push(warning);
    }
    health
}

/// The longest life of a certificate of this kind.
fn longest(lifetimes: &registry::Lifetimes, kind: CaKind) -> time::Duration {
    match kind {
        CaKind::Users => lifetimes.user,
        CaKind::Devices => lifetimes.device,
        CaKind::Services => lifetimes.service,
    }
}

/// Assesses the generations of all kinds: what one that waits lacks is for a person who has time.
fn assess_authorities(
    records: &[AuthorityRecord],
    lifetimes: &registry::Lifetimes,
    now: OffsetDateTime,
    health: &mut Health,
) {
    for record in records {
        let id = record.id;
        if record.state == AuthorityState::Ready {
            health.warnings.extend(unready(record, now));
            continue;
        }
        health
            .problems
            .extend(problem(record).filter(|_| record.is_needed));
        if record.state == AuthorityState::Issuing {
            let waits = |other: &&AuthorityRecord| {
                other.id.kind() == id.kind() && unready(other, now).is_none()
            };
            let mut ready = records
                .iter()
                .filter(|other| other.state == AuthorityState::Ready);
            let ready = ready.find(waits).map(|other| other.id);
            let (end, longest) = (record.validity().1, longest(lifetimes, id.kind()));
            health
                .warnings
                .extend(shortened(id, ready, end, longest, now));
        }
    }
}

/// Describes the problem of an authority, if it has one.
fn problem(record: &AuthorityRecord) -> Option<String> {
    let id = record.id;
    if record.is_revoked {
        let kind = id.kind();
        return Some(format!(
            "the {id} authority is revoked: have another generation of {kind} issue (`cordon pki authorities`)"
        ));
    }
    (!record.has_key).then(|| format!("the key of the {id} authority cannot be used"))
}

/// Why one that waits could not be activated now.
fn unready(record: &AuthorityRecord, now: OffsetDateTime) -> Option<String> {
    let (id, (begin, end)) = (record.id, record.validity());
    let why = if record.is_revoked {
        "is revoked".to_owned()
    } else if now > end {
        format!("expired on {}", end.date())
    } else if now < begin {
        return Some(format!(
            "the {id} authority waits to be put to use, and is not used before {}, when its certificate begins",
            begin.date()
        ));
    } else if !record.has_key {
        "has a key that cannot be used".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "the {id} authority, which waits to be put to use, {why}: drop it, `cordon pki drop-authority {id}`"
    ))
}

/// Warns of an authority that issues and ends before a certificate would that it issues now; `ready` is what could take over.
fn shortened(
    id: AuthorityId,
    ready: Option<AuthorityId>,
    end: OffsetDateTime,
    longest: time::Duration,
    now: OffsetDateTime,
) -> Option<String> {
    // As much again as notice: a ceremony takes its time.
    (end - now < longest * 2).then(|| {
        let (kind, date) = (id.kind(), end.date());
        let what = format!("the {id} authority ends on {date}, and its certificates with it");
        match ready {
            Some(ready) => format!(
                "{what}: put {ready} to use, `cordon pki activate-authority {ready}` or \
                 `cordon registry request new authority --name {ready}`"
            ),
            None => format!(
                "{what}: make another generation, `cordon pki request-authorities --new {kind}` or \
                 `cordon pki new-authority {kind}`"
            ),
        }
    })
}

fn assess(
    certificates: &[(String, OffsetDateTime)],
    lists: &[(String, OffsetDateTime)],
    now: OffsetDateTime,
) -> Health {
    let mut health = Health::default();
    for (name, end) in certificates {
        let authority = name.ends_with("-ca");
        let margin = match name.starts_with("ocsp-") {
            true => OCSP_MARGIN,
            false => LEAF_MARGIN,
        };
        if *end < now {
            let what = format!("certificate {name} expired on {}", end.date());
            health.problems.push(what);
        } else if *end - now < margin {
            let what = format!("certificate {name} expires on {}", end.date());
            health.problems.push(what);
        } else if authority && *end - now < AUTHORITY_WARNING {
            health.warnings.push(format!(
                "certificate {name} expires on {}: renew it with the root's key, `cordon pki renew-authorities`",
                end.date()
            ));
        }
    }
    for (name, end) in lists {
        if *end < now {
            let what = format!("revocation list {name} is stale since {}", end.date());
            health.problems.push(what);
        } else if *name == CrlName::Root.to_string() && *end - now < ROOT_LIST_WARNING {
            health.warnings.push(format!(
                "revocation list {name} ends on {}: hold a ceremony, or use the root's key once more",
                end.date()
            ));
        }
    }
    health
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use time::macros::datetime;

    const NOW: OffsetDateTime = datetime!(2030-01-01 00:00 UTC);

    #[tokio::test]
    async fn failed_renewal_pauses_renewals_and_not_holds() {
        for succeeds in [false, true] {
            let (followed, tried) = (AtomicU32::new(0), AtomicU32::new(0));
            let stop = CancellationToken::new();
            let follow = async |_| {
                if followed.fetch_add(1, Ordering::SeqCst) == 9 {
                    stop.cancel();
                }
                Ok(())
            };
            let renew = async |_| {
                tried.fetch_add(1, Ordering::SeqCst);
                succeeds
            };
            let clock = ClockFloor::default();
            on_ticks(Duration::from_millis(1), &clock, &stop, follow, renew).await;
            let (followed, tried) = (followed.into_inner(), tried.into_inner());
            assert!(followed >= 10);
            assert_eq!(tried, if succeeds { followed } else { 1 });
        }
    }

    #[tokio::test]
    async fn clock_that_went_back_follows_and_renews_nothing() {
        let stop = CancellationToken::new();
        let clock = ClockFloor::at(OffsetDateTime::now_utc() + time::Duration::days(2));
        let acts = AtomicU32::new(0);
        let act = || acts.fetch_add(1, Ordering::SeqCst);
        let follow = async |_| {
            act();
            Ok(())
        };
        let renew = async |_| act() == 0;
        let ticks = on_ticks(Duration::from_millis(1), &clock, &stop, follow, renew);
        let ended = tokio::time::timeout(Duration::from_millis(50), ticks).await;
        assert!(ended.is_err(), "still ticking");
        assert_eq!(acts.into_inner(), 0);
    }

    fn at(name: &str, days: i64) -> Vec<(String, OffsetDateTime)> {
        vec![(name.to_owned(), NOW + time::Duration::days(days))]
    }

    #[test]
    fn root_list_that_ends_soon_is_a_warning() {
        for (name, days, warnings) in [("root", 59, 1), ("root", 61, 0), ("users", 1, 0)] {
            let health = assess(&[], &at(name, days), NOW);
            assert_eq!(
                (health.problems.len(), health.warnings.len()),
                (0, warnings)
            );
        }
    }

    #[test]
    fn authority_that_ends_before_two_lives_of_its_certificates_is_a_warning() {
        let id = AuthorityId::first(CaKind::Devices);
        let year = time::Duration::days(365);
        let warning =
            |ready, days| shortened(id, ready, NOW + time::Duration::days(days), year, NOW);
        assert_eq!(warning(None, 730), None);
        let text = warning(None, 729).unwrap();
        assert!(text.contains("request-authorities --new devices"), "{text}");
        let text = warning(id.next(), 729).unwrap();
        assert!(text.contains("activate-authority devices-g2"), "{text}");
    }

    #[test]
    fn end_dates_are_problems_from_thirty_days_before_and_authorities_warn_two_years_before() {
        for (name, days, problems, warnings) in [
            ("server", 365, 0, 0),
            ("server", 30, 0, 0),
            ("server", 29, 1, 0),
            ("server", -1, 1, 0),
            ("services-ca", 730, 0, 0),
            ("services-ca", 729, 0, 1),
            ("services-ca", 29, 1, 0),
            ("root-ca", -1, 1, 0),
        ] {
            let health = assess(&at(name, days), &[], NOW);
            let found = (health.problems.len(), health.warnings.len());
            assert_eq!(found, (problems, warnings), "{name} {days}");
        }
        let shards = [3, -1, 2].iter().zip(0..).map(|(days, shard)| {
            let name = CrlName::Shard(AuthorityId::first(CaKind::Users), shard);
            (name, NOW + time::Duration::days(*days))
        });
        let ends = first_ends(shards.collect());
        assert_eq!(ends, at("users-shards", -1));
        assert_eq!(assess(&[], &ends, NOW).problems.len(), 1);
        assert_eq!(assess(&[], &at("devices", 0), NOW).problems.len(), 0);
        assert_eq!(assess(&[], &at("devices", -1), NOW).problems.len(), 1);
    }
}
