//! A process of its own that speaks HTTP for `cordon vpn up`: what responders and publishers of lists send is
//! read there, and a fault in that reaches neither keys nor tunnels.
//!
//! ```text
//! daemon ──► length, header (JSON), length, body ──► fetcher ──► HTTP
//!        ◄── the same                            ◄──
//! ```
//!
//! The daemon starts it with the first question, and again if it ended. It has no rights, reads the files by
//! which names of hosts are found, writes nothing, starts nothing, and ends with the daemon.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use commandline::{OrHint as _, Outcome};
use error_report::Report;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sys::privileges;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc, oneshot};
use vpn::confinement::{self, Files};

use crate::http_client::{self, Fetched};

/// Bytes of a header at most: an address and a few words.
const MAX_HEADER: u32 = 64 * 1024;
/// Bytes of a body at most: the largest revocation list.
pub(super) const MAX_BODY: usize = 16 * 1024 * 1024;
/// Questions that are worked on at once.
const AT_ONCE: usize = 16;
/// How long an answer may take; who asks has less patience or as much.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the process may leave a question unread: it reads on as soon as one of those in work has its answer.
const WRITING: Duration = Duration::from_secs(60);

/// How names of hosts are found.
const FILES: [&str; 9] = [
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/run/systemd/resolve",
    "/usr/lib",
    "/lib",
    "/lib64",
];

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    id: u64,
    url: String,
    most: usize,
    /// Of what is posted; without it something is got.
    content_type: Option<String>,
    /// Entity tag of what is known.
    known: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    id: u64,
    /// The reason for which the body is missing.
    error: Option<String>,
    /// Whether it is still what is known.
    unchanged: bool,
    tag: Option<String>,
}

async fn write_frame(
    out: &mut (impl tokio::io::AsyncWrite + Unpin),
    header: &impl Serialize,
    body: &[u8],
) -> anyhow::Result<()> {
    let header = serde_json::to_vec(header)?;
    for part in [header.as_slice(), body] {
        out.write_u32(u32::try_from(part.len())?).await?;
        out.write_all(part).await?;
    }
    Ok(())
}

/// None at the end of the stream.
async fn read_frame<H: DeserializeOwned>(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
) -> anyhow::Result<Option<(H, Vec<u8>)>> {
    let len = match from.read_u32().await {
        Ok(len) => len,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    anyhow::ensure!(len <= MAX_HEADER, "a header is too long");
    let mut header = vec![0; usize::try_from(len)?];
    from.read_exact(&mut header).await?;
    let len = usize::try_from(from.read_u32().await?)?;
    anyhow::ensure!(len <= MAX_BODY, "a body is too long");
    let mut body = vec![0; len];
    from.read_exact(&mut body).await?;
    Ok(Some((serde_json::from_slice(&header)?, body)))
}

/// `cordon vpn fetcher`, before there is any other thread: answers on the socket that is its standard input.
///
/// # Errors
/// That it is not what was started by the daemon, or cannot give up what it has.
pub(crate) fn run() -> Outcome {
    let what = "the process that fetches by HTTP";
    let hint = "`cordon vpn up` starts it by itself";
    let give_up = || -> anyhow::Result<Pair> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        privileges::forbid_dumps()?;
        privileges::drop_all()?;
        let files = Files {
            read: FILES.map(PathBuf::from).to_vec(),
            ..Files::default()
        };
        confinement::restrict_files(&files)?;
        confinement::restrict_calls()?;
        let socket = Pair::from(socket);
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = give_up().or_hint(what, hint)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_hint(what, hint)?;
    runtime.block_on(serve(socket)).or_hint(what, hint)
}

async fn serve(socket: Pair) -> anyhow::Result<()> {
    let (mut from, out) = UnixStream::from_std(socket)?.into_split();
    let (out, room) = (
        Arc::new(AsyncMutex::new(out)),
        Arc::new(Semaphore::new(AT_ONCE)),
    );
    while let Some((question, body)) = read_frame::<Question>(&mut from).await? {
        let place = Arc::clone(&room).acquire_owned().await?;
        let out = Arc::clone(&out);
        tokio::spawn(async move {
            let (id, fetched) = (question.id, fetch(question, body).await);
            let (error, Fetched { body, tag }) = match fetched {
                Ok(fetched) => (None, fetched),
                Err(error) => (Some(Report(&*error).to_string()), Fetched::default()),
            };
            let unchanged = body.is_none();
            let answer = Answer {
                id,
                error,
                unchanged,
                tag,
            };
            let body = body.unwrap_or_default();
            // If the other process is gone, the next read ends this one.
            let _ = write_frame(&mut *out.lock().await, &answer, &body).await;
            drop(place);
        });
    }
    Ok(())
}

async fn fetch(question: Question, body: Vec<u8>) -> anyhow::Result<Fetched> {
    let most = question.most.min(MAX_BODY);
    let answer = async {
        match question.content_type {
            Some(kind) => http_client::post(&question.url, &kind, body, most).await,
            None => http_client::get(&question.url, most, question.known.as_deref()).await,
        }
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(anyhow::anyhow!("no answer in time")),
    }
}

/// Who waits for which answer; none once the process has ended.
type Asked = HashMap<u64, oneshot::Sender<anyhow::Result<Fetched>>>;
type Waiting = Arc<Mutex<Option<Asked>>>;
/// The queue of what is to be written: a question and its body.
type Questions = mpsc::Sender<(Question, Vec<u8>)>;

#[derive(Clone, Default)]
pub(super) struct Fetcher(Arc<Mutex<Option<Connection>>>);

/// A caller that is cancelled must not cut a frame in two. So a separate task writes frames, and a question is in
/// its queue as a whole or not at all.
struct Connection {
    questions: Questions,
    waiting: Waiting,
    next: u64,
}

/// A place among the waiting callers. Dropping it frees the place.
struct Place {
    id: u64,
    waiting: Waiting,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(all) = lock(&self.waiting).as_mut() {
            all.remove(&self.id);
        }
    }
}

impl Fetcher {
    /// Gets what is at `url`, `most` bytes at most.
    ///
    /// # Errors
    /// Those of the way there and back, and any status but 200.
    pub(super) async fn get(&self, url: &str, most: usize) -> anyhow::Result<Vec<u8>> {
        let fetched = self.ask(url, None, (&[], None), most).await?;
        Ok(fetched.body.unwrap_or_default())
    }

    /// As [`Self::get`], unless the entity tag `known` still matches.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(super) async fn get_changed(
        &self,
        url: &str,
        known: Option<&str>,
        most: usize,
    ) -> anyhow::Result<Fetched> {
        self.ask(url, None, (&[], known), most).await
    }

    /// Posts something of a content type, and gets the answer.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(super) async fn post(
        &self,
        url: &str,
        content_type: &str,
        body: &[u8],
        most: usize,
    ) -> anyhow::Result<Vec<u8>> {
        let content_type = Some(content_type.to_owned());
        let fetched = self.ask(url, content_type, (body, None), most).await?;
        Ok(fetched.body.unwrap_or_default())
    }

    async fn ask(
        &self,
        url: &str,
        content_type: Option<String>,
        (body, known): (&[u8], Option<&str>),
        most: usize,
    ) -> anyhow::Result<Fetched> {
        let ended = || anyhow::anyhow!("the process that fetches has ended");
        let (sender, answer) = oneshot::channel();
        let (place, questions) = self.register(sender)?;
        let question = Question {
            id: place.id,
            url: url.to_owned(),
            most,
            content_type,
            known: known.map(str::to_owned),
        };
        let queued = questions.send((question, body.to_vec())).await;
        queued.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Finds a place among those who wait, and the queue; starts the process if there is none.
    fn register(
        &self,
        sender: oneshot::Sender<anyhow::Result<Fetched>>,
    ) -> anyhow::Result<(Place, Questions)> {
        let mut connection = lock(&self.0);
        let alive = |connection: &Connection| lock(&connection.waiting).is_some();
        if !connection.as_ref().is_some_and(alive) {
            *connection = Some(Connection::start()?);
        }
        let Some(connection) = connection.as_mut() else {
            anyhow::bail!("the process that fetches is not running");
        };
        let id = connection.next;
        connection.next = connection.next.wrapping_add(1);
        if let Some(all) = lock(&connection.waiting).as_mut() {
            all.insert(id, sender);
        }
        let waiting = Arc::clone(&connection.waiting);
        Ok((Place { id, waiting }, connection.questions.clone()))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts the process: this program once more, even if its file has been replaced.
    fn start() -> anyhow::Result<Self> {
        let (ours, theirs) = Pair::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("cordon").args(["vpn", "fetcher"]);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut child = command.spawn()?;
        drop(command);
        Self::over(ours, move || {
            let _ = child.kill().and_then(|()| child.wait());
        })
    }

    /// Speaks with the process at the other end of the socket, and calls `end` once that is over.
    fn over(socket: Pair, end: impl FnOnce() + Send + 'static) -> anyhow::Result<Self> {
        socket.set_nonblocking(true)?;
        let (from, out) = UnixStream::from_std(socket)?.into_split();
        let (questions, queue) = mpsc::channel(AT_ONCE);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let answers = Arc::clone(&waiting);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = hand_over(from, &answers) => ended,
                ended = write_questions(out, queue) => ended,
            };
            if let Err(error) = ended {
                tracing::warn!(
                    "the process that fetches by HTTP is given up: {}",
                    Report(&*error)
                );
            }
            // Waiting callers get an error.
            lock(&answers).take();
            tokio::task::spawn_blocking(end);
        });
        Ok(Self {
            questions,
            waiting,
            next: 0,
        })
    }
}

/// Writes each question as a whole, whether its asker still waits or not. Ends with the daemon's end.
async fn write_questions(
    mut out: OwnedWriteHalf,
    mut queue: mpsc::Receiver<(Question, Vec<u8>)>,
) -> anyhow::Result<()> {
    while let Some((question, body)) = queue.recv().await {
        let written = write_frame(&mut out, &question, &body);
        tokio::time::timeout(WRITING, written)
            .await
            .map_err(|_| anyhow::anyhow!("it reads nothing"))??;
    }
    Ok(())
}

async fn hand_over(mut from: OwnedReadHalf, waiting: &Waiting) -> anyhow::Result<()> {
    while let Some((answer, body)) = read_frame::<Answer>(&mut from).await? {
        let asked = lock(waiting)
            .as_mut()
            .and_then(|all| all.remove(&answer.id));
        let result = match answer.error {
            Some(error) => Err(anyhow::anyhow!(error)),
            None => Ok(Fetched {
                body: (!answer.unchanged).then_some(body),
                tag: answer.tag,
            }),
        };
        // The caller may be gone; ignore the send error.
        if let Some(asked) = asked {
            let _ = asked.send(result);
        }
    }
    anyhow::bail!("it has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fetcher whose process is the other end of the socket.
    fn fetcher() -> (Fetcher, UnixStream) {
        let (ours, theirs) = Pair::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let connection = Connection::over(ours, || {}).unwrap();
        let fetcher = Fetcher(Arc::new(Mutex::new(Some(connection))));
        (fetcher, UnixStream::from_std(theirs).unwrap())
    }

    fn waiting(fetcher: &Fetcher) -> Option<usize> {
        let connection = lock(&fetcher.0);
        let waiting = lock(&connection.as_ref().unwrap().waiting);
        waiting.as_ref().map(HashMap::len)
    }

    async fn answer(socket: &mut UnixStream, id: u64, body: &[u8]) {
        let header = Answer {
            id,
            error: None,
            unchanged: false,
            tag: None,
        };
        write_frame(socket, &header, body).await.unwrap();
    }

    #[tokio::test]
    async fn a_question_given_up_while_it_is_written_cuts_no_frame() {
        let (fetcher, mut process) = fetcher();
        // More than the socket holds, so that only a part is written before the first read.
        let large = vec![7; 4 << 20];
        let asked = fetcher.post("http://a/", "application/ocsp-request", &large, 1);
        let given_up = tokio::time::timeout(Duration::from_millis(50), asked).await;
        assert!(given_up.is_err());
        assert_eq!(waiting(&fetcher), Some(0), "nobody waits for it");
        let other = fetcher.clone();
        let other = tokio::spawn(async move { other.get("http://b/", 1).await });
        let (first, body) = read_frame::<Question>(&mut process).await.unwrap().unwrap();
        assert_eq!((first.url.as_str(), body.len()), ("http://a/", large.len()));
        let (second, body) = read_frame::<Question>(&mut process).await.unwrap().unwrap();
        assert_eq!((second.url.as_str(), body.len()), ("http://b/", 0));
        // The late answer of the cancelled question is dropped.
        answer(&mut process, first.id, b"late").await;
        answer(&mut process, second.id, b"list").await;
        assert_eq!(other.await.unwrap().unwrap(), b"list");
        assert_eq!(waiting(&fetcher), Some(0), "the same process goes on");
    }

    #[tokio::test]
    async fn a_question_given_up_in_the_queue_leaves_no_place_behind() {
        let (fetcher, _process) = fetcher();
        let large = vec![7; 1 << 20];
        // The first is being written, and the queue is full of others.
        for _ in 0..AT_ONCE + 4 {
            let asked = fetcher.post("http://a/", "x", &large, 1);
            let given_up = tokio::time::timeout(Duration::from_millis(5), asked).await;
            assert!(given_up.is_err());
        }
        assert_eq!(waiting(&fetcher), Some(0));
    }

    #[tokio::test]
    async fn whoever_waits_hears_of_the_end_of_the_process() {
        let (fetcher, process) = fetcher();
        let asked = fetcher.get("http://a/", 1);
        let gone = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(process);
        };
        let (asked, ()) = tokio::join!(asked, gone);
        assert!(asked.unwrap_err().to_string().contains("has ended"));
        assert_eq!(waiting(&fetcher), None);
    }
}
