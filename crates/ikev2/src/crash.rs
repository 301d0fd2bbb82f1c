//! Quick crash detection (RFC 6290): a responder that has lost its IKE SAs can show that it has.
//!
//! With each IKE SA the responder gives a token, which it can compute again from the SPIs and a secret that
//! outlives it. A message for an IKE SA that it does not know is answered with the token; the peer, which
//! has kept it, believes that and nothing else, and comes again at once instead of repeating for a minute.
//! A token is given away only when neither SPI of the message is of an IKE SA here (`endpoint::unprotected`), so it can
//! end none that lives.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::types::SpiPair;
use crate::wire::{Notify, NotifyType, Payload};

/// Bytes of a token that we take (RFC 6290 §3).
const TOKEN: std::ops::RangeInclusive<usize> = 16..=128;

/// Key of crash tokens. It must be the same after a restart, and nobody else's.
#[derive(Clone)]
pub struct CrashSecret(Zeroizing<[u8; 32]>);

impl CrashSecret {
    /// Random bytes that the caller keeps.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// The token of an IKE SA.
    pub(crate) fn token(&self, spis: SpiPair) -> Payload {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.0);
        let mut context = hmac::Context::with_key(&key);
        context.update(b"QCD");
        context.update(&spis.initiator.to_be_bytes());
        context.update(&spis.responder.to_be_bytes());
        let kind = NotifyType::QUICK_CRASH_DETECTION;
        Payload::Notify(Notify::new(kind).with_data(context.sign().as_ref()))
    }
}

/// A token that the peer gave us.
#[derive(Clone, Debug)]
pub(crate) struct PeerToken(Vec<u8>);

impl PeerToken {
    /// The token in a message, if there is one.
    pub(crate) fn find(payloads: &[Payload]) -> Option<Self> {
        payloads.iter().find_map(|payload| match payload {
            Payload::Notify(notify)
                if notify.kind == NotifyType::QUICK_CRASH_DETECTION
                    && TOKEN.contains(&notify.data.len()) =>
            {
                Some(Self(notify.data.clone()))
            }
            _ => None,
        })
    }

    /// Whether an unprotected message shows it.
    pub(crate) fn is_shown_by(&self, payloads: &[Payload]) -> bool {
        Self::find(payloads).is_some_and(|shown| bool::from(self.0.ct_eq(&shown.0)))
    }
}
