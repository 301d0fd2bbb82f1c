//! Removal of sealed sources: only as they were sealed, and never twice.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

use super::*;

#[derive(Deserialize)]
struct Only {
    watch: Watch,
}

struct Case {
    temp: tempfile::TempDir,
    watch: Watch,
    left: Left,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let text = format!(
            "[watch]\nfolder = {:?}\nrejected = {:?}\n",
            temp.path().join("watch"),
            temp.path().join("rejected"),
        );
        let Only { watch } = toml::from_str(&text).unwrap();
        fs::create_dir(&watch.folder).unwrap();
        let left = Left::empty(temp.path().join("sealing.json"));
        Self { temp, watch, left }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.watch.folder.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn sealed(&self, name: &str) -> Source {
        let opened = Opened::open(&self.watch.folder, name).unwrap();
        Source {
            sha256: Some(opened.hash().unwrap()),
            ..opened.source
        }
    }

    /// Writes a pair, and notes it as block 5.
    fn pair(&mut self) {
        self.write("a.jpg", b"picture");
        self.write("a.json", b"facts");
        let files = [self.sealed("a.json"), self.sealed("a.jpg")];
        self.left.add(5, &files);
    }

    /// Takes what is remembered through the journal, as a restart does.
    fn restart(&mut self) {
        for group in &mut self.left.groups {
            let text = serde_json::to_vec(&group).unwrap();
            *group = serde_json::from_slice(&text).unwrap();
            group.recovered = true;
        }
    }

    fn remove(&mut self) {
        self.left.remove(&self.watch);
    }

    fn names(&self) -> Vec<String> {
        let items = fs::read_dir(&self.watch.folder).unwrap();
        let name = |item: io::Result<fs::DirEntry>| item.unwrap().file_name();
        let mut names: Vec<String> = items
            .map(|item| name(item).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn sealed_files_are_removed_also_after_a_restart() {
    for restarted in [false, true] {
        let mut case = Case::new();
        case.pair();
        if restarted {
            case.restart();
        }
        case.remove();
        assert!(case.left.is_empty() && case.names().is_empty());
        assert_eq!(case.left.link_due(), None);
    }
}

#[test]
fn file_that_changed_after_sealing_is_put_back_with_its_group() {
    for change in ["append", "same size", "truncate"] {
        let mut case = Case::new();
        case.pair();
        let mut options = OpenOptions::new();
        match change {
            "append" => options.append(true),
            "truncate" => options.write(true).truncate(true),
            _ => options.write(true),
        };
        let mut file = options.open(case.path("a.jpg")).unwrap();
        if change != "truncate" {
            file.write_all(b"p1cture").unwrap();
        }
        drop(file);
        case.remove();
        assert_eq!(case.names(), ["a.jpg", "a.json"], "{change}");
        assert!(case.left.is_empty());
        // Block 9 has it again; the notice names both.
        case.left.number("a", 9);
        assert_eq!(case.left.link_due(), Some((5, 9)));
        case.left.forget_numbers(9);
        assert_eq!(case.left.link_due(), None, "block 9 was never committed");
        case.left.number("a", 9);
        case.left.forget_numbers(10);
        case.left.linked(9);
        assert_eq!(case.left.link_due(), None);
    }
}

#[test]
fn file_with_a_writer_stays_until_the_writer_is_done() {
    let mut case = Case::new();
    case.pair();
    let writer = OpenOptions::new().append(true).open(case.path("a.jpg"));
    let mut writer = writer.unwrap();
    case.remove();
    assert_eq!(case.names(), ["a.jpg", "a.json"]);
    assert!(
        case.left.holds(&case.sealed("a.jpg")),
        "not sealed as it is"
    );
    writer.write_all(b" goes on").unwrap();
    case.remove();
    assert!(!case.left.is_empty());
    drop(writer);
    case.remove();
    assert!(case.left.is_empty());
    assert_eq!(fs::read(case.path("a.jpg")).unwrap(), b"picture goes on");
    case.left.number("a", 6);
    assert_eq!(case.left.link_due(), Some((5, 6)));
}

#[test]
fn writer_that_changed_nothing_causes_no_second_block() {
    let mut case = Case::new();
    case.pair();
    let writer = OpenOptions::new().append(true).open(case.path("a.jpg"));
    case.remove();
    drop(writer);
    case.remove();
    assert!(case.left.is_empty() && case.names().is_empty());
}

#[test]
fn new_files_with_the_old_names_are_kept() {
    for restarted in [false, true] {
        let mut case = Case::new();
        case.pair();
        if restarted {
            case.restart();
        }
        // The old inodes stay in use, so that the new files have others.
        let old = File::open(case.path("a.jpg")).unwrap();
        let new = case.temp.path().join("new");
        fs::write(&new, b"another picture").unwrap();
        fs::rename(&new, case.path("a.jpg")).unwrap();
        case.remove();
        drop(old);
        assert_eq!(case.names(), ["a.jpg"]);
        assert_eq!(fs::read(case.path("a.jpg")).unwrap(), b"another picture");
        assert!(case.left.is_empty());
        case.left.number("a", 6);
        assert_eq!(case.left.link_due(), None, "it is no later version");
    }
}

#[test]
fn facts_of_a_new_picture_that_equal_the_old_ones_survive_a_restart() {
    let mut case = Case::new();
    case.pair();
    // The block's sources were removed, which the journal does not say; then a camera wrote the same facts again.
    fs::remove_file(case.path("a.jpg")).unwrap();
    fs::remove_file(case.path("a.json")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    case.write("a.json", b"facts");
    case.write("a.jpg", b"another picture");
    case.restart();
    case.remove();
    assert_eq!(case.names(), ["a.jpg", "a.json"]);
}

#[test]
fn crash_between_renaming_and_removal_loses_nothing() {
    // After none, one or both of the renames.
    for renamed in 0..=2 {
        for changed in [false, true] {
            let mut case = Case::new();
            case.pair();
            for name in ["a.json", "a.jpg"].iter().take(renamed) {
                let hidden = case.left.groups[0].hidden_name(name);
                fs::rename(case.path(name), case.path(&hidden)).unwrap();
                if changed {
                    fs::write(case.path(&hidden), b"more content").unwrap();
                }
            }
            case.restart();
            case.left.put_back_strays(&case.watch.folder).unwrap();
            case.remove();
            let expected: &[&str] = match changed && renamed > 0 {
                true => &["a.jpg", "a.json"],
                false => &[],
            };
            assert_eq!(case.names(), expected, "{renamed} {changed}");
        }
    }
}

#[test]
fn new_file_under_the_name_of_one_renamed_away_is_not_overwritten() {
    let mut case = Case::new();
    case.pair();
    let hidden = case.left.groups[0].hidden_name("a.jpg");
    fs::rename(case.path("a.jpg"), case.path(&hidden)).unwrap();
    fs::write(case.path(&hidden), b"a late writer's").unwrap();
    case.write("a.jpg", b"a new picture");
    case.restart();
    case.remove();
    assert_eq!(case.names(), ["1-a.jpg", "1-a.json", "a.jpg"]);
    assert_eq!(fs::read(case.path("a.jpg")).unwrap(), b"a new picture");
}

#[test]
fn hidden_file_that_no_block_holds_is_given_a_name() {
    let case = Case::new();
    case.write(".cordon-7.jpg", b"picture");
    case.write(".cordon-7.json", b"facts");
    case.write("recovered-7.json", b"other facts");
    case.left.put_back_strays(&case.watch.folder).unwrap();
    let names = case.names();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with('.')));
    assert_eq!(
        fs::read(case.path("recovered-7.json")).unwrap(),
        b"other facts"
    );
}

#[test]
fn source_that_cannot_be_removed_is_remembered_until_it_can() {
    let mut case = Case::new();
    case.watch.keep_sealed = Some(case.temp.path().join("kept"));
    case.pair();
    // The folder for sealed sources is not there.
    case.remove();
    assert!(case.left.holds(&case.sealed("a.jpg")));
    fs::create_dir(case.temp.path().join("kept")).unwrap();
    case.remove();
    assert!(case.left.is_empty() && case.names().is_empty());
    assert!(case.temp.path().join("kept/a.json").exists());
}

#[test]
fn sources_of_an_unmounted_folder_are_remembered() {
    let mut case = Case::new();
    case.pair();
    let away = case.temp.path().join("unmounted");
    fs::rename(&case.watch.folder, &away).unwrap();
    fs::create_dir(&case.watch.folder).unwrap();
    // As if the empty folder below were on another file system.
    let text = serde_json::to_string(&case.left.groups).unwrap();
    let device = format!("\"device\":{}", case.sealed_device(&away));
    let moved = text.replace(&device, "\"device\":999999");
    assert_ne!(text, moved);
    let groups: Vec<Sealed> = serde_json::from_str(&moved).unwrap();
    let before = std::mem::replace(&mut case.left.groups, groups);
    case.remove();
    assert!(!case.left.is_empty());
    fs::remove_dir(&case.watch.folder).unwrap();
    fs::rename(&away, &case.watch.folder).unwrap();
    case.left.groups = before;
    case.remove();
    assert!(case.left.is_empty() && case.names().is_empty());
}

impl Case {
    fn sealed_device(&self, folder: &Path) -> u64 {
        Opened::open(folder, "a.jpg")
            .unwrap()
            .source
            .device()
            .unwrap()
    }
}

#[test]
fn record_of_an_earlier_version_is_read() {
    let mut case = Case::new();
    case.write("a.jpg", b"picture");
    case.write("b.jpg", b"picture");
    let modified = |name| case.sealed(name).modified;
    let text = format!(
        r#"{{"sequence":3,"files":[{{"name":"a.jpg","size":7,"modified":{}}}],
            "left":[{{"name":"b.jpg","size":7,"modified":{}}},{{"name":"c.jpg","size":7,"modified":1}}]}}"#,
        modified("a.jpg"),
        modified("b.jpg"),
    );
    let journal: Journal = serde_json::from_str(&text).unwrap();
    case.left.add(3, &journal.files);
    for file in journal.left {
        case.left.add(0, &[file]);
    }
    case.restart();
    case.write("c.jpg", b"another one");
    assert!(case.left.holds(&case.sealed("b.jpg")));
    case.remove();
    assert_eq!(case.names(), ["c.jpg"]);
}
