//! Why packets are dropped, counted by cause, as `/proc/net/xfrm_stat` does for the kernel.

use crate::ip::IpError;
use crate::replay::Replayed;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident => $label:literal,)*) => {
        /// Every reason for which the data plane drops a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropCause { $($(#[$doc])* $name,)* }

        impl DropCause {
            /// All causes, in the order of [`DropCounters`].
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in metrics and status, in words joined by underscores.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

causes! {
    /// Not an IP packet, or one that contradicts itself.
    MalformedPacket => "malformed_packet",
    /// More IPv6 extension headers than are looked through, or ones that cannot be protected.
    UnsupportedHeader => "unsupported_header",
    /// No policy matches: what is not allowed is forbidden.
    NoPolicy => "no_policy",
    /// A policy says so.
    PolicyDiscard => "policy_discard",
    /// A policy wants protection and there is no security association yet.
    NoOutboundSa => "no_outbound_sa",
    /// The sequence numbers of an outbound association are used up.
    SequenceOverflow => "sequence_overflow",
    /// No more sequence numbers are on disk as used, without which a restart would repeat them.
    SequenceUnreserved => "sequence_unreserved",
    /// The hard lifetime of an association is over.
    Expired => "expired",
    /// Larger than the path takes, and not to be fragmented; the sender is told.
    TooBig => "too_big",
    /// A fragment where only whole datagrams can be protected (transport mode).
    FragmentInTransport => "fragment_in_transport",
    /// The packet's place in the buffer has no room for headers or trailer.
    NoRoom => "no_room",
    /// The crypto engine refused to protect the packet.
    SealFailed => "seal_failed",
    /// Too short to be an ESP or AH packet.
    Truncated => "truncated",
    /// No inbound association has this SPI.
    UnknownSpi => "unknown_spi",
    /// The SPI belongs to the other protocol, or to the other encapsulation.
    SaMismatch => "sa_mismatch",
    /// Sequence number zero, or of a round that never was.
    BadSequence => "bad_sequence",
    /// Older than the replay window.
    ReplayOld => "replay_old",
    /// Seen before.
    ReplayDuplicate => "replay_duplicate",
    /// The integrity value does not match.
    IntegrityFailed => "integrity_failed",
    /// Trailer or padding are not what RFC 4303 §2.4 says.
    BadPadding => "bad_padding",
    /// The payload is not what the association carries.
    BadNextHeader => "bad_next_header",
    /// Congestion marked outside on a packet that does not know of it (RFC 6040 §4.2).
    IllegalEcn => "illegal_ecn",
    /// Properly protected, but not by the association that its addresses and ports ask for.
    SelectorMismatch => "selector_mismatch",
    /// In the clear, where a policy wants protection.
    Unprotected => "unprotected",
    /// A dummy packet: sent to hide how much is sent, dropped as intended (RFC 4303 §2.6).
    Dummy => "dummy",
}

impl From<Replayed> for DropCause {
    fn from(error: Replayed) -> Self {
        match error {
            Replayed::Zero => Self::BadSequence,
            Replayed::TooOld => Self::ReplayOld,
            Replayed::Duplicate => Self::ReplayDuplicate,
        }
    }
}

impl From<IpError> for DropCause {
    fn from(error: IpError) -> Self {
        match error {
            IpError::TooManyExtensions => Self::UnsupportedHeader,
            IpError::Version | IpError::Truncated | IpError::Malformed => Self::MalformedPacket,
        }
    }
}

/// Dropped packets by cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounters([u64; DropCause::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DropCause::ALL.len()])
    }
}

impl DropCounters {
    pub(crate) fn count(&mut self, cause: DropCause) {
        if let Some(counter) = self.0.get_mut(cause as usize) {
            *counter += 1;
        }
    }

    /// Packets dropped for `cause`.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// All causes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.iter().copied().zip(self.0.iter().copied())
    }

    /// Packets dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
