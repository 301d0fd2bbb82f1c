//! Writing the custody package; `centre` tests that what is written passes the check.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use durable::SharedDisk;
use durable::testing::{Item, Op, RecordingDisk, Tree};
use evidence::digest::Sha256Digest;
use evidence::export::{self, CustodyEvent, ExportError, FolderTarget, LogProof, Package};
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
            log_index: if log_size > 2 {
                1
            } else {
                (log_size - 1) as u64
            },
            checkpoint: None,
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
        self.export_on(durable::real(), &target, crls)?;
        Ok(target)
    }

    fn export_on(
        &self,
        disk: SharedDisk,
        target: &Path,
        crls: &[String],
    ) -> Result<(), ExportError> {
        let receipt = self
            .receipt
            .sign(&self.centre.key, &self.centre.chain)
            .unwrap();
        let mut opened = self.scene.opener().open(Cursor::new(&self.block)).unwrap();
        let root = pki::cert::to_pem(&self.scene.root.certificate).unwrap();
        let package = Package {
            violation: "v-0123456789abcdef",
            block: &self.shop.path("block"),
            signed_manifest: &self.signed,
            camera_chain: &self.scene.camera.chain,
            receipt: &receipt,
            centre_chain: &self.centre.chain,
            centre_key: &self.centre.key,
            root_pem: &root,
            crls_pem: crls,
            log: &self.log,
            epoch: None,
            purpose: "case 4711, court of example.org",
            now: NOW,
        };
        let mut folder = FolderTarget::begin_on(disk, target)?;
        let mut read = |i: usize, out: &mut dyn Write| opened.read_medium(i, out);
        export::write(&package, &mut read, &mut folder)
    }
}

#[test]
fn media_get_names_that_are_safe_for_a_shell() {
    let names = ["front view.jpg", "it's \"rear\" $(x).jpg", "zażółć.jpg"];
    let case = Case::new(KeyAlgorithm::EcdsaP256, &names, 13);
    let folder = case.export(&[]).unwrap();
    let mut found: Vec<String> = fs::read_dir(folder.join("media"))
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let expected = [
        "01-front_view.jpg",
        "02-it_s__rear____x_.jpg",
        "03-za____.jpg",
    ];
    assert_eq!(found, expected);
    for (name, content) in found.iter().zip(names) {
        let bytes = fs::read(folder.join("media").join(name)).unwrap();
        assert_eq!(bytes, content.as_bytes());
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

/// Content of what is in the folder `name` of a tree; `None` if there is no such folder.
fn inside(tree: &Tree, name: &str) -> Option<Tree> {
    tree.0.get(Path::new(name))?;
    let inner = tree.0.iter().filter_map(|(path, item)| {
        let path = path.strip_prefix(name).ok()?;
        (!path.as_os_str().is_empty()).then(|| (path.to_owned(), item.clone()))
    });
    Some(Tree(inner.collect()))
}

/// A folder in memory where the system has one: hundreds of synchronised files take minutes on a disk.
fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// After a crash at any step a package is whole or absent, and the next export to its name succeeds.
///
/// Its limit: when the files are complete they get their names one after the other. A crash between the first name
/// and the rename of the folder leaves the media in `package.partial`, which the next export to this name removes.
#[test]
fn export_with_a_crash_at_any_step_leaves_a_whole_package_or_none() {
    const PLAINTEXT: &[u8] = b"what the picture shows to those who may see it.jpg";
    let name = std::str::from_utf8(PLAINTEXT).unwrap();
    let case = Case::new(KeyAlgorithm::EcdsaP256, &[name], 5);
    let folder = quick_folder();
    let disk = Arc::new(RecordingDisk::default());
    let crls = ["not looked at here".to_owned()];
    let target = folder.path().join("package");
    case.export_on(disk.clone(), &target, &crls).unwrap();
    let ended = disk.ops().len();
    let naming = |op: &Op| matches!(op, Op::Name { .. } | Op::Create { .. });
    let named = disk.ops().iter().position(naming).unwrap();
    let whole = inside(&Tree::read(folder.path()).unwrap(), "package").unwrap();
    let (mut absent, mut partial) = (0, 0);
    let crashes = disk.crashes(folder.path(), &Tree::default());
    for crash in &crashes {
        let what = &crash.what;
        match inside(&crash.tree, "package") {
            Some(package) => assert_eq!(package, whole, "{what}"),
            None => {
                assert!(crash.done < ended, "{what}: a finished package is gone");
                absent += 1;
            }
        }
        let plaintext = |item: &Item| match item {
            Item::File { bytes, .. } => bytes.as_slice() == PLAINTEXT,
            Item::Folder => false,
        };
        for (path, _) in crash.tree.0.iter().filter(|(_, item)| plaintext(item)) {
            if !path.starts_with("package") {
                assert!(crash.done >= named, "{what}: plaintext in {path:?}");
                partial += 1;
            }
        }
        let place = quick_folder();
        crash.tree.write(place.path()).unwrap();
        let again = place.path().join("package");
        let exported = case.export_on(durable::real(), &again, &crls);
        match inside(&crash.tree, "package") {
            Some(_) => assert!(
                matches!(exported, Err(ExportError::Exists { .. })),
                "{what}"
            ),
            None => exported.unwrap_or_else(|e| panic!("{what}: {e:?}")),
        }
        assert!(
            !place.path().join("package.partial").exists() || again.exists(),
            "{what}"
        );
    }
    assert!(
        crashes.len() > 50 && absent > 40 && partial > 0,
        "{}",
        crashes.len()
    );
}
