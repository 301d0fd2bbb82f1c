//! Packets of a tunnel under a policy.

use std::sync::Arc;

use offload::Direction;
use offload::device::{AcceleratedKey, Accelerator, Offer, Taken, Work};

use crate::device::{DeviceKey, Request};
use crate::operation::Operation;
use crate::policy::{Outcome, Policy, Quarantine};
use crate::software::TAG;
use crate::stream::Keys;

/// Bytes of the nonce of AES-GCM.
const NONCE: usize = 12;

/// Offers packets to a policy's device; what the device does not get or do, is left to whoever asks.
#[derive(Clone)]
pub struct PacketEngine(Arc<Policy>);

impl PacketEngine {
    /// An engine under this policy.
    pub fn new(policy: &Arc<Policy>) -> Self {
        Self(Arc::clone(policy))
    }
}

impl std::fmt::Debug for PacketEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketEngine").finish_non_exhaustive()
    }
}

impl Accelerator for PacketEngine {
    fn key(&self, work: Work, key: &[u8]) -> Option<Box<dyn AcceleratedKey>> {
        let operation = match work {
            Work::Gcm(Direction::Seal) => Operation::GcmSeal,
            Work::Gcm(Direction::Open) => Operation::GcmOpen,
            Work::Cbc(Direction::Seal) => Operation::CbcEncrypt,
            Work::Cbc(Direction::Open) => Operation::CbcDecrypt,
            Work::Ctr => Operation::Ctr,
            Work::HmacSha1 => Operation::HmacSha1,
            Work::HmacSha256 => Operation::HmacSha256,
        };
        let keys = Keys::new(&self.0, operation, key).ok()?;
        keys.device.is_some().then(|| {
            Box::new(PacketKey {
                policy: Arc::clone(&self.0),
                operation,
                keys,
            }) as _
        })
    }
}

struct PacketKey {
    policy: Arc<Policy>,
    operation: Operation,
    keys: Keys,
}

impl AcceleratedKey for PacketKey {
    fn process(&self, buffer: &mut [u8], offers: &mut [Offer]) {
        let from = self.policy.from(self.operation);
        let mut done = 0;
        if let Some(key) = &self.keys.device
            && offers.iter().any(|offer| offer.text.len() >= from)
        {
            done = self.on_device(key, from, buffer, offers);
        }
        let left = offers.len().saturating_sub(done);
        self.policy.count_software(self.operation, left);
    }

    fn contradicted(&self) {
        self.policy.set_aside(Quarantine::Tag(self.operation));
    }
}

impl PacketKey {
    /// Has the device process what is long enough; the number of messages that it did.
    #[cold]
    fn on_device(
        &self,
        key: &DeviceKey,
        from: usize,
        buffer: &mut [u8],
        offers: &mut [Offer],
    ) -> usize {
        let mac = matches!(self.operation, Operation::HmacSha1 | Operation::HmacSha256);
        let mut chosen: Vec<&mut Offer> = offers
            .iter_mut()
            .filter(|offer| offer.text.len() >= from && buffer.get(offer.text.clone()).is_some())
            .collect();
        // What a MAC covers behind the text is nowhere beside it.
        let joined: Vec<Vec<u8>> = match mac {
            true => chosen
                .iter()
                .map(|offer| {
                    let text = buffer.get(offer.text.clone()).unwrap_or_default();
                    [text, offer.associated()].concat()
                })
                .collect(),
            false => Vec::new(),
        };
        let requests: Vec<Request<'_>> = chosen
            .iter()
            .enumerate()
            .map(|(index, offer)| {
                let text = buffer.get(offer.text.clone()).unwrap_or_default();
                let empty = Request {
                    operation: self.operation,
                    key,
                    iv: &[],
                    aad: &[],
                    data: joined.get(index).map_or(text, Vec::as_slice),
                    tag: &[],
                };
                let nonce = offer.iv.get(..NONCE).unwrap_or_default();
                match self.operation {
                    Operation::GcmSeal => Request {
                        iv: nonce,
                        aad: offer.associated(),
                        ..empty
                    },
                    Operation::GcmOpen => Request {
                        iv: nonce,
                        aad: offer.associated(),
                        tag: offer.tag.get(..TAG).unwrap_or_default(),
                        ..empty
                    },
                    _ if mac => empty,
                    _ => Request {
                        iv: &offer.iv,
                        ..empty
                    },
                }
            })
            .collect();
        let outcomes = self.policy.offer_batch(&requests, &self.keys.software);
        drop(requests);
        let mut done = 0;
        for (offer, outcome) in chosen.iter_mut().zip(outcomes) {
            offer.taken = match outcome {
                Outcome::Done(result) if give(&result, buffer, offer, mac) => {
                    done += 1;
                    Taken::Done
                }
                Outcome::WrongTag => Taken::WrongTag,
                Outcome::Done(_) | Outcome::Software => Taken::No,
            };
        }
        done
    }
}

/// Puts a result where it belongs: text, then tag.
fn give(result: &[u8], buffer: &mut [u8], offer: &mut Offer, mac: bool) -> bool {
    let len = if mac { 0 } else { offer.text.len() };
    let Some((text, tag)) = result.split_at_checked(len) else {
        return false;
    };
    let Some(tag_place) = offer.tag.get_mut(..tag.len()) else {
        return false;
    };
    if !mac {
        let Some(place) = buffer.get_mut(offer.text.clone()) else {
            return false;
        };
        place.copy_from_slice(text);
    }
    if !tag.is_empty() {
        tag_place.copy_from_slice(tag);
    }
    true
}
