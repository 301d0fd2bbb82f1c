//! The source's side: sends the log to the audit host as it grows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use audit::{AuditError, MAX_MIRROR_BYTES, SharedLog};
use error_report::Report;
use http::{Method, StatusCode};
use peering::{Answer, Connection, PeerError, PeerId, PeerKey};
use service_kit::Health;
use time::OffsetDateTime;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::door::{ENTRIES, LOG, Refusal, Taken};
use crate::source::SourceState;

/// Interval between looks whether the log has grown.
const LOOK: Duration = Duration::from_millis(500);
/// Interval at which the host hears of this source although nothing happened.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// A batch that takes longer is followed by one of half the bytes: the host must hear of this source meanwhile, and a narrow link
/// must carry a batch before the time for its answer is over.
const SLOW: Duration = Duration::from_secs(4);
/// A batch that takes less time is followed by one of twice the bytes.
const QUICK: Duration = Duration::from_secs(1);
/// Fewest bytes of a batch that has more than one entry.
const SHORTEST: usize = 8 * 1024;
/// Time without an acknowledgement after which a person has to know.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer at most.
const LONGEST: usize = 64 * 1024;

/// Sends one log to one audit host. It never holds the log back: what the host does not have yet waits in the log itself.
pub struct Shipper {
    log: SharedLog,
    address: String,
    key: PeerKey,
    host: PeerId,
    standing: Standing,
    /// Bytes of the next batch at most.
    longest: AtomicUsize,
}

/// How the shipping stands; clones have the same values.
#[derive(Clone)]
pub struct Standing(Arc<Mutex<Stand>>);

struct Stand {
    acknowledged: Option<u64>,
    /// When the host last answered that it has all, or when the process began.
    fresh: Instant,
    fresh_at: OffsetDateTime,
    trouble: Option<String>,
    /// The host says that this log was changed.
    contradiction: Option<String>,
    /// The host has less than it had confirmed.
    lost: Option<String>,
}

impl Standing {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Stand {
            acknowledged: None,
            fresh: Instant::now(),
            fresh_at: OffsetDateTime::now_utc(),
            trouble: None,
            contradiction: None,
            lost: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Stand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries that are on the audit host's disk, as far as it has said.
    #[must_use]
    pub fn acknowledged(&self) -> Option<u64> {
        self.lock().acknowledged
    }

    /// What a person has to know; `size` is the size of the log.
    #[must_use]
    pub fn health(&self, size: u64) -> Health {
        let stand = self.lock();
        let mut health = Health::default();
        if let Some(contradiction) = &stand.contradiction {
            health.problems.push(format!(
                "the audit host refuses this log: {contradiction}; find out who changed it, or which copy was brought back"
            ));
        }
        health.problems.extend(stand.lost.clone());
        if stand.fresh.elapsed() >= PATIENCE {
            let waiting = size.saturating_sub(stand.acknowledged.unwrap_or_default());
            let (date, time) = (stand.fresh_at.date(), stand.fresh_at.time());
            let why = stand.trouble.as_deref().unwrap_or("it does not answer");
            health.problems.push(format!(
                "the audit host has not confirmed the log since {date} {:02}:{:02} UTC, {waiting} events wait: {why}",
                time.hour(),
                time.minute()
            ));
        }
        health
    }
}

/// Why a session with the host ended.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("cannot read the log")]
    Audit(#[from] AuditError),
    #[error("the host answers {status}: {message}")]
    Refused {
        status: StatusCode,
        error: String,
        message: String,
    },
    #[error("malformed answer")]
    Answer(#[from] serde_json::Error),
    #[error("a batch is too long")]
    TooLong,
    #[error("work died")]
    Died(#[from] tokio::task::JoinError),
}

impl Shipper {
    /// Sends `log` to the host at `address` (`HOST:PORT`) whose key is `host`.
    #[must_use]
    pub fn new(log: SharedLog, address: String, key: PeerKey, host: PeerId) -> Self {
        Self {
            log,
            address,
            key,
            host,
            standing: Standing::new(),
            longest: AtomicUsize::new(MAX_MIRROR_BYTES),
        }
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Sends until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut pause = PAUSES.0;
        loop {
            let broken = tokio::select! {
                broken = self.session(&mut pause) => broken,
                () = stop.cancelled() => return,
            };
            self.note(&broken);
            self.shorten();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn note(&self, broken: &Broken) {
        let text = Report(broken).to_string();
        let mut stand = self.standing.lock();
        if let Broken::Refused { error, message, .. } = broken
            && ["forked", "set-back", "foreign-checkpoint"].contains(&error.as_str())
        {
            stand.contradiction = Some(message.clone());
        }
        if stand.trouble.as_ref() != Some(&text) {
            tracing::error!(
                host = self.address,
                error = text,
                "the audit host does not get the log"
            );
        }
        stand.trouble = Some(text);
    }

    /// One connection; gives why it ended.
    async fn session(&self, pause: &mut Duration) -> Broken {
        match self.send(pause).await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn send(&self, pause: &mut Duration) -> Result<std::convert::Infallible, Broken> {
        let mut connection = Connection::open(&self.address, &self.key, self.host).await?;
        let answer = connection
            .request(Method::GET, LOG, Vec::new(), LONGEST)
            .await?;
        let state: SourceState = read(&answer)?;
        let session = state.session;
        self.compare(&state);
        let mut size = match state.size {
            Some(size) => size,
            None => self.begin(&mut connection, session).await?,
        };
        let path = format!("{ENTRIES}?session={session}");
        // When the host was last told, and the checkpoint that it has.
        let mut told: Option<(Instant, String)> = None;
        loop {
            let newest = self.log.checkpoint();
            let is_told =
                |(at, note): &(Instant, String)| at.elapsed() < HEARTBEAT && *note == newest;
            if told.as_ref().is_some_and(is_told) {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let (log, longest) = (self.log.clone(), self.longest.load(Ordering::Relaxed));
            let read_batch = spawn_blocking(move || {
                let batch = log.batch(size, longest)?;
                let has_all = batch.note == log.checkpoint();
                Ok::<_, AuditError>((batch, has_all))
            });
            let (batch, has_all) = read_batch.await??;
            let bytes = batch.encode().ok_or(Broken::TooLong)?;
            let sent = Instant::now();
            let answer = connection
                .request(Method::POST, &path, bytes, LONGEST)
                .await?;
            size = read::<Taken>(&answer)?.size;
            self.adapt(sent.elapsed());
            *pause = PAUSES.0;
            self.confirm(size, has_all);
            told = Some((Instant::now(), batch.note));
            if batch.entries.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Chooses the bytes of the next batch by the time that this one took.
    fn adapt(&self, took: Duration) {
        let longest = self.longest.load(Ordering::Relaxed);
        if took > SLOW {
            self.shorten();
        } else if took < QUICK {
            let twice = longest.saturating_mul(2).min(MAX_MIRROR_BYTES);
            self.longest.store(twice, Ordering::Relaxed);
        }
    }

    fn shorten(&self) {
        let half = self.longest.load(Ordering::Relaxed) / 2;
        self.longest.store(half.max(SHORTEST), Ordering::Relaxed);
    }

    /// Notes a host that has less than it had confirmed to this process.
    fn compare(&self, state: &SourceState) {
        let mut stand = self.standing.lock();
        let (had, has) = (stand.acknowledged, state.size.unwrap_or_default());
        stand.lost = had.filter(|had| *had > has).map(|had| {
            format!("the audit host has {has} entries of this log, it had confirmed {had}: ask what was brought back there")
        });
        if let Some(lost) = &stand.lost {
            tracing::error!(host = self.address, "{lost}");
        }
    }

    async fn begin(&self, connection: &mut Connection, session: u64) -> Result<u64, Broken> {
        let path = format!("{LOG}?session={session}");
        let log = self.log.clone();
        let note = spawn_blocking(move || log.empty_checkpoint()).await??;
        let note = note.into_bytes();
        let answer = connection
            .request(Method::POST, &path, note, LONGEST)
            .await?;
        Ok(read::<SourceState>(&answer)?.size.unwrap_or_default())
    }

    fn confirm(&self, size: u64, has_all: bool) {
        let mut stand = self.standing.lock();
        stand.acknowledged = Some(size);
        stand.contradiction = None;
        if stand.trouble.take().is_some() {
            tracing::info!(host = self.address, "the audit host gets the log");
        }
        if has_all {
            (stand.fresh, stand.fresh_at) = (Instant::now(), OffsetDateTime::now_utc());
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: &Answer) -> Result<T, Broken> {
    if answer.status == StatusCode::OK {
        return Ok(serde_json::from_slice(&answer.body)?);
    }
    let refusal: Refusal = serde_json::from_slice(&answer.body)?;
    Err(Broken::Refused {
        status: answer.status,
        error: refusal.error,
        message: refusal.message,
    })
}
