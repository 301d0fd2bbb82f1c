//! Messages to authenticate, as an engine takes them one after the other or several at once.

use std::ops::Range;

use crate::suite::MAX_ICV;

/// Longest digest of a hash that runs on several packets at once, in bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) const MAX_DIGEST: usize = 32;

/// A message to authenticate.
pub(crate) struct Job {
    /// Number of the slot.
    pub(crate) slot: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) suffix: [u8; 4],
    pub(crate) extended: bool,
    /// The integrity value as it was.
    pub(crate) received: [u8; MAX_ICV],
}

impl Job {
    /// A message without anything around it.
    #[cfg(test)]
    pub(crate) const fn of(start: usize, len: usize) -> Self {
        Self {
            slot: 0,
            start,
            len,
            suffix: [0; 4],
            extended: false,
            received: [0; MAX_ICV],
        }
    }

    /// The message in the buffer.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Bytes that are covered as if they followed the message.
    pub(crate) fn suffix(&self) -> &[u8] {
        if self.extended { &self.suffix } else { &[] }
    }
}

/// Messages and what becomes of their values.
pub(crate) trait Jobs {
    /// The next message, which lies within the buffer.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Job>;
    /// Takes the untruncated value of a message.
    fn done(&mut self, buffer: &mut [u8], job: &Job, tag: &[u8]);
}
