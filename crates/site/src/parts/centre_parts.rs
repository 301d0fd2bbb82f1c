//! What centre and portal need of their host.

use std::path::PathBuf;
use std::sync::Arc;

use access::PolicyDecisionPoint;
use audit::{AuditSink, SharedLog};
use centre::Centre;
use pki::path::TrustStore;
use pool::Pool;

use super::Disk;
use crate::admission::Admission;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::trust_state::TrustState;

/// What centre and portal need, wherever the registry is; cheap to clone.
#[derive(Clone)]
pub(crate) struct CentreParts {
    pub(crate) data: PathBuf,
    pub(crate) config: Config,
    pub(crate) audit: SharedLog,
    pub(crate) access: Arc<dyn PolicyDecisionPoint>,
    pub(crate) centre: Centre,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) trust: TrustState,
    /// Anchor, authorities and lists for those who connect.
    pub(crate) holders: TrustStore,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) portal_audit: Arc<dyn AuditSink>,
    pub(crate) audit_pool: Pool,
}

impl CentreParts {
    pub(crate) fn disk(&self) -> Disk {
        Disk {
            data: self.data.clone(),
            reserved: self.config.intake.reserved_bytes,
        }
    }
}
