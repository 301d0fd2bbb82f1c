//! Bounds of requests.

use std::time::Duration;

/// Time for which a nonce is good. Our choice: a client asks for one and uses it, and otherwise is told to take another.
pub(super) const NONCE_LIFETIME: Duration = Duration::from_secs(900);
/// Nonces that are remembered as used, of accounts and of strangers each: 16 bytes and the tree's share. With more, the oldest
/// half is refused altogether, so that none is taken twice.
pub(super) const MOST_USED: usize = 32_768;

/// Requests of one account. Our choice: an order with its certificate takes ten.
pub(super) const REQUESTS: audit::RepeatBounds = audit::RepeatBounds {
    recorded: 300,
    interval: Duration::from_secs(900),
    causes: 10_000,
};

/// Seconds after which a client that asked too often is told to come back.
pub(super) const RETRY_AFTER: u32 = 900;
