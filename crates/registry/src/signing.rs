//! Signing certificates outside of the transactions that record them.
//!
//! A key on a token takes its time, or never answers. Whoever signed inside of a transaction would keep everybody else
//! from writing meanwhile, revocations above all. So a transaction that finds no certificate for what it is about to
//! record ends without having changed anything, the certificate is signed, and the transaction begins anew, with all its
//! checks. A certificate that is not recorded after all leaves the registry for nobody.

use audit::{Actor, Outcome};
use pki::Certificate;
use pki::issue::CertificateRequest;
use time::OffsetDateTime;

use crate::generation::AuthorityId;
use crate::issue::event;
use crate::lists::OwnShard;
use crate::{Registry, RegistryError};

/// Signatures for one order at most: names and clearance may change between two transactions, but hardly twice.
const ROUNDS: u8 = 3;

/// A certificate on its way from the order to the database.
#[derive(Default)]
pub(crate) struct Signing {
    wanted: Option<(AuthorityId, CertificateRequest)>,
    certificate: Option<Certificate>,
    /// Chosen once for an authority: where the site has no public address, there is none.
    shard: Option<(AuthorityId, Option<OwnShard>)>,
    rounds: u8,
}

impl Signing {
    /// Says what is to be signed; a certificate for anything else is dropped.
    pub(crate) fn want(&mut self, id: AuthorityId, request: &CertificateRequest) {
        let is_same = self
            .wanted
            .as_ref()
            .is_some_and(|(of, wanted)| *of == id && wanted == request);
        if !is_same {
            self.wanted = Some((id, request.clone()));
            self.certificate = None;
        }
    }

    /// The certificate for what is wanted, if it was signed.
    pub(crate) fn take(&mut self) -> Option<Certificate> {
        self.certificate.take()
    }

    pub(crate) fn shard(&self) -> Option<&OwnShard> {
        self.shard.as_ref()?.1.as_ref()
    }
}

impl Registry {
    /// The lists that the certificate will name.
    pub(crate) fn shard_of<'a>(
        &self,
        signing: &'a mut Signing,
        id: AuthorityId,
    ) -> Result<Option<&'a OwnShard>, RegistryError> {
        if signing.shard.as_ref().is_none_or(|(of, _)| *of != id) {
            signing.shard = Some((id, self.choose_shard(id)?));
        }
        Ok(signing.shard())
    }

    /// Signs what the last transaction wanted. The caller has none open.
    pub(crate) async fn sign_outside(
        &self,
        signing: &mut Signing,
        actor: &Actor,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        signing.rounds = signing.rounds.saturating_add(1);
        let Some((id, request)) = &signing.wanted else {
            return Err(RegistryError::Changing);
        };
        if signing.rounds > ROUNDS {
            return Err(RegistryError::Changing);
        }
        let (authority, wanted) = (self.authority(*id)?, request.clone());
        let work = move || Ok::<_, RegistryError>(authority.signing()?.issue(&wanted, now));
        let signed = self.signers(*id).run(work).await;
        match signed.map_err(|_| RegistryError::Interrupted)?? {
            Ok(certificate) => {
                signing.certificate = Some(certificate);
                Ok(())
            }
            Err(error) => {
                let event = event(request, *id, actor.clone(), Outcome::Fail, now);
                self.record(event.with_reason(error.to_string())).await?;
                Err(error.into())
            }
        }
    }
}
