//! Commands of the operator.

use crate::report::{Explanation, IkeStatus, TcpCounts};
use crate::resolve::ResolvedConfig;

/// Command of the operator.
pub enum Command {
    /// Asks for the state.
    Status,
    Explain,
    /// Close a connection and leave it closed.
    Down(String),
    /// Bring it up, also after [`Self::Down`].
    Connect(String),
    /// Replace the keys of a connection: of its IKE SAs and all their Child SAs.
    Rekey(String),
    /// Authenticate anew, by another IKE SA that takes the place of the one that is up.
    Reauthenticate(String),
    /// Take over a changed file.
    Reload(Box<ResolvedConfig>),
    /// Take over our certificates that were renewed in their files, and nothing else.
    Credentials(Box<ResolvedConfig>),
}

/// Reply to a command.
#[derive(Debug)]
pub enum Reply {
    Status(Box<IkeStatus>),
    /// Failures, the newest first.
    Explanations(Vec<Explanation>),
    /// Number of IKE SAs that are being closed.
    Closing(usize),
    /// It is on its way, or up.
    Connecting,
    /// Numbers of SAs that get new keys.
    Rekeying {
        ike_sas: usize,
        children: usize,
    },
    /// Names of connections that are new, changed, gone.
    Reloaded {
        added: Vec<String>,
        /// Changed ones; their tunnels come up anew.
        changed: Vec<String>,
        /// Those that are gone, with their tunnels.
        removed: Vec<String>,
        /// Those with renewed certificates of ours; their tunnels stay.
        renewed: Vec<String>,
    },
    /// Names of connections with renewed certificates of ours.
    Renewed {
        /// Those that show them from now on.
        renewed: Vec<String>,
        /// Those of whose files more has changed, for which it takes [`Command::Reload`].
        changed: Vec<String>,
    },
    /// It cannot be done; says why.
    Refused(String),
}

/// Counters of others than the protocol half.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherCounters {
    /// Datagrams that were dropped because it was busy.
    pub(crate) busy: u64,
    /// Audit events that could not be written.
    pub(crate) audit_errors: u64,
    /// Questions to OCSP responders.
    pub(crate) ocsp_questions: u64,
    /// IKE messages that did not fit the path.
    pub(crate) in_fragments: u64,
    /// TCP connections.
    pub(crate) tcp: TcpCounts,
    /// Peers that were decided about without an answer that was to come.
    pub(crate) ocsp_unanswered: u64,
}
