//! A certificate by its event, held against its request and against itself.

use approval::Act;
use audit::Event;
use pki::Certificate;
use pki::Clearance;
use pki::cert;
use pki::name::{AltName, Subject, WindowsAccount};
use pki::path::{Purpose, TrustStore};
use pki::profile::{CaKind, Profile};
use pki::spki::spki_sha256;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use time::OffsetDateTime;

use super::tracked::{CarriedOut, transaction_of};
use crate::generation::AuthorityId;
use crate::origin::OriginKind;

/// A certificate by its event. What versions before this one did not record is missing.
pub(super) struct Recorded {
    pub(super) entry: u64,
    /// The registry's transaction that it was recorded with.
    pub(super) transaction: u64,
    pub(super) authority: String,
    /// The generation of it; `None` for one that is none.
    pub(super) issuer: Option<AuthorityId>,
    /// That it did not issue at that time.
    pub(super) foreign: Option<String>,
    pub(super) holder: String,
    pub(super) serial: String,
    pub(super) origin: Option<OriginKind>,
    pub(super) request: Option<String>,
    pub(super) invitation: Option<String>,
    /// Serial number of the certificate by which a renewal was asked for.
    pub(super) renews: Option<String>,
    /// It is in the registry's book.
    pub(super) in_book: bool,
    /// The device's one-time code or the earlier certificate, where the origin needs one, came before.
    pub(super) prepared: bool,
    pub(super) profile: String,
    /// SHA-256 of the profile's file, where it is not as it is built in.
    pub(super) profile_sha256: Option<String>,
    /// That another file was in force at that time.
    pub(super) off_profile: Option<String>,
    pub(super) clearance: Clearance,
    pub(super) unit: Option<String>,
    /// Names of a server.
    pub(super) names: Vec<String>,
    /// The account of Windows that it logs on to.
    pub(super) account: Option<WindowsAccount>,
    pub(super) spki_sha256: Option<String>,
    by: String,
}

impl Recorded {
    /// Reads a `certificate.issue` event; gives the certificate's fingerprint too. `None` without its serial number.
    pub(super) fn of_event(entry: u64, event: &Event) -> Option<(String, Self)> {
        let text = |name: &str| {
            let value = event.details.get(name).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        let mut parts = event.resource.splitn(3, '/').skip(1);
        let (authority, name) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let level = event.details.get("clearance").and_then(Value::as_u64);
        let clearance = level.and_then(|level| Clearance::try_from(u8::try_from(level).ok()?).ok());
        let origin = text("origin");
        let kind = authority.parse().ok();
        // Versions before this one had one generation, and did not say so.
        let issuer = match text("issuer") {
            Some(name) => name.parse().ok(),
            None => kind.map(AuthorityId::first),
        };
        let issuer = issuer.filter(|id: &AuthorityId| Some(id.kind()) == kind);
        let one = Self {
            entry,
            transaction: transaction_of(event),
            authority,
            issuer,
            foreign: None,
            holder: text("uid").unwrap_or(name),
            serial: text("serial")?,
            origin: OriginKind::ALL
                .into_iter()
                .find(|kind| origin.as_deref() == Some(kind.name())),
            request: text("request"),
            invitation: text("invitation"),
            renews: text("renews"),
            unit: text("unit"),
            names: names_of(event),
            account: account_of(event),
            in_book: false,
            prepared: true,
            profile: text("profile").unwrap_or_default(),
            profile_sha256: text("profile_sha256"),
            off_profile: None,
            clearance: clearance.unwrap_or_default(),
            spki_sha256: text("spki_sha256"),
            by: event.actor.id.clone(),
        };
        Some((text("fingerprint")?, one))
    }

    /// Whether an invitation has to explain it: people and servers have no other way round a request of their own.
    pub(super) fn is_invited(&self) -> bool {
        match self.origin {
            Some(OriginKind::Invitation) => true,
            Some(OriginKind::Renewal) => {
                self.authority == CaKind::Users.name()
                    || self.profile == Profile::NetworkServer.to_string()
            }
            _ => false,
        }
    }

    /// What the rules do not explain of it. `carried_out` is its request's act.
    pub(super) fn unexplained(&self, carried_out: Option<&CarriedOut>) -> Option<String> {
        match self.origin {
            None => Some("its event does not say how it came about".to_owned()),
            Some(OriginKind::Order) => Some(format!("{} ordered it, without a request", self.by)),
            Some(OriginKind::Request) => self.differs_from_request(carried_out),
            Some(kind) if !comes_by(kind, &self.profile) => {
                let (profile, origin) = (&self.profile, kind.name());
                Some(format!("a {profile} does not come about by {origin}"))
            }
            Some(_) if !self.prepared => Some(
                "there was nothing that it could come from: no code, no certificate to renew"
                    .to_owned(),
            ),
            Some(_) => None,
        }
    }

    fn differs_from_request(&self, carried_out: Option<&CarriedOut>) -> Option<String> {
        let id = self.request.as_deref().unwrap_or_default();
        let Some(done) = carried_out.filter(|done| done.result == self.serial) else {
            return Some(format!("request {id} was not carried out with it"));
        };
        let (subject, clearance) = match &done.act {
            Act::Issue {
                subject,
                profile,
                clearance,
                spki_sha256: key,
                account,
                ..
            } => {
                if self.account != *account {
                    return Some(format!("request {id} was for another account of Windows"));
                }
                if self.spki_sha256.as_ref() != Some(key) {
                    return Some(format!("request {id} was for another key"));
                }
                if *profile != self.profile {
                    return Some(format!("request {id} was for the profile {profile}"));
                }
                (subject, clearance)
            }
            Act::Renew {
                subject, clearance, ..
            } => (subject, clearance),
            other => return Some(format!("request {id} was for the act {}", other.name())),
        };
        if *subject != self.holder {
            return Some(format!("request {id} was for {subject}"));
        }
        if *clearance != self.clearance {
            return Some(format!("request {id} was for the clearance {clearance}"));
        }
        (!done.enough).then(|| format!("request {id} had too few approvals"))
    }

    /// What the certificate says otherwise than its event.
    pub(super) fn differs_from(
        &self,
        der: &[u8],
        certificate: &Certificate,
        trust: &TrustStore,
    ) -> Option<&'static str> {
        let tbs = &certificate.tbs_certificate;
        let key = spki_sha256(&tbs.subject_public_key_info).ok();
        let Ok(subject) = Subject::from_name(&tbs.subject) else {
            return Some("name");
        };
        if cert::serial_hex(certificate) != self.serial {
            return Some("serial number");
        }
        if self.spki_sha256.is_some() && key != self.spki_sha256 {
            return Some("key");
        }
        if subject.unit != self.unit {
            return Some("unit");
        }
        if subject.uid.unwrap_or(subject.common_name) != self.holder {
            return Some("holder");
        }
        if self.profile == Profile::NetworkServer.to_string() {
            let wanted: Vec<AltName> = self.names.iter().cloned().map(AltName::Dns).collect();
            if !cert::alt_names(certificate).is_ok_and(|names| names == wanted) {
                return Some("list of names");
            }
        }
        if self.account.is_some() && cert::windows_account(certificate) != self.account {
            return Some("account of Windows");
        }
        let chain = [CertificateDer::from(der)];
        let begin = OffsetDateTime::from(tbs.validity.not_before.to_system_time());
        let purposes = [Purpose::ClientUser, Purpose::ClientDevice];
        let mut client = purposes
            .into_iter()
            .filter_map(|purpose| trust.validate_path(&chain, purpose, begin).ok());
        match client.next() {
            // What the site makes for its own services opens no door as a person or camera.
            Some(_) if self.origin == Some(OriginKind::Own) => Some("purpose"),
            Some((identity, _)) if identity.clearance != self.clearance => Some("clearance"),
            _ => None,
        }
    }
}

/// The names of a server in an event about it.
pub(super) fn names_of(event: &Event) -> Vec<String> {
    let names = event.details.get("names").and_then(Value::as_str);
    let names = names.unwrap_or_default().split_ascii_whitespace();
    names.map(str::to_owned).collect()
}

/// The account of Windows in an event about a certificate or invitation.
pub(super) fn account_of(event: &Event) -> Option<WindowsAccount> {
    let text = |name: &str| event.details.get(name).and_then(Value::as_str);
    WindowsAccount::new(text("principal")?, text("sid")?).ok()
}

/// Whether certificates of this profile, by its name, come about without a request in this way.
fn comes_by(origin: OriginKind, profile: &str) -> bool {
    let is = |one: &Profile| one.to_string() == profile;
    match origin {
        OriginKind::Enrolment => is(&Profile::Device),
        OriginKind::Renewal => [Profile::Device, Profile::VpnDevice, Profile::Gateway]
            .iter()
            .any(is),
        OriginKind::Own => {
            let services = [
                Profile::Server,
                Profile::ServiceSigner,
                Profile::TrustBundleSigner,
                Profile::CmpSigner,
                Profile::ScepAuthority,
                Profile::ServiceRecipient,
            ];
            let signers = CaKind::ALL.map(Profile::OcspSigner);
            services.iter().chain(&signers).any(is)
        }
        OriginKind::Request | OriginKind::Order | OriginKind::Invitation | OriginKind::Founding => {
            false
        }
    }
}
