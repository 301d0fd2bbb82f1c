//! The process with the private keys, for each service of this program that signs.

use std::os::unix::process::CommandExt as _;

use commandline::{OrHint as _, Outcome};
use keyhost::KeyHost;

/// Starts the process with the private keys: this program once more, even if its file has been replaced.
pub fn start() -> Outcome<KeyHost> {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("cordon").args(["vpn", "signer"]);
    KeyHost::start(command).or_hint(
        "the process with the private keys does not start",
        "check that /proc is mounted, and the limit on processes",
    )
}
