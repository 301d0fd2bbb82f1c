//! The files that OpenVPN reads follow a site that suspends and resumes a device.

use std::sync::{Mutex, PoisonError};

use audit::Event;
use commandline::SiteArgs;
use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::CertificateAuthority;
use pki::key::KeyAlgorithm;
use pki::status::Revocation;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::*;
use crate::openvpn::verify::ocsp_site;
use crate::site::{Answer, SiteControl};

/// What a site answers, and how often its lists were fetched.
#[derive(Default)]
struct Said {
    mark: String,
    lists: String,
    refused: Vec<String>,
    fetched: usize,
}

#[derive(Default)]
struct FakeSite(Mutex<Said>);

impl FakeSite {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, mark: &str, lists: &str) {
        let mut said = self.said();
        (said.mark, said.lists) = (mark.to_owned(), lists.to_owned());
    }
}

impl SiteControl for FakeSite {
    fn key_algorithm(&self, _: &SiteArgs) -> Outcome<KeyAlgorithm> {
        unreachable!("the guard makes no keys")
    }

    fn request<'a>(&'a self, _: &'a SiteArgs, _: SiteRequest) -> Answer<'a> {
        unreachable!("the guard asks a running site")
    }

    fn request_running<'a>(&'a self, _: &'a Path, request: SiteRequest) -> Answer<'a> {
        let mut said = self.said();
        let answer: Value = match request {
            SiteRequest::Crls => {
                said.fetched += 1;
                json!({ "crl_pem": said.lists, "lists_mark": said.mark })
            }
            SiteRequest::RefusedDevices => {
                json!({ "devices": said.refused, "lists_mark": said.mark })
            }
            _ => unreachable!("nobody is connected"),
        };
        Box::pin(async move { Ok(answer) })
    }

    fn send_journal(&self, _: &Path, _: u64, _: Vec<Event>) -> Result<u64, String> {
        unreachable!("the guard has no journal")
    }
}

/// Lists of the root and of the devices authority, which has these devices on hold.
fn lists(site: &ocsp_site::Site, number: u64, held: &[&pki::Certificate]) -> String {
    let now = OffsetDateTime::now_utc();
    let entry = |one: &&pki::Certificate| RevokedEntry {
        serial: one.tbs_certificate.serial_number.as_bytes().to_vec(),
        revocation: Revocation {
            at: now - time::Duration::MINUTE,
            reason: RevocationReason::CertificateHold,
        },
    };
    let held: Vec<_> = held.iter().map(entry).collect();
    let pem = |authority: &CertificateAuthority, revoked: &[RevokedEntry]| {
        let (from, to) = (now - time::Duration::MINUTE, now + time::Duration::HOUR);
        let der = authority.crl(number, revoked, from, to).unwrap();
        der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, &der).unwrap()
    };
    pem(&site.root, &[]) + &pem(&site.devices, &held)
}

struct Lab {
    site: &'static FakeSite,
    folder: tempfile::TempDir,
    guard: Watch,
}

impl Lab {
    fn new(issuer: &ocsp_site::Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authorities = folder.path().join(AUTHORITIES);
        let both = [issuer.devices.certificate(), issuer.root.certificate()];
        let both: String = both.map(|one| pki::cert::to_pem(one).unwrap()).concat();
        std::fs::write(&authorities, both).unwrap();
        let site: &'static FakeSite = Box::leak(Box::default());
        let guard = Watch {
            control: site,
            lists: Lists::new(&authorities, folder.path().join(CRL)).unwrap(),
            refused_file: folder.path().join(REFUSED_DEVICES),
            source: Source::Site {
                data: folder.path().to_owned(),
                files_at: Instant::now(),
                mark: String::new(),
                silent: false,
            },
            sessions: Sessions::default(),
        };
        Self {
            site,
            folder,
            guard,
        }
    }

    /// Lets the guard look, [`FILES`] after the last time.
    async fn next_look(&mut self) {
        if let Source::Site { files_at, .. } = &mut self.guard.source {
            *files_at -= FILES;
        }
        assert!(self.guard.look().await.is_empty());
    }

    fn list_for_openvpn(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(CRL)).unwrap()
    }
}

#[tokio::test]
async fn hold_leaves_the_file_for_openvpn_when_it_ends() {
    let issuer = ocsp_site::Site::new(OffsetDateTime::now_utc() - time::Duration::HOUR);
    let camera = &issuer.camera;
    let serial = pki::cert::serial_hex(camera);
    let [before, held, after] = [
        lists(&issuer, 1, &[]),
        lists(&issuer, 2, &[camera]),
        lists(&issuer, 3, &[]),
    ];
    let mut lab = Lab::new(&issuer);
    lab.site.publish("1", &before);
    lab.guard.look().await;
    assert_eq!(lab.list_for_openvpn(), before);
    assert_eq!(lab.guard.lists.refusal(&serial), None);

    lab.site.publish("2", &held);
    lab.next_look().await;
    assert_eq!(lab.list_for_openvpn(), held);
    assert!(lab.guard.lists.refusal(&serial).is_some());

    // The names say first that the device is enrolled, the lists later.
    lab.next_look().await;
    lab.site.publish("3", &after);
    lab.next_look().await;
    assert_eq!(lab.list_for_openvpn(), after);
    assert_eq!(lab.guard.lists.refusal(&serial), None);
}

#[tokio::test]
async fn lists_are_fetched_only_when_their_mark_changes() {
    let issuer = ocsp_site::Site::new(OffsetDateTime::now_utc() - time::Duration::HOUR);
    let mut lab = Lab::new(&issuer);
    lab.site.publish("1", &lists(&issuer, 1, &[]));
    for _ in 0..3 {
        lab.next_look().await;
    }
    assert_eq!(lab.site.said().fetched, 1);
    // Unusable lists replace none, and are fetched again.
    let good = lab.list_for_openvpn();
    lab.site.publish("2", "no lists");
    for _ in 0..2 {
        lab.next_look().await;
    }
    assert_eq!(lab.site.said().fetched, 3);
    assert_eq!(lab.list_for_openvpn(), good);
    // A site of another version has no mark: its lists are fetched each time.
    lab.site.publish("", &good);
    for _ in 0..2 {
        lab.next_look().await;
    }
    assert_eq!(lab.site.said().fetched, 5);
}
