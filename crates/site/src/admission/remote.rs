//! The registry and the directory of another host.

use std::net::IpAddr;
use std::sync::Arc;

use access::{PersonRecord, Principal};
use error_report::Report;
use peering::{Kind, Peer};
use pki::path::{Purpose, TrustStore};
use pki::tls::PeerCertificates;
use portal::{Coming, Epoch, Refused};
use time::OffsetDateTime;

use super::seam::Admission;
use super::wire::{Answer, Chain, LONGEST_ANSWER, PATH, Question};
use crate::peers::ask;

/// Asks a peer each time. While it cannot be reached, all are refused.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) peer: Arc<Peer>,
    /// Of the same authorities and lists as the peer's, a moment ago.
    pub(crate) trust: TrustStore,
}

impl Remote {
    async fn ask(&self, question: Question) -> Result<Answer, Refused> {
        let kind = match question {
            Question::Password { .. } => Kind::Costly,
            _ => Kind::Quick,
        };
        match ask(&self.peer, kind, PATH, &question, LONGEST_ANSWER).await {
            Ok(Answer::Refused {
                code,
                message,
                temporary,
            }) => Err(Refused {
                code,
                message,
                temporary,
            }),
            Ok(answer) => Ok(answer),
            Err(error) => {
                tracing::warn!(error = %Report(&error), "nobody can be admitted");
                Err(unreachable_peer())
            }
        }
    }

    async fn login(&self, question: Question) -> Result<(PersonRecord, Epoch), Refused> {
        match self.ask(question).await? {
            Answer::Login(record, epoch) => Ok((record, Epoch(epoch))),
            _ => Err(misunderstood()),
        }
    }
}

impl Admission for Remote {
    fn person<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(async move {
            let chain = Chain::of(peer);
            let Answer::Person(record) = self.ask(Question::Person { chain, from }).await? else {
                return Err(misunderstood());
            };
            let now = OffsetDateTime::now_utc();
            // The peer has admitted the certificate; what it says is read here again, under the same anchor.
            let validated = self
                .trust
                .validate_chain(&peer.0, Purpose::ClientUser, now)
                .map_err(|error| refused(error.code(), &error))?;
            let principal = Principal::by_certificate(&validated.identity, &record);
            let principal = principal.map_err(|error| refused(error.code(), &error))?;
            Ok(principal.at_address(from))
        })
    }

    fn device<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<String, Refused>> {
        Box::pin(async move {
            let chain = Chain::of(peer);
            match self.ask(Question::Device { chain, from }).await? {
                Answer::Device(name) => Ok(name),
                _ => Err(misunderstood()),
            }
        })
    }

    fn password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>> {
        Box::pin(async move {
            let question = Question::Password {
                uid: uid.to_owned(),
                password: password.to_owned(),
                from,
            };
            let (record, epoch) = self.login(question).await?;
            let principal = Principal::by_password(&record);
            let principal = principal.map_err(|error| refused(error.code(), &error))?;
            Ok((principal.at_address(from), epoch))
        })
    }

    fn session<'a>(
        &'a self,
        uid: &'a str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(async move {
            let question = Question::Session {
                uid: uid.to_owned(),
                epoch: epoch.0,
            };
            let (record, _) = self.login(question).await?;
            let principal = Principal::by_password(&record);
            let principal = principal.map_err(|error| refused(error.code(), &error))?;
            Ok(principal.at_address(from))
        })
    }

    fn epoch<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<Epoch, Refused>> {
        Box::pin(async move {
            let uid = uid.to_owned();
            match self.ask(Question::Epoch { uid }).await? {
                Answer::Epoch(epoch) => Ok(Epoch(epoch)),
                _ => Err(misunderstood()),
            }
        })
    }

    fn record<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<PersonRecord, Refused>> {
        Box::pin(async move {
            let uid = uid.to_owned();
            match self.ask(Question::Record { uid }).await? {
                Answer::Person(record) => Ok(record),
                _ => Err(misunderstood()),
            }
        })
    }

    fn refused_devices(&self) -> Coming<'_, Result<Vec<String>, Refused>> {
        Box::pin(async {
            match self.ask(Question::RefusedDevices).await? {
                Answer::Devices(names) => Ok(names),
                _ => Err(misunderstood()),
            }
        })
    }
}

fn refused(code: &str, error: &dyn std::error::Error) -> Refused {
    Refused {
        code: code.to_owned(),
        message: error.to_string(),
        temporary: false,
    }
}

/// It says nothing about who asked.
fn unreachable_peer() -> Refused {
    Refused {
        code: "registry-unreachable".to_owned(),
        message: "the host with the registry does not answer now".to_owned(),
        temporary: true,
    }
}

fn misunderstood() -> Refused {
    Refused {
        code: "registry-misunderstood".to_owned(),
        message: "the host with the registry gives another answer than was asked for".to_owned(),
        temporary: true,
    }
}
