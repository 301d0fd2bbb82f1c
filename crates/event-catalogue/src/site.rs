//! Sessions, the command line, settings, the clock and the log itself.

use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Site",
    about: "The site records these about logins, commands, its settings, its clock and its log.",
    events: &[
        SessionStarted::ENTRIES,
        SessionEnded::ENTRIES,
        DirectoryBound::ENTRIES,
        DirectoryUseCounted::ENTRIES,
        LoginRefused::ENTRIES,
        CommandRefused::ENTRIES,
        Founded::ENTRIES,
        SettingsBegun::ENTRIES,
        SettingChanged::ENTRIES,
        ClockAccepted::ENTRIES,
        CheckpointKept::ENTRIES,
        LogLossAccepted::ENTRIES,
    ],
};

/// Action of the event by which a person accepts a loss of the log.
const LOSS: &str = audit::rows::LOSS;

events! {
    /// A person logged in.
    SessionStarted = "session.start" on ["portal"] ends [Ok] Routine LOGON with [Origin]
    {}

    /// A person logged out.
    SessionEnded = "session.end" on ["portal"] ends [Ok] Routine LOGOFF with [Origin]
    {}

    /// A person bound to the directory over LDAP.
    DirectoryBound = "ldap.bind" on ["ldap"] ends [Ok] Routine LOGON with [Origin, Repeated]
    {
        /// Method: `simple` or `external`.
        method: String = "method",
    }

    /// A person's further binds and searches over LDAP, which were counted instead of recorded.
    DirectoryUseCounted = "ldap.count" on ["ldap"] ends [Ok] Routine READ with [Repeated]
    {
        /// What was counted: `binds` or `searches`.
        counted: String = "counted",
    }

    /// The site refused a command.
    CommandRefused = "administration.refuse" on ["site/control"] ends [Deny] Review FINDING with []
    {
        /// Command.
        command: String = "command",
        /// Act that the access policy denied.
        asked: Option<String> = "asked",
    }

    /// A site was founded. A log has at most one such event, which is its first.
    Founded = "site.found" on ["site/founding"] ends [Ok] Review ENTITY_CREATE with []
    {
        /// First administrators and registrars with their certification requests, names of the site, and the fingerprint of its
        /// root, as JSON.
        transcript: String = "transcript" personal,
    }

    /// Demands of the configuration at the first start.
    SettingsBegun = "settings.begin" on ["settings"] ends [Ok] Review ENTITY_CREATE with []
    {
        /// Setting `administration.require`.
        administration_require: String = "administration_require",
        /// Setting `registration.approvals`.
        registration_approvals: String = "registration_approvals",
        /// Setting `storage.at_rest`.
        storage_at_rest: String = "storage_at_rest",
    }

    /// A setting changed.
    SettingChanged = "settings.change" on ["settings/"] ends [Ok] Review ENTITY_UPDATE with [Repeated]
    {
        /// Value before.
        old: String = "old",
        /// Value.
        new: String = "new",
    }

    /// A person accepted the present time after the clock ran ahead.
    ClockAccepted = "clock.accept" on ["site/clock"] ends [Ok] Alert FINDING with []
    {
        /// Latest time that the site had seen, in seconds since the Unix epoch.
        floor: Option<i64> = "floor",
    }

    /// The site keeps its newest checkpoint in a file from now on.
    CheckpointKept = "audit.keep-checkpoint" on ["last-checkpoint"] ends [Ok] Routine LIFECYCLE_OTHER with []
    {}

    /// A person let the site start although a part of the log is lost.
    LogLossAccepted = LOSS on ["audit/log"] ends [Ok] Alert FINDING with []
    {
        /// Entries that the log still has.
        size: Option<u64> = "size",
        /// Newest entry that another part of the site relied on.
        relied_on: Option<u64> = "relied_on",
    }
}

family! {
    /// The portal or the directory refused a login.
    LoginRefused: LoginProof {
        /// The login was refused.
        Session = "session.refuse",
        /// The certificate was refused.
        Certificate = "certificate.refuse",
    }
    on ["portal", "ldap"] ends [Deny] Review LOGON with [Origin, Repeated]
    {
        /// Code of the refusal; absent if several were counted.
        code: Option<String> = "code",
    }
}
