//! The authorities in force: those of the whole file, and those of connections that have their own.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use pki::crl::CrlError;
use pki::path::PathError;
use time::OffsetDateTime;

use super::{Accepted, Trust};

/// Trust of each connection. Where a connection has its own, no other opens it.
#[derive(Clone, Default)]
pub(crate) struct Authorities {
    general: Option<Arc<Trust>>,
    own: BTreeMap<String, Arc<Trust>>,
}

/// The authorities in force, which change with the configuration.
pub(crate) type SharedTrust = Arc<RwLock<Authorities>>;

impl Authorities {
    /// The same for all connections, if there is any.
    pub(crate) fn new(general: Option<Trust>) -> Self {
        Self {
            general: general.map(Arc::new),
            own: BTreeMap::new(),
        }
    }

    /// Gives a connection its own.
    pub(crate) fn add(&mut self, connection: &str, trust: Arc<Trust>) {
        self.own.insert(connection.to_owned(), trust);
    }

    /// Returns the trust of a connection.
    pub(crate) fn of(&self, connection: &str) -> Option<&Arc<Trust>> {
        self.own.get(connection).or(self.general.as_ref())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Trust>> {
        self.general.iter().chain(self.own.values())
    }

    /// Offers revocation lists (DER) to all; each takes those of its own authorities.
    pub(crate) fn accept_crls(&self, lists: &[Vec<u8>], now: OffsetDateTime) {
        for list in lists {
            let mut errors = Vec::new();
            let mut taken = false;
            for trust in self.all() {
                match trust.accept_crl(list, now) {
                    Ok(()) | Err(CrlError::Rollback) => taken = true,
                    Err(error) => errors.push(error),
                }
            }
            // Most lists are of one organisation, of which the others' trust knows nothing.
            if let Some(error) = errors.first().filter(|_| !taken) {
                tracing::error!(%error, "a revocation list is not taken over");
            }
        }
    }

    /// Takes the revocation lists over that were accepted before the configuration changed: what is fetched anew may be older,
    /// as whoever is on the way repeats what was signed once.
    pub(crate) fn inherit(&self, old: &Self) {
        for (list, at) in old.all().flat_map(|trust| trust.lists().into_values()) {
            for trust in self.all() {
                // Of authorities that are not trusted any more, or older than what is known.
                let _ = trust.accept_crl(&list, at);
            }
        }
    }

    /// Checks that a certificate that a connection accepted still is. Costs no signature.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn recheck(
        &self,
        connection: &str,
        accepted: &Accepted,
        now: OffsetDateTime,
    ) -> Result<(), String> {
        let checked = match self.of(connection) {
            Some(trust) => trust.recheck(accepted, now),
            // Known by its key: no authority has a say.
            None => accepted.check_dates(now),
        };
        checked.map_err(|error: PathError| error.to_string())
    }
}
