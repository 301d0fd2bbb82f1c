//! `cordon vpn profile`: configurations for IKEv2 clients of others.

use std::path::{Path, PathBuf};

use clap::Args;
use client_profiles::ike::{Credential, Profile};
use commandline::{Failure, OrHint as _, Outcome, SiteArgs, new_password, print, text, write_new};
use pki::cert::CertificateChain;
use pki::key::PrivateKey;
use pki::name::Subject;
use serde_json::json;
use zeroize::Zeroizing;

use crate::certify::certify;
use crate::init::files::Files;
use crate::init::issued::Issued;
use crate::site::{CertificateRequest, Control, SiteRequest};

const BROKEN: &str = "report this";

/// `cordon vpn profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Folder for the profile's files; one that does not exist yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Host name of the gateway; its certificate must have it.
    #[arg(long, value_name = "HOST")]
    pub(crate) gateway: String,
    /// A network behind the gateway; may be given several times.
    #[arg(long, value_name = "NETWORK", required = true)]
    pub(crate) network: Vec<String>,
    /// A device, which gets a new certificate.
    #[arg(long, value_name = "NAME", required_unless_present = "user")]
    pub(crate) device: Option<String>,
    /// A person who logs in with name and password (EAP-MSCHAPv2); no certificate is made.
    #[arg(long, value_name = "NAME", conflicts_with = "device")]
    pub(crate) user: Option<String>,
    /// The client's own network (strongSwan on Linux only); without it, it asks for an address.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) local: Option<String>,
}

/// A client's proof of itself.
struct Identity {
    subject: String,
    chain_pem: String,
    key_pem: Zeroizing<String>,
    pkcs12: Zeroizing<Vec<u8>>,
    password: Zeroizing<String>,
}

pub(crate) async fn run(args: &ProfileArgs, control: Control, json: bool) -> Outcome {
    if args.out.exists() {
        let error = anyhow::anyhow!("{} exists already", args.out.display());
        return Err(Failure::new(error, "name a new folder with --out"));
    }
    let name = args.device.as_ref().or(args.user.as_ref());
    let name = name.map(String::as_str).unwrap_or_default();
    // Clients accept any peer with this name as the gateway.
    vpn::check_host(&args.gateway).map_err(|what| {
        Failure::usage(
            format!("--gateway {what}"),
            "name the gateway as its certificate has it, such as vpn.example.org",
        )
    })?;
    // Before a certificate is issued for nothing.
    profile(args, name, &[], None)?;
    let mut room = Files::new(&args.out);
    room.later("profile");
    let reserved = room.reserve()?;
    let (root_pem, identity) = match &args.device {
        Some(device) => enrol(control, &args.site, device).await?,
        None => {
            let answer = control.request(&args.site, SiteRequest::Crls).await?;
            (text(&answer, "root_pem").to_owned(), None)
        }
    };
    let root = CertificateChain::from_pem(&root_pem).or_hint("the root", BROKEN)?;
    let root_der = root
        .ders()
        .first()
        .map(|der| der.to_vec())
        .unwrap_or_default();
    let profile = profile(args, name, &root_der, identity.as_ref())?;
    drop(reserved);
    let files = write(&args.out, name, &profile, &root_pem, identity.as_ref());
    let files = files.map_err(|failure| match &identity {
        Some(identity) => Issued::of(&identity.chain_pem, &args.site).lost(&failure),
        None => failure,
    })?;
    let mut summary = String::new();
    for file in &files {
        summary.push_str(&format!("wrote {}\n", file.display()));
    }
    let value = json!({ "name": name, "gateway": args.gateway, "files": files });
    print(json, &value, &summary)
}

fn profile<'a>(
    args: &'a ProfileArgs,
    name: &'a str,
    root_der: &'a [u8],
    identity: Option<&'a Identity>,
) -> Outcome<Profile<'a>> {
    let credential = identity.map_or(Credential::Password, |identity| Credential::Certificate {
        subject: &identity.subject,
        pkcs12: &identity.pkcs12,
    });
    let mut random = [[0; 16]; 4];
    aws_lc_rs::rand::fill(random.as_flattened_mut())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    let names = (name, args.gateway.as_str());
    let local = args.local.as_deref();
    Profile::new(names, &args.network, local, root_der, credential, random)
        .map_err(|error| Failure::usage(error.to_string(), "use plain names and networks"))
}

/// Makes a key here, has the site certify it, and packs both.
async fn enrol(
    control: Control,
    site: &SiteArgs,
    device: &str,
) -> Outcome<(String, Option<Identity>)> {
    let subject = Subject::new(device);
    let request = |csr| CertificateRequest::Device {
        name: device.to_owned(),
        csr,
    };
    let issued = certify(control, site, &subject, &[], request).await?;
    let chain = CertificateChain::from_pem(&issued.chain_pem).or_hint("the answer", BROKEN)?;
    let (_, key) = der::pem::decode_vec(issued.key_pem.as_bytes())
        .map_err(|error| Failure::new(anyhow::anyhow!("the key: {error}"), BROKEN))?;
    let key = PrivateKey::from_pkcs8_der(&Zeroizing::new(key)).or_hint("the key", BROKEN)?;
    let password = new_password()?;
    let pkcs12 = pki::pkcs12::export(&key, &chain, device, &password)
        .or_hint("cannot make the PKCS#12 file", BROKEN)?;
    let identity = Identity {
        subject: in_order(&chain),
        chain_pem: issued.chain_pem,
        key_pem: issued.key_pem,
        pkcs12: Zeroizing::new(pkcs12),
        password,
    };
    Ok((issued.root_pem, Some(identity)))
}

/// The subject in the order of its encoding, which is the identity in IKE; as text it is often reversed
/// (RFC 4514 §2.1).
fn in_order(chain: &CertificateChain) -> String {
    let names = &chain.leaf().tbs_certificate.subject.0;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Writes everything; returns the files.
fn write(
    out: &Path,
    name: &str,
    profile: &Profile<'_>,
    root_pem: &str,
    identity: Option<&Identity>,
) -> Outcome<Vec<PathBuf>> {
    let swanctl = out.join("swanctl");
    let mut files: Vec<(PathBuf, Zeroizing<Vec<u8>>)> = Vec::new();
    let mut add = |path: PathBuf, bytes: &[u8]| files.push((path, Zeroizing::new(bytes.to_vec())));
    add(swanctl.join("swanctl.conf"), profile.swanctl().as_bytes());
    add(
        swanctl.join("swanctl-6.conf"),
        profile.swanctl_6().as_bytes(),
    );
    add(swanctl.join("x509ca/root.pem"), root_pem.as_bytes());
    if let Some(identity) = identity {
        // strongSwan reads one certificate of a file: ours, then the issuers.
        for (number, part) in identity
            .chain_pem
            .split_inclusive("-----END CERTIFICATE-----\n")
            .enumerate()
        {
            let file = match number {
                0 => format!("x509/{name}.pem"),
                _ => format!("x509ca/issuer-{number}.pem"),
            };
            add(swanctl.join(file), part.as_bytes());
        }
        let key = swanctl.join(format!("private/{name}.key"));
        add(key, identity.key_pem.as_bytes());
        add(out.join(format!("{name}.p12")), &identity.pkcs12);
        let password = Zeroizing::new(format!("{}\n", identity.password.as_str()));
        add(
            out.join(format!("{name}.p12.password")),
            password.as_bytes(),
        );
    }
    add(
        out.join(format!("{name}.sswan")),
        profile.android().as_bytes(),
    );
    add(
        out.join(format!("{name}.mobileconfig")),
        profile.apple().as_bytes(),
    );
    add(
        out.join(format!("{name}.ps1")),
        profile.windows().as_bytes(),
    );
    for (file, bytes) in &files {
        let folder = file.parent().unwrap_or(out);
        durable::create_dir_all(folder).or_hint(
            format!("cannot make {}", folder.display()),
            "check the parent folder",
        )?;
        write_new(file, bytes)?;
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}
