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
//! answered keeps a [`Promise`]. Of two sides that replace the same thing, the nonces say who loses as
//! ever; whoever learns that before the last exchange leaves the rest out, and whoever wins forgets what
//! it has promised.

use std::collections::VecDeque;

use super::child::{Negotiated, Refusal, answer_exchange};
use super::core::Core;
use super::exchange::{Established, Intent, Request};
use super::{IkeSa, Phase, find};
use crate::crypto::{Group, Pending, Shared};
use crate::event::{Event, Reason};
use crate::select::IkeSuite;
use crate::time::Timestamp;
use crate::wire::{ExchangeType, KeyExchange, Notify, NotifyType, Payload};

/// Our further key exchanges: the one that is out, and those to come.
pub(crate) struct Followup {
    pending: Pending,
    remaining: VecDeque<Group>,
    link: Vec<u8>,
}

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

    pub(super) fn payloads(&self) -> [Payload; 2] {
        let (method, data) = (self.pending.group().id(), self.pending.public().to_vec());
        [
            Payload::Ke(KeyExchange { method, data }),
            link_notify(&self.link),
        ]
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
        if self.remaining.is_empty() {
            return Ok((shared, None));
        }
        let next = Self::start(core, self.remaining, response)?;
        Ok((shared, Some(next)))
    }
}

/// What the peer gets once its further key exchanges are through. There is one at a time: another
/// CREATE_CHILD_SA of the peer takes its place.
pub(crate) struct Promise {
    link: [u8; 8],
    remaining: VecDeque<Group>,
    /// The peer's, ours.
    nonces: (Vec<u8>, Vec<u8>),
    what: Promised,
    /// When the peer counts as not coming back to it.
    pub(super) expires: Timestamp,
}

/// What is promised.
pub(crate) enum Promised {
    /// A Child SA, and the inbound SPI of the one that it replaces.
    Child(Negotiated, Option<u32>),
    /// A successor of the IKE SA: algorithms, SPIs, secrets so far.
    Ike(IkeSuite, (u64, u64), Vec<Shared>),
}

impl Promise {
    fn new(core: &mut Core, nonces: (Vec<u8>, Vec<u8>), what: Promised) -> Self {
        let groups = match &what {
            Promised::Child(new, _) => &new.suite.additional,
            Promised::Ike(suite, ..) => &suite.additional,
        };
        Self {
            link: core.bytes(),
            remaining: groups.clone().into(),
            nonces,
            what,
            expires: core.now.after(core.limits.followup),
        }
    }

    /// The lower of the two nonces, which decides when both sides replace the same.
    pub(super) fn lowest(&self) -> &[u8] {
        (&self.nonces.0).min(&self.nonces.1)
    }

    /// The Child SA (by inbound SPI) that is to be replaced.
    pub(super) const fn replaces(&self) -> Option<u32> {
        match self.what {
            Promised::Child(_, replaces) => replaces,
            Promised::Ike(..) => None,
        }
    }

    pub(super) const fn is_ike(&self) -> bool {
        matches!(self.what, Promised::Ike(..))
    }

    /// Whether an intention of ours waits until the promise is kept or void: the peer would refuse it,
    /// or it would be about what is being replaced.
    pub(super) fn blocks(&self, intent: &Intent) -> bool {
        match (&self.what, intent) {
            (
                _,
                Intent::DeleteIke(_)
                | Intent::Liveness
                | Intent::UpdateAddresses
                | Intent::CheckPath,
            ) => false,
            (Promised::Ike(..), _) | (Promised::Child(..), Intent::RekeyIke) => true,
            (Promised::Child(_, replaces), Intent::RekeyChild(spi_in)) => {
                *replaces == Some(*spi_in)
            }
            (Promised::Child(..), _) => false,
        }
    }

    pub(super) fn release(self, core: &mut Core) {
        if let Promised::Child(new, _) = self.what {
            core.free_esp_spi(new.spis.0);
        }
    }
}

impl Established {
    /// Makes a promise; gives the link with which the peer comes back to it.
    pub(super) fn promise(
        &mut self,
        core: &mut Core,
        nonces: (Vec<u8>, Vec<u8>),
        what: Promised,
    ) -> Payload {
        self.void_promise(core);
        let promise = Promise::new(core, nonces, what);
        let link = link_notify(&promise.link);
        self.promise = Some(Box::new(promise));
        link
    }

    pub(super) fn void_promise(&mut self, core: &mut Core) {
        if let Some(promise) = self.promise.take() {
            promise.release(core);
        }
    }

    /// A Child SA is gone, closing or replaced: nobody else replaces it any more.
    pub(super) fn void_promise_about(&mut self, core: &mut Core, spi_in: u32) {
        let about = |promise: &mut Box<Promise>| promise.replaces() == Some(spi_in);
        if let Some(promise) = self.promise.take_if(about) {
            promise.release(core);
        }
    }
}

impl IkeSa {
    pub(super) fn send_followup(&mut self, core: &mut Core, followup: &Followup) {
        let exchange = ExchangeType::IKE_FOLLOWUP_KE;
        self.channel.request(core, exchange, &followup.payloads());
    }

    pub(super) fn on_followup_response(&mut self, core: &mut Core, payloads: &[Payload]) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        match established.request.take() {
            Some(Request::Child(request)) => self.on_child_followup(core, *request, payloads),
            Some(Request::RekeyIke(request)) => self.on_ike_followup(core, *request, payloads),
            _ => self.down(core, Reason::Protocol("response to another exchange")),
        }
    }

    pub(super) fn on_followup_request(&mut self, core: &mut Core, payloads: &[Payload]) {
        if let Phase::Established(established) = &mut self.phase {
            established.confirm();
        }
        let reply = self.answer_followup(core, payloads).unwrap_or_else(|no| {
            // A peer that is too late, or has lost, is nothing to report.
            if no.notify.kind != NotifyType::STATE_NOT_FOUND {
                core.event(Event::ChildFailed {
                    ike: self.id,
                    child: None,
                    reason: *no.reason,
                });
            }
            vec![Payload::Notify(no.notify)]
        });
        self.channel
            .respond(core, ExchangeType::IKE_FOLLOWUP_KE, &reply);
        self.after_ike_rekey_answer(core);
    }

    fn answer_followup(
        &mut self,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        let unknown = || {
            let kind = NotifyType::STATE_NOT_FOUND;
            Refusal::new(kind, Reason::Refused(kind))
        };
        let Phase::Established(established) = &mut self.phase else {
            return Err(unknown());
        };
        let link = link(payloads);
        let meant = |promise: &mut Box<Promise>| link == Some(promise.link.as_slice());
        let mut promise = established.promise.take_if(meant).ok_or_else(unknown)?;
        let (group, ke) = (promise.remaining.pop_front(), find!(payloads, Payload::Ke));
        let Ok(Some((public, shared))) = answer_exchange(core, group, ke) else {
            promise.release(core);
            let reason = Reason::Protocol("further key exchange");
            return Err(Refusal::new(NotifyType::INVALID_SYNTAX, reason));
        };
        match &mut promise.what {
            Promised::Child(new, _) => new.shared.push(shared),
            Promised::Ike(_, _, secrets) => secrets.push(shared),
        }
        let mut reply = vec![Payload::Ke(public)];
        if promise.remaining.is_empty() {
            reply.extend(self.keep(core, *promise)?);
        } else {
            promise.link = core.bytes();
            promise.expires = core.now.after(core.limits.followup);
            reply.push(link_notify(&promise.link));
            established.promise = Some(promise);
        }
        Ok(reply)
    }

    fn keep(&mut self, core: &mut Core, promise: Promise) -> Result<Option<Payload>, Refusal> {
        let nonces = promise.nonces;
        match promise.what {
            Promised::Child(new, replaces) => {
                self.make_child(core, new, nonces, replaces)?;
                Ok(None)
            }
            Promised::Ike(suite, spis, shared) => {
                self.make_successor(core, &suite, spis, &nonces, &shared)?;
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
