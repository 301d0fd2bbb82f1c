//! A centre in a folder of its own, and the requests that tests make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::Principal;
use access_cedar::CedarRules;
use audit::{AuditSink, Event, MemorySink};
use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use centre::{
    Centre, Confirmed, Device, Disposal, Limits, QuarantineError, ScannerAddress, Setup, Units,
};
use evidence::receipt::{self, Receipt};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::clearance::Clearance;
use pki::path::Purpose;
use store::ClockFloor;
use tower::ServiceExt as _;

use crate::world::{Block, World};

pub(crate) const ORIGIN: &str = "audit.example.org/log";
/// Checkpoint of these tests' log.
pub(crate) const NOTE: &str =
    "audit.example.org/log\n9\nAAAA\n\n\u{2014} audit.example.org/log AAAA\n";
pub(crate) const FILES: &str = "/intake/v1/files";

/// Options of a site.
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) scanner: Option<ScannerAddress>,
    pub(crate) audit: Option<Arc<dyn AuditSink>>,
    pub(crate) clock: ClockFloor,
    pub(crate) units: Units,
    pub(crate) disk: durable::SharedDisk,
}

impl Default for Options {
    fn default() -> Self {
        let limits = Limits {
            max_block: 64 << 20,
            max_open_per_device: 8,
            ..Limits::default()
        };
        Self {
            limits,
            scanner: None,
            audit: None,
            clock: ClockFloor::default(),
            units: Units {
                default: "traffic".into(),
                by_device: BTreeMap::from([("camera-99".into(), "harbour".into())]),
            },
            disk: durable::real(),
        }
    }
}

pub(crate) struct Site {
    pub(crate) centre: Centre,
    pub(crate) world: Arc<World>,
    pub(crate) sink: Arc<MemorySink>,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap().to_owned()
    }
}

/// Calls a router in process.
pub(crate) async fn call(router: Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// A tus request of `device`.
pub(crate) fn tus(method: &str, path: &str, device: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .extension(Device(device.to_owned()))
        .header("tus-resumable", "1.0.0")
}

pub(crate) fn patch(path: &str, device: &str, offset: u64) -> http::request::Builder {
    tus("PATCH", path, device)
        .header("content-type", "application/offset+octet-stream")
        .header("upload-offset", offset)
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::open(Arc::new(World::new()), folder, options).await
    }

    /// Opens the centre in `folder`, also one that was used before.
    pub(crate) async fn open(
        world: Arc<World>,
        folder: Arc<tempfile::TempDir>,
        mut options: Options,
    ) -> Self {
        let sink = Arc::new(MemorySink::default());
        let audit = options.audit.take().unwrap_or_else(|| sink.clone());
        options.audit = Some(audit);
        let disk = options.disk.clone();
        let setup = setup(&world, &folder, options);
        let centre = Centre::open_on(disk, setup);
        Self {
            centre: centre.await.unwrap(),
            world,
            sink,
            folder,
        }
    }

    /// Two reviewers who may see everything of the unit `traffic`.
    pub(crate) fn two_people(&self) -> (Principal, Principal) {
        let person = |uid| {
            let (level, roles) = (Clearance::TopSecret, [access::Role::Reviewer]);
            self.world.person_named(uid, level, &roles, &["traffic"])
        };
        (person("reviewer-a"), person("reviewer-b"))
    }

    /// Releases a block from quarantine by two people.
    pub(crate) async fn release(
        &self,
        block: &str,
        exceptions: &[String],
        reason: &str,
    ) -> Result<(), QuarantineError> {
        let (one, other) = self.two_people();
        let (desk, exceptions) = (self.centre.quarantine(), exceptions.to_vec());
        let release = Disposal::Release { exceptions };
        desk.propose(&one, block, release, reason).await?;
        let confirmed = desk.confirm(&other, block).await?;
        assert!(matches!(confirmed, Confirmed::Released(_)));
        Ok(())
    }

    /// Destroys a block in quarantine by two people, after the waiting time.
    pub(crate) async fn destroy(&self, block: &str, reason: &str) -> Result<(), QuarantineError> {
        let (one, other) = self.two_people();
        let desk = self.centre.quarantine();
        desk.propose(&one, block, Disposal::Destroy, reason).await?;
        let Confirmed::DestroyFrom(from) = desk.confirm(&other, block).await? else {
            panic!("released");
        };
        desk.destroy(&one, block, from).await?;
        Ok(())
    }

    pub(crate) async fn intake(&self, request: Request<Body>) -> Answer {
        call(self.centre.intake_router(), request).await
    }

    /// A GET of the people's side.
    pub(crate) async fn get(&self, who: &Principal, path: &str) -> Answer {
        let request = Request::get(path).extension(who.clone());
        self.people(request.body(Body::empty()).unwrap()).await
    }

    /// A request of the people's side, whose answer the description has to name.
    pub(crate) async fn people(&self, request: Request<Body>) -> Answer {
        let method = request.method().as_str().to_lowercase();
        let path = request.uri().path().to_owned();
        let answer = call(self.centre.api_router(), request).await;
        let description = serde_json::to_value(Centre::openapi()).unwrap();
        let fits = |template: &str| {
            let (parts, path) = (template.split('/'), path.split('/'));
            parts.clone().count() == path.clone().count()
                && parts
                    .zip(path)
                    .all(|(part, name)| part.starts_with('{') || part == name)
        };
        let paths = description["paths"].as_object().unwrap();
        let operation = paths
            .iter()
            .find(|(template, _)| fits(template))
            .and_then(|(_, path)| path.get(&method));
        if let Some(operation) = operation {
            let declared = operation["responses"].get(answer.status.as_str());
            assert!(
                declared.is_some(),
                "{method} {path}: {} is not described",
                answer.status
            );
        } else {
            let status = answer.status;
            assert!(status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED);
        }
        answer
    }

    pub(crate) async fn create(&self, device: &str, size: usize, metadata: &str) -> Answer {
        let request = tus("POST", FILES, device)
            .header("upload-length", size)
            // As a camera asks.
            .header("cordon-receipt", "1")
            .header("upload-metadata", metadata);
        self.intake(request.body(Body::empty()).unwrap()).await
    }

    /// Makes an upload and returns its address.
    pub(crate) async fn upload(&self, device: &str, size: usize, metadata: &str) -> String {
        let answer = self.create(device, size, metadata).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
        answer.header("location").to_owned()
    }

    pub(crate) async fn head(&self, device: &str, at: &str) -> Answer {
        self.intake(tus("HEAD", at, device).body(Body::empty()).unwrap())
            .await
    }

    /// Uploads `bytes` whole, announced as what they are, and returns the upload's address.
    pub(crate) async fn send(&self, device: &str, bytes: &[u8]) -> String {
        let hash = evidence::digest::Sha256Digest::of(bytes).to_string();
        let at = self.upload(device, bytes.len(), &announce(&hash)).await;
        if bytes.is_empty() {
            return at;
        }
        let body = Body::from(bytes.to_vec());
        let answer = self.intake(patch(&at, device, 0).body(body).unwrap()).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{:?}", answer.body);
        at
    }

    /// Asks for the receipt of an upload until there is an answer.
    pub(crate) async fn receipt(&self, device: &str, at: &str) -> Answer {
        for _ in 0..40 {
            let path = format!("{at}/receipt");
            let request = tus("GET", &path, device).body(Body::empty()).unwrap();
            let answer = self.intake(request).await;
            if answer.status != StatusCode::ACCEPTED {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no receipt for {at}");
    }

    /// Delivers a block and returns what its verified receipt says.
    pub(crate) async fn deliver(&self, device: &str, block: &Block) -> Receipt {
        self.deliver_bytes(device, &block.bytes).await
    }

    pub(crate) async fn deliver_bytes(&self, device: &str, bytes: &[u8]) -> Receipt {
        let at = self.send(device, bytes).await;
        let answer = self.receipt(device, &at).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        let receipt = self.verified(&answer.body);
        assert_eq!(
            receipt.block_sha256,
            evidence::digest::Sha256Digest::of(bytes)
        );
        assert_eq!(receipt.size, bytes.len() as u64);
        assert_eq!(receipt.device, device);
        assert_eq!(receipt.log_origin, ORIGIN);
        receipt
    }

    /// Checks a receipt as a camera does.
    pub(crate) fn verified(&self, der: &[u8]) -> Receipt {
        let trust = self.world.trust.clone();
        let verified = receipt::verify(der, |chain, at| {
            trust
                .validate(chain.ders(), Purpose::ServiceSigner, at)
                .map(|_| ())
        });
        verified.unwrap().receipt().clone()
    }

    pub(crate) fn object(&self, kind: &str, hash: &str) -> PathBuf {
        let folder = self.folder.path().join(kind);
        folder.join(&hash[..2]).join(&hash[2..4]).join(hash)
    }

    pub(crate) fn events(&self, action: &str) -> Vec<Event> {
        let mut events = self.sink.events();
        events.retain(|e| e.action == action);
        events
    }

    /// Files of unfinished uploads.
    pub(crate) fn parts(&self) -> usize {
        files(&self.folder.path().join("uploads"))
    }

    pub(crate) fn objects(&self, kind: &str) -> usize {
        files(&self.folder.path().join(kind))
    }
}

fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path) } else { 1 }
        })
        .sum()
}

/// What a centre in `folder` needs.
pub(crate) fn setup(world: &World, folder: &tempfile::TempDir, options: Options) -> Setup {
    Setup {
        data: folder.path().to_owned(),
        keys: centre::Keys::new(
            vec![world.recipient_key()],
            centre::Signer {
                key: world.receipts.key.clone(),
                chain: world.receipts.chain.clone(),
            },
        ),
        trust: world.trust.clone(),
        scanner: options.scanner,
        audit: options.audit.unwrap(),
        log_origin: ORIGIN.into(),
        access: Arc::new(CedarRules::shipped().unwrap()),
        units: options.units,
        limits: options.limits,
        clock: options.clock,
        checkpoint: Arc::new(|| Some(NOTE.to_owned())),
        audit_pool: pool::Pool::new(pool::Share::Audit),
        destruction_delay: centre::DESTRUCTION_DELAY,
    }
}

/// The metadata that announces a block.
pub(crate) fn announce(hash: &str) -> String {
    format!("sha256 {}", BASE64.encode(hash))
}
