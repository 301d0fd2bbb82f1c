//! Sealed blocks as edits of a valid one: what opens is what was sealed.

use std::io::Cursor;
use std::sync::OnceLock;

use crate::support::{edit, world};
use evidence::open::Opener;

const PICTURE: &[u8] = b"not really a picture";

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    static OPENER: OnceLock<Opener> = OnceLock::new();
    static SAMPLE: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    let opener = OPENER.get_or_init(|| Opener::new(world().recipient_keys()));
    let (block, manifest) = SAMPLE.get_or_init(|| {
        let block = world().block(1, PICTURE);
        let opened = opener.open(Cursor::new(&block)).unwrap();
        let manifest = opened.manifest_bytes.clone();
        (block, manifest)
    });
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let bytes = if mode % 4 == 0 {
        rest.to_vec()
    } else {
        edit(block, rest)
    };
    if let Ok(mut opened) = opener.open(Cursor::new(&bytes)) {
        let mut plain = Vec::new();
        if opened.read_medium(0, &mut plain).is_ok() {
            assert_eq!(plain, PICTURE);
            assert_eq!(&opened.manifest_bytes, manifest);
        }
    }
}
