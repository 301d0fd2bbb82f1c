//! Changes of the registry of services, and logins of people to them.

use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Services",
    about: "Administrators register foreign applications, and people log in to them through the portal. Old and new \
            values stand only where they differ.",
    events: &[
        ServiceChanged::ENTRIES,
        KeyRolled::ENTRIES,
        LoggedOut::ENTRIES,
        CodeReplayed::ENTRIES,
        ClientRefused::ENTRIES,
    ],
};

family! {
    /// The record of a service changed.
    ServiceChanged: ServiceChange {
        /// A service was added.
        Add = "service.add",
        /// The record of a service was changed.
        Change = "service.change",
        /// A service was removed.
        Remove = "service.remove",
    }
    on ["service/"] ends [Ok] Review ENTITY_UPDATE with [Rows]
    {
        /// Number of the record's revision.
        revision: u64 = "revision",
        /// Name before.
        old_name: Option<String> = "name.old",
        /// Name.
        new_name: Option<String> = "name.new",
        /// Address before.
        old_address: Option<String> = "address.old",
        /// Address.
        new_address: Option<String> = "address.new",
        /// Icon before.
        old_icon: Option<String> = "icon.old",
        /// Icon.
        new_icon: Option<String> = "icon.new",
        /// Owner before.
        old_owner: Option<String> = "owner.old",
        /// Owner.
        new_owner: Option<String> = "owner.new",
        /// Least clearance before, as a level.
        old_level: Option<String> = "level.old",
        /// Least clearance, as a level.
        new_level: Option<String> = "level.new",
        /// Roles before, with commas between.
        old_roles: Option<String> = "roles.old",
        /// Roles, with commas between.
        new_roles: Option<String> = "roles.new",
        /// Units before, with commas between; empty for any unit.
        old_units: Option<String> = "units.old",
        /// Units, with commas between; empty for any unit.
        new_units: Option<String> = "units.new",
        /// Kind of connection before.
        old_connection: Option<String> = "connection.old",
        /// Kind of connection.
        new_connection: Option<String> = "connection.new",
        /// Redirect addresses before, with spaces between.
        old_redirects: Option<String> = "redirects.old",
        /// Redirect addresses, with spaces between.
        new_redirects: Option<String> = "redirects.new",
        /// Method and SHA-256 of the client's key before.
        old_key: Option<String> = "key.old",
        /// Method and SHA-256 of the client's key.
        new_key: Option<String> = "key.new",
        /// Address for logouts before.
        old_logout: Option<String> = "logout.old",
        /// Address for logouts.
        new_logout: Option<String> = "logout.new",
        /// SHA-256 of the certificates for logouts before.
        old_logout_trust: Option<String> = "logout_trust.old",
        /// SHA-256 of the certificates for logouts.
        new_logout_trust: Option<String> = "logout_trust.new",
    }
}

events! {
    /// The next key signs tokens of OpenID Connect.
    KeyRolled = "service.roll-key" on ["openid"] ends [Ok] Review ENTITY_UPDATE with []
    {}

    /// A person's login to an application ended.
    LoggedOut = "service.logout" on ["service/"] ends [Ok] Routine LOGOFF with []
    {
        /// Person.
        uid: String = "uid" personal,
        /// Reason: `session`, `rights`, `replay`, `lifetime`, `displaced` or `restart`.
        cause: String = "cause",
        /// The application confirmed the logout.
        delivered: bool = "delivered",
        /// Attempts that failed.
        tries: u64 = "tries",
    }

    /// An application presented a code twice; the login that came of the code has ended.
    CodeReplayed = "service.replay" on ["service/"] ends [Deny] Alert FINDING with []
    {
        /// Person that the code was issued for.
        uid: String = "uid" personal,
    }

    /// A client failed to prove who it is.
    ClientRefused = "service.client-refuse" on ["service/"] ends [Deny] Review FINDING with [Repeated]
    {}
}
