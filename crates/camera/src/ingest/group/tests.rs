//! Completeness of files, by events, looks and writers.

use super::*;

const SETTLE: Duration = Duration::from_secs(2);

struct Case {
    temp: tempfile::TempDir,
    folder: Folder,
    start: Instant,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::new(temp.path(), SETTLE);
        Self {
            temp,
            folder,
            start: Instant::now(),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.temp.path().join(name), bytes).unwrap();
    }

    /// Looks so many seconds after the start.
    fn look(&mut self, seconds: u64) -> BTreeMap<String, Group> {
        let now = self.start + Duration::from_secs(seconds);
        self.folder.look(now).unwrap()
    }

    fn is_complete(&self, writers: Writers, seconds: u64) -> bool {
        let now = self.start + Duration::from_secs(seconds);
        self.folder.is_complete("a.jpg", writers, now)
    }
}

fn group(names: &[&str], settled: bool, age: Duration) -> Group {
    let mut group = Group {
        settled,
        age,
        ..Group::default()
    };
    for name in names {
        group.add(Source {
            name: (*name).into(),
            ..Source::default()
        });
    }
    group
}

#[test]
fn every_combination_has_its_verdict() {
    let wait = Duration::from_secs(30);
    let (young, old) = (Duration::from_secs(29), wait);
    let no_metadata = Verdict::Reject("no metadata file".to_owned());
    let no_picture = Verdict::Reject("no picture or film for the metadata file".to_owned());
    type Case<'a> = (&'a [&'a str], bool, Duration, Verdict);
    let cases: [Case<'_>; 9] = [
        (&["a.jpg", "a.json"], true, young, Verdict::Seal),
        (&["a.jpg", "a.mp4", "a.json"], true, young, Verdict::Seal),
        (&["a.jpg", "a.json"], false, old, Verdict::Wait),
        (&["a.jpg"], false, old, Verdict::Wait),
        (&["a.jpg"], true, young, Verdict::Wait),
        (&["a.jpg"], true, old, Verdict::SealByExif),
        (&["a.mp4"], true, old, no_metadata.clone()),
        (&["a.jpg", "a.png"], true, old, no_metadata),
        (&["a.json"], true, old, no_picture),
    ];
    for (files, settled, age, expected) in cases {
        assert_eq!(
            group(files, settled, age).verdict(wait),
            expected,
            "{files:?}"
        );
    }
}

#[test]
fn modification_times_decide_nothing() {
    for seconds in [0_u64, 4_000_000_000] {
        let mut case = Case::new();
        case.write("a.jpg", b"x");
        let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = std::fs::File::options()
            .append(true)
            .open(case.temp.path().join("a.jpg"))
            .unwrap();
        file.set_modified(at).unwrap();
        assert!(!case.look(0)["a"].settled);
        assert!(!case.look(1)["a"].settled);
        assert!(case.look(2)["a"].settled);
    }
}

#[test]
fn only_regular_files_with_known_endings_are_seen() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.write("a.txt", b"x");
    case.write(".hidden.jpg", b"x");
    std::fs::create_dir(case.temp.path().join("b.jpg")).unwrap();
    std::os::unix::fs::symlink("a.jpg", case.temp.path().join("c.jpg")).unwrap();
    assert_eq!(case.look(0).into_keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn closed_file_is_settled_at_once_and_changed_one_is_not() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.folder.note(FolderEvent::Created("a.jpg".into()));
    assert!(!case.look(0)["a"].settled);
    case.folder.note(FolderEvent::Closed("a.jpg".into()));
    assert!(case.look(0)["a"].settled);
    assert!(case.is_complete(Writers::Unknown, 0));
    case.write("a.jpg", b"longer");
    assert!(!case.look(1)["a"].settled, "changed and not closed");
    case.folder.note(FolderEvent::Closed("a.jpg".into()));
    assert!(case.look(1)["a"].settled);
    // A file that was removed and created again is another one.
    std::fs::remove_file(case.temp.path().join("a.jpg")).unwrap();
    case.write("a.jpg", b"longer");
    case.folder.note(FolderEvent::Created("a.jpg".into()));
    assert!(!case.look(1)["a"].settled);
}

#[test]
fn writer_keeps_a_file_incomplete_whatever_was_reported() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.folder.note(FolderEvent::Closed("a.jpg".into()));
    case.look(0);
    assert!(!case.is_complete(Writers::Some, 100_000));
    assert!(case.is_complete(Writers::None, 0));
}

#[test]
fn file_without_known_writers_needs_longer_quiet_unless_closed() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.look(0);
    assert!(!case.is_complete(Writers::Unknown, 59));
    assert!(case.is_complete(Writers::Unknown, 60));
    assert!(case.is_complete(Writers::None, 2));
    // A change begins it again.
    case.write("a.jpg", b"xy");
    case.look(60);
    assert!(!case.is_complete(Writers::Unknown, 119));
    // A local writer that created it has it open until it is closed, or silent for long.
    case.folder.note(FolderEvent::Created("a.jpg".into()));
    case.look(61);
    assert!(!case.is_complete(Writers::Unknown, 659));
    assert!(case.is_complete(Writers::Unknown, 660));
}

#[test]
fn lost_events_leave_files_to_looks() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.folder.note(FolderEvent::Closed("a.jpg".into()));
    assert!(case.look(0)["a"].settled);
    case.folder.note(FolderEvent::Lost);
    assert!(!case.look(1)["a"].settled);
    assert!(case.look(3)["a"].settled);
}

#[test]
fn wait_for_the_other_half_begins_when_the_first_is_complete() {
    let mut case = Case::new();
    case.write("a.jpg", b"x");
    case.folder.note(FolderEvent::Closed("a.jpg".into()));
    case.look(0);
    assert_eq!(case.look(20)["a"].age, Duration::from_secs(20));
    // A film of the group is written for an hour.
    case.write("a.mp4", b"x");
    assert!(!case.look(21)["a"].settled);
    case.folder
        .is_busy("a", case.start + Duration::from_secs(3_600));
    assert_eq!(case.look(3_601)["a"].age, Duration::from_secs(1));
}

#[test]
fn film_of_an_unknown_kind_is_set_aside_with_its_facts_by_name() {
    let mut case = Case::new();
    case.write("a.mov", b"film");
    assert!(case.look(0).is_empty(), "without facts it is none of ours");
    case.write("a.json", b"facts");
    case.look(0);
    let groups = case.look(2);
    let names: Vec<_> = groups["a"].files().map(|file| &file.name).collect();
    assert_eq!(names, ["a.json", "a.mov"]);
    let Verdict::Reject(reason) = groups["a"].verdict(Duration::ZERO) else {
        panic!("taken");
    };
    assert!(reason.contains("a.mov has another ending"), "{reason}");
    // Beside a picture it is left alone.
    case.write("a.jpg", b"picture");
    let groups = case.look(3);
    let names: Vec<_> = groups["a"].files().map(|file| &file.name).collect();
    assert_eq!(names, ["a.json", "a.jpg"]);
}
