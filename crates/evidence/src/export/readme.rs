//! The package's README: what it is, and commands that check it as they stand.

use std::fmt::Write;

use pki::cert;
use pki::key::KeyAlgorithm;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Package;
use super::writer::{SIGNATURE, SUMS};
use crate::manifest::Manifest;
use crate::receipt::{Receipt, Verdict};

/// The script that checks inclusion proofs.
pub(super) const SCRIPT: &str = include_str!("verify_inclusion.py");

/// What the README tells.
pub(super) struct Facts<'a> {
    pub(super) package: &'a Package<'a>,
    pub(super) manifest: &'a Manifest,
    pub(super) receipt: &'a Receipt,
    pub(super) signed_at: OffsetDateTime,
    pub(super) receipted_at: OffsetDateTime,
    pub(super) media: &'a [String],
    /// Files of the complete folder.
    pub(super) file_count: usize,
}

pub(super) fn render(facts: &Facts<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = introduction(facts, &mut out);
    let _ = files(facts, &mut out);
    let _ = camera(facts, &mut out);
    let _ = media(facts, &mut out);
    let _ = receipt(facts, &mut out);
    let _ = revocation(facts, &mut out);
    let _ = log(facts, &mut out);
    out
}

fn stamp(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn introduction(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let Facts {
        package,
        manifest,
        receipt,
        ..
    } = facts;
    let root = cert::CertificateChain::from_pem(package.root_pem)
        .map(|chain| chain.leaf_fingerprint())
        .unwrap_or_default();
    writeln!(
        out,
        "# Evidence of {device}, number {sequence}\n\n\
         | | |\n|---|---|\n\
         | made for | {purpose} |\n\
         | made at | {now} |\n\
         | captured at | {captured} |\n\
         | sealed and signed by the camera at | {signed} |\n\
         | received by the centre at | {received} |\n\
         | verdict of the centre | {verdict} |\n\
         | classification | {classification} |\n\
         | SHA-256 of the sealed block | `{block}` |\n",
        device = manifest.device,
        sequence = manifest.sequence,
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
        block = receipt.block_sha256,
    )?;
    writeln!(
        out,
        "`manifest.json` holds the facts, `media/` the pictures and films as the camera took them.\n\n\
         The commands below check everything with OpenSSL 3, the usual Unix tools and Python 3;\n\
         none needs a network or any software of the maker. Run them in this folder, in this order.\n\
         Each must succeed. All of them at once:\n\n    \
         awk '/^```sh$/{{p=1;next}} /^```$/{{p=0}} p' README.md | bash -euo pipefail\n\n\
         One thing no command can tell: whether `root.pem` is the real root certificate. Ask the\n\
         authority for its SHA-256 fingerprint over another channel; it must be\n\n    {root}\n\n\
         ```sh\n\
         test \"$(openssl x509 -in root.pem -outform DER | openssl dgst -sha256 -r | cut -c1-64)\" = {root}\n\
         WORK=$(mktemp -d)\n\
         ```\n"
    )
}

fn files(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let package = facts.package;
    let digest = match package.centre_key.algorithm() {
        KeyAlgorithm::Ed25519 => "",
        KeyAlgorithm::EcdsaP384 => "-digest sha384 ",
        _ => "-digest sha256 ",
    };
    writeln!(
        out,
        "## 1. The folder is complete and as the centre made it\n\n\
         The centre's certificate leads to the root, its key signed the list of files, every file\n\
         has its hash, and there are no others.\n\n\
         ```sh\n\
         openssl verify -CAfile root.pem -untrusted centre.pem -purpose any -attime {now} centre.pem\n\
         openssl x509 -in centre.pem -noout -pubkey > \"$WORK/centre.pub\"\n\
         openssl pkeyutl -verify -rawin {digest}-pubin -inkey \"$WORK/centre.pub\" -in {SUMS} -sigfile {SIGNATURE}\n\
         sha256sum --check --strict --quiet {SUMS}\n\
         test \"$(find . -type f | wc -l)\" -eq {count}\n\
         ```\n",
        now = package.now.unix_timestamp(),
        count = facts.file_count,
    )
}

fn signed(name: &str, signer: &str, at: OffsetDateTime, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "```sh\n\
         openssl cms -verify -cades -binary -inform DER -in {name}.p7s -CAfile root.pem -purpose any -attime {at} -signer \"$WORK/{name}.pem\" -out \"$WORK/{name}.json\"\n\
         cmp \"$WORK/{name}.json\" {name}.json\n\
         test \"$(openssl x509 -in \"$WORK/{name}.pem\" -noout -fingerprint -sha256)\" = \"$(openssl x509 -in {signer}.pem -noout -fingerprint -sha256)\"\n\
         ```\n",
        at = at.unix_timestamp(),
    )
}

fn camera(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "## 2. The camera signed the manifest\n\n\
         The signature is valid, and the camera's certificate led to the root when it signed ({}).\n",
        stamp(facts.signed_at)
    )?;
    signed("manifest", "camera", facts.signed_at, out)
}

fn media(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "## 3. The media are those that the camera signed\n\n\
         The manifest names each medium with its SHA-256.\n\n```sh"
    )?;
    for (path, medium) in facts.media.iter().zip(&facts.manifest.media) {
        let name = serde_json::to_string(&medium.name).unwrap_or_default();
        writeln!(
            out,
            "grep -qF {}\"$(openssl dgst -sha256 -r {path} | cut -c1-64)\"'\"' manifest.json",
            quoted(&format!("\"name\":{name},\"sha256\":\"")),
        )?;
    }
    writeln!(out, "true\n```\n")
}

fn receipt(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "## 4. The centre received this block and no other\n\n\
         The receipt's signature is valid, the centre's certificate led to the root at {}, and the\n\
         receipt names the sealed block and the manifest.\n",
        stamp(facts.receipted_at)
    )?;
    signed("receipt", "centre", facts.receipted_at, out)?;
    writeln!(
        out,
        "```sh\n\
         grep -qF '\"block_sha256\":\"'\"$(openssl dgst -sha256 -r block.cordon | cut -c1-64)\"'\"' receipt.json\n\
         grep -qF '\"manifest_sha256\":\"'\"$(openssl dgst -sha256 -r manifest.json | cut -c1-64)\"'\"' receipt.json\n\
         ```\n"
    )
}

fn revocation(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    if facts.package.crls_pem.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "## 5. Revocation\n\n\
         Each list is signed by its authority. The last command shows the entry of the camera's\n\
         certificate, if there is one: a revocation dated after the signature does not touch it.\n\n\
         ```sh\n\
         cat root.pem camera.pem centre.pem > \"$WORK/authorities.pem\"\n\
         SERIAL=$(openssl x509 -in camera.pem -noout -serial | cut -d= -f2)\n\
         for LIST in crls/*.pem; do\n  \
         openssl crl -in \"$LIST\" -noout -verify -CAfile \"$WORK/authorities.pem\" 2>&1 | grep -q 'verify OK'\n  \
         openssl crl -in \"$LIST\" -noout -text | grep -A 1 \"Serial Number: $SERIAL$\" || echo \"$LIST: camera not listed\"\n\
         done\n\
         ```\n"
    )
}

fn log(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let key_line = quoted(&format!("\u{2014} {} ", facts.package.log.origin));
    writeln!(
        out,
        "## 6. The audit log holds the receipt\n\n\
         The log's key signed the state in `checkpoint`, and each line of `events.jsonl` is in it\n\
         (RFC 6962). A later checkpoint of the same log must be consistent with this one.\n\n\
         ```sh\n\
         sed '/^$/,$d' checkpoint > \"$WORK/checkpoint.body\"\n\
         grep -F {key_line} checkpoint | head -n 1 | sed 's/.* //' | base64 -d | tail -c 64 > \"$WORK/checkpoint.sig\"\n\
         openssl pkeyutl -verify -rawin -pubin -inkey log.pem -in \"$WORK/checkpoint.body\" -sigfile \"$WORK/checkpoint.sig\"\n\
         python3 verify_inclusion.py\n\
         ```"
    )
}
