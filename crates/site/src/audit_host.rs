//! The audit host as a role of `cordon run`: its configuration, its listener, and its commands.

mod config;
mod orders;
mod role;
pub mod shipping;

use std::path::Path;

use peering::PeerKey;
use pki::file;
use pki::key::Passphrase;

use crate::failure::{OrHint as _, Outcome};

pub use config::RunConfig;
pub use orders::{Order, ask};
pub use role::AuditHostRole;

/// This host's key towards its peers, in `DIR/keys/peer.key`; made on first use.
pub fn peer_key(data: &Path, secret: &Passphrase) -> Outcome<PeerKey> {
    let folder = data.join("keys");
    durable::create_dir_all(&folder).or_hint(
        format!("cannot make {}", folder.display()),
        "check the folder's rights",
    )?;
    let path = folder.join("peer.key");
    let key = if commandline::is_there(&path)? {
        file::load_private(&path, secret).or_hint(
            format!("cannot read {}", path.display()),
            "check the passphrase and the file's rights",
        )?
    } else {
        let key = PeerKey::generate().or_hint("cannot make a key", "try again")?;
        file::save_private(&path, &key, secret).or_hint(
            format!("cannot save {}", path.display()),
            "check the folder's rights and the room on its disk",
        )?;
        key
    };
    PeerKey::new(&key).or_hint(
        format!("cannot use {}", path.display()),
        "remove it, start again, and name the new key at the peers",
    )
}
