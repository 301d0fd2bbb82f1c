//! What moves the packets of negotiated tunnels, as the rest of the daemon sees it.

use std::sync::Arc;

use crate::backend::Backend as _;
use crate::children::ChildOrder;
use crate::counters::Snapshot;
use crate::kernel::ChildrenHandle;
use crate::kernel::children::{ChildCommand, KernelChild};
use crate::workers::WorkersHandle;

/// The packet path.
#[derive(Clone)]
pub(super) enum Plane {
    /// Threads of ours.
    User(Arc<WorkersHandle>),
    /// The kernel's IPsec.
    Kernel(Arc<ChildrenHandle>),
}

impl Plane {
    /// What changes about Child SAs.
    pub(super) fn order(&self, order: ChildOrder) {
        match (self, order) {
            (Self::User(workers), order) => drop(workers.child(order)),
            (Self::Kernel(kernel), ChildOrder::Switch(spi)) => {
                kernel.send(ChildCommand::Switch(spi));
            }
            (Self::Kernel(kernel), ChildOrder::Remove(spi, drain)) => {
                kernel.send(ChildCommand::Remove(spi, drain));
            }
            // Its Child SAs come by the other call and move by new keys; traps are refused where the
            // file is read.
            (Self::Kernel(_), _) => {}
        }
    }

    /// A new Child SA for the kernel.
    pub(super) fn install(&self, child: Box<KernelChild>) {
        if let Self::Kernel(kernel) = self {
            kernel.send(ChildCommand::Install(child));
        }
    }

    /// The state; none when it has ended.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        match self {
            Self::User(workers) => workers.snapshot(),
            Self::Kernel(kernel) => kernel.snapshot(),
        }
    }

    /// Ends it.
    pub(super) fn stop(&self) {
        match self {
            Self::User(workers) => workers.stop(),
            Self::Kernel(kernel) => kernel.send(ChildCommand::Stop),
        }
    }
}
