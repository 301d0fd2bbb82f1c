//! The table of changes.

use super::*;

#[test]
fn every_change_of_every_state_follows_the_table() {
    use HolderState::{Enrolled, Retired, Revoked, Suspended};
    let reason = RevocationReason::KeyCompromise;
    // By change: the new state of an enrolled, suspended, revoked and retired holder.
    let table = [
        (HolderChange::Suspend, [Some(Suspended), None, None, None]),
        (HolderChange::Resume, [None, Some(Enrolled), None, None]),
        (
            HolderChange::Revoke(reason),
            [Some(Revoked), Some(Revoked), Some(Revoked), None],
        ),
        (
            HolderChange::Retire,
            [Some(Retired), Some(Retired), Some(Retired), None],
        ),
        (HolderChange::Readmit, [None, None, Some(Enrolled), None]),
    ];
    for (change, expected) in table {
        let states = [Enrolled, Suspended, Revoked, Retired];
        assert_eq!(states.map(|s| change.apply(s)), expected, "{change:?}");
    }
}
