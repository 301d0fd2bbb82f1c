//! What the listener asks of the rest of the system.

use std::net::IpAddr;
use std::sync::Arc;

use ldap_directory::{Bound, Fetched, Late, Name, Tree, View};
use pki::tls::PeerCertificates;

/// Why a bind or a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason, for the client.
    pub message: String,
    /// Whether the fault is on this side.
    pub is_temporary: bool,
}

/// What a person has at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub uid: String,
    pub view: View,
}

/// Why a bind gives nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person may not log in any more, or the proof does not count any more.
    Lost,
    /// It cannot be found out now.
    Unknown,
}

/// People, their rights and their entries.
pub trait Services: Send + Sync + 'static {
    /// Proof of a bind.
    type Identity: Send + Sync;

    /// The entries as they are now; `None` if they cannot be read.
    fn tree(&self) -> impl Future<Output = Option<Arc<Tree>>> + Send;

    /// Verifies the password of the person whose entry has this name.
    fn by_password(
        &self,
        name: &Name,
        password: &str,
        from: IpAddr,
    ) -> impl Future<Output = Result<Bound<Self::Identity>, Refused>> + Send;

    /// Verifies the certificate of a connection. `authorization` names the person that the client
    /// wants to act as (RFC 4513, section 5.2.1.8).
    fn by_certificate(
        &self,
        peer: PeerCertificates,
        authorization: Option<&str>,
        from: IpAddr,
    ) -> impl Future<Output = Result<Bound<Self::Identity>, Refused>> + Send;

    /// What the person has now.
    fn standing(
        &self,
        identity: &Self::Identity,
    ) -> impl Future<Output = Result<Standing, Ended>> + Send;

    /// Decides whether the person may look at entries, and records it with the filter's shape. Without a record nothing is shown.
    fn record(
        &self,
        identity: &Self::Identity,
        shape: &str,
    ) -> impl Future<Output = Result<(), Refused>> + Send;

    /// The number of a content's state for clients that keep copies: the same as long as `hash` is the same for `key`, and greater
    /// than those before it otherwise, as `20261128120000.000000Z#000000#000#000000`.
    fn csn(&self, key: String, hash: Vec<u8>) -> String;

    /// Certificates and lists that belong to an entry; `None` if they cannot be read.
    fn fetch(&self, late: &Late) -> impl Future<Output = Option<Fetched>> + Send;
}
