//! Which certificate opens which connection, and what ends with it.

use pki::clearance::Clearance;
use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use pki::status::Revocation;
use pki::{KeyAlgorithm, PrivateKey};
use time::OffsetDateTime;

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A peer that shows a certificate and asks for an address.
pub(super) const PEER: &str = r#"
status = "s"
interface = { name = "t" }
trust = { anchors = ["root.pem"], intermediates = ["devices.pem"] }
[[connection]]
name = "headquarters"
remote = "192.0.2.1"
remote_id = "gateway.example.org"
certificate = "peer.pem"
key = "peer.key"
start = "start"
request = ["ipv4"]
[[connection.child]]
name = "net"
remote = ["10.5.2.0/24"]
"#;

pub(super) struct Site {
    pub(super) folder: tempfile::TempDir,
    devices: CertificateAuthority,
    users: CertificateAuthority,
}

fn request(profile: Profile, subject: Subject, key: &PrivateKey, days: i64) -> CertificateRequest {
    let start = OffsetDateTime::now_utc() - time::Duration::hours(1);
    let validity = Validity::starting(start, time::Duration::days(days));
    CertificateRequest::new(profile, subject, key.spki(), validity)
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

fn pem(label: &str, der: &[u8]) -> String {
    der::pem::encode_string(label, der::pem::LineEnding::LF, der).unwrap()
}

impl Site {
    /// Authorities for devices, users and services, and a gateway; the files are beside the configuration.
    pub(super) fn new() -> Self {
        let (arc, now) = (ExtensionArc::default(), OffsetDateTime::now_utc());
        let own = key();
        let root = request(Profile::Root, Subject::new("Root"), &own, 3650);
        let root = CertificateAuthority::create_root(&root, own, arc).unwrap();
        let issuing = |kind: CaKind| {
            let own = key();
            let subject = Subject::new(format!("{kind} CA"));
            let mut asked = request(Profile::IssuingCa(kind), subject, &own, 3000);
            asked.clearance = Some(Clearance::Secret);
            CertificateAuthority::new(root.issue(&asked, now).unwrap(), own, arc).unwrap()
        };
        let (devices, users) = (issuing(CaKind::Devices), issuing(CaKind::Users));
        let services = issuing(CaKind::Services);
        let site = Self {
            folder: tempfile::tempdir().unwrap(),
            devices,
            users,
        };
        site.write("root.pem", &pem("CERTIFICATE", &der_of(root.certificate())));
        site.write(
            "devices.pem",
            &pem("CERTIFICATE", &der_of(site.devices.certificate())),
        );
        site.write(
            "users.pem",
            &pem("CERTIFICATE", &der_of(site.users.certificate())),
        );
        let own = key();
        let subject = Subject::new("gateway.example.org");
        let mut asked = request(Profile::Server, subject, &own, 30);
        asked.alt_names = vec![AltName::Dns("gateway.example.org".into())];
        let certificate = services.issue(&asked, now).unwrap();
        site.write_identity("gateway", &[&certificate, services.certificate()], &own);
        site
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn write_identity(&self, name: &str, chain: &[&x509_cert::Certificate], key: &PrivateKey) {
        let chain: String = chain
            .iter()
            .map(|c| pem("CERTIFICATE", &der_of(c)))
            .collect();
        self.write(&format!("{name}.pem"), &chain);
        self.write(
            &format!("{name}.key"),
            &pem("PRIVATE KEY", &key.to_pkcs8_der()),
        );
    }

    pub(super) fn camera(&self, name: &str) {
        let own = key();
        let mut asked = request(Profile::Device, Subject::new("camera-17"), &own, 30);
        asked.alt_names = vec![AltName::Dns(name.into())];
        let certificate = self
            .devices
            .issue(&asked, OffsetDateTime::now_utc())
            .unwrap();
        self.write_identity("peer", &[&certificate, self.devices.certificate()], &own);
    }

    fn officer(&self, unit: &str, clearance: Clearance) {
        let own = key();
        let mut subject = Subject::new("Officer");
        subject.unit = Some(unit.into());
        subject.uid = Some("officer-9".into());
        subject.email = Some("officer@police.example.org".into());
        let user = Profile::User {
            administrator: false,
        };
        let mut asked = request(user, subject, &own, 30);
        asked.clearance = Some(clearance);
        let certificate = self.users.issue(&asked, OffsetDateTime::now_utc()).unwrap();
        self.write_identity("peer", &[&certificate, self.users.certificate()], &own);
    }

    /// A revocation list that names the certificate of the peer.
    pub(super) fn revoke_peer(&self) -> Vec<u8> {
        let now = OffsetDateTime::now_utc();
        let pem = std::fs::read(self.folder.path().join("peer.pem")).unwrap();
        let chain = x509_cert::Certificate::load_pem_chain(&pem).unwrap();
        let entry = RevokedEntry {
            serial: chain[0].tbs_certificate.serial_number.as_bytes().to_vec(),
            revocation: Revocation {
                at: now - time::Duration::minutes(1),
                reason: RevocationReason::KeyCompromise,
            },
        };
        let next = now + time::Duration::days(1);
        self.devices.crl(1, &[entry], now, next).unwrap()
    }

    /// The text of a gateway with these connections and what they demand.
    pub(super) fn gateway(connections: &[(&str, &str)]) -> String {
        let mut gateway = r#"
status = "s"
interface = { name = "t" }
trust = { anchors = ["root.pem"], intermediates = ["devices.pem"] }
"#
        .to_owned();
        for (number, (name, demand)) in connections.iter().enumerate() {
            gateway += &format!(
                r#"
[[pool]]
name = "{name}"
addresses = ["10.{number}.9.0/24"]
[[connection]]
name = "{name}"
local_id = "gateway.example.org"
remote_id = "any"
certificate = "gateway.pem"
key = "gateway.key"
pool = "{name}"
peer = {{ {demand} }}
[[connection.child]]
name = "net"
local = ["10.5.2.0/24"]
"#
            );
        }
        gateway
    }

    /// The peer towards a gateway with these connections; which one it came up on.
    fn connect(self, connections: &[(&str, &str)]) -> (Option<String>, World) {
        let mut world = World::in_folder(self.folder, PEER, &Self::gateway(connections));
        world.run(Duration::from_secs(2));
        let up = world.status(1).sas.first().map(|sa| sa.connection.clone());
        (up, world)
    }
}

fn der_of(certificate: &x509_cert::Certificate) -> Vec<u8> {
    der::Encode::to_der(certificate).unwrap()
}

const OFFICERS: (&str, &str) = (
    "officers",
    r#"kind = "users", unit = "Traffic", min_clearance = 2"#,
);
pub(super) const CAMERAS: (&str, &str) = (
    "cameras",
    r#"kind = "devices", domain = "cameras.example.org""#,
);

#[test]
fn camera_certificate_does_not_open_the_officers_connection() {
    let site = Site::new();
    site.camera("camera-17.cameras.example.org");
    let (up, mut world) = site.connect(&[OFFICERS]);
    assert_eq!(up, None);
    let reason = world.reasons(1).remove(0);
    assert!(
        reason.contains("devices, and this connection is for users"),
        "{reason}"
    );
    assert!(world.sides[1].done.actions().contains(&"tunnel.refuse"));
}

#[test]
fn certificate_opens_the_connection_that_is_for_it() {
    for order in [[OFFICERS, CAMERAS], [CAMERAS, OFFICERS]] {
        let site = Site::new();
        site.camera("camera-17.cameras.example.org");
        let (up, mut world) = site.connect(&order);
        assert_eq!(up.as_deref(), Some("cameras"));
        world.check_up();
        let site = Site::new();
        site.officer("Traffic", Clearance::Confidential);
        let (up, mut world) = site.connect(&order);
        assert_eq!(up.as_deref(), Some("officers"), "{:?}", world.reasons(1));
        world.check_up();
    }
}

#[test]
fn refused_certificate_names_the_unmet_requirement() {
    let users = r#"authorities = ["users.pem"]"#;
    type Make = fn(&Site);
    let cases: [(Make, (&str, &str), &str); 5] = [
        (
            |site| site.officer("Traffic", Clearance::Restricted),
            OFFICERS,
            "clearance is 1",
        ),
        (
            |site| site.officer("Archive", Clearance::Secret),
            OFFICERS,
            "unit is not Traffic",
        ),
        (
            |site| site.camera("camera-17.example.org"),
            CAMERAS,
            "no name under",
        ),
        (
            |site| site.camera("camera-17.evilcameras.example.org"),
            CAMERAS,
            "no name under",
        ),
        (
            |site| site.camera("camera-17.example.org"),
            ("users", users),
            "none of the authorities",
        ),
    ];
    for (make, connection, expected) in cases {
        let site = Site::new();
        make(&site);
        let (up, mut world) = site.connect(&[connection]);
        assert_eq!(up, None, "{expected}");
        let reason = world.reasons(1).remove(0);
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn accepted_certificate_belongs_to_the_handshake_that_asked() {
    const NAME: &str = "camera-17.cameras.example.org";
    let site = Site::new();
    // Five valid certificates of one name: the first is the camera's.
    for number in 0..5 {
        let own = key();
        let subject = Subject::new(format!("certificate {number}"));
        let mut asked = request(Profile::Device, subject, &own, 30);
        asked.alt_names = vec![AltName::Dns(NAME.into())];
        let certificate = site
            .devices
            .issue(&asked, OffsetDateTime::now_utc())
            .unwrap();
        let chain = [&certificate, site.devices.certificate()];
        site.write_identity(&format!("peer{number}"), &chain, &own);
    }
    let peer = |number: usize| {
        let text = CAMERA.replace(
            "psk_file = \"psk\"",
            "certificate = \"peer.pem\"\nkey = \"peer.key\"",
        );
        let text = text.replace(
            "[[connection]]",
            "trust = { anchors = [\"root.pem\"] }\n[[connection]]",
        );
        text.replace("peer.", &format!("peer{number}."))
            .replace("camera-17.example.org", NAME)
    };
    let gateway = GATEWAY
        .replace(
            "psk_file = \"psk\"",
            "certificate = \"gateway.pem\"\nkey = \"gateway.key\"",
        )
        .replace(
            "[[connection]]",
            "trust = { anchors = [\"root.pem\"] }\n[[connection]]",
        )
        .replace("camera-17.example.org", NAME);
    let folder = site.folder;
    let mut gateway = Side::new(&gateway, folder.path(), 1, Instant::now());
    let mut peers: Vec<Side> = (0..5)
        .map(|number| Side::new(&peer(number), folder.path(), 10 + number, Instant::now()))
        .collect();
    let now = Now::since(Instant::now(), Instant::now());
    let place = |number: usize| {
        SocketAddr::new(
            IpAddr::from([192, 0, 2, 10 + u8::try_from(number).unwrap()]),
            500,
        )
    };
    // Each comes as far as its certificate.
    let mut asked = Vec::new();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.control.tick(now);
        let verify = loop {
            while let Some(effect) = peer.control.poll_effect() {
                peer.serve(effect, now);
            }
            while let Some(sent) = peer.control.poll_transmit() {
                let from = SocketAddr::new(place(number).ip(), sent.local.port());
                gateway
                    .control
                    .message(Path::udp(sent.remote, from), &sent.payload, now);
            }
            let mut verify = None;
            while let Some(effect) = gateway.control.poll_effect() {
                match effect {
                    Effect::Verify(..) => verify = Some(effect),
                    other => gateway.serve(other, now),
                }
            }
            if let Some(verify) = verify {
                break verify;
            }
            while let Some(sent) = gateway.control.poll_transmit() {
                peer.control
                    .message(Path::udp(sent.remote, sent.local), &sent.payload, now);
            }
        };
        asked.push(verify);
    }
    // The camera's is looked at first, the others before its handshake ends.
    let mut sign = None;
    for verify in asked {
        gateway.serve(verify, now);
        while let Some(effect) = gateway.control.poll_effect() {
            if matches!(effect, Effect::Sign(..)) {
                sign = sign.or(Some(effect));
            }
        }
    }
    gateway.serve(sign.unwrap(), now);
    let up: Vec<_> = gateway.control.ikes.values().collect();
    assert_eq!(up.len(), 1);
    let accepted = up[0].accepted.as_ref().unwrap();
    assert_eq!(accepted.subject, "CN=certificate 0");
    // Revoking its certificate ends it; revoking theirs does not.
    let revoke = |gateway: &mut Side, subject: &'static str| {
        let revoked = move |_: &str, accepted: &Accepted| match accepted.subject == subject {
            true => Err("revoked".to_owned()),
            false => Ok(()),
        };
        gateway.control.recheck(&revoked, now);
        gateway.control.counters.revoked
    };
    assert_eq!(revoke(&mut gateway, "CN=certificate 4"), 0);
    assert_eq!(revoke(&mut gateway, "CN=certificate 0"), 1);
    assert!(gateway.control.children.is_empty());
}

/// A camera and a gateway with a tunnel between them, and their texts.
fn pair_with_certificates() -> (Site, [String; 2], World) {
    let site = Site::new();
    site.camera("camera-17.cameras.example.org");
    let certificate = "certificate = \"peer.pem\"\nkey = \"peer.key\"";
    let trust = "trust = { anchors = [\"root.pem\"] }\n[[connection]]";
    let camera = CAMERA
        .replace("psk_file = \"psk\"", certificate)
        .replace("[[connection]]", trust)
        .replace("camera-17.example.org", "camera-17.cameras.example.org");
    let gateway = GATEWAY
        .replace(
            "psk_file = \"psk\"",
            &certificate.replace("peer.", "gateway."),
        )
        .replace("[[connection]]", trust)
        .replace("camera-17.example.org", "camera-17.cameras.example.org");
    let start = Instant::now();
    let side = |text: &str, number: usize| Side::new(text, site.folder.path(), number, start);
    let world = World {
        start,
        elapsed: Duration::ZERO,
        sides: [side(&camera, 0), side(&gateway, 1)],
        cut: false,
        folder: tempfile::tempdir().unwrap(),
    };
    (site, [camera, gateway], world)
}

fn read(site: &Site, text: &str) -> Box<ResolvedConfig> {
    Box::new(
        ResolvedConfig::read(text, site.folder.path(), &KeyHost::in_thread().unwrap()).unwrap(),
    )
}

/// Returns the certificates that a side accepted.
fn accepted(world: &World, at: usize) -> Vec<Arc<Accepted>> {
    let ikes = world.sides[at].control.ikes.values();
    ikes.filter_map(|state| state.accepted.clone()).collect()
}

#[test]
fn renewed_initiator_certificate_is_shown_at_once_and_the_tunnel_stays() {
    let (site, texts, mut world) = pair_with_certificates();
    world.run(Duration::from_secs(1));
    world.check_up();
    let first = accepted(&world, 1);
    site.camera("camera-17.cameras.example.org");
    let reply = world.command(0, Command::Credentials(read(&site, &texts[0])));
    let Reply::Renewed { renewed, changed } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((renewed.len(), changed.len()), (1, 0));
    // Before anything is exchanged the tunnel is what it was.
    world.check_up();
    world.run(Duration::from_secs(5));
    world.check_up();
    let second = accepted(&world, 1);
    assert!(
        !Arc::ptr_eq(&first[0], &second[0]),
        "another authentication"
    );
    let down = |note: &&AuditEvent| note.action.action() == "tunnel.down";
    for side in &world.sides {
        assert_eq!(side.done.audit.iter().filter(down).count(), 1);
        assert_eq!(side.control.counters.established, 2);
        assert_eq!(side.control.counters.failed_timeout, 0);
        // The new Child SA was there before the former went.
        assert_eq!(
            (
                side.done.installed.lock().unwrap().len(),
                side.done.removed.len()
            ),
            (2, 1)
        );
    }
    assert!(
        world.sides[0]
            .done
            .actions()
            .contains(&"tunnel.certificate-renew")
    );
    let gone = |command: &LinkCommand| matches!(command, LinkCommand::RemoveRoute(_));
    assert!(!world.sides[0].done.links.iter().any(gone));
    // Nothing is left to be done.
    world.run(Duration::from_secs(120));
    world.check_up();
    assert_eq!(world.sides[0].control.counters.established, 2);
}

#[test]
fn renewed_responder_certificate_counts_for_the_next_handshake() {
    let (site, texts, mut world) = pair_with_certificates();
    world.run(Duration::from_secs(1));
    let before = world.status(1).sas[0].spi.clone();
    let services = Site::new();
    // Of another hierarchy, so that whoever sees it refuses it.
    for file in ["gateway.pem", "gateway.key"] {
        let text = std::fs::read_to_string(services.folder.path().join(file)).unwrap();
        site.write(file, &text);
    }
    world.command(1, Command::Credentials(read(&site, &texts[1])));
    world.run(Duration::from_secs(60));
    world.check_up();
    assert_eq!(world.status(1).sas[0].spi, before, "the tunnel stays");
    assert_eq!(world.status(1).connections[0].certificates.len(), 1);
    let closed = world.command(0, Command::Down("headquarters".into()));
    assert!(matches!(closed, Reply::Closing(1)));
    world.run(Duration::from_secs(1));
    world.command(0, Command::Connect("headquarters".into()));
    world.run(Duration::from_secs(2));
    assert!(
        world.status(0).sas.is_empty(),
        "the new certificate was shown"
    );
}

#[test]
fn credentials_command_takes_nothing_else_over() {
    let (site, texts, mut world) = pair_with_certificates();
    world.run(Duration::from_secs(1));
    site.camera("camera-17.cameras.example.org");
    let other = texts[0].replace("lifetime = 60.0", "lifetime = 61.0");
    let reply = world.command(0, Command::Credentials(read(&site, &other)));
    let Reply::Renewed { renewed, changed } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((renewed.len(), changed.len()), (0, 1));
    world.run(Duration::from_secs(1));
    assert_eq!(world.sides[0].control.counters.established, 1);
    // A certificate for somebody else makes another connection of it.
    let named = texts[0].replace("local_id = \"camera-17.cameras.example.org\"\n", "");
    let reply = world.command(0, Command::Credentials(read(&site, &named)));
    assert!(matches!(reply, Reply::Renewed { renewed, .. } if renewed.is_empty()));
}

#[test]
fn peer_with_an_ending_certificate_is_reauthenticated_but_not_too_often() {
    let (_site, _, mut world) = pair_with_certificates();
    world.run(Duration::from_secs(1));
    let look = |world: &mut World, ending: bool| {
        let now = world.now();
        for side in &mut world.sides {
            side.control.renew_peers(&|_| ending, now);
        }
        world.run(Duration::from_secs(5));
        world.check_up();
        world.sides[0].control.counters.established
    };
    assert_eq!(look(&mut world, true), 1, "it has only just been shown");
    world.run(Duration::from_secs(600));
    assert_eq!(look(&mut world, false), 1);
    assert_eq!(look(&mut world, true), 2);
    assert_eq!(look(&mut world, true), 2);
    assert_eq!(world.sides[0].control.counters.failed_timeout, 0);
}
