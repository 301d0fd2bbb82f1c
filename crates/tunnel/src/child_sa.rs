//! Child SAs as whoever negotiates them speaks of them with a data plane.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipsec::lifetime::Expiry;
use ipsec::sa::{SaParameters, Spi};
use ipsec::selector::Selector;

use crate::outer::NextHop;

/// Names a trap to those who set it.
pub type TrapId = u32;

/// A negotiated Child SA as every data plane takes it.
pub struct ChildSa {
    /// For what is received. Its SPI is the Child SA's name.
    pub inbound: SaParameters,
    /// For what is sent.
    pub outbound: SaParameters,
    pub selectors: Vec<Selector>,
    /// Child SA whose keys it renews.
    pub replaces: Option<Spi>,
    /// Child SA for the same traffic, beside which it is for another worker (RFC 9611): which one, its inbound SPI says
    /// by its remainder by their number.
    pub beside: Option<Spi>,
    pub next_hop: NextHop,
    /// Place among other policies: smaller ones come first.
    pub order: u32,
    /// Bytes of the largest outer packet.
    pub path_mtu: u16,
    /// Bytes to which inner packets are padded, as far as the path takes them (RFC 4303 §2.7).
    pub tfc_padding: Option<u16>,
    /// Whether to send with it at once.
    pub send_now: bool,
}

/// Command to a data plane about Child SAs, by their inbound SPIs.
#[derive(Clone, Debug)]
pub enum ChildCommand {
    /// Send with it now.
    Switch(Spi),
    /// Send with it no more; receive for as long as packets may be on their way.
    Remove(Spi, Duration),
    /// Their packets go to another address.
    Move(Vec<Spi>, NextHop),
    /// Report packets that want protection while there is no Child SA.
    Trap(TrapId, u32, Vec<Selector>),
    /// Report them again: nothing came of it.
    Rearm(TrapId),
    /// Report them no more.
    Untrap(TrapId),
}

/// Event in a data plane that concerns Child SAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// A Child SA that does not send yet has received.
    FirstInbound(Spi),
    Acquire(TrapId),
    /// A Child SA (by its inbound SPI) has reached a limit.
    Expired(Spi, Expiry),
    /// The peer of a Child SA sends, so it lives.
    Alive(Spi),
    /// Packets go to the peer of a Child SA, and none come.
    OneWay(Spi),
    /// Packets of a Child SA come from there now.
    SourceChanged(Spi, SocketAddr),
    /// Somebody goes on sending to an SPI that is not ours.
    Unknown(IpAddr, u32),
}

/// Takes events; must not wait.
pub type EventSink = Box<dyn FnMut(ChildEvent) + Send>;
