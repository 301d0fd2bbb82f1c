//! Bounds of messages and transactions, and random numbers for them.

use time::Duration;

use crate::RegistryError;

/// Distance at most between the time of a message and ours. Our choice: what a device's clock drifts in months without setting.
pub const CLOCK_WINDOW: Duration = Duration::minutes(5);

/// Time for which a message is remembered: one that is ahead of our clock may come again until twice the window is over.
pub(super) const KEPT: Duration = Duration::minutes(15);
/// Transactions of one certificate or invitation in that time. Our choice: a device that loses every answer asks once a
/// minute and gets through.
pub(super) const MOST_KEPT: i64 = 20;
/// Time for which a certificate waits to be confirmed; it is good without.
pub(super) const CONFIRM_WITHIN: Duration = Duration::minutes(5);
/// Transactions that wait, of all and of one sender; the oldest gives way.
pub(super) const MOST_WAITING: usize = 2048;
pub(super) const MOST_WAITING_OF_ONE: usize = 4;

/// Sixteen random bytes: a nonce, or a salt.
pub(super) fn random() -> Result<[u8; 16], RegistryError> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
    Ok(bytes)
}
