//! Work for another thread that has no room for it yet.
//!
//! A thousand peers that come at once, after a crash or a cut line, want a thousand signatures. Work that is dropped
//! costs its handshake half a minute, as a request that is being worked on is not taken a second time; so it waits
//! here, fairly between the networks that caused it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{SyncSender, TrySendError};

use super::fair::{FairQueue, Pushed, place};

/// Work that waits at most, beyond the other thread's queue.
const WAITING: usize = 1024;
/// Bytes of certificates beyond which work does not wait: four of them, and lists of authorities, are less.
const BYTES: usize = 16 * 1024;

/// A queue before another thread's queue.
pub(super) struct Backlog<T> {
    to: SyncSender<T>,
    waiting: FairQueue<T>,
    /// The one whose turn it is.
    next: Option<T>,
}

impl<T> Backlog<T> {
    pub(super) const fn new(to: SyncSender<T>) -> Self {
        Self {
            to,
            waiting: FairQueue::new(WAITING),
            next: None,
        }
    }

    /// The other thread's own queue.
    pub(super) fn sender(&self) -> SyncSender<T> {
        self.to.clone()
    }

    /// Hands over what is rare and must not be lost.
    pub(super) fn send(&self, job: T) {
        // Nobody there any more means that the daemon ends.
        let _ = self.to.send(job);
    }

    /// Takes work of a peer at `from`, with so many bytes of its; false if some was dropped for it.
    pub(super) fn offer(&mut self, from: Option<IpAddr>, bytes: usize, job: T) -> bool {
        let mut job = job;
        // Nobody overtakes who waits.
        if self.next.is_none() {
            job = match self.to.try_send(job) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(job)) => job,
            };
        }
        if bytes > BYTES {
            return false;
        }
        // What nobody in particular caused shares one place.
        let from = from.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let pushed = self.waiting.push(&place(from), job);
        if self.next.is_none() {
            self.next = self.waiting.pop();
        }
        pushed == Pushed::Added
    }

    /// Hands over what there is room for by now.
    pub(super) fn pass_on(&mut self) {
        while let Some(job) = self.next.take().or_else(|| self.waiting.pop()) {
            if let Err(TrySendError::Full(job)) = self.to.try_send(job) {
                self.next = Some(job);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn from(number: u8) -> Option<IpAddr> {
        Some([number, 0, 0, 1].into())
    }

    #[test]
    fn backlog_of_a_thousand_is_served_in_turns() {
        let (sender, receiver) = sync_channel(4);
        let mut backlog = Backlog::new(sender);
        for job in 0..1000_u32 {
            let network = if job < 990 { 1 } else { 2 };
            assert!(backlog.offer(from(network), 1000, job), "{job}");
        }
        let mut done = Vec::new();
        while let Ok(job) = receiver.try_recv() {
            done.push(job);
            backlog.pass_on();
        }
        assert_eq!(done.len(), 1000);
        let late = done.iter().position(|job| *job == 999).unwrap();
        assert!(
            late < 30,
            "the other network waited for {late} of the first"
        );
    }

    #[test]
    fn backlog_is_bounded_in_number_and_bytes() {
        let (sender, receiver) = sync_channel(1);
        let mut backlog = Backlog::new(sender);
        let taken = (0..5000_u32)
            .filter(|job| backlog.offer(from(1), 0, *job))
            .count();
        // One is with the thread, one is next.
        assert_eq!(taken, WAITING + 2);
        assert!(!backlog.offer(from(1), BYTES + 1, 0));
        // Somebody else takes a place from who has all of them.
        assert!(!backlog.offer(from(2), BYTES, 7777));
        let mut done = Vec::new();
        while let Ok(job) = receiver.try_recv() {
            done.push(job);
            backlog.pass_on();
        }
        assert!(done.contains(&7777) && done.len() == WAITING + 2);
    }

    #[test]
    fn large_job_is_taken_at_once_or_refused() {
        let (sender, receiver) = sync_channel(1);
        let mut backlog = Backlog::new(sender);
        assert!(backlog.offer(from(1), BYTES + 1, 1));
        assert!(!backlog.offer(from(1), BYTES + 1, 2));
        assert_eq!(receiver.try_recv(), Ok(1));
        drop(receiver);
        assert!(!backlog.offer(from(1), 0, 3));
    }
}
