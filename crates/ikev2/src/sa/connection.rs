//! IKE SAs whose messages go over a TCP connection (RFC 9329).
//!
//! Who opened the connection opens it anew when it breaks, and the IKE SA goes on. The other side learns the new
//! connection by the first new message that authenticates, and uses it from then on (§6.1).

use super::common::Common;
use super::core::Core;
use super::intent::Intent;
use super::{IkeSa, State};
use crate::types::Path;

impl Common {
    /// Whether ESP goes inside UDP or TCP.
    pub(super) const fn encapsulates(&self) -> bool {
        self.nat.detected() || self.channel.path.is_tcp()
    }
}

impl IkeSa {
    /// Goes on over the connection that we have opened anew. What is out may be lost, and is repeated (RFC 9329 §6.2).
    pub(crate) fn reconnected(&mut self, core: &mut Core) {
        self.common.channel.retransmit_now(core);
        if let State::Established(established) = &mut self.state
            && established.is_live()
        {
            // A repetition shows the peer nothing: only a new message says which connection is in use (§6.1).
            established.enqueue(core, Intent::Liveness, core.now);
            established.pump(&mut self.common, core);
        }
    }

    /// The connection that the peer had opened is gone.
    pub(crate) const fn disconnected(&mut self) {
        self.common.channel.disconnected = true;
    }

    /// Whether an authenticated message over `path` moves this IKE SA there: its peer has opened another connection.
    pub(super) const fn follows_connection(&self, path: Path) -> bool {
        path.is_tcp() && self.common.channel.path.is_tcp()
    }
}
