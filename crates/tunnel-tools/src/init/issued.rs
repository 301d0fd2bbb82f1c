//! A certificate whose key might not be stored: then it has to be revoked.

use commandline::{Failure, SiteArgs};
use pki::cert::{CertificateChain, serial_hex};

/// A certificate that was issued, and how it is revoked.
pub(crate) struct Issued {
    serial: String,
    revocation: String,
}

impl Issued {
    pub(crate) fn of(chain_pem: &str, site: &SiteArgs) -> Self {
        let chain = CertificateChain::from_pem(chain_pem).ok();
        let first = chain
            .as_ref()
            .and_then(|chain| chain.certificates().first());
        let serial = first.map_or_else(|| "unknown".to_owned(), serial_hex);
        let mut revocation = format!("cordon pki revoke --data {}", site.data.display());
        for (option, file) in [("--config", &site.config), ("--as", &site.as_person)] {
            if let Some(file) = file {
                revocation.push_str(&format!(" {option} {}", file.display()));
            }
        }
        revocation.push_str(&format!(
            " --serial {serial} --reason cessation-of-operation"
        ));
        Self { serial, revocation }
    }

    /// Says what is to be done about a certificate whose key is lost.
    pub(crate) fn lost(&self, failure: &Failure) -> Failure {
        let Self { serial, revocation } = self;
        Failure::new(
            anyhow::anyhow!(
                "{}; certificate {serial} was issued, and its key is lost",
                failure.message()
            ),
            format!(
                "{}; revoke the certificate by `{revocation}`",
                failure.hint()
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_key_is_named_by_its_certificate_and_how_that_is_revoked() {
        let site = SiteArgs {
            data: "/var/lib/cordon".into(),
            config: Some("/etc/cordon.toml".into()),
            passphrase_file: None,
            as_person: None,
            as_password_file: None,
        };
        let issued = Issued::of("", &site);
        let issued = Issued {
            revocation: issued.revocation.replace("unknown", "0a1b"),
            serial: "0a1b".to_owned(),
        };
        let full = Failure::new(anyhow::anyhow!("cannot write x"), "make room on the disk");
        let failure = issued.lost(&full);
        assert!(failure.message().contains("certificate 0a1b was issued"));
        let command = "`cordon pki revoke --data /var/lib/cordon --config /etc/cordon.toml --serial 0a1b --reason cessation-of-operation`";
        assert!(failure.hint().contains(command), "{}", failure.hint());
    }
}
