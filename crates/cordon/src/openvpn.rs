//! Certificates of an OpenVPN server and its devices, issued on an open site.

use audit::Actor;
use pki::cert::CertificateChain;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::failure::{OrHint as _, Outcome};
use crate::site::Site;

/// A certificate asked of the site; the private key stays where it was made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CertificateRequest {
    /// For a server; request in DER, hexadecimal.
    Server {
        csr: String,
    },
    Device {
        name: String,
        csr: String,
    },
}

/// Issues a certificate on an open site.
pub(crate) async fn issue(
    site: &Site,
    request: CertificateRequest,
    actor: Actor,
    now: OffsetDateTime,
) -> Outcome<Value> {
    const HINT: &str = "use another name";
    let (CertificateRequest::Server { csr } | CertificateRequest::Device { csr, .. }) = &request;
    let der = hex::decode(csr).or_hint("the request is damaged", "report this")?;
    let csr = pki::csr::parse_and_verify(&der).or_hint("the request is refused", "report this")?;
    let warrant = match request {
        CertificateRequest::Server { .. } => site.registry.direct(actor).or_hint(
            "cannot issue a certificate for the server",
            "certificates of gateways are not to be had on request yet; see docs/operations.md",
        ),
        CertificateRequest::Device { .. } => {
            let instead = "issue --device NAME --tunnel-only --csr FILE";
            crate::registration::direct(site, &actor, instead)
        }
    }?;
    let issued = match request {
        CertificateRequest::Server { .. } => {
            let issued = site
                .registry
                .issue_gateway(csr.alt_names, csr.spki, warrant, now);
            issued
                .await
                .or_hint("cannot issue a certificate for the server", HINT)?
        }
        CertificateRequest::Device { name, .. } => {
            // It opens the tunnel and nothing else: with this clearance it seals nothing classified.
            let issued = site
                .registry
                .issue_vpn_device(&name, csr.spki, warrant, now);
            issued
                .await
                .or_hint(format!("cannot issue a certificate for {name}"), HINT)?
        }
    };
    let chain: &CertificateChain = &issued.chain;
    Ok(json!({
        "serial": issued.serial,
        "chain_pem": chain.to_pem().or_hint("cannot write the certificate", "report this")?,
        "root_pem": site.root_pem()?,
        "devices_ca_pem": site.authority_pem(pki::profile::CaKind::Devices)?,
    }))
}
