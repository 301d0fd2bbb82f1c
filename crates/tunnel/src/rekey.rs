//! New keys without losing a packet.
//!
//! Both ends get their new keys at different moments. So a new pair of associations takes over in
//! steps: the inbound one opens packets from the first moment; we send with the old outbound one until
//! the far side shows, by a packet under the new inbound key, that it has the new keys, or until
//! `switch_after` is over; the old inbound one stays until `drain` after that packet, for what is still
//! on its way.
//!
//! ```text
//! begin ──► inbound new + old, outbound old
//!   │ packet under the new inbound key, or switch_after
//!   ▼
//! outbound new ── drain after the first such packet ──► inbound new only
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ipsec::dataplane::DataPlane;
use ipsec::sa::{InboundSa, OutboundSa, Spi};

use crate::config::{KeyConfig, RekeyConfig};

/// Old inbound associations that are kept at most. Who gives new keys faster than the far side takes
/// them loses what it sends under older ones.
pub const MAX_OLD: usize = 8;
/// Keys that are remembered so that they are not used twice.
const MAX_USED: usize = 4096;

/// Two associations that belong together.
pub struct SaPair {
    /// For what is sent.
    pub outbound: OutboundSa,
    /// For what is received.
    pub inbound: InboundSa,
    /// Where it is sent.
    pub remote: SocketAddr,
}

/// Why a pair cannot take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RekeyError {
    /// Sequence numbers begin at one again: under an SPI in use that would be a replay.
    #[error("SPI {0} is in use: new keys need new SPIs")]
    SpiInUse(Spi),
    /// Nonces follow the sequence numbers: the same key would protect two packets with one nonce.
    #[error("a key of SPI {0} was used before")]
    KeyUsed(Spi),
    /// The worker has ended.
    #[error("the tunnel has ended")]
    Ended,
}

/// A pair's way from installation to the end of its predecessor.
#[derive(Default)]
pub(crate) struct Rekey {
    timing: RekeyConfig,
    /// Not yet used for sending.
    pending: Option<Pending>,
    /// The newest inbound association.
    newest: Option<Spi>,
    /// Whether the far side was seen to use it.
    seen: bool,
    /// Inbound associations on their way out, the oldest first.
    old: VecDeque<Old>,
}

struct Pending {
    outbound: OutboundSa,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Old {
    spi: Spi,
    until: Option<Instant>,
}

impl Rekey {
    pub(crate) fn new(timing: RekeyConfig) -> Self {
        Self {
            timing,
            ..Self::default()
        }
    }

    /// Installs a pair: the first one at once, later ones step by step. The far side's address comes
    /// back.
    pub(crate) fn begin(
        &mut self,
        pair: SaPair,
        plane: &mut DataPlane,
        now: Instant,
    ) -> Result<(Spi, SocketAddr), RekeyError> {
        let (spi, inbound) = (pair.outbound.spi(), pair.inbound.spi());
        let pending = self.pending.as_ref().map(|pending| pending.outbound.spi());
        let sending = plane.outbound_sas().map(OutboundSa::spi);
        if sending.chain(pending).any(|other| other == spi) {
            return Err(RekeyError::SpiInUse(spi));
        }
        // Its window would begin anew, and packets seen before would be taken again.
        if plane.inbound_sas().any(|sa| sa.spi() == inbound) {
            return Err(RekeyError::SpiInUse(inbound));
        }
        // First, because the far side may begin to send with the new keys at any moment.
        plane.install_inbound(pair.inbound);
        let at = match self.newest.replace(inbound) {
            Some(old) => {
                self.old.push_back(Old {
                    spi: old,
                    until: None,
                });
                now + self.timing.switch_after
            }
            None => now,
        };
        self.seen = false;
        // Keys that come faster than the far side takes them must not pile up.
        while self.old.len() > MAX_OLD {
            if let Some(old) = self.old.pop_front() {
                plane.remove_inbound(old.spi);
            }
        }
        // One that was never used is simply forgotten.
        self.pending = Some(Pending {
            outbound: pair.outbound,
            at,
        });
        Ok((spi, pair.remote))
    }

    /// Takes the steps that are due. What comes back is to be used for sending from now on.
    pub(crate) fn poll(&mut self, plane: &mut DataPlane, now: Instant) -> Option<OutboundSa> {
        if self.seen && self.old.is_empty() {
            return None;
        }
        if !self.seen && self.newest.is_some_and(|spi| is_used(plane, spi)) {
            self.seen = true;
            for old in &mut self.old {
                old.until = old.until.or(Some(now + self.timing.drain));
            }
        }
        self.old.retain(|old| {
            let over = old.until.is_some_and(|until| until <= now);
            if over {
                plane.remove_inbound(old.spi);
            }
            !over
        });
        let due = self.seen || self.pending.as_ref().is_some_and(|wait| wait.at <= now);
        due.then(|| self.pending.take())
            .flatten()
            .map(|pending| pending.outbound)
    }

    /// When [`poll`](Self::poll) has something to do at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let old = self.old.iter().filter_map(|old| old.until);
        old.chain(self.pending.as_ref().map(|pending| pending.at))
            .min()
    }

    /// Whether an outbound association waits for its turn.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

/// Whether a packet under this key was verified.
fn is_used(plane: &DataPlane, spi: Spi) -> bool {
    plane
        .inbound_sas()
        .any(|sa| sa.spi() == spi && sa.usage().packets() > 0)
}

/// Keys that a tunnel has had, as digests.
///
/// Only the latest [`MAX_USED`] of one run are known. Nonces do not repeat with those that come back after
/// that, or after a restart: their sequence numbers go on ([`crate::reservation`]).
#[derive(Debug, Default)]
pub struct UsedKeys(VecDeque<[u8; SHA256_OUTPUT_LEN]>);

impl UsedKeys {
    /// Remembers the keys of both directions.
    ///
    /// # Errors
    /// [`RekeyError::KeyUsed`] if one of them was there before; nothing is remembered then.
    pub fn take(&mut self, keys: [&KeyConfig; 2]) -> Result<(), RekeyError> {
        let mut fresh = Vec::new();
        for key in keys {
            for bytes in [&key.encryption_key, &key.integrity_key] {
                if bytes.is_empty() {
                    continue;
                }
                let mut sum = [0; SHA256_OUTPUT_LEN];
                sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
                if self.0.contains(&sum) {
                    return Err(RekeyError::KeyUsed(key.spi));
                }
                fresh.push(sum);
            }
        }
        self.0.extend(fresh);
        while self.0.len() > MAX_USED {
            self.0.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
