//! Decisions of the access policy.

use crate::macros::family;
use crate::{Recorded as _, Subject};

pub(crate) const SUBJECT: Subject = Subject {
    name: "Access",
    about: "The access policy permits or denies each of these acts. `policies` names the rules that decided.",
    events: &[Decided::ENTRIES],
};

family! {
    /// Decision about an act.
    Decided: Act {
        /// See a list of violations.
        EvidenceList = "evidence.list",
        /// See the facts and the small picture of a violation.
        EvidenceView = "evidence.view",
        /// Open a picture or film in full.
        EvidenceOpenMedium = "evidence.open-medium",
        /// Accept or reject a violation.
        EvidenceReview = "evidence.review",
        /// Export a custody package.
        EvidenceExport = "evidence.export",
        /// See the blocks in quarantine.
        QuarantineList = "quarantine.list",
        /// Verify a block in quarantine again.
        QuarantineExamine = "quarantine.examine",
        /// Decide about a block in quarantine.
        QuarantineDecide = "quarantine.decide",
        /// See the list of cameras.
        CameraList = "camera.list",
        /// Read the audit log.
        AuditRead = "audit.read",
        /// See the state of the site.
        SiteRead = "site.read",
        /// See holders, certificates and requests.
        RegistryRead = "registry.read",
        /// Invite or enrol devices, gateways and servers.
        DeviceEnrol = "device.enrol",
        /// Revoke, suspend, resume, retire or readmit devices, gateways and servers.
        DeviceChange = "device.change",
        /// Invite or enrol people.
        PersonCertify = "person.certify",
        /// Revoke, suspend, resume, retire or readmit people.
        PersonChange = "person.change",
        /// Put a certificate profile in force.
        ProfilePut = "profile.put",
        /// Renew, make, activate, drop or install authorities.
        AuthorityChange = "authority.change",
        /// See registration requests and take steps with them.
        RegistryRequest = "registry.request",
        /// Apply for a certificate of one's own.
        RegistryApply = "registry.apply",
        /// Read the directory.
        DirectoryRead = "directory.read",
        /// Look colleagues up in the directory.
        DirectoryLookUp = "directory.look-up",
        /// Change the directory.
        DirectoryWrite = "directory.write",
        /// Submit a gateway's events.
        GatewayReport = "gateway.report",
        /// Open a foreign application, or log in to it.
        ServiceOpen = "service.open",
        /// Add, change or remove a service.
        ServiceWrite = "service.write",
    }
    on ["system", "violation/", "block/", "chain/", "service/"] ends [Permit, Deny] Routine READ
    with [Permission, Custody, Search, LookUp, Viewed, Repeated]
    {}
}
