//! Certificates, enrolment, holders, authorities, profiles and revocation lists.

use crate::detail::Document;
use crate::macros::{events, family};
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Registry",
    about: "The registry records these about certificates, holders, authorities and profiles. `transaction` numbers the \
            change of its database.",
    events: &[
        Issued::ENTRIES,
        FirstUsed::ENTRIES,
        Revoked::ENTRIES,
        Superseded::ENTRIES,
        HolderChanged::ENTRIES,
        Invited::ENTRIES,
        EnrolmentRefused::ENTRIES,
        ExpiredRenewed::ENTRIES,
        ServerKeyMade::ENTRIES,
        AccountMade::ENTRIES,
        AccountKeyChanged::ENTRIES,
        AccountEnded::ENTRIES,
        ProfileChanged::ENTRIES,
        AuthorityActivated::ENTRIES,
        AuthorityDropped::ENTRIES,
        AuthorityReady::ENTRIES,
        AuthoritiesInstalled::ENTRIES,
        AuthorityMade::ENTRIES,
        AuthorityRenewed::ENTRIES,
        AuthoritiesIssuing::ENTRIES,
        RevocationsListed::ENTRIES,
        SupersededListed::ENTRIES,
        Settled::ENTRIES,
        ForeignWrite::ENTRIES,
    ],
};

events! {
    /// A certificate was issued, or could not be issued.
    Issued = "certificate.issue" on ["certificate/"] ends [Ok, Fail, Deny] Review ENTITY_CREATE with [Registry, Archived]
    {
        /// Profile.
        profile: Option<String> = "profile",
        /// Issuing generation of the authority.
        issuer: Option<String> = "issuer",
        /// Clearance in the certificate, as a level.
        clearance: Option<u64> = "clearance",
        /// User id.
        uid: Option<String> = "uid" personal,
        /// Unit.
        unit: Option<String> = "unit",
        /// Windows security identifier.
        sid: Option<String> = "sid" personal,
        /// Windows principal name.
        principal: Option<String> = "principal" personal,
        /// DNS names of a server, with spaces between.
        names: Option<String> = "names",
        /// Serial number in hexadecimal.
        serial: Option<String> = "serial",
        /// Other valid certificates of the holder.
        others: Option<u64> = "other_valid_certificates",
        /// SHA-256 of the certificate.
        fingerprint: Option<String> = "fingerprint",
        /// SHA-256 of the public key.
        spki_sha256: Option<String> = "spki_sha256",
        /// Origin: `request`, `order`, `own`, `enrolment`, `invitation` or `renewal`.
        origin: Option<String> = "origin",
        /// SHA-256 of the profile's file, if it is not the built-in one.
        profile_sha256: Option<String> = "profile_sha256",
        /// Serial number of the certificate that it renews.
        renews: Option<String> = "renews",
        /// Invitation.
        invitation: Option<String> = "invitation",
    }

    /// A holder used a new certificate for the first time.
    FirstUsed = "certificate.first-use" on ["certificate/"] ends [Ok] Routine ENTITY_UPDATE with [Registry]
    {
        /// Serial number in hexadecimal.
        serial: String = "serial",
    }

    /// A certificate was revoked. The reason is that of the revocation list.
    Revoked = "certificate.revoke" on ["certificate/"] ends [Ok] Review ENTITY_DELETE with [Registry]
    {
        /// Serial number in hexadecimal.
        serial: String = "serial",
    }

    /// A certificate was superseded by another one, or its holder declined it.
    Superseded = "certificate.supersede" on ["certificate/"] ends [Ok] Routine ENTITY_UPDATE with [Registry]
    {
        /// Serial number in hexadecimal.
        serial: String = "serial",
        /// Serial number of the certificate that supersedes it.
        successor: Option<String> = "successor",
    }

    /// A code or an invitation was made.
    Invited = "enrolment.invite" on ["device/", "person/", "server/", "gateway/"] ends [Ok] Review ENTITY_CREATE with [Registry]
    {
        /// Identifier of the invitation; absent for a device's one-time code.
        invitation: Option<String> = "invitation",
        /// Profile.
        profile: Option<String> = "profile",
        /// Clearance of the certificates, as a level.
        clearance: Option<u64> = "clearance",
        /// Number of renewals that it covers.
        renewals: Option<u64> = "renewals",
        /// Expiry, in seconds since the Unix epoch.
        expires_at: Option<i64> = "expires_at",
        /// DNS names of a server, with spaces between.
        names: Option<String> = "names",
        /// The code is usable over CMP.
        cmp: Option<bool> = "cmp",
        /// Unit.
        unit: Option<String> = "unit",
        /// Windows principal name.
        principal: Option<String> = "principal" personal,
        /// Windows security identifier.
        sid: Option<String> = "sid" personal,
    }

    /// A device renewed with a certificate that had expired.
    ExpiredRenewed = "enrolment.renew-expired" on ["device/", "gateway/"] ends [Ok] Review ENTITY_UPDATE with [Registry]
    {
        /// Serial number of the expired certificate.
        serial: String = "serial",
        /// Days since its expiry.
        days_expired: i64 = "days_expired",
    }

    /// The site made a key for a holder.
    ServerKeyMade = "enrolment.server-key" on ["device/", "person/", "server/", "gateway/"] ends [Ok] Review ENTITY_CREATE
    with [Registry]
    {
        /// Invitation.
        invitation: String = "invitation",
        /// SHA-256 of the public key.
        spki_sha256: String = "spki_sha256",
    }

    /// A server opened an ACME account.
    AccountMade = "enrolment.account" on ["server/"] ends [Ok] Review ACCOUNT_CREATE with [Registry]
    {
        /// Identifier of the account.
        account: String = "account",
        /// Invitation.
        invitation: String = "invitation",
        /// Thumbprint of the account's key.
        thumbprint: String = "thumbprint",
        /// Accounts that end by it, with spaces between.
        ends: Option<String> = "ends",
    }

    /// An ACME account has another key.
    AccountKeyChanged = "enrolment.account-key" on ["server/"] ends [Ok] Review ACCOUNT_OTHER with [Registry]
    {
        /// Identifier of the account.
        account: String = "account",
        /// Thumbprint of the key before.
        old: String = "old",
        /// Thumbprint of the new key.
        new: String = "new",
    }

    /// The owner of an ACME account ended it.
    AccountEnded = "enrolment.account-deactivate" on ["server/"] ends [Ok] Review ACCOUNT_OTHER with [Registry]
    {
        /// Identifier of the account.
        account: String = "account",
    }

    /// A certificate profile was put in force.
    ProfileChanged = "profile.change" on ["profile/"] ends [Ok] Review ENTITY_UPDATE with [Registry]
    {
        /// SHA-256 of the new file.
        sha256: String = "sha256",
        /// SHA-256 of the file before.
        old_sha256: Option<String> = "old_sha256",
        /// New file, if no request has it.
        definition: Option<Document> = "definition",
    }

    /// A generation of an authority issues from now on.
    AuthorityActivated = "authority.activate" on ["authority/"] ends [Ok] Review ENTITY_UPDATE with [Registry]
    {
        /// Generation before.
        old: Option<String> = "old",
        /// Generation that issues.
        new: String = "new",
        /// SHA-256 of its certificate.
        certificate_sha256: Option<String> = "certificate_sha256",
    }

    /// A generation that never issued was dropped.
    AuthorityDropped = "authority.drop" on ["authority/"] ends [Ok] Review ENTITY_DELETE with [Registry]
    {
        /// Generation.
        dropped: String = "dropped",
        /// SHA-256 of its certificate.
        certificate_sha256: Option<String> = "certificate_sha256",
    }

    /// The certificate of a new generation was found.
    AuthorityReady = "authority.ready" on ["authority/"] ends [Ok] Review ENTITY_UPDATE with [Registry]
    {}

    /// Authorities were installed from a ceremony.
    AuthoritiesInstalled = "authority.install" on ["root/"] ends [Ok] Review ENTITY_CREATE with []
    {
        /// Generations, with spaces between.
        authorities: Option<String> = "authorities",
        /// Number of the ceremony.
        ceremony: Option<i64> = "ceremony",
    }

    /// A new generation of an authority was made.
    AuthorityMade = "authority.make" on ["authority/"] ends [Ok] Review ENTITY_CREATE with []
    {
        /// Generation.
        new: String = "new",
    }

    /// The certificate of an authority was renewed.
    AuthorityRenewed = "authority.renew" on ["authority/"] ends [Ok] Review ENTITY_UPDATE with []
    {}

    /// Generations that issue, as a start compares them with the database.
    AuthoritiesIssuing = "authority.issuing" on ["authorities"] ends [Ok] Routine LIFECYCLE_OTHER with [Registry]
    {
        /// Generation for people.
        users: Option<String> = "users",
        /// Generation for devices.
        devices: Option<String> = "devices",
        /// Generation for services.
        services: Option<String> = "services",
    }

    /// The next revocation lists are the first that say so of these certificates.
    RevocationsListed = "revocation-list.add" on ["revocation-list/"] ends [Ok] Routine ENTITY_UPDATE with [Registry]
    {
        /// Number of the list.
        number: i64 = "number",
        /// Number of certificates that are revoked.
        certificates: u64 = "certificates",
        /// Number of certificates that are on hold.
        held: Option<u64> = "held",
        /// Number of certificates whose hold has ended.
        released: Option<u64> = "released",
    }

    /// Superseded certificates come onto the revocation lists.
    SupersededListed = "revocation-list.add-superseded" on ["registry"] ends [Ok] Routine ENTITY_UPDATE with [Registry]
    {
        /// Number of certificates.
        certificates: u64 = "certificates",
    }

    /// Another process wrote to the database; its rows are unchanged.
    ForeignWrite = "registry.foreign-write" on ["registry"] ends [Fail] Alert FINDING with [Registry]
    {}
}

family! {
    /// The state of a holder changed.
    HolderChanged: HolderChange {
        /// A device was suspended.
        DeviceSuspend = "device.suspend",
        /// A suspended device was resumed.
        DeviceResume = "device.resume",
        /// A device was revoked with all its certificates.
        DeviceRevoke = "device.revoke",
        /// A device was retired.
        DeviceRetire = "device.retire",
        /// A device was readmitted.
        DeviceReadmit = "device.readmit",
        /// A person was suspended.
        PersonSuspend = "person.suspend",
        /// A suspended person was resumed.
        PersonResume = "person.resume",
        /// A person was revoked with all certificates.
        PersonRevoke = "person.revoke",
        /// A person was retired.
        PersonRetire = "person.retire",
        /// A person was readmitted.
        PersonReadmit = "person.readmit",
        /// The directory disabled a person: all certificates of the person are on hold.
        PersonHold = "person.hold",
        /// The directory enabled a person again, which ends that hold.
        PersonRelease = "person.release",
        /// A gateway was suspended.
        GatewaySuspend = "gateway.suspend",
        /// A suspended gateway was resumed.
        GatewayResume = "gateway.resume",
        /// A gateway was revoked with all its certificates.
        GatewayRevoke = "gateway.revoke",
        /// A gateway was retired.
        GatewayRetire = "gateway.retire",
        /// A gateway was readmitted.
        GatewayReadmit = "gateway.readmit",
        /// A server was suspended.
        ServerSuspend = "server.suspend",
        /// A suspended server was resumed.
        ServerResume = "server.resume",
        /// A server was revoked with all its certificates.
        ServerRevoke = "server.revoke",
        /// A server was retired.
        ServerRetire = "server.retire",
        /// A server was readmitted.
        ServerReadmit = "server.readmit",
    }
    on ["device/", "person/", "gateway/", "server/"] ends [Ok] Review ENTITY_UPDATE with [Registry]
    {
        /// State before.
        old: String = "old",
        /// State.
        new: String = "new",
        /// Certificates that it revoked, put on hold or took from hold.
        certificates: u64 = "certificates",
    }
}

family! {
    /// A step of an enrolment was refused.
    EnrolmentRefused: EnrolmentStep {
        /// Enrol with a code.
        Enrol = "enrolment.enrol",
        /// Renew with a certificate.
        Renew = "enrolment.renew",
        /// Have the site make the key.
        ServerKey = "enrolment.server-key",
        /// Open or change an ACME account.
        Account = "enrolment.account",
        /// Change the key of an ACME account.
        AccountKey = "enrolment.account-key",
        /// Order a certificate over ACME.
        Order = "enrolment.order",
        /// Confirm a certificate over CMP.
        Confirm = "enrolment.confirm",
        /// Revoke a certificate by its holder.
        Revoke = "certificate.revoke",
    }
    on ["device/", "person/", "server/", "gateway/", "invitation/"] ends [Deny, Fail] Review FINDING with [Registry, Repeated]
    {
        /// Code of the refusal.
        code: Option<String> = "code",
        /// Reason for which an approval no longer counts.
        why: Option<String> = "why",
        /// Address or name of the cause of several refusals.
        from: Option<String> = "from" personal,
    }
}

family! {
    /// Transactions up to this one took effect, and the database has these rows.
    Settled: State {
        /// The registry was opened; recorded transactions with higher numbers have no effect.
        Open = "registry.open",
        /// The registry was closed.
        Close = "registry.close",
    }
    on ["registry"] ends [Ok] Routine LIFECYCLE_OTHER with [Registry]
    {}
}
