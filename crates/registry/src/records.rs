//! What was issued and revoked.

use std::path::Path;

use pki::CertificateChain;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use serde::Serialize;
use store::Snapshot;
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use store::sqlx::{self, Connection as _, FromRow, Row as _, SqliteConnection};
use time::OffsetDateTime;

use crate::authority::id_of;
use crate::generation::AuthorityId;
use crate::rows_log::{self, WATCHED};
use crate::{FILE, Issued, Registry, RegistryError};

/// Certificates of one holder and authority that are shown.
const MAX_OF_HOLDER: u32 = 100;
/// Most rows in one answer to be shown.
const MAX_ROWS: u32 = 1000;

/// A certificate in the registry's memory.
#[derive(Clone, Debug, Serialize)]
pub struct IssuedRecord {
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Kind of the authority: `users`, `devices` or `services`.
    pub authority: String,
    /// Its generation.
    pub generation: u16,
    /// Kind of certificate, in words.
    pub profile: String,
    /// Common name of the holder.
    pub holder: String,
    /// User id of the holder.
    pub uid: Option<String>,
    pub clearance: Option<Clearance>,
    /// When it was issued.
    #[serde(with = "time::serde::rfc3339")]
    pub issued_at: OffsetDateTime,
    /// Last instant of validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// The certificate in DER.
    #[serde(skip)]
    pub certificate: Vec<u8>,
    /// When and why it was revoked, if it was.
    pub revoked: Option<RevokedRecord>,
}

/// A revocation in the registry's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RevokedRecord {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Why, for instance `key-compromise`.
    pub reason: String,
}

struct Row {
    serial: String,
    authority: String,
    generation: i64,
    profile: String,
    holder: String,
    uid: Option<String>,
    clearance: Option<i64>,
    issued_at: i64,
    not_after: i64,
    certificate: Vec<u8>,
    revoked_at: Option<i64>,
    reason: Option<String>,
}

impl FromRow<'_, SqliteRow> for Row {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            serial: row.try_get("serial")?,
            authority: row.try_get("authority")?,
            generation: row.try_get("generation")?,
            profile: row.try_get("profile")?,
            holder: row.try_get("holder")?,
            uid: row.try_get("uid")?,
            clearance: row.try_get("clearance")?,
            issued_at: row.try_get("issued_at")?,
            not_after: row.try_get("not_after")?,
            certificate: row.try_get("certificate")?,
            revoked_at: row.try_get("revoked_at")?,
            reason: row.try_get("reason")?,
        })
    }
}

const SELECT: &str =
    "SELECT i.serial, i.authority, i.generation, i.profile, i.holder, i.uid, i.clearance,
    i.issued_at, i.not_after, i.certificate, r.at AS revoked_at, r.reason
    FROM issued i LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial ";

pub(crate) fn instant(secs: i64) -> Result<OffsetDateTime, RegistryError> {
    OffsetDateTime::from_unix_timestamp(secs).map_err(|_| RegistryError::Corrupt("time"))
}

impl TryFrom<Row> for IssuedRecord {
    type Error = RegistryError;

    fn try_from(row: Row) -> Result<Self, RegistryError> {
        let clearance = row
            .clearance
            .map(|level| {
                u8::try_from(level)
                    .ok()
                    .and_then(|l| Clearance::try_from(l).ok())
                    .ok_or(RegistryError::Corrupt("clearance"))
            })
            .transpose()?;
        let revoked = match row.revoked_at.zip(row.reason) {
            Some((at, reason)) => Some(RevokedRecord {
                at: instant(at)?,
                reason,
            }),
            None => None,
        };
        Ok(Self {
            serial: row.serial,
            generation: id_of(&row.authority, row.generation)?.generation(),
            authority: row.authority,
            profile: row.profile,
            holder: row.holder,
            uid: row.uid,
            clearance,
            issued_at: instant(row.issued_at)?,
            not_after: instant(row.not_after)?,
            certificate: row.certificate,
            revoked,
        })
    }
}

impl IssuedRecord {
    /// The authority that issued it.
    ///
    /// # Errors
    /// [`RegistryError::Corrupt`].
    pub fn issuer(&self) -> Result<AuthorityId, RegistryError> {
        id_of(&self.authority, i64::from(self.generation))
    }

    pub(crate) fn into_issued(self, registry: &Registry) -> Result<Issued, RegistryError> {
        let id = self.issuer()?;
        let issuer = pki::cert::to_der(registry.authority(id)?.certificate())?;
        let chain = CertificateChain::from_ders([self.certificate, issuer])?;
        Ok(Issued {
            chain,
            authority: id.kind(),
            serial: self.serial,
            not_after: self.not_after,
        })
    }
}

/// Rows that are read from the book at once.
const AT_ONCE: i64 = 1000;

/// A row of the book of a site.
#[derive(Clone, Copy, Debug)]
pub enum InBook<'a> {
    /// An issued certificate (DER).
    Certificate(&'a [u8]),
    /// A key that was archived, in its message (CMS).
    ArchivedKey {
        /// Of its certificate.
        serial: &'a str,
        message: &'a [u8],
    },
    /// A revoked certificate.
    Revoked {
        authority: &'a str,
        serial: &'a str,
        /// Not for being superseded alone, which nobody ordered.
        is_ordered: bool,
    },
    /// A holder of certificates.
    Holder {
        authority: &'a str,
        holder: &'a str,
        /// By orders.
        state: &'a str,
        /// The directory has the person disabled.
        is_disabled: bool,
    },
}

/// The hash, as the log has it, of all rows that are held against the log, of a book that is only read, and may be in use.
///
/// # Errors
/// As [`for_each_in_book`].
pub async fn rows_in_book(directory: &Path) -> Result<String, RegistryError> {
    let file = directory.join("registry.sqlite");
    let rows = Snapshot::of(&file).await?.hash_rows(WATCHED);
    Ok(rows_log::hash(&rows.await?))
}

/// Hands every certificate, archived key and revocation of the book in a site's folder to `each`, in the order of issuing. The
/// book is only read, and may be in use.
///
/// # Errors
/// [`RegistryError::Store`]; there is no book, for instance.
pub async fn for_each_in_book(
    directory: &Path,
    mut each: impl FnMut(InBook<'_>),
) -> Result<(), RegistryError> {
    let file = SqliteConnectOptions::new().filename(directory.join("registry.sqlite"));
    let mut book = SqliteConnection::connect_with(&file.read_only(true)).await?;
    let readers: [(&str, Reader); 5] = [
        (
            "serial, '', certificate FROM issued WHERE",
            |(_, _, _, der), each| {
                each(InBook::Certificate(der));
            },
        ),
        (
            "serial, '', envelope FROM archived_keys WHERE",
            |(_, serial, _, message), each| {
                each(InBook::ArchivedKey { serial, message });
            },
        ),
        (
            "serial, authority, CAST(reason AS BLOB) FROM revoked WHERE",
            |(_, serial, authority, reason), each| {
                each(InBook::Revoked {
                    authority,
                    serial,
                    is_ordered: reason != RevocationReason::Superseded.name().as_bytes(),
                });
            },
        ),
        (
            "holder_id, authority, CAST(state AS BLOB) FROM holders WHERE disabled_at IS NULL AND",
            |row, each| each(holder(row, false)),
        ),
        (
            "holder_id, authority, CAST(state AS BLOB) FROM holders WHERE disabled_at IS NOT NULL AND",
            |row, each| each(holder(row, true)),
        ),
    ];
    for (columns, read) in readers {
        let query = format!("SELECT rowid, {columns} rowid > ? ORDER BY rowid LIMIT {AT_ONCE}");
        let mut after = i64::MIN;
        loop {
            let rows: Vec<BookRow> = sqlx::query_as(sqlx::AssertSqlSafe(query.clone()))
                .bind(after)
                .fetch_all(&mut book)
                .await?;
            let Some((last, ..)) = rows.last() else {
                break;
            };
            after = *last;
            rows.iter().for_each(|row| read(row, &mut each));
        }
    }
    Ok(())
}

fn holder((_, holder, authority, state): &BookRow, is_disabled: bool) -> InBook<'_> {
    InBook::Holder {
        authority,
        holder,
        state: std::str::from_utf8(state).unwrap_or_default(),
        is_disabled,
    }
}

/// Number of the row, serial number or holder, and what else there is.
type BookRow = (i64, String, String, Vec<u8>);
type Reader = fn(&BookRow, &mut dyn FnMut(InBook<'_>));

impl Registry {
    /// Tells whether a registry in `directory` ever issued a certificate; it need not be open.
    ///
    /// # Errors
    /// [`RegistryError::Store`].
    pub async fn has_issued(directory: &Path) -> Result<bool, RegistryError> {
        Ok(store::has_rows(&directory.join(FILE), "issued").await?)
    }

    /// The certificate with this serial number.
    ///
    /// # Errors
    /// [`RegistryError::UnknownSerial`] or [`RegistryError::Store`].
    pub async fn issued(
        &self,
        authority: CaKind,
        serial: &str,
    ) -> Result<IssuedRecord, RegistryError> {
        let query = format!("{SELECT} WHERE i.authority = ? AND i.serial = ?");
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(authority.name())
            .bind(serial)
            .fetch_optional(self.inner.sql.read())
            .await?;
        row.ok_or_else(|| RegistryError::UnknownSerial {
            authority,
            serial: serial.to_owned(),
        })?
        .try_into()
    }

    /// The certificate with this serial number, whichever authority issued it.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn find(
        &self,
        serial: &str,
    ) -> Result<Option<(CaKind, IssuedRecord)>, RegistryError> {
        for authority in CaKind::ALL {
            match self.issued(authority, serial).await {
                Ok(record) => return Ok(Some((authority, record))),
                Err(RegistryError::UnknownSerial { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Certificates of a holder (user id, or name of a device or gateway) by any authority, the newest 100 of each,
    /// to be shown. No decision may rest on it.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn certificates_of(&self, holder: &str) -> Result<Vec<IssuedRecord>, RegistryError> {
        let query = format!(
            "{SELECT} WHERE i.authority = ? AND i.holder_id = ?
             ORDER BY i.issued_at DESC, i.rowid DESC LIMIT {MAX_OF_HOLDER}"
        );
        let mut records = Vec::new();
        for authority in CaKind::ALL {
            let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query.clone()))
                .bind(authority.name())
                .bind(holder)
                .fetch_all(self.inner.people.read())
                .await?;
            for row in rows {
                records.push(IssuedRecord::try_from(row)?);
            }
        }
        Ok(records)
    }

    /// Certificates of one authority, newest first, at most 1000 to be shown; of one holder
    /// (common name or user id) if given. No decision may rest on it: [`Self::admit`] and
    /// [`Self::change_holder`] look at all.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn list(
        &self,
        authority: CaKind,
        holder: Option<&str>,
    ) -> Result<Vec<IssuedRecord>, RegistryError> {
        let query = format!(
            "{SELECT} WHERE i.authority = ?1 AND (?2 IS NULL OR i.holder = ?2 OR i.uid = ?2)
             ORDER BY i.issued_at DESC, i.rowid DESC LIMIT {MAX_ROWS}"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(authority.name())
            .bind(holder)
            .fetch_all(self.inner.sql.read())
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }
}

/// Certificates (DER) of a person that others may encrypt to at `now`, the newest first: valid, neither revoked nor superseded,
/// and of a holder who is enrolled and not on hold. They are for publication; no decision may rest on them.
///
/// # Errors
/// [`RegistryError::Store`].
pub async fn published_certificates(
    registry: &Registry,
    uid: &str,
    now: OffsetDateTime,
) -> Result<Vec<Vec<u8>>, RegistryError> {
    let query = format!(
        "SELECT i.certificate FROM issued i JOIN holders h ON h.authority = i.authority AND h.holder_id = i.holder_id
         WHERE i.authority = ?1 AND i.holder_id = ?2 AND i.not_after > ?3 AND i.superseded_at IS NULL
         AND h.state = 'enrolled' AND h.held_at IS NULL AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)
         ORDER BY i.issued_at DESC, i.rowid DESC LIMIT {MAX_OF_HOLDER}"
    );
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(query))
        .bind(CaKind::Users.name())
        .bind(uid)
        .bind(now.unix_timestamp())
        .fetch_all(registry.inner.people.read())
        .await?)
}
