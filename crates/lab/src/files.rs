//! Files that go from the client's side to the server's, and how long that takes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::network::Side;
use crate::session::Round;
use crate::tunnels::{Tunnel, ourselves};

/// The slowest cipher with the largest file stays far below.
const LIMIT: Duration = Duration::from_secs(600);

/// Result of a transfer.
pub(crate) struct Sent {
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    /// Processor seconds of both ends of the transfer, without any tunnel.
    pub(crate) cpu: f64,
}

/// Files in a folder, of random bytes.
pub(crate) struct Files {
    folder: PathBuf,
    names: Vec<String>,
    bytes: u64,
}

impl Files {
    /// `count` files of `bytes` each. They are one file with several names, to spare memory.
    pub(crate) fn make(folder: &Path, count: usize, bytes: usize) -> Result<Self, LabError> {
        let failed = || LabError::io("files in memory");
        std::fs::create_dir_all(folder).map_err(failed())?;
        let names: Vec<String> = (0..count)
            .map(|number| format!("file-{number:03}"))
            .collect();
        let mut content = vec![0; bytes];
        aws_lc_rs::rand::fill(&mut content)
            .map_err(|_| LabError::Unexpected("no random numbers".to_owned()))?;
        let mut first: Option<PathBuf> = None;
        for name in &names {
            let path = folder.join(name);
            match &first {
                None => {
                    std::fs::write(&path, &content).map_err(failed())?;
                    first = Some(path);
                }
                Some(first) => std::fs::hard_link(first, path).map_err(failed())?,
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            names,
            bytes: bytes as u64 * count as u64,
        })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("file-000")
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends all in one FTP session.
    pub(crate) fn send(&self, tunnel: &Tunnel<'_>, round: &mut Round) -> Result<Sent, LabError> {
        let address = tunnel.server.to_string();
        let call = tunnel.network.call(Side::Server, ourselves()?);
        let call = call.args(["ftp-server", "--address", &address]);
        let mut server = call.start(&tunnel.log("ftp"))?;
        server.wait_for(LIMIT, |server| server.said().contains("listening"))?;
        let began = Instant::now();
        let done = tunnel
            .network
            .call(Side::Client, ourselves()?)
            .args(["ftp-client", "--server", &format!("{address}:21")])
            .args(&self.names)
            .folder(&self.folder)
            .limit(LIMIT)
            .run()?;
        let seconds = began.elapsed().as_secs_f64();
        let said = server.said();
        let received = said
            .lines()
            .filter_map(|line| line.strip_prefix("received "));
        let received: u64 = received.filter_map(|bytes| bytes.parse::<u64>().ok()).sum();
        if received != self.bytes {
            let text = format!("{received} of {} bytes arrived", self.bytes);
            return Err(LabError::Unexpected(text));
        }
        round.used("ftp client", done.usage);
        let taken = server.usage();
        round.used("ftp server", taken);
        Ok(Sent {
            rate: self.bytes as f64 * 8.0 / seconds / 1e6,
            seconds,
            cpu: done.usage.cpu + taken.cpu,
        })
    }
}
