//! Errors about a database that somebody else changed.

/// A contradiction between the database and the log.
#[derive(Debug, thiserror::Error)]
pub enum Contradiction {
    /// A whole older copy, probably.
    #[error(
        "the registry's database was put back to an older state: its newest transaction is {database}, and the audit log has \
         number {log}"
    )]
    Older { database: u64, log: u64 },
    /// A request's row was put back, or made up.
    #[error(
        "request {id} in the registry's database was changed or put back: it has version {row}, and by the audit log {log}"
    )]
    Request {
        id: String,
        row: u64,
        /// 0: the log does not know the request.
        log: u64,
    },
    /// Its version is that of the log, and nothing else.
    #[error(
        "request {0} in the registry's database was changed: it is not what the audit log says was stored"
    )]
    RequestContent(String),
    #[error(
        "the profile {0:?} in the registry's database is not the one that the audit log says was put in force last"
    )]
    Profile(String),
    #[error(
        "the registry's database was changed: certificate {0} is not revoked in it, and by the audit log it is"
    )]
    NotRevoked(String),
    #[error(
        "the registry's database was changed: it says that {name} is {row}, and by the audit log it is {logged}"
    )]
    Holder {
        name: String,
        row: String,
        logged: &'static str,
    },
    /// More or less than was noted in the log.
    #[error(
        "the registry's database was changed: {0} is not what the audit log noted and recorded since"
    )]
    Refused(&'static str),
    /// The message that would be given out is not the one that the log says was archived.
    #[error("the archived key of certificate {0} was changed: it is not what the audit log says")]
    ArchivedKey(String),
}
