//! Putting fragments together (RFC 7383 §2.6), within bounds.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::core::{Core, Transfer};
use super::fragment_budget::FragmentBudget;
use crate::half_open::Network;
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
    /// Places of these bytes among those of strangers.
    held: Option<Held>,
}

/// Bytes that are given back when the fragments are put together or forgotten, however that comes.
struct Held {
    room: FragmentBudget,
    network: Network,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.give_back(self.network, self.bytes);
    }
}

impl Reassembly {
    /// Adds a fragment; gives the message once it is complete.
    ///
    /// A message of more than [`crate::Limits::fragments`] fragments or
    /// [`limits::MESSAGE_BYTES`] bytes is dropped as it comes.
    ///
    /// `stranger` is the network of a peer that has not proved who it is: it has so many bytes, together with
    /// all of its kind, and less time.
    pub(crate) fn add(
        &mut self,
        core: &mut Core,
        stranger: Option<Network>,
        key: (u32, ExchangeType),
        (number, total): (u16, u16),
        fragment: Fragment,
    ) -> Option<Fragment> {
        let wait = match stranger {
            Some(_) => core.limits.stranger_fragment_wait,
            None => core.limits.fragment_wait,
        };
        let stale = core.now.since(self.started) > wait;
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
        // The first that authenticates stays; a repetition is the same (RFC 7383 §2.6).
        if self.parts.contains_key(&number) {
            return None;
        }
        if let Some(network) = stranger
            && !self.hold(core, network, fragment.1.len())
        {
            core.fragments_dropped = core.fragments_dropped.saturating_add(1);
            // By the time at which the peer repeats it there is room.
            core.transfers.push(Transfer::MakeRoom(network));
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
        let Self {
            parts, bytes, held, ..
        } = std::mem::take(self);
        drop(held);
        let (first, digest) = parts.get(&1).map(|(first, _, digest)| (*first, *digest))?;
        let mut whole = Zeroizing::new(Vec::with_capacity(bytes));
        for (_, part, _) in parts.values() {
            whole.extend(part.iter());
        }
        Some((first, whole, digest))
    }

    /// Takes room for so many more bytes.
    fn hold(&mut self, core: &Core, network: Network, bytes: usize) -> bool {
        let taken = core.room.take(&core.limits, network, bytes);
        if taken {
            let held = self.held.get_or_insert_with(|| Held {
                room: core.room.clone(),
                network,
                bytes: 0,
            });
            held.bytes = held.bytes.saturating_add(bytes);
        }
        taken
    }
}
