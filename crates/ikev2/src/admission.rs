//! What a first message must show before it costs us a key exchange (RFC 7296 §2.6).

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::sa::Core;
use crate::time::Timestamp;

/// Secrets for cookies: the current one and the one before.
pub(crate) struct Cookies {
    secrets: [Zeroizing<[u8; 32]>; 2],
    version: u8,
    changes_at: Timestamp,
}

impl Cookies {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            secrets: [Zeroizing::new([0; 32]), Zeroizing::new([0; 32])],
            version: 0,
            changes_at: now,
        }
    }

    /// Draws both secrets, so that neither is the initial zero.
    pub(crate) fn fill(&mut self, core: &mut Core) {
        self.rotate(core);
        self.changes_at = core.now;
        self.rotate(core);
    }

    /// The cookie for a first message.
    pub(crate) fn current(&self, nonce: &[u8], remote: SocketAddr, spi_i: u64) -> Option<Vec<u8>> {
        self.make(self.version, nonce, remote, spi_i)
    }

    /// Makes a new secret when the old one has served its time; the previous one stays valid.
    pub(crate) fn rotate(&mut self, core: &mut Core) {
        if core.now < self.changes_at {
            return;
        }
        let fresh = Zeroizing::new(core.bytes());
        self.secrets.swap(0, 1);
        if let Some(current) = self.secrets.first_mut() {
            *current = fresh;
        }
        self.version = self.version.wrapping_add(1);
        self.changes_at = core.now.after(core.limits.cookie_life);
    }

    /// Version, then HMAC over nonce, address and SPI (RFC 7296 §2.6).
    fn make(&self, version: u8, nonce: &[u8], remote: SocketAddr, spi_i: u64) -> Option<Vec<u8>> {
        let age = usize::from(self.version.wrapping_sub(version));
        let secret = self.secrets.get(age)?;
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &**secret));
        context.update(&[version]);
        context.update(nonce);
        context.update(remote.to_string().as_bytes());
        context.update(&spi_i.to_be_bytes());
        Some([&[version], context.sign().as_ref()].concat())
    }

    pub(crate) fn is_valid(
        &self,
        cookie: &[u8],
        nonce: &[u8],
        remote: SocketAddr,
        spi_i: u64,
    ) -> bool {
        let expected = cookie
            .first()
            .and_then(|version| self.make(*version, nonce, remote, spi_i));
        expected.is_some_and(|expected| bool::from(expected.ct_eq(cookie)))
    }
}
