//! Files that are not written in one go: what is closed arrives once, whole, whatever writers, clocks and crashes do.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use camera::{
    Agent, CameraEvent, Clock, Environment, NoEvents, SetAside, Status, give_back, list_set_aside,
};
use evidence::cms::RecipientKey;
use evidence::digest::Sha256Digest;
use evidence::manifest::{Manifest, Medium};
use evidence::open::Opener;
use time::OffsetDateTime;

use crate::stage::{PASSPHRASE, Stage, names, until};

/// The manifests of all blocks in the spool.
fn manifests(stage: &Stage) -> Vec<Manifest> {
    let key = RecipientKey::new(
        stage.recipient.key.clone(),
        stage.recipient.chain.leaf().clone(),
    );
    let opener = Opener::new(vec![key.unwrap()]);
    let folder = stage.path("spool/blocks");
    names(folder.clone())
        .into_iter()
        .map(|name| File::open(folder.join(name)).unwrap())
        .map(|block| opener.open(block).unwrap().manifest)
        .collect()
}

fn media(stage: &Stage) -> Vec<Medium> {
    let manifests = manifests(stage).into_iter();
    manifests.flat_map(|manifest| manifest.media).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_that_pauses_is_waited_for() {
    let stage = Stage::new(1);
    let running = stage.start().await;
    stage.picture("other", b"complete", 1);
    stage.picture("a", b"", 1);
    fs::remove_file(stage.path("watch/a.jpg")).unwrap();
    let mut file = File::create(stage.path("watch/a.jpg")).unwrap();
    file.write_all(b"first half, ").unwrap();
    // Longer than `settle_secs` and `pair_wait_secs` together.
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert_eq!(names(stage.path("watch")), ["a.jpg", "a.json"]);
    assert_eq!(running.metrics.snapshot().spooled, 1);
    file.write_all(b"second half").unwrap();
    drop(file);
    until("both pictures", || running.metrics.snapshot().spooled == 2).await;
    running.stop().await;
    let media = media(&stage);
    let whole = media.iter().find(|medium| medium.name == "a.jpg").unwrap();
    assert_eq!(
        whole.sha256,
        Sha256Digest::of(b"first half, second half"),
        "{whole:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_found_at_start_are_sealed_whatever_their_dates() {
    let stage = Stage::new(1);
    for (name, seconds) in [("future", 32_000_000_000_u64), ("past", 0)] {
        stage.picture(name, b"picture", 1);
        for ending in ["jpg", "json"] {
            let path = stage.path(&format!("watch/{name}.{ending}"));
            let file = OpenOptions::new().append(true).open(path).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(at).unwrap();
        }
    }
    // A writer that was there before the agent.
    stage.picture("open", b"half", 1);
    let open = OpenOptions::new()
        .append(true)
        .open(stage.path("watch/open.jpg"));
    let running = stage.start().await;
    until("two blocks", || running.metrics.snapshot().spooled == 2).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(names(stage.path("watch")), ["open.jpg", "open.json"]);
    drop(open);
    until("the third", || running.metrics.snapshot().spooled == 3).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_changed_after_sealing_is_sealed_again_and_linked() {
    let mut stage = Stage::new(1);
    stage.config.watch.keep_sealed = Some(stage.path("kept"));
    let running = stage.start().await;
    // Sources cannot be removed for a while, in which one of them changes.
    until("the folder", || fs::remove_dir(stage.path("kept")).is_ok()).await;
    stage.picture("a", b"picture", 1);
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    let file = OpenOptions::new()
        .append(true)
        .open(stage.path("watch/a.jpg"));
    file.unwrap().write_all(b" and more").unwrap();
    fs::create_dir(stage.path("kept")).unwrap();
    until("the link", || running.metrics.snapshot().spooled == 3).await;
    running.stop().await;
    assert_eq!(names(stage.path("kept")), ["a.jpg", "a.json"]);
    assert_eq!(media(&stage).len(), 2);
    let notices = manifests(&stage).into_iter().filter_map(|m| m.notice);
    let texts: Vec<String> = notices.filter_map(|notice| notice.text).collect();
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("block 2 has files of block 1 again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_that_is_replaced_is_watched_again() {
    let stage = Stage::new(1);
    let running = stage.start().await;
    stage.picture("a", b"picture", 1);
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    fs::rename(stage.path("watch"), stage.path("taken-out")).unwrap();
    fs::create_dir(stage.path("watch")).unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    // Far sooner than files are found by looks alone.
    let start = Instant::now();
    stage.picture("b", b"picture", 1);
    until("another block", || running.metrics.snapshot().spooled == 2).await;
    assert!(start.elapsed() < Duration::from_millis(1_900), "no events");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_of_before_2000_keeps_pictures_in_the_folder() {
    let mut stage = Stage::new(1);
    let wrong = Arc::new(AtomicUsize::new(1));
    let is_wrong = Arc::clone(&wrong);
    stage.clock = Clock::from_fn(move || match is_wrong.load(Ordering::SeqCst) {
        0 => OffsetDateTime::now_utc(),
        _ => OffsetDateTime::UNIX_EPOCH + time::Duration::minutes(1),
    });
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let snapshot = running.metrics.snapshot();
    assert_eq!((snapshot.spooled, snapshot.rejected), (0, 0));
    assert_eq!(names(stage.path("watch")), ["a.jpg", "a.json"]);
    wrong.store(0, Ordering::SeqCst);
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_aside_source_needs_attention_until_it_is_retried_and_sealed() {
    let stage = Stage::new(1);
    let now = OffsetDateTime::now_utc();
    let attention = || Status::read(&stage.config).unwrap().needs_attention(now);
    stage.picture("good", b"picture", 1);
    stage.picture("a", b"picture", 1);
    let facts = stage.path("watch/a.json");
    let right = fs::read(&facts).unwrap();
    fs::write(&facts, b"not facts").unwrap();
    let running = stage.start().await;
    let told = |count| move |event: &CameraEvent| matches!(event, CameraEvent::SetAside(summary) if summary.count == count);
    until("the report", || running.saw(told(1))).await;
    assert_eq!(running.metrics.snapshot().set_aside, 1);
    until("the good one", || running.metrics.snapshot().spooled == 1).await;
    let status = Status::read(&stage.config).unwrap();
    assert_eq!(status.set_aside.count, 1);
    assert!(status.set_aside.reason.contains("metadata file"));
    assert!(attention());
    // The cause is not mended: it is set aside again.
    let retry = |groups: Vec<SetAside>| {
        for group in groups {
            give_back(&stage.path("rejected"), &stage.path("watch"), &group).unwrap();
        }
    };
    let list = || list_set_aside(&stage.path("rejected")).unwrap();
    retry(list());
    until("a second refusal", || {
        running.metrics.snapshot().rejected == 2
    })
    .await;
    assert!(attention());
    fs::write(stage.path("rejected/a.json"), right).unwrap();
    retry(list());
    until("a block", || running.metrics.snapshot().spooled == 2).await;
    assert!(!attention());
    running.stop().await;
    // A restart tells the site that nothing is set aside any more, and a further one does not repeat it.
    let running = stage.start().await;
    until("the report", || running.saw(told(0))).await;
    running.stop().await;
    let running = stage.start().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!running.saw(told(0)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_with_colons_is_sealed_without_them() {
    let stage = Stage::new(1);
    stage.picture("2026-11-28T10:00:00", b"picture", 1);
    let running = stage.start().await;
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    until("the removal", || names(stage.path("watch")).is_empty()).await;
    running.stop().await;
    assert_eq!(media(&stage)[0].name, "2026-11-28T10-00-00.jpg");
}

#[tokio::test(flavor = "multi_thread")]
async fn name_that_is_never_taken_needs_attention() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new(1);
    let now = OffsetDateTime::now_utc();
    assert!(!Status::read(&stage.config).unwrap().needs_attention(now));
    let name = std::ffi::OsStr::from_bytes(b"kamera\xe9.jpg");
    fs::write(stage.path("watch").join(name), b"picture").unwrap();
    let status = Status::read(&stage.config).unwrap();
    assert_eq!(status.not_taken.len(), 1);
    assert!(status.needs_attention(now));
}

const AGENT: &str = "CORDON_TEST_AGENT";
const OFFSET: &str = "CORDON_TEST_CLOCK";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the agent's process in the test below, which kills it"]
async fn agent_process() {
    let config = fs::read(std::env::var_os(AGENT).unwrap()).unwrap();
    let offset: i64 = std::env::var(OFFSET).unwrap().parse().unwrap();
    let offset = time::Duration::seconds(offset);
    let start = Instant::now();
    let environment = Environment {
        passphrase: PASSPHRASE.clone(),
        events: Arc::new(NoEvents),
        // It jumps by the offset every second, and drifts.
        clock: Clock::from_fn(move || {
            let drift = time::Duration::try_from(start.elapsed() / 10).unwrap();
            let jumped = start.elapsed().as_secs() % 2 == 1;
            OffsetDateTime::now_utc() + drift + if jumped { offset } else { offset / 2 }
        }),
    };
    let config = serde_json::from_slice(&config).unwrap();
    let agent = Agent::prepare(config, environment).await.unwrap();
    agent.run(std::future::pending()).await.unwrap();
}

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pause(&mut self) {
        let most = if self.below(4) == 0 { 2_500 } else { 150 };
        std::thread::sleep(Duration::from_millis(self.below(most)));
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::try_from(self.below(100_000)).unwrap();
        (0..=len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// A camera's head that writes pictures in odd ways, and remembers what it closed.
struct Head {
    random: Random,
    watch: PathBuf,
    elsewhere: PathBuf,
    /// Contents of each picture, each time that no writer had it open any more.
    closed: BTreeMap<String, Vec<Sha256Digest>>,
}

impl Head {
    /// Writes in at most nine pieces, with a pause after each.
    fn pieces(&mut self, file: &mut File, bytes: &[u8]) {
        let len = bytes.len() / 9 + usize::try_from(1 + self.random.below(60_000)).unwrap();
        for piece in bytes.chunks(len) {
            file.write_all(piece).unwrap();
            self.random.pause();
        }
        // Dates of 1970 to 2106.
        let at = Duration::from_secs(self.random.below(u64::from(u32::MAX)));
        if self.random.below(2) == 0 {
            file.set_modified(SystemTime::UNIX_EPOCH + at).unwrap();
        }
    }

    fn facts(&mut self, name: &str) {
        let text = r#"{"captured_at":"2026-11-21T10:00:00Z","violation":{"type":"speeding",
            "place":{"name":"Example Street 1","latitude_microdeg":1,"longitude_microdeg":2}}}"#;
        let mut file = File::create(self.watch.join(format!("{name}.json"))).unwrap();
        self.pieces(&mut file, text.as_bytes());
    }

    fn picture(&mut self, name: &str) {
        let name = format!("{name}.jpg");
        let path = self.watch.join(&name);
        let mut content = self.random.bytes();
        let more = self.random.bytes();
        let mut versions = Vec::new();
        let append = |path: &Path| OpenOptions::new().append(true).open(path);
        match self.random.below(7) {
            0 => self.pieces(&mut File::create(&path).unwrap(), &content),
            1 | 2 => {
                // Written elsewhere, then moved or linked in.
                let other = self.elsewhere.join(&name);
                self.pieces(&mut File::create(&other).unwrap(), &content);
                if self.random.below(2) == 0 {
                    fs::rename(&other, &path).unwrap();
                } else {
                    fs::hard_link(&other, &path).unwrap();
                    self.random.pause();
                    fs::remove_file(&other).unwrap();
                }
            }
            3 => {
                // Two writers; the first closes before the second writes.
                let mut first = File::create(&path).unwrap();
                let mut second = append(&path).unwrap();
                self.pieces(&mut first, &content);
                drop(first);
                self.random.pause();
                self.pieces(&mut second, &more);
                content.extend(more);
            }
            4 => {
                let mut file = File::create(&path).unwrap();
                self.pieces(&mut file, &more);
                file.set_len(0).unwrap();
                self.random.pause();
                let mut file = append(&path).unwrap();
                self.pieces(&mut file, &content);
            }
            kind => {
                // Closed, and later changed, unless it was taken meanwhile.
                self.pieces(&mut File::create(&path).unwrap(), &content);
                versions.push(Sha256Digest::of(&content));
                self.random.pause();
                let again = match kind {
                    5 => append(&path),
                    _ => OpenOptions::new().write(true).open(&path),
                };
                match again {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotFound);
                        versions.clear();
                    }
                    Ok(mut file) if kind == 5 => {
                        self.pieces(&mut file, &more);
                        content.extend(more);
                    }
                    Ok(mut file) => {
                        let part = more.get(..content.len().min(more.len())).unwrap();
                        self.pieces(&mut file, part);
                        content.splice(..part.len(), part.iter().copied());
                    }
                }
            }
        }
        versions.push(Sha256Digest::of(&content));
        self.closed.insert(name, versions);
    }

    fn work(mut self, head: usize) -> BTreeMap<String, Vec<Sha256Digest>> {
        for number in 0..6 {
            let name = format!("{head}-{number}");
            if self.random.below(2) == 0 {
                self.facts(&name);
                self.picture(&name);
            } else {
                self.picture(&name);
                self.facts(&name);
            }
        }
        self.closed
    }
}

/// Starts an agent's process with a clock that is wrong by so many seconds.
fn spawn(config: &Path, offset: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["intake::agent_process", "--exact", "--ignored"])
        .env(AGENT, config)
        .env(OFFSET, offset.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Repeat a failure with `CORDON_TEST_SEED=N cargo test -p camera --test it every_closed_content`.
#[test]
#[expect(clippy::print_stdout, reason = "the seed repeats a failed run")]
fn every_closed_content_arrives_once_whatever_writers_clocks_and_kills() {
    let seed = std::env::var("CORDON_TEST_SEED").map(|seed| seed.parse().unwrap());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed: u64 = seed.unwrap_or_else(|_| now.unwrap().as_secs());
    println!("CORDON_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut stage = Stage::new(1);
    // Nothing is to be set aside: the other half always comes.
    stage.config.watch.pair_wait_secs = 3_600;
    let config = stage.path("config.json");
    fs::write(&config, serde_json::to_vec(&stage.config).unwrap()).unwrap();
    fs::create_dir(stage.path("elsewhere")).unwrap();
    let heads: Vec<_> = (0..4)
        .map(|number| {
            let head = Head {
                random: Random(random.next()),
                watch: stage.path("watch"),
                elsewhere: stage.path("elsewhere"),
                closed: BTreeMap::new(),
            };
            std::thread::spawn(move || head.work(number))
        })
        .collect();
    let start = Instant::now();
    // Also after the last writer has ended, so that sources are removed between crashes.
    let mut more = 3;
    while more > 0 {
        if heads.iter().all(|head| head.is_finished()) {
            more -= 1;
        }
        let days = [-20_400, -30, 0, 0, 40][usize::try_from(random.below(5)).unwrap()];
        let mut agent = spawn(&config, days * 86_400);
        std::thread::sleep(Duration::from_millis(300 + random.below(4_000)));
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(180));
    }
    let mut closed = BTreeMap::new();
    for head in heads {
        closed.extend(head.join().unwrap());
    }
    let mut agent = spawn(&config, 0);
    while fs::read_dir(stage.path("watch")).unwrap().next().is_some() {
        std::thread::sleep(Duration::from_millis(50));
        let left = names(stage.path("watch"));
        assert!(start.elapsed() < Duration::from_secs(240), "left: {left:?}");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(names(stage.path("rejected")), Vec::<String>::new());
    let mut sealed: BTreeMap<String, Vec<Sha256Digest>> = BTreeMap::new();
    for medium in media(&stage) {
        sealed.entry(medium.name).or_default().push(medium.sha256);
    }
    assert_eq!(sealed.len(), closed.len());
    for (name, versions) in &closed {
        let found = &sealed[name];
        let last = versions.last().unwrap();
        assert_eq!(found.iter().filter(|one| *one == last).count(), 1, "{name}");
        for one in found {
            assert!(versions.contains(one), "{name}: half of a picture");
            assert_eq!(found.iter().filter(|two| *two == one).count(), 1, "{name}");
        }
    }
}
