//! A tunnel between the two namespaces, and what every kind of it is started with.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LabError;
use crate::network::{IP, Network, Side};
use crate::process::{Call, Daemon};
use crate::program::Program;
use crate::session::Round;

pub(crate) const PING: Program = Program {
    name: "ping",
    package: "iputils-ping",
    version: &["-V"],
};

/// Longest start of a tunnel.
pub(super) const UP: Duration = Duration::from_secs(20);

/// A tunnel that is up; it ends with this.
pub(crate) struct Tunnel<'a> {
    pub(crate) network: &'a Network,
    pub(super) folder: PathBuf,
    /// Address of the server inside the tunnel.
    pub(crate) server: Ipv4Addr,
    pub(super) daemons: Vec<(Side, Daemon)>,
}

impl<'a> Tunnel<'a> {
    /// A tunnel of which nothing runs yet: the cable itself.
    pub(super) fn new(network: &'a Network, folder: &Path) -> Self {
        Self {
            network,
            folder: folder.to_owned(),
            server: Side::Server.outside(),
            daemons: Vec::new(),
        }
    }

    /// A daemon of one side; what it prints goes into the folder.
    pub(super) fn spawn(&mut self, side: Side, call: Call) -> Result<&mut Daemon, LabError> {
        let log = self
            .folder
            .join(format!("{}-{}.log", side.name(), self.daemons.len()));
        self.daemons.push((side, call.start(&log)?));
        let (_, daemon) = self.daemons.last_mut().ok_or_else(lost)?;
        Ok(daemon)
    }

    /// A file that only we may read: most hold keys.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, LabError> {
        let path = self.folder.join(name);
        write_private(&path, text)?;
        Ok(path)
    }

    /// Waits until both sides send what is for the other one's outside into `tunnel0`: in transport mode a ping is
    /// answered without the tunnel, too.
    pub(super) fn routed(&mut self) -> Result<(), LabError> {
        let network = self.network;
        for (side, daemon) in &mut self.daemons {
            let peer = side.other().outside().to_string();
            let routed = |_: &Daemon| {
                let call = network.call(*side, IP.name);
                let route = call.args(["route", "get", &peer]).any_exit().run();
                route.is_ok_and(|done| done.stdout.contains(" dev tunnel0 "))
            };
            daemon.wait_for(UP, routed)?;
        }
        Ok(())
    }

    /// Waits for an answer to a ping.
    pub(super) fn answers(&mut self) -> Result<(), LabError> {
        let (network, server) = (self.network, self.server.to_string());
        let ping = || {
            let call = network.call(Side::Client, PING.name);
            call.args(["-c", "1", "-W", "1", &server]).any_exit().run()
        };
        match self.daemons.last_mut() {
            Some((_, daemon)) => {
                let answered = |_: &Daemon| ping().is_ok_and(|d| d.stdout.contains(" 1 received"));
                daemon.wait_for(UP, answered)?;
            }
            None => {
                ping()?;
            }
        }
        Ok(())
    }

    /// A file for what a program prints.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Processor seconds of its processes since they began.
    pub(crate) fn cpu(&self) -> f64 {
        self.daemons
            .iter()
            .map(|(_, daemon)| daemon.usage().cpu)
            .sum()
    }

    /// Notes what its processes used since they began.
    pub(crate) fn account(&self, round: &mut Round) {
        for (side, daemon) in &self.daemons {
            round.used(&format!("{}, {}", daemon.name, side.name()), daemon.usage());
        }
    }
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        // In an orderly way, so that interfaces and routes are gone before the next tunnel comes.
        for (_, daemon) in self.daemons.drain(..).rev() {
            daemon.stop();
        }
    }
}

fn lost() -> LabError {
    LabError::Unexpected("a daemon was lost".to_owned())
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LabError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(LabError::io(format!("cannot write {}", path.display())))
}

/// Random bytes as hexadecimal digits, for keys that live as long as a case.
pub(super) fn random_hex(bytes: usize) -> Result<String, LabError> {
    let mut key = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut key)
        .map_err(|_| LabError::Unexpected("no random numbers".to_owned()))?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// This program, as a server or a load of the lab.
pub(crate) fn ourselves() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(LabError::io("this program's own file"))
}

/// The program that is measured, `cordon`: beside this one, or in `PATH`.
pub(crate) fn product() -> Result<PathBuf, LabError> {
    let beside = ourselves()?.with_file_name("cordon");
    Ok(match beside.exists() {
        true => beside,
        false => PathBuf::from("cordon"),
    })
}

/// Least, average and greatest round trip of echo requests in microseconds, one after the other as fast
/// as they come back.
pub(crate) fn round_trips(
    tunnel: &Tunnel<'_>,
    bytes: usize,
    count: u32,
    round: &mut Round,
) -> Result<[f64; 3], LabError> {
    let done = tunnel
        .network
        .call(Side::Client, PING.name)
        .args([
            "-q",
            "-f",
            "-c",
            &count.to_string(),
            "-s",
            &bytes.to_string(),
        ])
        .arg(tunnel.server.to_string())
        .run()?;
    round.used("ping", done.usage);
    // rtt min/avg/max/mdev = 0.020/0.031/0.210/0.011 ms
    let unclear = || LabError::Unexpected(format!("ping gave no times: {}", done.stdout.trim()));
    let (_, times) = done.stdout.rsplit_once(" = ").ok_or_else(unclear)?;
    let mut times = times
        .split('/')
        .filter_map(|time| time.trim().parse::<f64>().ok());
    let mut next = || times.next().map(|ms| ms * 1000.0).ok_or_else(unclear);
    Ok([next()?, next()?, next()?])
}
