//! A small world for tests: authorities, a camera, folders, and an agent that runs in it.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use camera::{
    Agent, AgentError, Bearer, CameraEvent, Centre, Clock, Config, Environment, EventSink,
    Identity, IdentitySettings, Metrics, SpoolSettings, Trust, Uplink, Watch, WhenFull,
};
use evidence::bundle::{self, TrustBundle};
use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::crl::{CrlForm, CrlRequest, RevocationReason, RevokedEntry};
use pki::file;
use pki::issue::{CertificateAuthority, CertificateRequest as Asked, Validity};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::{AltName, Subject};
use pki::ocsp::responder::{CertificateRequest, ResponseSigner};
use pki::oid::ExtensionArc;
use pki::path::TrustStore;
use pki::profile::{CaKind, Profile};
use pki::status::Revocation;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const DEVICE: &str = "camera-17";
/// Shared by all tests: a key is derived from it once.
pub(crate) static PASSPHRASE: LazyLock<Passphrase> = LazyLock::new(|| "test passphrase".into());

pub(crate) struct World {
    pub(crate) root: CertificateAuthority,
    pub(crate) devices: CertificateAuthority,
    pub(crate) services: CertificateAuthority,
}

pub(crate) struct Leaf {
    pub(crate) key: PrivateKey,
    pub(crate) chain: CertificateChain,
}

impl World {
    pub(crate) fn new() -> Self {
        let now = OffsetDateTime::now_utc();
        let arc = ExtensionArc::default();
        let request = |profile, key: &PrivateKey, name: &str| {
            let days = if profile == Profile::Root {
                4_000
            } else {
                3_000
            };
            let validity = Validity {
                // Old enough for leaves that have expired.
                not_before: now - time::Duration::days(400),
                not_after: now + time::Duration::days(days),
            };
            Asked::new(profile, Subject::new(name), key.spki(), validity)
        };
        let key = || PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let root_key = key();
        let root = CertificateAuthority::create_root(
            &request(Profile::Root, &root_key, "Root"),
            root_key,
            arc,
        )
        .unwrap();
        let issuing = |kind, name| {
            let key = key();
            let mut request = request(Profile::IssuingCa(kind), &key, name);
            request.clearance = Some(Clearance::TopSecret);
            let certificate = root.issue(&request, now).unwrap();
            CertificateAuthority::new(certificate, key, arc).unwrap()
        };
        Self {
            devices: issuing(CaKind::Devices, "Devices"),
            services: issuing(CaKind::Services, "Services"),
            root,
        }
    }

    pub(crate) fn leaf(&self, profile: Profile, name: &str) -> Leaf {
        let validity = Validity::starting(OffsetDateTime::now_utc(), time::Duration::days(90));
        self.leaf_for(profile, name, validity)
    }

    /// A leaf whose validity ended `days` ago.
    pub(crate) fn expired_leaf(&self, profile: Profile, name: &str, days: i64) -> Leaf {
        let not_after = OffsetDateTime::now_utc() - time::Duration::days(days);
        let validity = Validity {
            not_before: not_after - time::Duration::days(90),
            not_after,
        };
        self.leaf_for(profile, name, validity)
    }

    fn leaf_for(&self, profile: Profile, name: &str, validity: Validity) -> Leaf {
        let cleared = (profile == Profile::Device).then_some(Clearance::TopSecret);
        self.cleared_leaf(profile, name, validity, cleared)
    }

    fn cleared_leaf(
        &self,
        profile: Profile,
        name: &str,
        validity: Validity,
        clearance: Option<Clearance>,
    ) -> Leaf {
        let now = OffsetDateTime::now_utc();
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let mut request = Asked::new(profile, Subject::new(name), key.spki(), validity);
        request.clearance = clearance;
        if profile == Profile::Server {
            request.alt_names = vec![AltName::Dns("localhost".into())];
        }
        let issuer = match profile {
            Profile::Device => &self.devices,
            _ => &self.services,
        };
        let certificate = issuer.issue(&request, now).unwrap();
        let chain = CertificateChain::new(vec![certificate, issuer.certificate().clone()]).unwrap();
        Leaf { key, chain }
    }

    /// Revocation lists of root and services, issued a minute ago and good for `life`.
    pub(crate) fn lists(
        &self,
        number: u64,
        revoked: &[&Certificate],
        life: time::Duration,
    ) -> Vec<Vec<u8>> {
        let issued = OffsetDateTime::now_utc() - time::Duration::minutes(1);
        let entries: Vec<RevokedEntry> = revoked
            .iter()
            .map(|certificate| RevokedEntry {
                serial: certificate
                    .tbs_certificate
                    .serial_number
                    .as_bytes()
                    .to_vec(),
                revocation: Revocation {
                    at: issued,
                    reason: RevocationReason::KeyCompromise,
                },
            })
            .collect();
        [&self.root, &self.services]
            .map(|authority| {
                authority
                    .crl(number, &entries, issued, issued + life)
                    .unwrap()
            })
            .into()
    }

    /// A delta list of the services that adds nothing to the complete one of number `base`.
    pub(crate) fn empty_delta(&self, number: u64, base: u64, life: time::Duration) -> Vec<u8> {
        let issued = OffsetDateTime::now_utc() - time::Duration::minutes(1);
        let request = CrlRequest {
            number,
            revoked: &[],
            this_update: issued,
            next_update: issued + life,
            points: &[],
            form: CrlForm::Delta {
                base,
                released: &[],
            },
        };
        self.services.sign_crl(&request).unwrap()
    }

    /// An OCSP response about a service, signed by `signer`.
    pub(crate) fn response(
        &self,
        certificate: &Certificate,
        revoked: bool,
        signer: &Leaf,
    ) -> Vec<u8> {
        let now = OffsetDateTime::now_utc();
        let request = CertificateRequest::about(certificate, self.services.certificate()).unwrap();
        let revocation = Revocation {
            at: now - time::Duration::minutes(1),
            reason: RevocationReason::KeyCompromise,
        };
        ResponseSigner::new(signer.key.clone(), signer.chain.leaf().clone())
            .unwrap()
            .respond(
                &[(&request, revoked.then_some(revocation))],
                None,
                now,
                now + time::Duration::HOUR,
            )
            .unwrap()
    }

    /// A trust bundle of this site, signed by `signer`.
    pub(crate) fn bundle(&self, version: u64, recipients: &[&Leaf], signer: &Leaf) -> Vec<u8> {
        self.bundle_with_log(version, recipients, signer, "log.example.org+00000000+AAAA")
    }

    pub(crate) fn bundle_with_log(
        &self,
        version: u64,
        recipients: &[&Leaf],
        signer: &Leaf,
        log_key: &str,
    ) -> Vec<u8> {
        let encoded = |certificate| bundle::encoded(certificate).unwrap();
        let bundle = TrustBundle {
            schema: bundle::SCHEMA.into(),
            version,
            issued_at: OffsetDateTime::now_utc().replace_nanosecond(0).unwrap(),
            recipients: recipients.iter().map(|r| encoded(r.chain.leaf())).collect(),
            authorities: vec![
                encoded(self.devices.certificate()),
                encoded(self.services.certificate()),
            ],
            lists: Vec::new(),
            log_key: log_key.into(),
        };
        bundle.sign(&signer.key, &signer.chain).unwrap()
    }

    pub(crate) fn trust(&self) -> TrustStore {
        TrustStore::new(&[self.root.certificate().clone()], &[]).unwrap()
    }
}

/// Folders and settings of one camera.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) folder: TempDir,
    pub(crate) recipient: Leaf,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
}

#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Mutex<Vec<CameraEvent>>);

impl EventSink for Recorder {
    fn event(&self, event: CameraEvent) {
        self.0.lock().unwrap().push(event);
    }
}

pub(crate) fn bearer(name: &str, priority: u32, budget: Option<u64>) -> Bearer {
    Bearer {
        name: name.into(),
        source: None,
        interface: None,
        priority,
        monthly_byte_budget: budget,
        overhead_percent: 0,
    }
}

impl Stage {
    pub(crate) fn new(port: u16) -> Self {
        let world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let recipient = world.leaf(Profile::ServiceRecipient, "centre intake");
        let roots = CertificateChain::new(vec![world.root.certificate().clone()]).unwrap();
        file::save_chain(&path("roots.pem"), &roots).unwrap();
        file::save_chain(&path("recipients.pem"), &recipient.chain).unwrap();
        let device = world.leaf(Profile::Device, DEVICE);
        let identity = Identity {
            key: device.key,
            chain: device.chain,
        };
        identity.save(&path("identity.pem"), &PASSPHRASE).unwrap();
        std::fs::create_dir(path("watch")).unwrap();
        let config = Config {
            watch: Watch {
                folder: path("watch"),
                rejected: path("rejected"),
                keep_sealed: None,
                pair_wait_secs: 1,
                settle_secs: 1,
                classification: Clearance::Restricted,
                violation_type: "unspecified".into(),
                place_name: "unknown".into(),
                time_zone: None,
            },
            spool: SpoolSettings {
                folder: path("spool"),
                max_bytes: 100_000_000,
                when_full: WhenFull::Keep,
                max_age_hours: Some(1),
                max_receipts: 100,
                notice_delay_secs: 0,
            },
            identity: IdentitySettings {
                device: DEVICE.into(),
                file: path("identity.pem"),
                key_algorithm: "ecdsa-p256".into(),
            },
            trust: Trust {
                roots: path("roots.pem"),
                authorities: None,
                recipients: path("recipients.pem"),
            },
            centre: Centre {
                host: "127.0.0.1".into(),
                port,
                server_name: Some("localhost".into()),
                path: "/intake/v1/files".into(),
            },
            uplink: Uplink {
                backoff_min_ms: 5,
                backoff_max_ms: 200,
                connect_timeout_secs: 5,
                request_timeout_secs: 5,
                ..Uplink::default()
            },
            bearers: vec![bearer("lte", 1, None)],
            accelerator: None,
            enrolment: None,
        };
        Self {
            world,
            folder,
            recipient,
            config,
            clock: Clock::system(),
        }
    }

    /// Gives the camera a certificate with this clearance.
    pub(crate) fn set_clearance(&self, clearance: Option<Clearance>) {
        let validity = Validity::starting(OffsetDateTime::now_utc(), time::Duration::days(90));
        let device = self
            .world
            .cleared_leaf(Profile::Device, DEVICE, validity, clearance);
        let identity = Identity {
            key: device.key,
            chain: device.chain,
        };
        let file = &self.config.identity.file;
        identity.save(file, &PASSPHRASE).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a picture with its metadata into the watched folder.
    pub(crate) fn picture(&self, name: &str, bytes: &[u8], classification: u8) {
        std::fs::write(self.path(&format!("watch/{name}.jpg")), bytes).unwrap();
        let metadata = format!(
            r#"{{"captured_at":"2026-11-21T10:00:00+01:00","classification":{classification},
            "violation":{{"type":"speeding","speed_kmh":91,"limit_kmh":50,
            "place":{{"name":"Example Street 1","latitude_microdeg":1,"longitude_microdeg":2}}}}}}"#
        );
        std::fs::write(self.path(&format!("watch/{name}.json")), metadata).unwrap();
    }

    pub(crate) async fn try_start(&self) -> Result<Running, AgentError> {
        let events = Arc::new(Recorder::default());
        let environment = Environment {
            passphrase: PASSPHRASE.clone(),
            events: Arc::clone(&events) as Arc<dyn EventSink>,
            clock: self.clock.clone(),
        };
        let agent = Agent::prepare(self.config.clone(), environment).await?;
        let metrics = agent.metrics();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(agent.run(async move {
            let _ = stopped.await;
        }));
        Ok(Running {
            metrics,
            events,
            stop,
            task,
        })
    }

    pub(crate) async fn start(&self) -> Running {
        self.try_start().await.unwrap()
    }
}

pub(crate) struct Running {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Arc<Recorder>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap().unwrap();
    }

    pub(crate) fn saw(&self, wanted: impl Fn(&CameraEvent) -> bool) -> bool {
        self.events.0.lock().unwrap().iter().any(wanted)
    }
}

/// Waits until `done`, at most 30 seconds.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "waited for: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn names(folder: PathBuf) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .map(|items| {
            items
                .map(|i| i.unwrap().file_name().into_string().unwrap())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}
