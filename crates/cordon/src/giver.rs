//! Whoever gives a command, once that is proved.

use access::Principal;
use audit::Actor;

/// Whoever gives a command that may be carried out.
pub(crate) struct Giver {
    /// The actor of its events.
    pub(crate) actor: Actor,
    /// The person who signed it, with the certificate in DER.
    pub(crate) person: Option<(Principal, Vec<u8>)>,
}

impl Giver {
    /// A process of this host, without a person's certificate.
    pub(crate) const fn process(actor: Actor) -> Self {
        let person = None;
        Self { actor, person }
    }
}
