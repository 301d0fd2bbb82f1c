//! Certificates of an OpenVPN server and its devices, issued on an open site.

use audit::Actor;
use pki::cert::CertificateChain;
use pki::profile::CaKind;
use registry::AdmissionError;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tunnel_tools::CertificateRequest;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::Site;

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
        "root_pem": site.trust.root_pem()?,
        "devices_ca_pem": crate::authority_texts::authorities_of_kind_pem(&site.registry, CaKind::Devices)?,
    }))
}

/// Certificates of one question at most; OpenVPN's own limit is 1024 sessions by default.
const MAX_SERIALS: usize = 65_536;

/// Which certificates of devices are not to be accepted any more, and why.
pub(crate) async fn standings(site: &Site, serials: &[String]) -> Outcome<Value> {
    const HINT: &str = "see the log";
    if serials.len() > MAX_SERIALS {
        let error = anyhow::anyhow!("too many certificates in one question");
        return Err(Failure::new(error, "ask about fewer"));
    }
    let mut refused = serde_json::Map::new();
    for serial in serials {
        match site.registry.check_standing(CaKind::Devices, serial).await {
            Ok(()) => {}
            Err(AdmissionError::Registry(error)) => {
                return Err(error).or_hint("cannot read the registry", HINT);
            }
            Err(refusal) => {
                refused.insert(serial.clone(), refusal.code().into());
            }
        }
    }
    Ok(json!({ "refused": refused }))
}

/// Names of devices that are not enrolled, and the mark of the current revocation lists.
pub(crate) async fn refused_devices(site: &Site) -> Outcome<Value> {
    let devices = site.registry.refused_holders(CaKind::Devices).await;
    Ok(json!({
        "devices": devices.or_hint("cannot read the registry", "see the log")?,
        "lists_mark": site.trust.crls_mark(),
    }))
}
