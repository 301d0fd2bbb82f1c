//! That the cipher is broken, as people are told.

/// Said once by everything that encrypts or decrypts.
pub(super) const WARNING: &str = "IBC is broken, for research only: keys of 8 rounds fall to chosen plaintexts in under a minute";

/// Warns a person; `--quiet` and `--json` go without.
pub(super) fn warn() {
    eprintln!("cordon-lab: warning: {WARNING} (docs/ibc-security.md)");
}
