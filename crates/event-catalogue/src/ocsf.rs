//! Classes and activities of the Open Cybersecurity Schema Framework (OCSF) that events correspond to.

/// An activity of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// `class_uid`
    pub class: u32,
    pub class_name: &'static str,
    /// `activity_id`
    pub id: u32,
    pub name: &'static str,
}

const fn activity(class: u32, class_name: &'static str, id: u32, name: &'static str) -> Activity {
    Activity {
        class,
        class_name,
        id,
        name,
    }
}

const DETECTION: &str = "Detection Finding";
const ACCOUNT: &str = "Account Change";
const AUTHENTICATION: &str = "Authentication";
const ENTITY: &str = "Entity Management";
const TUNNEL: &str = "Tunnel Activity";
const LIFECYCLE: &str = "Application Lifecycle";
const API: &str = "API Activity";

pub const FINDING: Activity = activity(2004, DETECTION, 1, "Create");
pub const ACCOUNT_CREATE: Activity = activity(3001, ACCOUNT, 1, "Create");
pub const PASSWORD_CHANGE: Activity = activity(3001, ACCOUNT, 3, "Password Change");
pub const ACCOUNT_OTHER: Activity = activity(3001, ACCOUNT, 99, "Other");
pub const LOGON: Activity = activity(3002, AUTHENTICATION, 1, "Logon");
pub const LOGOFF: Activity = activity(3002, AUTHENTICATION, 2, "Logoff");
pub const ENTITY_CREATE: Activity = activity(3004, ENTITY, 1, "Create");
pub const ENTITY_UPDATE: Activity = activity(3004, ENTITY, 3, "Update");
pub const ENTITY_DELETE: Activity = activity(3004, ENTITY, 4, "Delete");
pub const TUNNEL_OTHER: Activity = activity(4014, TUNNEL, 99, "Other");
pub const START: Activity = activity(6002, LIFECYCLE, 3, "Start");
pub const LIFECYCLE_OTHER: Activity = activity(6002, LIFECYCLE, 99, "Other");
pub const CREATE: Activity = activity(6003, API, 1, "Create");
pub const READ: Activity = activity(6003, API, 2, "Read");
pub const UPDATE: Activity = activity(6003, API, 3, "Update");
pub const DELETE: Activity = activity(6003, API, 4, "Delete");
