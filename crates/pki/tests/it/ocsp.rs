//! OCSP responses, ours and those of OpenSSL's responder.

use std::slice::from_ref;

use const_oid::ObjectIdentifier;
use der::asn1::{Null, OctetString};
use pki::PrivateKey;
use pki::crl::RevocationReason;
use pki::issue::CertificateRequest;
use pki::ocsp::{CertStatus, DEFAULT_LIFETIME, MAX_AHEAD, Query, Undetermined, look_up};
use pki::profile::Profile;
use pki::status::{IssuerId, Revocation, StatusCache};
use time::OffsetDateTime;
use time::macros::datetime;
use x509_ocsp::{CertStatus as WireStatus, RevokedInfo};

use crate::fixture::NOW;
use crate::ocsp_site::{Site, certified, key, response, signed, time_of};

fn request(profile: Profile, name: &str, key: &PrivateKey) -> CertificateRequest {
    certified(profile, name, key, NOW)
}

fn site() -> Site {
    Site::new(NOW)
}

fn asked(site: &Site, responses: &[Vec<u8>], now: OffsetDateTime) -> Option<CertStatus> {
    let issuers = [site.devices.certificate()];
    look_up(responses, &site.camera, &issuers, &StatusCache::new(), now)
}

#[test]
fn response_of_the_issuer_determines_the_status() {
    let site = site();
    let good = signed(response(&site), &site.devices_key, &[]);
    assert_eq!(asked(&site, from_ref(&good), NOW), Some(CertStatus::Good));
    let mut bad = response(&site);
    let at = NOW - time::Duration::DAY;
    bad.responses[0].cert_status = WireStatus::Revoked(RevokedInfo {
        revocation_time: time_of(at),
        revocation_reason: None,
    });
    let bad = signed(bad, &site.devices_key, &[]);
    assert_eq!(
        asked(&site, from_ref(&bad), NOW),
        Some(CertStatus::Revoked(at))
    );
    // Whatever else came with it.
    assert_eq!(
        asked(&site, &[good.clone(), bad], NOW),
        Some(CertStatus::Revoked(at))
    );
    let mut unknown = response(&site);
    unknown.responses[0].cert_status = WireStatus::Unknown(Null);
    let unknown = signed(unknown, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[unknown], NOW), None);
    // Neither another authority nor another certificate has said anything.
    let root = [site.root.certificate()];
    assert_eq!(
        look_up(
            from_ref(&good),
            &site.camera,
            &root,
            &StatusCache::new(),
            NOW
        ),
        None
    );
    let other = request(Profile::Device, "camera-18", &key());
    let other = site.devices.issue(&other, NOW).unwrap();
    let issuers = [site.devices.certificate()];
    assert_eq!(
        look_up(&[good], &other, &issuers, &StatusCache::new(), NOW),
        None
    );
}

#[test]
fn response_out_of_date_leaves_the_status_undetermined() {
    let site = site();
    let good = signed(response(&site), &site.devices_key, &[]);
    let second = time::Duration::SECOND;
    for (at, counts) in [
        (NOW + time::Duration::HOUR, true),
        (NOW + time::Duration::HOUR + second, false),
        (NOW - MAX_AHEAD, true),
        (NOW - MAX_AHEAD - second, false),
    ] {
        assert_eq!(asked(&site, from_ref(&good), at).is_some(), counts, "{at}");
    }
    let mut open = response(&site);
    open.responses[0].next_update = None;
    let open = signed(open, &site.devices_key, &[]);
    let last = NOW + DEFAULT_LIFETIME;
    assert_eq!(asked(&site, from_ref(&open), last), Some(CertStatus::Good));
    assert_eq!(asked(&site, &[open], last + second), None);
}

#[test]
fn response_dated_at_the_end_of_the_calendar_is_handled() {
    let site = site();
    let last = time_of(datetime!(9999-12-31 23:59:59 UTC));
    let mut open = response(&site);
    open.responses[0].this_update = last;
    open.responses[0].next_update = None;
    let open = signed(open, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[open], NOW), None);
    let mut long = response(&site);
    long.responses[0].next_update = Some(last);
    let long = signed(long, &site.devices_key, &[]);
    assert_eq!(asked(&site, &[long], NOW), Some(CertStatus::Good));
}

#[test]
fn response_that_is_unusable_names_the_reason() {
    let site = site();
    let query = site.query(&site.camera);
    let wrong = |answer: &[u8], now| query.status(answer, now).unwrap_err();
    let good = site.good(&site.camera);
    let until = NOW + time::Duration::HOUR;
    assert_eq!(query.status(&good, NOW), Ok((CertStatus::Good, until)));
    let revoked = query.status(&site.revoked(&site.camera), NOW);
    let at = NOW - time::Duration::HOUR;
    assert_eq!(revoked, Ok((CertStatus::Revoked(at), until)));
    assert_eq!(wrong(b"garbage", NOW), Undetermined::Unreadable);
    // SEQUENCE { ENUMERATED 3 }: tryLater.
    let later = wrong(&[0x30, 3, 0x0a, 1, 3], NOW);
    assert_eq!(later.to_string(), "it answers \"tryLater\"");
    // "Successful" without anything.
    assert_eq!(wrong(&[0x30, 3, 0x0a, 1, 0], NOW), Undetermined::Unreadable);
    let other = site.device("camera-18");
    assert_eq!(wrong(&site.good(&other), NOW), Undetermined::Another);
    let after = until + time::Duration::SECOND;
    assert_eq!(wrong(&good, after), Undetermined::NotCurrent);
    let forged = signed(response(&site), &key(), &[]);
    assert_eq!(wrong(&forged, NOW), Undetermined::Unsigned);
    let unknown = site.unknown(&site.camera);
    assert_eq!(wrong(&unknown, NOW), Undetermined::Unknown);
    // Somebody else's certificate is no question for this authority.
    assert!(
        Query::new(
            &site.camera,
            &[site.root.certificate()],
            &StatusCache::new()
        )
        .is_none()
    );
}

#[test]
fn response_by_an_unentitled_signer_is_ignored() {
    let site = site();
    let data = || response(&site);
    // The root is not the issuer, and a device is nobody's responder though the issuer certified it.
    let root = signed(data(), &site.key, &[site.root.certificate()]);
    assert_eq!(asked(&site, &[root], NOW), None);
    let own = key();
    let device = request(Profile::Device, "camera-18", &own);
    let device = site.devices.issue(&device, NOW).unwrap();
    let by_device = signed(data(), &own, &[&device]);
    assert_eq!(asked(&site, &[by_device], NOW), None);
    // A changed bit anywhere is no response, and no trouble.
    let good = signed(data(), &site.devices_key, &[]);
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert_ne!(
            asked(&site, &[changed], NOW + time::Duration::MINUTE),
            Some(CertStatus::Good),
            "{at}"
        );
    }
}

/// What OpenSSL's responder makes, with a delegate of its own.
#[test]
fn response_by_a_delegate_of_the_issuer_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&folder);
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{arguments}: {said}");
    };
    let ext = folder.path().join("ext");
    std::fs::write(&ext, "extendedKeyUsage=OCSPSigning\n").unwrap();
    std::fs::write(folder.path().join("none"), "").unwrap();
    std::fs::write(folder.path().join("index.attr"), "").unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc";
    openssl(&format!(
        "req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=CA"
    ));
    for (name, ext) in [("camera", "none"), ("responder", "ext"), ("other", "none")] {
        openssl(&format!(
            "req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile {ext} -out {name}.pem"
        ));
    }
    let read = |name: &str| {
        let chain = pki::file::load_chain(&folder.path().join(name)).unwrap();
        chain.leaf().clone()
    };
    let (camera, ca) = (read("camera.pem"), read("ca.pem"));
    // We ask as OpenSSL does.
    openssl("ocsp -issuer ca.pem -cert camera.pem -no_nonce -reqout asked");
    let asked = std::fs::read(folder.path().join("asked")).unwrap();
    assert_eq!(
        Query::new(&camera, &[&ca], &StatusCache::new())
            .unwrap()
            .request(),
        asked
    );
    let serial = pki::cert::serial_hex(&camera).to_uppercase();
    let now = OffsetDateTime::now_utc();
    for (line, signer, expected) in [
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "responder",
            true,
        ),
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "other",
            false,
        ),
        (
            format!("V\t301231235959Z\t\t{serial}\tunknown\t/CN=camera\n"),
            "ca",
            true,
        ),
        (
            format!("R\t301231235959Z\t260101000000Z\t{serial}\tunknown\t/CN=camera\n"),
            "responder",
            false,
        ),
    ] {
        std::fs::write(folder.path().join("index"), &line).unwrap();
        openssl("ocsp -issuer ca.pem -cert camera.pem -reqout request");
        openssl(&format!(
            "ocsp -index index -rsigner {signer}.pem -rkey {signer}.key -CA ca.pem -reqin request \
             -respout response -ndays 1"
        ));
        let response = std::fs::read(folder.path().join("response")).unwrap();
        let said = look_up(&[response], &camera, &[&ca], &StatusCache::new(), now);
        assert_eq!(
            said == Some(CertStatus::Good),
            expected,
            "{line} {signer}: {said:?}"
        );
        let revoked = line.starts_with('R');
        assert_eq!(matches!(said, Some(CertStatus::Revoked(_))), revoked);
    }
}

#[test]
fn response_by_a_revoked_delegate_is_ignored() {
    let site = site();
    // The issuer's profile has no responders, so its key makes one of a device.
    let own = key();
    let device = request(Profile::Device, "responder", &own);
    let mut delegate = site.devices.issue(&device, NOW).unwrap();
    let usage = delegate
        .tbs_certificate
        .extensions
        .iter_mut()
        .flatten()
        .find(|e| e.extn_id.to_string() == "2.5.29.37")
        .unwrap();
    // SEQUENCE { id-kp-OCSPSigning }.
    let ocsp_signing = [0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 9];
    usage.extn_value = OctetString::new(ocsp_signing).unwrap();
    let delegate = crate::refusals::resign(delegate, &site.devices_key);
    let answer = signed(response(&site), &own, &[&delegate]);
    let issuers = [site.devices.certificate()];
    let cache = StatusCache::new();
    let status =
        |cache: &StatusCache| look_up(from_ref(&answer), &site.camera, &issuers, cache, NOW);
    assert_eq!(status(&cache), Some(CertStatus::Good));
    let tbs = &delegate.tbs_certificate;
    let revocation = Revocation {
        at: NOW,
        reason: RevocationReason::KeyCompromise,
    };
    let (issuer, serial) = (IssuerId::of(&tbs.issuer), tbs.serial_number.as_bytes());
    cache.revoke(issuer, serial, revocation).unwrap();
    assert_eq!(status(&cache), None);
}

#[test]
fn response_with_an_unknown_critical_extension_is_ignored() {
    let site = site();
    for is_single in [true, false] {
        let mut data = response(&site);
        let extension = x509_cert::ext::Extension {
            extn_id: ObjectIdentifier::new_unwrap("1.3.6.1.4.1.99999.7"),
            critical: true,
            extn_value: OctetString::new([5, 0]).unwrap(),
        };
        match is_single {
            true => data.responses[0].single_extensions = Some(vec![extension]),
            false => data.response_extensions = Some(vec![extension]),
        }
        let answer = signed(data, &site.devices_key, &[]);
        let query = site.query(&site.camera);
        assert_eq!(
            query.status(&answer, NOW),
            Err(Undetermined::UnknownCritical)
        );
    }
}
