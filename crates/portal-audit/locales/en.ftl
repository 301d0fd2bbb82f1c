# Pages of the audit log.
audit-title = Audit log
audit-about = Read who did what, with the proof that nothing was changed.
audit-size = { $count ->
    [one] { $count } event.
   *[other] { $count } events.
}
audit-lead = The log is a Merkle tree: <code>cordon audit verify DIR</code> proves offline that no event was changed, removed or cut off.
audit-events = Events
audit-entry = Entry
audit-time = Time
audit-role = Role
audit-who = Who
audit-action = Action
audit-what = What
audit-outcome = Outcome
audit-checkpoint = Signed checkpoint
