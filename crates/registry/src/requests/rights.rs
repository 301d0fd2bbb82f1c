//! Rights of the people whom acts are about, held against the directory.
//!
//! Whoever has a certificate of a person acts in that person's name, whatever the certificate's own clearance. Acts that
//! give one therefore say what the person may do, approvals count by that, and what was approved for less than the person
//! has become since is not enough any more.

use approval::{Act, HolderKind, Rights};
use pki::cert;
use pki::name::Subject;
use pki::profile::CaKind;
use store::sqlx;

use super::error::RequestError;
use super::store::decode;
use crate::issue::FOUNDING;
use crate::{ListedPerson, Registry, RegistryError, invitations};

/// What a certificate was approved by.
struct Certified {
    uid: String,
    /// Invitation that it came by, or its own serial number.
    lineage: String,
}

/// Cause of a certificate.
enum Cause {
    /// By a request, with a key of the holder's or by an invitation.
    Approved(Box<approval::Request>),
    /// By an invitation that was ordered.
    Invited,
    /// By the founding of the site.
    Founded,
    /// By an order, with a key of the centre's.
    Ordered,
}

fn rights_in(person: &ListedPerson) -> Rights {
    Rights {
        clearance: person.record.clearance,
        roles: person.record.roles.clone(),
        units: person.record.units.clone(),
    }
}

impl Registry {
    /// Makes sure that an act says what its person may do by the directory's word of today, and that it says nothing of the
    /// kind about anybody else.
    pub(super) async fn check_rights(&self, act: &Act) -> Result<(), RequestError> {
        let (subject, of_person) = match act {
            Act::Issue {
                subject, profile, ..
            }
            | Act::Invite {
                subject, profile, ..
            } => {
                let profile = self.requested_profile(profile);
                (
                    subject,
                    profile.is_some_and(pki::profile::Profile::is_of_person),
                )
            }
            Act::Renew {
                subject, serial, ..
            }
            | Act::RecoverKey {
                subject, serial, ..
            } => {
                // Of one that is not there the other checks speak.
                let Some((kind, _)) = self.find(serial).await? else {
                    return Ok(());
                };
                (subject, kind == CaKind::Users)
            }
            Act::ChangeHolder {
                subject,
                holder,
                change,
                ..
            } => (subject, *holder == HolderKind::Person && change.grants()),
            _ => return Ok(()),
        };
        let present = match of_person {
            true => self.entry_of(subject).await?,
            false => None,
        };
        let is_as_said = match (act.rights(), &present) {
            (None, None) => true,
            (Some(said), Some(present)) => said.ranks_as(&rights_in(present)),
            _ => false,
        };
        if !is_as_said {
            return Err(RequestError::OtherRights(subject.clone()));
        }
        // A certificate gets its names from the directory: what was signed for one name is not carried out for another.
        let takes_names = matches!(act, Act::Issue { .. } | Act::Invite { .. });
        let name = match present.filter(|_| takes_names) {
            Some(person) => {
                let name = person.subject.distinguished_name();
                Some(name.map_err(|error| RegistryError::Issue(error.into()))?)
            }
            None => None,
        };
        match act.distinguished_name() == name.as_deref() {
            true => Ok(()),
            false => Err(RequestError::OtherNames(subject.clone())),
        }
    }

    /// What a person may do by the directory's word; `None` for whom it does not know.
    ///
    /// # Errors
    /// [`RegistryError::Directory`], also where there is none.
    pub(crate) async fn rights_of(&self, uid: &str) -> Result<Option<Rights>, RequestError> {
        Ok(self.entry_of(uid).await?.as_ref().map(rights_in))
    }

    /// The directory's entry of a person, without which nothing is decided about anybody.
    async fn entry_of(&self, uid: &str) -> Result<Option<ListedPerson>, RequestError> {
        let people = self.people.as_ref().ok_or(RegistryError::NoDirectory)?;
        Ok(people(uid).await.map_err(RegistryError::Directory)?)
    }

    /// Makes sure that the key of an approver's certificate (DER) was never held by the centre, and that the certificate was
    /// itself approved by as many as an approver's needs: its holder may have become one since. Invitations that were ordered
    /// while approvals were not required count, as do certificates of versions that did not ask for rights.
    pub(super) async fn check_approvers_certificate(
        &self,
        certificate: &[u8],
    ) -> Result<(), RequestError> {
        let Some(certified) = self.certified(certificate).await? else {
            return Ok(());
        };
        check_own_key(self, certificate, &certified).await?;
        let Cause::Approved(request) = cause_of(self, &certified).await? else {
            return Ok(());
        };
        let rights = self.rights_of(&certified.uid).await?.unwrap_or_default();
        let policy = &self.inner.config.registration.policy;
        request.check_signed_for(policy, &rights).map_err(|_| {
            let have = request.state().approvals().len();
            RequestError::ApproversCertificate {
                uid: certified.uid,
                have,
            }
        })
    }

    /// `None` for a certificate that this registry did not issue to a person.
    async fn certified(&self, certificate: &[u8]) -> Result<Option<Certified>, RequestError> {
        let parsed = cert::from_der(certificate).map_err(RegistryError::from)?;
        let subject = Subject::from_name(&parsed.tbs_certificate.subject)
            .map_err(|error| RegistryError::Issue(error.into()))?;
        let lineage: Option<String> = sqlx::query_scalar(
            "SELECT lineage FROM issued WHERE authority = ? AND serial = ? AND certificate = ?",
        )
        .bind(CaKind::Users.name())
        .bind(cert::serial_hex(&parsed))
        .bind(certificate)
        .fetch_optional(self.inner.people.read())
        .await?;
        Ok(subject
            .uid
            .zip(lineage)
            .map(|(uid, lineage)| Certified { uid, lineage }))
    }

    /// The request whose act gave this certificate.
    async fn request_of(
        &self,
        certified: &Certified,
    ) -> Result<Option<approval::Request>, RequestError> {
        let contents: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT content FROM requests INDEXED BY requests_by_subject
             WHERE subject = ? AND act IN ('issue', 'renew') AND state IN ('issued', 'delivered')
             ORDER BY changed_at DESC, id DESC",
        )
        .bind(&certified.uid)
        .fetch_all(self.inner.people.read())
        .await?;
        for content in contents {
            let request = decode(&content)?;
            if request.state().result() == Some(&certified.lineage) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

/// Refuses a key that the centre made or may have made: a person at the centre could sign with it. The first certificate of the
/// key decides: one without a certification request was ordered, and the centre makes the keys of ordered certificates.
async fn check_own_key(
    registry: &Registry,
    certificate: &[u8],
    certified: &Certified,
) -> Result<(), RequestError> {
    let parsed = cert::from_der(certificate).map_err(RegistryError::from)?;
    let first: (String, String) = sqlx::query_as(
        "SELECT f.uid, f.lineage FROM issued f WHERE f.authority = ?1 AND f.spki_sha256 = (
             SELECT i.spki_sha256 FROM issued i WHERE i.authority = ?1 AND i.serial = ?2)
         ORDER BY f.rowid LIMIT 1",
    )
    .bind(CaKind::Users.name())
    .bind(cert::serial_hex(&parsed))
    .fetch_one(registry.inner.people.read())
    .await?;
    let (uid, lineage) = first;
    let first = Certified { uid, lineage };
    match cause_of(registry, &first).await? {
        Cause::Ordered => {}
        _ if !cert::has_non_repudiation(&parsed) => {}
        Cause::Approved(_) | Cause::Invited | Cause::Founded => return Ok(()),
    }
    let uid = certified.uid.clone();
    Err(RequestError::CentreKey { uid })
}

async fn cause_of(registry: &Registry, certified: &Certified) -> Result<Cause, RequestError> {
    // The founding verified the person's own certification request.
    if certified.lineage == FOUNDING {
        return Ok(Cause::Founded);
    }
    let invitation = invitations::by_id(registry.inner.people.read(), &certified.lineage).await?;
    Ok(match invitation.map(|invitation| invitation.request) {
        Some(Some(id)) => Cause::Approved(Box::new(registry.request(&id).await?.request)),
        Some(None) => Cause::Invited,
        None => match registry.request_of(certified).await? {
            Some(request) => Cause::Approved(Box::new(request)),
            None => Cause::Ordered,
        },
    })
}
