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
    /// Some row was changed, added, removed or put back.
    #[error(
        "the registry's database was changed by something else than this program: its rows have the SHA-256 {database}, and \
         by the audit log {log}"
    )]
    Rows { database: String, log: String },
}
