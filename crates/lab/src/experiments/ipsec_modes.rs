//! Files by FTP through ESP and AH in tunnel and transport mode: the published Tables I and II of RSMAD.

use super::suites::{
    AES_128_CBC, AES_128_GCM, AES_256_CBC, AES_256_GCM, CHACHA20, DES, MD5, SHA1, SHA2_256,
    TRIPLE_DES,
};
use crate::LabError;
use crate::experiment::Experiment;
use crate::files::Files;
use crate::network::{IP, Network, Slowed, TC};
use crate::record::Better;
use crate::session::{Plan, Round, Rounds, Session};
use crate::tunnels::{Cordon, Kind, PING};
use crate::uploader::{Original, Uploader};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ipsec-modes",
    title: "Files through IPsec by protocol, mode and algorithms",
    question: "How fast do 500 pictures, and one file as large as all of them, go through each kind of \
               IPsec?",
    source: "Sokol, Gajewski, Gajewska, Staszkiewicz, Security and Performance Analysis of IPsec-based VPNs \
             in RSMAD, Tables I and II",
    needs: &[IP, PING, TC],
    wants: &[],
    seconds: (100, 1400),
    run,
};

const TABLE_1: &str =
    "RSMAD, Table I: tunnel mode, two ZyXEL ZyWALL 2 Plus (24 Mbit/s at most), FTP";
const TABLE_2: &str =
    "RSMAD, Table II: transport mode, two ZyXEL ZyWALL 2 Plus (24 Mbit/s at most), FTP";
/// Mbit/s: tunnel mode with files and with one file, transport mode likewise.
const TUNNEL_FILES: &[(&str, f64)] = &[
    ("ESP, SHA-1, DES", 18.80),
    ("ESP, SHA-1, 3DES", 17.12),
    ("ESP, SHA-1, AES-128", 18.48),
    ("ESP, SHA-1, AES-256", 18.00),
    ("ESP, MD5, DES", 18.56),
    ("ESP, MD5, 3DES", 16.64),
    ("ESP, MD5, AES-128", 18.08),
    ("ESP, MD5, AES-256", 17.92),
    ("AH, SHA-1", 21.28),
    ("AH, MD5", 21.04),
];
const TUNNEL_FILE: &[(&str, f64)] = &[
    ("ESP, SHA-1, DES", 21.44),
    ("ESP, SHA-1, 3DES", 19.36),
    ("ESP, SHA-1, AES-128", 20.64),
    ("ESP, SHA-1, AES-256", 20.32),
    ("ESP, MD5, DES", 21.36),
    ("ESP, MD5, 3DES", 19.60),
    ("ESP, MD5, AES-128", 20.88),
    ("ESP, MD5, AES-256", 20.24),
    ("AH, SHA-1", 22.48),
    ("AH, MD5", 22.08),
];
const TRANSPORT_FILES: &[(&str, f64)] = &[
    ("ESP, SHA-1, DES", 19.24),
    ("ESP, SHA-1, 3DES", 17.98),
    ("ESP, SHA-1, AES-128", 18.99),
    ("ESP, SHA-1, AES-256", 18.49),
    ("ESP, MD5, DES", 19.01),
    ("ESP, MD5, 3DES", 17.03),
    ("ESP, MD5, AES-128", 18.60),
    ("ESP, MD5, AES-256", 18.49),
    ("AH, SHA-1", 21.88),
    ("AH, MD5", 21.60),
];
const TRANSPORT_FILE: &[(&str, f64)] = &[
    ("ESP, SHA-1, DES", 21.93),
    ("ESP, SHA-1, 3DES", 19.89),
    ("ESP, SHA-1, AES-128", 21.12),
    ("ESP, SHA-1, AES-256", 20.89),
    ("ESP, MD5, DES", 21.86),
    ("ESP, MD5, 3DES", 20.20),
    ("ESP, MD5, AES-128", 21.34),
    ("ESP, MD5, AES-256", 20.74),
    ("AH, SHA-1", 22.99),
    ("AH, MD5", 22.68),
];
const BASE: &str = "ESP, SHA-1, AES-128";
/// Pictures by their speed as a share of the one file's: what follows from Table I.
const SHARES: &[(&str, f64)] = &[
    ("ESP, SHA-1, DES", 18.80 / 21.44 * 100.0),
    ("ESP, SHA-1, 3DES", 17.12 / 19.36 * 100.0),
    ("ESP, SHA-1, AES-128", 18.48 / 20.64 * 100.0),
    ("ESP, SHA-1, AES-256", 18.00 / 20.32 * 100.0),
    ("ESP, MD5, DES", 18.56 / 21.36 * 100.0),
    ("ESP, MD5, 3DES", 16.64 / 19.60 * 100.0),
    ("ESP, MD5, AES-128", 18.08 / 20.88 * 100.0),
    ("ESP, MD5, AES-256", 17.92 / 20.24 * 100.0),
    ("AH, SHA-1", 21.28 / 22.48 * 100.0),
    ("AH, MD5", 21.04 / 22.08 * 100.0),
];
const SHARE: &str = "share";
const SHARE_SOURCE: &str = "RSMAD, Table I, test I by test II";
const SLOW_FTP: &str = "ESP, SHA-1, AES-128, over 24 Mbit/s";
/// The speed at which the published gateways end, as `tc` writes it.
const SLOW: &str = "24mbit";
/// Cases of our uploader, with their cable in words; 100 Mbit/s are those of a good mobile network.
const UPLOADERS: [(&str, &str, Load); 3] = [
    (
        "Cordon's uploader, ESP, AES-256-GCM",
        "a cable without a limit",
        Load::All,
    ),
    (
        "Cordon's uploader, ESP, AES-256-GCM, over 100 Mbit/s",
        "100 Mbit/s",
        Load::Over("100mbit"),
    ),
    (
        "Cordon's uploader, ESP, AES-256-GCM, over 24 Mbit/s",
        "24 Mbit/s",
        Load::Over(SLOW),
    ),
];
/// Goal of our uploader, in per cent.
const AIM: f64 = 97.0;
/// DES and Triple DES go so slowly that fewer pictures tell as much.
const FEWER: usize = 10;
/// Bytes of a picture.
const PICTURE: usize = 640_000;

type Algorithm = Option<(&'static str, usize)>;

/// Name, encryption, integrity, and whether only laboratory builds know it.
const SUITES: [(&str, Algorithm, Algorithm, bool); 15] = [
    ("ESP, SHA-1, DES", Some(DES), Some(SHA1), true),
    ("ESP, SHA-1, 3DES", Some(TRIPLE_DES), Some(SHA1), true),
    ("ESP, SHA-1, AES-128", Some(AES_128_CBC), Some(SHA1), false),
    ("ESP, SHA-1, AES-256", Some(AES_256_CBC), Some(SHA1), false),
    ("ESP, MD5, DES", Some(DES), Some(MD5), true),
    ("ESP, MD5, 3DES", Some(TRIPLE_DES), Some(MD5), true),
    ("ESP, MD5, AES-128", Some(AES_128_CBC), Some(MD5), true),
    ("ESP, MD5, AES-256", Some(AES_256_CBC), Some(MD5), true),
    ("AH, SHA-1", None, Some(SHA1), false),
    ("AH, MD5", None, Some(MD5), true),
    ("ESP, AES-128-GCM", Some(AES_128_GCM), None, false),
    ("ESP, AES-256-GCM", Some(AES_256_GCM), None, false),
    ("ESP, ChaCha20-Poly1305", Some(CHACHA20), None, false),
    (
        "ESP, SHA-256, AES-128",
        Some(AES_128_CBC),
        Some(SHA2_256),
        false,
    ),
    ("AH, SHA-256", None, Some(SHA2_256), false),
];

/// A mode with its figures.
#[derive(Clone, Copy)]
struct Mode {
    transport: bool,
    files: &'static str,
    file: &'static str,
}

const MODES: [Mode; 2] = [
    Mode {
        transport: false,
        files: "tunnel-files",
        file: "tunnel-file",
    },
    Mode {
        transport: true,
        files: "transport-files",
        file: "transport-file",
    },
];

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let count = session.pick(60, 500);
    session.parameter("pictures", count);
    session.parameter("bytes of a picture", PICTURE);
    session.parameter(
        "encapsulation",
        "none (IP protocols 50 and 51), as published",
    );
    let [tunnel, transport] = MODES;
    for (id, title, values, source) in [
        (
            tunnel.files,
            "Tunnel mode, many files (test I)",
            TUNNEL_FILES,
            TABLE_1,
        ),
        (
            tunnel.file,
            "Tunnel mode, one file (test II)",
            TUNNEL_FILE,
            TABLE_1,
        ),
        (
            transport.files,
            "Transport mode, many files (test I)",
            TRANSPORT_FILES,
            TABLE_2,
        ),
        (
            transport.file,
            "Transport mode, one file (test II)",
            TRANSPORT_FILE,
            TABLE_2,
        ),
    ] {
        let plan = Plan::bars(id, title, "Mbit/s", Better::More);
        session.plan(plan.base(BASE).published(values, source));
    }
    let title = "Tunnel mode: many files, as a share of the speed of one";
    session.plan(
        Plan::bars(SHARE, title, "%", Better::More)
            .base(BASE)
            .published(SHARES, SHARE_SOURCE),
    );
    let cases = cases(session);
    let uploads = session.pick(50, 500);
    session.parameter("pictures by our uploader", uploads);
    session.parameter("pictures with DES and Triple DES", count / FEWER);
    let folder = session.folder.clone();
    let make = |name: &str, count, bytes| Files::make(&folder.join(name), count, bytes);
    let pictures = make("pictures", count, PICTURE)?;
    let film = make("film", 1, PICTURE * count)?;
    let few = make("few-pictures", count / FEWER, PICTURE)?;
    let short = make("short-film", 1, PICTURE * (count / FEWER))?;
    let slow_count = session.pick(12, 60);
    session.parameter("pictures over 24 and 100 Mbit/s", slow_count);
    let slow_pictures = make("slow-pictures", slow_count, PICTURE)?;
    let slow_film = make("slow-film", 1, PICTURE * slow_count)?;
    let warm = make("warm", 2, PICTURE)?;
    let original = Original::draw(&folder.join("drawn"), PICTURE)?;
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |work, round| match work {
        Work::Ftp { mode, kind, load } => {
            let (pictures, film) = match load {
                Load::All => (&pictures, &film),
                Load::Few => (&few, &short),
                Load::Over(_) => (&slow_pictures, &slow_film),
            };
            let tunnel = kind.start(&network, &folder)?;
            warm.send(&tunnel, &mut Round::default())?;
            let _slowed = load.cable(&network)?;
            let many = pictures.send(&tunnel, round)?.rate;
            round.put(mode.files, many);
            let one = film.send(&tunnel, round)?.rate;
            round.put(mode.file, one);
            if !mode.transport {
                round.put(SHARE, many / one * 100.0);
            }
            tunnel.account(round);
            Ok(())
        }
        Work::Upload { kind, load } => {
            let tunnel = kind.start(&network, &folder)?;
            let at = folder.join("upload");
            let mut uploader = Uploader::start(&tunnel, &at)?;
            // The first ones connect and fill caches.
            uploader.send(&original, 3, false)?;
            let uploads = match load {
                Load::Over(_) => slow_count,
                Load::All | Load::Few => uploads,
            };
            let slowed = load.cable(&network)?;
            let many = uploader.send(&original, uploads, false)?;
            let one = uploader.send(&original, uploads, true)?;
            drop(slowed);
            round.put(MODES[0].files, many);
            round.put(MODES[0].file, one);
            round.put(SHARE, many / one * 100.0);
            uploader.stop(round);
            tunnel.account(round);
            drop(tunnel);
            std::fs::remove_dir_all(&at).map_err(LabError::io("a site in memory"))
        }
    });
    for (case, over, _) in UPLOADERS {
        let share = session
            .figure(SHARE)
            .and_then(|figure| figure.median(case, None));
        if let Some(share) = share {
            session.finding(
                format!(
                    "Aim: our uploader carries many pictures at {AIM} % at least of the speed of one film; over \
                     {over} {} %.",
                    crate::report::number(share)
                ),
                Some(share >= AIM),
            );
        }
    }
    session.caveat(
        "The uploader does more than FTP: it signs, encrypts, sends with TLS on both sides inside of the \
         tunnel, verifies, archives, writes index and audit log, and gives a receipt; what is synced goes to \
         memory here, as all files do. Its tunnel is ESP in UDP.",
    );
    session.caveat(
        "The gateways of the publication are limited by their hardware to 24 Mbit/s, so all their values \
         lie close together. Both ends of FTP are our own, because others wait 40 ms and more for \
         each file. Nothing touches a disk.",
    );
    session.caveat(
        "ESP without UDP moves packets one by one; in UDP, which Cordon prefers, it is several times as \
         fast (vpn-ciphers). DES, 3DES and MD5 are broken or worn out and stand here to repeat the tables.",
    );
    Ok(())
}

enum Work {
    Ftp { mode: Mode, kind: Kind, load: Load },
    Upload { kind: Kind, load: Load },
}

/// Files that a case carries, and over which cable.
#[derive(Clone, Copy)]
enum Load {
    All,
    Few,
    /// As much as suits a cable that is slowed down to this.
    Over(&'static str),
}

impl Load {
    /// The cable as slow as this load wants it, until what is returned is dropped.
    fn cable(self, network: &Network) -> Result<Option<Slowed<'_>>, LabError> {
        match self {
            Self::All | Self::Few => Ok(None),
            Self::Over(rate) => network.slowed(rate).map(Some),
        }
    }
}

fn cases(session: &mut Session<'_>) -> Vec<(String, Work)> {
    let mut cases = Vec::new();
    for (name, encryption, integrity, legacy) in SUITES {
        if legacy && !cfg!(feature = "legacy") {
            session.lacks_legacy(name);
            continue;
        }
        for mode in MODES {
            let kind = Cordon {
                encryption,
                integrity,
                ah: encryption.is_none(),
                transport: mode.transport,
                bare: true,
            };
            let work = Work::Ftp {
                mode,
                kind: Kind::Cordon(kind),
                load: match [Some(DES), Some(TRIPLE_DES)].contains(&encryption) {
                    true => Load::Few,
                    false => Load::All,
                },
            };
            cases.push((name.to_owned(), work));
        }
    }
    for mode in MODES {
        let work = Work::Ftp {
            mode,
            kind: Kind::Plain,
            load: Load::All,
        };
        cases.push(("no protection".to_owned(), work));
    }
    let bare = Cordon {
        bare: true,
        ..Cordon::new(AES_128_CBC, Some(SHA1))
    };
    let work = Work::Ftp {
        mode: MODES[0],
        kind: Kind::Cordon(bare),
        load: Load::Over(SLOW),
    };
    cases.push((SLOW_FTP.to_owned(), work));
    for (name, _, load) in UPLOADERS {
        let kind = Kind::Cordon(Cordon::new(AES_256_GCM, None));
        cases.push((name.to_owned(), Work::Upload { kind, load }));
    }
    cases
}
