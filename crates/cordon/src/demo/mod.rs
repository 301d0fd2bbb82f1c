//! `cordon demo`: a whole site on this machine, with a camera that sees drawn traffic.
//!
//! Nothing is shortened: the camera enrols over EST with a one-time code, watches a folder, seals,
//! spools and uploads over mTLS, exactly as `cordon camera run` does in the field.

mod people;
mod tunnel;

use pki::key::Passphrase;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use camera::{Agent, AgentError, Clock, Environment, NoEvents};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::Demo;
use commandline::stop_on_signals;
use commandline::{Failure, OrHint as _, Outcome};
use site::Site;
use site::administrator::{Caller, admit};
use site::authority_texts::authorities_pem;
use site::console::this_process;
use site::control::{Request, execute};
use site::up::Running;
use tunnel::Tunnel;

/// File that says that a folder is the demo's.
const MARK: &str = ".demo";
/// Name of the demo's camera.
const DEVICE: &str = "camera-17";
/// The camera may seal what the most sensitive pictures need.
const CLEARANCE: u8 = 3;
/// Address of the directory's LDAP listener.
const LDAP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8636);
/// Time without progress for which the demo waits for receipts.
const STALL: Duration = Duration::from_secs(60);
/// Folder that the camera watches, and that of its blocks, both below its own.
const INCOMING: &str = "incoming";
const BLOCKS: &str = "spool/blocks";
const LOOK: Duration = Duration::from_millis(50);

pub(crate) async fn run(args: &Demo, json: bool) -> Outcome {
    let started = Instant::now();
    claim(&args.site.data)?;
    let mut site = Site::open_to_run(&args.site).await?;
    if args.site.config.is_none() {
        site.config.listen.ldap = Some(LDAP);
        free_ports(&mut site);
    }
    let mut tunnel = lay_tunnel(&mut site, args).await;
    let running = Running::start(&site).await?;
    stop_on_signals(running.stop_token())?;
    let people = people::ensure(&site).await?;
    let camera = DemoCamera::prepare(&site, &running).await?;
    let connected = match &mut tunnel {
        Some(tunnel) => tunnel.connect(&site, &site.data.join(DEVICE)).await,
        None => Ok(()),
    };
    let received = match connected {
        Ok(()) => {
            let tunnel = tunnel.as_ref();
            camera.send(args.violations, &running, tunnel, json).await
        }
        Err(failure) => Err(failure),
    };
    let (used, moves) = (tunnel.is_some(), tunnel.as_ref().map_or(0, Tunnel::moves));
    let receipts = match received {
        Ok(receipts) => receipts,
        Err(failure) => {
            tunnel.into_iter().for_each(Tunnel::end);
            running.stop_token().cancel();
            let stopped = running.until_stopped().await;
            return Err(failure).or_else(|failure: Failure| stopped.and(Err(failure)));
        }
    };
    let view = site
        .audit
        .view()
        .or_hint("cannot read the audit log", "check the disk")?;
    let url = running.portal_url(&site);
    let ldap = running.ldap.map(|ldap| Ldap::new(&site, ldap, &people));
    let value = json!({
        "violations": args.violations,
        "receipts": receipts,
        "portal_url": url,
        "audit_checkpoint": view.note(),
        "audit_events": view.size(),
        "people": people.files(),
        "ldap_url": ldap.as_ref().map(|ldap| &ldap.url),
        "ldap_base": ldap.as_ref().map(|ldap| &ldap.base),
        "ldap_ca_file": ldap.as_ref().map(|ldap| &ldap.ca_file),
        "ldap_bind": ldap.as_ref().map(Ldap::bind),
        "data": site.data,
        "tunnel": used,
        "tunnel_moves": moves,
        "seconds": started.elapsed().as_secs_f32(),
    });
    let text = summary(&site, &people, receipts, &url, args.once, ldap.as_ref());
    crate::commands::print(json, &value, &text)?;
    if args.once {
        running.stop_token().cancel();
    }
    let outcome = running.until_stopped().await;
    tunnel.into_iter().for_each(Tunnel::end);
    outcome
}

/// Marks a new folder as the demo's, and refuses any other that is not: it makes people with rights and passwords.
fn claim(data: &Path) -> Outcome {
    let mark = data.join(MARK);
    let hint = "check the folder's rights";
    // Versions before the mark left this folder.
    if mark.exists() || data.join("people").exists() {
        return Ok(());
    }
    durable::create_dir_all(data).or_hint(format!("cannot make {}", data.display()), hint)?;
    let mut items =
        std::fs::read_dir(data).or_hint(format!("cannot read {}", data.display()), hint)?;
    if items.next().is_some() {
        let what = anyhow::anyhow!("{} was not made by the demo", data.display());
        return Err(Failure::new(what, "name a new folder with --data"));
    }
    durable::write_new(&mark, b"", 0o600).or_hint(format!("cannot write {}", mark.display()), hint)
}

/// Carries out what this process may order on this site, as a command would be.
async fn order(site: &Site, request: Request) -> Outcome<serde_json::Value> {
    let caller = Caller {
        unix: this_process(),
        proof: None,
        offline: false,
    };
    let giver = admit(site, &request, caller).await?;
    execute(site, request, &giver).await
}

/// The tunnel between camera and centre, where this host lets us: it takes root. The centre then listens
/// behind it and nowhere else.
async fn lay_tunnel(site: &mut Site, args: &Demo) -> Option<Tunnel> {
    if args.site.config.is_some() {
        tracing::info!(
            "the camera goes without tunnel: the configuration says where the centre is"
        );
        return None;
    }
    let own = site.data.join("passphrase");
    let passphrase = args.site.passphrase_file.as_ref().unwrap_or(&own);
    match Tunnel::prepare(site, passphrase).await {
        Ok(tunnel) => {
            site.config.listen.intake.set_ip(Tunnel::centre());
            Some(tunnel)
        }
        Err(failure) => {
            let reason = failure.message();
            tracing::warn!(reason, "the camera goes without tunnel, over mTLS alone");
            None
        }
    }
}

/// Takes any free port where a default one is taken: two demos on one machine must not collide.
fn free_ports(site: &mut Site) {
    let listen = &mut site.config.listen;
    for address in [
        &mut listen.portal,
        &mut listen.intake,
        &mut listen.enrolment,
        &mut listen.metrics,
    ]
    .into_iter()
    .chain(&mut listen.ldap)
    {
        if std::net::TcpListener::bind(*address).is_err() {
            tracing::warn!(port = address.port(), "port is taken, using a free one");
            address.set_port(0);
        }
    }
}

/// The directory over LDAP, with an example.
struct Ldap {
    url: String,
    base: String,
    ca_file: PathBuf,
    bind_dn: String,
    password_file: PathBuf,
}

impl Ldap {
    fn new(site: &Site, address: SocketAddr, people: &people::People) -> Self {
        let (uid, password_file) = people.example();
        let base = site.ldap_base();
        Self {
            url: site.ldap_url(address),
            ca_file: site.data.join("pki/root.pem"),
            bind_dn: format!("uid={uid},ou=people,{base}"),
            base,
            password_file,
        }
    }

    /// For machines: who can bind.
    fn bind(&self) -> serde_json::Value {
        json!({ "dn": self.bind_dn, "password_file": self.password_file })
    }

    /// A command that works in bash: `-y` takes a line's end for a part of the password.
    fn help(&self) -> String {
        let (ca, password) = (self.ca_file.display(), self.password_file.display());
        format!(
            "The directory answers LDAP at  {}  (Debian package ldap-utils):\n  \
             LDAPTLS_CACERT={ca} ldapsearch -LLL -H {} -x -D {} \\\n    \
             -y <(tr -d '\\n' < {password}) -b {} '(mail=reviewer-3@example.org)'\n\n",
            self.url, self.url, self.bind_dn, self.base
        )
    }
}

/// The text at the end, for people.
fn summary(
    site: &Site,
    people: &people::People,
    receipts: u64,
    url: &str,
    once: bool,
    ldap: Option<&Ldap>,
) -> String {
    let data = site.data.display();
    let mut text =
        format!("\n{receipts} violations are sealed, received, archived and receipted.\n\n");
    if !once {
        text.push_str(&format!("The portal runs at  {url}  (Ctrl-C stops it)\n\n"));
        text.push_str(&people.help());
        text.push_str(&ldap.map(Ldap::help).unwrap_or_default());
    }
    text.push_str(&format!(
        "Try next:\n  \
         cordon audit verify {data}/audit/log\n  \
         cordon audit show {data}/audit/log --last 10\n  \
         cordon pki list --data {data}\n  \
         cordon pki revoke --data {data} --uid officer-2\n  \
         cordon evidence export --data {data} --out package --as {data}/people/reviewer-3.p12 \\\n    \
         --as-password-file {data}/people/reviewer-3.password VIOLATION\n",
    ));
    text
}

/// The demo's camera agent with the folder it watches.
struct DemoCamera {
    agent: Agent,
    folder: PathBuf,
    first: u64,
}

impl DemoCamera {
    /// Configures the camera; the first time it gets a one-time code and enrols.
    async fn prepare(site: &Site, running: &Running) -> Outcome<Self> {
        let folder = site.data.join(DEVICE);
        for part in [INCOMING, "rejected", BLOCKS] {
            let part = folder.join(part);
            durable::create_dir_all(&part).or_hint(
                format!("cannot make {}", part.display()),
                "check the folder's rights",
            )?;
        }
        write(&folder.join("root.pem"), site.trust.root_pem()?.as_bytes())?;
        write(
            &folder.join("authorities.pem"),
            authorities_pem(&site.registry)?.as_bytes(),
        )?;
        write(
            &folder.join("recipients.pem"),
            site.credentials
                .recipients_pem(time::OffsetDateTime::now_utc())?
                .as_bytes(),
        )?;
        if !folder.join("identity.pem").exists() {
            let request = Request::Code {
                device: DEVICE.to_owned(),
                clearance: CLEARANCE,
                hours: 1,
            };
            let answer = order(site, request).await?;
            let code = crate::commands::text(&answer, "code");
            write(&folder.join("code"), code.as_bytes())?;
        }
        let config = toml::from_str(&settings(&folder, running));
        let config = config.or_hint("the demo's camera settings", "report this")?;
        let passphrase = camera_passphrase(&folder)?;
        let environment = Environment {
            passphrase,
            events: Arc::new(NoEvents),
            clock: Clock::system(),
        };
        let agent = Agent::prepare(config, environment).await.or_hint(
            "the demo's camera cannot start",
            "remove its folder to enrol it anew",
        )?;
        let first = next_number(&folder)?;
        Ok(Self {
            agent,
            folder,
            first,
        })
    }

    /// Lets the camera see `count` violations and waits for all receipts; returns how many came.
    ///
    /// With a tunnel the camera has no other way, and half-way its first cable is cut.
    async fn send(
        self,
        count: u64,
        running: &Running,
        tunnel: Option<&Tunnel>,
        json: bool,
    ) -> Outcome<u64> {
        let metrics = self.agent.metrics();
        // What an earlier, interrupted run left is receipted as well.
        let left = waiting(&self.folder)?;
        let wanted = left + count;
        let stop = running.stop_token();
        let agent = start_agent(self.agent, stop.clone(), tunnel)?;
        let mut to_cut = tunnel;
        let (incoming, first) = (self.folder.join(INCOMING), self.first);
        let halt = stop.clone();
        // The second half is for after the cut, however quick the first one was.
        let cut = Arc::new(AtomicBool::new(to_cut.is_none()));
        let may_go_on = Arc::clone(&cut);
        let drawing =
            tokio::task::spawn_blocking(move || draw(&incoming, first, count, &may_go_on, &halt));
        let mut drawing = Some(drawing);
        let bar = progress(wanted, json);
        let mut moved = (Instant::now(), 0);
        loop {
            if drawing.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(drawing) = drawing.take()
            {
                drawing.await.or_hint("drawing died", "report this")??;
            }
            let now = metrics.snapshot();
            bar.set_position(now.receipted.min(wanted));
            if now.quarantined > 0 || now.rejected > 0 {
                let error = anyhow::anyhow!(
                    "the centre refused {} and the camera {} of the demo's own pictures",
                    now.quarantined,
                    now.rejected
                );
                return Err(Failure::new(error, "see the audit log, and report this"));
            }
            // Not by number: a picture whose block was sealed when an earlier run was killed counts twice.
            let nothing_waits = waiting(&self.folder)? == 0;
            if nothing_waits && drawing.is_none() && !stop.is_cancelled() {
                break;
            }
            if (nothing_waits && now.receipted > 0 || now.receipted * 2 >= wanted)
                && let Some(tunnel) = to_cut.take()
            {
                tunnel.cut()?;
                cut.store(true, Ordering::Relaxed);
            }
            if agent.is_finished() || stop.is_cancelled() {
                bar.abandon();
                let ended = agent.await.or_hint("the camera died", "report this")?;
                ended.or_hint("the camera ended", "see the log")?;
                return Err(Failure::new(
                    anyhow::anyhow!("stopped before all receipts"),
                    "start again: nothing is lost",
                ));
            }
            if now.receipted + now.spooled + now.uploaded > moved.1 {
                moved = (Instant::now(), now.receipted + now.spooled + now.uploaded);
            } else if moved.0.elapsed() > STALL {
                let error = anyhow::anyhow!("no receipt for {} seconds", STALL.as_secs());
                return Err(Failure::new(
                    error,
                    "see the log; blocks wait in the camera's spool",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        bar.finish_and_clear();
        Ok(count)
    }
}

/// Runs the agent here, or in the camera's own network.
fn start_agent(
    agent: Agent,
    stop: CancellationToken,
    tunnel: Option<&Tunnel>,
) -> Outcome<JoinHandle<Result<(), AgentError>>> {
    let Some(tunnel) = tunnel else {
        return Ok(tokio::spawn(agent.run(stop.cancelled_owned())));
    };
    let (ended, end) = tokio::sync::oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let result = match runtime {
            Ok(runtime) => runtime.block_on(agent.run(stop.cancelled_owned())),
            Err(error) => Err(AgentError::Watch(error)),
        };
        // The receiver may be gone.
        let _ = ended.send(result);
    };
    let start = move || {
        let thread = std::thread::Builder::new().name(DEVICE.into());
        thread.spawn(run).map(drop)
    };
    tunnel
        .inside(start)?
        .or_hint("the camera's thread", "check the limit on threads")?;
    let died = AgentError::TaskEnded { task: "camera" };
    Ok(tokio::spawn(async move { end.await.unwrap_or(Err(died)) }))
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    durable::write_atomic(path, bytes, 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "check the folder's rights",
    )
}

/// The camera's own passphrase: it is another machine in real life.
fn camera_passphrase(folder: &Path) -> Outcome<Passphrase> {
    commandline::passphrase(folder, None).map(Passphrase::new)
}

fn settings(folder: &Path, running: &Running) -> String {
    let path = |name: &str| toml::Value::String(folder.join(name).to_string_lossy().into_owned());
    format!(
        "[watch]\nfolder = {}\nrejected = {}\n\
         [spool]\nfolder = {}\nmax_bytes = 4000000000\n\
         [identity]\ndevice = \"{DEVICE}\"\nfile = {}\n\
         [trust]\nroots = {}\nauthorities = {}\nrecipients = {}\n\
         [centre]\nhost = \"{}\"\nserver_name = \"127.0.0.1\"\nport = {}\n\
         [uplink]\nbackoff_min_ms = 200\nbackoff_max_ms = 5000\n\
         [enrolment]\nhost = \"127.0.0.1\"\nport = {}\ncode_file = {}\n",
        path("incoming"),
        path("rejected"),
        path("spool"),
        path("identity.pem"),
        path("root.pem"),
        path("authorities.pem"),
        path("recipients.pem"),
        running.intake.ip(),
        running.intake.port(),
        running.enrolment.port(),
        path("code"),
    )
}

/// Pictures are numbered through all runs of the demo, so that none is drawn twice.
fn next_number(folder: &Path) -> Outcome<u64> {
    let file = folder.join("next-picture");
    match std::fs::read_to_string(&file) {
        Ok(text) => text
            .trim()
            .parse()
            .or_hint(format!("{}", file.display()), "remove the file"),
        Err(_) => Ok(1),
    }
}

/// Pictures and blocks of a camera's folder that wait for a receipt.
///
/// Looks at the pictures first: a block is on disk before its picture goes, so none is missed between the two.
fn waiting(folder: &Path) -> Outcome<u64> {
    // A picture is complete with its description, which comes after it.
    let pictures = files(&folder.join(INCOMING), "json")?;
    Ok(pictures + files(&folder.join(BLOCKS), "block")?)
}

fn files(folder: &Path, extension: &str) -> Outcome<u64> {
    let what = || format!("cannot read {}", folder.display());
    let mut count = 0;
    for entry in std::fs::read_dir(folder).or_hint(what(), "check the folder's rights")? {
        let path = entry.or_hint(what(), "check the disk")?.path();
        count += u64::from(path.extension().is_some_and(|found| found == extension));
    }
    Ok(count)
}

/// Draws pictures and puts them, complete, into the folder that the camera watches.
///
/// Half of them; the others when `may_go_on`.
fn draw(
    incoming: &Path,
    first: u64,
    count: u64,
    may_go_on: &AtomicBool,
    stop: &CancellationToken,
) -> Outcome {
    let folder = incoming.parent().unwrap_or(incoming);
    for number in first..first + count {
        while number == first + count.div_ceil(2)
            && !may_go_on.load(Ordering::Relaxed)
            && !stop.is_cancelled()
        {
            std::thread::sleep(LOOK);
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        scene::draw(incoming, folder, number, DEVICE).or_hint("cannot draw", "check the disk")?;
        write(
            &folder.join("next-picture"),
            (number + 1).to_string().as_bytes(),
        )?;
    }
    Ok(())
}

fn progress(wanted: u64, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{spinner} receipts {bar:40} {pos}/{len}  {per_sec}  {elapsed}",
    );
    ProgressBar::new(wanted).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
