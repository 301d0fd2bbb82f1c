//! The package's README: what it is, and how to check it.

use std::fmt::Write;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Package;
use crate::manifest::Manifest;
use crate::receipt::{Receipt, Verdict};

/// The script that checks a package.
pub const SCRIPT: &str = include_str!("verify_package.py");

/// Facts that the README shows.
pub(super) struct Facts<'a> {
    pub(super) package: &'a Package<'a>,
    pub(super) manifest: &'a Manifest,
    pub(super) receipt: &'a Receipt,
    pub(super) signed_at: OffsetDateTime,
    pub(super) media: &'a [String],
}

const HOW: &str = "\
## How to check it

Nothing in a folder proves where the folder comes from. You need three things from the authority
itself, over another way than this package:

- the *trust file*: it pins the root certificate and the key of the audit log
  (the authority prints it with `cordon evidence trust`);
- a program of your own: `cordon`, or the script that `cordon evidence script` prints. The copy of the
  script in this folder (`verify_package.py`) is as trustworthy as the folder, no more;
- if you like, newer revocation lists.

Then one of

    cordon evidence check --trust trust.json FOLDER
    python3 /your/own/verify_package.py --trust trust.json FOLDER

must end with exit code 0. The script needs Python 3.8 and OpenSSL 3, no network, and no software of
the maker. Both check the same: which files there are and their hashes; that the camera of this name
signed facts and media; that the centre received exactly this block and said so in the log; that no
event of the custody record is left out up to this export; that every certificate has the role in
which it appears; and that none had been revoked when it was used.

The formats are published (`docs/formats.md`), so that a verifier can be written by anybody.

## The files

- `manifest.json` the facts, `manifest.p7s` the same signed by the camera
- `media/` pictures and films as the camera took them
- `block.cordon` the sealed block as it arrived
- `receipt.json`, `receipt.p7s` the centre's signed receipt
- `events.jsonl`, `proofs.json`, `checkpoint`, `log.pem` the custody record from the audit log
- `camera.pem`, `centre.pem`, `root.pem`, `crls/` certificates and revocation lists
- `epoch.json` if the camera was replaced before: the event by which two people closed its former chain
- `package.json` what this package is
- `SHA256SUMS`, `SHA256SUMS.sig` the list of all files, signed by the centre
";

fn stamp(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

pub(super) fn render(facts: &Facts<'_>) -> String {
    let Facts {
        package,
        manifest,
        receipt,
        ..
    } = facts;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "# Evidence of {device}, number {sequence}\n\n\
         | | |\n|---|---|\n\
         | violation | {violation} |\n\
         | made for | {purpose} |\n\
         | made at | {now} |\n\
         | captured at | {captured} |\n\
         | sealed and signed by the camera at | {signed} |\n\
         | received by the centre at | {received} |\n\
         | verdict of the centre | {verdict} |\n\
         | classification | {classification} |\n\
         | events of the custody record | {events} |\n\
         | SHA-256 of the sealed block | `{block}` |\n",
        device = manifest.device,
        sequence = manifest.sequence,
        violation = package.violation,
        purpose = package.purpose,
        now = stamp(package.now),
        captured = stamp(manifest.captured_at),
        signed = stamp(facts.signed_at),
        received = stamp(receipt.received_at),
        verdict = match receipt.verdict {
            Verdict::Accepted => "accepted",
            Verdict::Quarantined => "quarantined",
        },
        classification = manifest.classification,
        events = package.log.events.len(),
        block = receipt.block_sha256,
    );
    for (path, medium) in facts.media.iter().zip(&manifest.media) {
        let _ = writeln!(
            out,
            "- `{path}` ({} bytes, {})",
            medium.size, medium.media_type
        );
    }
    let _ = write!(out, "\n{HOW}");
    out
}
