//! Figures of an endpoint, and why it refuses its caller.

/// Why the caller cannot have what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// No connection of that name.
    #[error("no such connection")]
    Connection,
    /// No such IKE SA, or it has been replaced or is closing.
    #[error("no such IKE SA")]
    IkeSa,
    /// No such Child SA or child configuration.
    #[error("no such Child SA")]
    Child,
    /// The connection has no proposal with a key exchange that can come first.
    #[error("connection has no usable proposal")]
    Proposal,
}

/// Figures for the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that are no IKE message.
    pub malformed: u64,
    /// Messages for IKE SAs that we do not know.
    pub unknown_spi: u64,
    /// First messages dropped because too many handshakes are going on.
    pub half_open_limit: u64,
    /// Handshakes that made room for another peer's.
    pub displaced: u64,
    /// Fragments of peers that have not proved who they are, for which there was no room.
    pub fragments_dropped: u64,
    /// Cookies demanded.
    pub cookies_sent: u64,
    /// Puzzles demanded along with them.
    pub puzzles_sent: u64,
    /// First messages without a proposal in common.
    pub no_proposal: u64,
    /// Events that had no place in the state of their IKE SA; [`super::Endpoint::wrong_states`] has them by pair.
    pub wrong_state: u64,
}
