//! Putting fragments together (RFC 7383 §2.6), within bounds.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::core::Core;
use crate::time::Timestamp;
use crate::wire::{ExchangeType, PayloadType, limits};

/// First payload type (of fragment 1), content and digest of the datagram.
type Fragment = (PayloadType, Zeroizing<Vec<u8>>, [u8; 32]);

/// The fragments of one message. Only fragments that authenticate get here.
#[derive(Default)]
pub(crate) struct Reassembly {
    key: Option<(u32, ExchangeType)>,
    total: u16,
    bytes: usize,
    started: Timestamp,
    parts: BTreeMap<u16, Fragment>,
}

impl Reassembly {
    /// Adds a fragment; gives the message once it is complete.
    ///
    /// A message of more than [`crate::Limits::fragments`] fragments or
    /// [`limits::MESSAGE_BYTES`] bytes is dropped as it comes.
    pub(crate) fn add(
        &mut self,
        core: &Core,
        key: (u32, ExchangeType),
        (number, total): (u16, u16),
        fragment: Fragment,
    ) -> Option<Fragment> {
        let stale = core.now.since(self.started) > core.limits.fragment_wait;
        if self.key != Some(key) || stale || total > self.total {
            // A larger total means that the peer sends smaller fragments now: start again.
            *self = Self {
                key: Some(key),
                total,
                started: core.now,
                ..Self::default()
            };
        }
        if total != self.total || total > core.limits.fragments {
            return None;
        }
        if self.parts.contains_key(&number) {
            return None;
        }
        self.bytes = self.bytes.saturating_add(fragment.1.len());
        if self.bytes > limits::MESSAGE_BYTES {
            *self = Self::default();
            return None;
        }
        self.parts.insert(number, fragment);
        if self.parts.len() < usize::from(total) {
            return None;
        }
        let Self { parts, bytes, .. } = std::mem::take(self);
        let (first, digest) = parts.get(&1).map(|(first, _, digest)| (*first, *digest))?;
        let mut whole = Zeroizing::new(Vec::with_capacity(bytes));
        for (_, part, _) in parts.values() {
            whole.extend(part.iter());
        }
        Some((first, whole, digest))
    }
}
