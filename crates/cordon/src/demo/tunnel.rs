//! The demo's tunnel: the camera sits in a network namespace of its own with two cables, and reaches the
//! centre only through IKEv2 and ESP. One cable is cut on the way; the tunnel moves to the other.
//!
//! ```text
//! namespace of the camera                          this host
//! 10.207.18.2 ──────────── first cable ──────────── 10.207.18.1 ┐
//! 10.207.18.6 ─────────── second cable ──────────── 10.207.18.5 ┴ gateway ── 10.207.17.1 intake
//! ```
//!
//! It takes root. At every end of the demo, namespace, cables and interfaces go with its threads.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tunnel::config::Prefix;
use tunnel::namespace::{self, Cable, Namespace};
use vpn::ResolvedConfig;
use vpn::daemon::{self, DaemonHandle, Thread};

use super::DEVICE;
use commandline::{OrHint as _, Outcome};
use site::Site;
use site::control::{GATEWAY_ROLE, as_values, take_over};

/// The centre inside the tunnel.
const CENTRE: Ipv4Addr = Ipv4Addr::new(10, 207, 17, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 207, 18, 1);
/// The neighbour on the second cable.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 207, 18, 5);
/// Longest wait for the tunnel.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
/// Interval between looks at the revocation list.
const LOOK_AT_CRL: Duration = Duration::from_secs(2);
const HINT: &str = "see the log; without root the demo goes on over mTLS alone";

/// Both ends of the demo's tunnel.
pub(super) struct Tunnel {
    namespace: Namespace,
    gateway: DaemonHandle,
    camera: Option<DaemonHandle>,
    first_cable: String,
    threads: Vec<std::thread::JoinHandle<()>>,
    feed: tokio::task::JoinHandle<()>,
}

impl Tunnel {
    /// Lays the cables and starts the gateway, before the site listens behind it.
    pub(super) async fn prepare(site: &Site, passphrase: &Path) -> Outcome<Self> {
        namespace::sweep(is_left)
            .await
            .or_hint("old cables", HINT)?;
        let namespace = Namespace::create().or_hint("no network namespace", HINT)?;
        let names = |cable: &str| {
            let pid = std::process::id();
            (format!("cd{cable}{pid}"), format!("cd{cable}{pid}i"))
        };
        let (first, second) = (names("a"), names("b"));
        for (names, outside, inside) in [
            (&first, GATEWAY, Ipv4Addr::new(10, 207, 18, 2)),
            (&second, SECOND, Ipv4Addr::new(10, 207, 18, 6)),
        ] {
            let end = |address: Ipv4Addr| Prefix {
                address: IpAddr::V4(address),
                bits: 30,
            };
            let cable = Cable {
                outside: (&names.0, end(outside)),
                inside: (&names.1, end(inside)),
            };
            namespace.lay(&cable).await.or_hint("no cable", HINT)?;
        }
        namespace.route_by(SECOND).or_hint("no route", HINT)?;
        let folder = site.data.join("tunnel");
        durable::create_dir_all(&folder).or_hint("the tunnel's folder", HINT)?;
        let crl = site.data.join("pki/crl/devices.crl");
        let name = site.config.site.names.first().cloned().unwrap_or_default();
        let mut loaded = load(&folder, &gateway_settings(&site.data, passphrase, &name))?;
        let log = site
            .audit
            .role(GATEWAY_ROLE)
            .or_hint("the gateway's journal", HINT)?;
        let take = move |first, events| take_over(&log, first, &as_values(events)?);
        loaded.central = Some(Box::new(take));
        let started = daemon::start(loaded, &folder, seed()).await;
        let (work, gateway) = started.or_hint("no gateway", HINT)?;
        let mut threads = Vec::new();
        spawn(work, &mut threads);
        Ok(Self {
            namespace,
            feed: tokio::spawn(feed(gateway.clone(), crl)),
            gateway,
            camera: None,
            first_cable: first.1,
            threads,
        })
    }

    /// Address of the centre.
    pub(super) const fn centre() -> IpAddr {
        IpAddr::V4(CENTRE)
    }

    /// Starts the camera's end, which has its certificate by now, and waits until it is up.
    pub(super) async fn connect(&mut self, site: &Site, folder: &Path) -> Outcome {
        let name = site.config.site.names.first().cloned().unwrap_or_default();
        let loaded = load(folder, &camera_settings(&site.data, folder, &name))?;
        let own = folder.to_owned();
        let start = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let mut threads = Vec::new();
            let started = runtime.block_on(daemon::start(loaded, &own, seed()));
            let (work, handle) = started.map_err(std::io::Error::other)?;
            spawn(work, &mut threads);
            std::io::Result::Ok((handle, threads))
        };
        let started = self.namespace.run(start).and_then(|started| started);
        let (camera, threads) = started.or_hint("the camera's end of the tunnel", HINT)?;
        self.threads.extend(threads);
        let handle = camera.clone();
        self.camera = Some(camera);
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is_up(&handle) {
            if tokio::time::Instant::now() > end {
                return Err(anyhow::anyhow!("it does not come up"))
                    .or_hint("the demo's tunnel", HINT);
            }
            tokio::time::sleep(LOOK).await;
        }
        tracing::info!("the camera reaches the centre through the tunnel");
        Ok(())
    }

    /// Does something where only the tunnel leads to the centre; threads stay there.
    pub(super) fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Outcome<T> {
        self.namespace
            .run(work)
            .or_hint("the camera's network", HINT)
    }

    /// Cuts the first cable.
    pub(super) fn cut(&self) -> Outcome {
        tracing::info!("cutting the first cable; the tunnel moves to the second");
        self.namespace
            .cut(&self.first_cable)
            .or_hint("the cable", HINT)
    }

    /// Counts the moves of the tunnel without a loss.
    pub(super) fn moves(&self) -> u64 {
        let status = self.gateway.status();
        status.map_or(0, |status| status.ike.counters.moves)
    }

    /// Ends both ends and waits for their threads.
    pub(super) fn end(mut self) {
        self.feed.abort();
        if let Some(camera) = &self.camera {
            camera.stop();
        }
        self.gateway.stop();
        for thread in self.threads.drain(..) {
            // One that died has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.feed.abort();
        if let Some(camera) = &self.camera {
            camera.stop();
        }
        self.gateway.stop();
    }
}

/// Whether an interface is a cable of a demo that no longer runs.
fn is_left(name: &str) -> bool {
    let pid = name
        .strip_prefix("cda")
        .or_else(|| name.strip_prefix("cdb"));
    let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

fn is_up(handle: &DaemonHandle) -> bool {
    let status = handle.status();
    status.is_some_and(|status| status.ike.counters.child_sas > 0)
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // It only spreads a cache; zero is as safe.
    let _ = aws_lc_rs::rand::fill(&mut seed);
    u64::from_ne_bytes(seed)
}

fn spawn(work: Vec<Thread>, threads: &mut Vec<std::thread::JoinHandle<()>>) {
    for (name, run) in work {
        let spawned = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                if let Err(error) = run() {
                    tracing::error!(%error, name, "a thread of the tunnel ended");
                }
            });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::error!(%error, name, "a thread of the tunnel does not start"),
        }
    }
}

fn load(folder: &Path, settings: &str) -> Outcome<ResolvedConfig> {
    let signer = tunnel_tools::start_key_process()?;
    let loaded =
        ResolvedConfig::read(settings, folder, &signer).or_hint("the tunnel's settings", HINT)?;
    let lists = daemon::read_crls(loaded.crl_files()).or_hint("revocation lists", HINT)?;
    loaded.accept_crls(&lists);
    Ok(loaded)
}

/// Tells the gateway of each new revocation list: `cordon pki revoke` closes the tunnel.
async fn feed(gateway: DaemonHandle, crl: PathBuf) {
    let mut known = Vec::new();
    loop {
        if let Ok(list) = tokio::fs::read(&crl).await
            && list != known
        {
            gateway.revocation_lists(vec![list.clone()]);
            known = list;
        }
        tokio::time::sleep(LOOK_AT_CRL).await;
    }
}

fn quoted(path: &Path) -> String {
    toml::Value::String(path.to_string_lossy().into_owned()).to_string()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn gateway_settings(data: &Path, passphrase: &Path, name: &str) -> String {
    let file = |name: &str| quoted(&absolute(&data.join(name)));
    format!(
        "status = \"unused.sock\"\naudit = {{ folder = \"journal\" }}\n\
         [interface]\nname = \"cordon-demo\"\naddresses = [\"{CENTRE}/24\"]\n\
         [path]\nlisten = \"{GATEWAY}\"\n\
         [trust]\nanchors = [{}]\ncrls = [{}]\nrequire_crl = true\n\
         [[pool]]\nname = \"cameras\"\naddresses = [\"10.207.17.128/25\"]\n\
         [[connection]]\nname = \"cameras\"\nremote_id = \"any\"\nlocal_id = \"{name}\"\n\
         pool = \"cameras\"\n\
         certificate = {}\nkey = {}\npassphrase_file = {}\n\
         [[connection.child]]\nname = \"intake\"\nlocal = [\"{CENTRE}/32\"]\n",
        file("pki/devices-ca.pem"),
        file("pki/crl/devices.crl"),
        file("keys/server.pem"),
        file("keys/server.key"),
        quoted(&absolute(passphrase)),
    )
}

fn camera_settings(data: &Path, folder: &Path, gateway: &str) -> String {
    let own = |name: &str| quoted(&absolute(&folder.join(name)));
    format!(
        "status = \"unused.sock\"\n\
         [interface]\nname = \"{DEVICE}\"\n\
         [trust]\nanchors = [{}]\n\
         [[connection]]\nname = \"centre\"\nremote = \"{GATEWAY}\"\nremote_id = \"{gateway}\"\n\
         certificate = {}\nkey = {}\npassphrase_file = {}\n\
         request = [\"ipv4\"]\nstart = \"start\"\n\
         [[connection.child]]\nname = \"intake\"\nremote = [\"{CENTRE}/32\"]\n",
        quoted(&absolute(&data.join("pki/services-ca.pem"))),
        own("identity.pem"),
        own("identity.pem"),
        own("passphrase"),
    )
}
