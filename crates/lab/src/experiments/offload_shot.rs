//! The driver with descriptors and the one without: requests in a ring and memory, or whole in registers.

use accel_simulation::{MODEL_CONFIG, model, single_shot_model};

use super::offload::{Through, through};
use crate::LabError;
use crate::record::Better;
use crate::session::{Plan, Rounds, Session};

const TIME: &str = "single-shot";
const ACCESSES: &str = "single-shot-accesses";
const RING: &str = "ring: descriptor, lists, memory";
const SHOT: &str = "single shot: registers only";
/// Bytes of a message; no single shot takes more than the last.
const SIZES: [usize; 6] = [16, 64, 128, 256, 512, 960];

pub(super) fn plan(session: &mut Session<'_>) {
    session.plan(
        Plan::bars(
            TIME,
            "AES-128-GCM: the driver's processor time with descriptors and without",
            "\u{b5}s for a message",
            Better::Less,
        )
        .over("bytes of a message")
        .logarithmic()
        .base(RING),
    );
    session.plan(
        Plan::bars(
            ACCESSES,
            "AES-128-GCM: accesses to registers with descriptors and without",
            "accesses for a message",
            Better::Less,
        )
        .over("bytes of a message")
        .logarithmic()
        .base(RING),
    );
}

#[derive(Clone, Copy)]
enum Way {
    Ring,
    Shot,
}

pub(super) fn run(
    session: &mut Session<'_>,
    rounds: Rounds,
    messages: u32,
) -> Result<(), LabError> {
    let ways = [(RING.to_owned(), Way::Ring), (SHOT.to_owned(), Way::Shot)];
    session.rounds(rounds, &ways, |way, round| {
        for size in SIZES {
            let device = match way {
                Way::Ring => model(MODEL_CONFIG),
                Way::Shot => single_shot_model(),
            };
            let device = device.map_err(|error| LabError::Unexpected(error.to_string()))?;
            let Through {
                driver, accesses, ..
            } = through("gcm", size, messages, device)?;
            round.put_at(TIME, size as f64, driver);
            round.put_at(ACCESSES, size as f64, accesses);
        }
        Ok(())
    });
    let (Some(time), Some(accesses)) = (session.figure(TIME), session.figure(ACCESSES)) else {
        return Ok(());
    };
    let median = |figure: &crate::record::Figure, case, size: usize| {
        let value = figure.median(case, Some(size as f64));
        value.unwrap_or(f64::NAN)
    };
    let [least, .., most] = SIZES;
    let cheaper = |size: &&usize| median(&time, SHOT, **size) < median(&time, RING, **size);
    let up_to = SIZES.iter().take_while(cheaper).last();
    let up_to = match up_to {
        Some(size) => format!("up to {size} bytes"),
        None => "at no size measured".to_owned(),
    };
    session.finding(
        format!(
            "Without descriptors the driver takes less of the processor {up_to}, in this process, where an access to a \
             register is a call. It makes {:.0} of them for {least} bytes and {:.0} for {most}; with descriptors it makes {:.0}, \
             whatever the size: on a bus where each of them is waited for, only small messages gain.",
            median(&accesses, SHOT, least),
            median(&accesses, SHOT, most),
            median(&accesses, RING, most),
        ),
        None,
    );
    Ok(())
}
