//! What is not done, with the way to what would be.

use audit::Actor;
use registry::{RequestError, Warrant};

use crate::failure::{Failure, Outcome};
use crate::parts::Site;

pub(super) const LOOK: &str = "`cordon registry request show` has the request as it is";

/// A warrant for a direct order of `who`; where approvals are required, the way to them.
pub fn direct(site: &Site, who: &Actor, instead: &str) -> Outcome<Warrant> {
    let hint = format!("ask for it with `cordon registry request new {instead}`");
    site.registry
        .direct(who.clone())
        .map_err(|error| Failure::new(anyhow::Error::new(error), hint))
}

/// A refusal with its stable name, and what to do about it.
pub(super) fn told<T>(outcome: Result<T, RequestError>) -> Outcome<T> {
    outcome.map_err(|error| {
        let hint = match &error {
            RequestError::Unknown(_) => "`cordon registry request list --all` names every request",
            RequestError::NotAvailable(_) => "see `cordon registry request new --help`",
            _ => LOOK,
        };
        let code = error.code();
        Failure::new(
            anyhow::Error::new(error).context(format!("refused ({code})")),
            hint,
        )
    })
}
