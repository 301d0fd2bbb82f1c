//! `cordon vpn openvpn-profile`: configurations of an OpenVPN server and its devices.
//!
//! All checks that need no certificate come before one is issued: names, settings, existing secrets, and room for each
//! file.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use clap::Args;
use client_profiles::openvpn::control_key::{DEVICE_KEY_LEN, SERVER_KEY_LEN, ServerKey};
use client_profiles::openvpn::{
    self, AUTHORITIES, AddressRange, Bridge, CRL, Certificates, Device, Proof, REFUSED_DEVICES,
    SERVER_CONTROL_KEY, Settings, Token, Transport,
};
use commandline::{
    Failure, OrHint as _, Outcome, SiteArgs, is_there, print, read_text, reserve, write_reserved,
};
use keyhost::secret_file::{self, SECRET_MAX};
use pki::cert::CertificateChain;
use pki::name::Subject;
use serde_json::json;
use zeroize::Zeroizing;

use super::verify;
use super::{write_crl, write_public};
use crate::certify::{Identity, alt_name, certify, certify_request, read_csr};
use crate::site::{CertificateRequest, Control};

const SETTINGS: &str = "settings.json";
/// The one key of the control channel in folders of earlier versions.
const SHARED_KEY: &str = "tls-crypt.key";
const SERVER_CONFIG: &str = "server.conf";
/// Characters of a device's name at most, as the registry has it.
const MAX_NAME_LEN: usize = 64;

/// Warning for the user of an IBC cipher.
const WARNING: &str = "warning: IBC is a research cipher and broken (docs/ibc-security.md): \
     protect nothing real with it";

/// `cordon vpn openvpn-profile`.
#[derive(Debug, Args)]
pub struct Profile {
    #[command(flatten)]
    site: SiteArgs,
    /// Folder of the configurations; made when it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A device that connects; may be given several times.
    #[arg(long, value_name = "NAME", required = true)]
    device: Vec<String>,
    /// Name or address under which devices reach the server. For a new folder only, as the rest up to --without-guard.
    #[arg(long, value_name = "HOST")]
    server: Option<String>,
    /// The server's port.
    #[arg(long, requires = "server", default_value_t = 1194, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// What carries the tunnel: udp, or tcp where nothing else gets through.
    #[arg(long, requires = "server", default_value = "udp")]
    transport: Transport,
    /// Listen on IPv6 as well as on IPv4.
    #[arg(long, requires = "server")]
    ipv6: bool,
    /// What the tunnel carries: tun (IP packets) or tap (Ethernet frames).
    #[arg(long, requires = "server", default_value = "tun", value_name = "TYPE")]
    dev: Device,
    /// IPv4 network inside of the tunnel.
    #[arg(long, requires = "server", default_value = "10.8.0.0/24")]
    network: openvpn::Network,
    /// Router of a network that devices join by a bridge of the server's, which --network is then.
    #[arg(
        long,
        requires = "server",
        requires = "bridge_pool",
        value_name = "ADDRESS"
    )]
    bridge_gateway: Option<Ipv4Addr>,
    /// Addresses of that network for devices, such as 192.0.2.128-192.0.2.191.
    #[arg(
        long,
        requires = "server",
        requires = "bridge_gateway",
        value_name = "FIRST-LAST"
    )]
    bridge_pool: Option<AddressRange>,
    /// Data cipher: AES-256-GCM, AES-128-GCM, AES-192-GCM, CHACHA20-POLY1305, or a research
    /// cipher: INDECT-128-CBC, INDECT-192-CBC, INDECT-256-CBC, INDECT-320-CBC, INDECT-128-VH-CBC.
    #[arg(long, requires = "server", default_value = "AES-256-GCM")]
    cipher: openvpn::DataCipher,
    /// Where `cordon` is on the server, which has it verify certificates.
    #[arg(
        long,
        requires = "server",
        default_value = "/usr/bin/cordon",
        value_name = "FILE"
    )]
    verifier: PathBuf,
    /// Let devices in without `openvpn-guard`: a revocation then ends no session before its next key, up to an hour later.
    #[arg(long, requires = "server")]
    without_guard: bool,
    /// Accept an INDECT cipher, which is broken.
    #[arg(long)]
    allow_research_cipher: bool,
    /// Certification request (PKCS#10) of a device that keeps its key on a token.
    #[arg(long, requires = "pkcs11_id", value_name = "FILE")]
    csr: Option<PathBuf>,
    /// PKCS#11 module on that device.
    #[arg(long, requires = "csr", value_name = "FILE")]
    pkcs11_provider: Option<PathBuf>,
    /// Name of the certificate on its token, as `openvpn --show-pkcs11-ids` prints it.
    #[arg(long, requires = "pkcs11_provider", value_name = "NAME")]
    pkcs11_id: Option<String>,
}

/// A device's key that stays on its token.
struct OnToken {
    token: Token,
    /// In DER, hexadecimal.
    csr: String,
}

/// Keys of the control channel.
enum ControlKey {
    Shared(Zeroizing<String>),
    Own(ServerKey),
}

/// A file whose room is there before what comes into it.
struct Place {
    path: PathBuf,
    reserved: durable::Reserved,
}

impl Place {
    fn new(path: PathBuf) -> Outcome<Self> {
        let reserved = reserve(&path)?;
        Ok(Self { path, reserved })
    }

    fn write(self, bytes: &[u8]) -> Outcome<PathBuf> {
        write_reserved(self.reserved, bytes)?;
        Ok(self.path)
    }
}

/// Places of a device's files.
struct DevicePlaces<'a> {
    name: &'a str,
    profile: Place,
    /// Its certificate, to be put on the token.
    certificate: Option<Place>,
}

pub(super) async fn run(args: &Profile, control: Control, json: bool) -> Outcome {
    let settings = settings(args)?;
    if settings.cipher.is_research() {
        if !args.allow_research_cipher {
            return Err(Failure::usage(
                format!("{} is a research cipher and broken", settings.cipher.name()),
                "leave out --cipher, or insist with --allow-research-cipher",
            ));
        }
        eprintln!("{WARNING}");
    }
    check_devices(&args.device)?;
    let on_token = on_token(args)?;
    let mut files = Vec::new();
    let new = !is_there(&args.out.join(SETTINGS))?;
    if new {
        durable::create_dir_all(&args.out).or_hint(
            format!("cannot make {}", args.out.display()),
            "check the parent folder",
        )?;
    }
    // Read before anything is issued; a new folder has its keys made here.
    let control_key = control_key(&args.out, &settings, new)?;
    let places = args.device.iter();
    let places = places.map(|name| reserve_device(&args.out, name, on_token.is_some()));
    let places: Vec<DevicePlaces<'_>> = places.collect::<Outcome<_>>()?;
    if new {
        files.extend(make_server(args, control, &settings, &control_key).await?);
    }
    for place in places {
        files.extend(
            make_device(
                args,
                control,
                &settings,
                &control_key,
                on_token.as_ref(),
                place,
            )
            .await?,
        );
    }
    let mut summary = String::new();
    for file in &files {
        summary.push_str(&format!("wrote {}\n", file.display()));
    }
    if new {
        summary.push_str(&format!(
            "carry {} to the server, each .ovpn to its device\n",
            carried(&settings).join(", ")
        ));
    }
    let value = json!({
        "folder": args.out,
        "files": files,
        "cipher": settings.cipher.name(),
        "research_cipher": settings.cipher.is_research(),
    });
    print(json, &value, &summary)
}

/// Files that the server needs.
fn carried(settings: &Settings) -> Vec<&'static str> {
    let mut files = vec![SERVER_CONFIG, AUTHORITIES, CRL];
    if settings.own_control_keys {
        files.extend([SERVER_CONTROL_KEY, REFUSED_DEVICES]);
    }
    files
}

/// Refuses names that the registry would refuse, before they are names of files.
fn check_devices(names: &[String]) -> Outcome {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    for name in names {
        let good = !name.is_empty() && name.len() <= MAX_NAME_LEN && !name.starts_with('-');
        if !good || !name.bytes().all(plain) {
            return Err(Failure::usage(
                format!("--device {name:?} is not a device name"),
                "use lower-case letters, digits and hyphens, such as camera-17",
            ));
        }
    }
    Ok(())
}

fn on_token(args: &Profile) -> Outcome<Option<OnToken>> {
    let (Some(csr), Some(provider), Some(id)) = (&args.csr, &args.pkcs11_provider, &args.pkcs11_id)
    else {
        return Ok(None);
    };
    if args.device.len() != 1 {
        return Err(Failure::usage(
            "--csr is the request of one device",
            "give one --device for it",
        ));
    }
    let token = Token::new(provider, id).map_err(|what| {
        Failure::usage(
            what,
            "take both as `openvpn --show-pkcs11-ids MODULE` has them on the device",
        )
    })?;
    let csr = read_csr(csr)?;
    Ok(Some(OnToken { token, csr }))
}

/// The settings of the folder: those it has, or for a new one those of the command line.
fn settings(args: &Profile) -> Outcome<Settings> {
    let file = args.out.join(SETTINGS);
    match (&args.server, is_there(&file)?) {
        (Some(server), false) => new_settings(args, server),
        (None, true) => {
            let hint = "restore the file, or begin in a new folder";
            let known = read_text(&file)?;
            serde_json::from_str(&known).or_hint(format!("{} is damaged", file.display()), hint)
        }
        (Some(_), true) => Err(Failure::new(
            anyhow::anyhow!("{} has its server already", args.out.display()),
            "leave out --server to add devices, or name a new folder with --out",
        )),
        (None, false) => Err(Failure::new(
            anyhow::anyhow!("{} has no server yet", args.out.display()),
            "name it with --server",
        )),
    }
}

fn new_settings(args: &Profile, server: &str) -> Outcome<Settings> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    if server.is_empty() || server.starts_with('-') || !server.chars().all(plain) {
        return Err(Failure::usage(
            format!("--server {server:?} is not a host name or address"),
            "use for instance vpn.example.org",
        ));
    }
    let bridge = args.bridge_gateway.zip(args.bridge_pool);
    let settings = Settings {
        server: server.to_owned(),
        port: args.port,
        transport: args.transport,
        // IPv4 clients cannot reach an IPv6 address.
        ipv6: args.ipv6 || server.contains(':'),
        device: args.dev,
        network: args.network,
        bridge: bridge.map(|(gateway, pool)| Bridge { gateway, pool }),
        cipher: args.cipher.clone(),
        verifier: verifier(&args.verifier)?,
        own_control_keys: true,
        guard: !args.without_guard,
    };
    settings.check().map_err(|what| {
        Failure::usage(
            what,
            "a bridge takes --dev tap, and --bridge-gateway and --bridge-pool in --network",
        )
    })?;
    Ok(settings)
}

/// The path for the configuration, where quotes and spaces would end it.
fn verifier(path: &Path) -> Outcome<PathBuf> {
    let text = path.to_str().unwrap_or_default();
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\');
    match path.is_absolute() && text.chars().all(plain) {
        true => Ok(path.to_owned()),
        false => Err(Failure::usage(
            format!(
                "--verifier {:?} is not a plain absolute path",
                path.display().to_string()
            ),
            "use for instance /usr/bin/cordon",
        )),
    }
}

/// The folder's keys of the control channel.
fn control_key(folder: &Path, settings: &Settings, new: bool) -> Outcome<ControlKey> {
    const HINT: &str = "restore the file, or begin in a new folder";
    if new {
        return Ok(ControlKey::Own(ServerKey::new(
            &*random::<SERVER_KEY_LEN>()?
        )));
    }
    let file = folder.join(match settings.own_control_keys {
        true => SERVER_CONTROL_KEY,
        false => SHARED_KEY,
    });
    let key = secret_file::read(&file, SECRET_MAX)
        .map_err(|what| Failure::new(anyhow::anyhow!(what), HINT))?;
    let what = || format!("{} is damaged", file.display());
    let key = std::str::from_utf8(&key).or_hint(what(), HINT)?;
    Ok(match settings.own_control_keys {
        true => ControlKey::Own(ServerKey::from_pem(key).or_hint(what(), HINT)?),
        false => ControlKey::Shared(Zeroizing::new(key.to_owned())),
    })
}

impl ControlKey {
    fn for_device(&self, name: &str) -> Outcome<Zeroizing<String>> {
        match self {
            Self::Shared(key) => Ok(key.clone()),
            Self::Own(server) => server
                .device_key(&*random::<DEVICE_KEY_LEN>()?, name)
                .or_hint("cannot make a key of the control channel", "report this"),
        }
    }
}

fn random<const LEN: usize>() -> Outcome<Zeroizing<[u8; LEN]>> {
    let mut random = Zeroizing::new([0; LEN]);
    aws_lc_rs::rand::fill(random.as_mut_slice())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    Ok(random)
}

fn reserve_device<'a>(folder: &Path, name: &'a str, on_token: bool) -> Outcome<DevicePlaces<'a>> {
    let certificate = folder.join(format!("{name}.pem"));
    Ok(DevicePlaces {
        name,
        profile: Place::new(folder.join(format!("{name}.ovpn")))?,
        certificate: on_token.then(|| Place::new(certificate)).transpose()?,
    })
}

/// Writes everything of a new folder but the devices; returns the files for the server.
async fn make_server(
    args: &Profile,
    control: Control,
    settings: &Settings,
    control_key: &ControlKey,
) -> Outcome<Vec<PathBuf>> {
    let out = &args.out;
    let own_key = match control_key {
        ControlKey::Own(key) => Some((Place::new(out.join(SERVER_CONTROL_KEY))?, key.to_pem())),
        ControlKey::Shared(_) => None,
    };
    let (config, last) = (
        Place::new(out.join(SERVER_CONFIG))?,
        Place::new(out.join(SETTINGS))?,
    );
    let (refused, crl) = (out.join(REFUSED_DEVICES), out.join(CRL));
    write_public(&refused, b"")?;
    write_crl(control, &args.site, &crl).await?;
    let subject = Subject::new(settings.server.clone());
    let names = [alt_name(&settings.server)];
    let identity = certify(control, &args.site, &subject, &names, |csr| {
        CertificateRequest::Server { csr }
    })
    .await?;
    let text = openvpn::server(settings, certificates(&identity), &identity.key_pem, None);
    let mut files = vec![config.write(text.as_bytes())?, crl];
    if let Some((place, key)) = own_key {
        files.extend([place.write(key.as_bytes())?, refused]);
    }
    // Last: with this file the folder counts as complete.
    let known =
        serde_json::to_vec_pretty(settings).or_hint("cannot write settings", "report this")?;
    last.write(&known)?;
    Ok(files)
}

/// Has a device certified and writes its files.
async fn make_device(
    args: &Profile,
    control: Control,
    settings: &Settings,
    control_key: &ControlKey,
    on_token: Option<&OnToken>,
    places: DevicePlaces<'_>,
) -> Outcome<Vec<PathBuf>> {
    let name = places.name;
    let own = control_key.for_device(name)?;
    let request = |csr| CertificateRequest::Device {
        name: name.to_owned(),
        csr,
    };
    let identity = match on_token {
        None => certify(control, &args.site, &Subject::new(name), &[], request).await?,
        Some(device) => {
            let request = request(device.csr.clone());
            certify_request(control, &args.site, request, Zeroizing::new(String::new())).await?
        }
    };
    let proof = match on_token {
        None => Proof::Key(&identity.key_pem),
        Some(device) => Proof::Token(&device.token),
    };
    let text = openvpn::device(name, settings, certificates(&identity), proof, &own);
    let mut files = vec![places.profile.write(text.as_bytes())?];
    if let Some(place) = places.certificate {
        let chain = CertificateChain::from_pem(&identity.chain_pem);
        let chain = chain.or_hint("the site's answer", "report this")?;
        let pem = pki::cert::to_pem(chain.leaf()).or_hint("the certificate", "report this")?;
        files.push(place.write(pem.as_bytes())?);
    }
    let known = args.out.join(AUTHORITIES);
    if !is_there(&known)? {
        let text = verify::authorities(&identity.chain_pem, &identity.root_pem)?;
        write_public(&known, text.as_bytes())?;
        files.push(known);
    }
    Ok(files)
}

fn certificates(identity: &Identity) -> Certificates<'_> {
    Certificates {
        root_pem: &identity.root_pem,
        chain_pem: &identity.chain_pem,
    }
}
