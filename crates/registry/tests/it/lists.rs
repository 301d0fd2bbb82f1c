//! Revocation lists of shards, and delta lists.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use audit::MemorySink;
use const_oid::ObjectIdentifier;
use der::Decode as _;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{AuthorityId, Config, CrlName, Issued, Registry, RegistryError};
use store::sqlx;
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::sqlx::{Connection as _, Executor as _};
use time::{Duration, OffsetDateTime};
use x509_cert::crl::TbsCertList;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{BaseCrlNumber, CrlNumber};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, open, world};

const KIND: CaKind = CaKind::Devices;
const FIRST: AuthorityId = AuthorityId::first(KIND);
const REASON: RevocationReason = RevocationReason::KeyCompromise;
const KIBI: usize = 1024;

async fn reopen(folder: &Path, config: Config, now: OffsetDateTime) -> Registry {
    let audit = Arc::new(MemorySink::default());
    Registry::open(folder, config, &SECRETS.issuing, audit, now)
        .await
        .unwrap()
}

fn with_shards(shards: u16) -> Config {
    Config {
        crl_shards: NonZeroU16::new(shards).unwrap(),
        ..config()
    }
}

/// A registry with so many shards for each authority.
async fn world_with(shards: u16) -> World {
    let world = world().await;
    world.registry.close(NOW).await;
    let registry = reopen(world.folder.path(), with_shards(shards), NOW).await;
    World { registry, ..world }
}

async fn device(registry: &Registry, name: &str) -> Issued {
    let order = an_order();
    let issue = registry.issue_device(name, key().spki(), Clearance::Restricted, order, NOW);
    issue.await.unwrap()
}

async fn revoke(registry: &Registry, issued: &Issued, now: OffsetDateTime) {
    let revoke = registry.revoke(KIND, &issued.serial, REASON, an_order(), now);
    revoke.await.unwrap();
}

fn value<'a>(extensions: Option<&'a Vec<Extension>>, oid: &str) -> Option<&'a Extension> {
    let oid = ObjectIdentifier::new_unwrap(oid);
    extensions.into_iter().flatten().find(|e| e.extn_id == oid)
}

/// Addresses in an extension.
fn urls(extension: &Extension) -> Vec<String> {
    let text = String::from_utf8_lossy(extension.extn_value.as_bytes()).into_owned();
    let starts = text.match_indices("http://").map(|(at, _)| at);
    let ends = |at: usize| text[at..].find(".crl").unwrap() + at + 4;
    starts.map(|at| text[at..ends(at)].to_owned()).collect()
}

/// The address in an extension of a certificate.
fn address(issued: &Issued, oid: &str) -> String {
    let extensions = issued.chain.leaf().tbs_certificate.extensions.as_ref();
    urls(value(extensions, oid).unwrap()).remove(0)
}

/// The list at the distribution point of a certificate.
pub(crate) fn shard(issued: &Issued) -> CrlName {
    name(&address(issued, "2.5.29.31"))
}

pub(crate) fn delta(issued: &Issued) -> CrlName {
    name(&address(issued, "2.5.29.46"))
}

fn name(url: &str) -> CrlName {
    let (_, file) = url.rsplit_once('/').unwrap();
    file.strip_suffix(".crl").unwrap().parse().unwrap()
}

pub(crate) fn list(registry: &Registry, name: CrlName) -> TbsCertList {
    let der = registry.crl(name).unwrap_or_else(|| panic!("no {name}"));
    pki::crl::parse(&der).unwrap().tbs_cert_list
}

fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n * 256 + u64::from(*byte))
}

pub(crate) fn number(list: &TbsCertList) -> u64 {
    let extension = value(list.crl_extensions.as_ref(), "2.5.29.20").unwrap();
    let number = CrlNumber::from_der(extension.extn_value.as_bytes()).unwrap();
    integer(number.0.as_bytes())
}

fn base(list: &TbsCertList) -> u64 {
    let extension = value(list.crl_extensions.as_ref(), "2.5.29.27").unwrap();
    assert!(extension.critical);
    let number = BaseCrlNumber::from_der(extension.extn_value.as_bytes()).unwrap();
    integer(number.0.as_bytes())
}

pub(crate) fn serials(list: &TbsCertList) -> BTreeSet<String> {
    let entries = list.revoked_certificates.iter().flatten();
    entries
        .map(|entry| hex::encode(entry.serial_number.as_bytes()))
        .collect()
}

#[tokio::test]
async fn certificate_names_a_shard_whose_list_names_the_same_address() {
    let world = world().await;
    let registry = &world.registry;
    let issued = device(registry, "camera-17").await;
    assert!(registry.crl(shard(&issued)).is_none());
    let der = registry.crl_for(shard(&issued), NOW).await.unwrap();
    assert_eq!(der.map(|list| list.der), registry.crl(shard(&issued)));
    let complete = list(registry, shard(&issued));
    let point = value(complete.crl_extensions.as_ref(), "2.5.29.28").unwrap();
    assert!(point.critical);
    assert_eq!(urls(point), [address(&issued, "2.5.29.31")]);
    let freshest = value(complete.crl_extensions.as_ref(), "2.5.29.46").unwrap();
    assert_eq!(urls(freshest), [address(&issued, "2.5.29.46")]);
    let changes = list(registry, delta(&issued));
    let same = value(changes.crl_extensions.as_ref(), "2.5.29.28").unwrap();
    assert_eq!(same, point, "a delta list has the scope of its base");
    // The list of all names its own delta list, and nothing critical: whoever knows complete lists only takes it.
    let whole = list(registry, CrlName::Issuing(FIRST))
        .crl_extensions
        .unwrap();
    let freshest = value(Some(&whole), "2.5.29.46").unwrap();
    assert_eq!(
        urls(freshest),
        ["http://pki.example.org/crl/devices-delta.crl"]
    );
    assert!(whole.iter().all(|extension| !extension.critical));
    // No list is made for a shard of which there is no certificate.
    let files = fs::read_dir(world.folder.path().join("pki/crl")).unwrap();
    assert_eq!(files.count(), 1 + 3 * 2 + 2);
    let CrlName::Shard(_, used) = shard(&issued) else {
        panic!("no shard");
    };
    let other = CrlName::Shard(FIRST, (used + 1) % 128);
    assert!(registry.crl_for(other, NOW).await.unwrap().is_none());
}

#[tokio::test]
async fn revocation_has_the_lists_of_its_shard_made_anew_and_no_others() {
    let world = world_with(2).await;
    let registry = &world.registry;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let issued = device(registry, &format!("camera-{n}")).await;
        match shard(&issued) {
            CrlName::Shard(_, 0) => one.push(issued),
            _ => two.push(issued),
        }
    }
    registry.refresh_crls(NOW).await.unwrap();
    let (one, two) = (&one[0], &two[0]);
    let before = list(registry, shard(one));
    let untouched = [shard(two), delta(two)].map(|name| registry.crl(name));
    let later = NOW + Duration::HOUR;
    revoke(registry, one, later).await;
    let serial = BTreeSet::from([one.serial.clone()]);
    let [whole, complete, changes, all_changes] = [
        CrlName::Issuing(FIRST),
        shard(one),
        delta(one),
        CrlName::Delta(FIRST),
    ]
    .map(|name| list(registry, name));
    for list in [&whole, &complete, &changes, &all_changes] {
        assert_eq!(serials(list), serial);
        assert_eq!(number(list), number(&whole), "issued together");
    }
    assert!(number(&complete) > number(&before));
    assert_eq!(base(&changes), number(&before));
    assert_eq!(untouched, [shard(two), delta(two)].map(|n| registry.crl(n)));
    assert!(!serials(&list(registry, shard(two))).contains(&one.serial));
    // A delta list says what came since the oldest list that is in date, hence no more after a day.
    let end = later + Duration::hours(25);
    registry.refresh_crls(end).await.unwrap();
    let changes = list(registry, delta(one));
    assert_eq!(base(&changes), number(&list(registry, shard(one))));
    assert_eq!(serials(&changes), BTreeSet::new());
    assert_eq!(serials(&list(registry, shard(one))), serial);
}

#[tokio::test]
async fn delta_lists_are_renewed_more_often_than_the_complete_ones() {
    let world = world_with(1).await;
    let registry = &world.registry;
    let issued = device(registry, "camera-17").await;
    registry.refresh_crls(NOW).await.unwrap();
    let (complete, changes) = (
        list(registry, shard(&issued)),
        list(registry, delta(&issued)),
    );
    registry
        .refresh_crls(NOW + Duration::hours(3))
        .await
        .unwrap();
    assert_eq!(list(registry, shard(&issued)), complete);
    let renewed = list(registry, delta(&issued));
    assert!(number(&renewed) > number(&changes));
    assert_eq!(base(&renewed), number(&complete));
    registry
        .refresh_crls(NOW + Duration::hours(12))
        .await
        .unwrap();
    assert!(number(&list(registry, shard(&issued))) > number(&renewed));
}

#[tokio::test]
async fn other_number_of_shards_moves_no_certificate() {
    let world = world().await;
    let mut issued = Vec::new();
    for n in 0..8 {
        issued.push(device(&world.registry, &format!("camera-{n}")).await);
    }
    let old = issued
        .into_iter()
        .find(|one| shard(one) != CrlName::Shard(FIRST, 0))
        .unwrap();
    world.registry.close(NOW).await;
    let registry = reopen(world.folder.path(), with_shards(1), NOW).await;
    let new = device(&registry, "camera-new").await;
    assert_eq!(shard(&new), CrlName::Shard(FIRST, 0));
    for one in [&old, &new] {
        revoke(&registry, one, NOW).await;
        let listed = serials(&list(&registry, shard(one)));
        assert_eq!(listed, BTreeSet::from([one.serial.clone()]));
    }
}

#[tokio::test]
async fn other_public_address_is_named_by_the_lists_beside_the_former() {
    let world = world_with(1).await;
    let old = device(&world.registry, "camera-17").await;
    world.registry.refresh_crls(NOW).await.unwrap();
    world.registry.close(NOW).await;
    let moved = Config {
        crl_base_url: Some("http://new.example.org/crl".into()),
        ..with_shards(1)
    };
    let registry = reopen(world.folder.path(), moved, NOW).await;
    let point = |registry: &Registry| {
        let list = list(registry, shard(&old));
        urls(value(list.crl_extensions.as_ref(), "2.5.29.28").unwrap())
    };
    assert_eq!(point(&registry), [address(&old, "2.5.29.31")]);
    let new = device(&registry, "camera-18").await;
    assert_eq!(shard(&new), shard(&old));
    registry.refresh_crls(NOW).await.unwrap();
    let both = [&new, &old].map(|one| address(one, "2.5.29.31"));
    assert_eq!(point(&registry), both);
}

#[tokio::test]
async fn certificates_without_public_address_name_no_list_and_have_no_shard() {
    let world = world().await;
    world.registry.close(NOW).await;
    let none = Config {
        crl_base_url: None,
        ..config()
    };
    let registry = reopen(world.folder.path(), none, NOW).await;
    let issued = device(&registry, "camera-17").await;
    let extensions = issued.chain.leaf().tbs_certificate.extensions.as_ref();
    for oid in ["2.5.29.31", "2.5.29.46"] {
        assert_eq!(value(extensions, oid), None);
    }
    revoke(&registry, &issued, NOW).await;
    assert_eq!(serials(&list(&registry, CrlName::Delta(FIRST))).len(), 1);
    assert_eq!(serials(&list(&registry, CrlName::Issuing(FIRST))).len(), 1);
}

#[tokio::test]
async fn restart_takes_shards_from_their_files_and_makes_the_others_anew() {
    let world = world_with(1).await;
    let issued = device(&world.registry, "camera-17").await;
    world.registry.refresh_crls(NOW).await.unwrap();
    let path = world
        .folder
        .path()
        .join(format!("pki/crl/{}.crl", shard(&issued)));
    let file = fs::read(&path).unwrap();
    let again = async || {
        let registry = reopen(world.folder.path(), with_shards(1), NOW).await;
        let list = list(&registry, shard(&issued));
        registry.close(NOW).await;
        list
    };
    world.registry.close(NOW).await;
    let kept = again().await;
    assert_eq!(fs::read(&path).unwrap(), file);
    // Missing, damaged, another's, or of before a revocation whose lists a crash prevented.
    let whole = fs::read(world.folder.path().join("pki/crl/devices.crl")).unwrap();
    let mut last = number(&kept);
    for damaged in [None, Some(vec![0x30, 0]), Some(whole)] {
        fs::remove_file(&path).unwrap();
        if let Some(damaged) = damaged {
            fs::write(&path, damaged).unwrap();
        }
        let made = number(&again().await);
        assert!(made > last);
        last = made;
    }
    let before = fs::read(&path).unwrap();
    let registry = reopen(world.folder.path(), with_shards(1), NOW).await;
    revoke(&registry, &issued, NOW).await;
    registry.close(NOW).await;
    fs::write(&path, before).unwrap();
    assert_eq!(serials(&again().await).len(), 1);
}

#[tokio::test]
async fn list_of_a_shard_that_could_not_be_written_is_made_up_for() {
    let world = world_with(1).await;
    let registry = &world.registry;
    let issued = device(registry, "camera-17").await;
    registry.refresh_crls(NOW).await.unwrap();
    let path = world.folder.path().join("pki/crl/devices-000.crl");
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    let outcome = registry
        .revoke(KIND, &issued.serial, REASON, an_order(), NOW)
        .await;
    assert!(matches!(outcome, Err(RegistryError::File(_))));
    // The others are there all the same.
    assert_eq!(serials(&list(registry, CrlName::Issuing(FIRST))).len(), 1);
    assert_eq!(serials(&list(registry, shard(&issued))).len(), 0);
    fs::remove_dir_all(&path).unwrap();
    registry.refresh_crls(NOW).await.unwrap();
    assert_eq!(serials(&list(registry, shard(&issued))).len(), 1);
}

#[tokio::test]
async fn whoever_asks_for_a_list_that_cannot_be_made_has_it_tried_once() {
    let world = world_with(1).await;
    let registry = &world.registry;
    let issued = device(registry, "camera-17").await;
    let path = world.folder.path().join("pki/crl/devices-000.crl");
    fs::create_dir_all(path.join("in the way")).unwrap();
    let ask = async |at| registry.crl_for(shard(&issued), at).await;
    assert!(matches!(ask(NOW).await, Err(RegistryError::File(_))));
    fs::remove_dir_all(&path).unwrap();
    assert!(ask(NOW + Duration::seconds(59)).await.unwrap().is_none());
    assert!(ask(NOW + Duration::MINUTE).await.unwrap().is_some());
}

#[tokio::test]
async fn numbers_grow_where_a_database_of_before_was_put_back() {
    let world = world().await;
    world.registry.close(NOW).await;
    let saved = tempfile::tempdir().unwrap();
    let database = world.folder.path().join("registry.sqlite");
    fs::copy(&database, saved.path().join("registry.sqlite")).unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let registry = open(world.folder.path(), Arc::new(MemorySink::default())).await;
        let number = number(&list(&registry, CrlName::Issuing(FIRST)));
        assert!(number > last);
        last = number;
        registry.close(NOW).await;
    }
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.folder.path().join(format!("registry.sqlite{suffix}")));
    }
    fs::copy(saved.path().join("registry.sqlite"), &database).unwrap();
    let registry = reopen(world.folder.path(), config(), NOW + Duration::MINUTE).await;
    assert!(number(&list(&registry, CrlName::Issuing(FIRST))) > last);
}

/// Revokes `count` certificates of devices in the database, and opens it with a log that knows nothing of it.
async fn revoke_many(world: World, count: u32, shards: u16, at: OffsetDateTime) -> World {
    world.registry.close(at).await;
    let folder = world.folder.path();
    let file = SqliteConnectOptions::new().filename(folder.join("registry.sqlite"));
    let mut database = SqliteConnection::connect_with(&file).await.unwrap();
    let mut tx = database.begin().await.unwrap();
    sqlx::query(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO issued (authority, serial, profile, holder, spki_sha256, issued_at, not_after,
             certificate, shard)
         SELECT 'devices', '4' || substr(lower(hex(randomblob(16))), 2), 'device', 'camera-' || i, '',
             ?2, ?2 + 31536000, x'00', abs(random() % ?3) FROM n",
    )
    .bind(count)
    .bind(at.unix_timestamp())
    .bind(i64::from(shards))
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.execute(
        "INSERT INTO revoked (authority, serial, at, reason)
         SELECT authority, serial, issued_at, 'key-compromise' FROM issued i WHERE authority = 'devices'
         AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
    )
    .await
    .unwrap();
    tx.execute(
        "INSERT OR IGNORE INTO crl_shards (authority, shard, url)
         SELECT DISTINCT authority, shard, printf('http://pki.example.org/crl/devices-%03d.crl', shard)
         FROM issued WHERE shard IS NOT NULL",
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    database.close().await.unwrap();
    let registry = reopen(folder, with_shards(shards), at).await;
    World { registry, ..world }
}

/// The largest list of a shard, the largest delta list, and the entries of all shards.
fn largest(registry: &Registry, shards: u16) -> (usize, usize, usize) {
    let (mut complete, mut changes, mut entries) = (0, 0, 0);
    for shard in 0..shards {
        let der = registry.crl(CrlName::Shard(FIRST, shard)).unwrap();
        complete = complete.max(der.len());
        entries += serials(&list(registry, CrlName::Shard(FIRST, shard))).len();
        let delta = registry.crl(CrlName::ShardDelta(FIRST, shard)).unwrap();
        changes = changes.max(delta.len());
    }
    let delta = registry.crl(CrlName::Delta(FIRST)).unwrap();
    (complete, changes.max(delta.len()), entries)
}

#[tokio::test]
async fn delta_list_with_too_many_changes_gets_a_later_base() {
    let world = world_with(1).await;
    let first = number(&list(&world.registry, CrlName::Issuing(FIRST)));
    let world = revoke_many(world, 900, 1, NOW).await;
    let registry = &world.registry;
    let changes = list(registry, CrlName::Delta(FIRST));
    assert!(base(&changes) <= first);
    assert_eq!(serials(&changes).len(), 900);
    let size = registry.crl(CrlName::Delta(FIRST)).unwrap().len();
    assert!(size * 1000 / 900 < 64 * KIBI, "{size}");
    let second = number(&changes);
    let later = NOW + Duration::MINUTE;
    let world = revoke_many(world, 900, 1, later).await;
    let registry = &world.registry;
    let changes = list(registry, CrlName::Delta(FIRST));
    assert_eq!((base(&changes), serials(&changes).len()), (second, 900));
    // All at once are in the complete list alone.
    let world = revoke_many(world, 1001, 1, later).await;
    let registry = &world.registry;
    let changes = list(registry, CrlName::Delta(FIRST));
    let whole = list(registry, CrlName::Issuing(FIRST));
    assert_eq!(
        (base(&changes), serials(&changes).len()),
        (number(&whole), 0)
    );
    assert_eq!(serials(&whole).len(), 2801);
}

#[tokio::test]
#[ignore = "a minute without optimisation; scripts/test --full runs it"]
async fn hundred_thousand_revoked_make_lists_of_at_most_64_kib() {
    let shards = registry::CRL_SHARDS.get();
    let world = world().await;
    // As many a day as delta lists can say, and all the others before.
    let start = Instant::now();
    let world = revoke_many(world, 99_000, shards, NOW).await;
    let first = start.elapsed();
    let world = revoke_many(world, 1000, shards, NOW).await;
    let registry = &world.registry;
    let (complete, changes, entries) = largest(registry, shards);
    assert_eq!(entries, 100_000);
    let issued = device(registry, "camera-17").await;
    registry.crl_for(shard(&issued), NOW).await.unwrap();
    let start = Instant::now();
    revoke(registry, &issued, NOW).await;
    let one = start.elapsed();
    assert!(complete <= 64 * KIBI, "{complete}");
    assert!(changes <= 64 * KIBI, "{changes}");
    // Shown with --nocapture.
    let whole = registry.crl(CrlName::Issuing(FIRST)).unwrap().len();
    eprintln!(
        "largest of {shards} shards {complete} bytes, delta list {changes}, whole list {whole}"
    );
    eprintln!("rows and all lists {first:?}, lists of one more revocation {one:?}");
}
