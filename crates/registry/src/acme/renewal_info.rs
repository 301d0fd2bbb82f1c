//! When a certificate is to be renewed (RFC 9773), for whoever has it.

use pki::acme::from_base64url;
use pki::cert;
use pki::profile::{CaKind, Profile};
use time::{Duration, OffsetDateTime};

use crate::{Registry, RegistryError};

/// Longest identifier of a certificate: two numbers of at most 20 bytes each, as base64url.
const MAX_ID: usize = 64;

/// The time in which a client is to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: OffsetDateTime,
    pub(super) end: OffsetDateTime,
}

impl Window {
    /// From two thirds of a certificate's life to five sixths, so that not all of one day come at once; over already, for
    /// one that is revoked.
    fn of(issued: OffsetDateTime, end: OffsetDateTime, revoked: Option<OffsetDateTime>) -> Self {
        if let Some(at) = revoked {
            return Self {
                start: at - Duration::DAY,
                end: at,
            };
        }
        let sixth = (end - issued) / 6;
        Self {
            start: end - sixth * 2,
            end: end - sixth,
        }
    }
}

impl Registry {
    /// The window of a server's certificate, by its identifier (section 4.1): key identifier of its authority, and serial
    /// number. `None` if there is no such certificate.
    pub(super) async fn renewal_window(&self, id: &str) -> Result<Option<Window>, RegistryError> {
        if id.len() > MAX_ID {
            return Ok(None);
        }
        let parts = id.split_once('.');
        let parts = parts.map(|(key, serial)| (from_base64url(key), from_base64url(serial)));
        let Some((Some(authority), Some(serial))) = parts else {
            return Ok(None);
        };
        let serial = cert::serial_to_hex(&serial);
        let record = match self.issued(CaKind::Services, &serial).await {
            Ok(record) => record,
            Err(RegistryError::UnknownSerial { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let certificate = cert::from_der(&record.certificate)?;
        let of_server = record.profile == Profile::NetworkServer.to_string();
        if !of_server || cert::authority_key_id(&certificate) != Some(authority) {
            return Ok(None);
        }
        let revoked = record.revoked.map(|revoked| revoked.at);
        Ok(Some(Window::of(
            record.issued_at,
            record.not_after,
            revoked,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_in_the_last_third_and_over_for_what_is_revoked() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let day = |n| start + Duration::days(n);
        let window = Window::of(start, day(360), None);
        assert_eq!((window.start, window.end), (day(240), day(300)));
        let window = Window::of(start, day(360), Some(day(9)));
        assert_eq!((window.start, window.end), (day(8), day(9)));
    }
}
