//! Password sessions, and the tokens that protect forms.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq as _;

use crate::identity::Epoch;

/// The cookie; its prefix binds it to this host and to TLS (RFC 6265bis section 4.1.3.2).
pub(crate) const COOKIE: &str = "__Host-cordon";

/// Bounds of password sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// A session nobody used for this long ends.
    pub idle: Duration,
    /// A session ends after this long in any case.
    pub lifetime: Duration,
    /// Sessions at a time; the oldest makes room.
    pub count: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15 * 60),
            lifetime: Duration::from_secs(8 * 3600),
            count: 10_000,
        }
    }
}

#[derive(Debug)]
struct Session {
    uid: String,
    epoch: Epoch,
    /// Name of the session for applications; it opens nothing.
    id: String,
    since: SystemTime,
    started: Instant,
    used: Instant,
}

/// All password sessions of this process; they do not survive a restart.
///
/// Logins by certificate need none: each request proves itself.
pub struct Sessions {
    limits: SessionLimits,
    /// Keyed by the hash of the cookie's value, so that memory holds nothing that can be replayed.
    open: Mutex<HashMap<[u8; 32], Session>>,
    form_key: hmac::Key,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The system gives no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

impl Sessions {
    /// No sessions yet.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn new(limits: SessionLimits) -> Result<Self, NoRandomness> {
        let form_key = hmac::Key::new(hmac::HMAC_SHA256, &random()?);
        Ok(Self {
            limits,
            open: Mutex::default(),
            form_key,
        })
    }

    /// Opens a session and returns the cookie's value.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub(crate) fn start(
        &self,
        uid: &str,
        epoch: Epoch,
        now: Instant,
    ) -> Result<String, NoRandomness> {
        let value = hex::encode(random()?);
        let id = hex::encode(random()?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, s| self.alive(s, now));
        if open.len() >= self.limits.count
            && let Some(oldest) = open.iter().min_by_key(|(_, s)| s.used).map(|(k, _)| *k)
        {
            open.remove(&oldest);
        }
        open.insert(
            key(&value),
            Session {
                uid: uid.to_owned(),
                epoch,
                id,
                since: SystemTime::now(),
                started: now,
                used: now,
            },
        );
        Ok(value)
    }

    /// Whose session the cookie opens, and in which epoch it began; counts as use.
    pub(crate) fn find(&self, cookie: &str, now: Instant) -> Option<(String, Epoch)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get_mut(&key(cookie))?;
        if !self.alive(session, now) {
            open.remove(&key(cookie));
            return None;
        }
        session.used = now;
        Some((session.uid.clone(), session.epoch))
    }

    /// Name of the session that the cookie opens, and when it began.
    pub(crate) fn named(&self, cookie: &str) -> Option<(String, SystemTime)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get(&key(cookie))?;
        Some((session.id.clone(), session.since))
    }

    /// Names of the sessions that are open.
    pub(crate) fn open(&self, now: Instant) -> HashSet<String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| self.alive(session, now));
        open.values().map(|session| session.id.clone()).collect()
    }

    /// Name of the session of a certificate, which lasts as long as this process.
    pub(crate) fn of_certificate(&self, fingerprint: &str) -> String {
        let text = format!("session {fingerprint}");
        hex::encode(hmac::sign(&self.form_key, text.as_bytes()))
    }

    /// Ends the session and says whose it was.
    pub(crate) fn end(&self, cookie: &str) -> Option<String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&key(cookie)).map(|s| s.uid)
    }

    fn alive(&self, session: &Session, now: Instant) -> bool {
        now.saturating_duration_since(session.used) < self.limits.idle
            && now.saturating_duration_since(session.started) < self.limits.lifetime
    }

    /// The token that forms for `holder` (a certificate's fingerprint or a cookie) must carry.
    ///
    /// Browsers attach certificates and cookies to requests that foreign pages start; they cannot
    /// know this value.
    pub(crate) fn form_token(&self, holder: &str) -> String {
        hex::encode(hmac::sign(&self.form_key, holder.as_bytes()))
    }

    /// Whether `token` is the holder's.
    pub(crate) fn form_token_matches(&self, holder: &str, token: &str) -> bool {
        self.form_token(holder)
            .as_bytes()
            .ct_eq(token.as_bytes())
            .into()
    }
}

fn random() -> Result<[u8; 32], NoRandomness> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

fn key(cookie: &str) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, cookie.as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(digest.as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch([3, 4]);

    fn sessions(count: usize) -> Sessions {
        let limits = SessionLimits {
            count,
            ..SessionLimits::default()
        };
        Sessions::new(limits).unwrap()
    }

    #[test]
    fn a_session_ends_by_idling_by_age_and_by_logout() {
        let s = sessions(8);
        let start = Instant::now();
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        let idle = s.start("officer-1", EPOCH, start).unwrap();
        assert_eq!(
            s.find(&idle, minutes(14)),
            Some(("officer-1".to_owned(), EPOCH))
        );
        assert_eq!(s.find(&idle, minutes(30)), None);

        let old = s.start("officer-2", EPOCH, start).unwrap();
        for n in (0..480).step_by(10) {
            assert!(s.find(&old, minutes(n)).is_some(), "after {n} minutes");
        }
        assert_eq!(s.find(&old, minutes(480)), None);

        let left = s.start("officer-3", EPOCH, start).unwrap();
        let (id, _) = s.named(&left).unwrap();
        assert!(s.open(start).contains(&id) && id != left);
        assert_eq!(s.end(&left).as_deref(), Some("officer-3"));
        assert_eq!(s.find(&left, start), None);
        assert!(s.named(&left).is_none() && !s.open(start).contains(&id));
    }

    #[test]
    fn the_longest_unused_session_makes_room() {
        let s = sessions(2);
        let start = Instant::now();
        let first = s.start("a", EPOCH, start).unwrap();
        let second = s.start("b", EPOCH, start + Duration::from_secs(1)).unwrap();
        s.find(&first, start + Duration::from_secs(2)).unwrap();
        let third = s.start("c", EPOCH, start + Duration::from_secs(3)).unwrap();
        let now = start + Duration::from_secs(4);
        assert!(s.find(&second, now).is_none());
        assert!(s.find(&first, now).is_some() && s.find(&third, now).is_some());
    }

    #[test]
    fn form_tokens_belong_to_their_holder_and_process() {
        let (one, other) = (sessions(1), sessions(1));
        let token = one.form_token("fingerprint");
        assert!(one.form_token_matches("fingerprint", &token));
        assert!(!one.form_token_matches("another", &token));
        assert!(!one.form_token_matches("fingerprint", ""));
        assert!(!other.form_token_matches("fingerprint", &token));
    }
}
