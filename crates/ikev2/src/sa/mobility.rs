//! Changing addresses without losing the IKE SA: MOBIKE (RFC 4555).
//!
//! Only who created the first IKE SA decides (§3.1); the other follows. A request that is out when the
//! address changes goes on over the new path, and the update comes after it.

use std::net::SocketAddr;

use super::child::has_notify;
use super::core::Core;
use super::exchange::{Intent, Request, Role};
use super::nat::{self, Nat};
use super::{IkeSa, Phase};
use crate::event::{Event, Reason};
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

impl IkeSa {
    /// Uses another path from now on; false if the peer does not speak MOBIKE or it is not ours to
    /// decide.
    pub(crate) fn change_path(&mut self, core: &mut Core, path: (SocketAddr, SocketAddr)) -> bool {
        let now = core.now;
        let Phase::Established(established) = &mut self.phase else {
            return false;
        };
        if established.role != Role::Live || !established.mobility.decides {
            return false;
        }
        (self.channel.local, self.channel.remote) = path;
        established.enqueue(core, Intent::UpdateAddresses, now);
        self.channel.hurry(core);
        self.pump(core);
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
    pub(super) fn on_updated(
        &mut self,
        core: &mut Core,
        path: (SocketAddr, SocketAddr),
        payloads: &[Payload],
    ) {
        let (now, current) = (core.now, self.path());
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if has_notify(payloads, NotifyType::UNACCEPTABLE_ADDRESSES) {
            let reason = Reason::Refused(NotifyType::UNACCEPTABLE_ADDRESSES);
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
        self.nat = Nat::from_payloads(payloads, self.spis(), path.0, path.1);
        self.announce_path(core);
    }

    /// Follows a peer that decides; gives the payloads of the answer.
    pub(super) fn follow_update(
        &mut self,
        core: &mut Core,
        path: (SocketAddr, SocketAddr),
        payloads: &[Payload],
    ) -> Vec<Payload> {
        let mut answer = Vec::new();
        let Phase::Established(established) = &self.phase else {
            return answer;
        };
        let follows = established.mobility.follows;
        if follows && has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) {
            (self.channel.local, self.channel.remote) = path;
            self.nat = Nat::from_payloads(payloads, self.spis(), path.0, path.1);
            let always_udp = core.limits.always_udp;
            answer.extend(nat::notifies(always_udp, self.spis(), path.0, path.1));
            self.announce_path(core);
        }
        // Whoever wants to know whether we are reachable here gets its cookie back (§3.7).
        answer.extend(payloads.iter().filter(|payload| {
            matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::COOKIE2)
        }).cloned());
        answer
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
