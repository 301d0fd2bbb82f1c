//! Setting aside and giving back.

use super::*;

struct Case {
    temp: tempfile::TempDir,
    watched: PathBuf,
    folder: PathBuf,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (watched, folder) = (temp.path().join("watch"), temp.path().join("rejected"));
        fs::create_dir(&watched).unwrap();
        fs::create_dir(&folder).unwrap();
        Self {
            temp,
            watched,
            folder,
        }
    }

    fn put(&self, name: &str) {
        fs::write(self.watched.join(name), name).unwrap();
    }

    fn reject(&self, reason: &str) -> io::Result<()> {
        set_aside(
            &self.watched,
            &self.folder,
            "a",
            &["a.jpg", "a.json"],
            reason,
        )
    }

    fn names(folder: &Path) -> Vec<String> {
        let items = fs::read_dir(folder).unwrap();
        let name = |item: io::Result<fs::DirEntry>| item.unwrap().file_name();
        let mut names: Vec<_> = items
            .map(|item| name(item).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn group_goes_there_with_its_reason_and_comes_back() {
    let case = Case::new();
    case.put("a.jpg");
    case.put("a.json");
    case.reject("no time").unwrap();
    let groups = list(&case.folder).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(
        (groups[0].name.as_str(), groups[0].reason.as_str()),
        ("a", "no time")
    );
    assert_eq!(groups[0].files, ["a.jpg", "a.json"]);
    assert!(groups[0].since.is_some());
    give_back(&case.folder, &case.watched, &groups[0]).unwrap();
    assert_eq!(Case::names(&case.watched), ["a.jpg", "a.json"]);
    assert!(Case::names(&case.folder).is_empty());
}

#[test]
fn equal_names_stay_together_and_replace_nothing() {
    let case = Case::new();
    for reason in ["first", "second"] {
        case.put("a.jpg");
        case.put("a.json");
        case.reject(reason).unwrap();
    }
    let groups = list(&case.folder).unwrap();
    let shown: Vec<_> = groups
        .iter()
        .map(|g| (g.name.as_str(), g.reason.as_str()))
        .collect();
    assert_eq!(shown, [("1-a", "second"), ("a", "first")]);
    // A new picture has the name by now.
    case.put("a.jpg");
    give_back(&case.folder, &case.watched, &groups[1]).unwrap();
    assert_eq!(Case::names(&case.watched), ["1-a.jpg", "1-a.json", "a.jpg"]);
}

#[test]
fn files_without_reason_count_and_a_reason_without_files_does_not() {
    let case = Case::new();
    fs::write(case.folder.join("a.jpg"), b"x").unwrap();
    fs::write(case.folder.join("b.reason.txt"), b"x").unwrap();
    fs::write(case.folder.join(".c.jpg"), b"x").unwrap();
    let groups = list(&case.folder).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(
        (groups[0].name.as_str(), groups[0].reason.as_str()),
        ("a", "")
    );
    assert_eq!(list(&case.temp.path().join("none")).unwrap(), []);
}

#[test]
fn group_that_cannot_be_moved_leaves_no_reason() {
    let case = Case::new();
    case.reject("gone").unwrap_err();
    assert!(Case::names(&case.folder).is_empty());
}

#[test]
fn summary_has_count_age_and_a_plain_reason() {
    let at = |seconds| Some(OffsetDateTime::from_unix_timestamp(seconds).unwrap());
    let group = |seconds, reason: String| SetAside {
        since: at(seconds),
        reason,
        ..SetAside::default()
    };
    let long = "\u{1b}[2K".to_owned() + &"\u{e9}".repeat(MAX_SUMMARY);
    let summary = Summary::of(&[
        group(20, "older".into()),
        group(10, "oldest".into()),
        group(30, long),
    ]);
    assert_eq!((summary.count, summary.since), (3, at(10)));
    assert!(summary.reason.starts_with("\\u{1b}[2K\u{e9}") && summary.reason.len() <= MAX_SUMMARY);
    assert_eq!(Summary::of(&[]), Summary::default());
    let secret = Summary::of(&[group(
        1,
        "type: string \"AB 123C\", expected `u32` here".into(),
    )]);
    assert_eq!(secret.reason, "type: string \"…\", expected `…` here");
    let temp = tempfile::tempdir().unwrap();
    assert_eq!(Summary::reported(temp.path()), Summary::default());
    summary.keep_reported(temp.path()).unwrap();
    assert_eq!(Summary::reported(temp.path()), summary);
}

#[test]
fn names_that_are_never_taken_are_told_with_what_is_wrong() {
    use std::os::unix::ffi::OsStrExt as _;
    let case = Case::new();
    case.put("a.jpg");
    case.put("readme.txt");
    fs::write(
        case.watched.join(std::ffi::OsStr::from_bytes(b"k\xe9.JPG")),
        b"x",
    )
    .unwrap();
    std::os::unix::fs::symlink("a.jpg", case.watched.join("b.jpg")).unwrap();
    let told = not_taken(&case.watched, |name| !name.ends_with(".txt")).unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("b.jpg: it is no regular file"));
    assert!(told[1].ends_with("not UTF-8, rename it"));
}
