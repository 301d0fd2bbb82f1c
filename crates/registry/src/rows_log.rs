//! All rows of the database, held against a hash of them that the log has.
//!
//! The last event of each transaction has the hash of the rows as they are once it is committed ([`audit::rows`]). A start reads
//! the rows and compares, so that no row that was changed, added, removed or put back meanwhile is believed, whichever it is. The
//! hash follows the changes ([`SetHash`]), so that a transaction costs the same however many rows there are.

use std::sync::Arc;

use audit::rows::LoggedRows;
use store::{SetHash, Watched};

use crate::contradiction::Contradiction;
use crate::writing::is_settled;
use crate::{Registry, RegistryError};

/// Tables that decide of something. What is left out changes without events:
///
/// - `first_used_at` of a certificate: its predecessors are superseded by it, which is another column;
/// - `entry` of a profile, known only after its event: what is there must be the event of this definition;
/// - `sealed`, the encrypted code of an invitation: it opens in its own row only, and the code of an invitation that was used
///   is of no use;
/// - `authorities`: compared on its own, as generations appear with their files;
/// - numbers and bases of lists: a number is at least the time, and a delta list without its base is of no use to anybody;
/// - steps under way, messages that were seen, orders, whose names are compared with those of the invitation once more.
pub(crate) const WATCHED: &[Watched] = &[
    watched("issued", &["first_used_at"]),
    watched("revoked", &[]),
    watched("holders", &[]),
    watched("one_time_codes", &[]),
    watched("invitations", &["sealed"]),
    watched("acme_accounts", &[]),
    watched("requests", &[]),
    watched("request_history", &[]),
    watched("request_certificates", &[]),
    watched("profiles", &["entry"]),
    watched("archived_keys", &[]),
    watched("crl_shards", &[]),
];

const fn watched(table: &'static str, without: &'static [&'static str]) -> Watched {
    Watched { table, without }
}

impl Registry {
    /// Refuses rows that are not those of the log; tells whether the log knows any.
    pub(crate) async fn check_rows(&self, rows: &SetHash) -> Result<bool, RegistryError> {
        let audit = Arc::clone(&self.inner.audit);
        let read = self
            .inner
            .pool
            .run(move || LoggedRows::read(&*audit, &is_settled));
        let read = read.await.map_err(|_| RegistryError::Interrupted)?;
        let rows = rows.sha256();
        match read.map_err(RegistryError::Log)? {
            LoggedRows::Unknown => Ok(false),
            LoggedRows::Hash(hash, before) if rows == hash || Some(&rows) == before.as_ref() => {
                Ok(true)
            }
            LoggedRows::Hash(hash, _) => Err(Contradiction::Rows {
                database: rows,
                log: hash,
            }
            .into()),
        }
    }
}
