//! `cordon vpn openvpn-…`: configurations for OpenVPN, which runs as it is.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use client_profiles::openvpn::{self, Identity, Settings};
use pki::csr;
use pki::key::PrivateKey;
use pki::name::{AltName, Subject};
use serde_json::json;
use zeroize::Zeroizing;

use super::openvpn_verify::{self, Verify};
use super::text;
use crate::cli::SiteArgs;
use crate::config::Config;
use crate::control::{Request, ask, write_new};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::openvpn::CertificateRequest;
use crate::site::algorithm;

const SETTINGS: &str = "settings.json";
const TLS_CRYPT: &str = "tls-crypt.key";
const CRL: &str = "crl.pem";

/// Warning for whoever chooses an IBC cipher.
const WARNING: &str = "warning: IBC is a research cipher and broken (docs/ibc-security.md): \
     protect nothing real with it";

/// The devices authority and the root, for the hook on the server.
const AUTHORITIES: &str = "authorities.pem";

/// The commands of `cordon vpn` that are about OpenVPN.
#[derive(Debug, Subcommand)]
pub(crate) enum Openvpn {
    /// Write configurations of an OpenVPN server and of devices, with new keys and certificates.
    #[command(after_help = "Examples:
  cordon vpn openvpn-profile --data /var/lib/cordon --server vpn.example.org \\
    --device camera-17 --out tunnel
  cordon vpn openvpn-profile --data /var/lib/cordon --device camera-18 --out tunnel
The first makes the folder, the second adds a device to it. Carry server.conf, authorities.pem and
crl.pem to the server, which needs `cordon` as well, each .ovpn file to its device, and keep the folder to yourself: it holds private keys.")]
    #[command(name = "openvpn-profile")]
    Profile(Profile),
    /// Write the current revocation lists for an OpenVPN server, replacing the file.
    #[command(after_help = "Example:
  cordon vpn openvpn-crl --data /var/lib/cordon --out /etc/openvpn/server/crl.pem
A list is good for one day: let a daily job write it.")]
    #[command(name = "openvpn-crl")]
    Crl {
        #[command(flatten)]
        site: SiteArgs,
        /// File to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Verify a peer's certificate: OpenVPN calls this, see `tls-verify` in server.conf.
    #[command(after_help = "Example:
  cordon vpn openvpn-verify --authorities authorities.pem --crl crl.pem \\
    --certificate peer.pem 0 CN=camera-17
OpenVPN names the certificate's file in the environment instead, as `peer_cert`. Exit code 1 refuses the device.")]
    #[command(name = "openvpn-verify")]
    Verify(Verify),
}

/// `cordon vpn openvpn-profile`.
#[derive(Debug, Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Folder of the configurations; made when it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// A device that connects; may be given several times.
    #[arg(long, value_name = "NAME", required = true)]
    pub(crate) device: Vec<String>,
    /// Name or address under which devices reach the server. For a new folder only, as the rest.
    #[arg(long, value_name = "HOST")]
    pub(crate) server: Option<String>,
    /// The server's UDP port.
    #[arg(long, requires = "server", default_value_t = 1194, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// IPv4 network inside of the tunnel.
    #[arg(long, requires = "server", default_value = "10.8.0.0/24")]
    pub(crate) network: openvpn::Network,
    /// Data cipher: AES-256-GCM, AES-128-GCM, AES-192-GCM, CHACHA20-POLY1305, or a research
    /// cipher: INDECT-128-CBC, INDECT-192-CBC, INDECT-256-CBC, INDECT-320-CBC, INDECT-128-VH-CBC.
    #[arg(long, requires = "server", default_value = "AES-256-GCM")]
    pub(crate) cipher: openvpn::DataCipher,
    /// Where `cordon` is on the server, which has it verify certificates.
    #[arg(
        long,
        requires = "server",
        default_value = "/usr/bin/cordon",
        value_name = "FILE"
    )]
    pub(crate) verifier: PathBuf,
    /// Accept an INDECT cipher, which is broken.
    #[arg(long)]
    pub(crate) allow_research_cipher: bool,
}

pub(crate) async fn run(command: Openvpn, json: bool) -> Outcome {
    match command {
        Openvpn::Verify(args) => openvpn_verify::run(&args),
        Openvpn::Profile(args) => openvpn_profile(&args, json).await,
        Openvpn::Crl { site, out } => {
            write_crl(&site, &out).await?;
            let summary = format!("wrote {}, good for a day", out.display());
            super::print(json, &json!({ "file": out }), &summary)
        }
    }
}

async fn openvpn_profile(args: &Profile, json: bool) -> Outcome {
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
    for device in &args.device {
        let file = args.out.join(format!("{device}.ovpn"));
        if file.exists() {
            let error = anyhow::anyhow!("{} exists already", file.display());
            return Err(Failure::new(error, "name another device with --device"));
        }
    }
    let mut files = Vec::new();
    let new = !args.out.join(SETTINGS).exists();
    if new {
        files.extend(make_server(args, &settings).await?);
    }
    let key_file = args.out.join(TLS_CRYPT);
    let tls_crypt = super::read_text(&key_file)?;
    for name in &args.device {
        let csr_of = |csr| CertificateRequest::Device {
            name: name.clone(),
            csr,
        };
        let identity = certify(&args.site, &Subject::new(name.clone()), &[], csr_of).await?;
        let known = args.out.join(AUTHORITIES);
        if !known.exists() {
            let text = openvpn_verify::authorities(&identity.chain_pem, &identity.root_pem)?;
            durable::write_atomic(&known, text.as_bytes(), 0o644).or_hint(
                format!("cannot write {}", known.display()),
                "check the folder's rights",
            )?;
            files.push(known);
        }
        let file = args.out.join(format!("{name}.ovpn"));
        let profile = openvpn::device(name, &settings, &identity, &tls_crypt);
        write_new(&file, profile.as_bytes())?;
        files.push(file);
    }
    let mut summary = String::new();
    for file in &files {
        summary.push_str(&format!("wrote {}\n", file.display()));
    }
    if new {
        summary.push_str("carry server.conf, authorities.pem and crl.pem to the server, each .ovpn to its device\n");
    }
    let value = json!({
        "folder": args.out,
        "files": files,
        "cipher": settings.cipher.name(),
        "research_cipher": settings.cipher.is_research(),
    });
    super::print(json, &value, &summary)
}

/// The settings of the folder: those it has, or for a new one those of the command line.
fn settings(args: &Profile) -> Outcome<Settings> {
    let file = args.out.join(SETTINGS);
    match (&args.server, file.exists()) {
        (Some(server), false) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
            if server.is_empty() || !server.chars().all(plain) {
                return Err(Failure::usage(
                    format!("--server {server:?} is no host name or address"),
                    "use for instance vpn.example.org",
                ));
            }
            Ok(Settings {
                server: server.clone(),
                port: args.port,
                network: args.network,
                cipher: args.cipher.clone(),
                verifier: verifier(&args.verifier)?,
            })
        }
        (None, true) => {
            let hint = "restore the file, or begin in a new folder";
            let known = super::read_text(&file)?;
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

/// The path as it stands in the configuration, where quotes and spaces would end it.
fn verifier(path: &Path) -> Outcome<PathBuf> {
    let text = path.to_str().unwrap_or_default();
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\');
    match path.is_absolute() && text.chars().all(plain) {
        true => Ok(path.to_owned()),
        false => Err(Failure::usage(
            format!(
                "--verifier {:?} is no plain absolute path",
                path.display().to_string()
            ),
            "use for instance /usr/bin/cordon",
        )),
    }
}

/// Writes everything of a new folder but the devices; returns the files for the server.
async fn make_server(args: &Profile, settings: &Settings) -> Outcome<Vec<PathBuf>> {
    let out = &args.out;
    durable::create_dir_all(out).or_hint(
        format!("cannot make {}", out.display()),
        "check the parent folder",
    )?;
    let subject = Subject::new(settings.server.clone());
    let names = [alt_name(&settings.server)];
    let identity = certify(&args.site, &subject, &names, |csr| {
        CertificateRequest::Server { csr }
    })
    .await?;
    let mut random = Zeroizing::new([0; 256]);
    aws_lc_rs::rand::fill(random.as_mut())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    let tls_crypt = openvpn::tls_crypt_key(&random);
    write_new(&out.join(TLS_CRYPT), tls_crypt.as_bytes())?;
    let (config, crl) = (out.join("server.conf"), out.join(CRL));
    let text = openvpn::server(settings, &identity, &tls_crypt);
    write_new(&config, text.as_bytes())?;
    write_crl(&args.site, &crl).await?;
    // Last: with this file the folder counts as complete.
    let known =
        serde_json::to_vec_pretty(settings).or_hint("cannot write settings", "report this")?;
    write_new(&out.join(SETTINGS), &known)?;
    Ok(vec![config, crl])
}

/// A host as a certificate names it: an address where it is one, else a DNS name.
pub(crate) fn alt_name(host: &str) -> AltName {
    host.parse()
        .map_or_else(|_| AltName::Dns(host.to_owned()), AltName::Ip)
}

/// Makes a key here and has the site certify it.
pub(crate) async fn certify(
    site: &SiteArgs,
    subject: &Subject,
    names: &[AltName],
    request: impl FnOnce(String) -> CertificateRequest,
) -> Outcome<Identity> {
    let config = Config::load(site.config.as_deref())?;
    let key = PrivateKey::generate(algorithm(&config.keys.leaf))
        .or_hint("cannot make a key", "try again")?;
    let csr = csr::build(&key, subject, names).or_hint(
        format!("{} cannot be certified", subject.common_name),
        "use another name",
    )?;
    let answer = ask(site, Request::Openvpn(request(hex::encode(csr)))).await?;
    let key_pem =
        der::pem::encode_string("PRIVATE KEY", der::pem::LineEnding::LF, &key.to_pkcs8_der());
    Ok(Identity {
        root_pem: text(&answer, "root_pem").to_owned(),
        devices_ca_pem: text(&answer, "devices_ca_pem").to_owned(),
        chain_pem: text(&answer, "chain_pem").to_owned(),
        key_pem: Zeroizing::new(key_pem.map_err(|error| {
            Failure::new(
                anyhow::anyhow!("cannot write the key: {error}"),
                "report this",
            )
        })?),
    })
}

/// Writes the current lists where anybody may read them: OpenVPN does so without its rights.
async fn write_crl(site: &SiteArgs, file: &Path) -> Outcome {
    let answer = ask(site, Request::Crls).await?;
    durable::write_atomic(file, text(&answer, "crl_pem").as_bytes(), 0o644).or_hint(
        format!("cannot write {}", file.display()),
        "check the folder's rights",
    )
}
