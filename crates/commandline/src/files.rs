//! Files for what an order gave.

use std::path::Path;

use crate::{Failure, Outcome};

/// More than any secret, certificate or chain takes that an answer has.
const ROOM: usize = 64 * 1024;

/// A place for what an order gives once: made before the order, which uses something up.
pub fn reserve(path: &Path) -> Outcome<durable::Reserved> {
    durable::Reserved::new(path, 0o600, ROOM).map_err(|error| not_written(path, error))
}

/// Writes what an order gave into its place.
pub fn write_reserved(place: durable::Reserved, bytes: &[u8]) -> Outcome {
    place.write(bytes).map_err(|left| {
        let hint = "move that file to where it belongs: it cannot be made again";
        Failure::new(anyhow::Error::new(left), hint)
    })
}

fn not_written(path: &Path, error: std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(
            anyhow::anyhow!("{} exists already", path.display()),
            "name another file",
        ),
        _ => Failure::new(
            anyhow::Error::new(error).context(format!("cannot write {}", path.display())),
            "check the folder's rights",
        ),
    }
}

/// Writes `bytes` for the owner only, refusing to replace anything.
pub fn write_new(path: &Path, bytes: &[u8]) -> Outcome {
    durable::write_new(path, bytes, 0o600).map_err(|error| not_written(path, error))
}
