//! The questions.

use std::net::IpAddr;

use access::{PersonRecord, Principal};
use pki::tls::PeerCertificates;
use portal::{Coming, Epoch, Refused};

/// Code of a refusal because a disk is full.
pub(crate) const DISK_FULL: &str = "disk-full";

/// Answers about people and devices. An answer holds for the request at hand and no longer.
pub(crate) trait Admission: Send + Sync {
    /// The person who presents `peer`.
    fn person<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>>;

    /// Name of the camera that presents `peer`.
    fn device<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<String, Refused>>;

    /// The person with this name and password, and the epoch of what was checked.
    fn password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>>;

    /// The holder of a password session, unless it has ended.
    fn session<'a>(
        &'a self,
        uid: &'a str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>>;

    /// The epoch of a person's rights, which changes with each right that is taken away.
    fn epoch<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<Epoch, Refused>>;

    /// The entry of a person, if directory and registry admit the person.
    fn record<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<PersonRecord, Refused>>;

    /// Names of the devices that are refused now.
    fn refused_devices(&self) -> Coming<'_, Result<Vec<String>, Refused>>;
}
