//! What one person may take of the centre at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ReviewError;

/// Media that one person reads at the same time: a page with its pictures, and a film. A further
/// one is refused.
pub(super) const STREAMS: usize = 8;
/// Packages of evidence that one person has written at the same time. A further one is refused: a reader that takes its time
/// keeps one of the few threads for them.
pub(super) const EXPORTS: usize = 1;
/// Events and custody entries of one person that are written at the same time; more wait for these.
/// The database has one writer, which the intake shares: whoever sends a thousand requests queues
/// behind the own ones.
const WRITES: usize = 4;
/// Questions to the index that one person has under way; more wait for these. Half of the
/// connections that people read by, so that nobody alone keeps the others waiting.
const QUERIES: usize = 2;

#[derive(Debug)]
struct Share {
    streams: usize,
    exports: usize,
    writes: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    /// Streams and writers that hold this entry.
    users: usize,
}

/// The shares of everybody who takes something now; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    people: Arc<Mutex<HashMap<String, Share>>>,
}

/// A place among a person's streams, given back on drop.
#[derive(Debug)]
pub(super) struct Stream(Holder);

/// A place to have a package written, given back on drop.
#[derive(Debug)]
pub(super) struct Exporting(Holder);

/// A turn to write or ask, given back on drop.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    _holder: Holder,
}

/// Keeps an entry alive.
#[derive(Debug)]
struct Holder {
    shares: Shares,
    uid: String,
}

impl Shares {
    /// A place to read one medium.
    pub(super) fn stream(&self, uid: &str) -> Result<Stream, ReviewError> {
        let holder = self.hold(uid);
        let taken = self.with(uid, |share| {
            let free = share.streams < STREAMS;
            share.streams += usize::from(free);
            free
        });
        match taken {
            Some(true) => Ok(Stream(holder)),
            _ => Err(ReviewError::TooMany(STREAMS)),
        }
    }

    /// A place to have a package written.
    pub(super) fn export(&self, uid: &str) -> Result<Exporting, ReviewError> {
        let holder = self.hold(uid);
        let taken = self.with(uid, |share| {
            let free = share.exports < EXPORTS;
            share.exports += usize::from(free);
            free
        });
        match taken {
            Some(true) => Ok(Exporting(holder)),
            _ => Err(ReviewError::Exporting),
        }
    }

    /// A turn to write; waits while the person has [`WRITES`] under way.
    pub(super) async fn write(&self, uid: &str) -> Turn {
        self.turn(uid, |share| Arc::clone(&share.writes)).await
    }

    /// A turn to ask the index; waits while the person has [`QUERIES`] under way.
    pub(super) async fn query(&self, uid: &str) -> Turn {
        self.turn(uid, |share| Arc::clone(&share.queries)).await
    }

    async fn turn(&self, uid: &str, which: impl FnOnce(&mut Share) -> Arc<Semaphore>) -> Turn {
        let holder = self.hold(uid);
        let permit = match self.with(uid, which) {
            // Never closed, so an error cannot occur.
            Some(semaphore) => semaphore.acquire_owned().await.ok(),
            None => None,
        };
        Turn {
            _permit: permit,
            _holder: holder,
        }
    }

    fn hold(&self, uid: &str) -> Holder {
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        let share = people.entry(uid.to_owned()).or_insert_with(|| Share {
            streams: 0,
            exports: 0,
            writes: Arc::new(Semaphore::new(WRITES)),
            queries: Arc::new(Semaphore::new(QUERIES)),
            users: 0,
        });
        share.users += 1;
        Holder {
            shares: self.clone(),
            uid: uid.to_owned(),
        }
    }

    fn with<T>(&self, uid: &str, act: impl FnOnce(&mut Share) -> T) -> Option<T> {
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        people.get_mut(uid).map(act)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let holder = &self.0;
        holder.shares.with(&holder.uid, |share| {
            share.streams = share.streams.saturating_sub(1);
        });
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        let holder = &self.0;
        holder.shares.with(&holder.uid, |share| {
            share.exports = share.exports.saturating_sub(1);
        });
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let people = &self.shares.people;
        let mut people = people.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = people.get_mut(&self.uid) {
            share.users = share.users.saturating_sub(1);
            if share.users == 0 {
                people.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn streams_and_writes_are_bounded_by_person_and_nothing_is_left_behind() {
        let shares = Shares::default();
        let held: Vec<Stream> = (0..STREAMS).map(|_| shares.stream("a").unwrap()).collect();
        assert!(matches!(
            shares.stream("a"),
            Err(ReviewError::TooMany(STREAMS))
        ));
        let other = shares.stream("b").unwrap();
        let export = shares.export("a").unwrap();
        assert!(matches!(shares.export("a"), Err(ReviewError::Exporting)));
        drop((export, shares.export("b").unwrap()));
        drop(shares.export("a").unwrap());
        let mut turns = Vec::new();
        for _ in 0..WRITES {
            turns.push(shares.write("a").await);
        }
        let wait = std::time::Duration::from_millis(20);
        let next = tokio::time::timeout(wait, shares.write("a")).await;
        assert!(next.is_err());
        drop(shares.write("b").await);
        turns.pop();
        turns.push(shares.write("a").await);
        let queries = (shares.query("a").await, shares.query("a").await);
        assert!(tokio::time::timeout(wait, shares.query("a")).await.is_err());
        drop(shares.query("b").await);
        drop(queries);
        drop((held, other, turns));
        shares.stream("a").unwrap();
        assert!(shares.people.lock().unwrap().is_empty());
    }
}
