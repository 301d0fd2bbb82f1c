//! The firewall's part of configuration files.

use serde::Deserialize;

use super::prefix::Prefix;

/// Whether packets without protection are held back while no tunnel takes them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct FirewallConfig {
    /// Mechanism that holds them back.
    pub enforce: Enforce,
    /// Networks that may be reached, and may reach us, without protection although a tunnel covers
    /// them: the SPD's BYPASS (RFC 4301 §4.4.1).
    pub bypass: Vec<Prefix>,
}

/// Mechanism that holds unprotected packets back.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Enforce {
    /// A table of the kernel's nftables.
    #[default]
    Nftables,
    /// Nothing: while the daemon does not run, packets for the other side leave in the clear.
    Off,
}
