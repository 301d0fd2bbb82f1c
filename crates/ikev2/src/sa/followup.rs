//! Several key exchanges in CREATE_CHILD_SA: IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).
//!
//! ```text
//! CREATE_CHILD_SA  SA, Ni, KEi, ...    ──►
//!                                      ◄── SA, Nr, KEr, ..., ADDITIONAL_KEY_EXCHANGE(link)
//! IKE_FOLLOWUP_KE  KEi(1), (link)      ──►
//!                                      ◄── KEr(1), ADDITIONAL_KEY_EXCHANGE(another link)
//! ... until a response has no link; only then there is something new
//! ```
//!
//! Who asked keeps its request until the last response; for collisions that is one long exchange. Who
//! answered keeps a [`PendingRekey`]. Of two sides that replace the same thing, the nonces say who loses as
//! ever; whoever learns that before the last exchange leaves the rest out, and whoever wins forgets what
//! it has agreed to.

use std::collections::VecDeque;

use super::child::respond_key_exchange;
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::exchange::{Agreement, Followup, PendingRekey};
use super::intent::Intent;
use super::payloads::find;
use super::refusal::Refusal;
use crate::crypto::{Group, Pending, Shared};
use crate::event::{Event, Reason};
use crate::types::Nonces;
use crate::wire::{ExchangeType, KeyExchange, Notify, NotifyType, Payload};

impl Followup {
    /// Prepares the next of `remaining` after a response, which must have a link to go on with.
    pub(super) fn start(
        core: &mut Core,
        mut remaining: VecDeque<Group>,
        response: &[Payload],
    ) -> Result<Self, Reason> {
        let link = link(response).ok_or(Reason::Protocol("no link to the next key exchange"))?;
        let group = remaining
            .pop_front()
            .ok_or(Reason::Protocol("key exchange"))?;
        let pending = Pending::start(group, &mut *core.random);
        Ok(Self {
            pending: pending.map_err(|_| Reason::Protocol("key exchange"))?,
            remaining,
            link: link.to_vec(),
        })
    }

    /// Sends the key exchange (RFC 9370 §2.2.4).
    ///
    /// ```text
    /// HDR(IKE_FOLLOWUP_KE), SK {KEi(n), N(ADDITIONAL_KEY_EXCHANGE)}  -->
    /// ```
    pub(super) fn send(&self, sa: &mut Common, core: &mut Core) {
        let (method, data) = (self.pending.group().id(), self.pending.public().to_vec());
        let payloads = [
            Payload::Ke(KeyExchange { method, data }),
            link_notify(&self.link),
        ];
        let exchange = ExchangeType::IKE_FOLLOWUP_KE;
        sa.channel.request(core, exchange, &payloads);
    }

    /// The secret, and the next key exchange if there is one.
    pub(super) fn finish(
        self,
        core: &mut Core,
        response: &[Payload],
    ) -> Result<(Shared, Option<Self>), Reason> {
        let method = self.pending.group().id();
        let ke = find!(response, Payload::Ke).filter(|ke| ke.method == method);
        let shared = ke.and_then(|ke| self.pending.finish(&ke.data).ok());
        let shared = shared.ok_or(Reason::Protocol("further key exchange"))?;
        // With the last one the peer has made its half, and gives no link.
        if self.remaining.is_empty() {
            return Ok((shared, None));
        }
        let next = Self::start(core, self.remaining, response)?;
        Ok((shared, Some(next)))
    }
}

impl PendingRekey {
    fn new(core: &mut Core, nonces: Nonces, agreement: Agreement) -> Self {
        let groups = match &agreement {
            Agreement::Child(new, _) => &new.suite.additional,
            Agreement::Ike(suite, ..) => &suite.additional,
        };
        Self {
            link: core.bytes(),
            remaining: groups.clone().into(),
            nonces,
            agreement,
            expires: core.now.after(core.limits.followup),
        }
    }

    /// The lower of the two nonces, which decides when both sides replace the same.
    pub(super) fn lowest(&self) -> &[u8] {
        self.nonces.lowest()
    }

    /// The Child SA (by inbound SPI) that is to be replaced.
    pub(super) const fn replaces(&self) -> Option<u32> {
        match self.agreement {
            Agreement::Child(_, replaces) => replaces,
            Agreement::Ike(..) => None,
        }
    }

    pub(super) const fn is_ike(&self) -> bool {
        matches!(self.agreement, Agreement::Ike(..))
    }

    /// Whether an intention of ours waits until the rekeying is complete or cancelled: the peer would refuse it,
    /// or it would be about what is being replaced.
    pub(super) fn blocks(&self, intent: &Intent) -> bool {
        match (&self.agreement, intent) {
            (
                _,
                Intent::DeleteIke(_)
                | Intent::Liveness
                | Intent::Confirm
                | Intent::UpdateAddresses
                | Intent::CheckPath,
            ) => false,
            (Agreement::Ike(..), _) | (Agreement::Child(..), Intent::RekeyIke) => true,
            (Agreement::Child(_, replaces), Intent::RekeyChild(spi_in)) => {
                *replaces == Some(*spi_in)
            }
            (Agreement::Child(..), _) => false,
        }
    }

    pub(super) fn release(self, core: &mut Core) {
        if let Agreement::Child(new, _) = self.agreement {
            core.free_esp_spi(new.spi_in);
        }
    }
}

impl Established {
    /// Waits for further key exchanges; gives the link with which the peer comes back.
    pub(super) fn await_followup(
        &mut self,
        core: &mut Core,
        nonces: Nonces,
        agreement: Agreement,
    ) -> Payload {
        // The window is one, so the peer has one rekeying under way; the older one was given up.
        self.cancel_pending_rekey(core);
        let pending = PendingRekey::new(core, nonces, agreement);
        let link = link_notify(&pending.link);
        self.pending_rekey = Some(Box::new(pending));
        link
    }

    /// Forgets the peer's unfinished rekeying: it started another, took too long, or ours won.
    pub(super) fn cancel_pending_rekey(&mut self, core: &mut Core) {
        if let Some(pending) = self.pending_rekey.take() {
            pending.release(core);
        }
    }

    /// Cancels the peer's rekeying of a Child SA that is gone, closing or replaced.
    pub(super) fn cancel_pending_rekey_of(&mut self, core: &mut Core, spi_in: u32) {
        let about = |pending: &mut Box<PendingRekey>| pending.replaces() == Some(spi_in);
        if let Some(pending) = self.pending_rekey.take_if(about) {
            pending.release(core);
        }
    }

    /// Answers one of the peer's further key exchanges (RFC 9370 §2.2.4).
    ///
    /// ```text
    /// HDR(IKE_FOLLOWUP_KE), SK {KEi(n), N(ADDITIONAL_KEY_EXCHANGE)}  -->
    ///     <--  HDR(IKE_FOLLOWUP_KE), SK {KEr(n) [, N(ADDITIONAL_KEY_EXCHANGE)]}   or
    ///     <--  HDR(IKE_FOLLOWUP_KE), SK {N(STATE_NOT_FOUND)}
    /// ```
    pub(super) fn on_followup_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) {
        self.confirm(sa, core);
        let reply = self
            .answer_followup(sa, core, payloads)
            .unwrap_or_else(|no| {
                // A peer that is too late, or has lost, is nothing to report.
                if no.notify.kind != NotifyType::STATE_NOT_FOUND {
                    core.event(Event::ChildFailed {
                        ike: sa.id,
                        child: None,
                        reason: *no.reason,
                    });
                }
                vec![Payload::Notify(no.notify)]
            });
        let exchange = ExchangeType::IKE_FOLLOWUP_KE;
        sa.channel.respond(core, exchange, &reply);
        self.after_ike_rekey_answer(sa, core);
    }

    fn answer_followup(
        &mut self,
        sa: &Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        let unknown = || {
            let kind = NotifyType::STATE_NOT_FOUND;
            Refusal::new(kind, Reason::Refused(kind))
        };
        let link = link(payloads);
        let meant = |pending: &mut Box<PendingRekey>| link == Some(pending.link.as_slice());
        let mut pending = self.pending_rekey.take_if(meant).ok_or_else(unknown)?;
        let (group, ke) = (pending.remaining.pop_front(), find!(payloads, Payload::Ke));
        let Ok(Some((public, shared))) = respond_key_exchange(core, group, ke) else {
            pending.release(core);
            let reason = Reason::Protocol("further key exchange");
            return Err(Refusal::new(NotifyType::INVALID_SYNTAX, reason));
        };
        match &mut pending.agreement {
            Agreement::Child(new, _) => new.shared.push(shared),
            Agreement::Ike(_, _, secrets) => secrets.push(shared),
        }
        let mut reply = vec![Payload::Ke(public)];
        if pending.remaining.is_empty() {
            reply.extend(self.complete_pending_rekey(sa, core, *pending)?);
        } else {
            // A link is good for one request, so that none can be replayed into another exchange.
            pending.link = core.bytes();
            pending.expires = core.now.after(core.limits.followup);
            reply.push(link_notify(&pending.link));
            self.pending_rekey = Some(pending);
        }
        Ok(reply)
    }

    /// Makes what was agreed to, now that all secrets are there.
    fn complete_pending_rekey(
        &mut self,
        sa: &Common,
        core: &mut Core,
        pending: PendingRekey,
    ) -> Result<Option<Payload>, Refusal> {
        let nonces = pending.nonces;
        match pending.agreement {
            Agreement::Child(new, replaces) => {
                self.make_child(sa, core, new, &nonces, replaces)?;
                Ok(None)
            }
            Agreement::Ike(suite, spis, shared) => {
                self.make_peers_successor(sa, core, &suite, spis, &nonces, &shared)?;
                Ok(core.crash_secret.as_ref().map(|secret| secret.token(spis)))
            }
        }
    }
}

fn link_notify(link: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE).with_data(link))
}

fn link(payloads: &[Payload]) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE => {
            Some(notify.data.as_slice()).filter(|data| !data.is_empty())
        }
        _ => None,
    })
}
