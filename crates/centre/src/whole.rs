//! What a start compares before anything is recorded: the index and the archive with the log.

use std::collections::{BTreeMap, BTreeSet};

use audit::{Actor, AuditSink, Event, Logged};
use event_catalogue::evidence::{Loss, LossKind};
use event_catalogue::{Recorded as _, action_text};
use evidence::digest::Sha256Digest;
use evidence::receipt;
use store::sqlx;
use store::{ObjectId, Objects, Sql, StoreError, readable_rows};
use time::OffsetDateTime;

use crate::ledger::{FollowedLog, Known, Verdict};
use crate::receipts::Receipts;
use crate::units::Units;
use crate::{SetupError, search};

/// Blocks named in one event, which has a bound of 16 KiB.
const NAMED: usize = 200;
/// Blocks that the archive may lack in any case, and the share of the accepted ones. Our choice: single damaged objects are alarms
/// of a running site; more than these are a folder that was lost or put back to an older state.
const FEW: u64 = 16;
/// Blocks that a start looks for in the archive, about; of more, each second, third and so on. Our choice: a second on a slow disk.
const LOOKS: usize = 10_000;
const SHARE: u64 = 10;

/// Adds blocks by their receipts, if a person has accepted the loss of a part of the log, where their events were.
pub(crate) async fn adopt_receipts(
    sql: &Sql,
    audit: &FollowedLog,
    receipts: &Receipts,
) -> Result<(), SetupError> {
    let mut is_lost = false;
    let loss = action_text(audit::rows::LOSS);
    let wanted = |text: &str| text.contains(&loss);
    let read = audit.read_on(0, &wanted, &mut |logged: Logged| {
        is_lost |= logged.is_loss()
    });
    read.map_err(|error| SetupError::Log(Box::new(error)))?;
    if !is_lost {
        return Ok(());
    }
    let rows = sqlx::query(
        "SELECT block_sha256, receipt FROM blocks
         WHERE verdict = 'accepted' AND receipt IS NOT NULL",
    )
    .fetch_all(sql.read())
    .await
    .map_err(in_index)?;
    let (rows, _) = readable_rows::<(String, Vec<u8>)>(rows);
    let (mut adopted, now) = (0_u64, OffsetDateTime::now_utc());
    for (block, stored) in rows {
        let Ok(block) = block.parse::<Sha256Digest>() else {
            continue;
        };
        if audit.ledger.block(&block).is_some() {
            continue;
        }
        let verified = receipts.read_unconfirmed(&stored, now);
        let receipt = verified.ok().map(|verified| verified.receipt().clone());
        let receipt = receipt.filter(|receipt| {
            receipt.block_sha256 == block && receipt.verdict == receipt::Verdict::Accepted
        });
        if let Some(receipt) = receipt {
            audit.ledger.adopt(&receipt);
            adopted += 1;
        }
    }
    if adopted > 0 {
        tracing::warn!(
            blocks = adopted,
            "the log lost the events of blocks; their receipts count"
        );
        let read = audit.read_again();
        read.map_err(|error| SetupError::Log(Box::new(error)))?;
    }
    Ok(())
}

/// Moves the violations of cameras that the configuration gives to another unit than it did before.
pub(crate) async fn move_to_units(sql: &Sql, units: &Units) -> Result<(), SetupError> {
    let moved = move_all(sql, units).await.map_err(SetupError::Compare)?;
    if moved {
        // Entries of the search name the audience.
        search::build(sql).await.map_err(SetupError::Compare)?;
    }
    Ok(())
}

async fn move_all(sql: &Sql, units: &Units) -> Result<bool, StoreError> {
    let places = sqlx::query("SELECT DISTINCT device, violation_group FROM violations")
        .fetch_all(sql.read())
        .await?;
    // The others are repaired while the site runs.
    let (places, _) = readable_rows::<(String, i64)>(places);
    let groups = sqlx::query(
        "SELECT g.id, a.unit, a.classification, g.state FROM violation_groups g
         JOIN audiences a ON a.id = g.audience",
    )
    .fetch_all(sql.read())
    .await?;
    let (groups, _) = readable_rows::<(i64, String, i64, String)>(groups);
    let mut tx = sql.write().await?;
    let mut has_moved = false;
    for (device, group) in places {
        let unit = units.of_device(&device);
        let former = groups.iter().find(|known| known.0 == group);
        let Some((_, was, classification, state)) = former.filter(|known| known.1 != unit) else {
            continue;
        };
        tracing::info!(
            device,
            was,
            unit,
            "the violations of a camera move to another unit"
        );
        has_moved = true;
        sqlx::query(
            "INSERT INTO audiences (unit, classification) VALUES ($1, $2) ON CONFLICT DO NOTHING;
             INSERT INTO violation_groups (audience, state)
                SELECT id, state FROM audiences, (SELECT 'open' AS state UNION SELECT $3)
                WHERE unit = $1 AND classification = $2 ON CONFLICT DO NOTHING;
             UPDATE violations SET violation_group = (SELECT g.id FROM violation_groups g
                    JOIN audiences a ON a.id = g.audience
                    WHERE a.unit = $1 AND a.classification = $2 AND g.state = $3)
                WHERE device = $4 AND violation_group = $5",
        )
        .bind(unit)
        .bind(classification)
        .bind(state)
        .bind(&device)
        .bind(group)
        .execute(&mut *tx)
        .await?;
    }
    if has_moved {
        sqlx::raw_sql(
            "DELETE FROM arrivals;
             INSERT INTO arrivals SELECT b.received_at / 600000, g.audience, count(*)
                FROM violations v JOIN blocks b USING (block_sha256)
                    JOIN violation_groups g ON g.id = v.violation_group GROUP BY 1, 2;
             DELETE FROM violation_text_version",
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(has_moved)
}

/// Refuses an index that lacks blocks which the log has, whatever became of them, and an archive that lacks many accepted ones.
///
/// An accepted block counts as missing where its row says something else: an older copy has it in quarantine. The rows of
/// other blocks are there from before their first event, and are never removed.
pub(crate) async fn check(
    sql: &Sql,
    archive: &Objects,
    audit: &FollowedLog,
) -> Result<Losses, SetupError> {
    let rows = sqlx::query("SELECT block_sha256, verdict = 'accepted' FROM blocks")
        .fetch_all(sql.read())
        .await
        .map_err(in_index)?;
    let (rows, _) = readable_rows::<(String, bool)>(rows);
    let rows: BTreeMap<Sha256Digest, bool> = rows
        .iter()
        .filter_map(|(block, is_accepted)| Some((block.parse().ok()?, *is_accepted)))
        .collect();
    let losses = Losses::read(audit)?;
    let every = 1 + audit.ledger.count() / LOOKS;
    let mut not_in_index = 0_u64;
    let (mut looked_for, mut not_in_archive, mut counted) = (0_u64, 0_u64, 0_u64);
    let (mut last, mut number) = (None, 0_usize);
    loop {
        let part = audit.ledger.after(last, 1000);
        last = part.last().map(|known| known.block);
        if last.is_none() {
            break;
        }
        for known in &part {
            let row = rows.get(&known.block);
            if known.verdict != Verdict::Accepted {
                // Its row needs no bytes: the log has all of it.
                not_in_index += u64::from(row.is_none());
                continue;
            }
            number += 1;
            let in_index = row.is_some_and(|is_accepted| *is_accepted);
            if in_index && !number.is_multiple_of(every) {
                continue;
            }
            let is_lost = is_lost(archive, &known.block);
            looked_for += 1;
            if is_lost && losses.is_counted(known) {
                counted += 1;
            } else if is_lost && !losses.named.contains(&known.block) {
                not_in_archive += 1;
            }
            // What neither has cannot be made again: it is counted as lost.
            not_in_index += u64::from(!is_lost && !in_index);
        }
    }
    if not_in_index > 0 {
        return Err(SetupError::IndexIncomplete {
            missing: not_in_index,
            known: audit.ledger.count() as u64,
        });
    }
    if counted > losses.most() {
        not_in_archive += counted;
    }
    let is_few = not_in_archive <= FEW || not_in_archive < looked_for / SHARE;
    if not_in_archive == 0 || (is_few && not_in_archive < looked_for) {
        return Ok(losses);
    }
    Err(SetupError::ArchiveIncomplete {
        missing: not_in_archive,
        accepted: looked_for,
    })
}

/// Tells if the archive lacks a block. An unreadable folder is not an empty one.
fn is_lost(archive: &Objects, block: &Sha256Digest) -> bool {
    matches!(archive.contains(&ObjectId(*block.as_bytes())), Ok(false))
}

/// The accepted blocks that the archive lacks.
pub(crate) fn lost(archive: &Objects, audit: &FollowedLog) -> Vec<Known> {
    let (mut lost, mut last) = (Vec::new(), None);
    loop {
        let part = audit.ledger.after(last, 1000);
        last = part.last().map(|known| known.block);
        if last.is_none() {
            return lost;
        }
        let accepted = part.into_iter();
        let accepted = accepted.filter(|known| known.verdict == Verdict::Accepted);
        lost.extend(accepted.filter(|known| is_lost(archive, &known.block)));
    }
}

/// The blocks with whose loss a person lets the site go on. A loss is over once the archive has the block again.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    named: BTreeSet<Sha256Digest>,
    /// How many blocks an event of an earlier version accepts without naming them, and its number: blocks that came later are not
    /// meant.
    counted: Option<(u64, u64)>,
}

impl Losses {
    fn read(audit: &FollowedLog) -> Result<Self, SetupError> {
        let mut losses = Self::default();
        let actions = LossKind::ALL.iter();
        let actions: Vec<String> = actions.map(|kind| action_text(kind.action())).collect();
        let wanted = |text: &str| actions.iter().any(|action| text.contains(action));
        let read = audit.read_on(0, &wanted, &mut |logged: Logged| losses.add(&logged));
        read.map_err(|error| SetupError::Log(Box::new(error)))?;
        Ok(losses)
    }

    fn add(&mut self, logged: &Logged) {
        let Some(loss) = Loss::from_event(&logged.event) else {
            return;
        };
        let is_of_site = logged.event.role == "site";
        let blocks = loss.blocks.as_deref();
        let blocks = blocks.map(|list| list.split(',').filter_map(|hash| hash.parse().ok()));
        match (loss.kind, blocks) {
            (LossKind::Accepted, Some(blocks)) if is_of_site => self.named.extend(blocks),
            (LossKind::Accepted, None) if is_of_site => {
                let most = loss.missing.unwrap_or_default().max(self.most());
                self.counted = Some((most, logged.index));
            }
            (LossKind::Named, Some(blocks)) if logged.is_own => {
                self.counted = None;
                self.named.extend(blocks);
            }
            (LossKind::Ended, Some(blocks)) if logged.is_own => {
                for block in blocks {
                    self.named.remove(&block);
                }
            }
            _ => {}
        }
    }

    fn most(&self) -> u64 {
        self.counted.map_or(0, |(most, _)| most)
    }

    fn is_counted(&self, known: &Known) -> bool {
        let is_before = |(_, event): (u64, u64)| known.log_index < event;
        self.counted.is_some_and(is_before) && !self.named.contains(&known.block)
    }

    /// The blocks that were named, for the scrub to note when they are there again.
    pub(crate) fn into_named(self) -> BTreeSet<Sha256Digest> {
        self.named
    }
}

/// Names the blocks that an event of an earlier version only counted, once a start has compared them: it accepts no later loss.
pub(crate) fn name_counted(
    archive: &Objects,
    audit: &FollowedLog,
    losses: &mut Losses,
) -> Result<(), SetupError> {
    if losses.counted.is_none() {
        return Ok(());
    }
    let lost = lost(archive, audit).into_iter();
    let lost = lost.filter(|known| losses.is_counted(known));
    let lost: Vec<Sha256Digest> = lost.map(|known| known.block).collect();
    let actor = Actor::service("centre");
    let events = loss_events(
        LossKind::Named,
        &actor,
        "counted by an earlier version",
        &lost,
    );
    let recorded = audit.record_all(events);
    recorded.map_err(|error| SetupError::Log(Box::new(error)))?;
    losses.counted = None;
    losses.named.extend(lost);
    Ok(())
}

/// Events about lost blocks, each of as many as fit into one.
pub(crate) fn loss_events(
    kind: LossKind,
    actor: &Actor,
    reason: &str,
    blocks: &[Sha256Digest],
) -> Vec<Event> {
    let now = OffsetDateTime::now_utc();
    let event = |blocks: &[Sha256Digest]| {
        let list: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        let loss = Loss {
            kind,
            missing: Some(blocks.len() as u64),
            blocks: Some(list.join(",")),
        };
        loss.into_event(now, actor.clone(), "archive")
            .with_reason(reason)
    };
    if blocks.is_empty() {
        return vec![event(&[])];
    }
    blocks.chunks(NAMED).map(event).collect()
}

fn in_index(error: sqlx::Error) -> SetupError {
    SetupError::Compare(StoreError::from(error))
}
