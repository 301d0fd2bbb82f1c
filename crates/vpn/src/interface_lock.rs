//! One tunnel for each interface: a lock that a start takes before it changes anything, and keeps while it runs.
//!
//! It is a Unix socket with an abstract name. Such names belong to the network namespace, as interfaces do, need no folder in which
//! root and the service's user may both write, and are gone with their process, however that ends.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::net::if_::if_nametoindex;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with,
};
use tunnel::config::BackendConfig;

/// Why an interface is not free.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    #[error("interface {interface} belongs to a tunnel that runs: process {process}, user {user}")]
    Held {
        interface: String,
        process: i32,
        user: u32,
    },
    #[error("there is an interface {0} already")]
    Exists(String),
    #[error("interface {interface} cannot be locked: {source}")]
    Lock {
        interface: String,
        source: io::Error,
    },
}

/// The right to be the tunnel of an interface, until it is dropped or the process ends.
#[derive(Debug)]
pub struct InterfaceLock(Option<UnixListener>);

impl InterfaceLock {
    /// Takes the lock. Nothing of the host has changed where it is refused.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn take(interface: &str, backend: BackendConfig) -> Result<Self, InterfaceError> {
        let failed = |source| InterfaceError::Lock {
            interface: interface.to_owned(),
            source,
        };
        let exists = if_nametoindex(interface).is_ok();
        let name = format!("cordon/vpn/{interface}");
        let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
        let lock = match UnixListener::bind_addr(&address) {
            Ok(listener) => Self(Some(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let holder = holder(&name).map_err(failed)?;
                let own = rustix::process::geteuid();
                // Any user may take such a name. Who has it without an interface, and is neither root nor us, keeps no
                // tunnel from starting.
                if let Some(UCred { pid, uid, .. }) = holder
                    && (exists || uid.is_root() || uid == own)
                {
                    return Err(InterfaceError::Held {
                        interface: interface.to_owned(),
                        process: pid.as_raw_nonzero().get(),
                        user: uid.as_raw(),
                    });
                }
                tracing::warn!(
                    interface,
                    "another user holds the lock of the interface, and no tunnel has it"
                );
                Self(None)
            }
            Err(error) => return Err(failed(error)),
        };
        // The kernel's IPsec takes over what a daemon that was killed has left.
        match exists && backend == BackendConfig::User {
            true => Err(InterfaceError::Exists(interface.to_owned())),
            false => Ok(lock),
        }
    }

    /// Whether nobody else can take it meanwhile.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// Asks who has a name: the kernel says who listens. None where nobody does, or more wait than are let in.
fn holder(name: &str) -> io::Result<Option<UCred>> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    // One that never accepts would have us wait.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => Ok(Some(socket_peercred(&socket)?)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_tunnel_of_an_interface_is_refused_while_the_first_runs() {
        let name = format!("t{}", std::process::id());
        let take = || InterfaceLock::take(&name, BackendConfig::User);
        let first = take().unwrap();
        assert!(first.is_held());
        let refused = take().unwrap_err().to_string();
        let own = format!("process {}, user", std::process::id());
        assert!(
            refused.contains(&name) && refused.contains(&own),
            "{refused}"
        );
        drop(first);
        assert!(take().unwrap().is_held());
    }

    #[test]
    fn interface_that_is_there_is_refused_and_leaves_no_lock() {
        let take = |backend| InterfaceLock::take("lo", backend);
        for _ in 0..2 {
            let refused = take(BackendConfig::User).unwrap_err();
            assert!(matches!(refused, InterfaceError::Exists(_)), "{refused}");
        }
        assert!(take(BackendConfig::Kernel).unwrap().is_held());
    }

    #[test]
    fn name_that_is_no_interface_is_an_error() {
        let long = "x".repeat(200);
        let refused = InterfaceLock::take(&long, BackendConfig::User).unwrap_err();
        assert!(matches!(refused, InterfaceError::Lock { .. }), "{refused}");
    }
}
