//! Registration requests for people in the portal, in the terms of [`registration`], which carries out what people and
//! commands ask for alike. Who may do what is said by those who hold a [`RequestSession`]: a registration officer handles
//! everybody's requests, an applicant the own ones.

pub(crate) mod form;
pub(crate) mod view;

use access::{Action, Context, Principal, Resource};
use audit::Actor;
use directory::DirectoryError;
use portal::PageError;
use portal_requests::{RequestPage, RequestPlace, RequestView, StepError};
use registry::{
    CarryError, RegistryError, RequestCursor, RequestError, RequestFilter, RequestRecord,
};
use time::OffsetDateTime;

use crate::failure::{Failure, Outcome};
use crate::gate::Gate;
use crate::giver::Giver;
use crate::orders::{ActOrder, StepOrder};
use crate::parts::Site;
use crate::registration;

/// Longest part of an address in an event.
const MAX_PAGE: usize = 200;

/// A person's work with registration requests, for one request of the browser.
///
/// Only [`RequestSession::open`] makes one, after the rules have permitted it and that is recorded; every function that
/// reads or changes a request for the portal is a method of it.
pub(crate) struct RequestSession {
    /// The site, whose registry has the person's address in all events.
    pub(crate) site: Site,
    pub(crate) by: Principal,
    giver: Giver,
}

impl RequestSession {
    /// Decides by the rules whether `who`, who shows `certificate` (DER; empty for a password), may do `action`, and records
    /// the decision. Others get the answer that there is nothing.
    pub(crate) async fn open(
        site: &Site,
        gate: &Gate,
        who: &Principal,
        certificate: &[u8],
        action: Action,
        page: &str,
    ) -> Result<Self, PageError> {
        let resource = Resource::system();
        let decision = site
            .access
            .decide(who, action, &resource, &Context::default());
        let page: String = page.chars().take(MAX_PAGE).collect();
        let event = decision
            .event(OffsetDateTime::now_utc(), who, action, &resource)
            .with_detail("page", page);
        let recorded = gate.note(event).await;
        // The refusal stands, recorded or not.
        if !decision.allowed {
            return Err(PageError::NotFound);
        }
        if !recorded {
            let message = "the audit log cannot be written".to_owned();
            return Err(PageError::Failed(message));
        }
        let actor = Actor::user(who.uid(), who.name());
        Ok(Self {
            site: Site {
                registry: site.registry.at_address(who.address()),
                ..site.clone()
            },
            by: who.clone(),
            giver: Giver {
                actor,
                principal: who.clone(),
                certificate: Some(certificate.to_vec()),
            },
        })
    }

    /// A page of a list of requests.
    pub(crate) async fn listed(
        &self,
        filter: &RequestFilter,
        before: Option<&RequestPlace>,
    ) -> Result<RequestPage, PageError> {
        let before = before.map(|place| RequestCursor {
            changed_at: place.changed_at,
            id: place.id.clone(),
        });
        let now = OffsetDateTime::now_utc();
        let registry = &self.site.registry;
        let page = registry.request_page(filter, before.as_ref(), now).await;
        page.map(view::page).map_err(|error| broken(&error))
    }

    pub(crate) async fn record(&self, id: &str) -> Result<RequestRecord, PageError> {
        let record = self.site.registry.request(id).await;
        record.map_err(|error| match error {
            RequestError::Unknown(_) => PageError::NotFound,
            other => broken(&other),
        })
    }

    /// A request with everything that is shown of it; `others` is the newest about the same subject.
    pub(crate) async fn view(
        &self,
        record: RequestRecord,
        others: RequestPage,
    ) -> Result<RequestView, PageError> {
        let view = view::request(&self.site, &self.by, record, others).await;
        view.map_err(|failure| failed(&failure))
    }

    /// Begins a request and gives its identifier.
    pub(crate) async fn begin(
        &self,
        order: ActOrder,
        why: &str,
        submit: bool,
    ) -> Result<String, StepError> {
        let (site, giver, now) = (&self.site, &self.giver, OffsetDateTime::now_utc());
        let begun = registration::begin(site, giver, order, &reason(why), submit, now).await;
        match begun {
            Ok(request) => Ok(request.id().0.clone()),
            Err(failure) => Err(refused(&failure)),
        }
    }

    /// Changes the content of a request of which the person saw version `seen`.
    pub(crate) async fn edit(
        &self,
        seen: (&str, u64),
        order: ActOrder,
        why: &str,
    ) -> Result<(), StepError> {
        let (site, giver, now) = (&self.site, &self.giver, OffsetDateTime::now_utc());
        let edited = registration::edit(site, giver, seen, order, reason(why), now).await;
        self.outcome(edited.map(drop)).await
    }

    /// Makes a step with a request of which the person saw version `seen`.
    pub(crate) async fn make(&self, seen: (&str, u64), step: StepOrder) -> Result<(), StepError> {
        let (site, giver, now) = (&self.site, &self.giver, OffsetDateTime::now_utc());
        let made = registration::make(site, giver, seen, step, now).await;
        self.outcome(made.map(drop)).await
    }

    /// Has an approved request carried out of which the person saw version `seen`.
    pub(crate) async fn carry_out(&self, seen: (&str, u64)) -> Result<(), StepError> {
        let (site, giver, now) = (&self.site, &self.giver, OffsetDateTime::now_utc());
        let done = registration::carry(site, giver, seen, false, now).await;
        self.outcome(done.map(drop)).await
    }

    /// The certificate that came out, with its issuer, in PEM; for the requester and for who may approve it.
    pub(crate) async fn certificate(&self, record: &RequestRecord) -> Result<String, PageError> {
        let serial = view::serial(&record.request).ok_or(PageError::NotFound)?;
        if record.request.check_party(&self.by).is_err() {
            return Err(PageError::NotFound);
        }
        let pem = view::chain(&self.site, serial).await;
        pem.map_err(|failure| failed(&failure))
    }

    pub(crate) async fn outcome(&self, outcome: Outcome) -> Result<(), StepError> {
        let failure = match outcome {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        match of_request(&failure) {
            Some(RequestError::Changed { id, shown, .. }) => {
                let record = self.record(id).await?;
                Err(StepError::Conflict(view::conflict(&record, *shown)))
            }
            _ => Err(refused(&failure)),
        }
    }
}

/// A reason as it was typed: browsers send two characters for each end of a line, and count one.
pub(crate) fn reason(text: &str) -> String {
    text.trim().replace("\r\n", "\n")
}

pub(crate) fn unusable(message: String) -> StepError {
    StepError::Refused {
        code: "form".to_owned(),
        message,
    }
}

/// The registry's answer about the request, from a command or a page.
fn of_request(failure: &Failure) -> Option<&RequestError> {
    if let Some(error) = failure.find::<RequestError>() {
        return Some(error);
    }
    if let Some(RegistryError::Request(error)) = failure.find::<RegistryError>() {
        return Some(error);
    }
    match failure.find::<CarryError<DirectoryError>>() {
        Some(CarryError::Request(error)) => Some(error),
        _ => None,
    }
}

/// A refusal for the person, or a fault on our side.
fn refused(failure: &Failure) -> StepError {
    let request = of_request(failure);
    if matches!(request, Some(RequestError::Unknown(_))) {
        return PageError::NotFound.into();
    }
    let registry = match request {
        Some(RequestError::Registry(error)) => Some(error),
        _ => failure.find::<RegistryError>(),
    };
    let is_fault = registry.is_some_and(is_fault)
        || failure.find::<DirectoryError>().is_some()
        || matches!(
            failure.find::<CarryError<DirectoryError>>(),
            Some(CarryError::Act(_))
        )
        || failure.find::<store::StoreError>().is_some();
    if is_fault {
        return failed(failure).into();
    }
    StepError::Refused {
        code: request.map_or("", RequestError::code).to_owned(),
        message: failure.message(),
    }
}

/// Whether the registry could not act at all. The person sees the reason of every other refusal.
const fn is_fault(error: &RegistryError) -> bool {
    matches!(
        error,
        RegistryError::Store(_)
            | RegistryError::Corrupt(_)
            | RegistryError::Audit(_)
            | RegistryError::Log(_)
            | RegistryError::Together(_)
            | RegistryError::Interrupted
            | RegistryError::Io { .. }
            | RegistryError::File(_)
            | RegistryError::Random
            | RegistryError::Key(_)
            | RegistryError::NoKey(_)
            | RegistryError::Certificate(_)
            | RegistryError::Trust(_)
            | RegistryError::Crl(_)
            | RegistryError::Archive(_)
            | RegistryError::Clock(_)
            | RegistryError::Directory(_)
            | RegistryError::NoDirectory
            | RegistryError::Sealed
    )
}

pub(crate) fn failed(failure: &Failure) -> PageError {
    tracing::error!(error = %failure.message(), "a request of the portal failed");
    PageError::Failed("the registry could not answer".to_owned())
}

pub(crate) fn broken(error: &RequestError) -> PageError {
    let error: &(dyn std::error::Error + 'static) = error;
    tracing::error!(error, "a request of the portal failed");
    PageError::Failed("the registry could not answer".to_owned())
}
