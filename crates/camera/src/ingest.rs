//! From the watched folder into the spool: the one place that seals, so that numbers follow.
//!
//! A source is removed only after its block is durable. What was being sealed is noted before the
//! commit, so that a crash between commit and removal does not seal the same picture twice; a source that
//! cannot be removed is remembered and left alone until it can ([`left`]).

mod group;
mod left;
mod metadata;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use error_report::Report;
use evidence::manifest::{MAX_DROPPED, Notice};
use evidence::seal::{ManifestDraft, MediumSource, SealError, Sealed, Statement};
use evidence::spool::SpoolError;
use pki::clearance::Clearance;

use self::group::{Folder, Group, Source, Verdict};
use self::left::Left;
use self::metadata::{Metadata, MetadataError};
use crate::agent::shared::Shared;
use crate::events::CameraEvent;
use crate::metrics::count;

/// Dropped blocks that are told at once, without waiting for more.
const NOTICE_BATCH: usize = 200;
/// Bytes of the spool's disk that blocks leave free.
const RESERVE: u64 = 64 * 1024;
/// Pause after the disk or spool was full.
const FULL_PAUSE: Duration = Duration::from_secs(5);
/// Time between looks at the number of stored receipts.
const UPKEEP: Duration = Duration::from_secs(60);

enum Failure {
    /// The source is no good; set it aside.
    Reject(String),
    /// No room; the source stays where it is.
    Full,
    /// Something else that may pass.
    Later(String),
}

/// The sealing side of the agent; used from one task.
pub(crate) struct Ingest {
    shared: Arc<Shared>,
    folder: Folder,
    pause_until: Option<Instant>,
    dropped_since: Option<Instant>,
    last_upkeep: Option<Instant>,
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
        let mut ingest = Self {
            shared,
            folder,
            pause_until: None,
            dropped_since: None,
            last_upkeep: None,
            told_full: false,
            left,
        };
        ingest.dispose(&[]);
        Ok(ingest)
    }

    fn source_path(&self, name: &str) -> PathBuf {
        self.shared.config.watch.folder.join(name)
    }

    /// One look at the folder and everything that follows from it. Blocks.
    pub(crate) fn step(&mut self, closed: Vec<OsString>) {
        for name in closed {
            self.folder.closed(name);
        }
        let now = Instant::now();
        self.upkeep(now);
        if self.pause_until.is_some_and(|until| now < until) {
            return;
        }
        self.dispose(&[]);
        self.tell_dropped(now);
        match self.folder.look(now) {
            Ok(groups) => {
                let mut full = false;
                for (stem, (group, age)) in groups {
                    // Sealed already; a removal failed.
                    if group.files().any(|source| self.left.holds(source)) {
                        continue;
                    }
                    match self.handle(&stem, &group, age) {
                        Ok(()) => {}
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
            Err(error) => tracing::error!(%error, "cannot look into the watched folder"),
        }
        self.shared.update_waiting();
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
    }

    /// Seals a group that is whole, and sets one aside that can never be sealed; a failure leaves it where it is.
    fn handle(&mut self, stem: &str, group: &Group, age: Duration) -> Result<(), Failure> {
        let watch = &self.shared.config.watch;
        let pair_wait = Duration::from_secs(watch.pair_wait_secs);
        let metadata = match group.verdict(age, pair_wait) {
            Verdict::Wait => return Ok(()),
            Verdict::Reject(reason) => {
                self.reject(stem, group, reason);
                return Ok(());
            }
            Verdict::Seal => group
                .metadata
                .iter()
                .map(|m| metadata::from_json(&self.source_path(&m.name)))
                .next(),
            Verdict::SealByExif => group
                .media
                .iter()
                .map(|m| metadata::from_exif(&self.source_path(&m.name), watch))
                .next(),
        };
        let outcome = match metadata {
            Some(Ok(metadata)) => self.seal_group(group, metadata),
            Some(Err(MetadataError::Bad(reason))) => Err(Failure::Reject(reason)),
            Some(Err(MetadataError::Io(error))) => Err(Failure::Later(error.to_string())),
            None => return Ok(()),
        };
        match outcome {
            Err(Failure::Reject(reason)) => {
                self.reject(stem, group, &reason);
                Ok(())
            }
            sealed => sealed,
        }
    }

    fn pause(&mut self, failure: Failure) {
        self.pause_until = Some(Instant::now() + FULL_PAUSE);
        match failure {
            Failure::Full => {
                if !std::mem::replace(&mut self.told_full, true) {
                    self.shared.emit(CameraEvent::SpoolFull);
                }
            }
            Failure::Later(reason) | Failure::Reject(reason) => {
                tracing::error!(reason, "cannot seal now, trying again");
            }
        }
    }

    fn seal_group(&mut self, group: &Group, metadata: Metadata) -> Result<(), Failure> {
        let classification = metadata
            .classification
            .unwrap_or(self.shared.config.watch.classification);
        self.check_room(group, classification)?;
        let mut media = Vec::new();
        for medium in &group.media {
            let reader = File::open(self.source_path(&medium.name))
                .map_err(|e| Failure::Later(e.to_string()))?;
            media.push(MediumSource {
                name: medium.name.clone(),
                media_type: group::media_type(&medium.name)
                    .unwrap_or_default()
                    .to_owned(),
                reader: Box::new(reader),
            });
        }
        let files: Vec<Source> = group.files().cloned().collect();
        self.seal(
            Statement::Violation(metadata.violation),
            metadata.captured_at,
            classification,
            media,
            &files,
        )?;
        self.dispose(&files);
        Ok(())
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
    fn seal(
        &mut self,
        statement: Statement,
        captured_at: time::OffsetDateTime,
        classification: Clearance,
        media: Vec<MediumSource<'_>>,
        files: &[Source],
    ) -> Result<(), Failure> {
        let (position, mut writer) = {
            let mut spool = self.shared.spool();
            (spool.chain(), spool.writer().map_err(spool_failure)?)
        };
        let draft = ManifestDraft {
            sequence: position.sequence,
            previous: position.previous,
            captured_at,
            classification,
            statement,
        };
        let now = self.shared.clock.now();
        let sealer = self.shared.sealer(now);
        let sealer = sealer.map_err(|e| Failure::Later(Report(&e).to_string()))?;
        let sealed = sealer
            .seal(draft, media, now, &mut writer)
            .map_err(seal_failure)?;
        // Also for a notice, which has no files: the note of an earlier attempt that failed at this
        // number would otherwise pass for sealed, and its picture be removed after a restart.
        self.left
            .note(position.sequence, files)
            .map_err(|e| Failure::Later(e.to_string()))?;
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

    /// Tells the centre about dropped blocks, several at a time.
    fn tell_dropped(&mut self, now: Instant) {
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
        let at = self.shared.clock.now();
        match self.seal(
            Statement::Notice(notice),
            at,
            Clearance::Unclassified,
            vec![],
            &[],
        ) {
            Ok(()) => self.dropped_since = None,
            Err(failure) => self.pause(failure),
        }
    }

    /// Removes sealed sources, or moves them where the operator keeps them, and those that could not be
    /// removed before.
    fn dispose(&mut self, sealed: &[Source]) {
        self.left.add(sealed);
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
    fn reject(&self, stem: &str, group: &Group, reason: &str) {
        let folder = &self.shared.config.watch.rejected;
        for source in group.files() {
            if let Err(error) = move_into(&self.source_path(&source.name), folder, &source.name) {
                tracing::error!(name = source.name, %error, "cannot set a source aside");
                return;
            }
        }
        let note = free_name(folder, &format!("{stem}.reason.txt"));
        if let Err(error) = note.and_then(|note| fs::write(note, format!("{reason}\n"))) {
            tracing::error!(stem, %error, "cannot write why a source was set aside");
        }
        self.shared.metrics.rejected.fetch_add(1, Ordering::Relaxed);
        self.shared.emit(CameraEvent::Rejected {
            name: stem.to_owned(),
            reason: reason.to_owned(),
        });
    }
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

/// A path in `folder` that is not taken: `name`, or `1-name`, `2-name`, …
fn free_name(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let mut path = folder.join(name);
    let mut n: u64 = 0;
    while path.try_exists()? {
        n = n.saturating_add(1);
        path = folder.join(format!("{n}-{name}"));
    }
    Ok(path)
}

/// Moves a file, by copying if the folder is on another file system; nothing is overwritten.
pub(super) fn move_into(from: &Path, folder: &Path, name: &str) -> io::Result<PathBuf> {
    let to = free_name(folder, name)?;
    match fs::rename(from, &to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let mut target = File::create_new(&to)?;
            io::copy(&mut File::open(from)?, &mut target)?;
            target.sync_all()?;
            File::open(folder)?.sync_all()?;
            fs::remove_file(from)?;
        }
        other => other?,
    }
    Ok(to)
}
