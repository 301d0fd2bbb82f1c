//! Durable storage behind two small interfaces: [`Sql`] (SQLite through sqlx) and [`Objects`]
//! (content-addressed files).
//!
//! It is not a model of what is stored: tables, queries and the meaning of an object belong to
//! the crate that keeps them. What this crate promises is durability: when a write returns, the
//! data are on disk ([`durable`] has the file-system half of that promise).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use store::{Migration, Sql};
//! let folder = tempfile::tempdir().unwrap();
//! const MIGRATIONS: &[Migration] = &[Migration { version: 1, sql: "CREATE TABLE t (n INTEGER) STRICT" }];
//! let sql = Sql::open(&folder.path().join("t.sqlite"), MIGRATIONS).await.unwrap();
//! let mut tx = sql.write().await.unwrap();
//! store::sqlx::query("INSERT INTO t VALUES (7)").execute(&mut *tx).await.unwrap();
//! tx.commit().await.unwrap();
//! # });
//! ```
#![forbid(unsafe_code)]

mod clock;
mod guarded;
mod objects;
mod set_hash;
mod sql;
mod watched;

pub use clock::{ClockBehind, ClockFloor};
pub use guarded::Guard;
pub use objects::{ObjectId, ObjectIdError, Objects};
pub use set_hash::SetHash;
pub use sql::{Migration, Sql, StoreError, has_rows, readable, readable_rows};
/// The SQL library, so that users of [`Sql`] need no version of their own.
pub use sqlx;
pub use watched::{FollowedRows, Snapshot, Watched};
