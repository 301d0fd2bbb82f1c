//! Changing addresses without losing the IKE SA: MOBIKE (RFC 4555).
//!
//! Only who created the first IKE SA decides (§3.1); the other follows. A request that is out when the
//! address changes goes on over the new path, and the update comes after it. The one who follows sends
//! to a new address only after the peer has shown that it receives there (§3.7), else a peer could have
//! us flood somebody else.
//!
//! Each tells the other at which further addresses it can be reached (§3.4, §3.6). Who decides tries them
//! when a request stays without answer (§3.10), one pair after the other, and the first once more.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::IkeSa;
use super::common::Common;
use super::core::{Core, Transfer};
use super::established::Established;
use super::exchange::{AddressUpdate, Exchange, PathCheck};
use super::handshake::error_notify;
use super::intent::Intent;
use super::nat::{self, Nat};
use super::paths::{cookie, unexpected_nat};
use super::payloads::has_notify;
use super::state::{EventName, WrongState};
use crate::config::Connection;
use crate::event::{Event, Reason};
use crate::types::Path;
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

impl Common {
    /// Sends over another path from now on. What was replaced comes along: the peer may wait there for our
    /// answer to its rekeying, and not know the successor yet.
    fn switch_path(&mut self, core: &mut Core, path: Path) {
        core.transfers.push(Transfer::Moved {
            connection: Arc::clone(&self.connection),
            from: self.channel.path,
            to: path,
        });
        self.channel.path = path;
    }

    /// Tells the caller where the peer is from now on.
    pub(super) fn announce_path(&self, core: &mut Core) {
        let Path {
            local,
            remote,
            transport,
        } = self.channel.path;
        core.event(Event::PathChanged {
            ike: self.id,
            local,
            remote,
            transport,
            udp_encapsulation: self.encapsulates(),
        });
    }
}

impl Established {
    /// Something came from the peer, so the path in use is good.
    pub(super) fn path_works(&mut self) {
        self.mobility.search = None;
    }

    /// Number of transmissions of a request over the path in use.
    pub(super) fn transmissions(&self, sa: &Common, core: &Core) -> u32 {
        let limits = &core.limits;
        let mobility = &self.mobility;
        let others = match &mobility.search {
            Some(paths) => !paths.is_empty(),
            None => !mobility.others(limits.nat_port, sa.channel.path).is_empty(),
        };
        let most = sa.channel.transmissions();
        if mobility.decides && self.is_live() && others {
            most.min(limits.path_transmissions)
        } else {
            most
        }
    }

    /// Goes on over another path; false if there is none that was not tried.
    pub(super) fn try_another_path(&mut self, sa: &mut Common, core: &mut Core) -> bool {
        if !self.mobility.decides || !self.is_live() {
            return false;
        }
        let path = sa.channel.path;
        let search = self.mobility.search.take().unwrap_or_else(|| {
            let mut paths = self.mobility.others(core.limits.nat_port, path);
            if !paths.is_empty() {
                // The first once more at the end: it may have been out for a moment only.
                paths.push_back(path);
            }
            paths
        });
        let next = self.mobility.search.insert(search).pop_front();
        if let Some(next) = next {
            self.enqueue(core, Intent::UpdateAddresses, core.now);
            sa.switch_path(core, next);
            sa.channel.restart_transmissions(core);
        }
        next.is_some()
    }

    /// Tells the peer where we are (RFC 4555 §3.5).
    ///
    /// ```text
    /// HDR, SK {N(UPDATE_SA_ADDRESSES), N(NAT_DETECTION_SOURCE_IP), N(NAT_DETECTION_DESTINATION_IP)}  -->
    ///         <--  HDR, SK {N(NAT_DETECTION_SOURCE_IP), N(NAT_DETECTION_DESTINATION_IP)}
    /// ```
    pub(super) fn start_update(&mut self, sa: &mut Common, core: &mut Core) {
        let path = sa.channel.path;
        let mut payloads = vec![Payload::Notify(Notify::new(
            NotifyType::UPDATE_SA_ADDRESSES,
        ))];
        let always_udp = core.limits.always_udp;
        payloads.extend(nat::notifies(always_udp, sa.channel.spis, path));
        let exchange = Exchange::UpdateAddresses(AddressUpdate { path });
        self.send(sa, core, ExchangeType::INFORMATIONAL, &payloads, exchange);
    }

    /// Follows a peer that decides; gives the payloads of the answer (RFC 4555 §3.5, §3.7).
    pub(super) fn follow_update(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        path: Path,
        payloads: &[Payload],
    ) -> Vec<Payload> {
        let mut answer = Vec::new();
        let old = sa.channel.path;
        let mobility = &mut self.mobility;
        if mobility.decides || mobility.follows {
            mobility.learn(payloads);
        }
        // Who decides is not moved by the other (§3.1): it could send our traffic anywhere.
        if mobility.follows && has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) {
            if unexpected_nat(path, payloads) {
                let notify = Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED);
                return vec![Payload::Notify(notify)];
            }
            sa.channel.path = path;
            // Who has opened a TCP connection has shown that it is there (RFC 9329 §7.1).
            let to_check = old != path && !path.is_tcp();
            if to_check {
                self.enqueue(core, Intent::CheckPath, core.now);
            }
            if old != path {
                // What is out would not be heard at the old address, and holds up the check.
                sa.channel.retransmit_now(core);
            }
            let (always_udp, spis) = (core.limits.always_udp, sa.channel.spis);
            sa.nat = Nat::from_payloads(always_udp, payloads, spis, path);
            answer.extend(nat::notifies(always_udp, spis, path));
            if !to_check {
                sa.announce_path(core);
            }
        }
        // Whoever wants to know whether we are reachable here gets its cookie back (§3.7).
        answer.extend(payloads.iter().filter(|payload| {
            matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::COOKIE2)
        }).cloned());
        answer
    }

    /// Sees whether the peer receives at its new address (RFC 4555 §3.7).
    ///
    /// ```text
    /// HDR, SK {N(COOKIE2)}  -->
    ///                       <--  HDR, SK {N(COOKIE2)}
    /// ```
    pub(super) fn start_path_check(&mut self, sa: &mut Common, core: &mut Core) {
        let (path, cookie) = (sa.channel.path, core.bytes::<16>());
        let notify = Notify::new(NotifyType::COOKIE2).with_data(cookie);
        let payloads = [Payload::Notify(notify)];
        let exchange = Exchange::CheckPath(PathCheck { cookie, path });
        self.send(sa, core, ExchangeType::INFORMATIONAL, &payloads, exchange);
    }
}

impl AddressUpdate {
    /// Takes the response: the peer has the new path, unless we have moved on meanwhile.
    pub(super) fn on_response(
        self,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) {
        // A successor has it as its own intention.
        if !in_use.is_live() {
            return;
        }
        let path = self.path;
        if let Some(error) = error_notify(payloads) {
            core.event(Event::PathRefused {
                ike: sa.id,
                reason: Reason::Refused(error),
            });
        } else if sa.channel.path != path {
            in_use.enqueue(core, Intent::UpdateAddresses, core.now);
        } else {
            let (always_udp, spis) = (core.limits.always_udp, sa.channel.spis);
            sa.nat = Nat::from_payloads(always_udp, payloads, spis, path);
            sa.announce_path(core);
        }
    }
}

impl PathCheck {
    /// Takes the response, which only somebody who receives at the new address can know.
    pub(super) fn on_response(
        self,
        in_use: &mut Established,
        sa: &Common,
        core: &mut Core,
        payloads: &[Payload],
    ) {
        if !in_use.is_live() {
            return;
        }
        let same = cookie(payloads).is_some_and(|cookie| bool::from(cookie.ct_eq(&self.cookie)));
        if !same {
            // §3.7: the IKE SA MUST be closed.
            let reason = Reason::Protocol("another cookie than ours in the check of its address");
            in_use.enqueue(core, Intent::DeleteIke(reason), core.now);
        } else if sa.channel.path != self.path {
            // It may have been answered at the address before.
            in_use.enqueue(core, Intent::CheckPath, core.now);
        } else {
            sa.announce_path(core);
        }
    }
}

/// Whether a path is another TCP connection of an IKE SA that goes over one.
const fn is_other_connection(sa: &Common, path: Path) -> bool {
    sa.channel.path.is_tcp() && path.is_tcp()
}

impl IkeSa {
    /// Uses another path from now on; false if the peer does not speak MOBIKE or it is not ours to
    /// decide.
    pub(crate) fn change_path(&mut self, core: &mut Core, path: Path) -> Result<bool, WrongState> {
        self.live_do(core, EventName::ChangePath, |established, sa, core| {
            let decides = established.mobility.decides;
            // The peer follows a TCP connection without MOBIKE as well (RFC 9329 §6.1).
            let may = decides || is_other_connection(sa, path);
            if may {
                let intent = match decides {
                    true => Intent::UpdateAddresses,
                    false => Intent::Liveness,
                };
                // Who chose this path knows more than a search from the former one.
                established.mobility.search = None;
                established.enqueue(core, intent, core.now);
                sa.switch_path(core, path);
                // What is out goes first, and now over the new path: the window is one. How often it went over the former one
                // says nothing of this one.
                sa.channel.restart_transmissions(core);
                established.pump(sa, core);
            }
            may
        })
    }

    /// Whether the peer has not said yet that it knows the path in use.
    pub(crate) fn is_moving(&self) -> bool {
        self.established().is_some_and(|established| {
            let mut queue = established.queue.iter();
            matches!(established.exchange, Some(Exchange::UpdateAddresses(_)))
                || queue.any(|queued| matches!(queued.intent, Intent::UpdateAddresses))
        })
    }

    /// Sees whether the peer behind its NAT receives at `remote` now; false if that is not how it moves.
    ///
    /// A request in flight is repeated to both places, so that one that nobody can get any more does not
    /// hold this up; else one is made.
    pub(crate) fn heard_from(
        &mut self,
        core: &mut Core,
        remote: SocketAddr,
    ) -> Result<bool, WrongState> {
        self.live_do(core, EventName::PeerMoved, |established, sa, core| {
            let behind_nat = sa.nat.theirs && !sa.nat.ours;
            // A TCP connection goes where it goes.
            if !behind_nat || sa.channel.path.is_tcp() {
                return false;
            }
            if remote == sa.channel.path.remote {
                return true;
            }
            sa.channel.also_to = Some(remote);
            if sa.channel.is_idle() {
                established.enqueue(core, Intent::Liveness, core.now);
                established.pump(sa, core);
            } else {
                sa.channel.retransmit_now(core);
            }
            true
        })
    }

    /// Follows the IKE SA that took this one's place, if it is about this path.
    pub(crate) fn follow_path(
        &mut self,
        core: &mut Core,
        connection: &Connection,
        (from, to): (Path, Path),
    ) -> Result<(), WrongState> {
        self.established_do(core, EventName::FollowPath, |established, sa, core| {
            let same = std::ptr::eq(&raw const *sa.connection, connection);
            let same = same && sa.channel.path == from;
            if !established.is_live() && established.mobility.decides && same {
                sa.channel.path = to;
                established.enqueue(core, Intent::UpdateAddresses, core.now);
                sa.channel.retransmit_now(core);
                established.pump(sa, core);
            }
        })
    }

    /// Tells the peer our further addresses; false if it does not speak MOBIKE.
    pub(crate) fn set_addresses(
        &mut self,
        core: &mut Core,
        addresses: Vec<IpAddr>,
    ) -> Result<bool, WrongState> {
        self.live_do(core, EventName::ChangePath, |established, sa, core| {
            let mobility = &mut established.mobility;
            let mobile = mobility.decides || mobility.follows;
            if !mobile {
                return false;
            }
            if mobility.ours != addresses {
                mobility.ours = addresses;
                established.enqueue(core, Intent::AnnounceAddresses, core.now);
                established.pump(sa, core);
            }
            true
        })
    }
}
