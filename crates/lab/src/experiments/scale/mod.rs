//! Slopes, not points: what a page, a picture, a tunnel, a film and an event cost while there are more of them.

mod events;
mod intake;
mod pages;
mod tunnels;

use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::host;
use crate::network::{IP, Network};
use crate::program::Program;
use crate::record::{Better, Figure};
use crate::session::{Plan, Rounds, Session};
use crate::tunnels::PING;
use crate::uploader::Original;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "scale",
    title: "Cost as numbers grow",
    question: "What do a page, a picture, a tunnel, a film and an event cost while a site has more and more of \
               them?",
    source: "our own; nothing published",
    needs: &[IP, PING, OPENSSL],
    wants: &[CURL, SQLITE],
    seconds: (60, 1200),
    run,
};

pub(super) const CURL: Program = Program {
    name: "curl",
    package: "curl",
    version: &["--version"],
};
pub(super) const SQLITE: Program = Program {
    name: "sqlite3",
    package: "sqlite3",
    version: &["--version"],
};

const PAGES: &str = "pages";
const PICTURES: &str = "pictures";
const TUNNEL_MEMORY: &str = "tunnel-memory";
const TUNNEL_CPU: &str = "tunnel-cpu";
const TUNNEL_TIME: &str = "tunnel-time";
const FILM_SITE: &str = "film-site";
const FILM_CAMERA: &str = "film-camera";
const FILM_MEMORY: &str = "film-memory";
const EVENT_RECORD: &str = "event-record";
const EVENT_PROOF: &str = "event-proof";

/// A figure that should be flat from some number on.
struct Flat {
    figure: &'static str,
    from: f64,
}

const FLAT: [Flat; 9] = [
    Flat::from(PAGES, 200.0),
    Flat::from(PICTURES, 1.0),
    // What is there once counts too much among few.
    Flat::from(TUNNEL_MEMORY, 50.0),
    Flat::from(TUNNEL_CPU, 50.0),
    Flat::from(FILM_SITE, 0.0),
    Flat::from(FILM_CAMERA, 0.0),
    Flat::from(FILM_MEMORY, 0.0),
    Flat::from(EVENT_RECORD, 10_000.0),
    Flat::from(EVENT_PROOF, 10_000.0),
];
/// Cost that grows as its number to this power at most is flat: caches that no longer hold everything, and trees that
/// get deeper, make so much of it. A walk through all of them would be 1.
const FLAT_POWER: f64 = 0.2;
/// The same where few requests and numbers that lie near each other tell less.
const QUICK_POWER: f64 = 0.5;

impl Flat {
    const fn from(figure: &'static str, from: f64) -> Self {
        Self { figure, from }
    }
}

enum Work {
    Page(&'static str),
    Pictures,
    Tunnels,
    Film,
    Events,
}

/// Numbers that are measured.
struct Sizes {
    violations: Vec<u32>,
    requests: u32,
    cameras: Vec<usize>,
    /// Pictures of all cameras together, and bytes of one.
    pictures: usize,
    picture: usize,
    tunnels: Vec<u32>,
    /// Films, in pictures of that size.
    films: Vec<usize>,
    events: Vec<u32>,
}

impl Sizes {
    fn quick() -> Self {
        Self {
            violations: vec![50, 200, 800],
            requests: 25,
            cameras: vec![1, 4, 24],
            pictures: 48,
            picture: 100_000,
            tunnels: vec![10, 50, 200],
            films: vec![500, 2000],
            events: vec![10_000, 30_000],
        }
    }

    fn full() -> Self {
        Self {
            violations: vec![200, 2000, 20_000],
            requests: 100,
            cameras: vec![1, 10, 100, 500],
            pictures: 500,
            picture: 500_000,
            tunnels: vec![1, 50, 500, 5000],
            films: vec![200, 800, 3200, 8000],
            events: vec![10_000, 100_000, 1_000_000, 10_000_000],
        }
    }

    /// Leaves out those for which this machine has not enough memory, and notes them as missing.
    fn fit(&mut self, session: &mut Session<'_>) {
        let room = host::room(&session.folder) / 10 * 9;
        let picture = self.picture as u64;
        let pictures = self.pictures as u64 * picture * intake::COPIES;
        let row = pages::VIOLATION_BYTES;
        // Sites with violations are there all the time.
        fit(session, room, "violations", &mut self.violations, |n| {
            u64::from(n) * row
        });
        let rows: u64 = self.violations.iter().map(|&n| u64::from(n) * row).sum();
        let room = room.saturating_sub(rows);
        fit(session, room, "cameras", &mut self.cameras, |n| {
            n as u64 * intake::AGENT_BYTES + pictures
        });
        // Each agent watches a folder, and other programs of the user have some too.
        let folders = host::watched_folders().saturating_sub(20);
        self.cameras.retain(|&count| {
            if count > folders {
                let reason = "the kernel watches too few folders for a user: raise fs.inotify.max_user_instances";
                session.missing(&format!("{count} cameras"), reason, None);
            }
            count <= folders
        });
        fit(session, room, "pictures in a film", &mut self.films, |n| {
            n as u64 * picture * intake::COPIES
        });
        fit(session, room, "events", &mut self.events, |n| {
            u64::from(n) * events::EVENT_BYTES
        });
    }
}

/// Leaves out the sizes that take more than `room` bytes.
fn fit<T: Copy + std::fmt::Display>(
    session: &mut Session<'_>,
    room: u64,
    what: &str,
    sizes: &mut Vec<T>,
    bytes: impl Fn(T) -> u64,
) {
    sizes.retain(|&size| {
        let needed = bytes(size);
        if needed > room {
            let [needed, room] = [needed, room].map(|bytes| bytes as f64 / 1e9);
            let reason = format!("they take {needed:.1} GB of memory, of which {room:.1} are free");
            session.missing(&format!("{size} {what}"), &reason, None);
        }
        needed <= room
    });
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let mut sizes = if session.quick {
        Sizes::quick()
    } else {
        Sizes::full()
    };
    session.parameter("requests for a page in a round", sizes.requests);
    session.parameter("pictures of all cameras together", sizes.pictures);
    session.parameter("bytes of a picture", sizes.picture);
    plan(session);
    sizes.fit(session);
    let folder = session.folder.clone();
    let network = Network::new()?;
    session.preparing("drawing");
    let original = Original::draw(&folder.join("drawn"), sizes.picture)?;
    let mut cases = Vec::new();
    let mut sites = Vec::new();
    if session.has("pages", &[CURL, SQLITE]) {
        let small = Original::draw(&folder.join("small"), pages::PICTURE)?;
        for &violations in &sizes.violations {
            session.preparing(&format!("a site with {violations} violations"));
            sites.push(pages::Filled::start(&network, &folder, &small, violations)?);
        }
        cases.extend(pages::PAGES.map(|page| (page.to_owned(), Work::Page(page))));
    }
    session.preparing("certificates of tunnels");
    let fleet = tunnels::Fleet::prepare(&network, &folder, &sizes.tunnels)?;
    for (name, work) in [
        ("picture", Work::Pictures),
        ("tunnel", Work::Tunnels),
        ("film", Work::Film),
        ("event", Work::Events),
    ] {
        cases.push((name.to_owned(), work));
    }
    let rounds = Rounds {
        count: session.pick(2, 3),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |work, round| match work {
        Work::Page(page) => sites
            .iter()
            .try_for_each(|site| site.page(page, sizes.requests, round)),
        Work::Pictures => intake::pictures(&network, &folder, &original, &sizes, round),
        Work::Tunnels => fleet.measure(&network, &folder, round),
        Work::Film => intake::films(&network, &folder, &original, &sizes, round),
        Work::Events => events::measure(&folder, &sizes.events, round),
    });
    for flat in &FLAT {
        if let Some(figure) = session.figure(flat.figure) {
            let bound = session.pick(QUICK_POWER, FLAT_POWER);
            for (text, holds) in slopes(&figure, flat.from, bound) {
                session.finding(text, Some(holds));
            }
        }
    }
    session.caveat(
        "Violations are rows that were written into the index beside the program, as its intake writes them; \
         all else came the way that it always comes.",
    );
    session.caveat(
        "All data are in memory: what a disk adds is not in it. Sizes for which this machine has not enough of it \
         are missing.",
    );
    Ok(())
}

fn plan(session: &mut Session<'_>) {
    for (id, title, unit, x) in [
        (
            PAGES,
            "Processor time of the site for a page",
            "ms",
            "violations",
        ),
        (
            PICTURES,
            "Processor time of the site for a picture",
            "ms",
            "cameras",
        ),
        (
            TUNNEL_MEMORY,
            "Memory of the gateway for a tunnel",
            "KiB",
            "tunnels",
        ),
        (
            TUNNEL_CPU,
            "Processor time of the gateway for a tunnel",
            "ms",
            "tunnels",
        ),
        (
            TUNNEL_TIME,
            "Time until packets cross all tunnels",
            "s",
            "tunnels",
        ),
        (
            FILM_SITE,
            "Processor time of the site for a film",
            "s/GB",
            "GB of the film",
        ),
        (
            FILM_CAMERA,
            "Processor time of the camera for a film",
            "s/GB",
            "GB of the film",
        ),
        (
            FILM_MEMORY,
            "Memory of the camera at most",
            "MiB",
            "GB of the film",
        ),
        (
            EVENT_RECORD,
            "Processor time to record an event",
            "µs",
            "events in the log",
        ),
        (
            EVENT_PROOF,
            "Processor time to verify an event offline",
            "µs",
            "events in the log",
        ),
    ] {
        session.plan(
            Plan::bars(id, title, unit, Better::Less)
                .over(x)
                .logarithmic(),
        );
    }
}

/// Describes the growth of each line of a figure from `from` on, and compares its power with `bound`.
fn slopes(figure: &Figure, from: f64, bound: f64) -> Vec<(String, bool)> {
    let mut cases: Vec<&str> = figure.rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let line = |case: &str| -> Option<(String, bool)> {
        let points = figure.rows.iter().filter(|row| row.case == case);
        let mut points = points
            .filter_map(|row| Some((row.x?, row.measured.as_ref()?.interval.median)))
            .filter(|(x, value)| *x >= from && *value > 0.0);
        let (first, last) = (points.next()?, points.next_back()?);
        let power = (last.1 / first.1).ln() / (last.0 / first.0).ln();
        let text = format!(
            "{} ({case}): from {} to {} {} by a factor of {:.2}, as their number to the power of {power:.2}; flat is at \
             most {bound}.",
            figure.title,
            crate::report::number(first.0),
            crate::report::number(last.0),
            figure.x_label.as_deref().unwrap_or_default(),
            last.1 / first.1,
        );
        Some((text, power <= bound))
    };
    cases.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Interval, Measured, Row};

    fn figure(values: &[(f64, f64)]) -> Figure {
        let row = |&(x, value): &(f64, f64)| Row {
            case: "list".to_owned(),
            x: Some(x),
            measured: Some(Measured {
                values: vec![value],
                interval: Interval {
                    median: value,
                    low: value,
                    high: value,
                },
            }),
            ratio: None,
            published: None,
        };
        Figure {
            id: PAGES.to_owned(),
            title: "Page".to_owned(),
            unit: "ms".to_owned(),
            better: Better::Less,
            x_label: Some("violations".to_owned()),
            logarithmic: true,
            base: None,
            rows: values.iter().map(row).collect(),
        }
    }

    #[test]
    fn a_walk_through_everything_is_not_flat() {
        let linear = figure(&[(1e3, 9.0), (1e4, 1.0), (1e5, 10.0), (1e6, 100.0)]);
        let found = slopes(&linear, 1e4, FLAT_POWER);
        assert_eq!(found.len(), 1);
        let (text, holds) = &found[0];
        assert!(!holds && text.contains("power of 1.00"), "{text}");
        let root = figure(&[(1e4, 1.0), (1e6, 10.0)]);
        assert!(!slopes(&root, 1e4, FLAT_POWER)[0].1);
    }

    #[test]
    fn deeper_trees_are_flat() {
        let deeper = figure(&[(1e3, 0.1), (1e4, 2.0), (1e6, 3.0)]);
        assert!(slopes(&deeper, 1e4, FLAT_POWER)[0].1);
        assert!(slopes(&figure(&[(1e4, 2.0)]), 1e4, FLAT_POWER).is_empty());
    }
}
