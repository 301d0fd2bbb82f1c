//! What people's pages cost while the index grows.
//!
//! The rows are written into the index as the intake would, with the search entries made at the next
//! start. Half of them are not the asker's to see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::Principal;
use audit::{Actor, AuditSink as _, Event, MemorySink, Outcome};
use centre::{Filter, Review, Units};
use evidence::digest::Sha256Digest;
use evidence::manifest::{self, Manifest};
use pki::clearance::Clearance;
use store::{Sql, sqlx};
use time::OffsetDateTime;

use crate::durability::SCHEMA;
use crate::site::{Options, Site};
use crate::world::World;

/// Twelve audiences, of which the asker sees three; each tenth row is decided. Plates differ, places
/// are few, the newest row is a minute old and the others a second apart.
const FILL: &str = "
INSERT INTO audiences (id, unit, classification)
    SELECT value, CASE value % 3 WHEN 0 THEN 'traffic' WHEN 1 THEN 'harbour' ELSE 'border' END,
        value / 3 FROM generate;
INSERT INTO violation_groups (id, audience, state)
    SELECT id, id, 'open' FROM audiences;
INSERT INTO blocks SELECT hash, device, 1, at, 'accepted', '', number, manifest_hash, i, x'00', NULL
    FROM rows;
INSERT INTO chain SELECT device, number, manifest_hash, hash, hash FROM rows ORDER BY device, number;
INSERT INTO violations
    SELECT at * 32768, 'v-' || substr(hash, 1, 16), hash, device,
        i % 12 + 1, number, at, 'speeding',
        format('A%d km %d', i % 7, i % 41), 0, 0, 100 + i % 90, 90, format('KR %07d', i * 7919 % 9999991),
        1, manifest FROM rows ORDER BY at;
INSERT INTO custody SELECT 'v-' || substr(hash, 1, 16), at, device, 'evidence.receive', i, 1 FROM rows;
INSERT INTO custody SELECT 'v-' || substr(hash, 1, 16), at, 'U', 'evidence.decide', ROWS + i / 10, 2
    FROM rows WHERE i % 10 = 0;
INSERT INTO reviews SELECT 'v-' || substr(hash, 1, 16), at, 'u', 'U', 'rejected', 'x' FROM rows
    WHERE i % 10 = 0 ORDER BY i;
DROP TABLE rows;
DELETE FROM violation_text_version;
";

/// The unit of camera `n`, of which there are as many as [`CAMERAS`].
const UNITS: [&str; 3] = ["harbour", "border", "traffic"];
const CAMERAS: usize = 51;

fn device(i: usize) -> String {
    format!("camera-{}", i % CAMERAS)
}

fn manifest(i: usize, number: u64, at: OffsetDateTime) -> Vec<u8> {
    let manifest = Manifest {
        schema: manifest::SCHEMA.to_owned(),
        kind: manifest::Kind::Violation,
        device: device(i),
        sequence: number,
        previous: match number {
            1 => Sha256Digest::ZERO,
            _ => Sha256Digest::of(b"x"),
        },
        captured_at: at,
        sealed_at: at.replace_nanosecond(0).unwrap() + time::Duration::SECOND,
        classification: Clearance::try_from(((i % 12 + 1) / 3) as u8).unwrap(),
        violation: Some(manifest::Violation {
            violation_type: "speeding".to_owned(),
            place: manifest::Place {
                name: format!("A{} km {}", i % 7, i % 41),
                latitude_microdeg: 0,
                longitude_microdeg: 0,
            },
            speed_kmh: Some(100 + i as u32 % 90),
            limit_kmh: Some(90),
            plate: Some(format!("KR {:07}", i * 7919 % 9_999_991)),
            lane: Some(1),
            device_serial: None,
        }),
        media: Vec::new(),
        notice: None,
    };
    manifest.to_canonical().unwrap()
}

/// The log that fits the index.
fn events(rows: &[Row]) -> Vec<Event> {
    let at = |row: &Row| {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(row.at) * 1_000_000).unwrap()
    };
    let receive = |(i, row): (usize, &Row)| {
        let (actor, resource) = (Actor::device(device(i)), format!("block/{}", row.hash));
        Event::new(at(row), actor, "evidence.receive", resource, Outcome::Ok)
            .with_detail("manifest_sha256", row.manifest_hash.clone())
            .with_detail("size", 1)
            .with_detail("custody_count", 1)
    };
    let decide = |(i, row): (usize, &Row)| {
        let resource = format!("violation/v-{}", &row.hash[..16]);
        Event::new(
            at(row),
            Actor::user("u", "U"),
            "evidence.decide",
            resource,
            Outcome::Ok,
        )
        .with_reason("x")
        .with_detail("decision", "rejected")
        .with_detail("custody_count", 2)
        .with_detail("custody_previous", i)
    };
    let received = rows.iter().enumerate().map(receive);
    let decided = rows.iter().enumerate().filter(|(i, _)| i % 10 == 0);
    received.chain(decided.map(decide)).collect()
}

#[derive(serde::Serialize)]
struct Row {
    hash: String,
    number: u64,
    at: i64,
    manifest: String,
    manifest_hash: String,
}

fn rows(count: usize) -> Vec<Row> {
    let now = OffsetDateTime::now_utc().unix_timestamp() * 1000;
    let row = |i: usize| {
        let turn = (i / CAMERAS) as u64;
        let number = turn + 1 + u64::from(turn > 3 && i % CAMERAS == 7);
        let at = now - 60_000 - i as i64 * 1000;
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000);
        let manifest = manifest(i, number, time.unwrap());
        Row {
            hash: format!("{i:016x}{i:048}"),
            number,
            at,
            manifest_hash: Sha256Digest::of(&manifest).to_string(),
            manifest: String::from_utf8(manifest).unwrap(),
        }
    };
    (0..count).map(row).collect()
}

async fn filled(world: Arc<World>, count: usize) -> Site {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let site = Site::open(world.clone(), folder.clone(), Options::default()).await;
    drop(site);
    let sql = Sql::open(&folder.path().join("centre.sqlite"), SCHEMA)
        .await
        .unwrap();
    let numbers = (1..=12).map(|n| format!("SELECT {n} AS value"));
    let numbers = numbers.collect::<Vec<_>>().join(" UNION ALL ");
    let fill = FILL
        .replace("FROM generate", &format!("FROM ({numbers})"))
        .replace("ROWS", &count.to_string());
    let rows = rows(count);
    let mut tx = sql.write().await.unwrap();
    sqlx::query("CREATE TEMP TABLE rows (i, hash, device, number, at, manifest, manifest_hash)")
        .execute(&mut *tx)
        .await
        .unwrap();
    for (part, rows) in rows.chunks(1000).enumerate() {
        sqlx::query(
            "INSERT INTO rows SELECT ?1 + key, value ->> 'hash', format('camera-%d', (?1 + key) % ?2),
                value ->> 'number', value ->> 'at', value ->> 'manifest', value ->> 'manifest_hash'
             FROM json_each(?3) ORDER BY key",
        )
        .bind(part as i64 * 1000)
        .bind(CAMERAS as i64)
        .bind(serde_json::to_string(rows).unwrap())
        .execute(&mut *tx)
        .await
        .unwrap();
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill))
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    sql.close().await;
    let sink = MemorySink::default();
    sink.record_all(events(&rows)).unwrap();
    // There is no archive.
    let (now, who) = (OffsetDateTime::now_utc(), Actor::service("cordon"));
    let mut loss = Event::new(now, who, "evidence.accept-loss", "archive", Outcome::Ok)
        .with_detail("missing", count);
    "site".clone_into(&mut loss.role);
    sink.record(loss).unwrap();
    let unit = |n: usize| (device(n), UNITS[n % 3].to_owned());
    let options = Options {
        audit: Some(Arc::new(sink)),
        units: Units {
            default: "traffic".into(),
            by_device: (0..CAMERAS).map(unit).collect(),
        },
        ..Options::default()
    };
    Site::open(world, folder, options).await
}

type Question = (&'static str, Filter);

fn questions() -> Vec<Question> {
    let base = Filter::default;
    let text = str::to_owned;
    let day = |days| Some(OffsetDateTime::now_utc() - time::Duration::days(days));
    vec![
        ("list", base()),
        (
            "plate",
            Filter {
                plate: text("0000"),
                ..base()
            },
        ),
        (
            "plate of one",
            Filter {
                plate: text("KR 0007919"),
                ..base()
            },
        ),
        (
            "plate of nobody",
            Filter {
                plate: text("ZZ 9999"),
                ..base()
            },
        ),
        (
            "short plate",
            Filter {
                plate: text("zz"),
                ..base()
            },
        ),
        (
            "place",
            Filter {
                place: text("km 40"),
                ..base()
            },
        ),
        (
            "place of nobody",
            Filter {
                place: text("A9 km"),
                ..base()
            },
        ),
        (
            "device",
            Filter {
                device: text("camera-7"),
                ..base()
            },
        ),
        (
            "device of nobody",
            Filter {
                device: text("camera-x"),
                ..base()
            },
        ),
        (
            "state",
            Filter {
                state: text("rejected"),
                ..base()
            },
        ),
        (
            "state of nobody",
            Filter {
                state: text("accepted"),
                ..base()
            },
        ),
        (
            "days",
            Filter {
                from: day(3),
                to: day(2),
                ..base()
            },
        ),
        (
            "speed",
            Filter {
                min_speed: Some(180),
                ..base()
            },
        ),
        (
            "speed of nobody",
            Filter {
                min_speed: Some(500),
                ..base()
            },
        ),
        (
            "deep in the list",
            Filter {
                before: Some(centre::Cursor(
                    (OffsetDateTime::now_utc().unix_timestamp() - 900) * 1000 * 32768,
                )),
                ..base()
            },
        ),
    ]
}

/// A page as a person asks for it.
enum Page {
    List(Filter),
    Overview,
    Cameras,
    Detail(String),
}

/// A filled site and who asks it.
struct Asked {
    site: Site,
    who: Principal,
    rows: usize,
    pages: Vec<(&'static str, Page)>,
    /// The shortest so far, for each page.
    costs: Vec<Duration>,
}

impl Asked {
    async fn new(world: Arc<World>, rows: usize) -> Self {
        let site = filled(world, rows).await;
        let who = site.world.reviewer(Clearance::Secret);
        let review = site.centre.review();
        let now = OffsetDateTime::now_utc();
        let overview = review.overview(&who, now).await.unwrap();
        assert!(overview.open > rows as u64 / 6, "{overview:?}");
        assert_eq!((overview.cameras, overview.cameras_with_gaps), (51, 1));
        let newest = review.list(&who, &Filter::default()).await.unwrap();
        let lists = questions().into_iter();
        let mut pages: Vec<_> = lists
            .map(|(name, filter)| (name, Page::List(filter)))
            .collect();
        pages.push(("overview", Page::Overview));
        pages.push(("cameras", Page::Cameras));
        pages.push(("detail", Page::Detail(newest.rows[0].id.clone())));
        let costs = vec![Duration::MAX; pages.len()];
        let mut asked = Self {
            site,
            who,
            rows,
            pages,
            costs,
        };
        for page in 0..asked.pages.len() {
            asked.measure(page).await;
        }
        asked
    }

    /// Keeps the shortest of several runs: what else runs on the machine lengthens some, not all.
    async fn measure(&mut self, page: usize) {
        let review: &Review = self.site.centre.review();
        for _ in 0..8 {
            let start = Instant::now();
            match &self.pages[page].1 {
                Page::List(filter) => drop(review.list(&self.who, filter).await.unwrap()),
                Page::Overview => {
                    review
                        .overview(&self.who, OffsetDateTime::now_utc())
                        .await
                        .unwrap();
                }
                Page::Cameras => drop(review.cameras(&self.who).await.unwrap()),
                Page::Detail(id) => drop(review.get(&self.who, id).await.unwrap()),
            }
            self.costs[page] = self.costs[page].min(start.elapsed());
        }
    }

    #[expect(
        clippy::print_stdout,
        reason = "the figures are what a failed run is read for"
    )]
    fn print(&self) {
        for ((name, _), cost) in self.pages.iter().zip(&self.costs) {
            let millis = cost.as_secs_f64() * 1000.0;
            println!("{:>8} {name:<18} {millis:>7.2} ms", self.rows);
        }
    }
}

/// Rounds in which a page that seems to have grown is asked for again at both sizes. Where the machine is full with
/// other work even the shortest of few runs may be ten times what the page costs.
const ROUNDS: usize = 100;

async fn stays_flat(sizes: &[usize]) {
    let world = Arc::new(World::new());
    let mut small = Asked::new(world.clone(), sizes[0]).await;
    small.print();
    let data = small.site.folder.path();
    assert_eq!(centre::check::index(data).await.unwrap(), vec![]);
    for &rows in &sizes[1..] {
        let mut large = Asked::new(world.clone(), rows).await;
        for page in 0..large.pages.len() {
            // A tree has another level, and the machine is shared; ten times is far beyond this.
            let grew = |small: &Asked, large: &Asked| {
                large.costs[page] > small.costs[page] * 3 + Duration::from_millis(5)
            };
            for _ in 0..ROUNDS {
                if !grew(&small, &large) {
                    break;
                }
                small.measure(page).await;
                large.measure(page).await;
            }
            if grew(&small, &large) {
                large.print();
                let (name, before, now) =
                    (large.pages[page].0, small.costs[page], large.costs[page]);
                panic!("{name}: {before:?} became {now:?} at {rows} violations");
            }
        }
        large.print();
    }
}

#[tokio::test]
async fn pages_cost_the_same_at_ten_times_the_violations() {
    stays_flat(&[6_000, 60_000]).await;
}

#[tokio::test]
#[ignore = "minutes: fills an index with a million violations; `scripts/test --full` runs it"]
async fn pages_cost_the_same_at_a_million_violations() {
    stays_flat(&[10_000, 100_000, 1_000_000]).await;
}
