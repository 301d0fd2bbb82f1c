//! Which devices have a session, and how one is ended.
//!
//! `client-kill` announces the end of a session, and a device that complies leaves. OpenVPN waits five seconds for that and
//! forwards packets meanwhile. So `kill` ends the sessions of devices that do not leave at once, without a notice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::management::{Client, Peer};

/// What a device has to leave by itself. Our choice: a few round trips of a slow bearer.
const GRACE: Duration = Duration::from_millis(500);
/// Pause before a session that is still there is cut off again.
const AGAIN: Duration = Duration::from_secs(1);
/// Sessions at most (our choice); OpenVPN's default is 1024.
const MAX_SESSIONS: usize = 65_536;

struct Session {
    peer: Peer,
    /// When it is cut off, after the request to leave.
    cut_at: Option<Instant>,
}

/// The sessions that OpenVPN has.
#[derive(Default)]
pub(super) struct Sessions(BTreeMap<Client, Session>);

impl Sessions {
    /// Takes a session into account; false if there are too many.
    pub(super) fn begin(&mut self, client: Client, peer: Peer) -> bool {
        if self.0.len() >= MAX_SESSIONS && !self.0.contains_key(&client) {
            return false;
        }
        let cut_at = self.0.get(&client).and_then(|session| session.cut_at);
        self.0.insert(client, Session { peer, cut_at });
        true
    }

    pub(super) fn end(&mut self, client: Client) {
        self.0.remove(&client);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Serial numbers of the certificates in use.
    pub(super) fn serials(&self) -> BTreeSet<String> {
        let live = self.0.values().filter(|session| session.cut_at.is_none());
        live.map(|session| session.peer.serial.clone()).collect()
    }

    /// Ends the sessions with a certificate; returns the commands for OpenVPN, and whose sessions they were.
    pub(super) fn refuse(&mut self, serial: &str, now: Instant) -> (Vec<String>, Vec<Peer>) {
        let (mut commands, mut peers) = (Vec::new(), Vec::new());
        for (client, session) in &mut self.0 {
            if session.peer.serial == serial && session.cut_at.is_none() {
                session.cut_at = now.checked_add(GRACE);
                commands.push(format!("client-kill {client}"));
                peers.push(session.peer.clone());
            }
        }
        (commands, peers)
    }

    /// When the next session is cut off.
    pub(super) fn next_cut(&self) -> Option<Instant> {
        self.0.values().filter_map(|session| session.cut_at).min()
    }

    /// Commands that end the sessions of devices that did not leave. They name the device, so its other sessions end and reconnect.
    pub(super) fn cut(&mut self, now: Instant) -> Vec<String> {
        let mut names = BTreeSet::new();
        for session in self.0.values_mut() {
            if session.cut_at.is_some_and(|at| at <= now) {
                session.cut_at = now.checked_add(AGAIN);
                names.insert(session.peer.name.clone());
            }
        }
        let command = |name: String| format!("kill {name}");
        names.into_iter().map(command).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(serial: &str, name: &str) -> Peer {
        Peer {
            serial: serial.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn refused_certificate_ends_its_sessions_and_cuts_off_who_stays() {
        let now = Instant::now();
        let mut sessions = Sessions::default();
        for (client, serial) in [(1, "a1"), (2, "b2"), (3, "a1")] {
            assert!(sessions.begin(client, peer(serial, &format!("camera-{serial}"))));
        }
        let (commands, peers) = sessions.refuse("a1", now);
        assert_eq!(commands, ["client-kill 1", "client-kill 3"]);
        assert_eq!(peers.len(), 2);
        assert!(sessions.refuse("a1", now).0.is_empty(), "told once");
        assert_eq!(sessions.serials().into_iter().collect::<Vec<_>>(), ["b2"]);
        assert!(sessions.cut(now).is_empty());
        sessions.end(1);
        let later = now + GRACE;
        assert_eq!(sessions.next_cut(), Some(later));
        assert_eq!(sessions.cut(later), ["kill camera-a1"]);
        assert!(sessions.cut(later).is_empty());
        assert_eq!(sessions.cut(later + AGAIN), ["kill camera-a1"]);
        sessions.end(3);
        assert_eq!(sessions.next_cut(), None);
    }

    #[test]
    fn session_that_ends_goes_on_ending_with_a_new_key() {
        let now = Instant::now();
        let mut sessions = Sessions::default();
        assert!(sessions.begin(1, peer("a1", "camera-1")));
        sessions.refuse("a1", now);
        assert!(sessions.begin(1, peer("b2", "camera-1")));
        assert_eq!(sessions.cut(now + GRACE), ["kill camera-1"]);
    }
}
