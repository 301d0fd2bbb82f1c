//! Signing certificates outside of the transactions that record them.
//!
//! A key on a token takes its time, or never answers. Whoever signed inside of a transaction would keep everybody else
//! from writing meanwhile, revocations above all. So a transaction that finds no certificate for what it is about to
//! record ends without having changed anything, the certificate is signed, and the transaction begins anew, with all its
//! checks. A certificate that is not recorded after all leaves the registry for nobody.

use audit::{Actor, Outcome};
use pki::Certificate;
use pki::issue::CertificateRequest;
use pki::profile::CaKind;
use time::OffsetDateTime;

use crate::issue::event;
use crate::lists::OwnShard;
use crate::{Registry, RegistryError};

/// Signatures for one order at most: names and clearance may change between two transactions, but hardly twice.
const ROUNDS: u8 = 3;

/// A certificate on its way from the order to the database.
#[derive(Default)]
pub(crate) struct Signing {
    wanted: Option<(CaKind, CertificateRequest)>,
    certificate: Option<Certificate>,
    /// Chosen once: where the site has no public address, there is none.
    shard: Option<Option<OwnShard>>,
    rounds: u8,
}

impl Signing {
    /// Says what is to be signed; a certificate for anything else is dropped.
    pub(crate) fn want(&mut self, kind: CaKind, request: &CertificateRequest) {
        let is_same = self
            .wanted
            .as_ref()
            .is_some_and(|(of, wanted)| *of == kind && wanted == request);
        if !is_same {
            self.wanted = Some((kind, request.clone()));
            self.certificate = None;
        }
    }

    /// The certificate for what is wanted, if it was signed.
    pub(crate) fn take(&mut self) -> Option<Certificate> {
        self.certificate.take()
    }

    pub(crate) fn shard(&self) -> Option<&OwnShard> {
        self.shard.as_ref()?.as_ref()
    }
}

impl Registry {
    /// The lists that the certificate will name.
    pub(crate) fn shard_of<'a>(
        &self,
        signing: &'a mut Signing,
        kind: CaKind,
    ) -> Result<Option<&'a OwnShard>, RegistryError> {
        if signing.shard.is_none() {
            signing.shard = Some(self.choose_shard(kind)?);
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
        let Some((kind, request)) = &signing.wanted else {
            return Err(RegistryError::Changing);
        };
        if signing.rounds > ROUNDS {
            return Err(RegistryError::Changing);
        }
        let (registry, kind, wanted) = (self.clone(), *kind, request.clone());
        let work = move || Ok::<_, RegistryError>(registry.authority(kind)?.issue(&wanted, now));
        let signed = self.signers(kind)?.run(work).await;
        match signed.map_err(|_| RegistryError::Interrupted)?? {
            Ok(certificate) => {
                signing.certificate = Some(certificate);
                Ok(())
            }
            Err(error) => {
                let event = event(request, kind, actor.clone(), Outcome::Fail, now);
                self.record(event.with_reason(error.to_string())).await?;
                Err(error.into())
            }
        }
    }

    /// Threads for signatures of an authority: one that does not answer takes those of no other, nor those for events.
    pub(crate) fn signers(&self, kind: CaKind) -> Result<&pool::Pool, RegistryError> {
        let signers = self.inner.signers.get(&kind);
        signers.ok_or(RegistryError::NoAuthority(kind))
    }
}
