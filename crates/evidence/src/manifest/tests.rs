//! The manifest's format: golden file, canonical form, and every rule on both sides of its border.

use serde_json::{Value, json};
use time::macros::datetime;

use super::*;

/// Written once and never changed: stored evidence must stay readable.
const GOLDEN: &[u8] = include_bytes!("../../tests/data/manifest-v1.json");
const GOLDEN_NOTICE: &[u8] = include_bytes!("../../tests/data/manifest-v1-notice.json");

fn golden() -> Manifest {
    Manifest {
        schema: SCHEMA.into(),
        kind: Kind::Violation,
        device: "camera-17".into(),
        sequence: 42,
        previous: Sha256Digest::of(b"manifest 41"),
        captured_at: datetime!(2026-11-21 09:59:58.25 UTC),
        sealed_at: datetime!(2026-11-21 10:00:00 UTC),
        classification: Clearance::Restricted,
        violation: Some(Violation {
            violation_type: "speeding".into(),
            place: Place {
                name: "Kraków, al. 29 Listopada".into(),
                latitude_microdeg: 50_083_300,
                longitude_microdeg: -19_944_980,
            },
            speed_kmh: Some(91),
            limit_kmh: Some(50),
            plate: Some("KR 1AB23".into()),
            lane: Some(2),
            device_serial: Some("SN-0042".into()),
        }),
        media: vec![Medium {
            name: "front.jpg".into(),
            media_type: "image/jpeg".into(),
            size: 7,
            sha256: Sha256Digest::of(b"picture"),
        }],
        notice: None,
    }
}

fn golden_notice() -> Manifest {
    Manifest {
        kind: Kind::Notice,
        violation: None,
        media: vec![],
        notice: Some(Notice {
            dropped: vec![Dropped {
                sequence: 40,
                manifest_sha256: Sha256Digest::of(b"manifest 40"),
                reason: DropReason::SpoolFull,
            }],
            text: Some("disk replaced".into()),
        }),
        ..golden()
    }
}

#[test]
fn golden_files_are_read_and_written_byte_for_byte() {
    for (manifest, bytes) in [(golden(), GOLDEN), (golden_notice(), GOLDEN_NOTICE)] {
        let text = String::from_utf8(manifest.to_canonical().unwrap()).unwrap();
        assert_eq!(text.as_bytes(), bytes, "{text}");
        assert_eq!(Manifest::parse_canonical(bytes).unwrap(), manifest);
    }
}

fn value() -> Value {
    serde_json::from_slice(GOLDEN).unwrap()
}

/// The code for a golden manifest after `change`, in canonical form.
fn code_after(change: impl FnOnce(&mut Value)) -> &'static str {
    let mut v = value();
    change(&mut v);
    let bytes = serde_json_canonicalizer::to_vec(&v).unwrap();
    match Manifest::parse_canonical(&bytes) {
        Ok(_) => "accepted",
        Err(e) => e.code(),
    }
}

#[test]
fn every_field_is_checked() {
    assert_eq!(code_after(|_| ()), "accepted");
    let cases: Vec<(&str, Value, &str)> = vec![
        (
            "/schema",
            json!("cordon.manifest/2"),
            "manifest-schema-unsupported",
        ),
        ("/schema", json!(1), "manifest-malformed"),
        ("/kind", json!("notice"), "manifest-field-invalid"),
        ("/kind", json!("rumour"), "manifest-malformed"),
        ("/device", json!(""), "manifest-field-invalid"),
        ("/device", json!("x".repeat(65)), "manifest-field-invalid"),
        ("/device", json!("x".repeat(64)), "accepted"),
        ("/sequence", json!(0), "manifest-field-invalid"),
        ("/sequence", json!(1), "manifest-field-invalid"), // has a predecessor
        ("/sequence", json!(-1), "manifest-malformed"),
        ("/sequence", json!(1.5), "manifest-malformed"),
        ("/sequence", json!(MAX_INTEGER), "accepted"),
        ("/previous", json!("0".repeat(64)), "manifest-field-invalid"),
        ("/previous", json!("AB".repeat(32)), "manifest-malformed"),
        ("/previous", json!("ab"), "manifest-malformed"),
        (
            "/captured_at",
            json!("2026-11-21T10:59:58+01:00"),
            "manifest-field-invalid",
        ),
        (
            "/captured_at",
            json!("1999-12-31T23:59:59Z"),
            "manifest-field-invalid",
        ),
        ("/captured_at", json!("yesterday"), "manifest-malformed"),
        (
            "/sealed_at",
            json!("2026-11-21T10:00:00.5Z"),
            "manifest-field-invalid",
        ),
        (
            "/sealed_at",
            json!("2026-11-21T10:00:00.000Z"),
            "manifest-not-canonical",
        ),
        ("/classification", json!(4), "accepted"),
        ("/classification", json!(5), "manifest-malformed"),
        ("/violation", json!(null), "manifest-field-invalid"),
        (
            "/violation/type",
            json!("Speeding"),
            "manifest-field-invalid",
        ),
        ("/violation/type", json!("red-light"), "accepted"),
        (
            "/violation/place/latitude_microdeg",
            json!(90_000_000),
            "accepted",
        ),
        (
            "/violation/place/latitude_microdeg",
            json!(90_000_001),
            "manifest-field-invalid",
        ),
        (
            "/violation/place/longitude_microdeg",
            json!(-180_000_000),
            "accepted",
        ),
        (
            "/violation/place/longitude_microdeg",
            json!(-180_000_001),
            "manifest-field-invalid",
        ),
        (
            "/violation/place/name",
            json!("a\u{202e}b"),
            "manifest-field-invalid",
        ),
        ("/violation/plate", json!("KR\n1"), "manifest-field-invalid"),
        ("/violation/lane", json!(0), "manifest-field-invalid"),
        ("/media", json!([]), "accepted"),
        (
            "/media/0/name",
            json!("../front.jpg"),
            "manifest-field-invalid",
        ),
        ("/media/0/name", json!("x".repeat(128)), "accepted"),
        (
            "/media/0/name",
            json!("x".repeat(129)),
            "manifest-field-invalid",
        ),
        (
            "/media/0/media_type",
            json!("jpeg"),
            "manifest-field-invalid",
        ),
        (
            "/media/0/media_type",
            json!("image/x\"y"),
            "manifest-field-invalid",
        ),
        ("/media/0/size", json!(MAX_INTEGER), "accepted"),
        ("/media/0/sha256", json!("00"), "manifest-malformed"),
    ];
    for (pointer, new, expected) in cases {
        let code = code_after(|v| *v.pointer_mut(pointer).unwrap() = new.clone());
        assert_eq!(code, expected, "{pointer} = {new}");
    }
}

#[test]
fn unknown_repeated_and_missing_fields_are_refused() {
    assert_eq!(code_after(|v| v["extra"] = json!(1)), "manifest-malformed");
    assert_eq!(
        code_after(|v| v["violation"]["extra"] = json!(1)),
        "manifest-malformed"
    );
    for field in [
        "schema",
        "kind",
        "device",
        "sequence",
        "previous",
        "media",
        "sealed_at",
    ] {
        let code = code_after(|v| {
            v.as_object_mut().unwrap().remove(field);
        });
        assert_eq!(code, "manifest-malformed", "{field}");
    }
    let text = std::str::from_utf8(GOLDEN).unwrap();
    let twice = text.replacen('{', "{\"device\":\"camera-18\",", 1);
    assert!(matches!(
        Manifest::parse_canonical(twice.as_bytes()),
        Err(ManifestError::Json(_))
    ));
}

#[test]
fn other_spellings_of_the_same_manifest_are_refused() {
    let text = std::str::from_utf8(GOLDEN).unwrap();
    for other in [
        format!("{text}\n"),
        text.replacen("\":", "\": ", 1),
        text.replace("Kraków", "Krak\\u00f3w"),
        text.replace("\"sequence\":42", "\"sequence\":42e0"),
    ] {
        let refused = Manifest::parse_canonical(other.as_bytes()).unwrap_err();
        let code = refused.code();
        assert!(
            code == "manifest-not-canonical" || code == "manifest-malformed",
            "{code}"
        );
    }
}

#[test]
fn counts_are_bounded_on_both_sides() {
    let media = |n: usize| {
        let one = value()["media"][0].clone();
        let all = (0..n).map(|i| {
            let mut m = one.clone();
            m["name"] = json!(format!("{i}.jpg"));
            m
        });
        json!(all.collect::<Vec<_>>())
    };
    assert_eq!(code_after(|v| v["media"] = media(MAX_MEDIA)), "accepted");
    assert_eq!(
        code_after(|v| v["media"] = media(MAX_MEDIA + 1)),
        "manifest-field-invalid"
    );
    let same = code_after(|v| {
        let mut two = media(2);
        two[0]["name"] = json!("A.jpg");
        two[1]["name"] = json!("a.JPG");
        v["media"] = two;
    });
    assert_eq!(same, "manifest-field-invalid");

    let mut notice = golden_notice();
    notice.sequence = 5_000;
    let with = |n: u64| {
        let mut m = notice.clone();
        m.notice.as_mut().unwrap().dropped = (1..=n)
            .map(|sequence| Dropped {
                sequence,
                manifest_sha256: Sha256Digest::of(b"x"),
                reason: DropReason::Expired,
            })
            .collect();
        m.to_canonical()
    };
    assert!(with(1_000).unwrap().len() < MAX_MANIFEST_LEN);
    assert!(with(1_001).is_err());
    let large = vec![b' '; MAX_MANIFEST_LEN + 1];
    assert_eq!(
        Manifest::parse_canonical(&large).unwrap_err().code(),
        "manifest-too-large"
    );
}

#[test]
fn notices_look_back_and_in_order() {
    let with = |sequences: &[u64]| {
        let mut m = golden_notice();
        let one = m.notice.as_ref().unwrap().dropped[0].clone();
        m.notice.as_mut().unwrap().dropped = sequences
            .iter()
            .map(|s| Dropped {
                sequence: *s,
                ..one.clone()
            })
            .collect();
        m.to_canonical().is_ok()
    };
    assert!(with(&[1, 2, 41]));
    assert!(with(&[]));
    assert!(!with(&[42]));
    assert!(!with(&[2, 1]));
    assert!(!with(&[2, 2]));
    assert!(!with(&[0]));
}

#[test]
fn every_truncation_is_refused_without_panic() {
    for len in 0..GOLDEN.len() {
        assert!(Manifest::parse_canonical(&GOLDEN[..len]).is_err());
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(Manifest::parse_canonical(&deep).is_err());
}
