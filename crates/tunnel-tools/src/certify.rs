//! Keys that are made here and certified by the site.

use std::path::Path;

use commandline::{Failure, OrHint as _, Outcome, SiteArgs, text};
use keyhost::secret_file;
use pki::csr;
use pki::key::PrivateKey;
use pki::name::{AltName, Subject};
use zeroize::Zeroizing;

use crate::site::{CertificateRequest, Control, SiteRequest};

/// Bytes of a certification request at most.
const MAX_CSR: u64 = csr::MAX_CSR_TEXT_LEN as u64;

/// A host as a certificate names it: an address where it is one, else a DNS name.
pub(crate) fn alt_name(host: &str) -> AltName {
    host.parse()
        .map_or_else(|_| AltName::Dns(host.to_owned()), AltName::Ip)
}

/// A certificate of the site, with the key that was made for it here.
pub(crate) struct Identity {
    pub(crate) root_pem: String,
    /// The authority of devices.
    pub(crate) devices_ca_pem: String,
    pub(crate) chain_pem: String,
    pub(crate) key_pem: Zeroizing<String>,
}

/// Makes a key here and has the site certify it.
pub(crate) async fn certify(
    control: Control,
    site: &SiteArgs,
    subject: &Subject,
    names: &[AltName],
    request: impl FnOnce(String) -> CertificateRequest,
) -> Outcome<Identity> {
    let algorithm = control.key_algorithm(site)?;
    let key = PrivateKey::generate(algorithm).or_hint("cannot make a key", "try again")?;
    let csr = csr::build(&key, subject, names).or_hint(
        format!("{} cannot be certified", subject.common_name),
        "use another name",
    )?;
    let key_pem =
        der::pem::encode_string("PRIVATE KEY", der::pem::LineEnding::LF, &key.to_pkcs8_der());
    let key_pem = Zeroizing::new(key_pem.map_err(|error| {
        Failure::new(
            anyhow::anyhow!("cannot write the key: {error}"),
            "report this",
        )
    })?);
    certify_request(control, site, request(hex::encode(csr)), key_pem).await
}

/// Has the site certify the key of a request, which is `key_pem` or is kept elsewhere.
pub(crate) async fn certify_request(
    control: Control,
    site: &SiteArgs,
    request: CertificateRequest,
    key_pem: Zeroizing<String>,
) -> Outcome<Identity> {
    let answer = control.request(site, SiteRequest::Certify(request)).await?;
    Ok(Identity {
        root_pem: text(&answer, "root_pem").to_owned(),
        devices_ca_pem: text(&answer, "devices_ca_pem").to_owned(),
        chain_pem: text(&answer, "chain_pem").to_owned(),
        key_pem,
    })
}

/// The request in DER, hexadecimal.
pub fn read_csr(file: &Path) -> Outcome<String> {
    const HINT: &str = "make one with `openssl req -new -key KEY -out FILE`";
    let what = || format!("cannot use {} as a certification request", file.display());
    let bytes = secret_file::read_public(file, MAX_CSR)
        .map_err(|what| Failure::new(anyhow::anyhow!("cannot read {what}"), HINT))?;
    let der = match std::str::from_utf8(&bytes) {
        Ok(pem) => csr::from_pem(pem).or_hint(what(), HINT)?,
        Err(_) => bytes.to_vec(),
    };
    Ok(hex::encode(der))
}
