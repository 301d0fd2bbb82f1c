//! What an installation may choose.

use pki::clearance::Clearance;
use pki::key::KeyAlgorithm;
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use store::ClockFloor;
use time::Duration;

/// How long certificates and lists are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Root certificate.
    pub root: Duration,
    /// Issuing authorities, and the root's revocation list, which only changes when one of them
    /// is revoked.
    pub authority: Duration,
    /// Users.
    pub user: Duration,
    /// Devices.
    pub device: Duration,
    /// Servers and central roles.
    pub service: Duration,
    /// Revocation lists of the issuing authorities. Inside Cordon revocations are pushed; this is
    /// how long others may go on trusting an old list.
    pub crl: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            root: Duration::days(20 * 365),
            authority: Duration::days(10 * 365),
            user: Duration::days(365),
            device: Duration::days(365),
            service: Duration::days(365),
            crl: Duration::days(1),
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
            Profile::User { .. } => self.user,
            Profile::Device => self.device,
            Profile::Server | Profile::ServiceSigner | Profile::ServiceRecipient => self.service,
        }
    }
}

/// The registry's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// O of the authorities and of enrolled devices.
    pub organisation: String,
    /// C of the same, two upper-case letters.
    pub country: Option<String>,
    /// Key algorithm of the root and the issuing authorities.
    pub authority_algorithm: KeyAlgorithm,
    /// Validity periods.
    pub lifetimes: Lifetimes,
    /// Where [`crate::est::router`] serves lists to others, for instance
    /// `http://pki.example.org/crl`; goes into certificates. `None` leaves it out.
    pub crl_base_url: Option<String>,
    /// Arc of the installation's own extensions.
    pub arc: ExtensionArc,
    /// The latest time that was known: nothing is issued by a clock that is behind it.
    pub clock: ClockFloor,
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
            arc: ExtensionArc::default(),
            clock: ClockFloor::default(),
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

    pub(crate) fn crl_url(&self, name: &str) -> Option<String> {
        let base = self.crl_base_url.as_deref()?;
        Some(format!("{}/{name}.crl", base.trim_end_matches('/')))
    }
}

/// What encrypts the key files.
#[derive(Clone, Copy)]
pub struct Passphrases<'a> {
    /// Of the root's key, needed again only to revoke or add an authority.
    pub root: &'a [u8],
    /// Of the issuing authorities' keys, needed at each start.
    pub issuing: &'a [u8],
}
