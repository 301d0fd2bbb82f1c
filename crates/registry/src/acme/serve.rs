//! A request comes in, and what it asks for is done.

use std::time::Instant;

use ::http::StatusCode;
use event_catalogue::registry::EnrolmentStep;
use pki::acme::{
    AccountUpdate, Finalize, Jwk, KeyChange, NewAccount, NewOrder, Revoke, SignedRequest,
    SigningKey,
};
use serde_json::json;
use time::OffsetDateTime;

use super::accounts::{self, Account};
use super::answer::{self, Answer, Base, Body};
use super::nonces::User;
use super::refusal::{AcmeRefusal, Problem};
use super::revoke::By;
use crate::orders::{self, ServerOrder};
use crate::protocol::Protocol;
use crate::{EnrolError, Registry, RegistryError, holders};
use pki::profile::CaKind;

/// Whatever requests are sent to, by the path after `/acme/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    NewAccount,
    NewOrder,
    RevokeCert,
    KeyChange,
    Account(String),
    Orders(String),
    Order(String),
    Authorization(String, usize),
    Finalize(String),
    Certificate(String),
}

impl Resource {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        Some(match parts.as_slice() {
            ["new-account"] => Self::NewAccount,
            ["new-order"] => Self::NewOrder,
            ["revoke-cert"] => Self::RevokeCert,
            ["key-change"] => Self::KeyChange,
            ["account", id] => Self::Account((*id).to_owned()),
            ["account", id, "orders"] => Self::Orders((*id).to_owned()),
            ["order", id] => Self::Order((*id).to_owned()),
            ["order", id, "finalize"] => Self::Finalize((*id).to_owned()),
            ["order", id, "certificate"] => Self::Certificate((*id).to_owned()),
            ["authorization", id, number] => {
                Self::Authorization((*id).to_owned(), number.parse().ok()?)
            }
            _ => return None,
        })
    }

    /// Its name in events of refusals.
    const fn action(&self) -> EnrolmentStep {
        match self {
            Self::NewAccount | Self::Account(_) => EnrolmentStep::Account,
            Self::KeyChange => EnrolmentStep::AccountKey,
            Self::NewOrder | Self::Orders(_) | Self::Order(_) | Self::Authorization(..) => {
                EnrolmentStep::Order
            }
            Self::Finalize(_) | Self::Certificate(_) => EnrolmentStep::Enrol,
            Self::RevokeCert => EnrolmentStep::Revoke,
        }
    }
}

/// A request as it came.
pub(super) struct Call<'a> {
    pub(super) base: Base<'a>,
    /// The address that it was sent to.
    pub(super) url: &'a str,
    pub(super) resource: Resource,
    pub(super) body: &'a [u8],
}

/// Whom events about a request name.
struct About {
    action: EnrolmentStep,
    kind: &'static str,
    name: String,
}

impl Registry {
    /// A nonce for the next request.
    pub(super) fn acme_nonce(&self) -> Result<String, RegistryError> {
        self.inner.acme.on()?.nonces().make(Instant::now())
    }

    /// Does what a request asks for. Refusals are audited.
    pub(super) async fn acme_answer(
        &self,
        call: &Call<'_>,
        now: OffsetDateTime,
    ) -> Result<Answer, Problem> {
        let registry = Self {
            protocol: Some(Protocol::Acme),
            ..self.clone()
        };
        let mut about = About {
            action: call.resource.action(),
            kind: "server",
            name: "unknown".to_owned(),
        };
        let error = match registry.acme_serve(call, &mut about, now).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let resource = (about.kind, about.name.as_str());
        let recorded = registry.record_refusal(about.action, resource, &error, now);
        let error = match recorded.await {
            Ok(()) => error,
            Err(fault) => fault.into(),
        };
        if let EnrolError::Registry(_) = &error {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "ACME request failed");
        }
        let mut problem = Problem::of(&error);
        problem.account = problem.account.map(|id| call.base.account(&id));
        Err(problem)
    }

    async fn acme_serve(
        &self,
        call: &Call<'_>,
        about: &mut About,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let request = SignedRequest::parse(call.body).map_err(AcmeRefusal::from)?;
        if request.url() != call.url {
            return Err(AcmeRefusal::OtherUrl.into());
        }
        match (request.key(), &call.resource) {
            (SigningKey::Jwk(key), Resource::NewAccount) => {
                request.verify(key).map_err(AcmeRefusal::from)?;
                self.acme_take(&request, User::Stranger)?;
                self.serve_new_account(call, &request, key, about, now)
                    .await
            }
            (SigningKey::Jwk(key), Resource::RevokeCert) => {
                request.verify(key).map_err(AcmeRefusal::from)?;
                self.acme_take(&request, User::Stranger)?;
                self.serve_revocation(&request, By::Key(key), now).await
            }
            (SigningKey::Jwk(_), _) => Err(AcmeRefusal::AccountNeeded.into()),
            (SigningKey::Account(_), Resource::NewAccount) => Err(AcmeRefusal::KeyNeeded.into()),
            (SigningKey::Account(kid), _) => {
                let account = self.acme_account(call, &request, kid).await?;
                about.name.clone_from(&account.holder);
                self.serve_account(call, &request, account, about, now)
                    .await
            }
        }
    }

    /// Uses the nonce of a request up, whose signature was verified: what nobody signed uses up none.
    fn acme_take(&self, request: &SignedRequest, user: User) -> Result<(), EnrolError> {
        let mut nonces = self.inner.acme.on()?.nonces();
        match nonces.take(request.nonce(), user, Instant::now()) {
            true => Ok(()),
            false => Err(AcmeRefusal::Nonce.into()),
        }
    }

    /// The account that has signed a request, if it has not ended.
    async fn acme_account(
        &self,
        call: &Call<'_>,
        request: &SignedRequest,
        kid: &str,
    ) -> Result<Account, EnrolError> {
        let id = kid.rsplit('/').next().unwrap_or_default();
        let by = accounts::By::Id(id);
        let account = match call.base.account(id) == kid {
            true => accounts::find(self.inner.sql.read(), by).await?,
            false => None,
        };
        let account = account.ok_or(AcmeRefusal::NoAccount)?;
        request.verify(&account.key).map_err(AcmeRefusal::from)?;
        let noted = {
            let mut requests = self.inner.acme.on()?.requests();
            requests.note(&account.id, Instant::now())
        };
        // Before its nonce is used up: whoever asks too often takes no room from other accounts.
        if noted.is_none() {
            return Err(AcmeRefusal::TooManyRequests.into());
        }
        self.acme_take(request, User::Account)?;
        match account.state.as_str() {
            "valid" => Ok(account),
            _ => Err(AcmeRefusal::AccountEnded(account.state).into()),
        }
    }

    async fn serve_new_account(
        &self,
        call: &Call<'_>,
        request: &SignedRequest,
        key: &Jwk,
        about: &mut About,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let asked = NewAccount::parse(request.payload()).map_err(AcmeRefusal::from)?;
        if let Some(binding) = &asked.binding {
            (about.kind, about.name) = ("invitation", binding.kid.clone());
        }
        let opened = self.account_of_key(key, &asked, call.url, now).await?;
        let (account, new) = opened;
        let status = match new {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        let body = answer::account(call.base, &account);
        Ok(Answer::json(status, body).at(call.base.account(&account.id)))
    }

    async fn serve_revocation(
        &self,
        request: &SignedRequest,
        by: By<'_>,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let asked = Revoke::parse(request.payload()).map_err(AcmeRefusal::from)?;
        self.revoke_of_server(by, &asked, now).await?;
        Ok(Answer {
            status: StatusCode::OK,
            body: Body::Nothing,
            location: None,
        })
    }

    async fn serve_account(
        &self,
        call: &Call<'_>,
        request: &SignedRequest,
        account: Account,
        about: &mut About,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        // A suspended server has nothing but the way to revoke what it has.
        if call.resource != Resource::RevokeCert {
            let state = self.holder_state(CaKind::Services, &account.holder).await?;
            let state = state.map(|(state, _)| state);
            holders::check_enrolled(CaKind::Services, &account.holder, state)
                .map_err(EnrolError::Holder)?;
        }
        let (base, payload) = (call.base, request.payload());
        let own = |id: &String| *id == account.id;
        match &call.resource {
            Resource::NewAccount => Err(AcmeRefusal::KeyNeeded.into()),
            Resource::RevokeCert => {
                self.serve_revocation(request, By::Account(&account), now)
                    .await
            }
            Resource::KeyChange => {
                let change = KeyChange::parse(payload).map_err(AcmeRefusal::from)?;
                let address = base.account(&account.id);
                let about = (call.url, address.as_str());
                let account = self
                    .change_account_key(&account, &change, about, now)
                    .await?;
                Ok(Answer::json(
                    StatusCode::OK,
                    answer::account(base, &account),
                ))
            }
            Resource::NewOrder => {
                let asked = NewOrder::parse(payload).map_err(AcmeRefusal::from)?;
                let (order, new) = self.order(&account, &asked, now).await?;
                let status = match new {
                    true => StatusCode::CREATED,
                    false => StatusCode::OK,
                };
                let body = answer::order(base, &order, now);
                Ok(Answer::json(status, body).at(base.order(&order.id)))
            }
            Resource::Account(id) if own(id) => {
                let account = match payload {
                    [] => account,
                    _ => match AccountUpdate::parse(payload).map_err(AcmeRefusal::from)? {
                        AccountUpdate::Nothing => account,
                        AccountUpdate::Deactivate => self.deactivate_account(&account, now).await?,
                    },
                };
                Ok(Answer::json(
                    StatusCode::OK,
                    answer::account(base, &account),
                ))
            }
            Resource::Account(_) => Err(AcmeRefusal::Unknown("account").into()),
            Resource::Orders(id) if own(id) => {
                read_only(payload)?;
                let ids = orders::all_of_account(self.inner.sql.read(), &account.id).await?;
                let orders: Vec<String> = ids.iter().map(|id| base.order(id)).collect();
                Ok(Answer::json(StatusCode::OK, json!({ "orders": orders })))
            }
            Resource::Orders(_) => Err(AcmeRefusal::Unknown("account").into()),
            Resource::Finalize(id) => {
                let asked = Finalize::parse(payload).map_err(AcmeRefusal::from)?;
                let order = self.order_of(&account, id).await?;
                let invitation = self.invitation_of(&account).await?;
                if invitation.used.is_some() {
                    about.action = EnrolmentStep::Renew;
                }
                let order = self.finalize(&invitation, order, &asked.csr, now).await?;
                let body = answer::order(base, &order, now);
                Ok(Answer::json(StatusCode::OK, body).at(base.order(&order.id)))
            }
            Resource::Order(id) => {
                read_only(payload)?;
                let order = self.order_of(&account, id).await?;
                Ok(Answer::json(
                    StatusCode::OK,
                    answer::order(base, &order, now),
                ))
            }
            Resource::Authorization(id, number) => {
                read_only(payload)?;
                let order = self.order_of(&account, id).await?;
                let body = answer::authorization(&order, *number);
                let body = body.ok_or(AcmeRefusal::Unknown("authorization"))?;
                Ok(Answer::json(StatusCode::OK, body))
            }
            Resource::Certificate(id) => {
                read_only(payload)?;
                let order = self.order_of(&account, id).await?;
                let serial = order.serial.ok_or(AcmeRefusal::Unknown("certificate"))?;
                self.certificate(&serial, now).await
            }
        }
    }

    async fn order_of(&self, account: &Account, id: &str) -> Result<ServerOrder, EnrolError> {
        let order = orders::of_account(self.inner.sql.read(), &account.id, id).await?;
        Ok(order.ok_or(AcmeRefusal::Unknown("order"))?)
    }

    /// RFC 8555, section 7.4.2: the certificate and its issuer, without the root.
    async fn certificate(&self, serial: &str, now: OffsetDateTime) -> Result<Answer, EnrolError> {
        let record = self.issued(CaKind::Services, serial).await?;
        let issued = record.into_issued(self)?;
        let chain = issued.chain.to_pem().map_err(RegistryError::from)?;
        self.note_download(serial, now).await?;
        Ok(Answer {
            status: StatusCode::OK,
            body: Body::Chain(chain),
            location: None,
        })
    }
}

/// RFC 8555, section 6.3: a request that reads has an empty payload.
const fn read_only(payload: &[u8]) -> Result<(), AcmeRefusal> {
    match payload {
        [] => Ok(()),
        _ => Err(AcmeRefusal::ReadOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_table() {
        let id = || "0123".to_owned();
        for (path, resource) in [
            ("new-account", Some(Resource::NewAccount)),
            ("new-order", Some(Resource::NewOrder)),
            ("revoke-cert", Some(Resource::RevokeCert)),
            ("key-change", Some(Resource::KeyChange)),
            ("account/0123", Some(Resource::Account(id()))),
            ("account/0123/orders", Some(Resource::Orders(id()))),
            ("order/0123", Some(Resource::Order(id()))),
            ("order/0123/finalize", Some(Resource::Finalize(id()))),
            ("order/0123/certificate", Some(Resource::Certificate(id()))),
            (
                "authorization/0123/1",
                Some(Resource::Authorization(id(), 1)),
            ),
            ("authorization/0123/-1", None),
            ("authorization/0123", None),
            ("order/0123/", None),
            ("challenge/0123", None),
            ("", None),
        ] {
            assert_eq!(Resource::of_path(path), resource, "{path}");
        }
    }
}
