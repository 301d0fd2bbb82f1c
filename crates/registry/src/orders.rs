//! Orders of ACME in the database: what a server asked for, and the certificate that it got.
//!
//! ```text
//! ready ── finalized, in the transaction that issues ──► valid
//!   └───── its hour is over ──► invalid, and deleted when the account orders again
//! ```

use std::collections::BTreeSet;

use pki::csr::Csr;
use pki::name::AltName;
use store::sqlx::{self, FromRow, Row as _, Sqlite, SqlitePool, Transaction, sqlite::SqliteRow};
use time::{Duration, OffsetDateTime};

use crate::{AcmeRefusal, EnrolError, RegistryError, names};

/// Time in which an order is to be finalized. Our choice: a client does so at once.
const LIFETIME: Duration = Duration::hours(1);
/// Orders of one account that wait to be finalized. Our choice: each is for other names than the rest.
pub(crate) const MOST_WAITING: i64 = 8;
/// Finalized orders of one account that are kept: a client that got no answer looks for its certificate in the last ones.
const MOST_KEPT: i64 = 8;
/// Random bytes in the identifier of an order.
const ID_BYTES: usize = 12;

/// An order of an account.
#[derive(Clone, Debug)]
pub(crate) struct ServerOrder {
    pub(crate) id: String,
    pub(crate) account: String,
    pub(crate) names: Vec<String>,
    /// Serial number of its certificate.
    pub(crate) serial: Option<String>,
    pub(crate) expires_at: i64,
}

impl ServerOrder {
    /// Its state as the protocol calls it (RFC 8555, section 7.1.6). What was authorized by the invitation is `ready` at
    /// once, and nothing is `processing` between two requests.
    pub(crate) fn status(&self, now: OffsetDateTime) -> &'static str {
        match &self.serial {
            Some(_) => "valid",
            None if now.unix_timestamp() < self.expires_at => "ready",
            None => "invalid",
        }
    }

    /// The names as they stand in the certificate.
    pub(crate) fn alt_names(&self) -> Vec<AltName> {
        self.names.iter().cloned().map(AltName::Dns).collect()
    }

    /// Makes sure that a certification request asks for these names and no other (RFC 8555, section 7.4).
    pub(crate) fn check_names(&self, csr: &Csr) -> Result<(), EnrolError> {
        let mut asked = BTreeSet::new();
        for name in &csr.alt_names {
            let AltName::Dns(host) = name else {
                return Err(AcmeRefusal::OtherNames.into());
            };
            asked.insert(host.to_ascii_lowercase());
        }
        let common_name = csr.subject.common_name.to_ascii_lowercase();
        if !common_name.is_empty() {
            asked.insert(common_name);
        }
        match asked.iter().eq(self.names.iter()) {
            true => Ok(()),
            false => Err(AcmeRefusal::OtherNames.into()),
        }
    }
}

impl FromRow<'_, SqliteRow> for ServerOrder {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            account: row.try_get("account")?,
            names: names::from_row(row.try_get("names")?),
            serial: row.try_get("serial")?,
            expires_at: row.try_get("expires_at")?,
        })
    }
}

const SELECT: &str = "SELECT id, account, names, serial, expires_at FROM acme_orders ";

/// The order with this identifier, if it is the account's.
pub(crate) async fn of_account(
    readers: &SqlitePool,
    account: &str,
    id: &str,
) -> Result<Option<ServerOrder>, RegistryError> {
    let query = format!("{SELECT} WHERE id = ? AND account = ?");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(id)
        .bind(account)
        .fetch_optional(readers)
        .await?)
}

/// Identifiers of the account's orders.
pub(crate) async fn all_of_account(
    readers: &SqlitePool,
    account: &str,
) -> Result<Vec<String>, RegistryError> {
    let ids =
        sqlx::query_scalar("SELECT id FROM acme_orders WHERE account = ? ORDER BY created_at");
    Ok(ids.bind(account).fetch_all(readers).await?)
}

/// Takes an order for these names: the one that waits already, or a new one in place of those that are over.
pub(crate) async fn take(
    tx: &mut Transaction<'static, Sqlite>,
    account: &str,
    wanted: &BTreeSet<String>,
    now: OffsetDateTime,
) -> Result<(ServerOrder, bool), EnrolError> {
    let at = now.unix_timestamp();
    sqlx::query(
        "DELETE FROM acme_orders WHERE account = ?1 AND ((serial IS NULL AND expires_at <= ?2)
             OR (serial IS NOT NULL AND id NOT IN (
                 SELECT id FROM acme_orders WHERE account = ?1 AND serial IS NOT NULL
                 ORDER BY created_at DESC, rowid DESC LIMIT ?3)))",
    )
    .bind(account)
    .bind(at)
    .bind(MOST_KEPT)
    .execute(&mut **tx)
    .await?;
    let names: Vec<String> = wanted.iter().cloned().collect();
    let joined = names.join(" ");
    let query = format!("{SELECT} WHERE account = ? AND names = ? AND serial IS NULL");
    let waiting: Option<ServerOrder> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(account)
        .bind(&joined)
        .fetch_optional(&mut **tx)
        .await?;
    if let Some(order) = waiting {
        return Ok((order, false));
    }
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM acme_orders WHERE account = ? AND serial IS NULL")
            .bind(account)
            .fetch_one(&mut **tx)
            .await?;
    if count >= MOST_WAITING {
        return Err(AcmeRefusal::TooManyOrders.into());
    }
    let mut bytes = [0; ID_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
    let order = ServerOrder {
        id: hex::encode(bytes),
        account: account.to_owned(),
        names,
        serial: None,
        expires_at: now.saturating_add(LIFETIME).unix_timestamp(),
    };
    sqlx::query(
        "INSERT INTO acme_orders (id, account, names, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&order.id)
    .bind(account)
    .bind(joined)
    .bind(at)
    .bind(order.expires_at)
    .execute(&mut **tx)
    .await?;
    Ok((order, true))
}

/// Makes sure, inside the transaction that issues, that the order waits, that its account is one, and that the key is no
/// account's (RFC 8555, section 11.1): what has an event afterwards is issued.
pub(crate) async fn check_ready(
    tx: &mut Transaction<'static, Sqlite>,
    order: &ServerOrder,
    spki: &str,
    now: OffsetDateTime,
) -> Result<(), EnrolError> {
    let (ready, of_account): (bool, bool) = sqlx::query_as(
        "SELECT EXISTS (SELECT 1 FROM acme_orders o JOIN acme_accounts a ON a.id = o.account
                 WHERE o.id = ?1 AND a.id = ?2 AND o.serial IS NULL AND o.expires_at > ?3
                 AND a.state = 'valid'),
             EXISTS (SELECT 1 FROM acme_accounts WHERE spki_sha256 = ?4)",
    )
    .bind(&order.id)
    .bind(&order.account)
    .bind(now.unix_timestamp())
    .bind(spki)
    .fetch_one(&mut **tx)
    .await?;
    if !ready {
        return Err(AcmeRefusal::OrderNotReady.into());
    }
    match of_account {
        true => Err(AcmeRefusal::KeyOfAccount.into()),
        false => Ok(()),
    }
}

/// Notes the certificate of an order that [is ready](check_ready), in the same transaction.
pub(crate) async fn fulfil(
    tx: &mut Transaction<'static, Sqlite>,
    order: &ServerOrder,
    serial: &str,
) -> Result<(), RegistryError> {
    sqlx::query("UPDATE acme_orders SET serial = ? WHERE id = ?")
        .bind(serial)
        .bind(&order.id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
