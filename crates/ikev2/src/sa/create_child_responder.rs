//! CREATE_CHILD_SA as the exchange's responder (RFC 7296 §1.3, §2.8, §2.25).

use super::child::{Negotiated, answer, install_as_responder};
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::exchange::{Agreement, Exchange, PeerRekey};
use super::payloads::find;
use super::refusal::Refusal;
use crate::event::{Event, Reason};
use crate::types::Nonces;
use crate::wire::{ExchangeType, NotifyType, Payload, Protocol};

impl Established {
    /// Answers the peer's wish for a Child SA, for another in place of one, or for another IKE SA (RFC 7296 §1.3).
    ///
    /// ```text
    /// HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] [TSi, TSr]}  -->
    ///             <--  HDR, SK {SA, Nr, [KEr,] [TSi, TSr] [, N(ADDITIONAL_KEY_EXCHANGE)]}   or
    ///             <--  HDR, SK {N(TEMPORARY_FAILURE), N(NO_PROPOSAL_CHOSEN), ...}
    /// ```
    pub(super) fn on_create_child_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) {
        self.confirm(sa, core);
        // The peer has given up what it did not finish.
        self.cancel_pending_rekey(core);
        let protocol = find!(payloads, Payload::Sa).and_then(|sa| sa.first());
        let protocol = protocol.map(|proposal| proposal.protocol);
        let may = self.auth.authorization();
        // A key exchange costs us as much as the peer, so the budget comes before anything else is looked at.
        let reply = if !core.budgets.rekey(may.holder(), may.rates(), core.now) {
            Err(later())
        } else if protocol == Some(Protocol::IKE) {
            self.answer_ike_rekey(sa, core, payloads)
        } else {
            self.answer_child(sa, core, payloads)
        };
        let reply = reply.unwrap_or_else(|refusal| {
            // These belong to the protocol's normal course: the peer tries again, and nothing has failed.
            let expected = [
                NotifyType::TEMPORARY_FAILURE,
                NotifyType::CHILD_SA_NOT_FOUND,
                NotifyType::INVALID_KE_PAYLOAD,
                NotifyType::TS_MAX_QUEUE,
            ];
            if !expected.contains(&refusal.notify.kind) {
                core.event(Event::ChildFailed {
                    ike: sa.id,
                    child: None,
                    reason: *refusal.reason,
                });
            }
            vec![Payload::Notify(refusal.notify)]
        });
        let exchange = ExchangeType::CREATE_CHILD_SA;
        sa.channel.respond(core, exchange, &reply);
        self.after_ike_rekey_answer(sa, core);
    }

    fn answer_child(
        &mut self,
        sa: &Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        // The Child SA would belong to an IKE SA that is about to go (§2.25.2).
        let busy = matches!(
            self.exchange,
            Some(Exchange::RekeyIke(_) | Exchange::DeleteIke(_))
        );
        if busy || !self.is_live() {
            return Err(later());
        }
        let syntax = || Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("no nonce"));
        let nonce_i = find!(payloads, Payload::Nonce).ok_or_else(syntax)?;
        let old = self.rekeyed_child(core, payloads)?;
        let replaces = old.map(|(spi_in, _)| spi_in);
        let nonces = Nonces {
            initiator: nonce_i.clone(),
            responder: core.nonce(),
        };
        let context = self.child_context(sa, core, &nonces, replaces, false);
        let only = old.map(|(_, config)| config);
        let (new, mut reply) = answer(core, &context, payloads, true, only)?;
        // Behind the SA payload, in the order of §1.3.1.
        reply.insert(1, Payload::Nonce(nonces.responder.clone()));
        if new.suite.additional.is_empty() {
            self.make_child(sa, core, new, &nonces, replaces)?;
        } else {
            let agreement = Agreement::Child(new, replaces);
            reply.push(self.await_followup(core, nonces, agreement));
        }
        Ok(reply)
    }

    /// Makes the Child SA that the peer has asked for, after all its key exchanges.
    pub(super) fn make_child(
        &mut self,
        sa: &Common,
        core: &mut Core,
        new: Negotiated,
        nonces: &Nonces,
        replaces: Option<u32>,
    ) -> Result<(), Refusal> {
        // A new Child SA is used at once, a successor when the old one goes, one beside others when the peer shows that
        // it has it.
        let further = replaces.is_none() && new.has_others(&self.siblings(&core.limits, None));
        let send_now = replaces.is_none() && !further;
        let context = self.child_context(sa, core, nonces, replaces, send_now);
        let mut child = install_as_responder(core, &context, new)?;
        child.further = further;
        let spi_in = child.spi_in;
        self.children.insert(spi_in, child);
        if let Some(old) = replaces {
            let lowest = nonces.lowest().to_vec();
            self.replaced_by_peer(core, old, PeerRekey { spi_in, lowest });
        }
        Ok(())
    }

    /// The Child SA that the peer wants to replace (inbound SPI and configuration); none if it wants a
    /// further one.
    fn rekeyed_child(
        &self,
        core: &Core,
        payloads: &[Payload],
    ) -> Result<Option<(u32, usize)>, Refusal> {
        let rekeys = payloads.iter().find_map(|payload| match payload {
            Payload::Notify(notify) if notify.kind == NotifyType::REKEY_SA => Some(notify),
            _ => None,
        });
        let Some(notify) = rekeys else {
            let full = self.children.len() >= core.limits.children;
            let refused = Refusal::new(NotifyType::NO_ADDITIONAL_SAS, Reason::Limit);
            return if full { Err(refused) } else { Ok(None) };
        };
        let child = notify.spi32().and_then(|spi| self.child_by_outbound(spi));
        let Some(child) = child else {
            // It may be the one whose response we are still waiting for.
            if matches!(self.exchange, Some(Exchange::Child(_))) {
                return Err(later());
            }
            let mut refusal = Refusal::new(
                NotifyType::CHILD_SA_NOT_FOUND,
                Reason::Refused(NotifyType::CHILD_SA_NOT_FOUND),
            );
            // The notification names what was not found (§3.10.1).
            refusal.notify.protocol = notify.protocol;
            refusal.notify.spi.clone_from(&notify.spi);
            return Err(refusal);
        };
        let ours = self.exchange.as_ref();
        let deleting = ours.is_some_and(|ours| ours.deletes_child(child.spi_in));
        // A peer that never deletes what it replaced has to wait until we do.
        let most = core.limits.children.saturating_mul(2);
        if deleting || !child.is_live() || self.children.len() >= most {
            return Err(later());
        }
        Ok(Some((child.spi_in, child.config)))
    }
}

/// TEMPORARY_FAILURE: the peer tries again after a pause (§2.25).
pub(super) fn later() -> Refusal {
    Refusal::new(
        NotifyType::TEMPORARY_FAILURE,
        Reason::Protocol("not at this moment"),
    )
}
