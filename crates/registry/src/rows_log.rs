//! All rows of the database, held against a hash of them that the log has.
//!
//! The last event of each transaction has the hash of the rows as they are once it is committed ([`audit::rows`]). A start reads
//! the rows and compares, so that no row that was changed, added, removed or put back meanwhile is believed, whichever it is. The
//! hash follows the changes ([`SetHash`]), so that a transaction costs the same however many rows there are.

use std::sync::Arc;

use audit::rows::{LoggedRows, RowsByLog};
use store::{SetHash, Watched};

use crate::contradiction::Contradiction;
use crate::writing::is_settled;
use crate::{Registry, RegistryError};

/// What hashes begin with. To be counted up with whatever changes the hash of rows that are there, another list of tables for
/// instance: the first start of such a version takes the rows that it finds.
const VERSION: &str = "1:";

/// The hash of rows as the log has it.
pub(crate) fn hash(rows: &SetHash) -> String {
    format!("{VERSION}{}", rows.sha256())
}

/// Tables that decide of something. What is left out changes without events:
///
/// - `entry` of a profile, known only after its event: what is there must be the event of this definition;
/// - `sealed`, the encrypted code of an invitation: it opens in its own row only, and the code of an invitation that was used
///   is of no use;
/// - numbers and bases of lists: a number is at least the time, and a delta list without its base is of no use to anybody;
/// - messages that were seen; orders of ACME, whose names are compared with those of the invitation once more; steps under way,
///   which are believed only of a request that stands just before them.
pub(crate) const WATCHED: &[Watched] = &[
    in_order("issued", &[]),
    watched("revoked", &[]),
    watched("holders", &[]),
    watched("listed_holds", &[]),
    watched("one_time_codes", &[]),
    watched("invitations", &["sealed"]),
    watched("acme_accounts", &[]),
    watched("requests", &[]),
    in_order("request_history", &[]),
    watched("request_certificates", &[]),
    watched("profiles", &["entry"]),
    watched("archived_keys", &[]),
    watched("crl_shards", &[]),
    watched("authorities", &[]),
    watched("writing", &[]),
];

const fn watched(table: &'static str, without: &'static [&'static str]) -> Watched {
    Watched {
        table,
        without,
        ordered: false,
    }
}

const fn in_order(table: &'static str, without: &'static [&'static str]) -> Watched {
    Watched {
        ordered: true,
        ..watched(table, without)
    }
}

impl Registry {
    /// Refuses rows that are not those of the log; tells whether it is to be said in the log which they are.
    pub(crate) async fn check_rows(&self, rows: &SetHash) -> Result<bool, RegistryError> {
        let audit = Arc::clone(&self.inner.audit);
        let read = move || LoggedRows::read(&*audit, VERSION, &is_settled);
        let read = self.inner.pool.run(read).await;
        let read = read.map_err(|_| RegistryError::Interrupted)?;
        let rows = hash(rows);
        match read.map_err(RegistryError::Log)?.compare(&rows) {
            RowsByLog::Settled => Ok(false),
            RowsByLog::Unsettled => Ok(true),
            RowsByLog::Others(log) => Err(Contradiction::Rows {
                database: rows,
                log,
            }
            .into()),
        }
    }
}
