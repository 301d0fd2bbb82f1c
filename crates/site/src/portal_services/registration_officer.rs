//! Registration officers in the portal: people who handle everybody's requests.

use access::{Action, Credential, Principal};
use approval::Act;
use portal::PageError;
use portal_requests::{
    Officer, RequestForm, RequestPage, RequestPlace, RequestQuery, RequestStep, RequestView,
    StepError, SubjectView,
};
use registry::{RequestError, RequestFilter};

use crate::failure::Failure;
use crate::gate::Gate;
use crate::orders::StepOrder;
use crate::parts::Site;
use crate::request_session::{RequestSession, broken, failed, form, reason, unusable, view};

/// A person who handles registration requests in the portal (ETSI EN 319 401: registration officer), for one request
/// of the browser.
pub(crate) struct RegistrationOfficer(RequestSession);

impl RegistrationOfficer {
    /// Decides by the rules whether `who`, who shows `certificate` (DER), handles requests, and records the decision.
    /// Others get the answer that there is nothing.
    pub(crate) async fn open(
        site: &Site,
        gate: &Gate,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<Self, PageError> {
        let action = Action::RegistryRequest;
        let session = RequestSession::open(site, gate, who, certificate, action, page).await?;
        let fingerprint = pki::cert::fingerprint_sha256(certificate);
        match *who.credential() == (Credential::Certificate { fingerprint }) {
            true => Ok(Self(session)),
            false => Err(PageError::NotFound),
        }
    }

    /// Carries a request out, unless that gives a secret: a browser may keep a page, and people who pass may see it.
    async fn carry_out(&self, seen: (&str, u64)) -> Result<(), StepError> {
        let record = self.0.record(seen.0).await?;
        let secret = match record.request.act() {
            Act::Invite { .. } => "an invitation's code",
            Act::RecoverKey { .. } => "a recovered key",
            _ => return self.0.carry_out(seen).await,
        };
        let what = anyhow::anyhow!("{secret} is not shown in a browser");
        let hint = "use `cordon registry request carry-out ID --seen VERSION --out FILE`";
        self.0.outcome(Err(Failure::new(what, hint))).await
    }
}

impl Officer for RegistrationOfficer {
    /// A page of the queue.
    async fn requests(&self, query: &RequestQuery) -> Result<RequestPage, PageError> {
        let filter = match query.state.as_str() {
            "" => RequestFilter::Waiting,
            "all" => RequestFilter::All,
            state => RequestFilter::State(state.to_owned()),
        };
        self.0.listed(&filter, query.before.as_ref()).await
    }

    /// A request with everything that is shown of it.
    async fn request(&self, id: &str) -> Result<RequestView, PageError> {
        let record = self.0.record(id).await?;
        let others = match record.request.act().subject() {
            Some(subject) => {
                let filter = RequestFilter::Subject(subject.to_owned());
                self.0.listed(&filter, None).await?
            }
            None => RequestPage::default(),
        };
        self.0.view(record, others).await
    }

    /// Everything that is known of a person, device or gateway.
    async fn subject(
        &self,
        name: &str,
        before: Option<RequestPlace>,
    ) -> Result<SubjectView, PageError> {
        let filter = RequestFilter::Subject(name.to_owned());
        let requests = self.0.listed(&filter, before.as_ref()).await?;
        let view = view::subject(&self.0.site, name, requests).await;
        view.map_err(|failure| failed(&failure))
    }

    /// Begins a request and gives its identifier.
    async fn begin(&self, form: &RequestForm, submit: bool) -> Result<String, StepError> {
        let order = form::order(form).map_err(unusable)?;
        self.0.begin(order, &form.reason, submit).await
    }

    /// Makes a step with a request of which the person saw version `seen`.
    async fn step(&self, id: &str, seen: u64, step: RequestStep) -> Result<(), StepError> {
        let seen = (id, seen);
        let step = match step {
            RequestStep::Edit(form) => {
                let order = form::order(&form).map_err(unusable)?;
                return self.0.edit(seen, order, &form.reason).await;
            }
            RequestStep::CarryOut => return self.carry_out(seen).await,
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
        self.0.make(seen, step).await
    }

    /// The bytes that an approver of version `seen` signs.
    async fn statement(&self, id: &str, seen: u64) -> Result<Vec<u8>, StepError> {
        let record = self.0.record(id).await?;
        if record.request.version() != seen {
            return Err(StepError::Conflict(view::conflict(&record, seen)));
        }
        let statement = record.request.statement();
        statement.map_err(|error| broken(&RequestError::from(error)).into())
    }

    /// The certificate that came out, with its issuer, in PEM; for the requester and for who may approve it.
    async fn certificate(&self, id: &str) -> Result<String, PageError> {
        let record = self.0.record(id).await?;
        self.0.certificate(&record).await
    }
}
