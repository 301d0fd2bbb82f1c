//! Acts on an open site that change what it trusts or holds; reached by `control`.

use access::{Principal, Role};
use audit::Actor;
use centre::{Confirmed, Disposal, End, QuarantineError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::disabled_people;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;

/// A step with the quarantine.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuarantineOrder {
    List,
    /// Verify one block again.
    Show {
        block: String,
    },
    /// Propose to make a block evidence.
    Release {
        block: String,
        exceptions: Vec<String>,
        reason: String,
    },
    /// Propose to close the case of a block, whose bytes stay.
    Keep {
        block: String,
        reason: String,
    },
    /// Propose to remove a block's bytes.
    Reject {
        block: String,
        reason: String,
    },
    /// Confirm what another person proposed.
    Confirm {
        block: String,
    },
    /// Take back what was proposed.
    Withdraw {
        block: String,
        reason: String,
    },
    /// Remove a block's bytes, after two people agreed and the waiting time passed.
    Destroy {
        block: String,
    },
    /// Close the chain of a camera and begin another epoch.
    Replace {
        device: String,
        step: ReplacementStep,
    },
}

/// A step towards the replacement of a camera.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementStep {
    Propose { reason: String },
    Confirm,
    Withdraw { reason: String },
}

/// Takes a step with the quarantine; `centre` asks the access rules about the block.
pub(crate) async fn quarantine(
    parts: &CentreParts,
    order: QuarantineOrder,
    who: &Principal,
) -> Outcome<Value> {
    let desk = parts.centre.quarantine();
    match order {
        QuarantineOrder::List => {
            let blocks = desk.list().await;
            let blocks = blocks.or_hint("cannot list the quarantine", "see the log")?;
            Ok(json!({ "blocks": blocks }))
        }
        QuarantineOrder::Show { block } => {
            let (block, refusal) = decided(desk.examine(who, &block).await, "show")?;
            let (code, detail) = refusal.unzip();
            Ok(json!({ "block": block, "code": code, "detail": detail }))
        }
        QuarantineOrder::Release {
            block,
            exceptions,
            reason,
        } => {
            let release = Disposal::Release { exceptions };
            let proposed = desk.propose(who, &block, release, &reason).await;
            done(
                &block,
                "proposed for release",
                decided(proposed, "release")?,
            )
        }
        QuarantineOrder::Keep { block, reason } => {
            let proposed = desk.propose(who, &block, Disposal::Keep, &reason).await;
            done(&block, "proposed to be kept", decided(proposed, "keep")?)
        }
        QuarantineOrder::Reject { block, reason } => {
            let proposed = desk.propose(who, &block, Disposal::Destroy, &reason).await;
            done(
                &block,
                "proposed for destruction",
                decided(proposed, "reject")?,
            )
        }
        QuarantineOrder::Confirm { block } => {
            check_proposer(parts, &block).await?;
            match decided(desk.confirm(who, &block).await, "confirm")? {
                Confirmed::Released(released) => done(&block, "released", released),
                Confirmed::Kept(kept) => done(&block, "kept", kept),
                Confirmed::DestroyFrom(_) => {
                    done(&block, "confirmed for destruction", desk.proposal(&block))
                }
            }
        }
        QuarantineOrder::Withdraw { block, reason } => {
            let withdrawn = desk.withdraw(who, &block, &reason).await;
            done(
                &block,
                "no longer proposed for anything",
                decided(withdrawn, "withdraw")?,
            )
        }
        QuarantineOrder::Destroy { block } => {
            check_proposer(parts, &block).await?;
            let destroyed = desk.destroy(who, &block, OffsetDateTime::now_utc()).await;
            done(&block, "destroyed", decided(destroyed, "destroy")?)
        }
        QuarantineOrder::Replace { device, step } => replace(parts, &device, step, who).await,
    }
}

async fn replace(
    parts: &CentreParts,
    device: &str,
    step: ReplacementStep,
    who: &Principal,
) -> Outcome<Value> {
    let desk = parts.centre.quarantine();
    let (what, replaced) = match step {
        ReplacementStep::Propose { reason } => {
            let proposed = desk.propose_replacement(who, device, &reason).await;
            decided_of_chain(proposed)?;
            ("proposed for replacement", None)
        }
        ReplacementStep::Confirm => {
            if let Some(uid) = desk.replacement_proposer(device) {
                check_may_decide(parts, &uid).await?;
            }
            let confirmed = desk.confirm_replacement(who, device).await;
            ("replaced", Some(decided_of_chain(confirmed)?))
        }
        ReplacementStep::Withdraw { reason } => {
            let withdrawn = desk.withdraw_replacement(who, device, &reason).await;
            decided_of_chain(withdrawn)?;
            ("no longer proposed for replacement", None)
        }
    };
    Ok(json!({ "device": device, "done": what, "chain": replaced }))
}

fn decided_of_chain<T>(outcome: Result<T, QuarantineError>) -> Outcome<T> {
    use QuarantineError as E;
    let hint = match &outcome {
        Err(E::NoChain(_)) => {
            "check the name of the camera; a camera without blocks begins with number 1 anyway"
        }
        Err(E::TooManyEpochs(_)) => "enrol the camera under a new name",
        Err(E::Denied { .. }) => {
            "ask a reviewer or administrator of the camera's unit, by --as FILE and --as-password-file FILE"
        }
        Err(E::Proposed { .. }) => "confirm it with --confirm, or withdraw it with --withdraw",
        Err(E::NotProposed(_)) => "propose it with --reason first",
        Err(E::SamePerson) => "ask another reviewer or administrator to confirm it",
        _ => "see the log of the site",
    };
    outcome.or_hint("cannot replace the camera", hint)
}

/// Checks that the people behind a proposal could still make it: those who left, lost the role or are suspended do not count.
async fn check_proposer(parts: &CentreParts, block: &str) -> Outcome {
    let Some(proposal) = parts.centre.quarantine().proposal(block) else {
        return Ok(());
    };
    let steps = [Some(proposal.proposed), proposal.confirmed];
    for uid in steps.into_iter().flatten().map(|step| step.uid) {
        check_may_decide(parts, &uid).await?;
    }
    Ok(())
}

async fn check_may_decide(parts: &CentreParts, uid: &str) -> Outcome {
    let may = |record: access::PersonRecord| {
        let roles = [Role::Reviewer, Role::Administrator];
        record.active && roles.iter().any(|role| record.roles.contains(role))
    };
    // Suspended, revoked and retired people are refused at the portal, so their word does not count here either.
    let record = match parts.admission.record(uid).await {
        Ok(record) => Some(record),
        Err(refused) if refused.temporary => {
            let error = anyhow::anyhow!("{}", refused.message);
            return Err(Failure::new(error, "try again in a minute; see the log"));
        }
        Err(_) => None,
    };
    if record.is_some_and(may) {
        return Ok(());
    }
    Err(Failure::new(
        anyhow::anyhow!("{uid}, whose word the decision rests on, may no longer decide"),
        "withdraw the proposal, and propose it again",
    ))
}

fn done(block: &str, what: &str, more: impl Serialize) -> Outcome<Value> {
    let more = serde_json::to_value(more).or_hint("cannot write the answer", "see the log")?;
    Ok(json!({ "block_sha256": block, "done": what, "block": more }))
}

fn decided<T>(outcome: Result<T, QuarantineError>, what: &str) -> Outcome<T> {
    use QuarantineError as E;
    let hint = match &outcome {
        Err(E::NotThere(_)) => "`cordon evidence quarantine list` names what waits",
        Err(E::Refused { code, .. }) => match End::of(code) {
            End::Release => {
                "state it with --except if it is no obstacle, and say why with --reason"
            }
            End::Replacement => {
                "if the camera's memory was replaced, close its chain with `cordon registry replace`, then release the block"
            }
            End::Keep => {
                "it cannot become evidence; `cordon evidence quarantine keep` proposes to close its case"
            }
        },
        Err(E::KeptBefore) => {
            "`cordon evidence quarantine list` shows it; it can still be released or rejected"
        }
        Err(E::Denied { .. }) => {
            "ask a reviewer or administrator of the unit with that clearance, by --as FILE and --as-password-file FILE"
        }
        Err(E::Proposed { .. }) => "`cordon evidence quarantine confirm` or `withdraw`",
        Err(E::NotProposed(_)) => "`cordon evidence quarantine release` or `reject` proposes",
        Err(E::SamePerson) => "ask another reviewer or administrator to confirm it",
        Err(E::NotConfirmed | E::ConfirmedBefore { .. } | E::TooEarly { .. }) => {
            "`cordon evidence quarantine list` says how far each decision is"
        }
        _ => "see the log of the site",
    };
    outcome.or_hint(format!("cannot {what} the block"), hint)
}

/// Adds or updates people. Where approvals are required, rights stay as they are.
pub async fn import(
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
                .import_keeping_rights(people, enable, who.clone(), now)
                .await
        }
        false => directory.import(people, enable, who.clone(), now).await,
    };
    let hint = match required {
        true => "nobody was changed; rights are changed with `cordon registry request new person`",
        false => "correct it; nobody was changed",
    };
    let imported = imported.or_hint("cannot import", hint)?;
    hold_disabled(site, &who, now).await?;
    Ok(imported)
}

/// Has the certificates of disabled people on hold, and those of enabled ones no longer.
async fn hold_disabled(site: &Site, who: &Actor, now: OffsetDateTime) -> Outcome {
    let followed = disabled_people::follow(&site.registry, &site.directory, who, now).await;
    followed.or_hint(
        "the directory is changed, but certificates of disabled people are not on hold yet",
        "nothing: the site tries again every two seconds; if this remains, see the log",
    )
}

/// Devices, people and gateways with their states.
pub async fn holders(site: &Site) -> Outcome<Value> {
    let holders = site.registry.holders().await;
    let holders = holders.or_hint("cannot list devices and people", "see the log")?;
    Ok(json!({ "holders": holders }))
}

/// Keeps a person out, or lets them in again.
pub async fn set_active(
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
    hold_disabled(site, who, now).await?;
    Ok(json!({ "uid": uid, "active": active }))
}
