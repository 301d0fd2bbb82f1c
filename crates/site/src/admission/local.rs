//! The registry and the directory of this host.

use std::net::IpAddr;

use access::{PersonRecord, Principal, PrincipalError};
use centre::disk_full;
use directory::{Directory, Entry};
use error_report::Report;
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::tls::PeerCertificates;
use portal::{Coming, Epoch, Refused};
use registry::{HolderRefused, HolderState, Registry};
use time::OffsetDateTime;

use super::seam::{Admission, DISK_FULL};

/// Asks both databases each time, so that a change counts from its commit on.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) registry: Registry,
    pub(crate) directory: Directory,
}

impl Local {
    async fn by_certificate(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        let now = OffsetDateTime::now_utc();
        let registry = self.registry.at_address(from);
        let admitted = registry.admit(&peer.0, Purpose::ClientUser, now).await;
        let admitted = admitted.map_err(|error| refusal(error.code(), &error))?;
        let identity = admitted.identity();
        let uid = identity.uid.clone().unwrap_or_default();
        let person = self.directory.get(&uid).await;
        let person = person.map_err(|error| refusal("directory-failed", &error))?;
        let person = person.ok_or_else(|| Refused {
            code: "not-in-directory".to_owned(),
            message: format!("nobody in the directory has the user id {uid}"),
            temporary: false,
        })?;
        let principal = Principal::by_certificate(identity, &person.record());
        let principal = principal.map_err(|error| refusal(error.code(), &error))?;
        Ok(principal.at_address(from))
    }

    async fn by_device_certificate(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<String, Refused> {
        let now = OffsetDateTime::now_utc();
        let registry = self.registry.at_address(from);
        let admitted = registry.admit(&peer.0, Purpose::ClientDevice, now).await;
        let admitted = admitted.map_err(|error| refusal(error.code(), &error))?;
        let name = admitted.identity().common_name.clone();
        match is_for_evidence(peer) {
            true => Ok(name),
            false => Err(Refused {
                code: "vpn-only".to_owned(),
                message: format!("the certificate of {name} is for tunnels only"),
                temporary: false,
            }),
        }
    }

    async fn by_password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(Principal, Epoch), Refused> {
        let now = OffsetDateTime::now_utc();
        // The registry's epoch before the password is checked, so that a revocation meanwhile
        // leaves a session that has ended already. Only who knows the password learns what the registry says
        // of the person.
        let registry = self.registry_epoch(uid).await;
        let entry = self.directory.login(uid, password, from, now).await;
        let entry = entry.map_err(|error| refusal(error.code(), &error))?;
        let principal = Principal::by_password(&entry.person.record());
        let epoch = Epoch([entry.epoch, registry?]);
        let principal = principal.map_err(|error| refusal(error.code(), &error))?;
        Ok((principal.at_address(from), epoch))
    }

    async fn standing(&self, uid: &str) -> Result<(Epoch, Entry), Refused> {
        let registry = self.registry_epoch(uid).await?;
        match self.directory.entry(uid).await {
            Ok(Some(entry)) => Ok((Epoch([entry.epoch, registry]), entry)),
            Ok(None) => Err(Refused {
                code: "not-in-directory".to_owned(),
                message: "your entry was removed from the directory".to_owned(),
                temporary: false,
            }),
            Err(error) => Err(refusal("directory-failed", &error)),
        }
    }

    /// The registry's part of a person's epoch. A person refused by the registry gets no
    /// session; one that never had a certificate is the directory's alone.
    async fn registry_epoch(&self, uid: &str) -> Result<i64, Refused> {
        match self.registry.holder_state(CaKind::Users, uid).await {
            Ok(None) => Ok(0),
            Ok(Some((HolderState::Enrolled, epoch))) => Ok(epoch),
            Ok(Some((state, _))) => {
                let refused = HolderRefused {
                    authority: CaKind::Users,
                    holder: uid.to_owned(),
                    state,
                };
                Err(refusal(refused.code(), &refused))
            }
            Err(error) => Err(refusal("registry-failed", &error)),
        }
    }
}

impl Admission for Local {
    fn person<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(self.by_certificate(peer, from))
    }

    fn device<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<String, Refused>> {
        Box::pin(self.by_device_certificate(peer, from))
    }

    fn password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>> {
        Box::pin(self.by_password(uid, password, from))
    }

    fn session<'a>(
        &'a self,
        uid: &'a str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(async move {
            let (present, entry) = self.standing(uid).await?;
            let principal = Principal::by_password(&entry.person.record());
            let principal = principal.map_err(|error| refusal(error.code(), &error))?;
            match epoch == present {
                true => Ok(principal.at_address(from)),
                false => Err(Refused {
                    code: "session-ended".to_owned(),
                    message: "your password or your rights were changed; log in again".to_owned(),
                    temporary: false,
                }),
            }
        })
    }

    fn epoch<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<Epoch, Refused>> {
        Box::pin(async move {
            let (epoch, entry) = self.standing(uid).await?;
            match entry.person.active {
                true => Ok(epoch),
                false => {
                    let disabled = PrincipalError::Disabled(uid.to_owned());
                    Err(refusal(disabled.code(), &disabled))
                }
            }
        })
    }

    fn record<'a>(&'a self, uid: &'a str) -> Coming<'a, Result<PersonRecord, Refused>> {
        Box::pin(async move { Ok(self.standing(uid).await?.1.person.record()) })
    }

    fn refused_devices(&self) -> Coming<'_, Result<Vec<String>, Refused>> {
        Box::pin(async {
            let refused = self.registry.refused_holders(CaKind::Devices).await;
            refused.map_err(|error| refusal("registry-failed", &error))
        })
    }
}

/// Whether the device's certificate is a camera's, rather than one for tunnels.
fn is_for_evidence(peer: &PeerCertificates) -> bool {
    let leaf = peer.0.first().and_then(|der| pki::cert::from_der(der).ok());
    leaf.is_some_and(|leaf| pki::profile::signs_evidence(&leaf))
}

fn refusal(code: &str, error: &(dyn std::error::Error + 'static)) -> Refused {
    // A database that cannot be read or written now says nothing about anybody.
    let temporary = matches!(code, "registry-failed" | "directory-failed");
    let code = match temporary && disk_full(error) {
        true => DISK_FULL,
        false => code,
    };
    if temporary {
        tracing::error!(error = %Report(error), "nobody can be admitted");
    }
    Refused {
        code: code.to_owned(),
        message: error.to_string(),
        temporary,
    }
}
