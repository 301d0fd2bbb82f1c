//! What a first message must show before it costs us a key exchange (RFC 7296 §2.6).

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::sa::Core;
use crate::time::Timestamp;
use crate::types::Path;

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

    /// The cookie for a first message that comes with a puzzle of so many bits, or without one.
    pub(crate) fn current(
        &self,
        bits: u8,
        nonce: &[u8],
        path: Path,
        spi_i: u64,
    ) -> Option<Vec<u8>> {
        self.make([self.version, bits], nonce, path, spi_i)
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

    /// Version and bits of the puzzle, then HMAC over them, nonce, address and SPI (RFC 7296 §2.6).
    fn make(&self, head: [u8; 2], nonce: &[u8], path: Path, spi_i: u64) -> Option<Vec<u8>> {
        // It may come back over another TCP connection, whose port is another one (RFC 9329 §6.3).
        let from = match path.is_tcp() {
            true => path.remote.ip().to_string(),
            false => path.remote.to_string(),
        };
        let [version, _] = head;
        let age = usize::from(self.version.wrapping_sub(version));
        let secret = self.secrets.get(age)?;
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &**secret));
        context.update(&head);
        context.update(nonce);
        context.update(from.as_bytes());
        context.update(&spi_i.to_be_bytes());
        Some([&head, context.sign().as_ref()].concat())
    }

    /// The bits of the puzzle that came with a cookie of ours; none if it is not one.
    pub(crate) fn check(&self, cookie: &[u8], nonce: &[u8], path: Path, spi_i: u64) -> Option<u8> {
        let head = *cookie.first_chunk::<2>()?;
        let expected = self.make(head, nonce, path, spi_i)?;
        let [_, bits] = head;
        bool::from(expected.ct_eq(cookie)).then_some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_for_one_port_over_udp_and_for_one_host_over_tcp() {
        let cookies = Cookies::new(Timestamp::default());
        let local = "192.0.2.1:4500".parse().unwrap();
        let tcp = |remote: &str| Path::tcp(local, remote.parse().unwrap());
        let udp = |remote: &str| Path::udp(local, remote.parse().unwrap());
        let made = |path| cookies.current(7, b"nonce", path, 1).unwrap();
        let checked = |cookie: &[u8], path| cookies.check(cookie, b"nonce", path, 1);
        let cookie = made(tcp("203.0.113.1:40000"));
        assert_eq!(checked(&cookie, tcp("203.0.113.1:40001")), Some(7));
        assert_eq!(checked(&cookie, tcp("203.0.113.2:40000")), None);
        assert_eq!(checked(&cookie, udp("203.0.113.1:40000")), None);
        let cookie = made(udp("203.0.113.1:40000"));
        assert_eq!(checked(&cookie, udp("203.0.113.1:40000")), Some(7));
        assert_eq!(checked(&cookie, udp("203.0.113.1:40001")), None);
    }
}
