//! Giving up what only set-up needs.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Takes all capabilities from the calling thread, for ever. The thread that handles what comes from
/// the network has its interface and socket already and needs none.
///
/// # Errors
/// Those of `prctl` and `capset`.
pub fn drop_all() -> std::io::Result<()> {
    keep(CapabilitySet::empty())
}

/// Takes all capabilities but `CAP_NET_ADMIN` from the calling thread, for ever.
///
/// # Errors
/// Those of `prctl` and `capset`: without that capability it cannot be kept.
pub fn keep_net_admin() -> std::io::Result<()> {
    keep(CapabilitySet::NET_ADMIN)
}

/// Takes all capabilities but these from the calling thread, for ever.
///
/// # Errors
/// Those of `prctl` and `capset`.
pub fn keep(kept: CapabilitySet) -> std::io::Result<()> {
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Leaves no memory behind for others to read: no core dumps, no debuggers of the same user.
///
/// # Errors
/// Those of `prctl` and `setrlimit`.
pub fn forbid_dumps() -> std::io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left() {
        // On a thread of its own, so that other tests keep what they have.
        std::thread::spawn(|| {
            drop_all().unwrap();
            let left = rustix::thread::capabilities(None).unwrap();
            assert!(left.effective.is_empty() && left.permitted.is_empty());
        })
        .join()
        .unwrap();
    }
}
