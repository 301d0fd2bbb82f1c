//! How many live cameras a tunnel carries: the more thorough test that the INDECT study left open.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::suites::AES_256_GCM;
use crate::LabError;
use crate::cameras::{Filmed, Filming, Viewed, Viewing};
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::film::{FFMPEG, FRAMES_PER_SECOND, Film};
use crate::network::{IP, Network, Side};
use crate::process::Usage;
use crate::record::Better;
use crate::session::{Plan, Rounds, Session};
use crate::tunnels::{
    Cordon, Identity, Kind, OPENVPN, OpenVpn, PING, Provider, Tunnel, WG, WIREGUARD, WireGuard,
    ourselves,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cctv",
    title: "Live cameras through a tunnel",
    question: "How many cameras can send live video through each tunnel before the first frame is late or \
               lost?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             section on Table III: the test with video that they left open; no values published",
    needs: &[IP, PING, FFMPEG],
    wants: &[OPENSSL, OPENVPN, WIREGUARD, WG],
    seconds: (110, 250),
    run,
};

/// Nominal Mbit/s of a camera, and the figure.
const RATES: [(u32, &str, &str); 3] = [
    (2, "cameras-2", "Cameras of 2 Mbit/s"),
    (4, "cameras-4", "Cameras of 4 Mbit/s"),
    (8, "cameras-8", "Cameras of 8 Mbit/s"),
];
const PLAIN: &str = "no tunnel";
/// A frame is late when its last byte arrives more than this after it was due to leave, in milliseconds.
const LATE_MS: u32 = 100;
/// No more than this is tried, in nominal Mbit/s of all cameras together.
const MOST: u32 = 16_384;
/// Start of the first search, in the same unit.
const BEGIN: u32 = 512;
const PORT: u16 = 8090;
const LIMIT: Duration = Duration::from_secs(60);

/// Fixed properties of all trials.
struct Trials<'a> {
    folder: &'a Path,
    /// Frames of each camera in a trial, and steps within a doubling of the number of cameras.
    frames: u32,
    steps: u32,
}

/// Result of a search.
struct Found {
    /// The most that went well.
    cameras: u32,
    /// Why it was no more.
    end: End,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// Frames were under way for too long.
    Tunnel,
    /// Frames left too late: the cameras did not get the processor.
    Sender,
    /// There was nothing more to try.
    Bound,
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    // A trial is long enough for an overload by a step of the search to pile up.
    let frames = session.pick(15, FRAMES_PER_SECOND);
    let steps = session.pick(4, 8);
    session.parameter("frames of a trial from each camera", frames);
    session.parameter("steps of the search within a doubling", steps);
    session.parameter("frames per second", FRAMES_PER_SECOND);
    session.parameter(
        "late",
        format!("the last byte arrives more than {LATE_MS} ms after the frame was due to leave the camera"),
    );
    session.parameter("most that is tried, Mbit/s of all cameras", MOST);
    session.resolution(2_f64.powf(1.0 / f64::from(steps)) - 1.0);
    let mut films = Vec::new();
    let folder = session.folder.clone();
    for (rate, id, title) in RATES {
        session.plan(Plan::bars(id, title, "cameras", Better::More).base(PLAIN));
        session.preparing(&format!("encoding {rate} Mbit/s"));
        let film = Film::encode(&folder, rate, 2)?;
        session.parameter(
            &format!("Mbit/s of a film of {rate} as encoded"),
            crate::report::number(film.rate),
        );
        films.push((rate, id, film));
    }
    let cases = tunnels(session)?;
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 3),
        warm_up: false,
    };
    let trials = Trials {
        folder: &folder,
        frames,
        steps,
    };
    // A search begins where the last one for the same ended, and has to find the border again.
    let known = RefCell::new(BTreeMap::new());
    let ends = RefCell::new(BTreeMap::new());
    session.rounds(rounds, &cases, |(name, kind), round| {
        let tunnel = kind.start(&network, &folder)?;
        let mut used = BTreeMap::new();
        for (rate, id, film) in &films {
            let place = (name.clone(), *rate);
            let hint = known.borrow().get(&place).copied();
            let hint = hint.or_else(|| Some(known.borrow().get(&(name.clone(), rate / 2))? / 2));
            let found = search(
                trials.steps,
                hint.unwrap_or(BEGIN / rate),
                MOST / rate,
                |cameras| trials.twice(&tunnel, film, cameras, &mut used),
            )?;
            round.put(id, f64::from(found.cameras));
            known
                .borrow_mut()
                .insert(place.clone(), found.cameras.max(1));
            ends.borrow_mut().insert(place, found.end);
        }
        for (process, usage) in used {
            round.used(process, usage);
        }
        tunnel.account(round);
        Ok(())
    });
    tell(session, &ends.into_inner());
    session.caveat(
        "H.264 in MPEG transport streams by HTTP, one connection for each camera, real encoder output with a \
         key frame each second; cameras begin at different places of the film and of the frame's time. A \
         trial in which a frame was late or lost is made again: only twice counts. The number is the most \
         that went well, in steps as stated, so the true one lies up to a step higher; ratios state that.",
    );
    session.caveat(
        "Cameras and viewer share the processors with both ends of the tunnel, one process each. Where they, \
         and not the tunnel, were what was too slow, a line above says so.",
    );
    Ok(())
}

/// Reports the limit that each case met in its last search.
fn tell(session: &mut Session<'_>, ends: &BTreeMap<(String, u32), End>) {
    for (end, what) in [
        (
            End::Sender,
            "the sender, which got too little of the shared processors, was the limit at the end, not the tunnel alone",
        ),
        (
            End::Bound,
            "all that was tried went well; the number is a lower bound",
        ),
    ] {
        let which: Vec<_> = ends
            .iter()
            .filter(|(_, found)| **found == end)
            .map(|((name, rate), _)| format!("{name} at {rate} Mbit/s"))
            .collect();
        if !which.is_empty() {
            session.finding(format!("{}: {what}.", which.join("; ")), None);
        }
    }
}

type Case = (String, Kind);

fn tunnels(session: &mut Session<'_>) -> Result<Vec<(String, Case)>, LabError> {
    let mut kinds = vec![
        (PLAIN, Kind::Plain),
        (
            "Cordon, AES-256-GCM",
            Kind::Cordon(Cordon::new(AES_256_GCM, None)),
        ),
    ];
    if session.has("OpenVPN", &[OPENVPN, OPENSSL]) {
        let identity = Identity::make(&session.folder.join("openvpn"), &Identity::P256)?;
        kinds.push((
            "OpenVPN, AES-256-GCM",
            Kind::OpenVpn(OpenVpn {
                cipher: "AES-256-GCM".to_owned(),
                integrity: "SHA256",
                provider: Provider::Default,
                identity,
            }),
        ));
    }
    if session.has("WireGuard", &[WIREGUARD, WG]) {
        kinds.push(("WireGuard (wireguard-go)", Kind::WireGuard(WireGuard)));
    }
    let name = |(name, kind): (&str, Kind)| (name.to_owned(), (name.to_owned(), kind));
    Ok(kinds.into_iter().map(name).collect())
}

/// Numbers of cameras that are tried: `steps` within each doubling.
fn count(place: u32, steps: u32) -> u32 {
    let exact = 2_f64.powf(f64::from(place) / f64::from(steps)).round();
    // Below the bound of the search by far.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 2^14"
    )]
    let count = exact as u32;
    count
}

/// The greatest place whose number is not above `cameras`.
fn place(cameras: u32, steps: u32) -> u32 {
    (0..)
        .take_while(|at| count(*at, steps) <= cameras.max(1))
        .last()
        .unwrap_or_default()
}

/// Finds the border between what goes well and what does not: outwards from the hint in growing steps,
/// then by halves.
fn search(
    steps: u32,
    hint: u32,
    most: u32,
    mut trial: impl FnMut(u32) -> Result<Option<End>, LabError>,
) -> Result<Found, LabError> {
    let top = place(most, steps);
    let mut at = place(hint.min(most), steps);
    let (mut good, mut bad): (Option<u32>, Option<u32>) = (None, None);
    let mut end = End::Bound;
    let mut stride = 1;
    loop {
        match trial(count(at, steps))? {
            None => good = Some(at),
            Some(why) => {
                bad = Some(at);
                end = why;
            }
        }
        at = match (good, bad) {
            (Some(good), Some(bad)) if bad > good + 1 => good.midpoint(bad),
            (Some(good), None) if good < top => (good + stride).min(top),
            (None, Some(bad)) if bad > 0 => bad.saturating_sub(stride),
            _ => break,
        };
        stride *= 2;
    }
    Ok(Found {
        cameras: good.map_or(0, |good| count(good, steps)),
        end: if bad.is_some() { end } else { End::Bound },
    })
}

impl Trials<'_> {
    /// One trial, and another one if a frame was late or lost.
    fn twice(
        &self,
        tunnel: &Tunnel<'_>,
        film: &Film,
        cameras: u32,
        used: &mut BTreeMap<&'static str, Usage>,
    ) -> Result<Option<End>, LabError> {
        match self.once(tunnel, film, cameras, used)? {
            None => Ok(None),
            Some(_) => self.once(tunnel, film, cameras, used),
        }
    }

    /// Nothing if all frames came in time, else why not.
    fn once(
        &self,
        tunnel: &Tunnel<'_>,
        film: &Film,
        cameras: u32,
        used: &mut BTreeMap<&'static str, Usage>,
    ) -> Result<Option<End>, LabError> {
        let text = |value: serde_json::Result<String>| {
            value.map_err(|error| LabError::Unexpected(error.to_string()))
        };
        let frames = self.frames;
        let viewing = Viewing {
            address: SocketAddr::new(tunnel.server.into(), PORT),
            cameras,
            frames,
            limit_ms: LATE_MS,
        };
        let filming = Filming {
            viewer: viewing.address,
            film: film.path.clone(),
            cameras,
            frames,
        };
        let orders = self.folder.join("viewing");
        std::fs::write(&orders, text(serde_json::to_string(&viewing))?)
            .map_err(LabError::io("the viewer's description"))?;
        let program = ourselves()?;
        let call = tunnel.network.call(Side::Server, &program).arg("viewer");
        let mut viewer = call.start_reading(&orders, &tunnel.log("viewer"))?;
        viewer.wait_for(LIMIT, |viewer| viewer.said().contains("listening"))?;
        let call = tunnel.network.call(Side::Client, &program).arg("cameras");
        let done = call
            .input(text(serde_json::to_string(&filming))? + "\n")
            .limit(LIMIT)
            .run()?;
        viewer.wait_for(LIMIT, |viewer| viewer.said().trim_end().ends_with('}'))?;
        add(used, "cameras", done.usage);
        add(used, "viewer", viewer.usage());
        let unclear = |error: serde_json::Error| LabError::Unexpected(error.to_string());
        let filmed: Filmed = serde_json::from_str(&done.stdout).map_err(unclear)?;
        let said = viewer.said();
        let viewed: Viewed =
            serde_json::from_str(said.lines().last().unwrap_or_default()).map_err(unclear)?;
        Ok(judge(&viewed, &filmed))
    }
}

/// Nothing if all frames came in time; else whether they left late or took long.
fn judge(viewed: &Viewed, filmed: &Filmed) -> Option<End> {
    if !viewed.late && viewed.lost == 0 && filmed.dropped == 0 {
        return None;
    }
    // Most of the allowed time was gone before the network saw the frame.
    if filmed.behind_ms > f64::from(LATE_MS) / 2.0 {
        return Some(End::Sender);
    }
    Some(End::Tunnel)
}

fn add(used: &mut BTreeMap<&'static str, Usage>, name: &'static str, usage: Usage) {
    let sum = used.entry(name).or_default();
    sum.cpu += usage.cpu;
    sum.peak_mib = sum.peak_mib.max(usage.peak_mib);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a border that is known, and counts the trials.
    fn found(steps: u32, hint: u32, most: u32, border: u32) -> (u32, End, u32) {
        let mut trials = 0;
        let found = search(steps, hint, most, |cameras| {
            trials += 1;
            assert!(cameras <= most);
            Ok((cameras > border).then_some(End::Tunnel))
        })
        .unwrap();
        (found.cameras, found.end, trials)
    }

    #[test]
    fn the_border_is_found_from_everywhere() {
        for border in 1..600 {
            for hint in [1, 7, 64, 599, 1024] {
                let (cameras, end, trials) = found(8, hint, 1024, border);
                // The next one that is tried is above the border.
                assert_eq!(cameras, count(place(border, 8), 8), "{border} {hint}");
                assert_eq!(end, End::Tunnel);
                assert!(trials < 20, "{trials}");
            }
        }
    }

    #[test]
    fn nothing_and_everything_are_borders_too() {
        assert_eq!(found(4, 64, 1024, 0).0, 0);
        let (cameras, end, _) = found(4, 64, 1024, 5000);
        assert_eq!((cameras, end), (1024, End::Bound));
        // What was found is found again with few trials.
        assert!(found(4, 256, 1024, 260).2 <= 2);
    }

    #[test]
    fn late_lost_and_dropped_frames_all_count() {
        let viewed = |late, lost| Viewed {
            late,
            lost,
            ..Viewed::default()
        };
        let filmed = |behind_ms, dropped| Filmed { behind_ms, dropped };
        assert_eq!(judge(&viewed(false, 0), &filmed(90.0, 0)), None);
        assert_eq!(judge(&viewed(true, 0), &filmed(2.0, 0)), Some(End::Tunnel));
        assert_eq!(
            judge(&viewed(false, 1), &filmed(60.0, 0)),
            Some(End::Sender)
        );
        assert_eq!(judge(&viewed(false, 0), &filmed(2.0, 1)), Some(End::Tunnel));
    }
}
