//! Revocation by the account that a certificate came by, or by the certificate's own key (RFC 8555, section 7.6).

use audit::Actor;
use pki::acme::{Jwk, Revoke};
use pki::cert;
use pki::profile::{CaKind, Profile};
use pki::spki::spki_sha256;
use time::OffsetDateTime;

use super::accounts::Account;
use super::refusal::AcmeRefusal;
use crate::{EnrolError, Registry, RegistryError, Revoked};

/// With what a revocation is signed.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    Account(&'a Account),
    Key(&'a Jwk),
}

impl Registry {
    /// Revokes a certificate of a server.
    pub(super) async fn revoke_of_server(
        &self,
        by: By<'_>,
        asked: &Revoke,
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        let unknown = || EnrolError::from(AcmeRefusal::Unknown("certificate"));
        let certificate = cert::from_der(&asked.certificate).map_err(|_| unknown())?;
        let serial = cert::serial_hex(&certificate);
        let record = match self.issued(CaKind::Services, &serial).await {
            Ok(record) => record,
            Err(RegistryError::UnknownSerial { .. }) => return Err(unknown()),
            Err(error) => return Err(error.into()),
        };
        // The whole certificate, not its number alone.
        let is_server = record.profile == Profile::NetworkServer.to_string();
        if !is_server || record.certificate != asked.certificate {
            return Err(unknown());
        }
        let may = match by {
            By::Account(account) => record.holder == account.holder,
            By::Key(key) => {
                let spki = &certificate.tbs_certificate.subject_public_key_info;
                spki_sha256(spki).is_ok_and(|spki| spki == key.spki_sha256())
            }
        };
        if !may {
            return Err(AcmeRefusal::NotYours.into());
        }
        if record.revoked.is_some() {
            return Err(AcmeRefusal::AlreadyRevoked.into());
        }
        let warrant = match self.direct(Actor::service(&record.holder)) {
            Ok(warrant) => warrant,
            Err(RegistryError::ApprovalRequired) => {
                return Err(AcmeRefusal::ApprovalRequired.into());
            }
            Err(error) => return Err(error.into()),
        };
        let revoked = self.revoke(CaKind::Services, &serial, asked.reason, warrant, now);
        match revoked.await? {
            Revoked::Now => Ok(()),
            Revoked::Before(_) => Err(AcmeRefusal::AlreadyRevoked.into()),
        }
    }
}
