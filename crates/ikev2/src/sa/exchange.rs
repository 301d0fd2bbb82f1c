//! Our exchanges that are out and those that wait, each with what it needs: plain data. What is done with them is
//! in the files of the exchanges, when it is done in `schedule.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::child::{Negotiated, Offer};
use super::child_sa::Traffic;
use super::core::Core;
use crate::crash::PeerToken;
use crate::crypto::{Group, Pending, Shared};
use crate::event::Reason;
use crate::select::IkeSuite;
use crate::time::Timestamp;
use crate::types::{IkeId, Nonces, Path, SpiPair};
use crate::wire::Proposal;

/// Our exchange that is out, with what it needs once the response comes.
pub(crate) enum Exchange {
    Child(Box<ChildExchange>),
    RekeyIke(Box<IkeRekey>),
    DeleteChild(DeleteChild),
    DeleteUnaccepted(DeleteUnaccepted),
    DeleteIke(DeleteIke),
    UpdateAddresses(AddressUpdate),
    CheckPath(PathCheck),
    Liveness(Liveness),
    Confirm(Liveness),
    /// Its response says no more than that it was heard.
    Notification,
}

impl Exchange {
    /// Lets go what nobody asks for any more.
    pub(crate) fn release(self, core: &mut Core) {
        match self {
            Self::Child(exchange) => core.free_esp_spi(exchange.offer.spi_in),
            Self::DeleteUnaccepted(exchange) => core.free_esp_spi(exchange.spi_in),
            _ => {}
        }
    }

    pub(super) const fn is_informational(&self) -> bool {
        !matches!(self, Self::Child(_) | Self::RekeyIke(_))
    }

    /// Whether it deletes this Child SA.
    pub(super) fn deletes_child(&self, spi_in: u32) -> bool {
        matches!(self, Self::DeleteChild(exchange) if exchange.spi_in == spi_in)
    }
}

/// The peer's rekeying of the same Child SA, which was done while our request was out.
pub(crate) struct PeerRekey {
    /// The Child SA that it made.
    pub(crate) spi_in: u32,
    /// The lower of the two nonces of its exchange.
    pub(crate) lowest: Vec<u8>,
}

/// Purpose of a CREATE_CHILD_SA of ours for a Child SA.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// A Child SA as it is configured.
    New,
    /// A successor of the one with this inbound SPI.
    Rekey(u32),
    /// One more with this traffic, for another resource.
    Resource(Arc<Traffic>),
}

impl Purpose {
    /// Inbound SPI of the Child SA to be replaced.
    pub(super) const fn rekeys(&self) -> Option<u32> {
        match self {
            Self::Rekey(spi_in) => Some(*spi_in),
            Self::New | Self::Resource(_) => None,
        }
    }
}

/// Our CREATE_CHILD_SA for a Child SA, from the request to the last response.
pub(crate) struct ChildExchange {
    pub(crate) offer: Offer,
    pub(crate) nonce: Vec<u8>,
    pub(super) purpose: Purpose,
    /// Inbound SPI of the Child SA to be replaced.
    pub(crate) rekeys: Option<u32>,
    pub(crate) peer_rekey: Option<PeerRekey>,
    /// The peer deleted what we are replacing.
    pub(crate) old_gone: bool,
    pub(super) group_changes: u8,
    /// Agreement of the response, while further key exchanges are under way.
    pub(super) further: Option<Further>,
}

/// Further key exchanges for a Child SA, with what the response to the first agreed to.
pub(crate) struct Further {
    pub(super) new: Negotiated,
    pub(super) nonces: Nonces,
    pub(super) followup: Followup,
}

/// The peer's rekeying of the IKE SA, which was done while our request was out.
pub(crate) struct PeerIkeRekey {
    pub(super) successor: IkeId,
    pub(super) lowest: Vec<u8>,
}

/// Our CREATE_CHILD_SA for a new IKE SA, from the request to the last response.
pub(crate) struct IkeRekey {
    pub(super) spi: u64,
    pub(super) nonce: Vec<u8>,
    pub(super) pending: Pending,
    pub(super) proposals: Vec<Proposal>,
    pub(super) peer_rekey: Option<PeerIkeRekey>,
    pub(super) group_changes: u8,
    /// While further key exchanges are under way: the one that is out, and what the response agreed to.
    pub(super) further: Option<(Followup, Agreed)>,
}

/// Agreement of the response to our request.
pub(crate) struct Agreed {
    pub(super) suite: IkeSuite,
    pub(super) spis: SpiPair,
    pub(super) nonces: Nonces,
    pub(super) shared: Vec<Shared>,
    pub(super) token: Option<PeerToken>,
}

/// Our further key exchanges: the one that is out, and those to come.
pub(crate) struct Followup {
    pub(super) pending: Pending,
    pub(super) remaining: VecDeque<Group>,
    pub(super) link: Vec<u8>,
}

/// Rekeying that the peer completes by further key exchanges. There is one at a time: another
/// CREATE_CHILD_SA of the peer takes its place.
pub(crate) struct PendingRekey {
    pub(super) link: [u8; 8],
    pub(super) remaining: VecDeque<Group>,
    pub(super) nonces: Nonces,
    pub(super) agreement: Agreement,
    /// When the peer counts as not coming back to it.
    pub(super) expires: Timestamp,
}

/// Agreement with the peer about what its key exchanges are for.
pub(crate) enum Agreement {
    /// A Child SA, and the inbound SPI of the one that it replaces.
    Child(Negotiated, Option<u32>),
    /// A successor of the IKE SA: algorithms, SPIs, secrets so far.
    Ike(IkeSuite, SpiPair, Vec<Shared>),
}

/// Our deletion of a Child SA.
pub(crate) struct DeleteChild {
    pub(super) spi_in: u32,
    pub(super) reason: Reason,
}

/// Our deletion of what the peer made and we did not accept.
pub(crate) struct DeleteUnaccepted {
    pub(super) spi_in: u32,
}

/// Our deletion of the IKE SA.
pub(crate) struct DeleteIke {
    pub(super) reason: Reason,
}

/// Our question whether the peer lives.
pub(crate) struct Liveness;

/// Our update of addresses, over the path that it names.
pub(crate) struct AddressUpdate {
    pub(super) path: Path,
}

/// Our check whether the peer receives at its new address.
pub(crate) struct PathCheck {
    pub(super) cookie: [u8; 16],
    pub(super) path: Path,
}
