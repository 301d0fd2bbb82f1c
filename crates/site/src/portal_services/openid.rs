//! The OpenID Connect provider of a site: decisions, events and what has to be on disk around the core `oidc`.
//!
//! Each login to an application is a decision `service.open` with its event before the code. The decision is taken again when
//! the code becomes a login, and [`watch`] takes it as long as the login lasts.

mod database;
mod delivery;
pub(crate) mod state;
mod watch;

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use access::Principal;
use audit::{Actor, Event};
use directory::Person as Entry;
use error_report::Report;
use event_catalogue::context::Repeated;
use event_catalogue::service::{ClientRefused, CodeReplayed};
use event_catalogue::{Details as _, Recorded as _};
use oidc::{
    AuthorizationRequest, AuthorizeError, Cause, ClientProof, Ended, Endpoints, Grant, Parameters,
    Person, Redeemed, TOKEN_LIFETIME, TokenError,
};
use portal::{Epoch, PageError, Proof, Refused};
use portal_services::Services as _;
use portal_services::openid::{
    AUTHORIZE, KEYS, LOGOUT, NoCode, OpenId, PortalLogin, TOKEN, USERINFO,
};
use serde_json::{Value, json};
use services::{Client, Service};
use time::OffsetDateTime;

use self::state::{Tag, random};
use super::foreign::SiteServices;
use crate::gate::Gate;
use crate::parts::Site;

pub(crate) use delivery::deliver;
pub(crate) use state::OpenIdState;
pub(crate) use watch::watch;

impl SiteServices {
    fn endpoint(&self, path: &str) -> String {
        format!("{}{path}", self.openid.issuer)
    }

    /// The registered client `id`.
    async fn client(&self, id: &str) -> Option<(Service, Client)> {
        if !services::is_id(id) {
            return None;
        }
        let found = self.site.directory.service(id).await;
        let service = match found {
            Ok(found) => found?.service,
            Err(error) => {
                tracing::error!(error = %Report(&error), "cannot read the registry of services");
                return None;
            }
        };
        let client = service.client()?.clone();
        Some((service, client))
    }

    async fn record(&self, event: Event) {
        self.gate.note(event).await;
    }

    /// Records that a client's proof was refused, at times only.
    async fn note_refusal(&self, client: &str, error: TokenError) {
        let known = match services::is_id(client) {
            true => client,
            // What was typed as a name may be a secret.
            false => "unknown",
        };
        let more = {
            let refusals = self.openid.refusals.lock();
            let mut refusals = refusals.unwrap_or_else(PoisonError::into_inner);
            refusals.note(known, Instant::now())
        };
        let Some(more) = more else { return };
        let actor = Actor::unknown(format!("client {known}"));
        let resource = format!("service/{known}");
        let event = ClientRefused {}.into_event(OffsetDateTime::now_utc(), actor, resource);
        let not_recorded = (more > 0).then_some(more);
        let event = Repeated { not_recorded }.add_to(event);
        self.record(event.with_reason(error.to_string())).await;
    }

    /// The client that proves who it is.
    async fn proved(
        &self,
        authorization: Option<&str>,
        form: &Parameters,
        now: i64,
    ) -> Result<(Service, Client), TokenError> {
        let proof = ClientProof::read(authorization, form)?;
        let (issuer, endpoint) = (&self.openid.issuer, self.endpoint(TOKEN));
        let verified = match self.client(proof.client()).await {
            None => Err(TokenError::InvalidClient("the client is not registered")),
            Some((service, client)) => {
                let verified = proof.verify(&client, &[issuer, &endpoint], now);
                let accepted = verified.and_then(|assertion| match assertion {
                    Some(assertion) => self.openid.provider().accept(&service.id, &assertion, now),
                    None => Ok(()),
                });
                accepted.map(|()| (service, client))
            }
        };
        if let Err(error) = verified {
            self.note_refusal(proof.client(), error).await;
        }
        verified
    }

    /// Whether the person of a grant still has the rights of then, and the rules still open the service.
    async fn is_still_open(&self, tag: &Tag, service: &Service) -> bool {
        let epoch = self.gate.epoch(tag.principal.uid()).await;
        epoch.is_ok_and(|epoch| epoch == tag.epoch) && self.decide(&tag.principal, service).allowed
    }

    async fn redeem(
        &self,
        service: &Service,
        client: &Client,
        form: &Parameters,
        now: i64,
    ) -> Result<Redeemed<Tag>, TokenError> {
        let missing = |what| TokenError::InvalidRequest(what);
        let code = form.get("code").ok_or(missing("there is no code"))?;
        let redirect = form.get("redirect_uri");
        let redirect = redirect.ok_or(missing("there is no redirect_uri"))?;
        let verifier = form.get("code_verifier");
        let verifier = verifier.ok_or(missing("there is no code_verifier"))?;
        let no_random = |_| TokenError::InvalidGrant("the system gives no random bytes");
        let random = random().map_err(no_random)?;
        let tag = self
            .openid
            .provider()
            .grant(code)
            .map(|grant| grant.tag.clone());
        let is_open = match &tag {
            Some(tag) => self.is_still_open(tag, service).await,
            // The provider says why.
            None => true,
        };
        let redemption = {
            let mut provider = self.openid.provider();
            provider.redeem(&service.id, code, redirect, verifier, random, now)
        };
        self.openid.ended(&redemption.ended).await;
        if let Some(grant) = redemption.replayed {
            let uid = grant.person.uid;
            let actor = Actor::unknown(format!("client {}", service.id));
            let resource = format!("service/{}", service.id);
            let event = CodeReplayed { uid }.into_event(OffsetDateTime::now_utc(), actor, resource);
            self.record(event.with_reason("a code was presented twice: what came of it has ended"))
                .await;
        }
        let redeemed = redemption.outcome?;
        let (uid, session) = (&redeemed.login.person.uid, &redeemed.login.person.session);
        let registered = serde_json::to_string(client).unwrap_or_default();
        let client = (service.id.as_str(), registered.as_str());
        let written = match is_open {
            true => self.openid.logins.begin(client, session, uid, now).await,
            false => Ok(()),
        };
        // It may have ended while it was written: its logout came before, and the application must not begin.
        let is_open = is_open && self.openid.provider().has(&service.id, session);
        if is_open && written.is_ok() {
            return Ok(redeemed);
        }
        let ended = Ended {
            client: service.id.clone(),
            session: session.clone(),
            uid: uid.clone(),
            cause: Cause::Rights,
        };
        self.openid
            .provider()
            .end(&service.id, session, Cause::Rights);
        self.openid.ended(&[ended]).await;
        Err(match written {
            Ok(()) => TokenError::InvalidGrant("the access rules refuse by now"),
            Err(error) => {
                tracing::error!(error = %Report(&error), "a login cannot be written down");
                TokenError::InvalidGrant("the login cannot be written down")
            }
        })
    }

    /// What tokens say of a person; names are the directory's.
    async fn described(&self, login: &PortalLogin, service: &Service) -> Result<Person, PageError> {
        let who = &login.principal;
        let entry = self.site.directory.get(who.uid()).await;
        let entry: Option<Entry> = entry.map_err(|error| {
            tracing::error!(error = %Report(&error), "cannot read the directory");
            PageError::Failed("the directory cannot be read".to_owned())
        })?;
        let entry = entry.ok_or(PageError::NotFound)?;
        let roles = who.roles().intersection(&service.roles);
        let units = who.units().intersection(&service.units);
        Ok(Person {
            uid: who.uid().to_owned(),
            name: who.name().to_owned(),
            given_name: entry.given_name,
            family_name: entry.surname,
            email: entry.email,
            clearance: who.clearance().level(),
            roles: roles.map(|role| role.name().to_owned()).collect(),
            units: units.cloned().collect(),
            login: login.kind,
            since: login.since,
            session: login.session.clone(),
        })
    }
}

impl OpenId for SiteServices {
    fn issuer(&self) -> &str {
        &self.openid.issuer
    }

    fn metadata(&self) -> Value {
        let endpoints = Endpoints {
            authorization: self.endpoint(AUTHORIZE),
            token: self.endpoint(TOKEN),
            userinfo: self.endpoint(USERINFO),
            keys: self.endpoint(KEYS),
            logout: self.endpoint(LOGOUT),
        };
        oidc::metadata(&self.openid.issuer, &endpoints)
    }

    fn keys(&self) -> Result<Value, PageError> {
        let published = self.site.openid_keys.published(OffsetDateTime::now_utc());
        published.map_err(|error| PageError::Failed(error.to_string()))
    }

    async fn examine(
        &self,
        parameters: &Parameters,
    ) -> Result<AuthorizationRequest, AuthorizeError> {
        let unknown = AuthorizeError::Page("the application is not registered for logins");
        let id = parameters.get("client_id").unwrap_or_default();
        let (service, client) = self.client(id).await.ok_or(unknown)?;
        AuthorizationRequest::read(parameters, &service.id, &client)
    }

    async fn authorize(
        &self,
        mut login: PortalLogin,
        request: AuthorizationRequest,
    ) -> Result<String, NoCode> {
        let refused = |refused: Refused| NoCode::Page(PageError::Failed(refused.message));
        let epoch;
        (login.principal, epoch) = admit_again(&self.gate, &login).await.map_err(refused)?;
        let who = &login.principal;
        let service = self
            .open(who, &request.client)
            .await
            .map_err(NoCode::Page)?;
        let person = self
            .described(&login, &service)
            .await
            .map_err(NoCode::Page)?;
        let tag = Tag {
            principal: login.principal,
            epoch,
        };
        let random = random().map_err(NoCode::Page)?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let busy = request.refused("temporarily_unavailable", "too many logins are under way");
        let grant = Grant {
            request,
            person,
            tag,
        };
        let code = self.openid.provider().begin(grant, random, now);
        code.map_err(|_| NoCode::Redirect(busy))
    }

    async fn token(
        &self,
        authorization: Option<&str>,
        form: &Parameters,
    ) -> Result<Value, TokenError> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let (service, client) = self.proved(authorization, form, now).await?;
        if form.get("grant_type") != Some("authorization_code") {
            return Err(TokenError::UnsupportedGrantType);
        }
        let redeemed = self.redeem(&service, &client, form, now).await?;
        let login = &redeemed.login;
        let claims = oidc::id_token(
            &self.openid.issuer,
            &service.id,
            &login.person,
            login.scope,
            redeemed.nonce.as_deref(),
            now,
        );
        let key = self.site.openid_keys.current();
        let signed = key.map(|key| key.sign("JWT", &claims));
        let Some(Ok(id_token)) = signed else {
            tracing::error!("cannot sign an ID token");
            return Err(TokenError::InvalidGrant("the token cannot be signed"));
        };
        Ok(json!({
            "access_token": redeemed.access_token,
            "token_type": "Bearer",
            "expires_in": TOKEN_LIFETIME,
            "scope": login.scope.text(),
            "id_token": id_token,
        }))
    }

    async fn userinfo(&self, token: &str) -> Option<Value> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let login = self.openid.provider().of_token(token, now).cloned()?;
        let (service, _) = self.client(&login.client).await?;
        let is_open = self.is_still_open(&login.tag, &service).await;
        is_open.then(|| oidc::userinfo(&login.person, login.scope))
    }

    async fn log_out(&self, login: PortalLogin) -> Result<usize, PageError> {
        let ended = self.openid.provider().end_session(&login.session);
        self.openid.ended(&ended).await;
        Ok(ended.len())
    }
}

/// Admits the person again after the epoch of their rights was read: rights that were taken away before are not in the
/// principal, and rights that are taken away later change the epoch.
pub(crate) async fn admit_again(
    gate: &Gate,
    login: &PortalLogin,
) -> Result<(Principal, Epoch), Refused> {
    let (uid, from) = (login.principal.uid(), login.principal.address());
    let epoch = gate.epoch(uid).await?;
    let principal = match &login.proof {
        Proof::Certificate(peer) => gate.person(peer, from).await?,
        Proof::Password(began) => gate.session(uid, *began, from).await?,
    };
    Ok((principal, epoch))
}

/// The registry of services with its provider, for pages and tasks.
pub(crate) fn services(site: &Site, gate: &Arc<Gate>, openid: &Arc<OpenIdState>) -> SiteServices {
    SiteServices {
        site: site.clone(),
        gate: Arc::clone(gate),
        openid: Arc::clone(openid),
    }
}
