//! The facts that the audit log has about blocks and violations, in memory.
//!
//! Anybody who can write to the disk can change the index. So it decides nothing: a manifest counts if it has the SHA-256 that
//! the event of receipt names, and custody and decisions count if they are those of the log. A start reads the log once, checked
//! against its signed root; afterwards [`FollowedLog`] adds each event that the centre records.
//!
//! The record of a violation is the chain that [`custody`](crate::review) writes: an event belongs to it if it has the next
//! number and names the event before it. An event with the number of the newest one takes its place: a failed write or a crash
//! separated the first copy from its effect. Events of earlier versions have no numbers, and belong to it in the log's order.

mod epochs;
mod follow;
mod history;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use audit::{Event, Outcome};
use event_catalogue::context::Block;
use event_catalogue::evidence::{Kept, Quarantined, Received, Rejected, Released};
use event_catalogue::{Details as _, Recorded as _};
use evidence::chain::chain_name;
use evidence::digest::Sha256Digest;
use evidence::receipt::Receipt;

pub(crate) use epochs::ReplacementProposal;
pub(crate) use follow::FollowedLog;
pub(crate) use history::{Histories, History};
pub(crate) use record::{Decided, RecordHead, Running, Step};

use crate::clock::millis;
use crate::reasons::{REPLAYED, SEQUENCE_FORK};
use epochs::Epochs;
use record::{Record, received_at};

/// State of a block by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Quarantined,
    /// Two people closed its case: the bytes stay, and it does not become evidence.
    Kept,
    Rejected,
}

impl Verdict {
    /// Tells if the block is in quarantine, also if its case is closed.
    pub(crate) const fn is_set_apart(self) -> bool {
        matches!(self, Self::Quarantined | Self::Kept)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Quarantined => "quarantined",
            Self::Kept => "kept",
            Self::Rejected => "rejected",
        }
    }
}

/// A block by the log, and the head of its custody record.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) block: Sha256Digest,
    pub(crate) size: u64,
    /// The device that brought it.
    pub(crate) device: Arc<str>,
    pub(crate) verdict: Verdict,
    /// Index of the event of receipt, or of the one that put it into quarantine.
    pub(crate) log_index: u64,
    /// Milliseconds since the Unix epoch; the event's time where an earlier version recorded it.
    pub(crate) received_at: i64,
    /// Known of accepted blocks.
    pub(crate) manifest: Option<Sha256Digest>,
    /// Number in its camera's chain: known of accepted blocks, and of others whose camera signed it.
    pub(crate) sequence: Option<u64>,
    /// Epoch of that chain.
    pub(crate) epoch: u64,
    /// Why it was set apart; empty for accepted blocks.
    pub(crate) reason: Arc<str>,
    /// A person let it out of quarantine.
    pub(crate) is_released: bool,
    /// By its receipt: its event was lost with a part of the log.
    pub(crate) is_adopted: bool,
    pub(crate) head: RecordHead,
}

impl Known {
    /// The violation's name, if the block has one.
    pub(crate) fn violation(&self) -> String {
        violation_id(&self.block)
    }

    /// The number that its camera signed for it, if it is in quarantine for another reason than its place in the chain.
    pub(crate) fn held(&self) -> Option<u64> {
        let is_other = [SEQUENCE_FORK, REPLAYED].contains(&&*self.reason);
        self.sequence
            .filter(|_| self.verdict != Verdict::Accepted && !is_other)
    }

    /// Name of the chain in which it has its number.
    pub(crate) fn chain(&self) -> String {
        chain_name(&self.device, self.epoch)
    }
}

/// Highest number of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainHead {
    pub(crate) sequence: u64,
    pub(crate) manifest: Option<Sha256Digest>,
}

/// A name short enough to be read out, long enough not to collide.
pub(crate) fn violation_id(block: &Sha256Digest) -> String {
    format!("v-{}", block.to_string().get(..16).unwrap_or_default())
}

/// A block that contradicts an accepted one.
#[derive(Clone, Debug)]
pub(crate) struct Dispute {
    pub(crate) block: Sha256Digest,
    /// Milliseconds since the Unix epoch.
    pub(crate) found_at: i64,
}

#[derive(Debug)]
struct Entry {
    size: u64,
    device: Arc<str>,
    verdict: Verdict,
    log_index: u64,
    received_at: i64,
    manifest: Option<Sha256Digest>,
    sequence: Option<u64>,
    epoch: u64,
    reason: Arc<str>,
    /// A person let it out of quarantine.
    is_released: bool,
    /// By its receipt: its event was lost with a part of the log.
    is_adopted: bool,
    record: Record,
}

#[derive(Debug, Default)]
struct Facts {
    blocks: BTreeMap<Sha256Digest, Entry>,
    /// Names of devices and reasons, each kept once.
    names: BTreeSet<Arc<str>>,
    /// The accepted block of each number, by chain.
    numbers: BTreeMap<Arc<str>, BTreeMap<u64, Sha256Digest>>,
    /// Blocks in quarantine that hold a number, by camera, with that number and the index of their event.
    held: BTreeMap<Arc<str>, BTreeMap<Sha256Digest, (u64, u64)>>,
    /// Epochs of the cameras that have more than one, or for which one is proposed.
    epochs: BTreeMap<Arc<str>, Epochs>,
    /// By the block that was accepted.
    disputes: BTreeMap<Sha256Digest, Vec<Dispute>>,
    /// Blocks that contradict another one, or a number that was declared lost, by camera.
    forks: BTreeMap<Arc<str>, BTreeSet<Sha256Digest>>,
    /// Custody events that do not continue the record of a violation, or whose violation is not in the log, and the newest.
    outside: u64,
    newest_outside: Option<u64>,
}

/// The facts; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    facts: Arc<RwLock<Facts>>,
}

/// Kinds of resources whose events the ledger reads.
const RESOURCES: [&str; 3] = ["block/", "violation/", "chain/"];

/// Tells whether an entry of the log may say something of a block, a violation or a chain. Canonical JSON has one spelling, and
/// escapes quotes within texts.
pub(crate) fn is_of_evidence(text: &str) -> bool {
    let mut after = text.match_indices("\"resource\":\"");
    after.any(|(at, found)| {
        let resource = text.get(at + found.len()..).unwrap_or_default();
        RESOURCES.iter().any(|kind| resource.starts_with(kind))
    })
}

/// Tells whether the ledger reads an event.
pub(crate) fn is_event_of_evidence(event: &Event) -> bool {
    RESOURCES
        .iter()
        .any(|kind| event.resource.starts_with(kind))
}

impl Ledger {
    /// Adds an event that was recorded.
    pub(crate) fn apply(&self, index: u64, event: &Event) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        facts.apply(index, event);
    }

    /// Adds a block by its receipt, whose signature the caller has verified: its event was lost with a part of the log. Its record
    /// begins with the receipt.
    pub(crate) fn adopt(&self, receipt: &Receipt) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let received_at = millis(receipt.received_at);
        let entry = Entry {
            size: receipt.size,
            device: facts.name(&receipt.device),
            reason: facts.name(""),
            verdict: Verdict::Accepted,
            log_index: receipt.log_index,
            received_at,
            manifest: receipt.manifest_sha256,
            sequence: receipt.sequence,
            // The event that would name another one was lost.
            epoch: 0,
            is_released: false,
            is_adopted: true,
            record: Record::adopted(receipt.log_index, &receipt.device, received_at),
        };
        facts.number(&entry, receipt.block_sha256);
        facts.blocks.entry(receipt.block_sha256).or_insert(entry);
    }

    /// The accepted block of the violation `id`.
    pub(crate) fn violation(&self, id: &str) -> Option<Known> {
        let facts = self.read_facts();
        let (block, entry) = facts.find(id)?;
        Some(entry.known(*block))
    }

    pub(crate) fn block(&self, block: &Sha256Digest) -> Option<Known> {
        let facts = self.read_facts();
        let entry = facts.blocks.get(block)?;
        Some(entry.known(*block))
    }

    /// The next blocks after `last`, at most `most`; from the first one on without it.
    pub(crate) fn after(&self, last: Option<Sha256Digest>, most: usize) -> Vec<Known> {
        let facts = self.read_facts();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = facts.blocks.range((from, Bound::Unbounded)).take(most);
        next.map(|(block, entry)| entry.known(*block)).collect()
    }

    /// The blocks in quarantine, those that are kept too, in the order of their hashes. Looks at all blocks.
    pub(crate) fn set_apart(&self) -> Vec<Known> {
        let facts = self.read_facts();
        let waiting = facts.blocks.iter();
        let waiting = waiting.filter(|(_, entry)| entry.verdict.is_set_apart());
        waiting.map(|(block, entry)| entry.known(*block)).collect()
    }

    /// Numbers of a chain's blocks in quarantine, without blocks that are there because of their place in the chain. A block that is not
    /// evidence holds its number in the epoch that was open when it came.
    pub(crate) fn in_quarantine(&self, device: &str, epoch: u64) -> BTreeSet<u64> {
        let facts = self.read_facts();
        let epochs = facts.epochs.get(device);
        let epoch_at = |index| epochs.map_or(0, |epochs| epochs.open_at(index));
        let held = facts.held.get(device).into_iter().flatten();
        let held = held.filter(|(_, (_, index))| epoch_at(*index) == epoch);
        held.map(|(_, (number, _))| *number).collect()
    }

    /// The open epoch of a camera.
    pub(crate) fn epoch(&self, device: &str) -> u64 {
        let facts = self.read_facts();
        let begun = facts.epochs.get(device);
        begun.map_or(0, |epochs| epochs.begun.len() as u64)
    }

    /// The head of each closed chain of a camera, oldest first.
    pub(crate) fn closed_heads(&self, device: &str) -> Vec<u64> {
        let facts = self.read_facts();
        let begun = facts.epochs.get(device).map(|epochs| &epochs.begun);
        begun
            .into_iter()
            .flatten()
            .map(|one| one.closed_head)
            .collect()
    }

    /// The proposal to begin another epoch of a camera.
    pub(crate) fn replacement(&self, device: &str) -> Option<ReplacementProposal> {
        let facts = self.read_facts();
        facts.epochs.get(device)?.proposed.clone()
    }

    /// Index of the event that began an epoch of a camera; `None` for the first one.
    pub(crate) fn epoch_event(&self, device: &str, epoch: u64) -> Option<u64> {
        let facts = self.read_facts();
        let number = usize::try_from(epoch.checked_sub(1)?).ok()?;
        Some(facts.epochs.get(device)?.begun.get(number)?.index)
    }

    /// The highest number of a chain.
    pub(crate) fn chain_head(&self, chain: &str) -> Option<ChainHead> {
        let facts = self.read_facts();
        let (sequence, block) = facts.numbers.get(chain)?.last_key_value()?;
        let manifest = facts.blocks.get(block)?.manifest;
        Some(ChainHead {
            sequence: *sequence,
            manifest,
        })
    }

    /// The accepted blocks of a chain that have this number or a neighbouring one, and the one with the largest number.
    pub(crate) fn neighbours(&self, chain: &str, sequence: u64) -> Vec<(u64, Known)> {
        let facts = self.read_facts();
        let Some(numbers) = facts.numbers.get(chain) else {
            return Vec::new();
        };
        let near = sequence.saturating_sub(1)..=sequence.saturating_add(1);
        let last = numbers
            .last_key_value()
            .filter(|(last, _)| !near.contains(last));
        let near = numbers.range(near).chain(last);
        near.filter_map(|(number, block)| Some((*number, facts.blocks.get(block)?.known(*block))))
            .collect()
    }

    /// Counts the blocks of each camera that contradict another one.
    pub(crate) fn forks(&self) -> BTreeMap<Arc<str>, u64> {
        let facts = self.read_facts();
        let count =
            |(device, blocks): (&Arc<str>, &BTreeSet<_>)| (Arc::clone(device), blocks.len() as u64);
        facts.forks.iter().map(count).collect()
    }

    /// Counts the blocks.
    pub(crate) fn count(&self) -> usize {
        self.read_facts().blocks.len()
    }

    /// Blocks that contradict this one, in the order in which they came.
    pub(crate) fn disputes(&self, block: &Sha256Digest) -> Vec<Dispute> {
        let facts = self.read_facts();
        facts.disputes.get(block).cloned().unwrap_or_default()
    }

    pub(crate) fn is_disputed(&self, block: &Sha256Digest) -> bool {
        self.read_facts().disputes.contains_key(block)
    }

    fn read_facts(&self) -> RwLockReadGuard<'_, Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn known(&self, block: Sha256Digest) -> Known {
        Known {
            block,
            size: self.size,
            device: Arc::clone(&self.device),
            verdict: self.verdict,
            log_index: self.log_index,
            received_at: self.received_at,
            manifest: self.manifest,
            sequence: self.sequence,
            epoch: self.epoch,
            reason: Arc::clone(&self.reason),
            is_released: self.is_released,
            is_adopted: self.is_adopted,
            head: self.record.head(),
        }
    }
}

impl Facts {
    fn apply(&mut self, index: u64, event: &Event) {
        if let Some(device) = event.resource.strip_prefix("chain/") {
            self.apply_to_chain(device, index, event);
        } else if let Some(block) = event.resource.strip_prefix("block/") {
            if let Ok(block) = block.parse() {
                self.apply_to_block(block, index, event);
            }
        } else if let Some(id) = event.resource.strip_prefix("violation/") {
            let found = self.find_mut(id);
            let is_known =
                |entry: &mut Entry| entry.record.has(index) || entry.record.add(index, event);
            if !found.is_some_and(is_known) && self.newest_outside < Some(index) {
                self.outside = self.outside.saturating_add(1);
                self.newest_outside = Some(index);
            }
        }
    }

    fn apply_to_chain(&mut self, device: &str, index: u64, event: &Event) {
        if event.outcome == Outcome::Permit {
            let device = self.name(device);
            self.epochs.entry(device).or_default().apply(index, event);
        }
    }

    fn apply_to_block(&mut self, block: Sha256Digest, index: u64, event: &Event) {
        let is_known = |entry: &Entry| !entry.is_adopted && index <= entry.log_index;
        if self.blocks.get(&block).is_some_and(is_known) {
            return;
        }
        let is_accepted = |entry: &Entry| entry.verdict == Verdict::Accepted;
        match event.action.as_str() {
            Received::ACTION if event.outcome == Outcome::Ok => {
                // The record continues from the event that its second one names.
                let known = self.blocks.get(&block);
                if known.is_some_and(|entry| is_accepted(entry) && entry.record.head().count > 1) {
                    return;
                }
                let manifest = Block::of(event).and_then(|block| block.manifest_sha256);
                let manifest = manifest.and_then(|hash| hash.parse().ok());
                self.insert(block, Verdict::Accepted, index, event, manifest);
            }
            Quarantined::ACTION if !self.blocks.get(&block).is_some_and(is_accepted) => {
                self.insert(block, Verdict::Quarantined, index, event, None);
                let quarantined = Quarantined::from_event(event);
                let first = quarantined.and_then(|event| event.disputed_block);
                if first.is_some() {
                    let device = self.name(&event.actor.id);
                    self.forks.entry(device).or_default().insert(block);
                }
                if let Some(first) = first.and_then(|hash| hash.parse().ok()) {
                    let found_at = received_at(event);
                    let disputes: &mut Vec<Dispute> = self.disputes.entry(first).or_default();
                    if disputes.iter().all(|dispute| dispute.block != block) {
                        disputes.push(Dispute { block, found_at });
                    }
                }
            }
            Released::ACTION => {
                if let Some(entry) = self.blocks.get_mut(&block) {
                    entry.is_released = true;
                }
            }
            Kept::ACTION => {
                let entry = self.blocks.get_mut(&block);
                if let Some(entry) = entry.filter(|entry| entry.verdict == Verdict::Quarantined) {
                    entry.verdict = Verdict::Kept;
                }
            }
            Rejected::ACTION => {
                if let Some(entry) = self.blocks.get_mut(&block)
                    && !is_accepted(entry)
                {
                    entry.verdict = Verdict::Rejected;
                    let device = Arc::clone(&entry.device);
                    self.hold(&device, block, None);
                }
            }
            _ => {}
        }
    }

    fn insert(
        &mut self,
        block: Sha256Digest,
        verdict: Verdict,
        index: u64,
        event: &Event,
        manifest: Option<Sha256Digest>,
    ) {
        let device = self.name(&event.actor.id);
        let reason = self.name(event.reason.as_deref().unwrap_or_default());
        let entry = Entry {
            size: Block::of(event)
                .and_then(|block| block.size)
                .unwrap_or_default(),
            record: Record::begin(index, event),
            device: Arc::clone(&device),
            verdict,
            log_index: index,
            received_at: received_at(event),
            manifest,
            sequence: Block::of(event).and_then(|block| block.sequence),
            epoch: Block::of(event)
                .and_then(|block| block.epoch)
                .unwrap_or_default(),
            reason,
            is_adopted: false,
            is_released: self
                .blocks
                .get(&block)
                .is_some_and(|entry| entry.is_released),
        };
        self.number(&entry, block);
        let held = entry.known(block).held().map(|number| (number, index));
        let former = self.blocks.insert(block, entry);
        if let Some(former) = &former {
            self.hold(&former.device, block, None);
        }
        self.hold(&device, block, held);
        if verdict == Verdict::Accepted && former.is_some() {
            self.end_disputes(&device, &block);
        }
    }

    /// Notes the number that a block in quarantine holds, with the index of its event, or that it holds none.
    fn hold(&mut self, device: &Arc<str>, block: Sha256Digest, number: Option<(u64, u64)>) {
        if let Some(number) = number {
            let held = self.held.entry(Arc::clone(device)).or_default();
            held.insert(block, number);
        } else if let Some(held) = self.held.get_mut(device) {
            held.remove(&block);
        }
    }

    /// Two people found a place for a block that contradicted another one.
    fn end_disputes(&mut self, device: &str, block: &Sha256Digest) {
        let forks = self.forks.get_mut(device);
        if !forks.is_some_and(|forks| forks.remove(block)) {
            return;
        }
        self.disputes.retain(|_, disputes| {
            disputes.retain(|dispute| dispute.block != *block);
            !disputes.is_empty()
        });
    }

    /// Gives an accepted block its place in its camera's chain.
    fn number(&mut self, entry: &Entry, block: Sha256Digest) {
        if let (Verdict::Accepted, Some(sequence)) = (entry.verdict, entry.sequence) {
            let chain = self.name(&chain_name(&entry.device, entry.epoch));
            let numbers = self.numbers.entry(chain).or_default();
            numbers.entry(sequence).or_insert(block);
        }
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.names.insert(Arc::clone(&new));
        new
    }

    fn find(&self, id: &str) -> Option<(&Sha256Digest, &Entry)> {
        let (first, last) = names(id)?;
        let mut named = self.blocks.range(first..=last);
        named.find(|(_, entry)| entry.verdict == Verdict::Accepted)
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut Entry> {
        let (first, last) = names(id)?;
        let mut named = self.blocks.range_mut(first..=last);
        let found = named.find(|(_, entry)| entry.verdict == Verdict::Accepted);
        found.map(|(_, entry)| entry)
    }
}

/// The blocks that a violation of this name may have.
fn names(id: &str) -> Option<(Sha256Digest, Sha256Digest)> {
    let digits = id.strip_prefix("v-").filter(|digits| digits.len() == 16)?;
    let end = |digit: &str| format!("{digits}{}", digit.repeat(48)).parse().ok();
    Some((end("0")?, end("f")?))
}

#[cfg(test)]
mod tests;
