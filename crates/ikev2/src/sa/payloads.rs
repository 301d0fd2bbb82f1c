//! Looking for payloads in a message.

use crate::wire::{NotifyType, Payload};

/// The first payload of a kind.
macro_rules! find {
    ($payloads:expr, $variant:path) => {
        $payloads.iter().find_map(|payload| match payload {
            $variant(inner) => Some(inner),
            _ => None,
        })
    };
}
pub(super) use find;

pub(super) fn has_notify(payloads: &[Payload], kind: NotifyType) -> bool {
    payloads
        .iter()
        .any(|payload| matches!(payload, Payload::Notify(n) if n.kind == kind))
}
