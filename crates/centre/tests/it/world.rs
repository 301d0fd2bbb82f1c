//! A small world: authorities, cameras, officers, and blocks that cameras seal.

use std::io::Cursor;
use std::sync::LazyLock;

use access::{PersonRecord, Principal, Role};
use evidence::cms::RecipientKey;
use evidence::digest::Sha256Digest;
use evidence::manifest::{Dropped, Notice, Place, Violation};
use evidence::seal::{ManifestDraft, MediumSource, Sealed, Sealer, Statement};
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::path::{Purpose, TrustStore};
use pki::profile::{CaKind, Profile};
use pki::status::{IssuerId, Revocation, StatusCache};
use time::{Duration, OffsetDateTime};

pub(crate) const CAMERA: &str = "camera-17";

/// The time at which the tests play: the centre reads the clock of the machine.
pub(crate) fn now() -> OffsetDateTime {
    // Certificates know whole seconds.
    OffsetDateTime::now_utc().replace_nanosecond(0).unwrap()
}

pub(crate) struct Identity {
    pub(crate) key: PrivateKey,
    pub(crate) chain: CertificateChain,
}

pub(crate) struct World {
    pub(crate) root: CertificateAuthority,
    pub(crate) users: CertificateAuthority,
    pub(crate) devices: CertificateAuthority,
    pub(crate) services: CertificateAuthority,
    pub(crate) status: StatusCache,
    pub(crate) trust: TrustStore,
    pub(crate) recipient: Identity,
    pub(crate) receipts: Identity,
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()
}

fn subject(name: &str) -> Subject {
    Subject {
        country: Some("EU".into()),
        organisation: Some("LEA-EU".into()),
        common_name: name.into(),
        ..Subject::default()
    }
}

/// A year that started long enough ago for blocks that waited.
pub(crate) fn year() -> Validity {
    Validity {
        not_before: now() - Duration::days(600),
        not_after: now() + Duration::days(365),
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let arc = ExtensionArc::default();
        let decade = Validity {
            not_before: now() - Duration::days(1000),
            not_after: now() + Duration::days(3650),
        };
        let root_key = key();
        let request =
            CertificateRequest::new(Profile::Root, subject("Root CA"), root_key.spki(), decade);
        let root = CertificateAuthority::create_root(&request, root_key, arc).unwrap();
        let issuing = |kind: CaKind| {
            let key = key();
            let name = subject(&format!("CA of {kind}"));
            let mut request =
                CertificateRequest::new(Profile::IssuingCa(kind), name, key.spki(), decade);
            request.clearance = Some(Clearance::TopSecret);
            let certificate = root.issue(&request, now()).unwrap();
            CertificateAuthority::new(certificate, key, arc).unwrap()
        };
        let (users, devices, services) = (
            issuing(CaKind::Users),
            issuing(CaKind::Devices),
            issuing(CaKind::Services),
        );
        let status = StatusCache::new();
        let trust = TrustStore::new(
            &[root.certificate().clone()],
            &[&users, &devices, &services].map(|a| a.certificate().clone()),
        )
        .unwrap()
        .with_status(status.clone());
        let service = |profile, name| identity(&services, profile, subject(name), None, year());
        let recipient = service(Profile::ServiceRecipient, "centre intake");
        let receipts = service(Profile::ServiceSigner, "centre receipts");
        Self {
            root,
            users,
            devices,
            services,
            status,
            trust,
            recipient,
            receipts,
        }
    }

    /// Gives the centre another certificate for receipts, and revokes the one it had.
    pub(crate) fn replace_receipts(&mut self) {
        let name = subject("centre receipts");
        let next = identity(&self.services, Profile::ServiceSigner, name, None, year());
        let before = std::mem::replace(&mut self.receipts, next);
        self.revoke(&before, RevocationReason::KeyCompromise);
    }

    /// Another certificate of the site's services.
    pub(crate) fn service(&self, profile: Profile, name: &str, validity: Validity) -> Identity {
        identity(&self.services, profile, subject(name), None, validity)
    }

    pub(crate) fn revoke(&self, one: &Identity, reason: RevocationReason) {
        let tbs = &one.chain.leaf().tbs_certificate;
        let revocation = Revocation { at: now(), reason };
        self.status
            .revoke(
                IssuerId::of(&tbs.issuer),
                tbs.serial_number.as_bytes(),
                revocation,
            )
            .unwrap();
    }

    pub(crate) fn recipient_key(&self) -> RecipientKey {
        let certificate = self.recipient.chain.leaf().clone();
        RecipientKey::new(self.recipient.key.clone(), certificate).unwrap()
    }

    /// A camera cleared for secret material.
    pub(crate) fn camera(&self, name: &str) -> Camera {
        self.camera_with(name, Clearance::Secret, year())
    }

    pub(crate) fn camera_with(&self, name: &str, level: Clearance, validity: Validity) -> Camera {
        let name = subject(name);
        let identity = identity(&self.devices, Profile::Device, name, Some(level), validity);
        self.camera_of(identity)
    }

    pub(crate) fn camera_of(&self, identity: Identity) -> Camera {
        self.camera_for(identity, self.recipient.chain.leaf().clone())
    }

    pub(crate) fn camera_for(&self, identity: Identity, recipient: Certificate) -> Camera {
        let sealer = Sealer::new(
            identity.key.clone(),
            identity.chain.clone(),
            vec![recipient],
        );
        Camera {
            sealer: sealer.unwrap(),
            certificate: identity.chain.leaf().clone(),
        }
    }

    pub(crate) fn user(&self, uid: &str) -> Identity {
        let name = Subject {
            uid: Some(uid.into()),
            ..subject(uid)
        };
        let profile = Profile::User {
            administrator: false,
        };
        identity(
            &self.users,
            profile,
            name,
            Some(Clearance::TopSecret),
            year(),
        )
    }

    /// A person who proved to be one by certificate.
    pub(crate) fn person(&self, level: Clearance, roles: &[Role], units: &[&str]) -> Principal {
        self.person_named(&format!("officer-{}", level.level()), level, roles, units)
    }

    /// As [`Self::person`], with this user id.
    pub(crate) fn person_named(
        &self,
        uid: &str,
        level: Clearance,
        roles: &[Role],
        units: &[&str],
    ) -> Principal {
        let uid = uid.to_owned();
        let user = self.user(&uid);
        let validated = self
            .trust
            .validate(user.chain.ders(), Purpose::ClientUser, now())
            .unwrap();
        let record = PersonRecord {
            uid,
            name: "Example Officer".into(),
            organisation: "LEA-EU".into(),
            clearance: level,
            roles: roles.iter().copied().collect(),
            units: units.iter().map(|&u| u.to_owned()).collect(),
            active: true,
        };
        Principal::by_certificate(&validated, &record).unwrap()
    }

    pub(crate) fn reviewer(&self, level: Clearance) -> Principal {
        self.person(level, &[Role::Reviewer], &["traffic"])
    }
}

fn identity(
    authority: &CertificateAuthority,
    profile: Profile,
    subject: Subject,
    clearance: Option<Clearance>,
    validity: Validity,
) -> Identity {
    let key = key();
    let mut request = CertificateRequest::new(profile, subject, key.spki(), validity);
    request.clearance = clearance;
    let leaf = authority.issue(&request, now()).unwrap();
    let chain = CertificateChain::new(vec![leaf, authority.certificate().clone()]).unwrap();
    Identity { key, chain }
}

/// A medium: name, media type, content.
pub(crate) type File = (String, String, Vec<u8>);

/// A camera's picture and its facts.
#[derive(Clone)]
pub(crate) struct Shot {
    pub(crate) sequence: u64,
    pub(crate) previous: Sha256Digest,
    pub(crate) captured_at: OffsetDateTime,
    pub(crate) sealed_at: OffsetDateTime,
    pub(crate) level: Clearance,
    pub(crate) plate: String,
    pub(crate) place: String,
    pub(crate) speed: u32,
    pub(crate) media: Vec<File>,
    pub(crate) dropped: Option<Vec<Dropped>>,
}

impl Shot {
    /// The first violation of a camera: one small picture, seen a minute ago.
    pub(crate) fn first() -> Self {
        Self {
            sequence: 1,
            previous: Sha256Digest::ZERO,
            captured_at: now() - Duration::minutes(1),
            sealed_at: now() - Duration::seconds(30),
            level: Clearance::Restricted,
            plate: "KR 4711".into(),
            place: "A4 km 215.3 westbound".into(),
            speed: 163,
            media: vec![("front.jpg".into(), "image/jpeg".into(), PICTURE.clone())],
            dropped: None,
        }
    }

    /// The one after `before`.
    pub(crate) fn after(before: &Block) -> Self {
        Self {
            sequence: before.sealed.manifest.sequence + 1,
            previous: before.sealed.manifest_sha256,
            ..Self::first()
        }
    }
}

/// The picture of blocks whose picture does not matter, drawn once.
static PICTURE: LazyLock<Vec<u8>> = LazyLock::new(|| picture(1280, 720, 1));

/// A JPEG with some structure.
pub(crate) fn picture(width: u32, height: u32, seed: u8) -> Vec<u8> {
    let pixel = |x: u32, y: u32| Rgb([(x / 5) as u8, (y / 3) as u8, seed.wrapping_mul(40)]);
    let picture = RgbImage::from_fn(width, height, pixel);
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, 85)
        .encode_image(&picture)
        .unwrap();
    jpeg
}

pub(crate) struct Camera {
    pub(crate) sealer: Sealer,
    pub(crate) certificate: Certificate,
}

#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sealed: Sealed,
}

impl Block {
    pub(crate) fn hash(&self) -> String {
        Sha256Digest::of(&self.bytes).to_string()
    }

    pub(crate) fn violation(&self) -> String {
        format!("v-{}", &self.hash()[..16])
    }
}

impl Camera {
    pub(crate) fn seal(&self, shot: &Shot) -> Block {
        let statement = match &shot.dropped {
            Some(dropped) => Statement::Notice(Notice {
                dropped: dropped.clone(),
                text: None,
            }),
            None => Statement::Violation(Violation {
                violation_type: "speeding".into(),
                place: Place {
                    name: shot.place.clone(),
                    latitude_microdeg: 50_064_650,
                    longitude_microdeg: 19_944_980,
                },
                speed_kmh: Some(shot.speed),
                limit_kmh: Some(140),
                plate: Some(shot.plate.clone()),
                lane: Some(2),
                device_serial: Some("SN-1".into()),
            }),
        };
        let draft = ManifestDraft {
            sequence: shot.sequence,
            previous: shot.previous,
            captured_at: shot.captured_at,
            classification: shot.level,
            statement,
        };
        let media = shot.media.iter().filter(|_| shot.dropped.is_none());
        let media = media.map(|(name, media_type, content)| MediumSource {
            name: name.clone(),
            media_type: media_type.clone(),
            reader: Box::new(Cursor::new(content.clone())),
        });
        let mut bytes = Vec::new();
        let sealed = self
            .sealer
            .seal(draft, media.collect(), shot.sealed_at, &mut bytes)
            .unwrap();
        Block { bytes, sealed }
    }
}

/// A camera's identity by a devices authority of any world.
pub(crate) fn device(authority: &CertificateAuthority, name: &str) -> Identity {
    let level = Some(Clearance::Secret);
    identity(authority, Profile::Device, subject(name), level, year())
}
