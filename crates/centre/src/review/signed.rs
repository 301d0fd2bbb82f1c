//! A violation as the camera signed it and the log knows it.
//!
//! The index only says where to look: what counts are bytes with the SHA-256 that the event of receipt names.

use access::Resource;
use centre_api::Summary;
use evidence::digest::Sha256Digest;
use evidence::manifest::{Manifest, Violation};

use super::visible;
use crate::clock::{from_millis, millis};
use crate::ledger::{Known, Ledger};
use crate::units::Units;

/// A violation with its signed manifest.
pub(crate) struct Signed {
    pub(crate) known: Known,
    pub(crate) manifest: Manifest,
    pub(crate) manifest_bytes: Vec<u8>,
    pub(crate) violation: Violation,
}

impl Signed {
    /// Reads a manifest; `None` if it is not the one that the log names, or not that of a violation.
    ///
    /// The bytes were parsed strictly when the block came; they are the same if they have its hash.
    pub(crate) fn new(known: Known, manifest_bytes: Vec<u8>) -> Option<Self> {
        if known.manifest != Some(Sha256Digest::of(&manifest_bytes)) {
            return None;
        }
        let manifest: Manifest = serde_json::from_slice(&manifest_bytes).ok()?;
        let violation = manifest.violation.clone()?;
        Some(Self {
            known,
            manifest,
            manifest_bytes,
            violation,
        })
    }

    pub(crate) fn summary(&self, ledger: &Ledger, units: &Units) -> Summary {
        let (manifest, violation) = (&self.manifest, &self.violation);
        Summary {
            id: self.known.violation(),
            captured_at: from_millis(millis(manifest.captured_at)),
            kind: violation.violation_type.clone(),
            place: violation.place.name.clone(),
            device: manifest.device.clone(),
            unit: units.of_device(&manifest.device).to_owned(),
            plate: violation.plate.clone(),
            speed_kmh: violation.speed_kmh,
            limit_kmh: violation.limit_kmh,
            classification: manifest.classification.level(),
            state: self.known.head.state.as_str().to_owned(),
            disputed: ledger.is_disputed(&self.known.block),
            similar: false,
        }
    }

    /// Builds the resource about which the access rules decide.
    pub(super) fn resource(&self, units: &Units) -> Resource {
        let unit = units.of_device(&self.manifest.device);
        let level = i64::from(self.manifest.classification.level());
        visible::resource(&self.known.violation(), unit, level)
    }
}
