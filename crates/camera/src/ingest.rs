//! From the watched folder into the spool: the one place that seals, so that numbers follow.
//!
//! A group is sealed when each of its files is complete ([`group`]), and committed only if none changed while it was read. A
//! source is removed only after its block is durable, and only if it still is what was sealed. What is being sealed is
//! noted before the commit, so that a crash between commit and removal does not seal the same picture twice ([`left`]).

mod group;
mod left;
pub(crate) mod local_time;
mod metadata;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use error_report::Report;
use evidence::manifest::{MAX_DROPPED, Manifest, Notice};
use evidence::seal::{ManifestDraft, MediumSource, SealError, Sealed, Statement};
use evidence::spool::SpoolError;
use pki::clearance::Clearance;

use self::group::{Folder, Group, Verdict};
pub(crate) use self::group::{FolderEvent, is_source_name};
use self::left::Left;
use self::metadata::{Metadata, MetadataError};
use self::source::{Opened, Source, Writers};
use crate::agent::shared::Shared;
use crate::clock;
use crate::config::Watch;
use crate::events::CameraEvent;
use crate::metrics::count;
use crate::set_aside::{self, Summary};

/// Dropped blocks that are told at once, without waiting for more.
const NOTICE_BATCH: usize = 200;
/// Bytes of the spool's disk that blocks leave free.
const RESERVE: u64 = 64 * 1024;
/// Pause after the disk or spool was full.
const FULL_PAUSE: Duration = Duration::from_secs(5);
/// Time between looks at the number of stored receipts.
const UPKEEP: Duration = Duration::from_secs(60);
/// Shortest time between reports of what is set aside; the journal records twenty of a kind in an hour.
const REPORT: Duration = Duration::from_secs(300);
/// Time after which what is set aside is reported again: the site can tell a silent camera from a mended one.
const REPORT_AGAIN: Duration = Duration::from_secs(24 * 3_600);

enum Failure {
    /// The source is no good; set it aside.
    Reject(String),
    /// No room; the source stays where it is.
    Full,
    /// A file was changed while it was read; its writer is not done.
    Changed,
    /// Something else that may pass.
    Later(String),
}

/// The files of a group, open and without writers.
struct Sources {
    stem: String,
    metadata: Option<Opened>,
    media: Vec<Opened>,
}

/// What a block is made of, apart from its statement.
struct Material<'a> {
    captured_at: time::OffsetDateTime,
    classification: Clearance,
    /// None for a notice.
    sources: Option<&'a Sources>,
}

/// The sealing side of the agent; used from one task.
pub(crate) struct Ingest {
    shared: Arc<Shared>,
    folder: Folder,
    pause_until: Option<Instant>,
    dropped_since: Option<Instant>,
    last_upkeep: Option<Instant>,
    /// When what is set aside was last reported, by this process.
    last_report: Option<Instant>,
    /// What the site was last told of it.
    reported: Summary,
    told_full: bool,
    left: Left,
}

impl Ingest {
    /// Prepares folders and removes sources that a crash left after they were sealed.
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let watch = &shared.config.watch;
        for folder in [&watch.folder, &watch.rejected]
            .into_iter()
            .chain(&watch.keep_sealed)
        {
            fs::create_dir_all(folder)?;
        }
        let folder = Folder::new(&watch.folder, Duration::from_secs(watch.settle_secs));
        let next = shared.spool().chain().sequence;
        let left = Left::load(&shared.config, next)?;
        let reported = Summary::reported(&shared.config.spool.folder);
        let mut ingest = Self {
            shared,
            folder,
            pause_until: None,
            dropped_since: None,
            last_upkeep: None,
            last_report: None,
            reported,
            told_full: false,
            left,
        };
        ingest.dispose();
        Ok(ingest)
    }

    /// One look at the folder and everything that follows from it. Blocks.
    pub(crate) fn step(&mut self, events: Vec<FolderEvent>) {
        for event in events {
            self.folder.note(event);
        }
        let now = Instant::now();
        self.upkeep(now);
        if self.pause_until.is_some_and(|until| now < until) {
            return;
        }
        self.dispose();
        self.seal_notices(now);
        match self.folder.look(now) {
            Ok(groups) => self.seal_groups(&groups, now),
            Err(error) => tracing::error!(%error, "cannot look into the watched folder"),
        }
        self.shared.update_waiting();
    }

    fn seal_groups(&mut self, groups: &BTreeMap<String, Group>, now: Instant) {
        let mut full = false;
        for (stem, group) in groups {
            // Sealed already; a removal failed.
            if group.files().any(|source| self.left.holds(source)) {
                continue;
            }
            match self.handle(stem, group, now) {
                Ok(()) => {}
                Err(Failure::Changed) => self.folder.is_busy(stem, now),
                // A film that has no room keeps no picture out that has.
                Err(Failure::Full) => full = true,
                Err(failure) => {
                    self.pause(failure);
                    break;
                }
            }
        }
        match full {
            true => self.pause(Failure::Full),
            false => self.told_full = false,
        }
    }

    fn upkeep(&mut self, now: Instant) {
        if self.last_upkeep.is_some_and(|last| now - last < UPKEEP) {
            return;
        }
        self.last_upkeep = Some(now);
        let pruned = self.shared.spool().prune_receipts();
        if let Err(error) = pruned {
            tracing::warn!(%error, "cannot remove old receipts");
        }
        if let Err(error) = self.report_set_aside(now) {
            tracing::error!(%error, "cannot tell what is set aside");
        }
    }

    /// Counts what is set aside, and reports it if it changed.
    fn report_set_aside(&mut self, now: Instant) -> io::Result<()> {
        let summary = Summary::of(&set_aside::list(&self.shared.config.watch.rejected)?);
        let count = &self.shared.metrics.set_aside;
        count.store(summary.count, Ordering::Relaxed);
        let passed = self
            .last_report
            .map(|last| now.saturating_duration_since(last));
        let changed = summary != self.reported && passed.is_none_or(|passed| passed >= REPORT);
        let again = summary.count > 0 && passed.is_none_or(|passed| passed >= REPORT_AGAIN);
        if changed || again {
            self.shared.emit(CameraEvent::SetAside(summary.clone()));
            // After the event: a crash in between reports it twice, rather than never.
            summary.keep_reported(&self.shared.config.spool.folder)?;
            self.last_report = Some(now);
            self.reported = summary;
        }
        Ok(())
    }

    /// Seals a group that is whole, and sets one aside that can never be sealed; a failure leaves it where it is.
    fn handle(&mut self, stem: &str, group: &Group, now: Instant) -> Result<(), Failure> {
        let pair_wait = Duration::from_secs(self.shared.config.watch.pair_wait_secs);
        let verdict = group.verdict(pair_wait);
        if verdict == Verdict::Wait {
            return Ok(());
        }
        let Some(sources) = self.open(stem, group, now)? else {
            return Ok(());
        };
        let outcome = match verdict {
            Verdict::Reject(reason) => Err(Failure::Reject(reason)),
            Verdict::Wait | Verdict::Seal | Verdict::SealByExif => sources
                .facts(&self.shared.config.watch)
                .and_then(|metadata| self.seal_group(group, &sources, metadata)),
        };
        match outcome {
            Err(Failure::Reject(reason)) => {
                self.reject(stem, group, &reason);
                Ok(())
            }
            sealed => sealed,
        }
    }

    /// Opens the files of a group; none if one is not complete.
    fn open(
        &mut self,
        stem: &str,
        group: &Group,
        now: Instant,
    ) -> Result<Option<Sources>, Failure> {
        let folder = &self.shared.config.watch.folder;
        let mut sources = Sources {
            stem: stem.to_owned(),
            metadata: None,
            media: Vec::new(),
        };
        for seen in group.files() {
            let opened = Opened::open(folder, &seen.name).map_err(later)?;
            let writers = opened.writers();
            if !opened.source.is_unchanged(seen)
                || !self.folder.is_complete(&seen.name, writers, now)
            {
                // Only a writer begins the wait for the other half again.
                if writers == Writers::Some {
                    self.folder.is_busy(stem, now);
                }
                return Ok(None);
            }
            match group.metadata.as_ref() == Some(seen) {
                true => sources.metadata = Some(opened),
                false => sources.media.push(opened),
            }
        }
        Ok(Some(sources))
    }

    fn pause(&mut self, failure: Failure) {
        self.pause_until = Some(Instant::now() + FULL_PAUSE);
        match failure {
            Failure::Full => {
                if !std::mem::replace(&mut self.told_full, true) {
                    self.shared.emit(CameraEvent::SpoolFull);
                }
            }
            Failure::Changed => {}
            Failure::Later(reason) | Failure::Reject(reason) => {
                tracing::error!(reason, "cannot seal now, trying again");
            }
        }
    }

    fn seal_group(
        &mut self,
        group: &Group,
        sources: &Sources,
        metadata: Metadata,
    ) -> Result<(), Failure> {
        let classification = metadata
            .classification
            .unwrap_or(self.shared.config.watch.classification);
        self.check_clearance(classification)?;
        self.check_room(group, classification)?;
        let material = Material {
            captured_at: metadata.captured_at,
            classification,
            sources: Some(sources),
        };
        let sealed = self.seal(Statement::Violation(metadata.violation), &material);
        if sealed.is_err() {
            let next = self.shared.spool().chain().sequence;
            self.left.forget_numbers(next);
        }
        sealed?;
        self.dispose();
        Ok(())
    }

    /// Rejects what the camera's own certificate does not cover: the centre would put the block into quarantine.
    fn check_clearance(&self, classification: Clearance) -> Result<(), Failure> {
        match self.shared.clearance() {
            Some(clearance) if classification > clearance => Err(Failure::Reject(format!(
                "classification {} is above the clearance {} of this camera's certificate; get a certificate with that \
                 clearance and run `cordon camera retry`, or correct the facts or watch.classification",
                classification.level(),
                clearance.level()
            ))),
            // Without a path to the root, only the centre can tell.
            _ => Ok(()),
        }
    }

    /// Asks whether a block of these media has room, before it is sealed in vain. One that the spool can never hold is set
    /// aside: it must not keep those after it out.
    ///
    /// Leaves room on the disk for what sending takes: the byte counter, the journal, addresses of uploads. Without it a disk
    /// that is full of blocks would stay full of them.
    fn check_room(&self, group: &Group, class: Clearance) -> Result<(), Failure> {
        let media = group.media.iter().map(|medium| medium.size);
        let size = media.fold(0, u64::saturating_add);
        {
            let spool = self.shared.spool();
            let room = spool.check_room(class, size);
            room.map_err(|error| no_room(error, spool.max_bytes()))?;
        }
        let Ok(disk) = rustix::fs::statvfs(&self.shared.config.spool.folder) else {
            return Ok(());
        };
        let needed = size.saturating_add(RESERVE);
        let whole = disk.f_blocks.saturating_mul(disk.f_frsize);
        if needed > whole {
            return Err(Failure::Reject(format!(
                "it needs {needed} bytes, the disk of the spool has {whole}"
            )));
        }
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match free < needed {
            true => Err(Failure::Full),
            false => Ok(()),
        }
    }

    /// Seals one statement as the next of the chain; durable on success.
    fn seal(&mut self, statement: Statement, material: &Material<'_>) -> Result<(), Failure> {
        let now = self.shared.clock.now();
        if !clock::is_set(now) {
            let reason = format!(
                "the clock shows the year {}: set it, or wait for NTP",
                now.year()
            );
            return Err(Failure::Later(reason));
        }
        let (position, mut writer) = {
            let mut spool = self.shared.spool();
            (spool.chain(), spool.writer().map_err(spool_failure)?)
        };
        let draft = ManifestDraft {
            sequence: position.sequence,
            previous: position.previous,
            captured_at: material.captured_at,
            classification: material.classification,
            statement,
        };
        let sealer = self.shared.sealer(now);
        let sealer = sealer.map_err(|e| Failure::Later(Report(&e).to_string()))?;
        let media = material.sources.map_or(Ok(Vec::new()), Sources::readers);
        let sealed = sealer
            .seal(draft, media.map_err(later)?, now, &mut writer)
            .map_err(seal_failure)?;
        // Before anything counts: a writer that came meanwhile has half of its content in this block.
        let files = match material.sources {
            Some(sources) => {
                self.left.number(&sources.stem, position.sequence);
                sources.sealed(&sealed.manifest)?
            }
            None => Vec::new(),
        };
        // Also for a notice, which has no files: the note of an earlier attempt that failed at this
        // number would otherwise pass for sealed, and its picture be removed after a restart.
        self.left.note(position.sequence, &files).map_err(later)?;
        // Before the spool is locked: the uploader goes on while a film gets to the disk.
        let written = writer.finish();
        let (committed, most) = {
            let mut spool = self.shared.spool();
            let committed = written.and_then(|block| spool.commit(block, &sealed));
            (committed, spool.max_bytes())
        };
        let evicted = match committed {
            Ok(committed) => committed.evicted,
            // It must not be sealed again; its source stays until the spool has settled.
            Err(SpoolError::Unsynced(error)) => {
                tracing::error!(%error, "the spool's folder cannot be flushed, trying again");
                Vec::new()
            }
            Err(error) => return Err(no_room(error, most)),
        };
        self.left.add(position.sequence, &files);
        self.committed(&sealed, evicted);
        Ok(())
    }

    fn committed(&self, sealed: &Sealed, evicted: Vec<evidence::manifest::Dropped>) {
        count(&self.shared.metrics.spooled);
        self.shared.engines.show();
        self.shared.emit(CameraEvent::Sealed {
            sequence: sealed.manifest.sequence,
            block_sha256: sealed.block_sha256.to_string(),
            size: sealed.block_size,
        });
        self.shared.report_dropped(evicted);
        self.shared.work.notify_one();
    }

    /// Seals the notices that are due: about dropped blocks, several at a time, and about sources that changed.
    fn seal_notices(&mut self, now: Instant) {
        if let Some((first, second)) = self.left.link_due() {
            let text = format!(
                "block {second} has files of block {first} again: they changed after that was sealed"
            );
            let notice = Notice {
                dropped: Vec::new(),
                text: Some(text),
            };
            if self.seal_notice(notice) {
                self.left.linked(second);
            }
        }
        let pending: Vec<_> = {
            let spool = self.shared.spool();
            spool
                .pending_dropped()
                .iter()
                .take(MAX_DROPPED)
                .cloned()
                .collect()
        };
        if pending.is_empty() {
            self.dropped_since = None;
            return;
        }
        let since = *self.dropped_since.get_or_insert(now);
        let delay = Duration::from_secs(self.shared.config.spool.notice_delay_secs);
        if pending.len() < NOTICE_BATCH && now - since < delay {
            return;
        }
        let notice = Notice {
            dropped: pending,
            text: None,
        };
        if self.seal_notice(notice) {
            self.dropped_since = None;
        }
    }

    /// Seals a notice; returns false, and pauses, if that failed.
    fn seal_notice(&mut self, notice: Notice) -> bool {
        let material = Material {
            captured_at: self.shared.clock.now(),
            classification: Clearance::Unclassified,
            sources: None,
        };
        match self.seal(Statement::Notice(notice), &material) {
            Ok(()) => true,
            Err(failure) => {
                self.pause(failure);
                false
            }
        }
    }

    /// Removes sealed sources, or moves them where the operator keeps them.
    fn dispose(&mut self) {
        if self.left.is_empty() {
            return;
        }
        if let Err(error) = self.shared.spool().settle() {
            tracing::error!(error = %Report(&error), "sealed sources are not removed yet");
            return;
        }
        self.left.remove(&self.shared.config.watch);
    }

    /// Sets a group aside with the reason; if that fails it stays where it is.
    fn reject(&mut self, stem: &str, group: &Group, reason: &str) {
        let watch = &self.shared.config.watch;
        // The facts last: a picture that a crash leaves behind must not be sealed by its EXIF, without its facts.
        let names: Vec<&str> = group
            .media
            .iter()
            .chain(&group.others)
            .chain(&group.metadata)
            .map(|source| source.name.as_str())
            .collect();
        if let Err(error) =
            set_aside::set_aside(&watch.folder, &watch.rejected, stem, &names, reason)
        {
            tracing::error!(stem, %error, "cannot set a source aside");
            return;
        }
        self.left.forget_change(stem);
        // The next look reports it.
        self.last_upkeep = None;
        self.shared.metrics.rejected.fetch_add(1, Ordering::Relaxed);
        self.shared.emit(CameraEvent::Rejected {
            name: stem.to_owned(),
            reason: reason.to_owned(),
        });
    }
}

impl Sources {
    fn files(&self) -> impl Iterator<Item = &Opened> {
        self.metadata.iter().chain(&self.media)
    }

    /// Reads the facts, from the metadata file if there is one.
    fn facts(&self, watch: &Watch) -> Result<Metadata, Failure> {
        let metadata = match (&self.metadata, self.media.first()) {
            (Some(file), _) => file.reader().map_err(later).map(metadata::from_json)?,
            (None, Some(picture)) => {
                let reader = picture.reader().map_err(later)?;
                metadata::from_exif(reader, watch)
            }
            (None, None) => return Err(Failure::Changed),
        };
        metadata.map_err(|error| match error {
            MetadataError::Bad(reason) => Failure::Reject(reason),
            MetadataError::Io(error) => later(error),
        })
    }

    fn readers(&self) -> io::Result<Vec<MediumSource<'_>>> {
        let mut media = Vec::new();
        for medium in &self.media {
            let name = &medium.source.name;
            media.push(MediumSource {
                name: group::sealed_name(name),
                media_type: group::media_type(name).unwrap_or_default().to_owned(),
                reader: Box::new(medium.reader()?),
            });
        }
        Ok(media)
    }

    /// The files with the hashes of what was sealed.
    ///
    /// # Errors
    /// [`Failure::Changed`] if a file changed since it was opened, or has a writer now.
    fn sealed(&self, manifest: &Manifest) -> Result<Vec<Source>, Failure> {
        let mut sources = Vec::new();
        for file in self.files() {
            let mut media = manifest.media.iter();
            let name = group::sealed_name(&file.source.name);
            let medium = media.find(|medium| medium.name == name);
            let sha256 = match medium {
                Some(medium) => medium.sha256,
                None => file.hash().map_err(later)?,
            };
            let whole = medium.is_none_or(|medium| medium.size == file.source.size);
            if !whole || !file.is_unchanged().map_err(later)? || file.writers() == Writers::Some {
                return Err(Failure::Changed);
            }
            sources.push(Source {
                sha256: Some(sha256),
                ..file.source.clone()
            });
        }
        Ok(sources)
    }
}

fn later(error: io::Error) -> Failure {
    Failure::Later(error.to_string())
}

fn seal_failure(error: SealError) -> Failure {
    match error {
        SealError::Manifest(e) => Failure::Reject(e.to_string()),
        SealError::TooLarge => Failure::Reject("too large".to_owned()),
        SealError::Write(e) if e.kind() == io::ErrorKind::StorageFull => Failure::Full,
        other => Failure::Later(other.to_string()),
    }
}

/// The failure to store something in a spool of `most` bytes: to wait for room makes no sense if that will never do.
fn no_room(error: SpoolError, most: u64) -> Failure {
    match error {
        SpoolError::Full { needed, .. } if needed > most => Failure::Reject(format!(
            "it needs {needed} bytes, the spool holds {most} (spool.max_bytes)"
        )),
        error => spool_failure(error),
    }
}

fn spool_failure(error: SpoolError) -> Failure {
    match error {
        SpoolError::Full { .. } | SpoolError::NoSpace(_) => Failure::Full,
        other => Failure::Later(other.to_string()),
    }
}
