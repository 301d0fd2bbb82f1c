//! Sealed blocks: round trips, and refusal of every alteration.

use std::cell::Cell;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use evidence::block::{CHUNK_LEN, FOOTER_LEN, PREFIX_LEN, TAG_LEN};
use evidence::cms::{RecipientKey, encrypt, parse_auth_enveloped_data};
use evidence::digest::Sha256Digest;
use evidence::manifest::{DropReason, Dropped, Notice, Place, Violation};
use evidence::open::{OpenError, Opener};
use evidence::seal::{ManifestDraft, MediumSource, SealError, Sealed, Sealer, Statement};
use pki::clearance::Clearance;
use pki::key::KeyAlgorithm;

use crate::identity::{Identity, NOW, Root};
use crate::tools::Workshop;

pub(crate) struct Scene {
    pub(crate) root: Root,
    pub(crate) camera: Identity,
    pub(crate) centre: Identity,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let root = Root::new();
        Self {
            camera: root.identity("camera-17", KeyAlgorithm::EcdsaP256),
            centre: root.identity("centre", KeyAlgorithm::EcdsaP256),
            root,
        }
    }

    pub(crate) fn sealer(&self) -> Sealer {
        sealer_of(&self.camera, &[&self.centre])
    }

    pub(crate) fn opener(&self) -> Opener {
        opener_of(&self.centre)
    }
}

fn sealer_of(camera: &Identity, recipients: &[&Identity]) -> Sealer {
    let recipients = recipients.iter().map(|r| r.certificate.clone()).collect();
    Sealer::new(camera.key.clone(), camera.chain.clone(), recipients).unwrap()
}

fn opener_of(centre: &Identity) -> Opener {
    Opener::new(vec![
        RecipientKey::new(centre.key.clone(), centre.certificate.clone()).unwrap(),
    ])
}

pub(crate) fn violation() -> Violation {
    Violation {
        violation_type: "speeding".into(),
        place: Place {
            name: "A4 km 215.3 westbound".into(),
            latitude_microdeg: 50_064_650,
            longitude_microdeg: 19_944_980,
        },
        speed_kmh: Some(167),
        limit_kmh: Some(140),
        plate: Some("KR 1AB23".into()),
        lane: Some(2),
        device_serial: Some("SN-0042".into()),
    }
}

pub(crate) fn draft(sequence: u64, previous: Sha256Digest) -> ManifestDraft {
    ManifestDraft {
        sequence,
        previous,
        captured_at: NOW,
        classification: Clearance::Restricted,
        statement: Statement::Violation(violation()),
    }
}

pub(crate) fn media<'a>(parts: &[(&str, &'a [u8])]) -> Vec<MediumSource<'a>> {
    parts
        .iter()
        .map(|(name, bytes)| MediumSource {
            name: (*name).to_owned(),
            media_type: "image/jpeg".to_owned(),
            reader: Box::new(*bytes),
        })
        .collect()
}

fn seal(sealer: &Sealer, parts: &[(&str, &[u8])]) -> (Vec<u8>, Sealed) {
    let mut out = Vec::new();
    let sealed = sealer
        .seal(draft(1, Sha256Digest::ZERO), media(parts), NOW, &mut out)
        .unwrap();
    (out, sealed)
}

/// Opens a block and reads all media; the outcome is a code or the plaintexts.
fn open_all(opener: &Opener, block: &[u8]) -> Result<Vec<Vec<u8>>, OpenError> {
    let mut opened = opener.open(Cursor::new(block))?;
    (0..opened.manifest.media.len())
        .map(|i| {
            let mut out = Vec::new();
            opened.read_medium(i, &mut out).map(|_| out)
        })
        .collect()
}

fn code(opener: &Opener, block: &[u8]) -> &'static str {
    match open_all(opener, block) {
        Ok(_) => "accepted",
        Err(e) => e.code(),
    }
}

#[test]
fn block_of_every_shape_survives_a_round_trip() {
    let scene = Scene::new();
    let large: Vec<u8> = (0..=CHUNK_LEN * 3).map(|i| (i % 251) as u8).collect();
    for lens in [
        vec![],
        vec![0],
        vec![1],
        vec![CHUNK_LEN - 1],
        vec![CHUNK_LEN],
        vec![CHUNK_LEN + 1],
        vec![CHUNK_LEN * 3, 0, 5, CHUNK_LEN],
    ] {
        let names: Vec<String> = (0..lens.len()).map(|i| format!("m{i}.jpg")).collect();
        let parts: Vec<(&str, &[u8])> = names
            .iter()
            .zip(&lens)
            .map(|(n, l)| (n.as_str(), &large[..*l]))
            .collect();
        let (block, sealed) = seal(&scene.sealer(), &parts);
        assert_eq!(sealed.block_size, block.len() as u64);
        assert_eq!(sealed.block_sha256, Sha256Digest::of(&block));
        let mut opened = scene.opener().open(Cursor::new(&block)).unwrap();
        assert_eq!(opened.manifest, sealed.manifest);
        assert_eq!(opened.manifest_sha256, sealed.manifest_sha256);
        assert_eq!(opened.manifest.device, "camera-17");
        assert_eq!(opened.signing_time, NOW);
        assert_eq!(opened.signer_chain, scene.camera.chain);
        opened.verify_media().unwrap();
        // Any order of reading works.
        for (i, (_, bytes)) in parts.iter().enumerate().rev() {
            let mut out = Vec::new();
            assert_eq!(opened.read_medium(i, &mut out).unwrap(), bytes.len() as u64);
            assert_eq!(out, *bytes);
        }
        assert!(matches!(
            opened.read_medium(parts.len(), &mut io::sink()),
            Err(OpenError::NoSuchMedium { .. })
        ));
    }
}

#[test]
fn every_single_byte_flip_is_refused() {
    let scene = Scene::new();
    let second = scene.root.identity("archive", KeyAlgorithm::EcdsaP384);
    let sealer = sealer_of(&scene.camera, &[&scene.centre, &second]);
    let (block, _) = seal(&sealer, &[("a.jpg", b"picture"), ("b.jpg", b"")]);
    let opener = scene.opener();
    assert_eq!(code(&opener, &block), "accepted");
    let mut reasons = std::collections::BTreeSet::new();
    for at in 0..block.len() {
        let mut flipped = block.clone();
        flipped[at] ^= 1 << (at % 8);
        let reason = code(&opener, &flipped);
        assert_ne!(reason, "accepted", "flip at {at} of {}", block.len());
        reasons.insert(reason);
    }
    for expected in [
        "not-a-block",
        "unsupported-version",
        "unsupported-flags",
        "truncated",
        "envelope-invalid",
        "footer-authentication",
        "chunk-authentication",
    ] {
        assert!(reasons.contains(expected), "{expected} not in {reasons:?}");
    }
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let scene = Scene::new();
    let (block, _) = seal(&scene.sealer(), &[("a.jpg", b"picture")]);
    let opener = scene.opener();
    for len in 0..block.len() {
        let reason = code(&opener, &block[..len]);
        let expected = if len < 8 { "not-a-block" } else { "truncated" };
        assert_eq!(reason, expected, "cut to {len}");
    }
    let mut longer = block.clone();
    longer.push(0);
    assert_eq!(code(&opener, &longer), "truncated");
}

/// Offset of the media section.
fn media_start(block: &[u8]) -> usize {
    let len = u32::from_be_bytes(block[12..16].try_into().unwrap());
    PREFIX_LEN + len as usize
}

#[test]
fn chunks_cannot_be_swapped_between_or_inside_media() {
    let scene = Scene::new();
    let opener = scene.opener();
    let step = CHUNK_LEN + TAG_LEN;
    let picture = vec![7_u8; CHUNK_LEN * 2];
    let (block, _) = seal(&scene.sealer(), &[("a.jpg", &picture), ("b.jpg", &picture)]);
    let start = media_start(&block);
    for (one, two, medium, chunk) in [(0, 1, 0, 0), (0, 2, 0, 0), (1, 3, 0, 1), (2, 3, 1, 0)] {
        let mut swapped = block.clone();
        let (head, tail) = swapped.split_at_mut(start + two * step);
        head[start + one * step..start + (one + 1) * step].swap_with_slice(&mut tail[..step]);
        match open_all(&opener, &swapped) {
            Err(OpenError::ChunkAuthentication {
                medium: m,
                chunk: c,
            }) => {
                assert_eq!((m, c), (medium, chunk));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn media_of_another_block_of_the_same_camera_are_refused() {
    let scene = Scene::new();
    let (one, _) = seal(&scene.sealer(), &[("a.jpg", b"picture one")]);
    let (two, _) = seal(&scene.sealer(), &[("a.jpg", b"picture two")]);
    let (start_one, start_two) = (media_start(&one), media_start(&two));
    let len = b"picture one".len() + TAG_LEN;
    let mut mixed = one.clone();
    mixed[start_one..start_one + len].copy_from_slice(&two[start_two..start_two + len]);
    assert_eq!(code(&scene.opener(), &mixed), "chunk-authentication");
}

#[test]
fn other_recipients_are_told_so() {
    let scene = Scene::new();
    let (block, _) = seal(&scene.sealer(), &[("a.jpg", b"picture")]);
    let stranger = scene.root.identity("centre", KeyAlgorithm::EcdsaP256);
    assert_eq!(code(&opener_of(&stranger), &block), "not-for-us");
    assert_eq!(code(&Opener::new(vec![]), &block), "not-for-us");
}

/// Rebuilds a block around another signed manifest, as someone with the media key could.
fn forge(scene: &Scene, block: &[u8], content: &[u8], signer: &Identity) -> Vec<u8> {
    let signed = evidence::cms::sign(
        &signer.key,
        &signer.chain,
        content,
        evidence::cms::Placement::Attached,
        NOW,
    );
    rebuild(scene, block, &signed.unwrap())
}

fn rebuild(scene: &Scene, block: &[u8], signed: &[u8]) -> Vec<u8> {
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let keys =
        [RecipientKey::new(scene.centre.key.clone(), scene.centre.certificate.clone()).unwrap()];
    let start = media_start(block);
    let media_key = parse_auth_enveloped_data(&block[PREFIX_LEN..start])
        .and_then(|m| m.decrypt(&keys))
        .unwrap();
    let envelope = encrypt(signed, std::slice::from_ref(&scene.centre.certificate)).unwrap();
    let footer = &block[block.len() - FOOTER_LEN..];
    let media_len = u64::from_be_bytes(footer[..8].try_into().unwrap());
    let mut out = block[..start + usize::try_from(media_len).unwrap()].to_vec();
    out.extend_from_slice(&envelope);
    let mut aad = Sha256Digest::of(&block[..start]).as_bytes().to_vec();
    let mut lengths = media_len.to_be_bytes().to_vec();
    lengths.extend_from_slice(&u32::try_from(envelope.len()).unwrap().to_be_bytes());
    aad.extend_from_slice(&lengths);
    aad.extend_from_slice(Sha256Digest::of(&envelope).as_bytes());
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &media_key).unwrap());
    let nonce = [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1];
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(aad.as_slice()),
            &mut [],
        )
        .unwrap();
    out.extend_from_slice(&lengths);
    out.extend_from_slice(tag.as_ref());
    out.extend_from_slice(b"CORDONEF");
    out
}

#[test]
fn a_holder_of_the_media_key_still_cannot_forge_the_statement() {
    let scene = Scene::new();
    let opener = scene.opener();
    let (block, sealed) = seal(&scene.sealer(), &[("a.jpg", b"picture")]);
    let honest = sealed.manifest.to_canonical().unwrap();
    let camera = &scene.camera;
    assert_eq!(
        code(&opener, &forge(&scene, &block, &honest, camera)),
        "accepted"
    );

    // Signed by somebody else's key: the name in the manifest gives it away.
    let other = scene.root.identity("camera-18", KeyAlgorithm::EcdsaP256);
    assert_eq!(
        code(&opener, &forge(&scene, &block, &honest, &other)),
        "device-mismatch"
    );

    let altered = |change: &dyn Fn(&mut evidence::manifest::Manifest)| {
        let mut manifest = sealed.manifest.clone();
        change(&mut manifest);
        manifest.to_canonical().unwrap()
    };
    let wrong_hash = altered(&|m| m.media[0].sha256 = Sha256Digest::ZERO);
    assert_eq!(
        code(&opener, &forge(&scene, &block, &wrong_hash, camera)),
        "digest-mismatch"
    );
    let wrong_size = altered(&|m| m.media[0].size += 1);
    assert_eq!(
        code(&opener, &forge(&scene, &block, &wrong_size, camera)),
        "layout-mismatch"
    );
    let wrong_time = altered(&|m| m.sealed_at += time::Duration::SECOND);
    assert_eq!(
        code(&opener, &forge(&scene, &block, &wrong_time, camera)),
        "time-mismatch"
    );
    let spaced = [b" ", honest.as_slice()].concat();
    assert_eq!(
        code(&opener, &forge(&scene, &block, &spaced, camera)),
        "manifest-invalid"
    );

    // A signature that does not verify, inside an intact envelope.
    let opened = opener.open(Cursor::new(&block)).unwrap();
    let mut signed = opened.signed_data_der.clone();
    *signed.last_mut().unwrap() ^= 1; // the signature is the last field
    assert_eq!(
        code(&opener, &rebuild(&scene, &block, &signed)),
        "signature-invalid"
    );
}

#[test]
fn openssl_opens_a_block_by_hand() {
    let scene = Scene::new();
    let (block, sealed) = seal(&scene.sealer(), &[("a.jpg", b"picture")]);
    let start = media_start(&block);
    let footer = &block[block.len() - FOOTER_LEN..];
    let media_len = u64::from_be_bytes(footer[..8].try_into().unwrap()) as usize;
    let shop = Workshop::new();
    shop.root(&scene.root);
    shop.identity("centre", &scene.centre);
    shop.write("key.der", &block[PREFIX_LEN..start]);
    shop.write(
        "manifest.der",
        &block[start + media_len..block.len() - FOOTER_LEN],
    );
    let decrypt = "cms -decrypt -binary -inform DER -recip centre.pem -inkey centre.key";
    let key = shop.openssl_ok(&format!("{decrypt} -in key.der"));
    assert_eq!(key.len(), 32);
    shop.openssl_ok(&format!("{decrypt} -in manifest.der -out signed.der"));
    let manifest = shop.openssl_ok(&format!(
        "cms -verify -cades -binary -inform DER -in signed.der -CAfile root.pem -purpose any -attime {}",
        NOW.unix_timestamp()
    ));
    assert_eq!(manifest, sealed.manifest.to_canonical().unwrap());
}

#[test]
fn notices_carry_no_media_and_name_what_was_dropped() {
    let scene = Scene::new();
    let notice = Notice {
        dropped: vec![Dropped {
            sequence: 3,
            manifest_sha256: Sha256Digest::of(b"three"),
            reason: DropReason::SpoolFull,
        }],
        text: None,
    };
    let mut draft = draft(7, Sha256Digest::of(b"six"));
    draft.statement = Statement::Notice(notice.clone());
    let mut out = Vec::new();
    scene
        .sealer()
        .seal(draft.clone(), vec![], NOW, &mut out)
        .unwrap();
    let opened = scene.opener().open(Cursor::new(&out)).unwrap();
    assert_eq!(opened.manifest.notice, Some(notice));

    let refused = scene
        .sealer()
        .seal(draft, media(&[("a.jpg", b"x")]), NOW, &mut io::sink());
    assert!(matches!(refused, Err(SealError::Manifest(_))));
}

#[test]
fn sealing_refuses_before_it_writes() {
    let scene = Scene::new();
    let mut out = Vec::new();
    for name in ["../x", "a/b", "", ".hidden", "-rf", "a\nb", "a\u{202e}gpj"] {
        let refused = scene.sealer().seal(
            draft(1, Sha256Digest::ZERO),
            media(&[(name, b"x")]),
            NOW,
            &mut out,
        );
        assert_eq!(refused.unwrap_err().code(), "manifest-invalid", "{name:?}");
    }
    let many: Vec<String> = (0..65).map(|i| format!("{i}.jpg")).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|n| (n.as_str(), &b"x"[..])).collect();
    let refused = scene
        .sealer()
        .seal(draft(1, Sha256Digest::ZERO), media(&many), NOW, &mut out);
    assert_eq!(refused.unwrap_err().code(), "manifest-invalid");
    assert!(out.is_empty());

    let wrong = Sealer::new(
        scene.centre.key.clone(),
        scene.camera.chain.clone(),
        vec![scene.centre.certificate.clone()],
    );
    assert!(matches!(wrong, Err(SealError::KeyMismatch)));
    let nobody = Sealer::new(scene.camera.key.clone(), scene.camera.chain.clone(), vec![]);
    assert_eq!(nobody.err().unwrap().code(), "envelope-failed");
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("lens cap"))
    }
}

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Failing {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn failures_of_disk_and_lens_are_told_apart() {
    let scene = Scene::new();
    let source = vec![MediumSource {
        name: "a.jpg".into(),
        media_type: "image/jpeg".into(),
        reader: Box::new(Failing),
    }];
    let first = draft(1, Sha256Digest::ZERO);
    let read = scene
        .sealer()
        .seal(first.clone(), source, NOW, &mut io::sink());
    assert_eq!(read.unwrap_err().code(), "read-failed");
    let write = scene.sealer().seal(first, vec![], NOW, &mut Failing);
    assert_eq!(write.unwrap_err().code(), "write-failed");
    let open = scene.opener().open(Failing);
    assert_eq!(open.err().unwrap().code(), "read-failed");

    let (block, _) = seal(&scene.sealer(), &[("a.jpg", b"picture")]);
    let mut opened = scene.opener().open(Cursor::new(&block)).unwrap();
    let refused = opened.read_medium(0, &mut Failing);
    assert_eq!(refused.unwrap_err().code(), "write-failed");
}

/// A source of `left` bytes that is never held in memory.
struct Synthetic<'a> {
    left: u64,
    served: &'a Cell<u64>,
}

impl Read for Synthetic<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buffer[..n].fill(0x5a);
        self.left -= n as u64;
        self.served.set(self.served.get() + n as u64);
        Ok(n)
    }
}

/// Counts what arrives and how far the source is ever ahead of it: that much must be buffered.
struct Lag<'a> {
    received: u64,
    served: &'a Cell<u64>,
    most: u64,
}

impl Write for Lag<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.received += buffer.len() as u64;
        let behind = self.served.get().saturating_sub(self.received);
        self.most = self.most.max(behind);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stream(size: u64) -> (u64, Sealed) {
    let scene = Scene::new();
    let served = Cell::new(0);
    let source = vec![MediumSource {
        name: "film.mp4".into(),
        media_type: "video/mp4".into(),
        reader: Box::new(Synthetic {
            left: size,
            served: &served,
        }),
    }];
    let mut sink = Lag {
        received: 0,
        served: &served,
        most: 0,
    };
    let first = draft(1, Sha256Digest::ZERO);
    let sealed = scene.sealer().seal(first, source, NOW, &mut sink).unwrap();
    assert_eq!(sealed.manifest.media[0].size, size);
    assert_eq!(sealed.block_size, sink.received);
    (sink.most, sealed)
}

#[test]
fn sealing_holds_two_chunks_whatever_the_size() {
    let (most, _) = stream(16 * 1024 * 1024);
    assert!(most <= 2 * CHUNK_LEN as u64, "{most} bytes were held back");
}

#[test]
#[ignore = "10 GiB: run with --release --ignored"]
fn ten_gibibytes_stay_within_64_mib_of_memory() {
    let start = std::time::Instant::now();
    let size = 10 * 1024 * 1024 * 1024;
    let (most, _) = stream(size);
    assert!(most <= 2 * CHUNK_LEN as u64);
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("sealed at {:.2} GB/s", size as f64 / seconds / 1e9);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap();
    assert!(peak <= 64 * 1024, "peak memory {peak} KiB");
}
