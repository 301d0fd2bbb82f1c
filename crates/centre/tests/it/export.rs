//! The custody package, checked by the program and by the script, with a real audit log.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::Role;
use audit::{AuditError, AuditSink, Event, LogKey, Recorded, SharedLog};
use centre::{Decision, ExportContext, ReviewError};
use evidence::check::{self, CheckError, Report, TrustFile};
use evidence::digest::Sha256Digest;
use evidence::export::{self, CustodyEvent, FolderTarget, LogProof};
use pki::cert;
use pki::clearance::Clearance;
use pki::crl::{RevocationReason, RevokedEntry};
use pki::status::Revocation;
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use crate::site::{ORIGIN, Options, Site};
use crate::world::{CAMERA, Shot, now};

fn proofs(log: &SharedLog, indices: &[u64]) -> LogProof {
    let view = log.view().unwrap();
    let events = indices.iter().map(|&index| CustodyEvent {
        entry: view.entry(index).unwrap(),
        index,
        proof: view.inclusion_proof(index).unwrap(),
    });
    LogProof {
        events: events.collect(),
        checkpoint: view.note().to_owned(),
        origin: ORIGIN.into(),
        public_key: *log.verifier().public_key(),
    }
}

/// A certificate by serial number, revoked at a time.
fn revoked(certificate: &cert::Certificate, at: OffsetDateTime) -> RevokedEntry {
    revoked_for(certificate, at, RevocationReason::KeyCompromise)
}

fn revoked_for(
    certificate: &cert::Certificate,
    at: OffsetDateTime,
    reason: RevocationReason,
) -> RevokedEntry {
    RevokedEntry {
        serial: certificate
            .tbs_certificate
            .serial_number
            .as_bytes()
            .to_vec(),
        revocation: Revocation { at, reason },
    }
}

fn context(site: &Site, log: &SharedLog, revoked: &[RevokedEntry]) -> ExportContext {
    let world = &site.world;
    let crl = |authority: &pki::issue::CertificateAuthority| {
        let issued = now() - Duration::minutes(1);
        let der = authority
            .crl(1, revoked, issued, now() + Duration::days(7))
            .unwrap();
        der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, &der).unwrap()
    };
    let log = log.clone();
    ExportContext {
        root_pem: cert::to_pem(world.root.certificate()).unwrap(),
        crls_pem: [&world.root, &world.devices, &world.services]
            .map(crl)
            .into(),
        prove: Box::new(move |indices| Ok(proofs(&log, indices))),
    }
}

/// A site whose audit log is real, with one block that a reviewer looked at.
struct Scene {
    folder: TempDir,
    log: SharedLog,
    site: Site,
    id: String,
    block: Vec<u8>,
}

/// Passes events on, or fails after they are in the log, as a crash does.
struct Crashing {
    sink: Arc<dyn AuditSink>,
    crash: AtomicBool,
}

impl AuditSink for Crashing {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        let recorded = self.sink.record_all(events)?;
        if self.crash.swap(false, Ordering::SeqCst) {
            return Err(AuditError::Stopped);
        }
        Ok(recorded)
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(audit::Logged),
    ) -> Result<u64, AuditError> {
        self.sink.read_on(from, wanted, each)
    }
}

impl Scene {
    async fn new() -> (Self, Arc<Crashing>) {
        let folder = tempfile::tempdir().unwrap();
        let log = SharedLog::open(folder.path(), LogKey::generate(ORIGIN).unwrap()).unwrap();
        let audit = Arc::new(Crashing {
            sink: Arc::new(log.role("centre").unwrap()),
            crash: AtomicBool::new(false),
        });
        let site = Site::with(Options {
            audit: Some(audit.clone()),
            ..Options::default()
        })
        .await;
        let camera = site.world.camera(CAMERA);
        let block = camera.seal(&Shot::first());
        site.deliver(CAMERA, &block).await;
        site.deliver(CAMERA, &camera.seal(&Shot::after(&block)))
            .await;
        let scene = Self {
            folder,
            log,
            site,
            id: block.violation(),
            block: block.bytes.clone(),
        };
        (scene, audit)
    }

    async fn view(&self) {
        let who = self.site.world.reviewer(Clearance::Secret);
        let review = self.site.centre.review();
        review.medium(&who, &self.id, 0).await.unwrap();
    }

    async fn export(&self, name: &str, revoked: &[RevokedEntry]) -> PathBuf {
        let into = self.folder.path().join(name);
        let who = self.site.world.reviewer(Clearance::Secret);
        let context = context(&self.site, &self.log, revoked);
        let review = self.site.centre.review();
        let export = review.export(&who, &self.id, context).await.unwrap();
        let mut target = FolderTarget::begin(&into).unwrap();
        tokio::task::spawn_blocking(move || export.write(&mut target))
            .await
            .unwrap()
            .unwrap();
        into
    }

    fn trust(&self) -> TrustFile {
        let root = check::fingerprint(self.site.world.root.certificate()).unwrap();
        let key = self.log.verifier().public_key();
        TrustFile::new(root, "1.3.6.1.4.1.99999.1".into(), ORIGIN.into(), key)
    }

    /// The program's answer, which the script must share.
    fn check(&self, package: &Path) -> Result<Report, CheckError> {
        let trust = self.folder.path().join("trust.json");
        std::fs::write(&trust, serde_json::to_vec(&self.trust()).unwrap()).unwrap();
        let script = self.folder.path().join("verify_package.py");
        std::fs::write(&script, export::SCRIPT).unwrap();
        let output = Command::new("python3")
            .args([&script, Path::new("--trust"), &trust, package])
            .output()
            .expect("python3 must be installed");
        let answer = check::check(package, &self.trust(), &[], OffsetDateTime::now_utc());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.success(),
            answer.is_ok(),
            "{text}: {answer:?}"
        );
        assert!(text.is_empty() || text.starts_with("INVALID: "), "{text}");
        answer
    }

    /// Hashes and signs the folder again, as the centre itself could.
    fn sign_again(&self, package: &Path) {
        let path = package.join("SHA256SUMS");
        let sums = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<String> = sums
            .lines()
            .map(|line| {
                let (_, name) = line.split_once(" *").unwrap();
                let bytes = std::fs::read(package.join(name)).unwrap();
                format!("{} *{name}\n", Sha256Digest::of(&bytes))
            })
            .collect();
        let sums = lines.concat();
        let signature = self.site.world.receipts.key.sign(sums.as_bytes()).unwrap();
        std::fs::write(&path, sums).unwrap();
        std::fs::write(package.join("SHA256SUMS.sig"), signature).unwrap();
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Takes event `number` (from 0) out of a package, with its proof.
fn leave_out(package: &Path, number: usize) {
    let mut events = lines(&package.join("events.jsonl"));
    events.remove(number);
    std::fs::write(package.join("events.jsonl"), events.join("\n") + "\n").unwrap();
    let text = std::fs::read_to_string(package.join("proofs.json")).unwrap();
    let mut proofs: serde_json::Value = serde_json::from_str(&text).unwrap();
    proofs["events"].as_array_mut().unwrap().remove(number);
    std::fs::write(package.join("proofs.json"), proofs.to_string()).unwrap();
}

#[tokio::test]
async fn package_of_the_centre_is_valid() {
    let (scene, _) = Scene::new().await;
    scene.view().await;
    let who = scene.site.world.reviewer(Clearance::Secret);
    let review = scene.site.centre.review();
    review
        .decide(&who, &scene.id, Decision::Accepted, "legible", 0)
        .await
        .unwrap();
    let package = scene.export("package", &[]).await;
    let report = scene.check(&package).unwrap();
    assert_eq!(report.violation, scene.id);
    assert_eq!(report.device, CAMERA);
    // Receipt, medium, permission to decide, decision, export.
    assert_eq!((report.events, report.notes.len()), (5, 0));
    assert_eq!(
        std::fs::read(package.join("block.cordon")).unwrap(),
        scene.block
    );
    let picture = std::fs::read(package.join("media/01-front.jpg")).unwrap();
    assert_eq!(picture, Shot::first().media[0].2);

    let officer = scene
        .site
        .world
        .person(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let context = context(&scene.site, &scene.log, &[]);
    let refused = review.export(&officer, &scene.id, context).await;
    assert!(matches!(refused, Err(ReviewError::Denied { .. })));
}

#[tokio::test]
async fn custody_record_with_an_event_left_out_is_refused() {
    let (scene, _) = Scene::new().await;
    for _ in 0..3 {
        scene.view().await;
    }
    let package = scene.export("package", &[]).await;
    assert_eq!(scene.check(&package).unwrap().events, 5);
    for number in 0..5 {
        let copy = scene.export(&format!("without-{number}"), &[]).await;
        leave_out(&copy, number);
        // Even by who makes the packages.
        scene.sign_again(&copy);
        let error = scene.check(&copy).unwrap_err();
        let code = error.code();
        let expected = if number == 0 { "malformed" } else { "custody" };
        assert_eq!(code, expected, "event {number}: {error}");
    }
}

#[tokio::test]
async fn event_that_a_crash_separated_from_its_row_is_in_the_record_once() {
    let (scene, audit) = Scene::new().await;
    let who = scene.site.world.reviewer(Clearance::Secret);
    let review = scene.site.centre.review();
    audit.crash.store(true, Ordering::SeqCst);
    assert!(review.medium(&who, &scene.id, 0).await.is_err());
    scene.view().await;
    let package = scene.export("package", &[]).await;
    // Receipt, the interrupted view, the next one, export.
    assert_eq!(scene.check(&package).unwrap().events, 4);
}

#[tokio::test]
async fn record_begun_by_an_earlier_version_is_vouched_for() {
    let (mut scene, audit) = Scene::new().await;
    let sink = scene.log.role("centre").unwrap();
    // What earlier versions wrote: the event of a view, and a row, both without numbers.
    let event = Event::new(
        now(),
        audit::Actor::user("u", "U"),
        "evidence.view",
        format!("violation/{}", scene.id),
        audit::Outcome::Permit,
    );
    let index = sink.record(event).unwrap().leaf_index;
    let file = scene.site.folder.path().join("centre.sqlite");
    let options = SqliteConnectOptions::new().filename(file);
    let mut index_file = SqliteConnection::connect_with(&options).await.unwrap();
    store::sqlx::query("INSERT INTO custody VALUES (?, 0, 'U', 'evidence.view', ?, NULL)")
        .bind(&scene.id)
        .bind(index.cast_signed())
        .execute(&mut index_file)
        .await
        .unwrap();
    index_file.close().await.unwrap();
    let Site {
        centre,
        world,
        folder,
        ..
    } = scene.site;
    drop(centre);
    let options = Options {
        audit: Some(audit),
        ..Options::default()
    };
    scene.site = Site::open(world, folder, options).await;
    let package = scene.export("package", &[]).await;
    let export = lines(&package.join("events.jsonl")).pop().unwrap();
    let leaf: serde_json::Value = serde_json::from_str(&export).unwrap();
    let details = &leaf["event"]["details"];
    assert_eq!(details["custody_count"], 3);
    assert_eq!(details["custody_previous"], index);
    let first = lines(&package.join("proofs.json")).concat();
    let proofs: serde_json::Value = serde_json::from_str(&first).unwrap();
    let list = format!("{},{index}", proofs["events"][0]["index"]);
    let hash = Sha256Digest::of(list.as_bytes()).to_string();
    assert_eq!(details["custody_earlier_sha256"], hash);
}

#[tokio::test]
async fn revocation_before_its_use_refuses_and_after_it_is_said() {
    let (scene, _) = Scene::new().await;
    let world = &scene.site.world;
    let camera = world.devices.certificate();
    let receipts = world.receipts.chain.leaf();
    let before = now() - Duration::hours(1);
    for certificate in [receipts, camera, world.services.certificate()] {
        let serial = cert::serial_hex(certificate);
        let package = scene
            .export(&format!("before-{serial}"), &[revoked(certificate, before)])
            .await;
        let error = scene.check(&package).unwrap_err();
        assert_eq!(error.code(), "revoked", "{error}");
    }
    let later = now() + Duration::hours(1);
    let package = scene.export("later", &[revoked(receipts, later)]).await;
    let report = scene.check(&package).unwrap();
    assert!(!report.notes.is_empty());

    // Lists that are missing, or of before the export, say nothing.
    let package = scene.export("no-list", &[]).await;
    std::fs::remove_file(package.join("crls/03.pem")).unwrap();
    let sums = package.join("SHA256SUMS");
    let kept: Vec<String> = lines(&sums)
        .into_iter()
        .filter(|line| !line.ends_with("crls/03.pem"))
        .collect();
    std::fs::write(&sums, kept.join("\n") + "\n").unwrap();
    scene.sign_again(&package);
    assert_eq!(scene.check(&package).unwrap_err().code(), "list-missing");
}

#[tokio::test]
async fn camera_superseded_between_sealing_and_arrival_is_accepted() {
    let (scene, _) = Scene::new().await;
    let package = scene.export("plain", &[]).await;
    let manifest = std::fs::read(package.join("manifest.p7s")).unwrap();
    let statement = evidence::cms::parse_signed_data(&manifest)
        .unwrap()
        .verify()
        .unwrap();
    let (camera, signed) = (statement.signer_chain.leaf(), statement.signing_time);
    let second = Duration::seconds(1);
    let of = |at, reason| revoked_for(camera, at, reason);
    for (name, entry, valid) in [
        (
            "just-after",
            of(signed + second, RevocationReason::Superseded),
            true,
        ),
        (
            "just-before",
            of(signed - second, RevocationReason::Superseded),
            false,
        ),
        // Any other reason counts by a time that the camera does not choose.
        (
            "stolen",
            of(signed + second, RevocationReason::KeyCompromise),
            false,
        ),
    ] {
        let package = scene.export(name, &[entry]).await;
        let checked = scene.check(&package);
        assert_eq!(checked.is_ok(), valid, "{name}: {checked:?}");
    }
}

#[tokio::test]
async fn package_of_an_earlier_version_is_refused_and_named() {
    let (scene, _) = Scene::new().await;
    let package = scene.export("package", &[]).await;
    std::fs::remove_file(package.join("package.json")).unwrap();
    let error = scene.check(&package).unwrap_err();
    assert_eq!(error.code(), "earlier-version");
}

/// Writes `name` into a package, or removes it, and has the list of files say so.
fn put(package: &Path, name: &str, bytes: Option<&[u8]>) {
    let path = package.join("SHA256SUMS");
    let mut sums = lines(&path);
    sums.retain(|line| !line.ends_with(&format!(" *{name}")));
    match bytes {
        Some(bytes) => {
            std::fs::write(package.join(name), bytes).unwrap();
            sums.push(format!("{} *{name}", Sha256Digest::of(bytes)));
        }
        None => std::fs::remove_file(package.join(name)).unwrap(),
    }
    std::fs::write(path, format!("{}\n", sums.join("\n"))).unwrap();
}

#[tokio::test]
async fn package_of_a_replaced_camera_shows_who_began_its_epoch() {
    let (mut scene, _) = Scene::new().await;
    let first = scene.export("first", &[]).await;
    assert_eq!(scene.check(&first).unwrap().epoch, 0);
    let (one, other) = scene.site.two_people();
    let desk = scene.site.centre.quarantine();
    let proposed = desk.propose_replacement(&one, CAMERA, "card swapped");
    proposed.await.unwrap();
    desk.confirm_replacement(&other, CAMERA).await.unwrap();
    let block = scene.site.world.camera(CAMERA).seal(&Shot {
        plate: "NEW 1".into(),
        ..Shot::first()
    });
    assert_eq!(scene.site.deliver(CAMERA, &block).await.reason, None);
    scene.id = block.violation();
    let package = |name: &'static str| scene.export(name, &[]);
    let good = package("good").await;
    let report = scene.check(&good).unwrap();
    assert_eq!((report.epoch, report.sequence), (1, 1));
    let epoch = std::fs::read_to_string(good.join("epoch.json")).unwrap();
    assert!(epoch.contains("reviewer-a") && epoch.contains("card swapped"));

    let bad = package("missing").await;
    put(&bad, "epoch.json", None);
    scene.sign_again(&bad);
    assert!(matches!(scene.check(&bad), Err(CheckError::Missing(_))));
    let bad = package("changed").await;
    put(
        &bad,
        "epoch.json",
        Some(epoch.replace("swapped", "dropped").as_bytes()),
    );
    scene.sign_again(&bad);
    assert!(matches!(
        scene.check(&bad),
        Err(CheckError::NotInLog { .. })
    ));
    // The package of the first epoch has nothing to say about a later one.
    put(&first, "epoch.json", Some(epoch.as_bytes()));
    scene.sign_again(&first);
    assert!(scene.check(&first).is_err());
}
