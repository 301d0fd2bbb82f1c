//! Sequences of upload requests, well-formed and not, against a simple model of what an upload
//! holds. After each request the server's offset equals the model's.

use std::sync::{Arc, OnceLock};

use crate::support::world;
use axum::Router;
use axum::body::Body;
use centre::{Centre, Device, Limits, Setup, Units};
use http::{Request, Response};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

struct Server {
    runtime: Runtime,
    router: Router,
    _folder: tempfile::TempDir,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let w = world();
        let setup = Setup {
            data: folder.path().to_owned(),
            keys: centre::Keys::new(
                w.recipient_keys(),
                centre::Signer {
                    key: w.signer_key.clone(),
                    chain: w.signer.clone(),
                },
            ),
            trust: w.trust(),
            scanner: None,
            audit: Arc::new(audit::MemorySink::default()),
            audit_pool: pool::Pool::new(pool::Share::Audit),
            log_origin: "example.org/log".into(),
            access: Arc::new(access_cedar::CedarRules::shipped().unwrap()),
            units: Units {
                default: "traffic".into(),
                by_device: Default::default(),
            },
            clock: Default::default(),
            checkpoint: Arc::new(|| None),
            destruction_delay: centre::DESTRUCTION_DELAY,
            limits: Limits {
                max_block: 4096,
                max_open_per_device: 8,
                ..Limits::default()
            },
        };
        let centre = runtime.block_on(Centre::open(setup)).unwrap();
        Server {
            runtime,
            router: centre.intake_router(),
            _folder: folder,
        }
    })
}

async fn send(router: &Router, request: http::request::Builder, body: Vec<u8>) -> Response<Body> {
    let mut request: Request<Body> = request.body(Body::from(body)).unwrap();
    request.extensions_mut().insert(Device("camera-17".into()));
    router.clone().oneshot(request).await.unwrap()
}

fn tus(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("tus-resumable", "1.0.0")
}

/// Content of an unfinished upload.
struct Model {
    location: String,
    size: u64,
    offset: u64,
}

async fn offset(router: &Router, location: &str) -> Option<u64> {
    let answer = send(router, tus("HEAD", location), Vec::new()).await;
    let value = answer.headers().get("upload-offset")?;
    value.to_str().ok()?.parse().ok()
}

async fn step(router: &Router, open: &mut Vec<Model>, op: &[u8]) {
    let [kind, a, b, rest @ ..] = op else { return };
    let number = u64::from(u16::from_be_bytes([*a, *b]));
    let chosen = if open.is_empty() {
        None
    } else {
        Some(usize::from(*a) % open.len())
    };
    match (kind % 7, chosen) {
        (0, _) => {
            // An empty upload is complete, and settled in the background like any other.
            let size = 1 + number % 5000;
            let request = tus("POST", "/intake/v1/files").header("upload-length", size);
            let answer = send(router, request, Vec::new()).await;
            if answer.status() == 201 {
                assert!(size <= 4096 && open.len() < 8);
                let location = answer.headers()["location"].to_str().unwrap().to_owned();
                open.push(Model {
                    location,
                    size,
                    offset: 0,
                });
            }
        }
        // A part at the right or a wrong offset, sometimes with a wrong checksum.
        (1..=3, Some(i)) => {
            let model = &mut open[i];
            let part = rest[..rest.len().min(usize::from(*b) % 64)].to_vec();
            let at = if kind % 7 == 2 { number } else { model.offset };
            // The last byte is never sent: a complete upload would be settled in the background.
            let fits = model.offset + (part.len() as u64) < model.size;
            if !fits && model.offset + part.len() as u64 == model.size {
                return;
            }
            let mut request = tus("PATCH", &model.location)
                .header("content-type", "application/offset+octet-stream")
                .header("upload-offset", at);
            if kind % 7 == 3 {
                request = request.header(
                    "upload-checksum",
                    "sha256 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
                );
            }
            let good = at == model.offset && fits && kind % 7 != 3;
            let answer = send(router, request, part.clone()).await;
            assert_eq!(answer.status() == 204, good, "{}", answer.status());
            if good {
                model.offset += part.len() as u64;
            }
            assert_eq!(offset(router, &model.location).await, Some(model.offset));
        }
        (4, Some(i)) => {
            let model = open.swap_remove(i);
            let answer = send(router, tus("DELETE", &model.location), Vec::new()).await;
            assert_eq!(answer.status(), 204);
            assert_eq!(offset(router, &model.location).await, None);
        }
        // Headers of the fuzzer's own making.
        (5, _) => {
            let Ok(text) = std::str::from_utf8(rest) else {
                return;
            };
            let name = [
                "upload-length",
                "upload-metadata",
                "upload-offset",
                "upload-checksum",
            ][usize::from(*a) % 4];
            let Ok(value) = http::HeaderValue::from_str(text) else {
                return;
            };
            let (method, path) = match open.first() {
                Some(model) if b % 2 == 0 => ("PATCH", model.location.clone()),
                _ => ("OPTIONS", "/intake/v1/files".to_owned()),
            };
            let request = tus(method, &path).header(name, value);
            let answer = send(router, request, Vec::new()).await;
            assert!(answer.status().as_u16() != 500, "{text:?}");
        }
        (6, _) => {
            let text: String = rest.iter().map(|b| format!("%{b:02X}")).collect();
            let path = format!("/intake/v1/files/{text}/receipt");
            let answer = send(router, tus("GET", &path), Vec::new()).await;
            assert!(answer.status().as_u16() != 500);
        }
        _ => {}
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let server = server();
    server.runtime.block_on(async {
        let mut open = Vec::new();
        for op in data.chunks(40).take(12) {
            step(&server.router, &mut open, op).await;
        }
        for model in open {
            send(&server.router, tus("DELETE", &model.location), Vec::new()).await;
        }
    });
}
