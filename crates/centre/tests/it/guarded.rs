//! The index as a file: replaced, cut, or with objects that this program does not make.

use std::path::Path;

use centre::SetupError;
use store::StoreError;

use crate::forged::{forge, scene};
use crate::rebuilt::start;
use crate::site::Site;

const FOREIGN: [&str; 4] = [
    "CREATE TRIGGER evil AFTER INSERT ON blocks WHEN NEW.verdict = 'quarantined'
        BEGIN DELETE FROM blocks WHERE block_sha256 = NEW.block_sha256; END",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE kept AS SELECT * FROM blocks",
    "DROP TRIGGER violation_added",
];

/// What an attacker does to the file.
type Change = fn(&Path);

async fn is_found(site: &Site, what: &str) {
    let index = site.centre.index();
    let before = site.events("evidence.index-changed").len();
    let found = index.look().await.unwrap_err();
    assert!(found.is_foreign(), "{what}: {found:?}");
    let events = site.events("evidence.index-changed");
    assert_eq!(events.len(), before + 1, "{what}");
    assert!(events[before].reason.is_some(), "{what}");
    assert!(index.look_whole().await.is_err(), "{what}");
}

#[tokio::test]
async fn index_of_an_untouched_site_passes() {
    let (site, ..) = scene().await;
    for _ in 0..2 {
        site.centre.index().look().await.unwrap();
        site.centre.index().look_whole().await.unwrap();
    }
    // Foreign rows are another check's.
    forge(&site, "DELETE FROM custody").await;
    site.centre.index().look_whole().await.unwrap();
    assert!(site.events("evidence.index-changed").is_empty());
}

#[tokio::test]
async fn replaced_unlinked_or_cut_index_is_found_while_the_centre_runs() {
    let changes: [(&str, Change); 4] = [
        ("replaced by a copy", |file| {
            let copy = file.with_extension("copy");
            std::fs::copy(file, &copy).unwrap();
            std::fs::rename(copy, file).unwrap();
        }),
        ("unlinked", |file| std::fs::remove_file(file).unwrap()),
        ("journal unlinked", |file| {
            std::fs::remove_file(file.with_extension("sqlite-wal")).unwrap();
        }),
        ("cut", |file| {
            let file = std::fs::File::options().write(true).open(file).unwrap();
            file.set_len(0).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (site, ..) = scene().await;
        site.centre.index().look().await.unwrap();
        change(&site.folder.path().join("centre.sqlite"));
        is_found(&site, what).await;
    }
}

#[tokio::test]
async fn foreign_schema_of_the_index_is_found_and_refused_by_a_start() {
    for statement in FOREIGN {
        let (site, ..) = scene().await;
        site.centre.index().look().await.unwrap();
        forge(&site, statement).await;
        is_found(&site, statement).await;
        let refused = start(&site).await.err().unwrap();
        let SetupError::Index { source, .. } = refused else {
            panic!("{statement}: {refused:?}");
        };
        assert!(matches!(source, StoreError::Schema(_)), "{statement}");
    }
}
