//! The giver of a command, once that is proved and permitted.

use access::Principal;
use audit::Actor;

/// The giver of a command that the access rules permit.
pub struct Giver {
    /// The actor of its events.
    pub actor: Actor,
    /// The person, or the account of this machine, that the rules decide about.
    pub principal: Principal,
    /// The certificate of the person who signed the command, in DER; none at the console.
    pub certificate: Option<Vec<u8>>,
}

impl Giver {
    /// The person who signed and the certificate; none at the console.
    pub fn person(&self) -> Option<(&Principal, &[u8])> {
        let certificate = self.certificate.as_deref()?;
        Some((&self.principal, certificate))
    }
}
