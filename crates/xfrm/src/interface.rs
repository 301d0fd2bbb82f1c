//! XFRM interfaces: what is routed into one is for the policies and associations with its number.

use std::io;

use rustix::io::Errno;
use tunnel::StartError;
use tunnel::link::{self, LinkError};

use crate::error::XfrmError;

/// Bytes of the largest GSO super-packet; the kernel cuts it before it protects.
pub(crate) const GSO_MAX_SIZE: u32 = 65_536;

/// Creates an interface with a number.
///
/// # Errors
/// [`StartError`], naming what the kernel lacks.
pub(crate) async fn create(name: &str, number: u32) -> Result<(), StartError> {
    link::create_xfrm(name, number).await.map_err(uncreated)
}

/// A kernel without the kind of interface says "not supported".
pub(crate) fn uncreated(error: LinkError) -> StartError {
    match error.code() {
        Some(code) if code == Errno::OPNOTSUPP.raw_os_error() => XfrmError::Missing {
            what: "XFRM interfaces (module xfrm_interface)",
            source: io::Error::from_raw_os_error(code),
        }
        .into(),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_xfrm_interfaces_is_named() {
        let refused = |code: i32| {
            let mut message = rtnetlink::packet_core::ErrorMessage::default();
            message.code = std::num::NonZeroI32::new(code);
            LinkError::Refused {
                what: "interface cordon0".into(),
                source: rtnetlink::Error::NetlinkError(message),
            }
        };
        let text = uncreated(refused(-95)).to_string();
        assert!(
            text.starts_with("this kernel has no XFRM interfaces"),
            "{text}"
        );
        let text = uncreated(refused(-17)).to_string();
        assert!(text.starts_with("interface cordon0: "), "{text}");
    }
}
