//! Changing addresses without losing the IKE SA: MOBIKE (RFC 4555).
//!
//! Only who created the first IKE SA decides (§3.1); the other follows. A request that is out when the
//! address changes goes on over the new path, and the update comes after it. The one who follows sends
//! to a new address only after the peer has shown that it receives there (§3.7), else a peer could have
//! us flood somebody else.
//!
//! Each tells the other at which further addresses it can be reached (§3.4, §3.6). Who decides tries them
//! when a request stays without answer (§3.10), one pair after the other, and the first once more.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use subtle::ConstantTimeEq;

use super::child::has_notify;
use super::core::{Core, Transfer};
use super::exchange::{Established, Intent, Request, Role};
use super::handshake::error_notify;
use super::nat::{self, Nat};
use super::{IkeSa, Phase};
use crate::config::Connection;
use crate::event::{Event, Reason};
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

/// Our address, the peer's.
pub(crate) type Path = (SocketAddr, SocketAddr);

/// Further addresses of a peer that we remember; it may name as many as it likes.
const PEER_ADDRESSES: usize = 16;

/// Who may change addresses (RFC 4555 §3.1), and which there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mobility {
    /// We do.
    pub(crate) decides: bool,
    /// The peer does.
    pub(crate) follows: bool,
    /// Ours besides the one in use.
    pub(crate) ours: Vec<IpAddr>,
    /// The peer's besides the one in use.
    pub(crate) theirs: Vec<IpAddr>,
    /// Paths that are still to be tried, while the one in use fails.
    search: Option<VecDeque<Path>>,
}

impl Mobility {
    /// What the peer said in IKE_AUTH.
    pub(crate) fn learn(&mut self, payloads: &[Payload]) {
        if let Some(addresses) = further_addresses(payloads) {
            self.theirs = addresses;
        }
    }

    /// All other pairs of one family. The ports are those for NAT traversal (§3.3).
    fn others(&self, nat_port: u16, (local, remote): Path) -> VecDeque<Path> {
        let all = |used: SocketAddr, further: &[IpAddr]| -> Vec<SocketAddr> {
            let further = further.iter().filter(|ip| **ip != used.ip());
            let further = further.map(|ip| SocketAddr::new(*ip, nat_port));
            std::iter::once(used).chain(further).collect()
        };
        let (locals, remotes) = (all(local, &self.ours), all(remote, &self.theirs));
        let pairs = locals
            .iter()
            .flat_map(|local| remotes.iter().map(|remote| (*local, *remote)));
        pairs
            .filter(|(one, two)| one.is_ipv4() == two.is_ipv4() && (*one, *two) != (local, remote))
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
    let said = |notify: &Notify| {
        [
            NotifyType::ADDITIONAL_IP4_ADDRESS,
            NotifyType::ADDITIONAL_IP6_ADDRESS,
            NotifyType::NO_ADDITIONAL_ADDRESSES,
        ]
        .contains(&notify.kind)
    };
    let list = notifies().filter_map(address).take(PEER_ADDRESSES);
    notifies().any(said).then(|| list.collect())
}

fn cookie(payloads: &[Payload]) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE2 => {
            Some(notify.data.as_slice())
        }
        _ => None,
    })
}

/// Whether a peer that wants no NAT in between has named other addresses than those that we see (§3.9).
pub(crate) fn unexpected_nat((local, remote): Path, payloads: &[Payload]) -> bool {
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

impl Established {
    /// Something came from the peer, so the path in use is good.
    pub(super) fn path_works(&mut self) {
        self.mobility.search = None;
    }
}

impl IkeSa {
    /// Uses another path from now on; false if the peer does not speak MOBIKE or it is not ours to
    /// decide.
    pub(crate) fn change_path(&mut self, core: &mut Core, path: Path) -> bool {
        let now = core.now;
        let Phase::Established(established) = &mut self.phase else {
            return false;
        };
        if established.role != Role::Live || !established.mobility.decides {
            return false;
        }
        established.enqueue(core, Intent::UpdateAddresses, now);
        self.go_over(core, path);
        self.channel.hurry(core);
        self.pump(core);
        true
    }

    /// Sees whether the peer behind its NAT receives at `remote` now; false if that is not how it moves.
    ///
    /// A request in flight is repeated to both places, so that one that nobody can get any more does not
    /// hold this up; else one is made.
    pub(crate) fn heard_from(&mut self, core: &mut Core, remote: SocketAddr) -> bool {
        let now = core.now;
        let behind_nat = self.nat.theirs && !self.nat.ours;
        let Phase::Established(established) = &mut self.phase else {
            return false;
        };
        if established.role != Role::Live || !behind_nat {
            return false;
        }
        if remote == self.channel.remote {
            return true;
        }
        self.channel.also_to = Some(remote);
        if self.channel.is_idle() {
            established.enqueue(core, Intent::Liveness, now);
            self.pump(core);
        } else {
            self.channel.hurry(core);
        }
        true
    }

    /// Takes what was replaced along: the peer may wait there for our answer to its rekeying, and not know
    /// the successor yet.
    fn go_over(&mut self, core: &mut Core, path: Path) {
        core.transfers.push(Transfer::Moved {
            connection: std::sync::Arc::clone(&self.connection),
            from: self.path(),
            to: path,
        });
        (self.channel.local, self.channel.remote) = path;
    }

    /// Follows the IKE SA that took this one's place, if it is about this path.
    pub(crate) fn move_along(
        &mut self,
        core: &mut Core,
        connection: &Connection,
        (from, to): (Path, Path),
    ) {
        let now = core.now;
        let path = self.path();
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let same = std::ptr::eq(&raw const *self.connection, connection) && path == from;
        if established.role == Role::Live || !established.mobility.decides || !same {
            return;
        }
        (self.channel.local, self.channel.remote) = to;
        established.enqueue(core, Intent::UpdateAddresses, now);
        self.channel.hurry(core);
        self.pump(core);
    }

    /// Tells the peer our further addresses; false if it does not speak MOBIKE.
    pub(crate) fn set_addresses(&mut self, core: &mut Core, addresses: Vec<IpAddr>) -> bool {
        let now = core.now;
        let Phase::Established(established) = &mut self.phase else {
            return false;
        };
        let mobile = established.mobility.decides || established.mobility.follows;
        if established.role != Role::Live || !mobile {
            return false;
        }
        if established.mobility.ours != addresses {
            established.mobility.ours = addresses;
            established.enqueue(core, Intent::AnnounceAddresses, now);
            self.pump(core);
        }
        true
    }

    pub(super) fn start_announcing(&mut self, core: &mut Core) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let mut payloads: Vec<_> = address_notifies(&established.mobility.ours).collect();
        if payloads.is_empty() {
            let none = Notify::new(NotifyType::NO_ADDITIONAL_ADDRESSES);
            payloads.push(Payload::Notify(none));
        }
        established.request = Some(Request::Notice);
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    /// Where the answer goes to what came over `path`: back (RFC 7296 §2.11), but not from an address that we
    /// have left.
    pub(super) fn way_back(&self, path: Path) -> Path {
        match &self.phase {
            Phase::Established(established) if established.mobility.decides => {
                (self.channel.local, path.1)
            }
            _ => path,
        }
    }

    /// How often a request is sent over the path in use.
    pub(super) fn transmissions(&self, core: &Core) -> u32 {
        let limits = &core.limits;
        let Phase::Established(established) = &self.phase else {
            return limits.transmissions;
        };
        let mobility = &established.mobility;
        let others = match &mobility.search {
            Some(paths) => !paths.is_empty(),
            None => !mobility.others(limits.nat_port, self.path()).is_empty(),
        };
        if mobility.decides && established.role == Role::Live && others {
            limits.path_transmissions
        } else {
            limits.transmissions
        }
    }

    /// Goes on over another path; false if there is none that was not tried.
    pub(super) fn try_another_path(&mut self, core: &mut Core) -> bool {
        let (path, port) = (self.path(), core.limits.nat_port);
        let Phase::Established(established) = &mut self.phase else {
            return false;
        };
        if !established.mobility.decides || established.role != Role::Live {
            return false;
        }
        if established.mobility.search.is_none() {
            let mut paths = established.mobility.others(port, path);
            if !paths.is_empty() {
                paths.push_back(path);
            }
            established.mobility.search = Some(paths);
        }
        let search = established.mobility.search.as_mut();
        let Some(next) = search.and_then(VecDeque::pop_front) else {
            return false;
        };
        established.enqueue(core, Intent::UpdateAddresses, core.now);
        self.go_over(core, next);
        self.channel.begin_again(core);
        true
    }

    pub(super) fn start_update(&mut self, core: &mut Core) {
        let path = self.path();
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.request = Some(Request::UpdateAddresses(path));
        let mut payloads = vec![Payload::Notify(Notify::new(
            NotifyType::UPDATE_SA_ADDRESSES,
        ))];
        let always_udp = core.limits.always_udp;
        payloads.extend(nat::notifies(always_udp, self.spis(), path.0, path.1));
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    /// The peer has the new path, unless we have moved on meanwhile.
    pub(super) fn on_updated(&mut self, core: &mut Core, path: Path, payloads: &[Payload]) {
        let (now, current) = (core.now, self.path());
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        // A successor has it as its own intention.
        if established.role != Role::Live {
            return;
        }
        if let Some(error) = error_notify(payloads) {
            let reason = Reason::Refused(error);
            core.event(Event::PathRefused {
                ike: self.id,
                reason,
            });
            return;
        }
        if current != path {
            established.enqueue(core, Intent::UpdateAddresses, now);
            return;
        }
        let always_udp = core.limits.always_udp;
        self.nat = Nat::from_payloads(always_udp, payloads, self.spis(), path.0, path.1);
        self.announce_path(core);
    }

    /// Follows a peer that decides; gives the payloads of the answer.
    pub(super) fn follow_update(
        &mut self,
        core: &mut Core,
        path: Path,
        payloads: &[Payload],
    ) -> Vec<Payload> {
        let mut answer = Vec::new();
        let old = self.path();
        let Phase::Established(established) = &mut self.phase else {
            return answer;
        };
        let mobility = &mut established.mobility;
        if mobility.decides || mobility.follows {
            mobility.learn(payloads);
        }
        if mobility.follows && has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) {
            if unexpected_nat(path, payloads) {
                let notify = Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED);
                return vec![Payload::Notify(notify)];
            }
            (self.channel.local, self.channel.remote) = path;
            if old != path {
                established.enqueue(core, Intent::CheckPath, core.now);
                self.channel.hurry(core);
            }
            let always_udp = core.limits.always_udp;
            self.nat = Nat::from_payloads(always_udp, payloads, self.spis(), path.0, path.1);
            answer.extend(nat::notifies(always_udp, self.spis(), path.0, path.1));
            if old == path {
                self.announce_path(core);
            }
        }
        // Whoever wants to know whether we are reachable here gets its cookie back (§3.7).
        answer.extend(payloads.iter().filter(|payload| {
            matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::COOKIE2)
        }).cloned());
        answer
    }

    /// Sees whether the peer receives at its new address.
    pub(super) fn start_checking_path(&mut self, core: &mut Core) {
        let (path, cookie) = (self.path(), core.bytes::<16>());
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.request = Some(Request::CheckPath(cookie, path));
        let notify = Notify::new(NotifyType::COOKIE2).with_data(cookie);
        let payloads = [Payload::Notify(notify)];
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    pub(super) fn on_path_checked(
        &mut self,
        core: &mut Core,
        sent: &[u8; 16],
        path: Path,
        payloads: &[Payload],
    ) {
        let (now, current) = (core.now, self.path());
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if established.role != Role::Live {
            return;
        }
        let same = cookie(payloads).is_some_and(|cookie| bool::from(cookie.ct_eq(sent)));
        if !same {
            // §3.7: the IKE SA MUST be closed.
            let reason = Reason::Protocol("another cookie than ours in the check of its address");
            established.enqueue(core, Intent::DeleteIke(reason), now);
        } else if current != path {
            // It may have been answered at the address before.
            established.enqueue(core, Intent::CheckPath, now);
        } else {
            self.announce_path(core);
        }
    }

    pub(super) fn announce_path(&self, core: &mut Core) {
        let ((local, remote), udp_encapsulation) = (self.path(), self.nat.detected());
        core.event(Event::PathChanged {
            ike: self.id,
            local,
            remote,
            udp_encapsulation,
        });
    }
}
