//! Why the kernel does not do what it should.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;
use tunnel::StartError;
use tunnel::data_plane::DataPlaneError;

/// Why the kernel does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum XfrmError {
    #[error("this kernel has no {what}: {source}")]
    Missing {
        what: &'static str,
        source: io::Error,
    },
    /// Talking to it failed.
    #[error("netlink: {0}")]
    Netlink(io::Error),
    /// Somebody else installed it, or a tunnel that was killed left it behind.
    #[error("{0} is there already: see `ip xfrm state` and `ip xfrm policy`")]
    Exists(String),
    #[error("{what}: {source}{words}")]
    Refused {
        what: String,
        /// Its own words in brackets, if it had any.
        words: String,
        source: io::Error,
    },
    /// A daemon that runs in this network namespace has the number.
    #[error("another daemon has XFRM interface number {0}")]
    Claimed(u32),
    /// The socket that receives ESP in UDP.
    #[error("UDP socket on {address}: {source}")]
    Encapsulation {
        /// Address to which it was to be bound.
        address: SocketAddr,
        source: io::Error,
    },
}

impl From<XfrmError> for StartError {
    fn from(error: XfrmError) -> Self {
        Self::DataPlane(Box::new(error))
    }
}

impl From<XfrmError> for DataPlaneError {
    fn from(error: XfrmError) -> Self {
        Self::Start(error.into())
    }
}

impl XfrmError {
    /// Whether what was to be removed was not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        let code = source.raw_os_error();
        [Errno::SRCH, Errno::NOENT]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&code)
    }
}
