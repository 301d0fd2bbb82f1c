//! A peer that is asked often: its open connections, and the bound on them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::{Answer, Connection, PeerError, PeerId, PeerKey};

/// Questions under way at once; more wait. Each has a connection of its own.
const AT_ONCE: usize = 16;
/// Time for one question, with the wait for a connection: a person waits for the page that needs the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A host that answers questions. Connections stay open between them.
pub struct Peer {
    address: String,
    key: PeerKey,
    id: PeerId,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
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
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Its `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Posts a question in JSON that may be asked twice, and gives the answer, of at most `longest` bytes.
    ///
    /// # Errors
    /// [`PeerError`], after 5 seconds at the latest.
    pub async fn ask(
        &self,
        path: &str,
        question: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let slow = |_| PeerError::Slow(self.address.clone());
        timeout(PATIENCE, self.exchange(path, question, longest))
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
        let _place = self.places.acquire().await;
        let connection = Connection::open(&self.address, &self.key, self.id);
        connection.await?.pass_on(request, longest).await
    }

    async fn exchange(
        &self,
        path: &str,
        question: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        // A peer that has restarted has closed them all.
        while let Some(connection) = self.take() {
            let asked = self.on(connection, path, question.clone(), longest).await;
            if let Ok(answer) = asked {
                return Ok(answer);
            }
        }
        let connection = Connection::open(&self.address, &self.key, self.id).await?;
        self.on(connection, path, question, longest).await
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
