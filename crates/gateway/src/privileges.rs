//! Giving up what only set-up needs.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Takes all capabilities from the calling thread, for ever. The thread that handles what comes from
/// the network has its interface and socket already and needs none.
///
/// # Errors
/// Those of `prctl` and `capset`.
pub fn drop_all() -> std::io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
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
