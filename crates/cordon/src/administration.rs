//! Acts on an open site that change what it trusts or holds; reached by `control`.

use audit::Actor;
use centre::QuarantineError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::failure::{OrHint as _, Outcome};
use crate::site::Site;

/// What to do with the quarantine.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QuarantineOrder {
    List,
    /// Verify one block again.
    Show {
        block: String,
    },
    Release {
        block: String,
        exceptions: Vec<String>,
        reason: String,
    },
    /// Decide that it is none.
    Reject {
        block: String,
        reason: String,
    },
}

/// Carries out a decision about the quarantine.
pub(crate) async fn quarantine(site: &Site, order: QuarantineOrder, who: Actor) -> Outcome<Value> {
    let intake = site.centre.intake();
    match order {
        QuarantineOrder::List => {
            let blocks = intake.quarantined().await;
            let blocks = blocks.or_hint("cannot list the quarantine", "see the log")?;
            Ok(json!({ "blocks": blocks }))
        }
        QuarantineOrder::Show { block } => {
            let (block, refusal) = decided(intake.examine(&block, who).await, "show")?;
            let (code, detail) = refusal.unzip();
            Ok(json!({ "block": block, "code": code, "detail": detail }))
        }
        QuarantineOrder::Release {
            block,
            exceptions,
            reason,
        } => {
            let released = intake.release(&block, &exceptions, &reason, who).await;
            done(decided(released, "release")?, "released")
        }
        QuarantineOrder::Reject { block, reason } => {
            let rejected = intake.reject(&block, &reason, who).await;
            done(decided(rejected, "reject")?, "rejected")
        }
    }
}

fn done(block: centre::Quarantined, what: &str) -> Outcome<Value> {
    Ok(json!({ "block_sha256": block.block_sha256, "device": block.device, "done": what }))
}

fn decided<T>(outcome: Result<T, QuarantineError>, what: &str) -> Outcome<T> {
    let hint = match &outcome {
        Err(QuarantineError::NotThere(_)) => "`cordon evidence quarantine list` names what waits",
        Err(QuarantineError::Refused { code, .. }) if centre::RELEASABLE.contains(code) => {
            "state it with --except if it is no obstacle, and say why with --reason"
        }
        Err(QuarantineError::Refused { .. }) => {
            "it cannot become evidence; `cordon evidence quarantine reject` removes it"
        }
        _ => "see the log of the site",
    };
    outcome.or_hint(format!("cannot {what} the block"), hint)
}

/// Adds or updates people. Where approvals are required, rights stay as they are.
pub(crate) async fn import(
    site: &Site,
    people: &str,
    enable: bool,
    who: Actor,
    now: OffsetDateTime,
) -> Outcome<directory::Imported> {
    let directory = &site.directory;
    let required = site.config.registration.approvals == crate::config::Approvals::Required;
    let imported = match required {
        true => {
            directory
                .import_keeping_rights(people, enable, who, now)
                .await
        }
        false => directory.import(people, enable, who, now).await,
    };
    let hint = match required {
        true => "nobody was changed; rights are changed with `cordon registry request new person`",
        false => "correct it; nobody was changed",
    };
    imported.or_hint("cannot import", hint)
}

/// Devices, people and gateways with their states.
pub(crate) async fn holders(site: &Site) -> Outcome<Value> {
    let holders = site.registry.holders().await;
    let holders = holders.or_hint("cannot list devices and people", "see the log")?;
    Ok(json!({ "holders": holders }))
}

/// Keeps a person out, or lets them in again.
pub(crate) async fn set_active(
    site: &Site,
    uid: &str,
    active: bool,
    who: &Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    site.directory
        .set_active(uid, active, who.clone(), now)
        .await
        .or_hint(
            format!("cannot change {uid}"),
            "`cordon directory list` shows everybody",
        )?;
    Ok(json!({ "uid": uid, "active": active }))
}
