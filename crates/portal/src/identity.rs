//! Finding people and recording their sessions: all that the shell itself asks of the rest of the system.

use std::net::IpAddr;
use std::pin::Pin;

use access::Principal;
use pki::tls::PeerCertificates;

/// An answer to come, from behind a trait object.
pub type Coming<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A service's answer to a person.
pub type Answer<'a, T> = Coming<'a, Result<T, PageError>>;

/// Why somebody is not let in at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Stable name of the reason, in kebab case.
    pub code: String,
    /// The reason for people.
    pub message: String,
    /// Whether the fault is on this side: it says nothing about the person, and ends no session.
    pub temporary: bool,
}

/// State of a person on which a password session rests. A session of an earlier epoch has ended: the password was
/// changed, or rights were taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub [i64; 2]);

/// Why a request of somebody known came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The rules forbid it.
    Denied {
        /// Messages of the deciding rules, for people.
        reasons: Vec<String>,
        policies: Vec<String>,
    },
    /// There is no such thing.
    NotFound,
    /// The person asks for too much at once; the text says of what.
    Busy(String),
    /// Another person changed it after the page was made; the text says how.
    Stale(String),
    /// The medium has none of the bytes that were asked for, but this many.
    Range { size: u64 },
    /// The request makes no sense; the text says why.
    Invalid(String),
    /// Something broke; the text is for people and gives nothing away.
    Failed(String),
}

/// Finds people and records their sessions.
pub trait Identity: Send + Sync + 'static {
    /// Finds the person who presents these certificates from the address `from`. The shell asks on every request.
    fn by_certificate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>>;

    /// Checks a name and password given from the address `from`.
    fn by_password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>>;

    /// Finds the holder of a password session of `epoch`. The shell asks on every request.
    fn by_session<'a>(
        &'a self,
        uid: &'a str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>>;

    /// Records that a password session begins.
    ///
    /// # Errors
    /// [`PageError::Failed`]: without a record nobody is let in.
    fn session_begins<'a>(&'a self, uid: &'a str, from: Option<IpAddr>) -> Answer<'a, ()>;

    /// Records that a password session ends. The session ends either way, and the implementation logs a failure.
    fn session_ends<'a>(&'a self, uid: &'a str, from: Option<IpAddr>) -> Coming<'a, ()>;
}
