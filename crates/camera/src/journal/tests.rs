//! The journal on its own: what stands in it after starts, commands, jumps, a full disk of events, damage.

use audit::{Leaf, Outcome};

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

fn event(device: &str, action: &str, outcome: Outcome, now: OffsetDateTime) -> Event {
    let object = format!("camera/{device}");
    Event::new(now, Actor::device(device), action, object, outcome)
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
    record_command(&config, Command::RemoveDamaged, "block 7", at(0)).unwrap();
    let journal = CameraJournal::open(&config, at(1)).unwrap();
    record_command(&config, Command::AcceptLog, "", at(2)).unwrap();
    assert_eq!(actions(&journal), ["camera.remove-damaged", "camera.start"]);
    journal.close(at(3));
    assert_eq!(actions(&journal)[2..], ["camera.accept-log", "camera.stop"]);
    assert_eq!(inbox_files(&folder), 0);
}

fn inbox_files(folder: &tempfile::TempDir) -> usize {
    let inbox = super::folder(folder.path()).join("commands");
    fs::read_dir(inbox).unwrap().count()
}

#[test]
fn file_that_is_no_command_is_marked_and_the_commands_behind_it_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    CameraJournal::open(&config, at(0)).unwrap().close(at(0));
    let inbox = super::folder(folder.path()).join("commands");
    fs::create_dir_all(&inbox).unwrap();
    let other = event("camera-18", "camera.accept-log", Outcome::Ok, at(0));
    let other = other.to_canonical().unwrap();
    let large = vec![b'x'; 2 * audit::MAX_EVENT_BYTES];
    for n in 0..BATCH {
        let bad = [b"a\n\xff".as_slice(), &other, &large][n % 3];
        fs::write(inbox.join(format!("{n:020}.json")), bad).unwrap();
    }
    // One that cannot be read stays and keeps nothing waiting.
    fs::create_dir(inbox.join("0.json")).unwrap();
    let good = event("camera-17", "camera.accept-log", Outcome::Ok, at(0));
    fs::write(inbox.join("9.json"), good.to_canonical().unwrap()).unwrap();
    let first = Inbox::read(&super::folder(folder.path()), "camera-17");
    assert!(
        first
            .events
            .iter()
            .all(|e| e.action == audit::JOURNAL_REFUSED)
    );
    assert_eq!(first.events.len(), BATCH);
    assert_eq!(first.events[0].details["content"], r"a\u{a}\x{ff}");
    assert_eq!(first.events[0].details["file"], "00000000000000000000.json");
    first.remove();
    let second = Inbox::read(&super::folder(folder.path()), "camera-17");
    assert_eq!(second.events, [good]);
    second.remove();
    assert_eq!(inbox_files(&folder), 1);
}

#[test]
fn command_that_comes_while_others_are_taken_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    let at_first = Inbox::read(&super::folder(folder.path()), "camera-17");
    record_command(&config, Command::AcceptLog, "", at(1)).unwrap();
    at_first.remove();
    journal.close(at(2));
    assert!(actions(&journal).contains(&"camera.accept-log".to_owned()));
}

#[test]
fn agent_starts_although_a_command_has_the_journal_for_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (command, _) = open(&super::folder(folder.path())).unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(command);
    });
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    ends.join().unwrap();
    // Another agent keeps it.
    assert!(CameraJournal::open(&config, at(0)).is_err());
    journal.close(at(0));
}

#[test]
fn event_that_does_not_fit_is_cut_and_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    let mut large = event("camera-17", "camera.reject", Outcome::Fail, at(0));
    large.reason = Some("\u{85}".repeat(100_000));
    assert!(append(&journal.shared, "camera-17", vec![large], 1));
    journal.note(&CameraEvent::SpoolFull, at(0));
    journal.close(at(0));
    assert!(actions(&journal).contains(&"camera.spool-full".to_owned()));
    let hostile = "a\nERROR\u{85}\u{202e}".to_owned();
    let rejected = CameraEvent::Rejected {
        name: hostile.clone(),
        reason: hostile,
    };
    let noted = told::told(&rejected, "camera-17", at(0)).unwrap();
    assert_eq!(noted.details["name"], r"a\u{a}ERROR\u{85}\u{202e}");
    assert!(noted.reason.is_some() && !noted.has_invisible_text());
}

#[test]
fn records_that_cannot_be_read_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    let text = "x".repeat(MAX_REASON);
    let full = || event("camera-17", "camera.spool-full", Outcome::Fail, at(0));
    let full = |_| full().with_reason(&*text);
    for _ in 0..20 {
        assert!(append(
            &journal.shared,
            "camera-17",
            (0..BATCH).map(full).collect(),
            1
        ));
    }
    let mut segments: Vec<u64> = fs::read_dir(&journal.shared.folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().path().file_stem()?.to_str()?.parse().ok())
        .collect();
    segments.sort_unstable();
    assert!(segments.len() > 3, "{segments:?}");
    let spoil = |first: u64| {
        let path = journal.shared.folder.join(format!("{first:020}.journal"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let read = |from| shipping::read_now(&journal.shared, "camera-17", from).unwrap();
    spoil(segments[1]);
    let before = read(segments[1] - 3).unwrap();
    assert_eq!(
        (before.first, before.last),
        (segments[1] - 3, segments[1] - 1)
    );
    assert_eq!(read(segments[1]).unwrap().first, segments[2]);
    // Damage at the end: the journal says so, and goes on in another segment.
    let last = *segments.last().unwrap();
    spoil(last);
    let newest = journal.shared.last.load(Ordering::Relaxed);
    let after = read(last).unwrap();
    assert_eq!((after.first, after.last), (newest + 1, newest + 1));
    assert_eq!(read(last).unwrap().last, newest + 1);
    let damaged = &events(&journal, newest + 1)[0];
    assert_eq!(damaged.action, "camera.journal-damaged");
    assert_eq!(damaged.details["missing_from"], last);
    assert_eq!(damaged.details["missing_to"], newest);
}

#[test]
fn stall_is_noted_from_its_first_contact_until_the_journal_moves() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let journal = CameraJournal::open(&config, at(0)).unwrap();
    let note = |why: Option<&str>, moved, day| {
        let why = why.map(str::to_owned);
        Stall::note(&journal.shared.folder, why, moved, at(day)).unwrap();
        stall(folder.path()).unwrap()
    };
    assert_eq!(note(None, false, 1), None);
    let first = note(Some("a"), false, 2).unwrap();
    assert_eq!((first.since, first.reason.as_str()), (at(2), "a"));
    let second = note(Some("b"), false, 3).unwrap();
    assert_eq!((second.since, second.reason.as_str()), (at(2), "b"));
    assert_eq!(note(Some("b"), true, 4).unwrap().since, at(4));
    assert_eq!(note(None, true, 5), None);
    fs::write(journal.shared.folder.join("stalled.json"), "x").unwrap();
    assert!(stall(folder.path()).is_err());
    assert_eq!(note(Some("c"), false, 6).unwrap().since, at(6));
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
