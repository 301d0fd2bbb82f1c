//! CREATE_CHILD_SA for the IKE SA itself, as the exchange's initiator (RFC 7296 §1.3.2, §2.8.2, §2.18).
//!
//! ```text
//! HDR, SK {SA, Ni, KEi}  -->
//!                        <--  HDR, SK {SA, Nr, KEr [, N(ADDITIONAL_KEY_EXCHANGE)]}
//! ```

use std::sync::Arc;

use super::IkeSa;
use super::channel::protection;
use super::common::Common;
use super::core::{Core, Transfer};
use super::create_child::demanded_group;
use super::established::{Established, EstablishedState};
use super::exchange::{Agreed, Exchange, Followup, IkeRekey};
use super::handshake::error_notify;
use super::intent::Intent;
use super::payloads::find;
use super::state::{EventName, Failure, WrongState};
use super::successor::Successor;
use crate::config::Connection;
use crate::crash::PeerToken;
use crate::crypto::{Group, IkeKeys, Pending};
use crate::event::{Event, Reason};
use crate::select::{IkeSuite, check_choice};
use crate::types::{IkeId, Nonces, SpiPair};
use crate::wire::{ExchangeType, KeyExchange, NotifyType, Payload, Proposal};

/// Number of [`crate::Limits::linger`] for which an IKE SA waits for the decision between two successors: longer
/// than a request lives.
const COLLISION_LINGERS: u32 = 4;

pub(super) fn proposals(connection: &Connection, spi: u64) -> Vec<Proposal> {
    let wire = (1..=u8::MAX).zip(&connection.ike);
    wire.map(|(number, ike)| ike.to_wire(number, &spi.to_be_bytes()))
        .collect()
}

impl Established {
    /// Asks for a new IKE SA, with the group that the peer demanded, if it did (RFC 7296 §1.3.2).
    ///
    /// ```text
    /// HDR, SK {SA, Ni, KEi}  -->
    /// ```
    pub(super) fn start_ike_rekey(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        group: Option<(Group, u8)>,
    ) {
        let spi = core.ike_spi();
        let mut groups = sa.connection.ike.iter().flat_map(|ike| &ike.groups);
        let first = groups.find(|group| group.is_first()).copied();
        // A connection without such a group has no IKE SA to replace.
        let Some(wanted) = group.map(|(group, _)| group).or(first) else {
            return;
        };
        let Ok(pending) = Pending::start(wanted, &mut *core.random) else {
            return;
        };
        let nonce = core.nonce();
        let proposals = proposals(&sa.connection, spi);
        let (method, data) = (wanted.id(), pending.public().to_vec());
        let payloads = [
            Payload::Sa(proposals.clone()),
            Payload::Nonce(nonce.clone()),
            Payload::Ke(KeyExchange { method, data }),
        ];
        let exchange = Exchange::RekeyIke(Box::new(IkeRekey {
            spi,
            nonce,
            pending,
            proposals,
            peer_rekey: None,
            group_changes: group.map_or(0, |(_, changes)| changes),
            further: None,
        }));
        self.send(sa, core, ExchangeType::CREATE_CHILD_SA, &payloads, exchange);
    }

    /// Gives what this IKE SA carries to its successor.
    pub(super) fn hand_over_to(&mut self, sa: &mut Common, core: &mut Core, to: IkeId) {
        self.cancel_pending_rekey(core);
        // The peer may have moved while the new one was made.
        let inherited = Box::new(self.hand_over(sa.channel.path, sa.nat));
        self.state = EstablishedState::Replaced;
        sa.deadline = Some(collision_deadline(core));
        // First the holder's count, so that the successor is there for it when it takes over.
        core.transfers.push(Transfer::Holds {
            ike: to,
            holder: self.auth.authorization().holder().clone(),
            most: self.auth.authorization().rates().ike_sas,
        });
        core.transfers.push(Transfer::Inherit {
            from: sa.id,
            to,
            inherited,
        });
    }

    /// Gives everything to the successor that the peer has made: it has decided for it, or is beyond reach.
    pub(super) fn hand_over_to_pending(&mut self, sa: &mut Common, core: &mut Core) {
        if let Some(Exchange::RekeyIke(ours)) = &self.exchange
            && let Some(peer) = &ours.peer_rekey
        {
            let successor = peer.successor;
            self.hand_over_to(sa, core, successor);
        }
    }

    /// Makes the new IKE SA, whose collision is pending until it inherits.
    pub(super) fn make_successor(
        &self,
        sa: &Common,
        core: &Core,
        (spis, initiator): (SpiPair, bool),
        suite: &IkeSuite,
        keys: IkeKeys,
    ) -> Option<Successor> {
        Some(Successor {
            id: IkeId(if initiator {
                spis.initiator
            } else {
                spis.responder
            }),
            connection: Arc::clone(&sa.connection),
            // Who the peer is and what it may have was settled once, and binds every successor.
            auth: self.auth.inherit(),
            // Before the endpoint hears of it: what it puts into its table must be able to speak.
            protection: protection(suite, &keys, initiator)?,
            keys,
            spis,
            initiator,
            path: sa.channel.path,
            nat: sa.nat,
            // What both announced in IKE_SA_INIT holds for every successor: it is never announced again.
            fragmentation: sa.channel.fragmentation,
            begun: sa.begun,
            mobility: self.mobility.clone(),
            crash_token: None,
            deadline: collision_deadline(core),
        })
    }
}

fn collision_deadline(core: &Core) -> crate::time::Timestamp {
    let lingers = core.limits.linger.saturating_mul(COLLISION_LINGERS);
    core.now.after(lingers)
}

impl IkeRekey {
    /// The peer's rekeying while ours is out: its lowest nonce, and its successor, if it is through.
    fn competing<'a>(&'a self, in_use: &'a Established) -> Option<(&'a [u8], Option<IkeId>)> {
        if let Some(peer) = &self.peer_rekey {
            return Some((&peer.lowest, Some(peer.successor)));
        }
        let pending = in_use.pending_rekey.as_ref();
        let pending = pending.filter(|pending| pending.is_ike())?;
        Some((pending.lowest(), None))
    }

    /// Whether the exchange with the lowest of the four nonces is ours: it loses (§2.8.2).
    fn loses(&self, in_use: &Established, nonces: &Nonces) -> bool {
        self.competing(in_use)
            .is_some_and(|(theirs, _)| nonces.lowest() < theirs)
    }

    /// Checks the response to CREATE_CHILD_SA.
    fn agreed(&self, payloads: &[Payload]) -> Option<Agreed> {
        let answer = find!(payloads, Payload::Sa)?;
        let ke = find!(payloads, Payload::Ke)?;
        let chosen = check_choice(&self.proposals, answer).ok()?;
        let suite = IkeSuite::from_wire(&chosen)?;
        let group = self.pending.group();
        if suite.group != group || ke.method != group.id() {
            return None;
        }
        Some(Agreed {
            suite,
            spis: SpiPair {
                initiator: self.spi,
                responder: chosen.spi64().filter(|spi| *spi != 0)?,
            },
            nonces: Nonces {
                initiator: self.nonce.clone(),
                responder: find!(payloads, Payload::Nonce)?.clone(),
            },
            shared: vec![self.pending.finish(&ke.data).ok()?],
            token: PeerToken::find(payloads),
        })
    }

    /// Takes the response to CREATE_CHILD_SA (RFC 7296 §1.3.2).
    ///
    /// ```text
    ///   <--  HDR, SK {SA, Nr, KEr [, N(QUICK_CRASH_DETECTION)]}   or
    ///   <--  HDR, SK {N(an error)}
    /// ```
    pub(super) fn on_response(
        mut self: Box<Self>,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        if let Some(error) = error_notify(payloads) {
            self.on_error(in_use, sa, core, error, payloads);
            return Ok(());
        }
        let Some(agreed) = self.agreed(payloads) else {
            return Err(Reason::Protocol("answer to IKE rekeying").into());
        };
        if agreed.suite.additional.is_empty() {
            return self.complete(in_use, sa, core, &agreed);
        }
        // Whoever loses leaves the costly rest out: both sides know now whose exchange it is.
        if self.loses(in_use, &agreed.nonces) {
            self.yield_to_peer(in_use, sa, core);
            return Ok(());
        }
        let followup = Followup::start(core, agreed.suite.additional.clone().into(), payloads)?;
        self.further = Some((followup, agreed));
        self.send_followup(in_use, sa, core);
        Ok(())
    }

    /// Takes the response to one of the further key exchanges (RFC 9370 §2.2.4).
    ///
    /// ```text
    /// HDR(IKE_FOLLOWUP_KE), SK {KEi(n), N(ADDITIONAL_KEY_EXCHANGE)}  -->
    ///                       <--  HDR(IKE_FOLLOWUP_KE), SK {KEr(n) [, N(ADDITIONAL_KEY_EXCHANGE)]}
    /// ```
    pub(super) fn on_followup_response(
        mut self: Box<Self>,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        if let Some(error) = error_notify(payloads) {
            self.on_error(in_use, sa, core, error, payloads);
            return Ok(());
        }
        let Some((followup, mut agreed)) = self.further.take() else {
            let reason = Reason::Protocol("response to another exchange");
            return Err(Failure::wrong_state(reason));
        };
        let (shared, next) = followup.finish(core, payloads)?;
        agreed.shared.push(shared);
        // The last response names the IKE SA by its token, since only then there is one.
        agreed.token = PeerToken::find(payloads).or(agreed.token);
        let Some(followup) = next else {
            return self.complete(in_use, sa, core, &agreed);
        };
        if self.loses(in_use, &agreed.nonces) {
            self.yield_to_peer(in_use, sa, core);
            return Ok(());
        }
        self.further = Some((followup, agreed));
        self.send_followup(in_use, sa, core);
        Ok(())
    }

    fn send_followup(self: Box<Self>, in_use: &mut Established, sa: &mut Common, core: &mut Core) {
        if let Some((followup, _)) = &self.further {
            followup.send(sa, core);
        }
        in_use.exchange = Some(Exchange::RekeyIke(self));
    }

    /// Makes the successor: all key exchanges of ours are through, and the peer has made its half.
    fn complete(
        &self,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        agreed: &Agreed,
    ) -> Result<(), Failure> {
        let lost = self.loses(in_use, &agreed.nonces);
        let Agreed { suite, spis, .. } = agreed;
        let keys = in_use
            .keys
            .rekeyed(suite, &agreed.shared, &agreed.nonces, *spis);
        let made =
            keys.and_then(|keys| in_use.make_successor(sa, core, (*spis, true), suite, keys));
        let Some(successor) = made else {
            return Err(Reason::Protocol("answer to IKE rekeying").into());
        };
        let ours = successor.id;
        core.spawned.push(Successor {
            crash_token: agreed.token.clone(),
            ..successor
        });
        if lost {
            // It exists at the peer, so we who made it delete it there (§2.8.2).
            core.transfers.push(Transfer::Discard(ours));
            self.yield_to_peer(in_use, sa, core);
            return Ok(());
        }
        in_use.hand_over_to(sa, core, ours);
        in_use.enqueue(core, Intent::DeleteIke(Reason::Replaced), core.now);
        Ok(())
    }

    /// Leaves it to the peer, which has made the successor or will. Should it not come to that, it is our
    /// turn again.
    fn yield_to_peer(&self, in_use: &mut Established, sa: &mut Common, core: &mut Core) {
        match &self.peer_rekey {
            Some(peer) => in_use.hand_over_to(sa, core, peer.successor),
            None => in_use.enqueue(core, Intent::RekeyIke, core.now),
        }
    }

    fn on_error(
        &self,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        error: NotifyType,
        payloads: &[Payload],
    ) {
        if self.competing(in_use).is_some() {
            return self.yield_to_peer(in_use, sa, core);
        }
        if error == NotifyType::INVALID_KE_PAYLOAD
            && self.further.is_none()
            && let Some(group) = demanded_group(payloads)
        {
            // Only what we offered, or the peer could talk us down.
            let mut offered = sa.connection.ike.iter();
            let offered = offered.any(|ike| ike.groups.contains(&group));
            if offered && group != self.pending.group() && self.group_changes < 2 {
                let changes = self.group_changes.saturating_add(1);
                in_use.start_ike_rekey(sa, core, Some((group, changes)));
                return;
            }
        }
        let pause = core.jittered(core.limits.retry_pause);
        let later = core.now.after(pause);
        let again = [NotifyType::TEMPORARY_FAILURE, NotifyType::STATE_NOT_FOUND];
        if again.contains(&error) {
            in_use.enqueue(core, Intent::RekeyIke, later);
        } else {
            core.event(Event::IkeRekeyFailed {
                ike: sa.id,
                reason: Reason::Refused(error),
            });
        }
    }
}

impl IkeSa {
    /// Deletes a successor of ours that lost against the peer's.
    pub(crate) fn discard(&mut self, core: &mut Core) -> Result<(), WrongState> {
        self.established_do(core, EventName::Discard, |established, sa, core| {
            established.state = EstablishedState::Redundant;
            let intent = Intent::DeleteIke(Reason::Redundant);
            established.enqueue(core, intent, core.now);
            established.pump(sa, core);
        })
    }
}
