//! CREATE_CHILD_SA for the IKE SA itself, as the exchange's responder (RFC 7296 §1.3.2, §2.8.2, §2.25.2).

use super::child::respond_key_exchange;
use super::common::Common;
use super::core::Core;
use super::create_child_responder::later;
use super::established::Established;
use super::exchange::{Agreement, Exchange, PeerIkeRekey};
use super::payloads::find;
use super::refusal::Refusal;
use super::rekey_ike::proposals;
use crate::crypto::Shared;
use crate::event::Reason;
use crate::select::{IkeSuite, choose};
use crate::types::{Nonces, SpiPair};
use crate::wire::{NotifyType, Payload, Proposal};

fn syntax() -> Refusal {
    Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("IKE rekeying"))
}

impl Established {
    /// Whether an exchange of ours or a successor stands against the peer's rekeying (§2.25.2): what moves with
    /// the IKE SA must not be half made or half deleted.
    fn refuses_ike_rekey(&self) -> bool {
        let busy = match &self.exchange {
            Some(Exchange::RekeyIke(ours)) => ours.peer_rekey.is_some(),
            Some(
                Exchange::Child(_)
                | Exchange::DeleteChild(_)
                | Exchange::DeleteUnaccepted(_)
                | Exchange::DeleteIke(_),
            ) => true,
            Some(
                Exchange::Liveness(_)
                | Exchange::Confirm(_)
                | Exchange::UpdateAddresses(_)
                | Exchange::CheckPath(_)
                | Exchange::Notification,
            )
            | None => false,
        };
        busy || !self.is_live() || self.successor.is_some()
    }

    /// Answers the peer's wish for a new IKE SA (RFC 7296 §1.3.2).
    ///
    /// ```text
    /// HDR, SK {SA, Ni, KEi}  -->
    ///         <--  HDR, SK {SA, Nr, KEr [, N(ADDITIONAL_KEY_EXCHANGE)] [, N(QUICK_CRASH_DETECTION)]}
    /// ```
    pub(super) fn answer_ike_rekey(
        &mut self,
        sa: &Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        if self.refuses_ike_rekey() {
            return Err(later());
        }
        let offered = find!(payloads, Payload::Sa).ok_or_else(syntax)?;
        let ke = find!(payloads, Payload::Ke).ok_or_else(syntax)?;
        let nonce_i = find!(payloads, Payload::Nonce).ok_or_else(syntax)?;
        let chosen = choose(&proposals(&sa.connection, 0), offered, Some(ke.method));
        let chosen = chosen.map_err(|failure| {
            Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN, Reason::Negotiation(failure))
        })?;
        let suite = IkeSuite::from_wire(&chosen).ok_or_else(syntax)?;
        // In the proposal is the SPI of the new IKE SA; zero means none (§3.3.1).
        let spi_i = chosen.spi64().filter(|spi| *spi != 0).ok_or_else(syntax)?;
        let (public, shared) =
            respond_key_exchange(core, Some(suite.group), Some(ke))?.ok_or_else(syntax)?;
        let spis = SpiPair {
            initiator: spi_i,
            responder: core.ike_spi(),
        };
        let nonces = Nonces {
            initiator: nonce_i.clone(),
            responder: core.nonce(),
        };
        let mut reply = vec![
            Payload::Sa(vec![Proposal {
                spi: spis.responder.to_be_bytes().to_vec(),
                ..chosen
            }]),
            Payload::Nonce(nonces.responder.clone()),
            Payload::Ke(public),
        ];
        if suite.additional.is_empty() {
            self.make_peers_successor(sa, core, &suite, spis, &nonces, &[shared])?;
            reply.extend(core.crash_secret.as_ref().map(|secret| secret.token(spis)));
        } else {
            let agreement = Agreement::Ike(suite, spis, vec![shared]);
            reply.push(self.await_followup(core, nonces, agreement));
        }
        Ok(reply)
    }

    /// Makes the successor that the peer has asked for, after all its key exchanges.
    pub(super) fn make_peers_successor(
        &mut self,
        sa: &Common,
        core: &mut Core,
        suite: &IkeSuite,
        spis: SpiPair,
        nonces: &Nonces,
        shared: &[Shared],
    ) -> Result<(), Refusal> {
        let keys = self.keys.rekeyed(suite, shared, nonces, spis);
        let keys = keys.ok_or_else(syntax)?;
        let made = self.make_successor(sa, core, (spis, false), suite, keys);
        let made = made.ok_or_else(syntax)?;
        let successor = made.id;
        match &mut self.exchange {
            // Both sides replace it: the nonces decide when our response comes.
            Some(Exchange::RekeyIke(ours)) => {
                let lowest = nonces.lowest().to_vec();
                ours.peer_rekey = Some(PeerIkeRekey { successor, lowest });
            }
            _ => self.successor = Some(successor),
        }
        core.spawned.push(made);
        Ok(())
    }

    /// Has the successor take over, once the answer to the peer's rekeying is out.
    pub(super) fn after_ike_rekey_answer(&mut self, sa: &mut Common, core: &mut Core) {
        if let Some(successor) = self.successor.take() {
            self.hand_over_to(sa, core, successor);
        }
    }
}
