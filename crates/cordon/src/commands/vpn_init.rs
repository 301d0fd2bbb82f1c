//! `cordon vpn init`: from a few questions to both sides' files.

mod files;
mod local;
mod questions;
mod text;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pki::name::{AltName, Subject};
use serde_json::json;
use tunnel::config::Prefix;
use zeroize::Zeroizing;

use self::files::Files;
use self::questions::Questions;
use self::text::{Client, Gateway, Side};
use super::openvpn::{alt_name, certify};
use super::vpn_prepare::{self, Step};
use super::{print, read_text, vpn_check};
use crate::cli::SiteArgs;
use crate::failure::{Failure, Outcome};
use crate::openvpn::CertificateRequest;

/// Bytes of a generated secret.
const SECRET: usize = 32;
/// Name of the file with the settings in each folder.
pub(super) const SETTINGS: &str = "vpn.toml";

/// Kinds of tunnels.
#[derive(Debug, Subcommand)]
pub(crate) enum Init {
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
}

/// `cordon vpn init site-to-site`.
#[derive(Debug, Args)]
pub(crate) struct SiteToSite {
    #[command(flatten)]
    common: Common,
    /// Address of this host outside; that of its default route unless given.
    #[arg(long, value_name = "ADDRESS")]
    local: Option<IpAddr>,
    /// Address of the other gateway outside.
    #[arg(long, value_name = "ADDRESS")]
    remote: Option<IpAddr>,
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
pub(crate) struct GatewayArgs {
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
    /// Network of which peers get their addresses.
    #[arg(long, value_name = "NETWORK")]
    pool: Option<Prefix>,
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
    fn list(&self, name: &str) -> Option<String> {
        let base = self.crl_url.as_ref()?.trim_end_matches('/');
        Some(format!("{base}/{name}.crl"))
    }
}

/// `cordon vpn init roadwarrior`.
#[derive(Debug, Args)]
pub(crate) struct Roadwarrior {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    site: Site,
    /// The gateway's settings, for its name and networks.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The gateway's address outside.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
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
pub(crate) struct CameraArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    site: Site,
    /// The gateway's settings, for its name and networks.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The gateway's address outside.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// The camera's folder, with camera.toml.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) async fn run(command: Init, json: bool) -> Outcome {
    match command {
        Init::SiteToSite(args) => site_to_site(args, json).await,
        Init::Gateway(args) => gateway(args, json).await,
        Init::Roadwarrior(args) => roadwarrior(args, json).await,
        Init::Camera(args) => camera(args, json).await,
    }
}

async fn site_to_site(args: SiteToSite, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let remote = ask.one("Address of the other gateway outside", args.remote, None)?;
    let own = local::address_towards(remote);
    let local = ask.one("Address of this host outside", args.local, own)?;
    let beside = local::networks_beside(local);
    let here = ask.networks("Networks here", args.local_network, &beside)?;
    let there = ask.networks(
        "Networks behind the other gateway",
        args.remote_network,
        &[],
    )?;
    refuse_common(&here, &there)?;
    if local.is_ipv4() != remote.is_ipv4() {
        let what = format!("{local} and {remote} are of different families");
        return Err(Failure::usage(
            what,
            "name the IPv4 or the IPv6 addresses of both",
        ));
    }
    let mut files = Files::new(&args.out);
    let secret = match files.existing_secret("here/secret")? {
        // The other side may have it already.
        Some(secret) => secret,
        None => generated()?,
    };
    let side = |ours: (IpAddr, &[Prefix]), theirs: (IpAddr, &[Prefix])| {
        let side = Side {
            ours,
            theirs,
            own: ours.1.iter().filter_map(text::host_of).collect(),
        };
        side.settings()
    };
    let (mine, other) = ((local, &*here), (remote, &*there));
    files.add(&format!("here/{SETTINGS}"), side(mine, other).into_bytes());
    files.add("here/secret", secret.to_vec());
    let carried = [
        (SETTINGS, side(other, mine).into_bytes()),
        ("secret", secret.to_vec()),
    ];
    match args.tar {
        true => files.add("there.tar", files::tar("there", &carried)),
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
    finish(
        &args.common,
        ask,
        files,
        &format!("here/{SETTINGS}"),
        args.files_only,
        &next,
        json,
    )
    .await
}

async fn gateway(args: GatewayArgs, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let name = match args.name.first() {
        Some(name) => name.clone(),
        None => ask.one("Host name of this gateway", None, local::host_name())?,
    };
    let networks = ask.networks(
        "Networks that peers reach",
        args.network.clone(),
        &local::networks(),
    )?;
    let free = text::free_pool(&networks);
    let given = args.pool.into_iter().collect();
    let pools = ask.networks(
        "Network of which peers get addresses",
        given,
        free.as_slice(),
    )?;
    let [pool] = *pools else {
        let what = "peers get addresses of one network";
        return Err(Failure::usage(what, "name one with --pool"));
    };
    refuse_common(&networks, &[pool])?;
    let mut files = Files::new(&args.out);
    let lists = match args.site.list("devices") {
        Some(url) => ("crl_urls", url),
        None => {
            let file = local::absolute(&data.join("pki/crl/devices.crl"))?;
            ("crls", file.display().to_string())
        }
    };
    let made = Gateway {
        name: &name,
        networks: &networks,
        pool,
        lists: (lists.0, &lists.1),
    };
    files.add(SETTINGS, made.settings().into_bytes());
    let known = files.existing_secret("gateway.pem")?;
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
    if known.is_none() && ask.agrees(&files, &args.common)? {
        // What is in the way is known before anything is issued, which has to be revoked where it cannot be stored.
        files.check()?;
        let site = args.site.arguments(&data);
        let all = match args.name.is_empty() {
            true => vec![name.clone()],
            false => args.name.clone(),
        };
        let names: Vec<AltName> = all.iter().map(|name| alt_name(name)).collect();
        let request = |csr| CertificateRequest::Server { csr };
        let identity = certify(&site, &Subject::new(&*name), &names, request).await?;
        let (key, chain) = (identity.key_pem.trim_end(), &identity.chain_pem);
        files.add("gateway.pem", format!("{key}\n{chain}").into_bytes());
        files.add("devices-ca.pem", identity.devices_ca_pem.into_bytes());
        files.add("root.pem", identity.root_pem.into_bytes());
    }
    let next = format!(
        "devices of the site may come: `cordon vpn init roadwarrior` and `camera` write their side;\n\
         `cordon pki renew --file {}/gateway.pem … --watch` keeps the certificate valid",
        args.out.display()
    );
    finish(
        &args.common,
        ask,
        files,
        SETTINGS,
        args.files_only,
        &next,
        json,
    )
    .await
}

async fn roadwarrior(args: Roadwarrior, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let file = ask.path("The gateway's settings (vpn.toml)", args.gateway)?;
    let gateway = text::GatewayFile::read(&read_text(&file)?, &file)?;
    let address = ask.one("Address of the gateway outside", args.address, None)?;
    let device: String = ask.one("Name of the computer", args.device, None)?;
    if !is_plain(&device) {
        let what = format!("{device:?} cannot be the name of a folder");
        return Err(Failure::usage(
            what,
            "use up to 64 letters, digits, - and ., as in laptop-7",
        ));
    }
    let out = args.out.unwrap_or_else(|| PathBuf::from(&device));
    let mut files = Files::new(&out);
    let client = Client {
        gateway: &gateway,
        address,
        identity: "device.pem",
        passphrase: None,
        list: args.site.list("services"),
    };
    let settings = client.settings();
    let services = read_text(&data.join("pki/services-ca.pem"))?;
    let known = match args.tar {
        true => None,
        false => files.existing_secret("device.pem")?,
    };
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
    if known.is_none() && ask.agrees(&files, &args.common)? {
        files.check()?;
        let request = |csr| CertificateRequest::Device {
            name: device.clone(),
            csr,
        };
        let site = args.site.arguments(&data);
        let made = certify(&site, &Subject::new(&*device), &[], request).await?;
        let own = Zeroizing::new(format!("{}\n{}", made.key_pem.trim_end(), made.chain_pem));
        match args.tar {
            false => files.add("device.pem", own.as_bytes().to_vec()),
            true => {
                let carried = [
                    (SETTINGS, settings.into_bytes()),
                    ("services-ca.pem", services.as_bytes().to_vec()),
                    ("device.pem", own.as_bytes().to_vec()),
                ];
                files.add(&tar, files::tar(&device, &carried));
            }
        }
    }
    let next = format!(
        "{} holds a private key: carry it to {device} by a safe way, and run there\n  cordon vpn prepare --config {SETTINGS}",
        out.display()
    );
    finish(&args.common, ask, files, "", true, &next, json).await
}

async fn camera(args: CameraArgs, json: bool) -> Outcome {
    let mut ask = Questions::new(&args.common);
    let data = ask.path("Folder of the site's data", args.site.data.clone())?;
    let file = ask.path("The gateway's settings (vpn.toml)", args.gateway)?;
    let gateway = text::GatewayFile::read(&read_text(&file)?, &file)?;
    let address = ask.one("Address of the gateway outside", args.address, None)?;
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
    let client = Client {
        gateway: &gateway,
        address,
        // Both are the agent's, which renews them.
        identity: "identity.pem",
        passphrase: Some("passphrase"),
        list: args.site.list("services"),
    };
    files.add(SETTINGS, client.settings().into_bytes());
    let services = read_text(&data.join("pki/services-ca.pem"))?;
    files.add("services-ca.pem", services.as_bytes().to_vec());
    let next = format!(
        "the camera's agent keeps identity.pem in the same folder, once it has enrolled; run on the camera\n  \
         cordon vpn prepare --config {SETTINGS}"
    );
    finish(&args.common, ask, files, "", true, &next, json).await
}

/// Writes the files and prepares this host, unless these are for another one.
async fn finish(
    common: &Common,
    mut ask: Questions,
    files: Files,
    settings: &str,
    files_only: bool,
    next: &str,
    json: bool,
) -> Outcome {
    files.check()?;
    let file = files.path(settings);
    let steps = match (files_only, files.text(settings)) {
        (false, Some(text)) => vpn_prepare::steps_of(&text, &file)?,
        _ => Vec::new(),
    };
    let said: Vec<String> = steps.iter().map(Step::to_string).collect();
    let mut lines = files.describe();
    lines.extend(said.iter().cloned());
    let value = |done: bool, findings: &[vpn::host::Finding]| json!({ "files": files.names(), "steps": said, "done": done, "findings": findings });
    if common.dry_run {
        lines.insert(0, "would do, and has not done:".to_owned());
        return print(json, &value(false, &[]), &lines.join("\n"));
    }
    if !ask.may_go_on(&lines)? {
        return Err(Failure::new(
            anyhow::anyhow!("nothing was done"),
            "answer y to go on",
        ));
    }
    files.write()?;
    vpn_prepare::carry_out(&steps)?;
    let findings = match files_only {
        true => Vec::new(),
        false => vpn_check::findings(&file).await?,
    };
    lines.extend(findings.iter().map(vpn_check::line));
    lines.push(next.to_owned());
    if !files_only {
        let file = file.display();
        lines.push(format!(
            "start the tunnel with\n  cordon vpn up --config {file}\nand try it with\n  cordon vpn ping --config {file}"
        ));
    }
    print(json, &value(true, &findings), &lines.join("\n"))?;
    vpn_check::refuse_errors(&file, &findings)
}

/// Whether a device's name can be that of a folder, also in an archive, whose names have 100 bytes at most.
fn is_plain(device: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=64).contains(&device.len()) && !device.starts_with(['.', '-']) && device.bytes().all(plain)
}

/// Refuses networks that both sides have: packets between them would never reach a gateway.
fn refuse_common(ours: &[Prefix], theirs: &[Prefix]) -> Outcome {
    for (one, other) in ours
        .iter()
        .flat_map(|one| theirs.iter().map(move |other| (one, other)))
    {
        if vpn::host::common(one, other) {
            let (one, other) = (text::network(one), text::network(other));
            return Err(Failure::usage(
                format!("{one} and {other} have addresses in common"),
                "each address must lie on one side only: change the networks of one side",
            ));
        }
    }
    Ok(())
}

/// Makes a secret of 256 bits, as text.
fn generated() -> Outcome<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new([0; SECRET]);
    aws_lc_rs::rand::fill(bytes.as_mut())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    let text = Zeroizing::new(hex::encode(bytes.as_ref()));
    Ok(Zeroizing::new(format!("{}\n", text.as_str()).into_bytes()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn device_names_stay_in_their_folder() {
        assert!(super::is_plain("laptop-7.example.org") && super::is_plain(&"a".repeat(64)));
        for bad in [
            "",
            "..",
            ".ssh",
            "-x",
            "a/b",
            "../a",
            "a b",
            &"a".repeat(65),
        ] {
            assert!(!super::is_plain(bad), "{bad:?}");
        }
    }
}
