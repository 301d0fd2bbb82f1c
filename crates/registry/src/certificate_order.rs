//! What is to be certified.

use pki::clearance::Clearance;
use pki::name::{AltName, Subject, WindowsAccount};
use pki::profile::Profile;
use pki::spki::SubjectPublicKeyInfoOwned;

use crate::archive::ArchivedKey;
use crate::generation::AuthorityId;

/// What to certify. The caller answers for its truth and for the right to ask.
#[derive(Clone, Debug)]
pub struct Order {
    /// Kind of certificate; not one of an authority.
    pub profile: Profile,
    /// Whom it is about. C and O default to the registry's.
    pub subject: Subject,
    /// The public key, whose private half the subject is known to hold.
    pub spki: SubjectPublicKeyInfoOwned,
    pub alt_names: Vec<AltName>,
    /// Clearance, if the holder is to have one.
    pub clearance: Option<Clearance>,
    /// The account in Windows that it logs on to.
    pub account: Option<WindowsAccount>,
    /// The authority, where it is not the one that issues.
    pub(crate) issuer: Option<AuthorityId>,
    /// The key, for the archive.
    pub archived: Option<ArchivedKey>,
}

impl Order {
    /// An order without further names and clearance.
    #[must_use]
    pub fn new(profile: Profile, subject: Subject, spki: SubjectPublicKeyInfoOwned) -> Self {
        Self {
            profile,
            subject,
            spki,
            alt_names: Vec::new(),
            clearance: None,
            account: None,
            issuer: None,
            archived: None,
        }
    }

    /// The same with further names.
    #[must_use]
    pub fn with_alt_names(mut self, names: impl IntoIterator<Item = AltName>) -> Self {
        self.alt_names.extend(names);
        self
    }

    /// The same with a clearance.
    #[must_use]
    pub fn with_clearance(mut self, clearance: Clearance) -> Self {
        self.clearance = Some(clearance);
        self
    }

    /// The same with the key for the archive, where it goes there.
    #[must_use]
    pub fn with_archived(mut self, key: Option<ArchivedKey>) -> Self {
        self.archived = key;
        self
    }

    /// The same with an account in Windows, where there is one.
    #[must_use]
    pub fn with_account(mut self, account: Option<WindowsAccount>) -> Self {
        self.account = account;
        self
    }
}
