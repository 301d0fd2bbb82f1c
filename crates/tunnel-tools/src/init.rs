//! `cordon vpn init`: from a few questions to both sides' files.

pub(super) mod files;
pub(super) mod issued;
mod local;
mod outside;
mod pools;
mod questions;
mod refused;
mod tar;
mod task;
mod text;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use commandline::{Failure, Outcome, SiteArgs};
use pki::name::{AltName, Subject};
use tunnel::config::Prefix;
use vpn::config::DaemonConfig;
use zeroize::Zeroizing;

use self::files::Files;
use self::issued::Issued;
use self::outside::Outside;
use self::questions::Questions;
use self::task::Task;
use self::text::{Client, Gateway, GatewayFile, Side};
use crate::certify::{alt_name, certify};
use crate::load::read_settings;
use crate::prepare::check_interface;
use crate::site::{CertificateRequest, Control};

/// Bytes of a generated secret.
const SECRET: usize = 32;
/// Name of the file with the settings in each folder.
pub(super) const SETTINGS: &str = "vpn.toml";

/// Kinds of tunnels.
#[derive(Debug, Subcommand)]
pub enum Init {
    /// Two networks, each behind a gateway: files for this host and for the other one, with a secret that both share.
    #[command(after_help = "Example:
  cordon vpn init site-to-site --local 192.0.2.1 --remote 192.0.2.2 \\
    --local-network 10.1.0.1/16 --remote-network 10.2.0.1/16 --tar --yes
What is not named is asked for on a terminal.
An address inside a network (10.1.0.1/16) is the gateway's own there: it speaks through the tunnel from it.")]
    SiteToSite(SiteToSite),
    /// A gateway to which devices of a site come, and its certificate.
    #[command(after_help = "Example:
  cordon vpn init gateway --data /var/lib/cordon --name vpn.example.org \\
    --network 10.2.0.1/16 --pool 10.9.0.0/24 --yes")]
    Gateway(GatewayArgs),
    /// A computer on the road, and its certificate, for a gateway made by `init gateway`.
    #[command(after_help = "Example:
  cordon vpn init roadwarrior --data /var/lib/cordon --gateway gateway/vpn.toml \\
    --address 192.0.2.1 --device laptop-7 --yes")]
    Roadwarrior(Roadwarrior),
    /// A camera that has its certificate already, for a gateway made by `init gateway`.
    #[command(after_help = "Example:
  cordon vpn init camera --data /var/lib/cordon --gateway gateway/vpn.toml \\
    --address 192.0.2.1 --folder camera-17 --yes")]
    Camera(CameraArgs),
}

/// Options of every kind.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Ask nothing: what no option says has its default.
    #[arg(long)]
    yes: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Interface of the tunnel; the first of cordon0, cordon1 and so on that no other tunnel of this host has, unless given.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

impl Common {
    /// The interface for settings: that of the option, else of the same file where it is there already, else a free one.
    fn interface(&self, files: &Files, settings: &str, is_here: bool) -> Outcome<String> {
        if let Some(name) = &self.interface {
            check_interface(name)?;
            return Ok(name.clone());
        }
        let known = files.existing(settings)?;
        let known = known.and_then(|bytes| toml::from_slice::<DaemonConfig>(&bytes).ok());
        match known {
            Some(known) => Ok(known.interface.name),
            None if is_here => local::free_interface(&files.path(settings)),
            None => Ok(local::INTERFACE.to_owned()),
        }
    }
}

/// `cordon vpn init site-to-site`.
#[derive(Debug, Args)]
pub struct SiteToSite {
    #[command(flatten)]
    common: Common,
    /// Address of this host outside; that of its default route unless given.
    #[arg(long, value_name = "ADDRESS")]
    local: Option<IpAddr>,
    /// Address of the other gateway outside, or a name that has one now.
    #[arg(long, value_name = "ADDRESS")]
    remote: Option<Outside>,
    /// A network here; may be given several times. The one beside this host unless given.
    #[arg(long, value_name = "NETWORK")]
    local_network: Vec<Prefix>,
    /// A network behind the other gateway; may be given several times.
    #[arg(long, value_name = "NETWORK")]
    remote_network: Vec<Prefix>,
    /// Folder for both sides' files; `site-to-site` unless given.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "site-to-site",
        hide_default_value = true
    )]
    out: PathBuf,
    /// Put the other side's files into one file that is carried there, `there.tar`.
    #[arg(long)]
    tar: bool,
    /// Leave the settings of this host as they are: the files are for others.
    #[arg(long)]
    files_only: bool,
}

/// `cordon vpn init gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    site: Site,
    /// Host name of the gateway, as its peers know it; may be given several times.
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// A network that peers reach; may be given several times. Those beside this host unless given.
    #[arg(long, value_name = "NETWORK")]
    network: Vec<Prefix>,
    /// Network of which peers get their addresses; one of IPv4 and one of IPv6 at most. A free one for each family of the networks unless given.
    #[arg(long, value_name = "NETWORK")]
    pool: Vec<Prefix>,
    /// Folder for the files; `gateway` unless given.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "gateway",
        hide_default_value = true
    )]
    out: PathBuf,
    /// Leave the settings of this host as they are: the gateway is another one.
    #[arg(long)]
    files_only: bool,
}

/// The site that certifies.
#[derive(Debug, Args)]
pub(crate) struct Site {
    /// Folder of the site's data on this host.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The site's settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Certificate and key of the person who gives the command (PKCS#12 or PEM).
    #[arg(long = "as", value_name = "FILE")]
    as_person: Option<PathBuf>,
    /// File with the password of --as.
    #[arg(long, value_name = "FILE", requires = "as_person")]
    as_password_file: Option<PathBuf>,
    /// Where the site's revocation lists are fetched: `http://HOST/crl`. Without it, a gateway reads them in the site's folder.
    #[arg(long, value_name = "URL")]
    crl_url: Option<String>,
}

impl Site {
    fn arguments(&self, data: &Path) -> SiteArgs {
        SiteArgs {
            data: data.to_owned(),
            config: self.config.clone(),
            passphrase_file: None,
            as_person: self.as_person.clone(),
            as_password_file: self.as_password_file.clone(),
        }
    }

    /// Where a list of the site is fetched.
    fn list(&self, name: &str) -> Outcome<Option<String>> {
        let Some(base) = &self.crl_url else {
            return Ok(None);
        };
        let url = format!("{}/{name}.crl", base.trim_end_matches('/'));
        refused::unfit_url(base, &url)?;
        Ok(Some(url))
    }
}

/// `cordon vpn init roadwarrior`.
#[derive(Debug, Args)]
pub struct Roadwarrior {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    site: Site,
    /// The gateway's settings, for its name and networks.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The gateway's address outside, or a name that has one now.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Outside>,
    /// Name of the computer; the site certifies it.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Folder for the files; the device's name unless given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Put the files into one file that is carried to the computer.
    #[arg(long)]
    tar: bool,
}

/// `cordon vpn init camera`.
#[derive(Debug, Args)]
pub struct CameraArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    site: Site,
    /// The gateway's settings, for its name and networks.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The gateway's address outside, or a name that has one now.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Outside>,
    /// The camera's folder, with camera.toml.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) async fn run(command: Init, control: Control, json: bool) -> Outcome {
    match command {
        Init::SiteToSite(args) => site_to_site(args, json).await,
        Init::Gateway(args) => gateway(args, control, json).await,
        Init::Roadwarrior(args) => roadwarrior(args, control, json).await,
        Init::Camera(args) => camera(args, json).await,
    }
}

async fn site_to_site(args: SiteToSite, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let remote = ask.one("Address of the other gateway outside", args.remote, None)?;
    let own = local::address_towards(remote.address);
    let local = ask.one("Address of this host outside", args.local, own)?;
    let beside = local::networks_beside(local);
    let here = ask.networks("Networks here", args.local_network, &beside)?;
    let there = ask.networks(
        "Networks behind the other gateway",
        args.remote_network,
        &[],
    )?;
    refused::common_networks(&here, &there)?;
    refused::unfit_addresses(local, remote.address, !args.files_only)?;
    for networks in [&here, &there] {
        refused::unfit_networks(networks)?;
        refused::everything(networks)?;
    }
    let mut files = Files::new(&args.out);
    let secret = match files.existing_secret("here/secret")? {
        // The other side may have it already.
        Some(secret) => {
            refused::unfit_secret(&secret, &files.path("here/secret"))?;
            secret
        }
        None => generated()?,
    };
    let own_file = format!("here/{SETTINGS}");
    let interface = args.common.interface(&files, &own_file, !args.files_only)?;
    let side = |interface, ours: (&Outside, &[Prefix]), theirs: (&Outside, &[Prefix])| {
        let side = Side {
            interface,
            ours: (ours.0.address, ours.1),
            theirs,
            own: ours.1.iter().filter_map(text::host_of).collect(),
        };
        side.settings()
    };
    let own = Outside::from(local);
    let (mine, other) = ((&own, &*here), (&remote, &*there));
    files.add(&own_file, side(&interface, mine, other).into_bytes());
    files.add("here/secret", secret.to_vec());
    let carried = [
        (SETTINGS, side(local::INTERFACE, other, mine).into_bytes()),
        ("secret", secret.to_vec()),
    ];
    match args.tar {
        true => files.add("there.tar", tar::archive("there", &carried)),
        false => {
            for (name, bytes) in carried {
                files.add(&format!("there/{name}"), bytes);
            }
        }
    }
    let next = match args.tar {
        true => {
            "there.tar holds the secret: carry it to the other gateway by a safe way, unpack it with `tar -xf`"
        }
        false => "there holds the secret: carry the folder to the other gateway by a safe way",
    };
    let next = format!("{next}, and run in it\n  cordon vpn prepare --config {SETTINGS}");
    let facts = vec![
        format!("here    {local}, networks {}", text::shown(&here)),
        format!("there   {remote}, networks {}", text::shown(&there)),
        format!("tunnel  interface {interface} here"),
    ];
    let task = Task {
        common: &args.common,
        ask,
        files,
        settings: &own_file,
        files_only: args.files_only,
        facts,
        next,
        json,
    };
    task.run().await
}

async fn gateway(args: GatewayArgs, control: Control, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let name = match args.name.first() {
        Some(name) => name.clone(),
        None => ask.one("Host name of this gateway", None, local::host_name())?,
    };
    let all = match args.name.is_empty() {
        true => vec![name.clone()],
        false => args.name.clone(),
    };
    for name in &all {
        refused::unfit_host(name)?;
    }
    let networks = ask.networks(
        "Networks that peers reach",
        args.network.clone(),
        &local::networks(),
    )?;
    let free = pools::free(&networks);
    let pools = ask.networks("Networks of which peers get addresses", args.pool, &free)?;
    refused::unfit_pools(&networks, &pools)?;
    refused::unfit_networks(&networks)?;
    let mut files = Files::new(&args.out);
    let interface = args.common.interface(&files, SETTINGS, !args.files_only)?;
    let lists = match args.site.list("devices")? {
        Some(url) => ("crl_urls", url),
        None => {
            let file = local::absolute(&data.join("pki/crl/devices.crl"))?;
            ("crls", file.display().to_string())
        }
    };
    let made = Gateway {
        interface: &interface,
        name: &name,
        networks: &networks,
        pools: &pools,
        both_families: !args.files_only && local::has_both_families(),
        lists: (lists.0, &lists.1),
    };
    files.add(SETTINGS, made.settings().into_bytes());
    let known = files.existing_secret("gateway.pem")?;
    if let Some(known) = &known {
        refused::unfit_identity(known, &files.path("gateway.pem"))?;
    }
    for file in ["gateway.pem", "devices-ca.pem", "root.pem"] {
        match (&known, files.existing(file)?) {
            (Some(_), Some(bytes)) => files.add(file, bytes.to_vec()),
            (Some(_), None) => {
                let error =
                    anyhow::anyhow!("{} has no {file} beside gateway.pem", args.out.display());
                return Err(Failure::new(error, "name a new folder with --out"));
            }
            (None, _) => files.later(file),
        }
    }
    let next = format!(
        "devices of the site may come: `cordon vpn init roadwarrior` and `camera` write their side;\n\
         `cordon pki renew --file {}/gateway.pem … --watch` keeps the certificate valid",
        args.out.display()
    );
    let mut facts = vec![
        format!("name    {}", all.join(", ")),
        format!(
            "reach   {} through interface {interface}",
            text::shown(&networks)
        ),
        format!("peers   get addresses of {}", text::shown(&pools)),
    ];
    facts.extend(local::unknown_names(&all, !args.files_only));
    let mut task = Task {
        common: &args.common,
        ask,
        files,
        settings: SETTINGS,
        files_only: args.files_only,
        facts,
        next,
        json,
    };
    let Some(begun) = task.begin()? else {
        return Ok(());
    };
    let mut issued = None;
    if known.is_none() {
        let site = args.site.arguments(&data);
        let names: Vec<AltName> = all.iter().map(|name| alt_name(name)).collect();
        let request = |csr| CertificateRequest::Server { csr };
        let identity = certify(control, &site, &Subject::new(&*name), &names, request).await?;
        issued = Some(Issued::of(&identity.chain_pem, &site));
        let (key, chain) = (identity.key_pem.trim_end(), &identity.chain_pem);
        let files = &mut task.files;
        files.add("gateway.pem", format!("{key}\n{chain}").into_bytes());
        files.add("devices-ca.pem", identity.devices_ca_pem.into_bytes());
        files.add("root.pem", identity.root_pem.into_bytes());
    }
    task.finish(begun, issued).await
}

async fn roadwarrior(args: Roadwarrior, control: Control, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let file = ask.path("The gateway's settings (vpn.toml)", args.gateway)?;
    let gateway = GatewayFile::read(&read_settings(&file)?, &file)?;
    let address = ask.one("Address of the gateway outside", args.address, None)?;
    refused::unfit_gateway(address.address, &gateway)?;
    let device: String = ask.one("Name of the computer", args.device, None)?;
    refused::unfit_device(&device)?;
    let out = args.out.unwrap_or_else(|| PathBuf::from(&device));
    let mut files = Files::new(&out);
    let interface = args.common.interface(&files, SETTINGS, false)?;
    let client = Client {
        interface: &interface,
        gateway: &gateway,
        address: &address,
        identity: "device.pem",
        passphrase: None,
        list: args.site.list("services")?,
    };
    let settings = client.settings();
    let services = read_settings(&data.join("pki/services-ca.pem"))?;
    let known = match args.tar {
        true => None,
        false => files.existing_secret("device.pem")?,
    };
    if let Some(known) = &known {
        refused::unfit_identity(known, &files.path("device.pem"))?;
    }
    let tar = format!("{device}.tar");
    match (&known, args.tar) {
        (_, true) => files.later(&tar),
        (Some(identity), false) => files.add("device.pem", identity.to_vec()),
        (None, false) => files.later("device.pem"),
    }
    if !args.tar {
        files.add(SETTINGS, settings.clone().into_bytes());
        files.add("services-ca.pem", services.as_bytes().to_vec());
    }
    let next = format!(
        "{} holds a private key: carry it to {device} by a safe way, and run there\n  cordon vpn prepare --config {SETTINGS}",
        out.display()
    );
    let mut facts = vec![format!("device  {device}")];
    facts.extend(of_gateway(&gateway, &address));
    let mut task = Task {
        common: &args.common,
        ask,
        files,
        settings: "",
        files_only: true,
        facts,
        next,
        json,
    };
    let Some(begun) = task.begin()? else {
        return Ok(());
    };
    let mut issued = None;
    if known.is_none() {
        let request = |csr| CertificateRequest::Device {
            name: device.clone(),
            csr,
        };
        let site = args.site.arguments(&data);
        let made = certify(control, &site, &Subject::new(&*device), &[], request).await?;
        issued = Some(Issued::of(&made.chain_pem, &site));
        let own = Zeroizing::new(format!("{}\n{}", made.key_pem.trim_end(), made.chain_pem));
        match args.tar {
            false => task.files.add("device.pem", own.as_bytes().to_vec()),
            true => {
                let carried = [
                    (SETTINGS, settings.into_bytes()),
                    ("services-ca.pem", services.as_bytes().to_vec()),
                    ("device.pem", own.as_bytes().to_vec()),
                ];
                task.files.add(&tar, tar::archive(&device, &carried));
            }
        }
    }
    task.finish(begun, issued).await
}

/// Says which gateway is meant, as its settings have it.
fn of_gateway(gateway: &GatewayFile, address: &Outside) -> [String; 2] {
    [
        format!("gateway {} at {address}", gateway.name),
        format!("reach   {}", text::shown(&gateway.networks)),
    ]
}

async fn camera(args: CameraArgs, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let file = ask.path("The gateway's settings (vpn.toml)", args.gateway)?;
    let gateway = GatewayFile::read(&read_settings(&file)?, &file)?;
    let address = ask.one("Address of the gateway outside", args.address, None)?;
    refused::unfit_gateway(address.address, &gateway)?;
    let folder = ask.path("The camera's folder", args.folder)?;
    let agent = folder.join("camera.toml");
    if let Err(error) = std::fs::metadata(&agent) {
        let error = anyhow::anyhow!("{}: {error}", agent.display());
        return Err(Failure::new(
            error,
            "name the folder that `cordon registry code` made",
        ));
    }
    let mut files = Files::new(&folder);
    let interface = args.common.interface(&files, SETTINGS, false)?;
    let client = Client {
        interface: &interface,
        gateway: &gateway,
        address: &address,
        // Both are the agent's, which renews them.
        identity: "identity.pem",
        passphrase: Some("passphrase"),
        list: args.site.list("services")?,
    };
    files.add(SETTINGS, client.settings().into_bytes());
    let services = read_settings(&data.join("pki/services-ca.pem"))?;
    files.add("services-ca.pem", services.as_bytes().to_vec());
    let next = format!(
        "the camera's agent keeps identity.pem in the same folder, once it has enrolled; run on the camera\n  \
         cordon vpn prepare --config {SETTINGS}"
    );
    let task = Task {
        common: &args.common,
        ask,
        files,
        settings: "",
        files_only: true,
        facts: of_gateway(&gateway, &address).into(),
        next,
        json,
    };
    task.run().await
}

/// Makes a secret of 256 bits, as text.
fn generated() -> Outcome<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new([0; SECRET]);
    aws_lc_rs::rand::fill(bytes.as_mut())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    let text = Zeroizing::new(hex::encode(bytes.as_ref()));
    Ok(Zeroizing::new(format!("{}\n", text.as_str()).into_bytes()))
}
