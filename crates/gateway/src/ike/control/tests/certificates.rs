//! Which certificate opens which connection, and what ends with it.

use pki::clearance::Clearance;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use pki::{KeyAlgorithm, PrivateKey};
use time::OffsetDateTime;

use super::*;

struct Site {
    folder: tempfile::TempDir,
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
    fn new() -> Self {
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

    fn camera(&self, name: &str) {
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
        subject.email = Some("officer@police.example.org".into());
        let user = Profile::User {
            administrator: false,
        };
        let mut asked = request(user, subject, &own, 30);
        asked.clearance = Some(clearance);
        let certificate = self.users.issue(&asked, OffsetDateTime::now_utc()).unwrap();
        self.write_identity("peer", &[&certificate, self.users.certificate()], &own);
    }

    /// The peer towards a gateway with these connections; which one it came up on.
    fn connect(self, connections: &[(&str, &str)]) -> (Option<String>, World) {
        let peer = r#"
status = "s"
interface = { name = "t" }
trust = { anchors = ["root.pem"] }
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
        let mut gateway = r#"
status = "s"
interface = { name = "t" }
trust = { anchors = ["root.pem"] }
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
        let mut world = World::in_folder(self.folder, peer, &gateway);
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
const CAMERAS: (&str, &str) = (
    "cameras",
    r#"kind = "devices", domain = "cameras.example.org""#,
);

#[test]
fn a_camera_does_not_open_the_officers_connection() {
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
fn each_certificate_opens_the_connection_that_is_for_it() {
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
fn what_a_certificate_lacks_is_named() {
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
fn the_acceptance_of_a_certificate_belongs_to_the_handshake_that_asked() {
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
                    .datagram(sent.remote, from, &sent.payload, now);
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
                    .datagram(sent.remote, sent.local, &sent.payload, now);
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
        let revoked = move |accepted: &Accepted| match accepted.subject == subject {
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
