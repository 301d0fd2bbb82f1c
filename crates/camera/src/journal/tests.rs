//! The journal on its own: what stands in it after starts, commands, jumps, a full disk of events, damage.

use audit::Leaf;

use super::*;

fn config(folder: &Path) -> Config {
    let text = format!(
        "[watch]\nfolder = {0:?}\nrejected = {0:?}\n[spool]\nfolder = {0:?}\nmax_bytes = 1000000000\n\
         [identity]\ndevice = \"camera-17\"\nfile = {1:?}\n[trust]\nroots = {2:?}\nrecipients = {2:?}\n\
         [centre]\nhost = \"localhost\"\nport = 8444\n[[bearers]]\nname = \"any\"\n",
        folder,
        folder.join("identity.pem"),
        folder.join("trust.pem"),
    );
    toml::from_str(&text).unwrap()
}

fn at(day: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000 + day)
}

/// The events from `from` on, with a look at the agent's own journal.
fn events(journal: &CameraJournal, from: u64) -> Vec<Event> {
    let records = journal.shared.journal().read_from(from).unwrap();
    records
        .map(|record| Leaf::decode(&record.unwrap().leaf).unwrap().event)
        .collect()
}

fn actions(journal: &CameraJournal) -> Vec<String> {
    let from = journal.shared.journal().first_seq().unwrap();
    events(journal, from)
        .into_iter()
        .map(|e| e.action)
        .collect()
}

#[test]
fn starts_stops_settings_and_a_clock_that_went_back_stand_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let journal = CameraJournal::open(&config, at(10)).unwrap();
    journal.note(&CameraEvent::Enrolled { renewed: true }, at(10));
    journal.note(&CameraEvent::ClockJumped { seconds: -90 }, at(10));
    journal.close(at(10));
    assert_eq!(
        actions(&journal),
        [
            "camera.start",
            "camera.renew",
            "camera.clock",
            "camera.stop"
        ]
    );
    drop(journal);
    fs::write(&config.trust.roots, "another root").unwrap();
    config.watch.pair_wait_secs += 1;
    let journal = CameraJournal::open(&config, at(5)).unwrap();
    assert_eq!(
        actions(&journal)[4..],
        ["camera.start", "camera.settings", "camera.clock"]
    );
    let clock = &events(&journal, 7)[0];
    assert_eq!(clock.details["seconds"], -5 * 86_400);
    assert!(journal.has_news());
    let start = &events(&journal, 1)[0];
    assert!(start.details["by"].as_str().unwrap().starts_with("unix:"));
}

#[test]
fn command_is_written_before_it_is_carried_out_whether_the_agent_runs_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    record_command(&config, "camera.remove-damaged", "block 7", at(0)).unwrap();
    let journal = CameraJournal::open(&config, at(1)).unwrap();
    record_command(&config, "camera.accept-log", "", at(2)).unwrap();
    assert_eq!(actions(&journal), ["camera.remove-damaged", "camera.start"]);
    journal.close(at(3));
    assert_eq!(actions(&journal)[2..], ["camera.accept-log", "camera.stop"]);
    assert_eq!(
        inbox_files(&super::folder(folder.path())),
        Vec::<PathBuf>::new()
    );
}

#[test]
fn room_is_bounded_and_a_flood_of_one_kind_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    for _ in 0..100 {
        journal.note(&CameraEvent::SpoolFull, at(0));
    }
    let text = "x".repeat(MAX_REASON);
    let events: Vec<Event> = (0..BATCH)
        .map(|_| {
            event("camera-17", "camera.reject", Outcome::Fail, at(0)).with_reason(text.clone())
        })
        .collect();
    let most = SEGMENTS as u64 * SEGMENT_BYTES;
    for _ in 0..(most / (BATCH * MAX_REASON) as u64 + 10) {
        assert!(append(&journal.shared, "camera-17", events.clone(), 1));
    }
    journal.close(at(1));
    let segments = fs::read_dir(super::folder(folder.path())).unwrap();
    let bytes: u64 = segments.map(|s| s.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= most + SEGMENT_BYTES, "{bytes}");
    assert!(journal.shared.journal().first_seq().unwrap() > 1);
    let full = actions(&journal)
        .iter()
        .filter(|a| *a == "camera.spool-full")
        .count();
    assert!(full <= usize::try_from(REPEATS.recorded).unwrap());
}

#[test]
fn damaged_journal_is_set_aside_and_an_unreadable_one_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    CameraJournal::open(&config, at(0)).unwrap().close(at(0));
    let segment = super::folder(folder.path()).join("00000000000000000001.journal");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let journal = CameraJournal::open(&config, at(1)).unwrap();
    assert_eq!(actions(&journal)[0], "camera.journal-damaged");
    assert!(folder.path().join("journal-damaged-1").is_dir());
    drop(journal);
    fs::remove_dir_all(super::folder(folder.path())).unwrap();
    fs::write(super::folder(folder.path()), "no folder").unwrap();
    assert!(CameraJournal::open(&config, at(2)).is_err());
}
