//! The process with private keys, for whichever service of this program signs.

use std::os::unix::process::CommandExt as _;

use keyhost::KeyHost;

use crate::failure::{OrHint as _, Outcome};

/// Starts the process with the private keys: this program once more, even if its file has been replaced.
pub(crate) fn start() -> Outcome<KeyHost> {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("cordon").args(["vpn", "signer"]);
    KeyHost::start(command).or_hint(
        "the process with the private keys does not start",
        "check that /proc is mounted, and the limit on processes",
    )
}
