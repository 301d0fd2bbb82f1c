//! Pictures of more and more cameras, and longer and longer films.

use std::path::Path;

use super::{FILM_CAMERA, FILM_MEMORY, FILM_SITE, PICTURES, Sizes};
use crate::LabError;
use crate::network::{Network, Side};
use crate::session::Round;
use crate::uploader::{Agent, Original, Site};

/// Memory that an agent takes, in bytes; its program's own pages are there once.
pub(super) const AGENT_BYTES: u64 = 16_000_000;
/// A film is there as the camera's file and sealed in its spool, then in the spool and in the site's archive.
pub(super) const COPIES: u64 = 2;

/// Processor time of the site for a picture, by cameras.
pub(super) fn pictures(
    network: &Network,
    folder: &Path,
    original: &Original,
    sizes: &Sizes,
    round: &mut Round,
) -> Result<(), LabError> {
    for &cameras in &sizes.cameras {
        let each = sizes.pictures.div_ceil(cameras);
        with_site(network, &folder.join("pictures"), |site| {
            let cpu = many(network, site, original, (cameras, each))?;
            let all = (cameras * each) as f64;
            round.put_at(PICTURES, cameras as f64, cpu * 1000.0 / all);
            round.used("site", site.usage());
            Ok(())
        })?;
    }
    Ok(())
}

/// Processor seconds of the site for `each` pictures of so many cameras.
fn many(
    network: &Network,
    site: &Site<'_>,
    original: &Original,
    (cameras, each): (usize, usize),
) -> Result<f64, LabError> {
    let mut agents = Vec::new();
    for number in 0..cameras {
        let camera = site.camera(&format!("camera-{number}"))?;
        agents.push(Agent::start(network, &camera)?);
    }
    // The first picture of each makes its connection and its chain.
    for agent in &mut agents {
        agent.ready()?;
        agent.stage(original, 1, false)?;
        agent.go()?;
    }
    agents.iter().try_for_each(Agent::delivered)?;
    for agent in &mut agents {
        agent.stage(original, each, false)?;
    }
    let before = site.usage().cpu;
    agents.iter().try_for_each(Agent::go)?;
    agents.iter().try_for_each(Agent::delivered)?;
    let used = site.usage().cpu - before;
    agents.into_iter().for_each(Agent::stop);
    Ok(used)
}

/// Processor time of both ends for a gigabyte of a film, and memory of the camera, by the film's length.
pub(super) fn films(
    network: &Network,
    folder: &Path,
    original: &Original,
    sizes: &Sizes,
    round: &mut Round,
) -> Result<(), LabError> {
    for &count in &sizes.films {
        let bytes = (count * sizes.picture) as u64;
        with_site(network, &folder.join("films"), |site| {
            let mut agent = Agent::start(network, &site.camera("camera-17")?)?;
            agent.ready()?;
            agent.stage(original, count, true)?;
            let before = (site.usage().cpu, agent.usage().cpu);
            agent.go()?;
            agent.delivered()?;
            let (at_site, at_camera) = (site.usage(), agent.usage());
            let gigabytes = bytes as f64 / 1e9;
            round.put_at(FILM_SITE, gigabytes, (at_site.cpu - before.0) / gigabytes);
            round.put_at(
                FILM_CAMERA,
                gigabytes,
                (at_camera.cpu - before.1) / gigabytes,
            );
            round.put_at(FILM_MEMORY, gigabytes, at_camera.peak_mib);
            round.used("site", at_site);
            round.used("camera agent", at_camera);
            agent.stop();
            Ok(())
        })?;
    }
    Ok(())
}

/// Does something with a new site, of which nothing is left.
fn with_site<'a>(
    network: &'a Network,
    folder: &Path,
    work: impl FnOnce(&Site<'a>) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let site = Site::start(network, Side::Server.outside(), folder)?;
    let done = work(&site);
    site.stop();
    let removed = std::fs::remove_dir_all(folder);
    done?;
    removed.map_err(LabError::io("a site that was measured"))
}
