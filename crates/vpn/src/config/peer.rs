//! What a peer of a connection must show, and what it may have.

use std::path::PathBuf;

use ikev2::Rates;
use pki::profile::CaKind;
use serde::Deserialize;

use crate::requirement::kind;

/// Demands of a connection on its peers' certificates, and bounds of a peer, besides the
/// networks of its children.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct PeerConfig {
    /// Files with certificates of authorities (PEM), of which one must have issued the peer's certificate,
    /// or the one above it; any under `[trust]` unless given.
    pub authorities: Vec<PathBuf>,
    /// Whom the authority certifies: `users`, `devices` or `services`.
    #[serde(deserialize_with = "kind")]
    pub kind: Option<CaKind>,
    /// Domain that the peer's name is in.
    pub domain: Option<String>,
    /// Clearance at least, 1 to 4.
    pub min_clearance: Option<u8>,
    /// Organisational unit in the certificate's subject.
    pub unit: Option<String>,
    /// SHA-256 (64 hexadecimal digits) of public keys (SubjectPublicKeyInfo), of which the certificate must have
    /// one; several while the peer changes its key.
    pub pinned_keys: Vec<String>,
    /// Whether the certificate must lead to an authority as well. Without, a pinned key is enough.
    pub require_chain: bool,
    /// Child SAs at once, from 1 to 64; at least as many as are configured.
    pub children: usize,
    /// Networks (prefixes) of all its Child SAs together, from 1 to 1024.
    pub networks: usize,
    /// IKE SAs at once, from 1 to 1000; with one more the oldest ends.
    pub ike_sas: usize,
    /// Handshakes that succeed, in a minute.
    pub handshakes_per_minute: u32,
    /// Requests for new keys or Child SAs, in a minute.
    pub rekeys_per_minute: u32,
    /// Requests of any kind, in a second.
    pub requests_per_second: u32,
    /// Whether networks larger than a /8 may be routed to it, up to everything.
    pub default_route: bool,
}

impl PeerConfig {
    /// Returns the rates at which a peer may ask.
    pub(crate) const fn rates(&self) -> Rates {
        Rates {
            ike_sas: self.ike_sas,
            handshakes: self.handshakes_per_minute,
            rekeys: self.rekeys_per_minute,
            requests: self.requests_per_second,
        }
    }
}

impl Default for PeerConfig {
    fn default() -> Self {
        let rates = Rates::default();
        Self {
            ike_sas: rates.ike_sas,
            handshakes_per_minute: rates.handshakes,
            rekeys_per_minute: rates.rekeys,
            requests_per_second: rates.requests,
            authorities: Vec::new(),
            kind: None,
            domain: None,
            min_clearance: None,
            unit: None,
            pinned_keys: Vec::new(),
            require_chain: true,
            children: 16,
            networks: 64,
            default_route: false,
        }
    }
}
