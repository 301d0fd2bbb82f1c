//! Registration requests for people in the portal: who may handle them, and the portal's forms in the terms of
//! [`registration`], which carries out what people and commands ask for alike.

mod form;
mod view;

use access::{Action, Context, Credential, Principal, Resource};
use approval::Act;
use audit::Actor;
use directory::DirectoryError;
use portal::{
    BackendError, RequestForm, RequestPage, RequestPlace, RequestQuery, RequestStep, RequestView,
    StepError, SubjectView,
};
use registry::{
    CarryError, RegistryError, RequestCursor, RequestError, RequestFilter, RequestRecord,
};
use time::OffsetDateTime;

use crate::failure::{Failure, Outcome};
use crate::gate::Gate;
use crate::giver::Giver;
use crate::orders::StepOrder;
use crate::registration;
use crate::site::Site;

/// Longest part of an address that stands in an event.
const MAX_PAGE: usize = 200;

/// A person who handles registration requests in the portal (ETSI EN 319 401: registration officer), for one request
/// of the browser.
///
/// Only [`RegistrationOfficer::open`] makes one, after the rules have permitted it and that is recorded; every function
/// that reads or changes a request for the portal is a method of it.
pub(crate) struct RegistrationOfficer {
    /// The site, whose registry has the person's address in all events.
    site: Site,
    by: Principal,
    giver: Giver,
}

impl RegistrationOfficer {
    /// Decides by the rules whether `who`, who shows `certificate` (DER), handles requests, and records the decision.
    /// Whoever does not is told that there is nothing.
    pub(crate) async fn open(
        site: &Site,
        gate: &Gate,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<Self, BackendError> {
        let resource = Resource::system();
        let action = Action::RegistryRequest;
        let decision = site
            .access
            .decide(who, action, &resource, &Context::default());
        let page: String = page.chars().take(MAX_PAGE).collect();
        let event = decision
            .event(OffsetDateTime::now_utc(), who, action, &resource)
            .with_detail("page", page);
        let recorded = gate.note(event).await;
        let fingerprint = pki::cert::fingerprint_sha256(certificate);
        let shown = Credential::Certificate { fingerprint };
        // The refusal stands, recorded or not.
        if !decision.allowed || *who.credential() != shown {
            return Err(BackendError::NotFound);
        }
        if !recorded {
            let message = "the audit log cannot be written".to_owned();
            return Err(BackendError::Failed(message));
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
                person: Some((who.clone(), certificate.to_vec())),
            },
        })
    }

    /// A page of the queue.
    pub(crate) async fn requests(&self, query: &RequestQuery) -> Result<RequestPage, BackendError> {
        let filter = match query.state.as_str() {
            "" => RequestFilter::Waiting,
            "all" => RequestFilter::All,
            state => RequestFilter::State(state.to_owned()),
        };
        self.listed(&filter, query.before.as_ref()).await
    }

    async fn listed(
        &self,
        filter: &RequestFilter,
        before: Option<&RequestPlace>,
    ) -> Result<RequestPage, BackendError> {
        let before = before.map(|place| RequestCursor {
            changed_at: place.changed_at,
            id: place.id.clone(),
        });
        let now = OffsetDateTime::now_utc();
        let registry = &self.site.registry;
        let page = registry.request_page(filter, before.as_ref(), now).await;
        page.map(view::page).map_err(|error| broken(&error))
    }

    /// A request with everything that is shown of it.
    pub(crate) async fn request(&self, id: &str) -> Result<RequestView, BackendError> {
        let record = self.record(id).await?;
        let others = match record.request.act().subject() {
            Some(subject) => {
                let filter = RequestFilter::Subject(subject.to_owned());
                self.listed(&filter, None).await?
            }
            None => RequestPage::default(),
        };
        let view = view::request(&self.site, &self.by, record, others).await;
        view.map_err(|failure| failed(&failure))
    }

    /// Everything that is known of a person, device or gateway.
    pub(crate) async fn subject(
        &self,
        name: &str,
        before: Option<RequestPlace>,
    ) -> Result<SubjectView, BackendError> {
        let filter = RequestFilter::Subject(name.to_owned());
        let requests = self.listed(&filter, before.as_ref()).await?;
        let view = view::subject(&self.site, name, requests).await;
        view.map_err(|failure| failed(&failure))
    }

    /// Begins a request and gives its identifier.
    pub(crate) async fn begin(
        &self,
        form: &RequestForm,
        submit: bool,
    ) -> Result<String, StepError> {
        let order = form::order(form).map_err(unusable)?;
        let (reason, now) = (reason(&form.reason), OffsetDateTime::now_utc());
        let begun = registration::begin(&self.site, &self.giver, order, &reason, submit, now).await;
        match begun {
            Ok(request) => Ok(request.id().0.clone()),
            Err(failure) => Err(refused(&failure)),
        }
    }

    /// Makes a step with a request of which the person saw version `seen`.
    pub(crate) async fn step(
        &self,
        id: &str,
        seen: u64,
        step: RequestStep,
    ) -> Result<(), StepError> {
        let (site, giver, now) = (&self.site, &self.giver, OffsetDateTime::now_utc());
        let seen = (id, seen);
        let step = match step {
            RequestStep::Edit(form) => {
                let order = form::order(&form).map_err(unusable)?;
                let reason = reason(&form.reason);
                let edited = registration::edit(site, giver, seen, order, reason, now).await;
                return self.outcome(edited.map(drop)).await;
            }
            RequestStep::CarryOut => {
                let record = self.record(id).await?;
                if let Act::Invite { .. } = record.request.act() {
                    // A page may be kept by the browser, or seen by whoever passes: the code goes into a file.
                    let what = anyhow::anyhow!("an invitation's code is not shown in a browser");
                    let hint =
                        "use `cordon registry request carry-out ID --seen VERSION --out FILE`";
                    return self.outcome(Err(Failure::new(what, hint))).await;
                }
                if let Act::RecoverKey { .. } = record.request.act() {
                    let what = anyhow::anyhow!("a recovered key is not shown in a browser");
                    let hint =
                        "use `cordon registry request carry-out ID --seen VERSION --out FILE`";
                    return self.outcome(Err(Failure::new(what, hint))).await;
                }
                let issued = registration::carry(site, giver, seen, false, now).await;
                return self.outcome(issued.map(drop)).await;
            }
            RequestStep::Submit => StepOrder::Submit,
            RequestStep::Withdraw => StepOrder::Withdraw,
            RequestStep::Return { reason: text } => StepOrder::Return {
                reason: reason(&text),
            },
            RequestStep::Refuse { reason: text } => StepOrder::Refuse {
                reason: reason(&text),
            },
            RequestStep::Approve { signature } => StepOrder::Approve {
                signature: hex::encode(signature),
            },
        };
        let made = registration::make(site, giver, seen, step, now).await;
        self.outcome(made.map(drop)).await
    }

    /// The bytes that an approver of version `seen` signs.
    pub(crate) async fn statement(&self, id: &str, seen: u64) -> Result<Vec<u8>, StepError> {
        let record = self.record(id).await?;
        if record.request.version() != seen {
            return Err(StepError::Conflict(view::conflict(&record, seen)));
        }
        let statement = record.request.statement();
        statement.map_err(|error| broken(&RequestError::from(error)).into())
    }

    /// The certificate that came out, with its issuer, in PEM; for the requester and for who may approve it.
    pub(crate) async fn certificate(&self, id: &str) -> Result<String, BackendError> {
        let record = self.record(id).await?;
        let serial = view::serial(&record.request).ok_or(BackendError::NotFound)?;
        if record.request.check_party(&self.by).is_err() {
            return Err(BackendError::NotFound);
        }
        let pem = view::chain(&self.site, serial).await;
        pem.map_err(|failure| failed(&failure))
    }

    async fn record(&self, id: &str) -> Result<RequestRecord, BackendError> {
        let record = self.site.registry.request(id).await;
        record.map_err(|error| match error {
            RequestError::Unknown(_) => BackendError::NotFound,
            other => broken(&other),
        })
    }

    async fn outcome(&self, outcome: Outcome) -> Result<(), StepError> {
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
fn reason(text: &str) -> String {
    text.trim().replace("\r\n", "\n")
}

fn unusable(message: String) -> StepError {
    StepError::Refused {
        code: "form".to_owned(),
        message,
    }
}

/// The registry's word about the request, whichever way it came.
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
        return BackendError::NotFound.into();
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

/// Whether the registry could not act, whoever asks.
const fn is_fault(error: &RegistryError) -> bool {
    !matches!(
        error,
        RegistryError::UnknownSerial { .. }
            | RegistryError::UnknownHolder { .. }
            | RegistryError::Holder(_)
            | RegistryError::Transition { .. }
            | RegistryError::DeviceName(_)
            | RegistryError::Issue(_)
            | RegistryError::NotCovered(_)
            | RegistryError::ApprovalRequired
            | RegistryError::Request(_)
    )
}

fn failed(failure: &Failure) -> BackendError {
    tracing::error!(error = %failure.message(), "a request of the portal failed");
    BackendError::Failed("the registry could not answer".to_owned())
}

fn broken(error: &RequestError) -> BackendError {
    let error: &(dyn std::error::Error + 'static) = error;
    tracing::error!(error, "a request of the portal failed");
    BackendError::Failed("the registry could not answer".to_owned())
}
