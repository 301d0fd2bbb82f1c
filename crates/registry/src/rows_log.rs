//! All rows of the database, held against a hash of them that the log has.
//!
//! The last event of each transaction has the hash of the rows as they are once it is committed. A start reads the rows and
//! compares, so that no row that was changed, added, removed or put back meanwhile is believed, whichever it is: what the other
//! looks into the log tell apart by name, this one knows to be complete. The hash follows the changes ([`store::SetHash`]), so
//! that a transaction costs the same however many rows there are.

use std::ops::ControlFlow;

use audit::Logged;
use store::{SetHash, Watched};

use crate::by_log::{LOSS, field, is_loss, number_of};
use crate::contradiction::Contradiction;
use crate::writing::{TRANSACTION, is_settled};
use crate::{Registry, RegistryError};

/// The detail with the hash.
pub(crate) const ROWS: &str = "rows_sha256";

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

/// What the log says of the rows.
#[derive(Default)]
enum Logs {
    /// Nothing: it is of an earlier version, or a person let the site go on with what the database has.
    #[default]
    Nothing,
    /// They have this hash; or the other one, where the newest transaction was not committed.
    Hash(String, Option<String>),
}

/// What was read so far, newest first.
#[derive(Default)]
struct Found {
    logs: Logs,
    /// The newest transaction.
    newest: Option<u64>,
}

impl Found {
    fn each(&mut self, logged: &Logged) -> ControlFlow<()> {
        if is_loss(logged) {
            return ControlFlow::Break(());
        }
        let event = &logged.event;
        let hash = event.details.get(ROWS).and_then(|hash| hash.as_str());
        let Some(hash) = hash.filter(|_| logged.is_own) else {
            return ControlFlow::Continue(());
        };
        match &mut self.logs {
            Logs::Nothing => {
                self.logs = Logs::Hash(hash.to_owned(), None);
                self.newest = number_of(event, TRANSACTION);
                match is_settled(event) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
            Logs::Hash(_, before) => {
                // An earlier event of the same transaction says nothing of what was there before.
                if !is_settled(event) && number_of(event, TRANSACTION) == self.newest {
                    return ControlFlow::Continue(());
                }
                *before = Some(hash.to_owned());
                ControlFlow::Break(())
            }
        }
    }
}

impl Registry {
    /// Refuses rows that are not those of the log; tells whether the log knows any.
    pub(crate) async fn check_rows(&self, rows: &SetHash) -> Result<bool, RegistryError> {
        let wanted = vec![format!("\"{ROWS}\":"), field("action", LOSS)];
        let found: Found = self
            .look_back(wanted, |found: &mut Found, logged| found.each(&logged))
            .await?;
        let rows = rows.sha256();
        match found.logs {
            Logs::Nothing => Ok(false),
            Logs::Hash(hash, before) if rows == hash || Some(&rows) == before.as_ref() => Ok(true),
            Logs::Hash(hash, _) => Err(Contradiction::Rows {
                database: rows,
                log: hash,
            }
            .into()),
        }
    }
}
