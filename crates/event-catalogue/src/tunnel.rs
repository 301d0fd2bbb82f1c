//! Events of tunnel daemons.

use crate::macros::family;
use crate::{Recorded as _, Subject};

/// Beginning of the actions that tunnel daemons report.
pub const PREFIX: &str = "tunnel.";

pub(crate) const SUBJECT: Subject = Subject {
    name: "Tunnels",
    about: "Gateways record these in their journals, and the site takes them over.",
    events: &[Reported::ENTRIES],
};

family! {
    /// Event of a tunnel.
    Reported: What {
        /// An IKE SA is established.
        Up = "tunnel.up",
        /// An IKE SA ended.
        Down = "tunnel.down",
        /// The gateway refused an IKE SA.
        Refuse = "tunnel.refuse",
        /// The peer's certificate was revoked.
        Revoke = "tunnel.revoke",
        /// A Child SA is established.
        ChildUp = "tunnel.child-up",
        /// A Child SA ended.
        ChildDown = "tunnel.child-down",
        /// The gateway refused a Child SA.
        ChildRefuse = "tunnel.child-refuse",
        /// The gateway has a new certificate.
        CertificateRenew = "tunnel.certificate-renew",
        /// The journal continues although nothing happened.
        Alive = "tunnel.alive",
        /// More events of one peer than are recorded one by one, or than there was room for.
        More = "tunnel.more",
    }
    on ["tunnel/"] ends [Ok, Deny] Routine TUNNEL_OTHER with [Shipped]
    {
        /// Address of the peer.
        remote: Option<String> = "remote" personal,
        /// Association or certificate.
        sa: Option<String> = "sa",
    }
}
