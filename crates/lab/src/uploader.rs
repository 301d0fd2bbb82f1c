//! Our own way of bringing files home: cameras' agents and a site, from the watched folder to the receipt.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::network::{Network, Side};
use crate::process::{Call, Daemon, Usage};
use crate::session::Round;
use crate::tunnels::{Tunnel, ourselves, product};

/// A site makes its keys and an agent gets its certificate within, and files arrive within.
const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at the receipts.
const STEP: Duration = Duration::from_millis(5);
/// Capacity of a camera's spool, in bytes.
const SPOOL: u64 = 16_000_000_000;

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

    /// Writes `count` pictures, or a film as large as all of them, with facts beside each; returns their bytes.
    fn stage(&self, folder: &Path, count: usize, film: bool) -> Result<u64, LabError> {
        let failed = || LabError::io("files to send");
        std::fs::create_dir_all(folder).map_err(failed())?;
        let (files, repeats, end) = if film {
            (1, count, "mp4")
        } else {
            (count, 1, "jpg")
        };
        for number in 0..files {
            let path = folder.join(format!("file-{number:03}.{end}"));
            let mut file = std::fs::File::create(&path).map_err(failed())?;
            for _ in 0..repeats {
                file.write_all(&self.picture).map_err(failed())?;
            }
            std::fs::write(path.with_extension("json"), &self.facts).map_err(failed())?;
        }
        Ok(self.picture.len() as u64 * count as u64)
    }
}

/// A site on the server's side.
pub(crate) struct Site<'a> {
    network: &'a Network,
    address: Ipv4Addr,
    folder: PathBuf,
    daemon: Daemon,
}

impl<'a> Site<'a> {
    /// Starts a site that listens at `address`, with the data that `folder` has, or a new one.
    pub(crate) fn start(
        network: &'a Network,
        address: Ipv4Addr,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let failed = || LabError::io("files of a site");
        std::fs::create_dir_all(folder).map_err(failed())?;
        let [_, a, b, c] = address.octets();
        let text = format!(
            "[site]\nnames = [\"{address}\"]\n[listen]\nportal = \"{address}:8443\"\nintake = \"{address}:8444\"\n\
             enrolment = \"{address}:8445\"\nmetrics = \"127.{a}.{b}.{c}:9464\"\n"
        );
        std::fs::write(folder.join("cordon.toml"), text).map_err(failed())?;
        let call = network.call(Side::Server, product()?);
        let call = call.args(["--log", "warn", "up", "--json", "--data"]);
        let call = call.arg(folder.join("data")).arg("--config");
        let mut daemon = call
            .arg(folder.join("cordon.toml"))
            .start(&folder.join("site.log"))?;
        daemon.wait_for(LIMIT, |site| site.said().contains('{'))?;
        Ok(Self {
            network,
            address,
            folder: folder.to_owned(),
            daemon,
        })
    }

    /// Has the site do something.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<(), LabError> {
        let call = self.network.call(Side::Server, product()?);
        let call = call.args(["--log", "warn"]).args(words).arg("--data");
        call.arg(self.data())
            .arg("--config")
            .arg(self.folder.join("cordon.toml"))
            .run()?;
        Ok(())
    }

    /// Folder of its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Address of a page of the portal.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("https://{}:8443{path}", self.address)
    }

    /// A camera that may enrol, as its folder.
    pub(crate) fn camera(&self, device: &str) -> Result<PathBuf, LabError> {
        let failed = || LabError::io("files of a camera");
        let folder = self.folder.join(device);
        let out = folder.to_string_lossy();
        self.ask(&["registry", "code", "--device", device, "--out", &out])?;
        std::fs::create_dir_all(folder.join("incoming")).map_err(failed())?;
        let config = folder.join("camera.toml");
        let text = std::fs::read_to_string(&config).map_err(failed())?;
        let lines = text
            .lines()
            .map(|line| match line.starts_with("max_bytes") {
                true => format!("max_bytes = {SPOOL}\n"),
                false => format!("{line}\n"),
            });
        std::fs::write(&config, lines.collect::<String>()).map_err(failed())?;
        Ok(folder)
    }

    /// Resources of the site so far.
    pub(crate) fn usage(&self) -> Usage {
        self.daemon.usage()
    }

    /// Ends it in an orderly way; its data stays.
    pub(crate) fn stop(self) {
        self.daemon.stop();
    }
}

/// The agent of a camera, on the client's side.
pub(crate) struct Agent {
    daemon: Daemon,
    folder: PathBuf,
    receipts: usize,
}

impl Agent {
    /// Starts the agent of a camera that [`Site::camera`] made; [`ready`](Self::ready) waits for it.
    pub(crate) fn start(network: &Network, folder: &Path) -> Result<Self, LabError> {
        let call = network.call(Side::Client, product()?);
        let call = call.args(["--log", "warn", "camera", "run", "--config"]);
        let daemon = call
            .arg(folder.join("camera.toml"))
            .start(&folder.with_extension("log"))?;
        Ok(Self {
            daemon,
            folder: folder.to_owned(),
            receipts: files_in(&folder.join("spool/receipts")),
        })
    }

    /// Waits until it has its certificate.
    pub(crate) fn ready(&mut self) -> Result<(), LabError> {
        let identity = self.folder.join("identity.pem");
        self.daemon.wait_for(LIMIT, |_| identity.exists())?;
        Ok(())
    }

    /// Makes `count` pictures, or a film as large, that [`go`](Self::go) sends; returns their bytes.
    pub(crate) fn stage(
        &mut self,
        original: &Original,
        count: usize,
        film: bool,
    ) -> Result<u64, LabError> {
        self.receipts += if film { 1 } else { count };
        original.stage(&self.folder.join("stage"), count, film)
    }

    /// Moves what was made into the watched folder.
    pub(crate) fn go(&self) -> Result<(), LabError> {
        let failed = || LabError::io("files to send");
        let stage = self.folder.join("stage");
        let files = std::fs::read_dir(&stage).map_err(failed())?.flatten();
        let mut names: Vec<_> = files.map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let target = self.folder.join("incoming").join(&name);
            std::fs::rename(stage.join(&name), target).map_err(failed())?;
        }
        Ok(())
    }

    /// Waits until there is a receipt for everything that it sent.
    pub(crate) fn delivered(&self) -> Result<(), LabError> {
        let (receipts, wanted) = (self.folder.join("spool/receipts"), self.receipts);
        let began = Instant::now();
        while files_in(&receipts) < wanted {
            if began.elapsed() > LIMIT {
                let text = format!("{} of {wanted} receipts came", files_in(&receipts));
                return Err(LabError::Unexpected(text));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Resources of the agent so far.
    pub(crate) fn usage(&self) -> Usage {
        self.daemon.usage()
    }

    /// Ends it in an orderly way; its files stay.
    pub(crate) fn stop(self) {
        self.daemon.stop();
    }
}

/// A site at the server's end of a tunnel and an enrolled agent at the client's.
pub(crate) struct Uploader<'a> {
    site: Site<'a>,
    agent: Agent,
}

impl<'a> Uploader<'a> {
    pub(crate) fn start(tunnel: &Tunnel<'a>, folder: &Path) -> Result<Self, LabError> {
        let site = Site::start(tunnel.network, tunnel.server, folder)?;
        let mut agent = Agent::start(tunnel.network, &site.camera("camera-17")?)?;
        agent.ready()?;
        Ok(Self { site, agent })
    }

    /// Mbit/s of `count` pictures, or of a film as large: from the watched folder until the last receipt
    /// is there.
    pub(crate) fn send(
        &mut self,
        original: &Original,
        count: usize,
        film: bool,
    ) -> Result<f64, LabError> {
        let bytes = self.agent.stage(original, count, film)?;
        let began = Instant::now();
        self.agent.go()?;
        self.agent.delivered()?;
        Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6)
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
