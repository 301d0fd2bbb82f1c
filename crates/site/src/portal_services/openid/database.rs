//! Logins to applications, and logouts that wait for delivery: what has to survive the process.
//!
//! A login is on disk before the application has its token, so that its end can be told to the application after a crash.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use error_report::Report;
use oidc::{Cause, Ended};
use store::sqlx;
use store::{Migration, Sql, StoreError};

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    sql: V1,
}];

const V1: &str = "
CREATE TABLE logins (
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    uid     TEXT NOT NULL,
    registered TEXT NOT NULL,          -- the client's record at the login, as JSON
    PRIMARY KEY (client, session)
) STRICT;
CREATE TABLE logouts (
    id      INTEGER PRIMARY KEY,
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    uid     TEXT NOT NULL,
    registered TEXT NOT NULL,
    cause   TEXT NOT NULL,
    since   INTEGER NOT NULL,          -- seconds since the epoch
    tries   INTEGER NOT NULL DEFAULT 0,
    due     INTEGER NOT NULL           -- seconds since the epoch
) STRICT;
CREATE INDEX logouts_due ON logouts (due);
";

/// Logouts of one client that are read at a time. Each client has its own batch, so that one that does not answer leaves the
/// others theirs.
const BATCH_OF_CLIENT: i64 = 50;
/// Longest pause between two attempts, in seconds.
const MAX_PAUSE: i64 = 300;

/// A logout that waits for delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: i64,
    pub(crate) client: String,
    pub(crate) session: String,
    pub(crate) uid: String,
    /// The client's record at the login, for a service that was removed since.
    pub(crate) registered: String,
    pub(crate) cause: String,
    pub(crate) since: i64,
    pub(crate) tries: i64,
}

type Row = (i64, String, String, String, String, String, i64, i64);

impl From<Row> for Waiting {
    fn from((id, client, session, uid, registered, cause, since, tries): Row) -> Self {
        Self {
            id,
            client,
            session,
            uid,
            registered,
            cause,
            since,
            tries,
        }
    }
}

/// The database of logins.
pub(crate) struct Logins {
    sql: Sql,
    /// Logins of the process before have become logouts.
    recovered: AtomicBool,
}

impl Logins {
    /// Opens the database. Logins of the process before have ended: their sessions were in its memory. On a full disk that
    /// cannot be written down, and no login begins before it is.
    pub(crate) async fn open(file: &Path, now: i64) -> Result<Self, StoreError> {
        let logins = Self {
            sql: Sql::open(file, MIGRATIONS).await?,
            recovered: AtomicBool::new(false),
        };
        if let Err(error) = logins.recover(now).await {
            tracing::error!(error = %Report(&error), "logins of the process before cannot be ended: there are no new ones until then");
        }
        Ok(logins)
    }

    async fn recover(&self, now: i64) -> Result<(), StoreError> {
        if self.recovered.load(Ordering::SeqCst) {
            return Ok(());
        }
        let left = "SELECT EXISTS (SELECT 1 FROM logins)";
        if sqlx::query_scalar(left).fetch_one(self.sql.read()).await? {
            let mut tx = self.sql.write().await?;
            let ended = "INSERT INTO logouts (client, session, uid, registered, cause, since, due)
                SELECT client, session, uid, registered, ?1, ?2, ?2 FROM logins";
            let ended = sqlx::query(ended).bind(Cause::Restart.name()).bind(now);
            ended.execute(&mut *tx).await?;
            sqlx::query("DELETE FROM logins").execute(&mut *tx).await?;
            tx.commit().await?;
        }
        self.recovered.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Writes a login down, with the client's record.
    pub(crate) async fn begin(
        &self,
        (client, registered): (&str, &str),
        session: &str,
        uid: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        self.recover(now).await?;
        let mut tx = self.sql.write().await?;
        let begun = sqlx::query("INSERT OR REPLACE INTO logins VALUES (?, ?, ?, ?)");
        let begun = begun.bind(client).bind(session).bind(uid).bind(registered);
        begun.execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    /// Has logouts wait in the place of logins. A login that was never written down gave no token: its application knows
    /// nothing of it.
    pub(crate) async fn end(&self, ended: &[Ended], now: i64) -> Result<(), StoreError> {
        let mut tx = self.sql.write().await?;
        for one in ended {
            let waiting =
                "INSERT INTO logouts (client, session, uid, registered, cause, since, due)
                SELECT client, session, uid, registered, ?3, ?4, ?4 FROM logins
                WHERE client = ?1 AND session = ?2";
            sqlx::query(waiting)
                .bind(&one.client)
                .bind(&one.session)
                .bind(one.cause.name())
                .bind(now)
                .execute(&mut *tx)
                .await?;
            // One logout of a session waits. The insertion comes first, so that the new id is greater than one under way.
            let earlier = "DELETE FROM logouts WHERE client = ?1 AND session = ?2 AND id <
                (SELECT max(id) FROM logouts WHERE client = ?1 AND session = ?2)";
            for removed in [
                earlier,
                "DELETE FROM logins WHERE client = ?1 AND session = ?2",
            ] {
                sqlx::query(removed)
                    .bind(&one.client)
                    .bind(&one.session)
                    .execute(&mut *tx)
                    .await?;
            }
        }
        Ok(tx.commit().await?)
    }

    /// Clients with a logout whose next attempt is due.
    pub(crate) async fn due_clients(&self, now: i64) -> Result<Vec<String>, StoreError> {
        let due = "SELECT DISTINCT client FROM logouts WHERE due <= ? ORDER BY client";
        let due = sqlx::query_scalar(due).bind(now);
        Ok(due.fetch_all(self.sql.read()).await?)
    }

    /// Logouts of a client whose next attempt is due, the oldest first: the latest of each session.
    pub(crate) async fn due(&self, client: &str, now: i64) -> Result<Vec<Waiting>, StoreError> {
        let due = "SELECT id, client, session, uid, registered, cause, since, tries FROM logouts
            WHERE id IN (SELECT max(id) FROM logouts WHERE client = ?1 AND due <= ?2 GROUP BY session)
            ORDER BY due, id LIMIT ?3";
        let due = sqlx::query_as(due).bind(client).bind(now);
        let rows: Vec<Row> = due.bind(BATCH_OF_CLIENT).fetch_all(self.sql.read()).await?;
        Ok(rows.into_iter().map(Waiting::from).collect())
    }

    /// Removes a logout that was delivered or given up, with earlier ones of the same session. A later one stays: the
    /// application may have begun its login after this delivery.
    pub(crate) async fn done(&self, one: &Waiting) -> Result<(), StoreError> {
        let mut tx = self.sql.write().await?;
        sqlx::query("DELETE FROM logouts WHERE client = ? AND session = ? AND id <= ?")
            .bind(&one.client)
            .bind(&one.session)
            .bind(one.id)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    /// Has all logouts of a client wait, twice as long with each attempt: an application that does not answer one does not
    /// answer the others.
    pub(crate) async fn put_off(
        &self,
        client: &str,
        tries: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let exponent = u32::try_from(tries.clamp(0, 16)).unwrap_or(16);
        let pause = 2_i64.saturating_pow(exponent).min(MAX_PAUSE);
        let mut tx = self.sql.write().await?;
        sqlx::query("UPDATE logouts SET tries = tries + 1, due = ? WHERE client = ? AND due <= ?")
            .bind(now.saturating_add(pause))
            .bind(client)
            .bind(now)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn close(&self) {
        self.sql.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(session: &str) -> Ended {
        Ended {
            client: "wiki".into(),
            session: session.into(),
            uid: "officer-2".into(),
            cause: Cause::Rights,
        }
    }

    #[tokio::test]
    async fn login_that_outlived_its_process_becomes_a_logout() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins.sqlite");
        let logins = Logins::open(&file, 1).await.unwrap();
        for session in ["s1", "s1", "s2"] {
            let client = ("wiki", "{}");
            logins.begin(client, session, "officer-2", 1).await.unwrap();
        }
        logins
            .end(&[ended("s2"), ended("unknown")], 2)
            .await
            .unwrap();
        logins.close().await;
        let again = Logins::open(&file, 5).await.unwrap();
        let due = again.due("wiki", 5).await.unwrap();
        let found: Vec<(&str, &str)> = due.iter().map(|one| (&*one.session, &*one.cause)).collect();
        assert_eq!(found, [("s2", "rights"), ("s1", "restart")]);
        for one in due {
            again.done(&one).await.unwrap();
        }
        assert_eq!(again.due("wiki", 5).await.unwrap(), []);
    }

    #[tokio::test]
    async fn failed_delivery_waits_longer_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::open(&folder.path().join("l.sqlite"), 1)
            .await
            .unwrap();
        for session in ["s1", "s2"] {
            let client = ("wiki", "{}");
            logins.begin(client, session, "officer-2", 1).await.unwrap();
        }
        logins.end(&[ended("s1"), ended("s2")], 10).await.unwrap();
        assert_eq!(logins.due("wiki", 9).await.unwrap(), []);
        assert_eq!(logins.due("wiki", 10).await.unwrap().len(), 2);
        logins.put_off("wiki", 0, 10).await.unwrap();
        assert_eq!(logins.due("wiki", 10).await.unwrap(), []);
        let due = logins.due("wiki", 11).await.unwrap();
        assert_eq!(due.iter().map(|one| one.tries).collect::<Vec<_>>(), [1, 1]);
        logins.put_off("wiki", 30, 11).await.unwrap();
        assert_eq!(logins.due("wiki", 11 + 299).await.unwrap(), []);
        assert_eq!(logins.due("wiki", 11 + 300).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn busy_client_leaves_logouts_of_others_due() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("l.sqlite");
        let logins = Logins::open(&file, 1).await.unwrap();
        let mut all = Vec::new();
        for n in 0..600 {
            let session = format!("s{n}");
            let client = ("slow", "{}");
            logins
                .begin(client, &session, "officer-2", 1)
                .await
                .unwrap();
            all.push(Ended {
                client: "slow".into(),
                ..ended(&session)
            });
        }
        logins.end(&all, 2).await.unwrap();
        let client = ("wiki", "{}");
        logins.begin(client, "w1", "officer-2", 3).await.unwrap();
        logins.end(&[ended("w1")], 3).await.unwrap();
        assert_eq!(logins.due_clients(1).await.unwrap(), [""; 0]);
        assert_eq!(logins.due_clients(3).await.unwrap(), ["slow", "wiki"]);
        assert_eq!(logins.due("wiki", 3).await.unwrap().len(), 1);
        let batch = usize::try_from(BATCH_OF_CLIENT).unwrap();
        assert_eq!(logins.due("slow", 3).await.unwrap().len(), batch);
    }

    #[tokio::test]
    async fn logouts_of_one_session_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("l.sqlite");
        let logins = Logins::open(&file, 1).await.unwrap();
        let again = async |now| {
            let client = ("wiki", "{}");
            logins.begin(client, "s1", "officer-2", now).await.unwrap();
            logins.end(&[ended("s1")], now).await.unwrap();
            logins.due("wiki", now).await.unwrap()
        };
        let first = again(1).await;
        let second = again(2).await;
        assert_eq!((first.len(), second.len()), (1, 1));
        // The end of the delivery that began before the second end removes nothing.
        logins.done(&first[0]).await.unwrap();
        assert_eq!(logins.due("wiki", 2).await.unwrap(), second);
        logins.done(&second[0]).await.unwrap();
        assert_eq!(logins.due("wiki", 2).await.unwrap(), []);
    }
}
