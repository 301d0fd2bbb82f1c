//! A stand-in for the centre: tus in memory, real TLS, real opening of blocks, real receipts.
//!
//! It is written from the protocol's text, without looking at how the agent does it, and can be
//! told to misbehave.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use audit::{AuditSink as _, SharedLog};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evidence::cms::RecipientKey;
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use evidence::open::Opener;
use evidence::receipt::{self, Receipt, Verdict};
use futures_util::StreamExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use pki::cert::Certificate;
use pki::path::{Purpose, TrustStore};
use pki::profile::Profile;
use pki::tls::{ClientAuth, ServerIdentity, ServerTls};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::stage::{DEVICE, Leaf, World};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mischief {
    #[default]
    None,
    /// Receipts that name another block.
    WrongReceipt,
    /// Receipts signed by a device instead of a service.
    WrongSigner,
    Quarantine,
    /// Uploads are forgotten halfway, as if they had expired.
    ExpireOnce,
    /// One part arrives damaged.
    DamageOnce,
    /// The receipt takes a while.
    Slow,
    /// 503 to the first three requests.
    Busy,
    /// Bytes that come with an announcement are not looked at, as by a centre of an earlier version.
    NothingAtOnce,
    /// Bytes that come with an announcement are refused; announcements alone are taken.
    RefuseAtOnce,
}

struct Unfinished {
    expected: Sha256Digest,
    size: usize,
    bytes: Vec<u8>,
}

pub(crate) struct Centre {
    /// Opens what cameras seal; replaced with the recipients.
    pub(crate) opener: Mutex<Opener>,
    signer: Leaf,
    intruder: Leaf,
    mischief: Mischief,
    mischief_left: AtomicU32,
    uploads: Mutex<BTreeMap<String, Unfinished>>,
    finished: Mutex<BTreeMap<String, Sha256Digest>>,
    pub(crate) archive: Mutex<BTreeMap<Sha256Digest, (Vec<u8>, Manifest)>>,
    pub(crate) largest_part: AtomicU32,
    /// Blocks that came with their announcement.
    pub(crate) at_once: AtomicU32,
    pub(crate) received: Mutex<u64>,
    pub(crate) creations: AtomicU32,
    /// Revocation lists as the centre answers them; none is a centre that gives none.
    pub(crate) lists: Mutex<Option<Vec<Vec<u8>>>>,
    /// OCSP responses that come with the lists.
    pub(crate) responses: Mutex<Vec<Vec<u8>>>,
    /// The signed trust bundle; none is a centre of an earlier version.
    pub(crate) bundle: Mutex<Option<Vec<u8>>>,
    /// The audit log; none is a centre whose receipts have no checkpoint.
    pub(crate) log: Mutex<Option<SharedLog>>,
    /// Gives receipts a number that their checkpoint does not have.
    pub(crate) log_lies: AtomicBool,
}

type Shared = State<Arc<Centre>>;

impl Centre {
    /// Starts on a free port; the result is the port and the centre.
    pub(crate) fn new(world: &World, recipient: &Leaf, mischief: Mischief) -> Arc<Self> {
        let key = RecipientKey::new(recipient.key.clone(), recipient.chain.leaf().clone());
        Arc::new(Self {
            opener: Mutex::new(Opener::new(vec![key.unwrap()])),
            bundle: Mutex::default(),
            log: Mutex::default(),
            log_lies: AtomicBool::new(false),
            signer: world.leaf(Profile::ServiceSigner, "centre receipts"),
            intruder: world.leaf(Profile::Device, "camera-18"),
            mischief,
            mischief_left: AtomicU32::new(if mischief == Mischief::Busy { 3 } else { 1 }),
            uploads: Mutex::default(),
            finished: Mutex::default(),
            archive: Mutex::default(),
            largest_part: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            received: Mutex::new(0),
            creations: AtomicU32::new(0),
            responses: Mutex::default(),
            lists: Mutex::new(Some(world.lists(1, &[], time::Duration::days(7)))),
        })
    }

    /// The pair that signs receipts.
    pub(crate) fn signing_leaf(&self) -> &Leaf {
        &self.signer
    }

    /// The certificate that signs receipts.
    pub(crate) fn signer(&self) -> &Certificate {
        self.signer.chain.leaf()
    }

    pub(crate) async fn listen(self: &Arc<Self>, world: &World, listener: TcpListener) {
        let router = Router::new()
            .route("/intake/v1/revocation", get(lists))
            .route("/intake/v1/log", get(log_proof))
            .route("/intake/v1/trust", get(trust_bundle))
            .route("/intake/v1/files", post(create))
            .route("/intake/v1/files/{id}", get(offset).patch(append))
            .route("/intake/v1/files/{id}/receipt", get(receipt_of_upload))
            .route("/intake/v1/blocks/{hash}/receipt", get(receipt_of_block))
            .with_state(Arc::clone(self));
        let server = world.leaf(Profile::Server, "localhost");
        serve(
            listener,
            router,
            &server,
            ClientAuth::Required,
            world.trust(),
        );
    }

    fn mischief_now(&self, kind: Mischief) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.mischief == kind
            && self
                .mischief_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_ok()
    }

    fn settle(&self, upload: Unfinished) -> Sha256Digest {
        if Sha256Digest::of(&upload.bytes) != upload.expected {
            return Sha256Digest::ZERO; // nothing is kept, and the receipt says why
        }
        let opener = self.opener.lock().unwrap();
        let mut opened = opener.open(Cursor::new(&upload.bytes)).unwrap();
        opened.verify_media().unwrap();
        let manifest = opened.manifest;
        let mut archive = self.archive.lock().unwrap();
        archive.insert(upload.expected, (upload.bytes, manifest));
        upload.expected
    }

    fn receipt(&self, block: &Sha256Digest) -> Option<Vec<u8>> {
        let archive = self.archive.lock().unwrap();
        let (bytes, manifest) = archive.get(block)?;
        let quarantined = self.mischief == Mischief::Quarantine;
        let wrong = self.mischief == Mischief::WrongReceipt;
        let recorded = self.log.lock().unwrap().as_ref().map(|log| {
            let at = OffsetDateTime::now_utc();
            let actor = audit::Actor::device(DEVICE);
            let event =
                audit::Event::new(at, actor, "evidence.receive", "block", audit::Outcome::Ok);
            let index = log
                .role("centre")
                .unwrap()
                .record(event)
                .unwrap()
                .leaf_index;
            (index, log.view().unwrap().note().to_owned())
        });
        let lie = u64::from(self.log_lies.load(Ordering::SeqCst)) * 1_000;
        let receipt = Receipt {
            schema: match recorded {
                Some(_) => receipt::SCHEMA_2.into(),
                None => receipt::SCHEMA.into(),
            },
            block_sha256: if wrong {
                Sha256Digest::of(b"other")
            } else {
                *block
            },
            size: bytes.len() as u64,
            device: DEVICE.into(),
            sequence: Some(manifest.sequence),
            manifest_sha256: Some(Sha256Digest::of(&manifest.to_canonical().unwrap())),
            verdict: if quarantined {
                Verdict::Quarantined
            } else {
                Verdict::Accepted
            },
            reason: quarantined.then(|| "malware".into()),
            received_at: OffsetDateTime::now_utc(),
            log_origin: "log.example.org".into(),
            log_index: recorded.as_ref().map_or(0, |(index, _)| index + lie),
            checkpoint: recorded.map(|(_, note)| note),
        };
        let signer = if self.mischief == Mischief::WrongSigner {
            &self.intruder
        } else {
            &self.signer
        };
        Some(receipt.sign(&signer.key, &signer.chain).unwrap())
    }

    pub(crate) fn sequences(&self) -> Vec<u64> {
        let archive = self.archive.lock().unwrap();
        let mut all: Vec<u64> = archive.values().map(|(_, m)| m.sequence).collect();
        all.sort_unstable();
        all
    }
}

/// Serves `router` over TLS until the test ends.
pub(crate) fn serve(
    listener: TcpListener,
    router: Router,
    server: &Leaf,
    mode: ClientAuth,
    trust: TrustStore,
) {
    let identity = ServerIdentity::new(&server.chain, &server.key).unwrap();
    let tls = ServerTls::new(identity)
        .with_client_auth(mode, trust, Purpose::ClientDevice)
        .with_alpn(&["http/1.1"])
        .build()
        .unwrap();
    let acceptor = TlsAcceptor::from(tls);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(tcp).await else {
                    return;
                };
                let service = TowerToHyperService::new(router);
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

fn metadata(headers: &HeaderMap, key: &str) -> String {
    let all = headers["upload-metadata"].to_str().unwrap();
    let value = all
        .split(',')
        .find_map(|pair| pair.strip_prefix(&format!("{key} ")))
        .unwrap();
    String::from_utf8(STANDARD.decode(value).unwrap()).unwrap()
}

fn number(headers: &HeaderMap, name: &str) -> usize {
    headers[name].to_str().unwrap().parse().unwrap()
}

fn check_version(headers: &HeaderMap) {
    assert_eq!(headers["tus-resumable"], "1.0.0");
}

/// Reads a body to its end, or to where it was cut; says which.
async fn read(body: Body) -> (Vec<u8>, bool) {
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        match part {
            Ok(part) => bytes.extend_from_slice(&part),
            Err(_) => return (bytes, false),
        }
    }
    (bytes, true)
}

async fn create(State(centre): Shared, headers: HeaderMap, body: Body) -> Response {
    check_version(&headers);
    if centre.mischief_now(Mischief::Busy) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let at_once = headers.contains_key("content-type");
    let (bytes, whole) = read(body).await;
    *centre.received.lock().unwrap() += bytes.len() as u64;
    if !whole {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if at_once && centre.mischief == Mischief::RefuseAtOnce {
        centre.at_once.fetch_add(1, Ordering::SeqCst);
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    }
    centre.creations.fetch_add(1, Ordering::SeqCst);
    assert_eq!(metadata(&headers, "device"), DEVICE);
    let expected: Sha256Digest = metadata(&headers, "sha256").parse().unwrap();
    if centre.archive.lock().unwrap().contains_key(&expected) {
        let url = format!("/intake/v1/blocks/{expected}/receipt");
        return (StatusCode::OK, [("cordon-receipt", url)]).into_response();
    }
    let size = number(&headers, "upload-length");
    let (location, id) = {
        let uploads = centre.uploads.lock().unwrap();
        let id = format!(
            "u{}-{}",
            uploads.len(),
            centre.creations.load(Ordering::SeqCst)
        );
        let location = format!("https://localhost/intake/v1/files/{id}");
        ([("location", location)], id)
    };
    let mut unfinished = Unfinished {
        expected,
        size,
        bytes: vec![],
    };
    if !at_once || centre.mischief == Mischief::NothingAtOnce {
        if at_once {
            centre.at_once.fetch_add(1, Ordering::SeqCst);
        }
        centre.uploads.lock().unwrap().insert(id, unfinished);
        return (StatusCode::CREATED, location).into_response();
    }
    centre.at_once.fetch_add(1, Ordering::SeqCst);
    assert_eq!(headers["content-type"], "application/offset+octet-stream");
    assert_eq!(headers["cordon-receipt"], "1");
    let offset = [("upload-offset", bytes.len().to_string())];
    unfinished.bytes = bytes;
    if unfinished.bytes.len() < size {
        centre.uploads.lock().unwrap().insert(id, unfinished);
        return (StatusCode::CREATED, location, offset).into_response();
    }
    let block = centre.settle(unfinished);
    centre.finished.lock().unwrap().insert(id, block);
    if centre.mischief == Mischief::Slow {
        return (StatusCode::CREATED, location, offset).into_response();
    }
    match centre.receipt(&block) {
        Some(receipt) => {
            let media_type = [("content-type", "application/pkcs7-mime")];
            (StatusCode::CREATED, location, offset, media_type, receipt).into_response()
        }
        None => (StatusCode::CREATED, location, offset).into_response(),
    }
}

async fn offset(State(centre): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    check_version(&headers);
    match centre.uploads.lock().unwrap().get(&id) {
        Some(u) => (
            StatusCode::OK,
            [("upload-offset", u.bytes.len().to_string())],
        )
            .into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn append(
    State(centre): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    check_version(&headers);
    // What came before a cut counts.
    let (body, _) = read(body).await;
    let len = u32::try_from(body.len()).unwrap();
    centre.largest_part.fetch_max(len, Ordering::SeqCst);
    *centre.received.lock().unwrap() += u64::from(len);
    let mut uploads = centre.uploads.lock().unwrap();
    let Some(upload) = uploads.get_mut(&id) else {
        return StatusCode::GONE.into_response();
    };
    if number(&headers, "upload-offset") != upload.bytes.len() {
        return StatusCode::CONFLICT.into_response();
    }
    // A part with a checksum would be thrown away whole when it is cut.
    assert!(!headers.contains_key("upload-checksum"));
    let damaged = centre.mischief_now(Mischief::DamageOnce);
    if damaged {
        return StatusCode::from_u16(460).unwrap().into_response();
    }
    if !upload.bytes.is_empty() && centre.mischief_now(Mischief::ExpireOnce) {
        uploads.remove(&id);
        return StatusCode::GONE.into_response();
    }
    upload.bytes.extend_from_slice(&body);
    let offset = upload.bytes.len();
    if offset == upload.size {
        let upload = uploads.remove(&id).unwrap();
        let block = centre.settle(upload);
        centre.finished.lock().unwrap().insert(id, block);
    }
    (
        StatusCode::NO_CONTENT,
        [("upload-offset", offset.to_string())],
    )
        .into_response()
}

async fn lists(State(centre): Shared) -> Response {
    let lists = centre.lists.lock().unwrap();
    let Some(lists) = lists.as_ref() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let lists: Vec<String> = lists.iter().map(|der| STANDARD.encode(der)).collect();
    let responses = centre.responses.lock().unwrap();
    let responses: Vec<String> = responses.iter().map(|der| STANDARD.encode(der)).collect();
    // A centre of an earlier version has none.
    let responses = match responses.is_empty() {
        true => String::new(),
        false => format!(r#","ocsp":["{}"]"#, responses.join("\",\"")),
    };
    let lists = format!(
        r#"{{"schema":"cordon.revocation/1","lists":["{}"]{responses}}}"#,
        lists.join("\",\"")
    );
    lists.into_response()
}

async fn log_proof(State(centre): Shared, RawQuery(query): RawQuery) -> Response {
    let log = centre.log.lock().unwrap();
    let Some(view) = log.as_ref().map(|log| log.view().unwrap()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let query = query.unwrap();
    let sizes = query.strip_prefix("from=").unwrap().split(',');
    let proofs: Vec<Vec<String>> = sizes
        .filter(|size| !size.is_empty())
        .map(|size| {
            let proof = view.consistency_proof(size.parse().unwrap());
            let encode = |hash| STANDARD.encode(hash);
            proof.unwrap_or_default().iter().map(encode).collect()
        })
        .collect();
    let answer = serde_json::json!({
        "schema": "cordon.log-proof/1",
        "checkpoint": view.note(),
        "proofs": proofs,
    });
    answer.to_string().into_response()
}

async fn trust_bundle(State(centre): Shared) -> Response {
    answer(centre.bundle.lock().unwrap().clone())
}

fn answer(receipt: Option<Vec<u8>>) -> Response {
    match receipt {
        Some(der) => ([("content-type", "application/pkcs7-mime")], der).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn receipt_of_upload(State(centre): Shared, Path(id): Path<String>) -> Response {
    if centre.mischief_now(Mischief::Slow) {
        return (StatusCode::ACCEPTED, [("retry-after", "1")]).into_response();
    }
    let block = centre.finished.lock().unwrap().get(&id).copied();
    if block == Some(Sha256Digest::ZERO) {
        let problem = r#"{"code":"hash-mismatch"}"#;
        return (StatusCode::UNPROCESSABLE_ENTITY, problem).into_response();
    }
    answer(block.and_then(|b| centre.receipt(&b)))
}

async fn receipt_of_block(State(centre): Shared, Path(hash): Path<String>) -> Response {
    answer(hash.parse().ok().and_then(|h| centre.receipt(&h)))
}
