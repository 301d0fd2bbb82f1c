//! Orders, and the certificates that they give.

use std::collections::BTreeSet;

use pki::acme::{Identifier, NewOrder};
use pki::csr::{self, CertificationRequest, CsrError};
use pki::profile::CaKind;
use pki::spki::spki_sha256;
use store::sqlx;
use time::OffsetDateTime;

use super::accounts::Account;
use super::refusal::AcmeRefusal;
use crate::invitations::{self, Stored};
use crate::orders::{self, ServerOrder};
use crate::{EnrolError, Registry};

impl Registry {
    /// The invitation of an account, whose names are all that it may order.
    pub(super) async fn invitation_of(&self, account: &Account) -> Result<Stored, EnrolError> {
        let readers = self.inner.sql.read();
        let invitation = invitations::by_id(readers, &account.invitation).await?;
        let gone = || AcmeRefusal::AccountEnded("revoked".to_owned());
        Ok(invitation.ok_or_else(gone)?)
    }

    /// Takes an order of names of the account's server; tells whether it is new.
    pub(super) async fn order(
        &self,
        account: &Account,
        asked: &NewOrder,
        now: OffsetDateTime,
    ) -> Result<(ServerOrder, bool), EnrolError> {
        let invitation = self.invitation_of(account).await?;
        let wanted = allowed(&asked.identifiers, &invitation.names)?;
        let mut tx = self.inner.sql.write().await?;
        let taken = orders::take(&mut tx, &account.id, &wanted, now).await?;
        tx.commit().await?;
        Ok(taken)
    }

    /// Issues the certificate of an order. Asked again with the same key, it gives the same certificate.
    pub(super) async fn finalize(
        &self,
        invitation: &Stored,
        order: ServerOrder,
        request: &[u8],
        now: OffsetDateTime,
    ) -> Result<ServerOrder, EnrolError> {
        if let Some(serial) = &order.serial {
            let csr = csr::parse_and_verify(request)?;
            let spki = spki_sha256(&csr.spki).map_err(|_| CsrError::Malformed)?;
            let of_order: Option<String> = sqlx::query_scalar(
                "SELECT spki_sha256 FROM issued WHERE authority = ? AND serial = ?",
            )
            .bind(CaKind::Services.name())
            .bind(serial)
            .fetch_optional(self.inner.sql.read())
            .await?;
            return match of_order == Some(spki) {
                true => Ok(order),
                false => Err(AcmeRefusal::OrderNotReady.into()),
            };
        }
        // What an order names was right when it was asked for; its row is held against nothing.
        let is_allowed = |name| invitation.names.contains(name);
        if order.names.is_empty() || !order.names.iter().all(is_allowed) {
            return Err(AcmeRefusal::OrderNotReady.into());
        }
        let issued = match invitation.used {
            None => {
                let csr = CertificationRequest::Pkcs10(request);
                self.try_enrol_invited(invitation, csr, Some(&order), now)
                    .await?
            }
            Some(_) => self.renew_server(invitation, &order, request, now).await?,
        };
        Ok(ServerOrder {
            serial: Some(issued.serial),
            ..order
        })
    }
}

/// The names that are asked for, in lower case, if the server has all of them.
fn allowed(asked: &[Identifier], names: &[String]) -> Result<BTreeSet<String>, AcmeRefusal> {
    let (mut wanted, mut refused) = (BTreeSet::new(), Vec::new());
    for identifier in asked {
        let name = identifier.value.to_ascii_lowercase();
        match identifier.kind.as_str() {
            "dns" if names.contains(&name) => {
                wanted.insert(name);
            }
            "dns" => refused.push((identifier.clone(), "rejectedIdentifier")),
            _ => refused.push((identifier.clone(), "unsupportedIdentifier")),
        }
    }
    match refused.is_empty() {
        true => Ok(wanted),
        false => Err(AcmeRefusal::Identifiers(refused)),
    }
}
