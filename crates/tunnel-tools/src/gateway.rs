//! `cordon vpn gateway-certificate`: what a gateway of tunnels proves itself with.

use std::path::PathBuf;

use clap::Args;
use commandline::{Failure, Outcome, SiteArgs, print};
use pki::name::{AltName, Subject};
use serde_json::json;

use crate::certify::{alt_name, certify};
use crate::init::files::Files;
use crate::init::issued::Issued;
use crate::site::{CertificateRequest, Control};

/// `cordon vpn gateway-certificate`.
#[derive(Debug, Args)]
pub struct GatewayCertificate {
    #[command(flatten)]
    site: SiteArgs,
    /// Host name or address of the gateway; may be given several times. The registry knows it by the first.
    #[arg(long, value_name = "HOST", required = true)]
    name: Vec<String>,
    /// Folder for the files; one that does not exist yet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) async fn run(args: &GatewayCertificate, control: Control, json: bool) -> Outcome {
    let out = &args.out;
    if out.exists() {
        let error = anyhow::anyhow!("{} exists already", out.display());
        return Err(Failure::new(error, "name a new folder with --out"));
    }
    for name in &args.name {
        vpn::check_host(name).map_err(|what| {
            let hint = "name the gateway as its peers know it, such as vpn.example.org";
            Failure::usage(format!("--name {what}"), hint)
        })?;
    }
    let mut files = Files::new(out);
    for name in ["gateway.pem", "devices-ca.pem", "root.pem"] {
        files.later(name);
    }
    // Before anything is issued, which has to be revoked where it cannot be stored.
    let reserved = files.reserve()?;
    let names: Vec<AltName> = args.name.iter().map(|name| alt_name(name)).collect();
    let subject = Subject::new(args.name.first().cloned().unwrap_or_default());
    let request = |csr| CertificateRequest::Server { csr };
    let identity = certify(control, &args.site, &subject, &names, request).await?;
    let issued = Issued::of(&identity.chain_pem, &args.site);
    // One file, so that a renewal is one rename.
    let own = format!("{}\n{}", identity.key_pem.trim_end(), identity.chain_pem);
    files.add("gateway.pem", own.into_bytes());
    files.add("devices-ca.pem", identity.devices_ca_pem.into_bytes());
    files.add("root.pem", identity.root_pem.into_bytes());
    let written = reserved.write(&files);
    written.map_err(|failure| issued.lost(&failure))?;
    let mut summary = String::new();
    for file in files.names() {
        summary.push_str(&format!("wrote {}\n", file.display()));
    }
    let value = json!({ "name": args.name, "folder": out });
    print(json, &value, &summary)
}
