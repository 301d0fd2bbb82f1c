//! Applicants in the portal: people who ask for certificates of their own, by password where they have none yet.

use access::{Action, Credential, Principal};
use approval::Act;
use pki::profile::{CaKind, Definition, Presence};
use portal::PageError;
use portal_requests::{
    CertificateRequestForm, OwnCertificates, OwnStep, RequestForm, RequestPage, RequestPlace,
    RequestView, StepError,
};
use registry::{RequestFilter, RequestRecord};

use crate::gate::Gate;
use crate::orders::{ActOrder, StepOrder};
use crate::parts::Site;
use crate::registration::profiles;
use crate::request_session::{RequestSession, failed, form, unusable, view};

/// A person who asks for their own certificates, for one request of the browser.
///
/// None of its methods reads or changes a request that this person did not make, or that is about another person.
pub(crate) struct Applicant(RequestSession);

impl Applicant {
    /// Decides by the rules whether `who` asks for certificates, and records the decision. `certificate` (DER) is empty for
    /// a login by password.
    pub(crate) async fn open(
        site: &Site,
        gate: &Gate,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<Self, PageError> {
        let action = Action::RegistryApply;
        let session = RequestSession::open(site, gate, who, certificate, action, page).await?;
        Ok(Self(session))
    }
}

impl portal_requests::Applicant for Applicant {
    /// The person's certificates and requests, and what can be asked for.
    async fn certificates(
        &self,
        before: Option<RequestPlace>,
    ) -> Result<OwnCertificates, PageError> {
        let filter = RequestFilter::Requester(self.uid().to_owned());
        let mut requests = self.0.listed(&filter, before.as_ref()).await?;
        // Requests about others, which registrars make, have pages of their own.
        requests
            .rows
            .retain(|row| row.act == "issue" && row.subject == self.uid());
        let certificates = view::certificates_of(&self.0.site, self.uid()).await;
        Ok(OwnCertificates {
            certificates: certificates.map_err(|failure| failed(&failure))?,
            requests,
            profiles: self.profiles().await?,
        })
    }

    async fn request(&self, id: &str) -> Result<RequestView, PageError> {
        let record = self.own(id).await?;
        self.0.view(record, RequestPage::default()).await
    }

    async fn begin(
        &self,
        form: &CertificateRequestForm,
        submit: bool,
    ) -> Result<String, StepError> {
        let order = self.order(form).await?;
        self.0.begin(order, &form.reason, submit).await
    }

    async fn step(&self, id: &str, seen: u64, step: OwnStep) -> Result<(), StepError> {
        self.own(id).await?;
        let seen = (id, seen);
        let step = match step {
            OwnStep::Edit(form) => {
                let order = self.order(&form).await?;
                return self.0.edit(seen, order, &form.reason).await;
            }
            OwnStep::CarryOut => return self.0.carry_out(seen).await,
            OwnStep::Submit => StepOrder::Submit,
            OwnStep::Withdraw => StepOrder::Withdraw,
        };
        self.0.make(seen, step).await
    }

    async fn certificate(&self, id: &str) -> Result<String, PageError> {
        let record = self.own(id).await?;
        self.0.certificate(&record).await
    }
}

impl Applicant {
    fn uid(&self) -> &str {
        self.0.by.uid()
    }

    /// The request `id`, if this person made it about their own certificate; anybody else learns nothing of it.
    async fn own(&self, id: &str) -> Result<RequestRecord, PageError> {
        let record = self.0.record(id).await?;
        let request = &record.request;
        let is_own = request.requester() == self.uid()
            && matches!(request.act(), Act::Issue { subject, .. } if subject == self.uid());
        match is_own {
            true => Ok(record),
            false => Err(PageError::NotFound),
        }
    }

    /// Nothing but a certificate of this person, at the level that the directory says: others ask for something else.
    async fn order(&self, sent: &CertificateRequestForm) -> Result<ActOrder, StepError> {
        if !sent.profile.is_empty() && !self.profiles().await?.contains(&sent.profile) {
            let what = format!(
                "{:?} is not a profile that you can ask for here",
                sent.profile
            );
            return Err(unusable(what));
        }
        let form = RequestForm {
            act: "issue".to_owned(),
            holder: "person".to_owned(),
            name: self.uid().to_owned(),
            csr: sent.csr.clone(),
            profile: sent.profile.clone(),
            ..RequestForm::default()
        };
        let mut order = form::order(&form).map_err(unusable)?;
        if let ActOrder::Issue { by_password, .. } = &mut order {
            *by_password = *self.0.by.credential() == Credential::Password;
        }
        Ok(order)
    }

    /// Names of profiles that the person may ask for: those of people with keys of their own and no account in Windows,
    /// which the registrar knows.
    async fn profiles(&self) -> Result<Vec<String>, PageError> {
        let site = &self.0.site;
        let entry = site.directory.get(self.uid()).await;
        let entry = entry.map_err(|error| {
            tracing::error!(%error, "a request of the portal failed");
            PageError::Failed("the directory could not answer".to_owned())
        })?;
        let Some(entry) = entry else {
            return Ok(Vec::new());
        };
        let fits = |text: &str, name: &str| {
            let definition = Definition::parse(text).ok();
            definition.is_some_and(|one| {
                !one.centre_makes_key()
                    && one.names().principal == Presence::None
                    && one.issuer() == pki::profile::Issuer::Authority(CaKind::Users)
                    && profiles::of_person(site, &entry, Some(name)).is_ok()
            })
        };
        let all = site.registry.profiles().into_iter();
        let usual = |name: &str| matches!(name, "user" | "administrator");
        Ok(all
            .filter(|one| !usual(&one.name) && fits(&one.text, &one.name))
            .map(|one| one.name)
            .collect())
    }
}
