//! What people ask a registry for, as it goes to the site.

use pki::name::WindowsAccount;
use serde::{Deserialize, Serialize};

/// A device, a person, a gateway or a server of the network.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// A person, by user id.
    Uid(String),
    /// A device, by name.
    Device(String),
    /// A gateway, by its first name.
    Gateway(String),
    /// A server of the network, by its first name.
    Server(String),
}

/// The profile of a certificate, where the requester chose it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChosenProfile {
    /// Name of the profile; without it, the usual one of the holder.
    pub name: Option<String>,
    /// The account in Windows that the certificate logs on to.
    pub account: Option<WindowsAccount>,
}

/// What an invitation is to give.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InviteOrder {
    pub holder: Holder,
    pub clearance: Option<u8>,
    /// Unit in the certificate's name.
    pub unit: Option<String>,
    pub hours: u32,
    pub renewals: u8,
    /// Further names of a server.
    #[serde(default)]
    pub names: Vec<String>,
    #[serde(default)]
    pub profile: ChosenProfile,
}

/// What to do with requests.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestOrder {
    /// Requests; only those that wait for a person if `open`.
    List {
        open: bool,
    },
    Show {
        id: String,
    },
    New {
        wanted: ActOrder,
        reason: String,
        /// Hands it in at once.
        submit: bool,
    },
    Edit {
        id: String,
        seen: u64,
        wanted: ActOrder,
        reason: String,
    },
    Step {
        id: String,
        /// Version that the person saw.
        seen: u64,
        step: StepOrder,
    },
    CarryOut {
        id: String,
        seen: u64,
        /// The code of an invitation is also for CMP.
        #[serde(default)]
        cmp: bool,
    },
}

/// A step of a person with a request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepOrder {
    Submit,
    Withdraw,
    Return {
        reason: String,
    },
    Refuse {
        reason: String,
    },
    /// With the signature over the request's statement, in hexadecimal.
    Approve {
        signature: String,
    },
}

/// An act, as people ask for it; the site looks up what is known of its subject.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActOrder {
    /// For a person, a device, or a device that only opens tunnels.
    Issue {
        holder: Holder,
        tunnel_only: bool,
        /// Certification request, DER in hexadecimal.
        csr: String,
        clearance: Option<u8>,
        #[serde(default)]
        profile: ChosenProfile,
        /// The person asked with a password and nothing else.
        #[serde(default)]
        by_password: bool,
    },
    Invite(InviteOrder),
    Renew {
        serial: String,
    },
    Revoke {
        serial: String,
        cause: String,
        emergency: bool,
    },
    Holder {
        holder: Holder,
        change: String,
        cause: String,
        emergency: bool,
    },
    /// Gives an archived key out, of the certificate with this serial number.
    RecoverKey {
        serial: String,
    },
    /// Puts a profile in force, whose file this is.
    Profile {
        definition: String,
    },
    /// Has a generation of an authority issue.
    Authority {
        name: String,
    },
    /// Rights that are not named stay.
    Person {
        uid: String,
        clearance: Option<u8>,
        roles: Option<Vec<String>>,
        units: Option<Vec<String>>,
    },
}
