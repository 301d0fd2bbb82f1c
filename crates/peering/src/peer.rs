//! A peer that is asked often: its open connections, and the bound on them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::{Answer, Connection, PeerError, PeerId, PeerKey};

/// Time for one question, with the wait for a connection: a person waits for the page that needs the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a long one.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Kinds of questions. Each has places of its own, so that one kind cannot keep another waiting; a question has a connection of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answered at once. It may be asked twice.
    Quick,
    /// Costs the peer much, and strangers cause it. It is refused here when too many are under way, and asked once.
    Costly,
    /// May be large or take long. It is asked once.
    Long,
}

/// Questions of one kind under way at once.
const QUICK_AT_ONCE: usize = 16;
const COSTLY_AT_ONCE: usize = 4;
const LONG_AT_ONCE: usize = 4;
const PASSED_AT_ONCE: usize = 8;

struct Places {
    quick: Semaphore,
    costly: Semaphore,
    long: Semaphore,
    passed: Semaphore,
}

/// A host that answers questions. Connections stay open between quick ones.
pub struct Peer {
    address: String,
    key: PeerKey,
    id: PeerId,
    idle: Mutex<Vec<Connection>>,
    places: Places,
}

impl Peer {
    /// The host at `address` (`HOST:PORT`) that has the key `id`.
    #[must_use]
    pub fn new(address: String, key: PeerKey, id: PeerId) -> Self {
        Self {
            address,
            key,
            id,
            idle: Mutex::default(),
            places: Places {
                quick: Semaphore::new(QUICK_AT_ONCE),
                costly: Semaphore::new(COSTLY_AT_ONCE),
                long: Semaphore::new(LONG_AT_ONCE),
                passed: Semaphore::new(PASSED_AT_ONCE),
            },
        }
    }

    /// Its `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Posts a question in JSON, and gives the answer, of at most `longest` bytes.
    ///
    /// # Errors
    /// [`PeerError`], after 5 seconds at the latest, 60 for a long question.
    pub async fn ask(
        &self,
        kind: Kind,
        path: &str,
        question: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let patience = match kind {
            Kind::Quick | Kind::Costly => PATIENCE,
            Kind::Long => LONG_PATIENCE,
        };
        let slow = |_| PeerError::Slow(self.address.clone());
        timeout(patience, self.exchange(kind, path, question, longest))
            .await
            .map_err(slow)?
    }

    /// Passes a request on, by a connection of its own: it may change something, and is sent once.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn pass_on(
        &self,
        request: Request<Vec<u8>>,
        longest: usize,
    ) -> Result<Response<Bytes>, PeerError> {
        let slow = |_| PeerError::Slow(self.address.clone());
        let place = timeout(PATIENCE, self.places.passed.acquire()).await;
        let _place = place.map_err(slow)?;
        self.open().await?.pass_on(request, longest).await
    }

    async fn open(&self) -> Result<Connection, PeerError> {
        Connection::open(&self.address, &self.key, self.id).await
    }

    async fn exchange(
        &self,
        kind: Kind,
        path: &str,
        question: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        // The semaphores are never closed.
        let _place = match kind {
            Kind::Quick => self.places.quick.acquire().await,
            Kind::Long => self.places.long.acquire().await,
            Kind::Costly => {
                let place = self.places.costly.try_acquire();
                Ok(place.map_err(|_| PeerError::Busy(self.address.clone()))?)
            }
        };
        if kind != Kind::Quick {
            return self.open().await?.post_json(path, question, longest).await;
        }
        // A peer that has restarted has closed them all.
        while let Some(connection) = self.take() {
            let asked = self.on(connection, path, question.clone(), longest).await;
            if let Ok(answer) = asked {
                return Ok(answer);
            }
        }
        self.on(self.open().await?, path, question, longest).await
    }

    async fn on(
        &self,
        mut connection: Connection,
        path: &str,
        question: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let answer = connection.post_json(path, question, longest).await?;
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        Ok(answer)
    }

    fn take(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}
