//! NAT detection (RFC 7296 §2.23).

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::digest;

use crate::wire::{Notify, NotifyType, Payload};

/// Who sits behind a NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nat {
    pub(crate) ours: bool,
    pub(crate) theirs: bool,
    /// We told the peer of one in front of us that is not there, and it believes that.
    told: bool,
}

impl Nat {
    /// Whether ESP goes in UDP.
    pub(crate) const fn detected(self) -> bool {
        self.ours || self.theirs || self.told
    }

    /// Reads the peer's notifications in a message that came over `local` and `remote`. A peer that
    /// sends none does not know NAT traversal. With `always_udp` our own notifications are those of
    /// [`notifies`].
    pub(crate) fn from_payloads(
        always_udp: bool,
        payloads: &[Payload],
        spis: (u64, u64),
        local: SocketAddr,
        remote: SocketAddr,
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
            theirs: differs(NotifyType::NAT_DETECTION_SOURCE_IP, remote),
            ours: differs(NotifyType::NAT_DETECTION_DESTINATION_IP, local),
            told: always_udp && hashes(NotifyType::NAT_DETECTION_SOURCE_IP).next().is_some(),
        }
    }
}

/// Our two notifications. With `always_udp` the first is about an address that nobody has, so that the
/// peer finds a NAT in front of us.
pub(crate) fn notifies(
    always_udp: bool,
    spis: (u64, u64),
    local: SocketAddr,
    remote: SocketAddr,
) -> [Payload; 2] {
    const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
    let notify = |kind, address| Payload::Notify(Notify::new(kind).with_data(hash(spis, address)));
    let source = if always_udp { NOBODY } else { local };
    [
        notify(NotifyType::NAT_DETECTION_SOURCE_IP, source),
        notify(NotifyType::NAT_DETECTION_DESTINATION_IP, remote),
    ]
}

/// SHA-1 of SPIs, address and port, as the section has it; it protects nothing.
fn hash(spis: (u64, u64), address: SocketAddr) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&spis.0.to_be_bytes());
    context.update(&spis.1.to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => context.update(&ip.octets()),
        IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&address.port().to_be_bytes());
    context.finish().as_ref().to_vec()
}
