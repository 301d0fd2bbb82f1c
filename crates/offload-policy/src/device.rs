//! A crypto device as the policy sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

use crate::operation::Operation;
use crate::policy::Quarantine;

/// A key that a device may hold; overwritten there when the last user of the key ends.
pub struct DeviceKey {
    id: u64,
    bytes: Zeroizing<Vec<u8>>,
    device: Arc<dyn Device>,
}

impl DeviceKey {
    pub(crate) fn new(device: Arc<dyn Device>, bytes: &[u8]) -> Self {
        // Numbers are never used twice in a process: a device's table cannot mistake a new key for an
        // old one.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            bytes: Zeroizing::new(bytes.to_vec()),
            device,
        }
    }

    /// A number that no other key of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for DeviceKey {
    fn drop(&mut self) {
        self.device.forget(self.id);
    }
}

/// Work for a device.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The operation to carry out.
    pub operation: Operation,
    /// Key of the cipher or of the HMAC.
    pub key: &'a DeviceKey,
    /// Nonce of 12 bytes for GCM, vector or first counter of 16 for CBC and CTR; else empty.
    pub iv: &'a [u8],
    /// Associated data of GCM; else empty.
    pub aad: &'a [u8],
    /// The data, without a tag.
    pub data: &'a [u8],
    /// Tag that came with a message to open; else empty.
    pub tag: &'a [u8],
}

/// A reason why a device has no result.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// More requests are under way than the device takes; nothing is wrong with it.
    #[error("the device is busy")]
    Busy,
    /// The tag that the device computed is not the message's. The sender may be the reason.
    #[error("the tag is wrong")]
    Tag,
    /// The device or its driver failed.
    #[error("the device failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A device that processes whole requests, for several threads.
///
/// Implementations are drivers, which are trusted; what they talk to is not. A driver compares tags
/// itself, bounds the time of a call, and gives out bytes that the hardware cannot change any more.
pub trait Device: Send + Sync {
    /// The name for people and logs.
    fn name(&self) -> &str;

    /// Says whether the device has the operation with a key of `key_len` bytes.
    fn supports(&self, operation: Operation, key_len: usize) -> bool;

    /// Most bytes of associated data and data of a request, a multiple of 16.
    fn max_len(&self) -> usize;

    /// Carries a request out: the data, then the tag ([`Operation::result_len`]).
    ///
    /// # Errors
    /// [`DeviceError`].
    fn run(&self, request: &Request<'_>) -> Result<Zeroizing<Vec<u8>>, DeviceError>;

    /// Carries requests of one key out, several at the same time where the device can; a result for each, in
    /// their order.
    fn run_batch(&self, requests: &[Request<'_>]) -> Vec<Result<Zeroizing<Vec<u8>>, DeviceError>> {
        requests.iter().map(|request| self.run(request)).collect()
    }

    /// Overwrites the key with this number, if the device holds it.
    fn forget(&self, id: u64);

    /// Hears that it is used no more. Nothing follows from it but a record.
    fn quarantined(&self, reason: &Quarantine) {
        let _ = reason;
    }
}
