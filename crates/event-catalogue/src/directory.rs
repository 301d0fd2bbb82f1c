//! Changes of the directory of people.

use audit::rows::ROWS;

use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Directory",
    about: "The directory records these about people. Old and new values stand only where they differ.",
    events: &[
        Changed::ENTRIES,
        PasswordSet::ENTRIES,
        Settled::ENTRIES,
        ForeignWrite::ENTRIES,
    ],
};

family! {
    /// The entry of a person changed.
    Changed: Change {
        /// A person was added.
        Add = "directory.add",
        /// A person was disabled.
        Disable = "directory.disable",
        /// A person was enabled.
        Enable = "directory.enable",
        /// Another change.
        Change = "directory.change",
    }
    on ["person/"] ends [Ok] Review ACCOUNT_OTHER with [Rows]
    {
        /// Name before.
        old_name: Option<String> = "name.old" personal,
        /// Name.
        new_name: Option<String> = "name.new" personal,
        /// Given name before.
        old_given_name: Option<String> = "given_name.old" personal,
        /// Given name.
        new_given_name: Option<String> = "given_name.new" personal,
        /// Surname before.
        old_surname: Option<String> = "surname.old" personal,
        /// Surname.
        new_surname: Option<String> = "surname.new" personal,
        /// Mail address before.
        old_email: Option<String> = "email.old" personal,
        /// Mail address.
        new_email: Option<String> = "email.new" personal,
        /// Organisation before.
        old_organisation: Option<String> = "organisation.old",
        /// Organisation.
        new_organisation: Option<String> = "organisation.new",
        /// Country before.
        old_country: Option<String> = "country.old",
        /// Country.
        new_country: Option<String> = "country.new",
        /// Clearance before, as a level.
        old_clearance: Option<String> = "clearance.old",
        /// Clearance, as a level.
        new_clearance: Option<String> = "clearance.new",
        /// Roles before, with commas between.
        old_roles: Option<String> = "roles.old",
        /// Roles, with commas between.
        new_roles: Option<String> = "roles.new",
        /// Units before, with commas between.
        old_units: Option<String> = "units.old",
        /// Units, with commas between.
        new_units: Option<String> = "units.new",
        /// Enabled before: `true` or `false`.
        old_active: Option<String> = "active.old",
        /// Enabled: `true` or `false`.
        new_active: Option<String> = "active.new",
    }
}

events! {
    /// A person's password was set.
    PasswordSet = "directory.password" on ["person/"] ends [Ok] Review PASSWORD_CHANGE with [Rows]
    {
        /// There was a password before.
        replaced: bool = "replaced",
        /// Failed logins before.
        failures_before: i64 = "failures_before",
    }

    /// Another process wrote to the database; its rows are unchanged.
    ForeignWrite = "directory.foreign-write" on ["directory"] ends [Fail] Alert FINDING with []
    {}
}

family! {
    /// The database has these rows; what was recorded before and is not among them has no effect.
    Settled: State {
        /// The directory was opened.
        Open = "directory.open",
        /// The directory was closed.
        Close = "directory.close",
    }
    on ["directory"] ends [Ok] Routine LIFECYCLE_OTHER with []
    {
        /// Hash of all rows.
        rows_sha256: String = ROWS,
    }
}
