//! `cordon vpn gateway-certificate`: what a gateway of tunnels proves itself with.

use std::path::PathBuf;

use clap::Args;
use pki::name::{AltName, Subject};
use serde_json::json;
use zeroize::Zeroizing;

use super::openvpn::{alt_name, certify};
use crate::cli::SiteArgs;
use crate::control::write_new;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::openvpn::CertificateRequest;

/// `cordon vpn gateway-certificate`.
#[derive(Debug, Args)]
pub(crate) struct GatewayCertificate {
    #[command(flatten)]
    site: SiteArgs,
    /// Host name or address of the gateway; may be given several times. The registry knows it by the first.
    #[arg(long, value_name = "HOST", required = true)]
    name: Vec<String>,
    /// Folder for the files; one that does not exist yet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) async fn run(args: &GatewayCertificate, json: bool) -> Outcome {
    let out = &args.out;
    if out.exists() {
        let error = anyhow::anyhow!("{} exists already", out.display());
        return Err(Failure::new(error, "name a new folder with --out"));
    }
    // Before anything is issued, which has to be revoked where it cannot be stored.
    durable::create_dir_all(out).or_hint(
        format!("cannot make {}", out.display()),
        "check the parent folder",
    )?;
    let names: Vec<AltName> = args.name.iter().map(|name| alt_name(name)).collect();
    let subject = Subject::new(args.name.first().cloned().unwrap_or_default());
    let request = |csr| CertificateRequest::Server { csr };
    let identity = match certify(&args.site, &subject, &names, request).await {
        Ok(identity) => identity,
        Err(failure) => {
            // Only the empty folder of above.
            let _ = std::fs::remove_dir(out);
            return Err(failure);
        }
    };
    // One file, so that a renewal is one rename.
    let own = Zeroizing::new(format!(
        "{}\n{}",
        identity.key_pem.trim_end(),
        identity.chain_pem
    ));
    let files = [
        ("gateway.pem", own.as_bytes()),
        ("devices-ca.pem", identity.devices_ca_pem.as_bytes()),
        ("root.pem", identity.root_pem.as_bytes()),
    ];
    let mut summary = String::new();
    for (name, bytes) in files {
        let file = out.join(name);
        write_new(&file, bytes)?;
        summary.push_str(&format!("wrote {}\n", file.display()));
    }
    let value = json!({ "name": args.name, "folder": out });
    super::print(json, &value, &summary)
}
