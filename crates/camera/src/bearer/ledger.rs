//! A bearer's monthly byte budget, kept across crashes.
//!
//! Bytes are *reserved, then sent*: the file always says at least as much as was sent. Reserving
//! goes to disk in slabs; what a crash leaves unused of a slab is lost to the budget, never the
//! other way round.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pki::file;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Bytes reserved on disk at a time, unless the budget is small.
const SLAB: u64 = 1024 * 1024;
/// A slab is at most this part of the budget.
const SLABS_PER_BUDGET: u64 = 256;
/// The same without a budget: the number limits nothing, and a fast bearer would else wait for the disk with
/// each block.
const SLAB_WITHOUT_BUDGET: u64 = 16 * 1024 * 1024;
/// Kept back for requests without data, so that receipts still come when the data budget is used.
const CONTROL_SHARE: u64 = 100;
const MAX_CONTROL: u64 = 128 * 1024;

/// Purpose of reserved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Data,
    /// Everything else, which may use the last hundredth of the budget.
    Control,
}

/// The budget has no room for the bytes asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Why a ledger failed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The counter file cannot be read.
    #[error("cannot access the byte counter")]
    Io(#[source] io::Error),
    /// The counter file cannot be written.
    #[error("cannot store the byte counter")]
    Store(#[source] file::FileError),
    /// The counter file is damaged; starting from zero could overshoot the budget.
    #[error("byte counter {} is damaged", path.display())]
    Damaged { path: PathBuf },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Year times 100 plus month, UTC.
    month: i32,
    /// Bytes that may have been sent or received in that month.
    reserved: u64,
}

#[derive(Debug)]
struct State {
    record: Record,
    /// Bytes really sent and received, overhead included.
    spent: u64,
    /// Bytes of reservations that are still open.
    promised: u64,
}

/// Counts the bytes of one bearer.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    budget: Option<u64>,
    overhead_percent: u8,
    state: Mutex<State>,
}

/// Bytes set aside; gives back what was not used when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        state.promised = state.promised.saturating_sub(self.bytes);
    }
}

fn month(now: OffsetDateTime) -> i32 {
    now.year()
        .saturating_mul(100)
        .saturating_add(i32::from(u8::from(now.month())))
}

impl Ledger {
    pub(crate) fn open(
        path: &Path,
        budget: Option<u64>,
        overhead_percent: u8,
        now: OffsetDateTime,
    ) -> Result<Self, LedgerError> {
        let record = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| LedgerError::Damaged {
                path: path.to_owned(),
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Record {
                month: month(now),
                reserved: 0,
            },
            Err(e) => return Err(LedgerError::Io(e)),
        };
        Ok(Self {
            path: path.to_owned(),
            budget,
            overhead_percent,
            state: Mutex::new(State {
                // Whatever was reserved may have been sent.
                spent: record.reserved,
                record,
                promised: 0,
            }),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A byte on the socket, as the operator counts it.
    fn with_overhead(&self, bytes: u64) -> u64 {
        let extra = bytes.saturating_mul(u64::from(self.overhead_percent)) / 100;
        bytes.saturating_add(extra)
    }

    fn limit(&self, purpose: Purpose) -> u64 {
        let Some(budget) = self.budget else {
            return u64::MAX;
        };
        match purpose {
            Purpose::Control => budget,
            Purpose::Data => budget.saturating_sub((budget / CONTROL_SHARE).min(MAX_CONTROL)),
        }
    }

    /// Whether `need` bytes of data can still be sent this month.
    pub(crate) fn has_room(&self, need: u64, now: OffsetDateTime) -> bool {
        let need = self.with_overhead(need);
        let mut state = self.lock();
        roll_over(&mut state, now);
        let used = state.spent.saturating_add(state.promised);
        used.saturating_add(need) <= self.limit(Purpose::Data)
    }

    /// Sets `bytes` aside before they are sent; durable on return.
    ///
    /// `Ok(Err(Exhausted))` if the month's budget has no room for them. Blocks for one fsync now
    /// and then.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Reservation, ReserveError> {
        let bytes = self.with_overhead(bytes);
        let mut state = self.lock();
        roll_over(&mut state, now);
        let wanted = state
            .spent
            .saturating_add(state.promised)
            .saturating_add(bytes);
        if wanted > self.limit(purpose) {
            return Err(ReserveError::Exhausted(Exhausted));
        }
        if wanted > state.record.reserved {
            let record = Record {
                month: state.record.month,
                reserved: wanted
                    .saturating_add(self.slab())
                    .min(self.limit(Purpose::Control)),
            };
            self.store(&record).map_err(ReserveError::Ledger)?;
            state.record = record;
        }
        state.promised = state.promised.saturating_add(bytes);
        Ok(Reservation {
            ledger: Arc::clone(self),
            bytes,
        })
    }

    fn slab(&self) -> u64 {
        self.budget.map_or(SLAB_WITHOUT_BUDGET, |budget| {
            SLAB.min(budget / SLABS_PER_BUDGET)
        })
    }

    fn store(&self, record: &Record) -> Result<(), LedgerError> {
        let bytes = serde_json::to_vec(record).map_err(|e| LedgerError::Io(e.into()))?;
        file::write_atomic(&self.path, &bytes, 0o600).map_err(LedgerError::Store)
    }

    /// Counts `bytes` seen on the socket; `false` once the whole budget is used, upon which the
    /// socket must not send any more.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let bytes = self.with_overhead(bytes);
        let mut state = self.lock();
        state.spent = state.spent.saturating_add(bytes);
        state.spent <= self.limit(Purpose::Control)
    }

    /// Takes back what was charged for bytes written, and counts those that crossed instead. They are
    /// as the operator counts them; [`Self::with_overhead`] adds what encloses them.
    pub(crate) fn correct(&self, charged: u64, crossed: u64) {
        let (charged, crossed) = (self.with_overhead(charged), self.with_overhead(crossed));
        let mut state = self.lock();
        state.spent = state.spent.saturating_sub(charged).saturating_add(crossed);
    }

    /// Whether `bytes` more may be written to the socket.
    pub(crate) fn may_send(&self, bytes: u64) -> bool {
        let bytes = self.with_overhead(bytes);
        self.lock().spent.saturating_add(bytes) <= self.limit(Purpose::Control)
    }
}

/// At an orderly end the file says what was sent, and what was set aside beyond it is not lost to
/// the month.
impl Drop for Ledger {
    fn drop(&mut self) {
        let state = self.lock();
        let record = Record {
            month: state.record.month,
            reserved: state.spent,
        };
        let less = state.spent < state.record.reserved;
        drop(state);
        if less && let Err(error) = self.store(&record) {
            tracing::debug!(%error, "byte counter not reduced to what was sent");
        }
    }
}

/// Why bytes were not set aside.
#[derive(Debug)]
pub(crate) enum ReserveError {
    Exhausted(Exhausted),
    Ledger(LedgerError),
}

/// Starts a new month. A clock that goes back does not: that would give the month's bytes twice.
fn roll_over(state: &mut State, now: OffsetDateTime) {
    let month = month(now);
    if month > state.record.month {
        state.record = Record { month, reserved: 0 };
        state.spent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    const NOVEMBER: OffsetDateTime = datetime!(2026-11-30 23:59:59 UTC);
    const DECEMBER: OffsetDateTime = datetime!(2026-12-01 00:00:00 UTC);
    const BUDGET: u64 = 10_000_000;

    fn open(folder: &tempfile::TempDir, now: OffsetDateTime) -> Arc<Ledger> {
        let path = folder.path().join("lte.json");
        Arc::new(Ledger::open(&path, Some(BUDGET), 0, now).unwrap())
    }

    /// Sends chunks until refused; the result is what was sent.
    fn send_all(ledger: &Arc<Ledger>, chunk: u64, purpose: Purpose, now: OffsetDateTime) -> u64 {
        let mut sent = 0;
        while let Ok(_reservation) = ledger.reserve(chunk, purpose, now) {
            ledger.charge(chunk);
            sent += chunk;
            assert!(sent <= BUDGET);
        }
        sent
    }

    #[test]
    fn budget_is_used_but_never_overshot() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open(&folder, NOVEMBER);
        let data = send_all(&ledger, 60_000, Purpose::Data, NOVEMBER);
        assert!(data > BUDGET * 98 / 100 - 60_000, "{data}");
        let control = send_all(&ledger, 1_000, Purpose::Control, NOVEMBER);
        assert!(data + control > BUDGET - 1_000);
        assert!(!ledger.has_room(1, NOVEMBER));
        assert!(!ledger.may_send(2_000));
    }

    #[test]
    fn a_crash_loses_at_most_a_slab_and_gives_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut sent = 0;
        loop {
            // Each round is a process that sends a little and is killed.
            let ledger = open(&folder, NOVEMBER);
            let Ok(_reservation) = ledger.reserve(30_000, Purpose::Data, NOVEMBER) else {
                break;
            };
            ledger.charge(30_000);
            sent += 30_000;
        }
        assert!(sent <= BUDGET);
        assert!(sent > BUDGET * 40 / 100, "{sent}");
    }

    #[test]
    fn a_new_month_starts_anew_and_a_clock_going_back_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open(&folder, NOVEMBER);
        send_all(&ledger, 60_000, Purpose::Data, NOVEMBER);
        assert!(ledger.reserve(60_000, Purpose::Data, NOVEMBER).is_err());
        assert!(send_all(&ledger, 60_000, Purpose::Data, DECEMBER) > 0);
        assert!(ledger.reserve(60_000, Purpose::Data, NOVEMBER).is_err());
        drop(ledger);
        let again = open(&folder, NOVEMBER);
        assert!(again.reserve(60_000, Purpose::Data, NOVEMBER).is_err());
    }

    #[test]
    fn open_reservations_count_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open(&folder, NOVEMBER);
        let held = ledger.reserve(9_000_000, Purpose::Data, NOVEMBER).unwrap();
        assert!(ledger.reserve(1_000_000, Purpose::Data, NOVEMBER).is_err());
        drop(held);
        assert!(ledger.reserve(1_000_000, Purpose::Data, NOVEMBER).is_ok());
    }

    #[test]
    fn overhead_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lte.json");
        let ledger = Arc::new(Ledger::open(&path, Some(BUDGET), 50, NOVEMBER).unwrap());
        let sent = send_all(&ledger, 10_000, Purpose::Control, NOVEMBER);
        assert_eq!(sent, 6_660_000);
    }

    #[test]
    fn a_damaged_counter_is_not_taken_for_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lte.json");
        std::fs::write(&path, b"{\"month\":").unwrap();
        assert!(matches!(
            Ledger::open(&path, Some(BUDGET), 0, NOVEMBER),
            Err(LedgerError::Damaged { .. })
        ));
    }
}
