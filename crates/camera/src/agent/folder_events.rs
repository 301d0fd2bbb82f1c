//! What the kernel reports of the watched folder, also after another file system was mounted there.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use rustix::io::Errno;

use crate::ingest::FolderEvent;

/// Buffer for folder events, in bytes; the kernel says when it had to drop some.
const EVENT_BUFFER: usize = 16 * 1024;
/// Time in which further events join the same look.
const BURST: Duration = Duration::from_millis(5);
/// Most events of one look; a folder in which files are created without end is looked at nevertheless.
const MAX_BURST: usize = 4_096;

/// The kernel's reports of one folder.
pub(super) struct FolderEvents {
    path: PathBuf,
    /// Device and inode of the folder that is watched; none if it was not there.
    watched: Option<(u64, u64)>,
    /// None where the kernel watches no more folders for this user: that is no reason to leave pictures unsealed.
    stream: Option<EventStream<Vec<u8>>>,
}

impl FolderEvents {
    pub(super) fn watch(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            watched: identity(path),
            stream: watch(path)?,
        })
    }

    /// Waits for events, at most `longest`.
    ///
    /// # Errors
    /// Those of the kernel's queue.
    pub(super) async fn next(&mut self, longest: Duration) -> io::Result<Vec<FolderEvent>> {
        let mut events = Vec::new();
        let mut wait = longest;
        while events.len() < MAX_BURST {
            let Ok(event) = tokio::time::timeout(wait, next(&mut self.stream)).await else {
                break;
            };
            let event = event.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
            events.extend(meaning(event));
            wait = BURST;
        }
        self.follow_path(&mut events);
        Ok(events)
    }

    /// Watches the folder that has the path now: a watch stays with the inode, which a mount hides and a rename moves.
    fn follow_path(&mut self, events: &mut Vec<FolderEvent>) {
        let now = identity(&self.path);
        if now == self.watched || now.is_none() {
            return;
        }
        match watch(&self.path) {
            Ok(stream) => {
                tracing::info!("the watched folder is another one, watching it now");
                self.stream = stream;
                self.watched = now;
                events.push(FolderEvent::Lost);
            }
            // The next look tries again; files are found without events as well.
            Err(error) => tracing::warn!(%error, "cannot watch the folder, trying again"),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let data = std::fs::metadata(path).ok()?;
    Some((data.dev(), data.ino()))
}

fn meaning(event: EventOwned) -> Option<FolderEvent> {
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        return Some(FolderEvent::Lost);
    }
    let name = event.name?;
    match event.mask.contains(EventMask::CREATE) {
        true => Some(FolderEvent::Created(name)),
        false => Some(FolderEvent::Closed(name)),
    }
}

fn watch(folder: &Path) -> io::Result<Option<EventStream<Vec<u8>>>> {
    let watched = Inotify::init().and_then(|inotify| {
        let mask = WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO;
        inotify.watches().add(folder, mask)?;
        inotify.into_event_stream(vec![0; EVENT_BUFFER])
    });
    match watched {
        Ok(events) => Ok(Some(events)),
        Err(error) if is_exhausted(&error) => {
            tracing::warn!(
                %error,
                "the kernel watches no more folders for this user (fs.inotify.max_user_instances, fs.inotify.max_user_watches): \
                 looking every second instead"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// The next event; never one where the kernel reports none.
async fn next(events: &mut Option<EventStream<Vec<u8>>>) -> Option<io::Result<EventOwned>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
