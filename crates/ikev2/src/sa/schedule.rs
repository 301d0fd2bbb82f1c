//! What runs and what waits in an established IKE SA, and what happens when both sides start at once.
//!
//! The peer's request while a request of ours is out (RFC 7296 §2.25; rows: peer, columns: ours):
//!
//! | | create | rekey child C | delete child C | rekey IKE | delete IKE |
//! |---|---|---|---|---|---|
//! | create | ok | ok | ok | later | later |
//! | rekey child C | ok | ok, nonces decide | later | later | later |
//! | delete child C | ok | ok, ours gives up | ok, without C | ok | ok |
//! | rekey IKE | later | later | later | ok, nonces decide | later |
//! | delete IKE | ok | ok | ok | ok | ok |
//!
//! "Later" is TEMPORARY_FAILURE; whoever gets it tries again after a pause with a random part. For a
//! child other than C, deleting and rekeying are independent of each other. With several key exchanges
//! (`followup.rs`) a request is out from CREATE_CHILD_SA to the last IKE_FOLLOWUP_KE.
//!
//! A Child SA that is rekeyed receives from the start on both sides. The one who asked for it sends
//! with it once the response is there; the other once the old one is deleted, or the caller reports
//! that packets came ([`crate::Endpoint::note_inbound`]). So at every instant each side
//! can open what the other sends.

use super::child_sa::ChildSa;
use super::common::Common;
use super::core::{Core, Transfer};
use super::established::{Established, EstablishedState};
use super::exchange::{Exchange, Purpose};
use super::intent::{Intent, Queued};
use super::state::Failure;
use crate::time::Timestamp;
use crate::wire::{ExchangeType, Payload};

impl Established {
    /// Handles the response to what is out: the channel lets none pass but one of the same exchange and number.
    pub(super) fn on_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        match (exchange, self.exchange.take()) {
            (ExchangeType::CREATE_CHILD_SA, Some(Exchange::Child(ours))) => {
                ours.on_response(self, sa, core, payloads)
            }
            (ExchangeType::CREATE_CHILD_SA, Some(Exchange::RekeyIke(ours))) => {
                ours.on_response(self, sa, core, payloads)
            }
            (ExchangeType::IKE_FOLLOWUP_KE, Some(Exchange::Child(ours))) => {
                ours.on_followup_response(self, sa, core, payloads)
            }
            (ExchangeType::IKE_FOLLOWUP_KE, Some(Exchange::RekeyIke(ours))) => {
                ours.on_followup_response(self, sa, core, payloads)
            }
            (ExchangeType::INFORMATIONAL, Some(ours)) if ours.is_informational() => {
                self.on_informational_response(sa, core, ours, payloads)
            }
            // Kept, so that the end of the IKE SA gives back what it holds.
            (_, ours) => {
                self.exchange = ours;
                let known = [
                    ExchangeType::CREATE_CHILD_SA,
                    ExchangeType::IKE_FOLLOWUP_KE,
                    ExchangeType::INFORMATIONAL,
                ];
                let reason = match known.contains(&exchange) {
                    true => "response to another exchange",
                    false => "exchange out of place",
                };
                Err(sa.out_of_place(core, exchange, true, reason))
            }
        }
    }

    fn on_informational_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        exchange: Exchange,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        match exchange {
            Exchange::DeleteChild(ours) => ours.on_response(self, sa, core),
            Exchange::DeleteUnaccepted(ours) => ours.on_response(core),
            Exchange::DeleteIke(ours) => return ours.on_response(),
            Exchange::UpdateAddresses(ours) => ours.on_response(self, sa, core, payloads),
            Exchange::CheckPath(ours) => ours.on_response(self, sa, core, payloads),
            Exchange::Liveness(ours) => return ours.on_response(payloads),
            Exchange::Confirm(ours) => {
                ours.on_response(payloads)?;
                self.send_with_held(sa, core);
                core.transfers.push(Transfer::Confirmed(sa.id));
            }
            Exchange::Notification | Exchange::Child(_) | Exchange::RekeyIke(_) => {}
        }
        Ok(())
    }

    /// When an intention may start.
    pub(super) fn ready_at(&self, queued: &Queued) -> Timestamp {
        let child = match &queued.intent {
            Intent::RekeyChild(spi_in) | Intent::DeleteChild(spi_in, _) => {
                self.children.get(spi_in)
            }
            _ => None,
        };
        // A peer that has not our response yet does not know the Child SA, and would say so.
        let unconfirmed = child.and_then(|child: &ChildSa| child.unconfirmed);
        let pending = self.pending_rekey.as_ref();
        let pending = pending.filter(|pending| pending.blocks(&queued.intent));
        let pending = pending.map(|pending| pending.expires);
        let waits = unconfirmed.max(pending).unwrap_or_default();
        waits.max(queued.not_before)
    }

    /// Adds an intention, unless it is there already. Beyond [`crate::Limits::queue`] it is dropped:
    /// timers and callers come back with it.
    pub(crate) fn enqueue(&mut self, core: &Core, intent: Intent, not_before: Timestamp) {
        // Timers and peers come back with the same wish; done once it is done for all.
        let known = self.queue.iter().any(|queued| queued.intent == intent);
        if !known && self.queue.len() < core.limits.queue {
            self.queue.push_back(Queued { intent, not_before });
        }
    }

    /// Whether an intention may start now. Who was replaced or waits for a decision starts nothing but its own
    /// deletion.
    fn may_start(&self, core: &Core, queued: &Queued) -> bool {
        match self.state {
            EstablishedState::Live => self.ready_at(queued) <= core.now,
            // The peer may not have our answer to its rekeying, and behind a NAT may not be able
            // to ask again before it hears from us; nor does it, if we are elsewhere now.
            EstablishedState::Replaced => matches!(
                queued.intent,
                Intent::Liveness | Intent::UpdateAddresses | Intent::DeleteIke(_)
            ),
            EstablishedState::CollisionPending | EstablishedState::Redundant => {
                matches!(queued.intent, Intent::DeleteIke(_))
            }
        }
    }

    /// Starts what waits, if nothing is out. What has lost its object meanwhile starts nothing, and the next one
    /// has its turn.
    pub(super) fn pump(&mut self, sa: &mut Common, core: &mut Core) {
        while sa.channel.is_idle() {
            let may = |queued: &Queued| self.may_start(core, queued);
            let next = self.queue.iter().position(may);
            let Some(queued) = next.and_then(|index| self.queue.remove(index)) else {
                return;
            };
            match queued.intent {
                Intent::CreateChild(config) => {
                    self.start_child(sa, core, config, &Purpose::New, None);
                }
                Intent::CreateResource(config) => self.start_resource(sa, core, config),
                Intent::RekeyChild(spi_in) => self.start_child_rekey(sa, core, spi_in),
                Intent::DeleteChild(spi_in, reason) => self.start_delete(sa, core, spi_in, reason),
                Intent::DeleteUnaccepted(spi_in) => {
                    self.start_delete_unaccepted(sa, core, spi_in);
                }
                Intent::RekeyIke => self.start_ike_rekey(sa, core, None),
                Intent::DeleteIke(reason) => self.start_close(sa, core, reason),
                Intent::UpdateAddresses => self.start_update(sa, core),
                Intent::CheckPath => self.start_path_check(sa, core),
                Intent::AnnounceAddresses => self.start_announcement(sa, core),
                Intent::NotifyInvalidSpi(spi) => self.start_invalid_spi(sa, core, spi),
                Intent::SendCrashToken => self.start_crash_token(sa, core),
                Intent::Liveness => self.start_liveness(sa, core),
                Intent::Confirm => self.start_confirmation(sa, core),
            }
        }
    }

    /// Sends a request of ours, and remembers what it needs.
    pub(super) fn send(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        kind: ExchangeType,
        payloads: &[Payload],
        exchange: Exchange,
    ) {
        self.exchange = Some(exchange);
        sa.channel.request(core, kind, payloads);
    }
}
