//! Keys, certificates and sealed samples for the targets, made once per process.

use std::sync::OnceLock;

use evidence::cms::RecipientKey;
use evidence::digest::Sha256Digest;
use evidence::manifest::{Place, Violation};
use evidence::seal::{ManifestDraft, MediumSource, Sealer, Statement};
use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::path::TrustStore;
use pki::profile::{CaKind, Profile};
use time::{Duration, OffsetDateTime};

/// A small hierarchy: a camera, a centre.
pub struct World {
    pub now: OffsetDateTime,
    pub root: Certificate,
    pub camera_key: PrivateKey,
    pub camera: CertificateChain,
    pub signer_key: PrivateKey,
    pub signer: CertificateChain,
    pub recipient_key: PrivateKey,
    pub recipient: Certificate,
}

/// The world of this process.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::new)
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

impl World {
    fn new() -> Self {
        let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
        let arc = ExtensionArc::default();
        let life = |days| Validity::starting(now, Duration::days(days));
        let root_key = key();
        let request = CertificateRequest::new(
            Profile::Root,
            Subject::new("Root"),
            root_key.spki(),
            life(40),
        );
        let root = CertificateAuthority::create_root(&request, root_key, arc).unwrap();
        let authority = |kind, name: &str| {
            let key = key();
            let mut request = CertificateRequest::new(
                Profile::IssuingCa(kind),
                Subject::new(name),
                key.spki(),
                life(30),
            );
            request.clearance = Some(Clearance::TopSecret);
            let certificate = root.issue(&request, now).unwrap();
            CertificateAuthority::new(certificate, key, arc).unwrap()
        };
        let devices = authority(CaKind::Devices, "Devices");
        let services = authority(CaKind::Services, "Services");
        let leaf = |ca: &CertificateAuthority, profile, name: &str, clearance| {
            let key = key();
            let mut request =
                CertificateRequest::new(profile, Subject::new(name), key.spki(), life(20));
            request.clearance = clearance;
            let certificate = ca.issue(&request, now).unwrap();
            let chain = CertificateChain::new(vec![certificate, ca.certificate().clone()]);
            (key, chain.unwrap())
        };
        let (camera_key, camera) = leaf(
            &devices,
            Profile::Device,
            "camera-17",
            Some(Clearance::Secret),
        );
        let (signer_key, signer) = leaf(&services, Profile::ServiceSigner, "Centre", None);
        let (recipient_key, recipient) =
            leaf(&services, Profile::ServiceRecipient, "Sealing", None);
        Self {
            now,
            root: root.certificate().clone(),
            camera_key,
            camera,
            signer_key,
            signer,
            recipient_key,
            recipient: recipient.leaf().clone(),
        }
    }

    pub fn recipient_keys(&self) -> Vec<RecipientKey> {
        vec![RecipientKey::new(self.recipient_key.clone(), self.recipient.clone()).unwrap()]
    }

    pub fn trust(&self) -> TrustStore {
        TrustStore::new(std::slice::from_ref(&self.root), &[]).unwrap()
    }

    /// A valid block with the number `sequence` and one small medium.
    pub fn block(&self, sequence: u64, content: &[u8]) -> Vec<u8> {
        let sealer = Sealer::new(
            self.camera_key.clone(),
            self.camera.clone(),
            vec![self.recipient.clone()],
        )
        .unwrap();
        let draft = ManifestDraft {
            sequence,
            previous: Sha256Digest::ZERO,
            captured_at: self.now,
            classification: Clearance::Restricted,
            statement: Statement::Violation(Violation {
                violation_type: "speeding".into(),
                place: Place {
                    name: "here".into(),
                    latitude_microdeg: 1,
                    longitude_microdeg: -1,
                },
                speed_kmh: Some(99),
                limit_kmh: Some(50),
                plate: None,
                lane: None,
                device_serial: None,
            }),
        };
        let medium = MediumSource {
            name: "picture.jpg".into(),
            media_type: "image/jpeg".into(),
            reader: Box::new(content),
        };
        let mut block = Vec::new();
        sealer
            .seal(draft, vec![medium], self.now, &mut block)
            .unwrap();
        block
    }
}

/// Applies fuzzer input as edits to a valid sample: mutating random bytes of a signed or
/// encrypted message from nothing would never get past the first check.
///
/// Each edit takes four bytes: kind, two bytes of position, value.
pub fn edit(sample: &[u8], input: &[u8]) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for edit in input.chunks_exact(4) {
        let len = bytes.len().max(1);
        let at = usize::from(u16::from_be_bytes([edit[1], edit[2]])) % len;
        match edit[0] % 6 {
            0 if at < bytes.len() => bytes[at] = edit[3],
            1 if at < bytes.len() => bytes[at] ^= 1 << (edit[3] % 8),
            2 => bytes.insert(at.min(bytes.len()), edit[3]),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let end = (at + usize::from(edit[3])).min(bytes.len());
                let copy = bytes[at.min(end)..end].to_vec();
                bytes.extend(copy);
            }
            _ => {}
        }
    }
    bytes
}
