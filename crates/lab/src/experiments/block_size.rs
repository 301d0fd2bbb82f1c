//! Cost by request size for each crypto engine, and where one overtakes the other.
//!
//! The thesis offloads a request to its hardware only above a size, because below it a call costs more
//! than it saves. Our engines are code, but the question is the same: what does a call cost, what a
//! byte, and from which size on is which engine the cheapest?

use std::time::Duration;

use offload::{Direction, Encryption, Engine, Integrity, KeyMaterial, Slot, Suite, Transform};

use super::OPENSSL;
use super::timing::{nanoseconds, openssl_speed};
use crate::LabError;
use crate::experiment::Experiment;
use crate::record::{Better, Figure};
use crate::session::{Plan, Rounds, Session};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "block-size",
    title: "Cost of a request by size and engine",
    question: "From which request size on does it pay to hand work to a faster engine with a dearer call?",
    source: "High-level cryptographic protocols on a system on chip (thesis), conditional offload: \
             break-even \u{201c}around 1024kB\u{201d}, surely 1024 bytes",
    needs: &[],
    wants: &[OPENSSL],
    seconds: (20, 60),
    run,
};

const GCM: &str = "aes-256-gcm";
const CBC: &str = "aes-256-cbc-sha256";
/// Bytes of payload and trailer, multiples of a block of AES.
const SIZES: [usize; 8] = [16, 64, 256, 512, 1024, 1440, 4096, 16_384];
/// Packets of one segmented send.
const BATCH: usize = 45;
const LIBRARY: &str = "library, one at a time";

struct Ours {
    figure: &'static str,
    suite: Suite,
    engine: Engine,
    batch: usize,
}

enum Work {
    Ours(Ours),
    OpenSsl,
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let budget = Duration::from_millis(session.pick(10, 40));
    session.parameter("packets at once", BATCH);
    session.parameter("processors used", 1);
    for (id, title) in [
        (GCM, "ESP with AES-256-GCM, sealing"),
        (CBC, "ESP with AES-256-CBC and HMAC-SHA2-256, sealing"),
    ] {
        session.plan(
            Plan::bars(id, title, "ns per request", Better::Less)
                .over("bytes of a request")
                .logarithmic()
                .base(LIBRARY),
        );
    }
    let refused = |error: offload::SuiteError| LabError::Unexpected(error.to_string());
    let gcm = Suite::new(Encryption::AesGcm256, None).map_err(refused)?;
    let sha = Some(Integrity::HmacSha256_128);
    let cbc = Suite::new(Encryption::AesCbc256, sha).map_err(refused)?;
    let (mut cases, mut lacking) = (Vec::new(), Vec::new());
    for (figure, suite, what, instructions) in [
        (GCM, gcm, "AES-GCM", "AVX2, VAES, VPCLMULQDQ"),
        (CBC, cbc, "AES-CBC", "AVX-512, VAES"),
    ] {
        let mut add = |name: &str, engine, batch| {
            let ours = Ours {
                figure,
                suite,
                engine,
                batch,
            };
            cases.push((name.to_owned(), Work::Ours(ours)));
        };
        add(LIBRARY, Engine::Library, 1);
        if transform(suite, Engine::Fastest)?.engine_name() == "library" {
            lacking.push((what, instructions));
        } else {
            add("own vector code, one at a time", Engine::Fastest, 1);
            add("own vector code, 45 at once", Engine::Fastest, BATCH);
        }
    }
    for (what, instructions) in lacking {
        let reason = format!("this processor lacks the instructions ({instructions})");
        session.missing(&format!("own vector code for {what}"), &reason, None);
    }
    if OPENSSL.is_installed() {
        cases.push(("OpenSSL, one at a time".to_owned(), Work::OpenSsl));
    } else {
        session.missing(
            "OpenSSL, one at a time",
            "there is no openssl",
            Some(OPENSSL.package),
        );
    }
    let quick = session.quick;
    let rounds = Rounds {
        count: session.pick(3, 5),
        warm_up: true,
    };
    session.rounds(rounds, &cases, |work, round| {
        match work {
            Work::Ours(ours) => {
                for size in SIZES {
                    round.put_at(ours.figure, size as f64, ours.nanoseconds(size, budget)?);
                }
            }
            Work::OpenSsl => {
                for size in SIZES
                    .into_iter()
                    .filter(|size| !quick || [64, 1024, 16_384].contains(size))
                {
                    let (bytes, usage) = openssl_speed("aes-256-gcm", true, size)?;
                    round.put_at(GCM, size as f64, size as f64 / bytes * 1e9);
                    round.used("openssl", usage);
                }
            }
        }
        Ok(())
    });
    for id in [GCM, CBC] {
        if let Some(figure) = session.figure(id) {
            judge(session, &figure);
        }
    }
    session.caveat(
        "All data lie in the first-level cache. The thesis compares with a device behind a bus; there is \
         none here, so its break-even is quoted and not repeated.",
    );
    Ok(())
}

fn transform(suite: Suite, engine: Engine) -> Result<Transform, LabError> {
    let keys = KeyMaterial::new(
        &vec![7; suite.encryption().key_len()],
        &vec![9; suite.integrity().map_or(0, Integrity::key_len)],
    );
    Transform::with_engine(suite, &keys, false, Direction::Seal, engine)
        .map_err(|error| LabError::Unexpected(error.to_string()))
}

impl Ours {
    /// Time of one packet.
    fn nanoseconds(&self, size: usize, budget: Duration) -> Result<f64, LabError> {
        let transform = transform(self.suite, self.engine)?;
        let length = transform.payload_offset() + size + self.suite.icv_len();
        let mut slots: Vec<Slot> = (0..self.batch)
            .map(|at| Slot::new(at * length, length, 1 + at as u64))
            .collect();
        let mut buffer = vec![1; self.batch * length];
        let time = nanoseconds(budget, || transform.seal(&mut buffer, &mut slots));
        if slots.iter().all(|slot| slot.valid) {
            Ok(time / self.batch as f64)
        } else {
            Err(LabError::Unexpected(format!(
                "a packet of {size} bytes was refused"
            )))
        }
    }
}

/// The measured sizes between which a case overtakes the library, and what a call and a byte cost, by
/// the least squares of relative errors.
fn judge(session: &mut Session<'_>, figure: &Figure) {
    let mut names: Vec<&str> = figure.rows.iter().map(|row| row.case.as_str()).collect();
    names.dedup();
    for name in names {
        let points: Vec<(f64, f64)> = figure
            .rows
            .iter()
            .filter(|row| row.case == name)
            .filter_map(|row| Some((row.x?, row.measured.as_ref()?.interval.median)))
            .collect();
        let Some((call, byte)) = line(&points) else {
            continue;
        };
        let mut text = format!(
            "{}: {name}: {call:.0} ns a call and {byte:.3} ns a byte",
            figure.title
        );
        if name != LIBRARY {
            let cheaper = |(x, cost): &(f64, f64)| {
                figure
                    .median(LIBRARY, Some(*x))
                    .is_some_and(|library| *cost < library)
            };
            let (better, worse): (Vec<_>, Vec<_>) = points.iter().partition(|p| cheaper(p));
            let border = |one: Option<&(f64, f64)>| one.map_or(f64::NAN, |(x, _)| *x);
            let (first, last) = (border(better.first()), border(better.last()));
            text += &match (better.is_empty(), worse.is_empty()) {
                (_, true) => "; cheaper than the library at every size".to_owned(),
                (true, false) => "; dearer than the library at every size".to_owned(),
                _ if border(worse.last()) < first => {
                    format!("; cheaper than the library from {first} bytes on")
                }
                _ if border(worse.first()) > last => {
                    format!("; cheaper than the library up to {last} bytes")
                }
                _ => "; now cheaper, now dearer than the library".to_owned(),
            };
        }
        session.finding(format!("{text}."), None);
    }
}

/// Fixed cost and cost per unit of the line through points, each weighed by the inverse of its square so
/// that the large ones do not decide alone. A negative fixed cost is shown as none.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let weight = 1.0 / (y * y);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    let fixed = (wy - slope * wx) / w;
    slope.is_finite().then_some((fixed.max(0.0), slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<_> = SIZES
            .iter()
            .map(|&x| (x as f64, 100.0 + 0.25 * x as f64))
            .collect();
        let (call, byte) = line(&points).unwrap();
        assert!(
            (call - 100.0).abs() < 1e-6 && (byte - 0.25).abs() < 1e-9,
            "{call} {byte}"
        );
        assert_eq!(line(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn a_packet_is_sealed_by_every_engine() {
        let suite = Suite::new(Encryption::AesGcm256, None).unwrap();
        for engine in [Engine::Library, Engine::Fastest] {
            let ours = Ours {
                figure: GCM,
                suite,
                engine,
                batch: 2,
            };
            assert!(ours.nanoseconds(64, Duration::from_millis(1)).unwrap() > 0.0);
            // Not whole blocks.
            assert!(ours.nanoseconds(63, Duration::from_millis(1)).is_err());
        }
    }
}
