//! The row of a block that was set apart.

use store::StoreError;
use store::sqlx::{self, Sqlite, Transaction};

use crate::ledger::Known;

/// Writes the row of a block that was set apart, in the place of another one.
pub(super) async fn write_set_apart(
    tx: &mut Transaction<'static, Sqlite>,
    known: &Known,
    receipt: &[u8],
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, log_index,
            receipt, sequence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (block_sha256) DO UPDATE SET device = excluded.device, size = excluded.size,
            received_at = excluded.received_at, verdict = excluded.verdict,
            reason = excluded.reason, log_index = excluded.log_index, receipt = excluded.receipt,
            sequence = excluded.sequence",
    )
    .bind(known.block.to_string())
    .bind(&*known.device)
    .bind(known.size.cast_signed())
    .bind(known.received_at)
    .bind(known.verdict.as_str())
    .bind(&*known.reason)
    .bind(known.log_index.cast_signed())
    .bind(receipt)
    .bind(known.held().map(u64::cast_signed))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
