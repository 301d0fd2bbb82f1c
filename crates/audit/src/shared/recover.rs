//! Bringing journals and central log together again, at a start and after a failed write.

use std::collections::BTreeMap;
use std::path::Path;

use durable::SharedDisk;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{NOTE_EVERY, Role, Writer, in_journal};
use crate::event::EventError;
use crate::journal::{self, Journal, JournalError, JournalOptions, Shipped};
use crate::leaf::chain_hash;
use crate::log::{BUNDLE_ENTRIES, Log, LogError, MAX_BATCH};
use crate::sink::AuditError;

/// Opens the journals of all roles below `dir` and ships what the central log lacks.
pub(super) fn recover(
    disk: &SharedDisk,
    dir: &Path,
    writer: &mut Writer,
) -> Result<(), AuditError> {
    let in_folder = |source| AuditError::Journal {
        role: String::new(),
        source,
    };
    disk.create_dir_all(dir).map_err(|source| {
        in_folder(JournalError::Io {
            path: dir.to_owned(),
            source,
        })
    })?;
    let mut wanted = BTreeMap::new();
    for role in journal::roles(dir).map_err(in_folder)? {
        let hint = journal::read_shipped(&dir.join(&role)).map_err(in_journal(&role))?;
        wanted.insert(role, hint);
    }
    let mut found = find_last(&writer.log, &wanted)?;
    for role in wanted.into_keys() {
        let central = found.remove(&role);
        open_role(disk, &dir.join(&role), &role, central, writer)?;
    }
    Ok(())
}

/// The same for one role that has no journal yet.
pub(super) fn recover_role(
    disk: &SharedDisk,
    dir: &Path,
    role: &str,
    writer: &mut Writer,
) -> Result<(), AuditError> {
    // A journal that was taken away must not start again at 1, hence the search.
    let wanted = BTreeMap::from([(role.to_owned(), None)]);
    let central = find_last(&writer.log, &wanted)?.remove(role);
    open_role(disk, dir, role, central, writer)
}

/// Makes the writer usable after a failed write, if the disk works again.
pub(super) fn heal(writer: &mut Writer) -> Result<(), AuditError> {
    // What a journal lost with its failed write never got as far as the log.
    for (name, role) in &mut writer.journals {
        role.journal.reopen().map_err(in_journal(name))?;
    }
    writer.log.reopen()?;
    find_new(writer)?;
    for (name, role) in &mut writer.journals {
        ship(&mut writer.log, name, role)?;
    }
    writer.committed = writer.log.size();
    writer.broken = false;
    Ok(())
}

/// Finds the leaves whose commit failed only after the checkpoint was replaced.
fn find_new(writer: &mut Writer) -> Result<(), AuditError> {
    let view = writer.log.view()?;
    let from = writer.committed;
    if view.size() < from {
        return Err(LogError::OutOfRange {
            index: from,
            size: view.size(),
        }
        .into());
    }
    for bundle in from / BUNDLE_ENTRIES..view.size().div_ceil(BUNDLE_ENTRIES) {
        let indexes = bundle * BUNDLE_ENTRIES..;
        for (leaf_index, leaf) in indexes.zip(&view.bundle(bundle)?) {
            let place = place_of(leaf, leaf_index)?;
            if leaf_index >= from
                && let Some(role) = writer.journals.get_mut(&place.role)
            {
                role.shipped = Some(Shipped {
                    seq: place.seq,
                    leaf_index,
                });
            }
        }
    }
    Ok(())
}

/// Notes in every journal how far it was shipped.
pub(super) fn note_all(journals: &mut BTreeMap<String, Role>) -> Result<(), AuditError> {
    for (name, role) in journals {
        role.note(1).map_err(in_journal(name))?;
    }
    Ok(())
}

impl Role {
    /// Notes how far this journal was shipped, when that is at least `step` records further.
    pub(super) fn note(&mut self, step: u64) -> Result<(), JournalError> {
        if let Some(shipped) = self.shipped
            && shipped.seq >= self.noted_seq + step
        {
            self.journal.mark_shipped(shipped)?;
            self.noted_seq = shipped.seq;
        }
        Ok(())
    }
}

fn open_role(
    disk: &SharedDisk,
    dir: &Path,
    role: &str,
    central: Option<Shipped>,
    writer: &mut Writer,
) -> Result<(), AuditError> {
    let options = JournalOptions {
        acknowledged: central.map_or(0, |central| central.seq),
        ..JournalOptions::default()
    };
    let proof = writer.authenticator.of(&format!("journal/{role}"));
    let journal = Journal::open_on(disk.clone(), dir, role, options, Some(proof));
    let journal = journal.map_err(in_journal(role))?;
    let mut state = Role {
        noted_seq: journal
            .shipped()
            .map_err(in_journal(role))?
            .map_or(0, |s| s.seq),
        journal,
        shipped: central,
    };
    ship(&mut writer.log, role, &mut state)?;
    state.note(NOTE_EVERY).map_err(in_journal(role))?;
    writer.journals.insert(role.to_owned(), state);
    Ok(())
}

/// Appends to the central log what the journal has beyond it; checks that the two agree before.
fn ship(log: &mut Log, role: &str, state: &mut Role) -> Result<(), AuditError> {
    let central = state.shipped.map_or(0, |shipped| shipped.seq);
    let from = central.max(1);
    let mut batch = Vec::new();
    for record in state.journal.read_from(from).map_err(in_journal(role))? {
        let record = record.map_err(in_journal(role))?;
        if let Some(shipped) = state.shipped
            && record.seq == shipped.seq
        {
            if log.view()?.entry(shipped.leaf_index)? != record.leaf {
                return Err(diverged(role, "the same number has two contents", state));
            }
            continue;
        }
        batch.push(record.leaf);
        if batch.len() == MAX_BATCH {
            append(log, &mut batch, state)?;
        }
    }
    append(log, &mut batch, state)?;
    check_head(log, role, state)
}

/// The next record must continue what the log has: a segment without records says what comes before it, and anybody with the
/// disk can have made it.
fn check_head(log: &Log, role: &str, state: &Role) -> Result<(), AuditError> {
    let newest = match state.shipped {
        Some(shipped) => chain_hash(&log.view()?.entry(shipped.leaf_index)?),
        None => [0; 32],
    };
    if state.journal.head() != newest {
        return Err(diverged(
            role,
            "the newest segment continues another journal",
            state,
        ));
    }
    Ok(())
}

fn append(log: &mut Log, batch: &mut Vec<Vec<u8>>, state: &mut Role) -> Result<(), AuditError> {
    let count = batch.len() as u64;
    if count > 0 {
        let first = log.append_batch(batch)?;
        state.shipped = Some(Shipped {
            seq: state.shipped.map_or(0, |shipped| shipped.seq) + count,
            leaf_index: first + count - 1,
        });
        batch.clear();
    }
    Ok(())
}

fn diverged(role: &str, reason: &'static str, state: &Role) -> AuditError {
    AuditError::Diverged {
        role: role.to_owned(),
        reason,
        journal: state.journal.last_seq(),
        central: state.shipped.map_or(0, |shipped| shipped.seq),
    }
}

/// The part of a leaf that the search needs.
#[derive(Deserialize)]
struct Place {
    role: String,
    seq: u64,
    #[serde(rename = "event")]
    _event: IgnoredAny,
}

fn place_of(leaf: &[u8], index: u64) -> Result<Place, AuditError> {
    serde_json::from_slice(leaf).map_err(|source| AuditError::Leaf {
        index,
        source: EventError::Malformed(source),
    })
}

/// Finds the last leaf of each wanted role, reading backwards. The value is a note of an earlier
/// leaf of that role, where the search may stop. Anybody with the disk can have written it: one that is not of that leaf would
/// have the search stop before it has found any, and the whole journal come into the log once more.
fn find_last(
    log: &Log,
    wanted: &BTreeMap<String, Option<Shipped>>,
) -> Result<BTreeMap<String, Shipped>, AuditError> {
    let mut found = BTreeMap::new();
    let view = log.view()?;
    for (role, hint) in wanted {
        let Some(hint) = hint else { continue };
        let wrong = |reason| AuditError::Diverged {
            role: role.clone(),
            reason,
            journal: hint.seq,
            central: 0,
        };
        if hint.leaf_index >= view.size() {
            return Err(wrong("the central log was set back"));
        }
        let place = place_of(&view.entry(hint.leaf_index)?, hint.leaf_index)?;
        if (&place.role, place.seq) != (role, hint.seq) {
            return Err(wrong(
                "the central log has something else where a record was shipped to",
            ));
        }
    }
    let mut end = view.size();
    while end > 0 && found.len() < wanted.len() {
        let bundle = (end - 1) / BUNDLE_ENTRIES;
        let first = bundle * BUNDLE_ENTRIES;
        for (i, leaf) in view.bundle(bundle)?.iter().enumerate().rev() {
            let leaf_index = first + i as u64;
            let place = place_of(leaf, leaf_index)?;
            if wanted.contains_key(&place.role) {
                found.entry(place.role).or_insert(Shipped {
                    seq: place.seq,
                    leaf_index,
                });
            }
        }
        let missing = wanted.iter().filter(|(role, _)| !found.contains_key(*role));
        let stop = missing.map(|(_, hint)| hint.map_or(0, |hint| hint.leaf_index));
        end = match stop.min() {
            Some(oldest) if oldest < first => first,
            _ => 0,
        };
    }
    check_hints(wanted, &found)?;
    Ok(found)
}

/// A role with a note must have been found, and not before what the note says.
fn check_hints(
    wanted: &BTreeMap<String, Option<Shipped>>,
    found: &BTreeMap<String, Shipped>,
) -> Result<(), AuditError> {
    for (role, hint) in wanted {
        let central = found.get(role).map_or(0, |shipped| shipped.seq);
        if let Some(hint) = hint.filter(|hint| hint.seq > central) {
            return Err(AuditError::Diverged {
                role: role.clone(),
                reason: "the central log lacks records that were shipped",
                journal: hint.seq,
                central,
            });
        }
    }
    Ok(())
}
