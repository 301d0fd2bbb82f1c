//! Our own way of bringing files home: a camera's agent and a site, from the watched folder to the receipt.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::network::Side;
use crate::process::{Call, Daemon};
use crate::session::Round;
use crate::tunnels::{Tunnel, ourselves};

/// A site makes its keys and an agent gets its certificate within, and files arrive within.
const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at the receipts.
const STEP: Duration = Duration::from_millis(5);

/// A picture and what a camera says about it, to be repeated.
pub(crate) struct Original {
    picture: Vec<u8>,
    facts: Vec<u8>,
}

impl Original {
    /// Draws one, and fills it up to `bytes` with random ones, as large as the published pictures.
    pub(crate) fn draw(folder: &Path, bytes: usize) -> Result<Self, LabError> {
        let failed = || LabError::io("a drawn picture");
        std::fs::create_dir_all(folder).map_err(failed())?;
        Call::new(ourselves()?)
            .args(["draw", "--count", "1", "--out"])
            .arg(folder)
            .run()?;
        let find = |end: &str| -> Result<PathBuf, LabError> {
            let mut files = std::fs::read_dir(folder).map_err(failed())?.flatten();
            let found = files.find(|file| file.path().extension().is_some_and(|e| e == end));
            let file = found.ok_or_else(|| LabError::Unexpected(format!("no .{end} was drawn")))?;
            Ok(file.path())
        };
        let mut picture = std::fs::read(find("jpg")?).map_err(failed())?;
        let facts = std::fs::read(find("json")?).map_err(failed())?;
        let drawn = picture.len();
        picture.resize(bytes, 0);
        if let Some(rest) = picture.get_mut(drawn..) {
            aws_lc_rs::rand::fill(rest)
                .map_err(|_| LabError::Unexpected("no random numbers".to_owned()))?;
        }
        Ok(Self { picture, facts })
    }

    /// Writes `count` pictures, or a film as large as all of them, with facts beside each.
    fn stage(&self, folder: &Path, count: usize, film: bool) -> Result<u64, LabError> {
        let failed = || LabError::io("files to send");
        std::fs::create_dir_all(folder).map_err(failed())?;
        let (files, content, end) = match film {
            true => (1, self.picture.repeat(count), "mp4"),
            false => (count, self.picture.clone(), "jpg"),
        };
        for number in 0..files {
            let path = folder.join(format!("file-{number:03}.{end}"));
            std::fs::write(&path, &content).map_err(failed())?;
            std::fs::write(path.with_extension("json"), &self.facts).map_err(failed())?;
        }
        Ok(content.len() as u64 * files as u64)
    }
}

/// A site on the server's side and an enrolled agent on the client's.
pub(crate) struct Uploader {
    site: Daemon,
    agent: Daemon,
    camera: PathBuf,
    receipts: usize,
}

impl Uploader {
    pub(crate) fn start(tunnel: &Tunnel<'_>, folder: &Path) -> Result<Self, LabError> {
        let failed = || LabError::io("files of a site");
        std::fs::create_dir_all(folder).map_err(failed())?;
        let (address, program) = (tunnel.server, ourselves()?);
        let config = folder.join("cordon.toml");
        let text = format!(
            "[site]\nnames = [\"{address}\"]\n[listen]\nportal = \"{address}:8443\"\nintake = \"{address}:8444\"\n\
             enrolment = \"{address}:8445\"\nmetrics = \"127.0.0.1:9464\"\n"
        );
        std::fs::write(&config, text).map_err(failed())?;
        let data = folder.join("site");
        let on = |side, words: &[&str]| {
            let call = tunnel.network.call(side, &program);
            call.args(["--log", "warn"]).args(words)
        };
        let call = on(Side::Server, &["up", "--json", "--data"]).arg(&data);
        let call = call.arg("--config").arg(&config);
        let mut site = call.start(&tunnel.log("site"))?;
        site.wait_for(LIMIT, |site| site.said().contains('{'))?;
        let camera = folder.join("camera");
        let call = on(
            Side::Server,
            &["registry", "code", "--device", "camera-17", "--data"],
        );
        call.arg(&data)
            .arg("--config")
            .arg(&config)
            .arg("--out")
            .arg(&camera)
            .run()?;
        std::fs::create_dir_all(camera.join("incoming")).map_err(failed())?;
        let call = on(Side::Client, &["camera", "run", "--config"]).arg(camera.join("camera.toml"));
        let mut agent = call.start(&tunnel.log("agent"))?;
        agent.wait_for(LIMIT, |_| camera.join("identity.pem").exists())?;
        Ok(Self {
            site,
            agent,
            camera,
            receipts: 0,
        })
    }

    /// Mbit/s of `count` pictures, or of a film as large: from the watched folder until the last receipt
    /// is there.
    pub(crate) fn send(
        &mut self,
        original: &Original,
        count: usize,
        film: bool,
    ) -> Result<f64, LabError> {
        let failed = || LabError::io("files to send");
        let stage = self.camera.join("stage");
        let bytes = original.stage(&stage, count, film)?;
        let mut names: Vec<_> = std::fs::read_dir(&stage)
            .map_err(failed())?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        self.receipts += if film { 1 } else { count };
        let began = Instant::now();
        for name in names {
            let target = self.camera.join("incoming").join(&name);
            std::fs::rename(stage.join(&name), target).map_err(failed())?;
        }
        let (receipts, wanted) = (self.camera.join("spool/receipts"), self.receipts);
        while files_in(&receipts) < wanted {
            if began.elapsed() > LIMIT {
                let text = format!("{} of {wanted} receipts came", files_in(&receipts));
                return Err(LabError::Unexpected(text));
            }
            std::thread::sleep(STEP);
        }
        let seconds = began.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&stage).map_err(failed())?;
        Ok(bytes as f64 * 8.0 / seconds / 1e6)
    }

    /// Ends both, and notes what they used.
    pub(crate) fn stop(self, round: &mut Round) {
        round.used("camera agent", self.agent.usage());
        round.used("site", self.site.usage());
        self.agent.stop();
        self.site.stop();
    }
}

fn files_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}
