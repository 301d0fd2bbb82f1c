//! NAT detection (RFC 7296 §2.23).

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::digest;

use crate::types::{Path, SpiPair};
use crate::wire::{Notify, NotifyType, Payload};

/// Sides that are behind a NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nat {
    pub(crate) ours: bool,
    pub(crate) theirs: bool,
    /// We pretend one in front of us that is not there, and the peer believes it.
    pretended: bool,
}

impl Nat {
    /// Whether ESP goes in UDP.
    pub(crate) const fn detected(self) -> bool {
        self.ours || self.theirs || self.pretended
    }

    /// Reads the peer's notifications in a message that came over `path`. A peer that
    /// sends none does not know NAT traversal. With `always_udp` our own notifications are those of
    /// [`notifies`].
    pub(crate) fn from_payloads(
        always_udp: bool,
        payloads: &[Payload],
        spis: SpiPair,
        path: Path,
    ) -> Self {
        let hashes = |kind| {
            payloads.iter().filter_map(move |payload| match payload {
                Payload::Notify(notify) if notify.kind == kind => Some(notify.data.as_slice()),
                _ => None,
            })
        };
        let differs = |kind, address| {
            let hash = hash(spis, address);
            hashes(kind).next().is_some() && hashes(kind).all(|theirs| theirs != hash)
        };
        Self {
            // There may be several of ours or theirs, one for each address: one that fits is enough (§2.23).
            theirs: differs(NotifyType::NAT_DETECTION_SOURCE_IP, path.remote),
            ours: differs(NotifyType::NAT_DETECTION_DESTINATION_IP, path.local),
            pretended: always_udp && hashes(NotifyType::NAT_DETECTION_SOURCE_IP).next().is_some(),
        }
    }
}

/// Our two notifications. With `always_udp` the first is about an address that nobody has, so that the
/// peer finds a NAT in front of us.
pub(crate) fn notifies(always_udp: bool, spis: SpiPair, path: Path) -> [Payload; 2] {
    const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
    let notify = |kind, address| Payload::Notify(Notify::new(kind).with_data(hash(spis, address)));
    let source = if always_udp { NOBODY } else { path.local };
    [
        notify(NotifyType::NAT_DETECTION_SOURCE_IP, source),
        notify(NotifyType::NAT_DETECTION_DESTINATION_IP, path.remote),
    ]
}

/// SHA-1 of SPIs, address and port, as the section has it; it protects nothing.
fn hash(spis: SpiPair, address: SocketAddr) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&spis.initiator.to_be_bytes());
    context.update(&spis.responder.to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => context.update(&ip.octets()),
        IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&address.port().to_be_bytes());
    context.finish().as_ref().to_vec()
}
