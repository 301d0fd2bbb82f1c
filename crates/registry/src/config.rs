//! What an installation may choose.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use pki::Certificate;
use pki::clearance::Clearance;
use pki::key::{AuthorityKey, KeyAlgorithm, KeyError, KeyList, Passphrase};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use store::ClockFloor;
use time::Duration;

use crate::Registration;
use crate::generation::{AuthorityId, CertifiedName};

/// Default of [`Config::renewal_grace`]. Our choice: a season in a workshop or depot. A certificate that
/// ended proves as much about its holder as the day before; what grows is only the time in which a
/// thief of a device that nobody missed may renew it.
pub const RENEWAL_GRACE: Duration = Duration::days(90);

/// Default of [`Config::crl_shards`]. Our choice: an entry has 49 bytes, so that 100 000 revoked certificates make lists of
/// 38 KiB on average, and of less than 64 KiB however chance distributes them.
pub const CRL_SHARDS: NonZeroU16 = NonZeroU16::new(128).unwrap();
/// Largest [`Config::crl_shards`]: relying parties keep a bounded number of lists of one authority.
pub const MAX_CRL_SHARDS: u16 = 256;

/// How long certificates and lists are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    pub root: Duration,
    /// Issuing authorities, and the root's revocation list, which only changes when one of them
    /// is revoked.
    pub authority: Duration,
    pub user: Duration,
    pub device: Duration,
    /// Servers and central roles.
    pub service: Duration,
    /// Signers of OCSP responses. Nobody outside asks whether they are revoked (RFC 6960, section 4.2.2.2.1), so this is how
    /// long others may go on trusting one whose key was stolen.
    pub ocsp_signer: Duration,
    /// OCSP responses, which are signed anew at half of it.
    pub ocsp_response: Duration,
    /// Revocation lists of the issuing authorities. Inside Cordon revocations are pushed; this is
    /// how long others may go on trusting an old list.
    pub crl: Duration,
    /// Delta lists of the same: how long others may go on without what came since.
    pub delta_crl: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            root: Duration::days(20 * 365),
            authority: Duration::days(10 * 365),
            user: Duration::days(365),
            device: Duration::days(365),
            service: Duration::days(365),
            ocsp_signer: Duration::days(7),
            ocsp_response: Duration::hours(12),
            crl: Duration::days(1),
            delta_crl: Duration::hours(6),
        }
    }
}

impl Lifetimes {
    /// The lifetime of certificates of `profile`.
    #[must_use]
    pub const fn of(&self, profile: Profile) -> Duration {
        match profile {
            Profile::Root => self.root,
            Profile::IssuingCa(_) => self.authority,
            Profile::User { .. }
            | Profile::Named {
                authority: CaKind::Users,
                ..
            } => self.user,
            Profile::Device
            | Profile::VpnDevice
            | Profile::Named {
                authority: CaKind::Devices,
                ..
            } => self.device,
            Profile::Server
            | Profile::NetworkServer
            | Profile::Gateway
            | Profile::ServiceSigner
            | Profile::TrustBundleSigner
            | Profile::CmpSigner
            | Profile::ScepAuthority
            | Profile::ServiceRecipient
            | Profile::Named {
                authority: CaKind::Services,
                ..
            } => self.service,
            Profile::OcspSigner(_) => self.ocsp_signer,
            // Not issued here: ceremonies have a time of their own.
            Profile::CeremonySigner => Duration::ZERO,
        }
    }
}

/// Where the authorities' keys are.
pub trait AuthorityKeys: fmt::Debug + Send + Sync {
    /// The key of an authority that is elsewhere; `None` if it is in a file, or is to be made in one.
    ///
    /// # Errors
    /// [`KeyError::Elsewhere`] if it cannot be reached.
    fn key(&self, id: AuthorityId) -> Result<Option<AuthorityKey>, KeyError>;
}

/// All keys in files.
#[derive(Debug)]
struct KeysInFiles;

impl AuthorityKeys for KeysInFiles {
    fn key(&self, _: AuthorityId) -> Result<Option<AuthorityKey>, KeyError> {
        Ok(None)
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// O of the authorities and of enrolled devices.
    pub organisation: String,
    /// C of the same, two upper-case letters.
    pub country: Option<String>,
    /// Key algorithm of the root and the issuing authorities.
    pub authority_algorithm: KeyAlgorithm,
    pub lifetimes: Lifetimes,
    /// Address at which [`crate::est::public_router`] serves lists to others, for instance
    /// `http://pki.example.org/crl`; goes into certificates. `None` leaves it out.
    pub crl_base_url: Option<String>,
    /// Among how many lists the revoked certificates of each authority are divided. It counts for certificates issued from
    /// now on; each keeps its list.
    pub crl_shards: NonZeroU16,
    /// Address at which [`crate::est::public_router`] answers OCSP requests, for instance `http://pki.example.org/ocsp`;
    /// goes into certificates. `None` leaves it out.
    pub ocsp_url: Option<String>,
    /// Address at which [`crate::est::public_router`] serves the authorities' certificates, for instance
    /// `http://pki.example.org/ca`; goes into certificates. `None` leaves it out.
    pub ca_base_url: Option<String>,
    /// Which authorities have their keys elsewhere than in files.
    pub authority_keys: Arc<dyn AuthorityKeys>,
    /// Arc of the installation's own extensions.
    pub arc: ExtensionArc,
    /// The latest time that was known: nothing is issued by a clock that is behind it.
    pub clock: ClockFloor,
    /// Where keys, certificates and lists are written.
    pub disk: durable::SharedDisk,
    /// How long after its end a device's or gateway's certificate still renews itself over EST, if it is
    /// its newest. Zero: never.
    pub renewal_grace: Duration,
    /// Whether CMP is spoken: [`Registry::cmp_response`](crate::Registry::cmp_response) answers, and invitations may keep
    /// their secret for it. Off unless it is switched on.
    pub cmp: bool,
    /// Whether SCEP is spoken: [`Registry::scep_response`](crate::Registry::scep_response) answers. Off unless it is switched on.
    pub scep: bool,
    /// Whether ACME is spoken, and servers may be invited. Off unless it is switched on.
    pub acme: bool,
    /// Whether acts need approvals, and how many.
    pub registration: Registration,
    /// Keys that nobody gets a certificate for.
    pub weak_keys: Arc<KeyList>,
    /// Certificates to whose keys archived keys are encrypted; without any, no key is archived.
    pub recovery: Option<Arc<[Certificate]>>,
    /// Bound of the users authority, fixed when the hierarchy is created.
    pub highest_user_clearance: Clearance,
    /// Bound of the devices authority, likewise.
    pub highest_device_clearance: Clearance,
    /// Bound of the services authority, likewise.
    pub highest_service_clearance: Clearance,
}

impl Config {
    /// The defaults: P-384 authorities, [`Lifetimes::default`], placeholder arc, no CRL address,
    /// devices up to secret, everybody else up to top secret.
    #[must_use]
    pub fn new(organisation: impl Into<String>) -> Self {
        Self {
            organisation: organisation.into(),
            country: None,
            authority_algorithm: KeyAlgorithm::EcdsaP384,
            lifetimes: Lifetimes::default(),
            crl_base_url: None,
            crl_shards: CRL_SHARDS,
            ocsp_url: None,
            ca_base_url: None,
            authority_keys: Arc::new(KeysInFiles),
            arc: ExtensionArc::default(),
            clock: ClockFloor::default(),
            disk: durable::real(),
            renewal_grace: RENEWAL_GRACE,
            cmp: false,
            scep: false,
            acme: false,
            registration: Registration::default(),
            weak_keys: Arc::default(),
            recovery: None,
            highest_user_clearance: Clearance::TopSecret,
            // What a device in the field can be stolen with.
            highest_device_clearance: Clearance::Secret,
            highest_service_clearance: Clearance::TopSecret,
        }
    }

    pub(crate) const fn highest_clearance(&self, kind: CaKind) -> Clearance {
        match kind {
            CaKind::Users => self.highest_user_clearance,
            CaKind::Devices => self.highest_device_clearance,
            CaKind::Services => self.highest_service_clearance,
        }
    }

    /// The name that a new authority gets.
    pub(crate) fn authority_name(&self, id: AuthorityId) -> CertifiedName {
        CertifiedName::new(&self.organisation, self.country.as_deref(), id)
    }

    pub(crate) fn crl_url(&self, name: &str) -> Option<String> {
        let base = self.crl_base_url.as_deref()?;
        Some(format!("{}/{name}.crl", base.trim_end_matches('/')))
    }

    /// Where the certificate of `root` or of an issuing authority is.
    pub(crate) fn ca_url(&self, name: &str) -> Option<String> {
        let base = self.ca_base_url.as_deref()?;
        Some(format!("{}/{name}.cer", base.trim_end_matches('/')))
    }
}

/// Passphrases of the key files.
#[derive(Clone)]
pub struct Passphrases {
    /// Of the root's key, needed again only to revoke or add an authority.
    pub root: Passphrase,
    /// Of the issuing authorities' keys, needed at each start.
    pub issuing: Passphrase,
}
