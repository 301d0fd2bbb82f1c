//! `cordon vpn openvpn-verify`: OpenVPN's hook for certificates of peers (`tls-verify`).
//!
//! OpenVPN checks what OpenSSL checks, and calls the hook for each certificate from the root downwards.
//! The validator of all other listeners checks the device's own, the last one: kind of the authority, clearance, key
//! sizes, form, revocation at every level.

use std::path::{Path, PathBuf};

use clap::Args;
use commandline::{Failure, OrHint as _, Outcome, read_text};
use pki::cert::{self, CertificateChain};
use pki::crl::{CrlError, VerifiedCrl};
use pki::path::{
    OcspPolicy, PathError, PathPolicy, Purpose, RevocationPolicy, TrustStore, ValidatedChain,
};
use time::OffsetDateTime;

const CRL_END: &str = "-----END X509 CRL-----";
/// Lists read from the file; a site has four.
const MAX_LISTS: usize = 64;

/// What OpenVPN calls the hook with.
#[derive(Debug, Args)]
pub struct Verify {
    /// Root and devices authority (PEM).
    #[arg(long, value_name = "FILE")]
    authorities: PathBuf,
    /// Current revocation lists of both (PEM).
    #[arg(long, value_name = "FILE")]
    crl: PathBuf,
    /// The certificate, where OpenVPN has put it.
    #[arg(long, env = "peer_cert", value_name = "FILE")]
    certificate: PathBuf,
    /// Authorities above the certificate, as OpenVPN counts.
    depth: u8,
    /// Its subject, as OpenVPN writes it; read from the certificate instead.
    #[arg(allow_hyphen_values = true)]
    subject: String,
}

pub(crate) fn run(args: &Verify) -> Outcome {
    if args.depth > 0 {
        // Decided with the device's certificate, whose path is built again.
        return Ok(());
    }
    let read = |file: &Path| read_text(file);
    let peer = read(&args.certificate)?;
    let trust = DeviceTrust::new(
        &read(&args.authorities)?,
        &read(&args.crl)?,
        OffsetDateTime::now_utc(),
    )?;
    let peer =
        CertificateChain::from_pem(&peer).or_hint("unreadable certificate", "look at the peer")?;
    trust
        .accept(&peer, OffsetDateTime::now_utc())
        .map(drop)
        .or_hint("certificate refused", "look at the device")
}

/// Devices that may open the tunnel.
struct DeviceTrust {
    trust: TrustStore,
    policy: PathPolicy,
}

impl DeviceTrust {
    fn new(authorities: &str, lists: &str, now: OffsetDateTime) -> Outcome<Self> {
        let trust = trust_in(authorities)?;
        take_lists(&trust, lists, now)?;
        let policy = PathPolicy::new(Purpose::VpnDevice)
            .with_revocation(RevocationPolicy::RequireCrl, OcspPolicy::Off);
        Ok(Self { trust, policy })
    }

    fn accept(
        &self,
        chain: &CertificateChain,
        now: OffsetDateTime,
    ) -> Result<ValidatedChain, PathError> {
        self.trust.accept(chain.ders(), &self.policy, &[], now)
    }
}

/// Trust in the authorities of a file.
pub(super) fn trust_in(authorities: &str) -> Outcome<TrustStore> {
    let hint = "write it again with `cordon vpn openvpn-profile`";
    let chain = CertificateChain::from_pem(authorities).or_hint("unusable authorities", hint)?;
    let (roots, others): (Vec<_>, Vec<_>) = chain
        .certificates()
        .iter()
        .cloned()
        .partition(|one| one.tbs_certificate.subject == one.tbs_certificate.issuer);
    TrustStore::new(&roots, &others).or_hint("unusable authorities", hint)
}

/// Verifies the lists of a file (PEM) and puts them into force; gives those that are of an authority of `trust`.
pub(super) fn take_lists(
    trust: &TrustStore,
    lists: &str,
    now: OffsetDateTime,
) -> Outcome<Vec<VerifiedCrl>> {
    let mut taken = Vec::new();
    let hint = "write them again with `cordon vpn openvpn-crl`";
    if lists.matches(CRL_END).count() > MAX_LISTS {
        let error = anyhow::anyhow!("there are more than {MAX_LISTS} revocation lists");
        return Err(Failure::new(error, hint));
    }
    for list in lists.split_inclusive(CRL_END) {
        let Some(start) = list.find("-----BEGIN X509 CRL-----") else {
            continue;
        };
        let pem = list.get(start..).unwrap_or_default();
        let der = der::pem::decode_vec(pem.as_bytes());
        let (_, der) = der.map_err(|error| {
            Failure::new(
                anyhow::anyhow!("unreadable revocation lists: {error}"),
                hint,
            )
        })?;
        match trust.accept_crl(&der, now) {
            // The file has the lists of every authority of the site.
            Ok(list) => taken.push(list),
            Err(CrlError::UnknownIssuer { .. }) => {}
            Err(error) => return Err(error).or_hint("unusable revocation list", hint),
        }
    }
    Ok(taken)
}

/// The authorities above a certificate and the root, for [`Verify::authorities`].
pub(crate) fn authorities(chain_pem: &str, root_pem: &str) -> Outcome<String> {
    let hint = "report this";
    let chain = CertificateChain::from_pem(chain_pem).or_hint("unusable chain", hint)?;
    let mut text = String::new();
    for authority in chain.certificates().iter().skip(1) {
        text.push_str(&cert::to_pem(authority).or_hint("unusable chain", hint)?);
    }
    text.push_str(root_pem);
    Ok(text)
}

#[cfg(test)]
#[path = "../../../pki/tests/it/ocsp_site.rs"]
pub(super) mod ocsp_site;

#[cfg(test)]
#[path = "../../../pki/tests/it/wrong_chains.rs"]
pub(super) mod wrong_chains;

#[cfg(test)]
mod tests {
    use der::pem::{LineEnding, encode_string};
    use pki::profile::{CaKind, Profile};
    use time::macros::datetime;

    use super::wrong_chains::{self, Case};
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn pem(label: &str, der: &[u8]) -> String {
        encode_string(label, LineEnding::LF, der).unwrap()
    }

    /// The hook on a server whose files are those of a case.
    fn accepts(case: &Case) -> bool {
        let mut authorities = cert::to_pem(&case.root).unwrap();
        for der in &case.chain[1..] {
            authorities.push_str(&pem("CERTIFICATE", der));
        }
        let lists: String = case.lists.iter().map(|der| pem("X509 CRL", der)).collect();
        let Ok(peer) = CertificateChain::from_ders([case.chain[0].to_vec()]) else {
            return false;
        };
        DeviceTrust::new(&authorities, &lists, NOW)
            .is_ok_and(|trust| trust.accept(&peer, NOW).is_ok())
    }

    #[test]
    fn every_wrong_chain_is_refused_by_the_hook_of_openvpn() {
        let (kind, profile) = (CaKind::Devices, Profile::Device);
        assert!(accepts(&wrong_chains::good(kind, profile, NOW)));
        for case in wrong_chains::all(kind, profile, NOW) {
            // OpenVPN has no OCSP: the server's lists are the source.
            let expected = case.name == "revoked by OCSP";
            assert_eq!(accepts(&case), expected, "{}", case.name);
        }
    }

    #[test]
    fn device_without_current_lists_is_refused() {
        let good = wrong_chains::good(CaKind::Devices, Profile::Device, NOW);
        for lists in [
            Vec::new(),
            good.lists[..1].to_vec(),
            good.lists[1..].to_vec(),
        ] {
            let case = wrong_chains::good(CaKind::Devices, Profile::Device, NOW);
            assert!(!accepts(&Case { lists, ..case }));
        }
    }

    #[test]
    fn certificates_of_people_and_servers_open_no_tunnel() {
        let administrator = false;
        for (kind, profile) in [
            (CaKind::Users, Profile::User { administrator }),
            (CaKind::Services, Profile::Server),
        ] {
            assert!(!accepts(&wrong_chains::good(kind, profile, NOW)));
        }
    }
}
