//! The custody package: its README's commands accept it, and refuse it after any change.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evidence::digest::Sha256Digest;
use evidence::export::{self, CustodyEvent, ExportError, LogProof, Package};
use evidence::receipt::{self, Receipt, Verdict};
use pki::key::KeyAlgorithm;

use crate::block::{Scene, draft, media};
use crate::identity::{Identity, NOW};
use crate::tools::Workshop;

const ORIGIN: &str = "log.example.org/cordon";

fn node(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    let mut bytes = vec![1];
    bytes.extend_from_slice(&left);
    bytes.extend_from_slice(&right);
    *Sha256Digest::of(&bytes).as_bytes()
}

/// RFC 6962 section 2.1: the tree's root by its recursive definition.
fn root(leaves: &[[u8; 32]]) -> [u8; 32] {
    match leaves {
        [] => *Sha256Digest::of(b"").as_bytes(),
        [one] => *one,
        many => {
            let k = many.len().next_power_of_two() / 2;
            node(root(&many[..k]), root(&many[k..]))
        }
    }
}

/// RFC 6962 section 2.1.1: the audit path by its recursive definition.
fn path(index: usize, leaves: &[[u8; 32]]) -> Vec<[u8; 32]> {
    if leaves.len() <= 1 {
        return vec![];
    }
    let k = leaves.len().next_power_of_two() / 2;
    if index < k {
        let mut p = path(index, &leaves[..k]);
        p.push(root(&leaves[k..]));
        p
    } else {
        let mut p = path(index - k, &leaves[k..]);
        p.push(root(&leaves[..k]));
        p
    }
}

/// A log of `size` entries in which the events about the block stand at `indices`.
fn log(size: usize, indices: &[usize], block: &Sha256Digest) -> LogProof {
    let key = Ed25519KeyPair::generate().unwrap();
    let entries: Vec<Vec<u8>> = (0..size)
        .map(|i| {
            if indices.contains(&i) {
                format!(
                    "{{\"action\":\"evidence.receive\",\"block_sha256\":\"{block}\",\"n\":{i}}}"
                )
            } else {
                format!("{{\"action\":\"other\",\"n\":{i}}}")
            }
            .into_bytes()
        })
        .collect();
    let leaves: Vec<[u8; 32]> = entries
        .iter()
        .map(|e| *Sha256Digest::of(&[&[0], e.as_slice()].concat()).as_bytes())
        .collect();
    let body = format!("{ORIGIN}\n{size}\n{}\n", STANDARD.encode(root(&leaves)));
    let mut signature = vec![1, 2, 3, 4];
    signature.extend_from_slice(key.sign(body.as_bytes()).as_ref());
    let events = indices.iter().map(|&i| CustodyEvent {
        entry: entries[i].clone(),
        index: i as u64,
        proof: path(i, &leaves),
    });
    LogProof {
        checkpoint: format!("{body}\n\u{2014} {ORIGIN} {}\n", STANDARD.encode(signature)),
        origin: ORIGIN.into(),
        public_key: key.public_key().as_ref().try_into().unwrap(),
        events: events.collect(),
    }
}

struct Case {
    shop: Workshop,
    scene: Scene,
    centre: Identity,
    block: Vec<u8>,
    signed: Vec<u8>,
    receipt: Receipt,
    log: LogProof,
}

impl Case {
    fn new(centre: KeyAlgorithm, names: &[&str], log_size: usize) -> Self {
        let scene = Scene::new();
        let centre = scene.root.identity("centre", centre);
        let parts: Vec<(&str, &[u8])> = names.iter().map(|n| (*n, n.as_bytes())).collect();
        let mut block = Vec::new();
        let sealed = scene
            .sealer()
            .seal(draft(1, Sha256Digest::ZERO), media(&parts), NOW, &mut block)
            .unwrap();
        let signed = scene
            .opener()
            .open(Cursor::new(&block))
            .unwrap()
            .signed_data_der;
        let receipt = Receipt {
            schema: receipt::SCHEMA.into(),
            block_sha256: sealed.block_sha256,
            size: sealed.block_size,
            device: "camera-17".into(),
            sequence: Some(1),
            manifest_sha256: Some(sealed.manifest_sha256),
            verdict: Verdict::Accepted,
            reason: None,
            received_at: NOW,
            log_origin: ORIGIN.into(),
            log_index: (log_size - 1) as u64,
        };
        let indices: Vec<usize> = if log_size > 2 {
            vec![1, log_size - 1]
        } else {
            vec![log_size - 1]
        };
        let shop = Workshop::new();
        shop.write("block", &block);
        Self {
            log: log(log_size, &indices, &sealed.block_sha256),
            shop,
            scene,
            centre,
            block,
            signed,
            receipt,
        }
    }

    fn export(&self, crls: &[String]) -> Result<PathBuf, ExportError> {
        let target = self.shop.path("package");
        let receipt = self
            .receipt
            .sign(&self.centre.key, &self.centre.chain)
            .unwrap();
        let mut opened = self.scene.opener().open(Cursor::new(&self.block)).unwrap();
        let root = pki::cert::to_pem(&self.scene.root.certificate).unwrap();
        let package = Package {
            block: &self.shop.path("block"),
            signed_manifest: &self.signed,
            camera_chain: &self.scene.camera.chain,
            receipt: &receipt,
            centre_chain: &self.centre.chain,
            centre_key: &self.centre.key,
            root_pem: &root,
            crls_pem: crls,
            log: &self.log,
            purpose: "case 4711, court of example.org",
            now: NOW,
        };
        export::write(&package, &mut |i, out| opened.read_medium(i, out), &target)?;
        Ok(target)
    }
}

/// Runs the README's commands as the README itself says; the outcome and what was printed.
fn check(folder: &Path) -> (bool, String) {
    let readme = fs::read(folder.join("README.md")).unwrap();
    let readme = String::from_utf8_lossy(&readme);
    let line = readme
        .lines()
        .find(|l| l.trim_start().starts_with("awk "))
        .unwrap_or("false # README damaged");
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", line])
        .current_dir(folder)
        .output()
        .expect("bash must be installed");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

/// The commands of the README as it was written, run on the folder as it is now.
fn check_with(commands: &str, folder: &Path) -> bool {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", commands])
        .current_dir(folder)
        .output()
        .expect("bash must be installed");
    output.status.success()
}

fn commands(folder: &Path) -> String {
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut inside = false;
    let mut out = String::new();
    for line in readme.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside => {
                out.push_str(line);
                out.push('\n');
            }
            _ => {}
        }
    }
    out
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A revocation list of the root, made by openssl.
fn crl(case: &Case) -> String {
    let shop = &case.shop;
    shop.root(&case.scene.root);
    let key = der::pem::encode_string(
        "PRIVATE KEY",
        der::pem::LineEnding::LF,
        &case.scene.root.key().to_pkcs8_der(),
    );
    shop.write("root.key", key.unwrap().as_bytes());
    shop.write("index.txt", b"");
    shop.write(
        "ca.cnf",
        b"[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\ndefault_md=sha256\n",
    );
    shop.openssl_ok(
        "ca -gencrl -config ca.cnf -keyfile root.key -cert root.pem -crldays 30 -out crl.pem",
    );
    String::from_utf8(shop.read("crl.pem")).unwrap()
}

#[test]
fn readme_accepts_the_package_of_every_kind_of_centre_key() {
    for (algorithm, size) in [
        (KeyAlgorithm::EcdsaP256, 1),
        (KeyAlgorithm::EcdsaP384, 2),
        (KeyAlgorithm::Rsa2048, 13),
    ] {
        let names = ["front view.jpg", "it's \"rear\" $(x).jpg", "zażółć.jpg"];
        let case = Case::new(algorithm, &names, size);
        let folder = case.export(&[]).unwrap();
        let (accepted, text) = check(&folder);
        assert!(accepted, "{algorithm}: {text}");
        assert!(text.contains("OK: "), "{text}");
        for (i, name) in names.iter().enumerate() {
            let found = files(&folder.join("media"));
            assert_eq!(fs::read(&found[i]).unwrap(), name.as_bytes());
        }
    }
}

#[test]
fn one_flipped_byte_in_any_file_makes_the_check_fail() {
    let case = Case::new(KeyAlgorithm::EcdsaP256, &["front.jpg"], 7);
    let folder = case.export(&[crl(&case)]).unwrap();
    let (accepted, text) = check(&folder);
    assert!(accepted, "{text}");
    assert!(text.contains("camera not listed"), "{text}");
    let commands = commands(&folder);
    let all = files(&folder);
    assert_eq!(all.len(), 18);
    for file in &all {
        let honest = fs::read(file).unwrap();
        for at in [0, honest.len() / 2, honest.len() - 1] {
            let mut flipped = honest.clone();
            flipped[at] ^= 1;
            fs::write(file, &flipped).unwrap();
            assert!(!check_with(&commands, &folder), "flip at {at} of {file:?}");
        }
        fs::write(file, &honest).unwrap();
    }
    // Also without help of the list of hashes: each signature and proof stands alone.
    let alone: String = commands
        .lines()
        .filter(|l| !l.contains("SHA256SUMS"))
        .map(|l| format!("{l}\n"))
        .collect();
    for name in [
        "manifest.json",
        "receipt.json",
        "media/01-front.jpg",
        "block.cordon",
        "events.jsonl",
        "checkpoint",
        "log.pem",
        "root.pem",
        "camera.pem",
        "centre.pem",
    ] {
        let file = folder.join(name);
        let honest = fs::read(&file).unwrap();
        let mut flipped = honest.clone();
        flipped[honest.len() / 4] ^= 1; // in a chain, that is the leaf
        fs::write(&file, &flipped).unwrap();
        assert!(!check_with(&alone, &folder), "{name} alone");
        fs::write(&file, &honest).unwrap();
    }
    fs::write(folder.join("extra"), b"").unwrap();
    assert!(!check_with(&commands, &folder), "a file was added");
    fs::remove_file(folder.join("extra")).unwrap();
    assert!(check_with(&commands, &folder));
}

#[test]
fn every_byte_of_the_package_signature_counts() {
    let case = Case::new(KeyAlgorithm::EcdsaP256, &[], 1);
    let folder = case.export(&[]).unwrap();
    let first: String = commands(&folder)
        .lines()
        .filter(|l| l.contains("WORK=") || l.contains("centre.pub"))
        .map(|l| format!("{l}\n"))
        .collect();
    assert!(check_with(&first, &folder));
    let file = folder.join("SHA256SUMS.sig");
    let honest = fs::read(&file).unwrap();
    for at in 0..honest.len() {
        let mut flipped = honest.clone();
        flipped[at] ^= 1;
        fs::write(&file, &flipped).unwrap();
        assert!(!check_with(&first, &folder), "flip at {at}");
    }
}

#[test]
fn inconsistent_parts_are_not_exported() {
    let part = |case: &Case| match case.export(&[]) {
        Err(ExportError::Inconsistent { part }) => {
            assert!(!case.shop.path("package").exists());
            assert!(!case.shop.path("package.partial").exists());
            part
        }
        other => panic!("{other:?}"),
    };
    let fresh = || Case::new(KeyAlgorithm::EcdsaP256, &["a.jpg"], 3);
    let mut case = fresh();
    case.receipt.manifest_sha256 = Some(Sha256Digest::ZERO);
    assert_eq!(part(&case), "receipt");
    let mut case = fresh();
    case.receipt.log_index = 0;
    assert_eq!(part(&case), "audit event of the receipt");
    let mut case = fresh();
    case.log.events[0].entry.push(b'\n');
    assert_eq!(part(&case), "audit event with a line break");
    let mut case = fresh();
    case.log.origin = "other".into();
    assert_eq!(part(&case), "log origin");
    let mut case = fresh();
    case.log.checkpoint.insert(0, 'x');
    assert_eq!(part(&case), "checkpoint");
    let case = fresh();
    case.shop.write("block", b"another");
    assert_eq!(part(&case), "block");
    let mut case = fresh();
    case.scene.camera = case
        .scene
        .root
        .identity("camera-17", KeyAlgorithm::EcdsaP256);
    assert_eq!(part(&case), "camera certificate");

    let mut case = fresh();
    *case.signed.last_mut().unwrap() ^= 1;
    assert_eq!(case.export(&[]).unwrap_err().code(), "export-signature");
    let case = fresh();
    case.export(&[]).unwrap();
    assert_eq!(case.export(&[]).unwrap_err().code(), "export-exists");
}
