//! The changes that people are notified of.

use std::future::Future;

use commandline::Outcome;
use time::OffsetDateTime;

use crate::message::Occasion;

/// A change of a request, and the people who are notified of it.
#[derive(Debug)]
pub struct Change {
    /// Its number; the next one has a higher number.
    pub number: i64,
    pub at: OffsetDateTime,
    /// Name of the request.
    pub request: String,
    /// Addresses, each with what the change means to its owner.
    pub recipients: Vec<(String, Occasion)>,
}

/// The source of changes and people.
pub trait Source: Send + Sync {
    /// The people, as they were at the beginning of a round.
    type People: Send + Sync;

    fn people(&self) -> impl Future<Output = Outcome<Self::People>> + Send;

    /// Checks that mail for this address has a recipient who may log in.
    fn is_recipient(&self, people: &Self::People, address: &str) -> bool;

    /// Number of the newest change.
    fn newest(&self) -> impl Future<Output = Outcome<i64>> + Send;

    /// Number of the newest change before this time.
    fn newest_before(&self, time: OffsetDateTime) -> impl Future<Output = Outcome<i64>> + Send;

    /// Changes after the one of this number, oldest first and at most so many.
    fn changes(
        &self,
        after: i64,
        most: u32,
        people: &Self::People,
    ) -> impl Future<Output = Outcome<Vec<Change>>> + Send;
}
