//! Addresses of both sides, and the paths between them: MOBIKE's data (RFC 4555 §3.4, §3.6).

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::types::Path;
use crate::wire::{Notify, NotifyType, Payload};

/// Further addresses of a peer that we remember; it may name as many as it likes.
const PEER_ADDRESSES: usize = 16;

/// Right to change addresses (RFC 4555 §3.1), and the addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mobility {
    pub(crate) decides: bool,
    pub(crate) follows: bool,
    /// Ours besides the one in use.
    pub(crate) ours: Vec<IpAddr>,
    /// The peer's besides the one in use.
    pub(crate) theirs: Vec<IpAddr>,
    /// Paths that are still to be tried, while the one in use fails.
    pub(super) search: Option<VecDeque<Path>>,
}

impl Mobility {
    /// Takes what the peer announced in IKE_AUTH.
    pub(crate) fn learn(&mut self, payloads: &[Payload]) {
        if let Some(addresses) = further_addresses(payloads) {
            self.theirs = addresses;
        }
    }

    /// The notifications that name our further addresses, or say that there are none.
    pub(super) fn announcement(&self) -> Vec<Payload> {
        let mut payloads: Vec<_> = address_notifies(&self.ours).collect();
        if payloads.is_empty() {
            // Without it an empty list could not be told from a message about something else (RFC 4555 §3.6).
            let none = Notify::new(NotifyType::NO_ADDITIONAL_ADDRESSES);
            payloads.push(Payload::Notify(none));
        }
        payloads
    }

    /// All other pairs of one family. The ports are those for NAT traversal (§3.3).
    pub(super) fn others(&self, nat_port: u16, path: Path) -> VecDeque<Path> {
        let all = |used: SocketAddr, further: &[IpAddr]| -> Vec<SocketAddr> {
            let further = further.iter().filter(|ip| **ip != used.ip());
            let further = further.map(|ip| SocketAddr::new(*ip, nat_port));
            std::iter::once(used).chain(further).collect()
        };
        // A TCP connection is opened anew between the same two addresses.
        if path.is_tcp() {
            return VecDeque::new();
        }
        let (locals, remotes) = (all(path.local, &self.ours), all(path.remote, &self.theirs));
        let pairs = locals
            .iter()
            .flat_map(|&local| remotes.iter().map(move |&remote| Path::udp(local, remote)));
        pairs
            .filter(|other| other.local.is_ipv4() == other.remote.is_ipv4() && *other != path)
            .collect()
    }
}

/// The notifications that name these addresses.
pub(crate) fn address_notifies(addresses: &[IpAddr]) -> impl Iterator<Item = Payload> {
    addresses.iter().map(|address| {
        Payload::Notify(match address {
            IpAddr::V4(ip) => {
                Notify::new(NotifyType::ADDITIONAL_IP4_ADDRESS).with_data(ip.octets())
            }
            IpAddr::V6(ip) => {
                Notify::new(NotifyType::ADDITIONAL_IP6_ADDRESS).with_data(ip.octets())
            }
        })
    })
}

/// The peer's list, if the message has one: it replaces what was said before (§3.6).
fn further_addresses(payloads: &[Payload]) -> Option<Vec<IpAddr>> {
    let notifies = || {
        payloads.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify),
            _ => None,
        })
    };
    let address = |notify: &Notify| -> Option<IpAddr> {
        let data = notify.data.as_slice();
        match notify.kind {
            NotifyType::ADDITIONAL_IP4_ADDRESS => {
                Some(Ipv4Addr::from_octets(data.try_into().ok()?).into())
            }
            NotifyType::ADDITIONAL_IP6_ADDRESS => {
                Some(Ipv6Addr::from_octets(data.try_into().ok()?).into())
            }
            _ => None,
        }
    };
    let announced = |notify: &Notify| {
        [
            NotifyType::ADDITIONAL_IP4_ADDRESS,
            NotifyType::ADDITIONAL_IP6_ADDRESS,
            NotifyType::NO_ADDITIONAL_ADDRESSES,
        ]
        .contains(&notify.kind)
    };
    let list = notifies().filter_map(address).take(PEER_ADDRESSES);
    notifies().any(announced).then(|| list.collect())
}

pub(super) fn cookie(payloads: &[Payload]) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE2 => {
            Some(notify.data.as_slice())
        }
        _ => None,
    })
}

/// Whether a peer that wants no NAT in between has named other addresses than those that we see (§3.9).
pub(crate) fn unexpected_nat(path: Path, payloads: &[Payload]) -> bool {
    let Path { local, remote, .. } = path;
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (source, target) = (octets(remote.ip()), octets(local.ip()));
    let ports = [remote.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    let seen = [source, target, ports].concat();
    payloads.iter().any(|payload| {
        matches!(payload, Payload::Notify(notify)
            if notify.kind == NotifyType::NO_NATS_ALLOWED && notify.data != seen)
    })
}
