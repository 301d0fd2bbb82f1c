//! What a peer of a connection may have.

use serde::Deserialize;

/// What a peer of a connection may have at most, besides the networks of its children.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct PeerConfig {
    /// Child SAs at once, from 1 to 64; at least as many as are configured.
    pub children: usize,
    /// Networks (prefixes) of all its Child SAs together, from 1 to 1024.
    pub networks: usize,
    /// Whether networks larger than a /8 may be routed to it, up to everything.
    pub default_route: bool,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self {
            children: 16,
            networks: 64,
            default_route: false,
        }
    }
}
