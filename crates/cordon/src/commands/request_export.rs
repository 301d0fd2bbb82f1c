//! Exported requests: what others need to check who approved what.
//!
//! | file | content |
//! |---|---|
//! | `request.json` | the request with its approvals |
//! | `statement.json` | the bytes that approvers signed |
//! | `N-UID.sig`, `N-UID.pem` | an approval's signature and the certificate of its key |
//! | `history.json` | every change |
//! | `request.csr` | the certification request (DER), where there is one |
//! | `authorities.pem`, `root.pem` | issuers of the certificates; take the root from elsewhere |

use std::collections::BTreeSet;
use std::path::Path;

use approval::{Approval, Request, State};
use commandline::write_new;
use pki::cert::{self, CertificateChain};
use pki::path::{Purpose, TrustStore};
use serde_json::{Value, json};

use super::request::request_of;
use super::{list, print, text};
use commandline::{Failure, OrHint as _, Outcome};

const HINT: &str = "do not rely on it; have it exported anew";

/// Writes the answer to "show" into the new folder `out`.
pub(crate) fn write(value: &Value, out: &Path) -> Outcome {
    let request = request_of(value)?;
    if out.exists() {
        let error = anyhow::anyhow!("{} exists already", out.display());
        return Err(Failure::new(error, "name a new folder with --out"));
    }
    durable::create_dir_all(out).or_hint(
        format!("cannot make {}", out.display()),
        "check the parent folder",
    )?;
    let pretty = |value: Option<&Value>| serde_json::to_vec_pretty(&value);
    for name in ["request", "history"] {
        let bytes = pretty(value.get(name)).or_hint("cannot write the request", "report this")?;
        write_new(&out.join(format!("{name}.json")), &bytes)?;
    }
    let statement = request.statement().or_hint("statement", "report this")?;
    write_new(&out.join("statement.json"), &statement)?;
    for (file, field) in [
        ("authorities.pem", "authorities_pem"),
        ("root.pem", "root_pem"),
    ] {
        write_new(&out.join(file), text(value, field).as_bytes())?;
    }
    if let Some(csr) = value.get("csr_hex").and_then(Value::as_str) {
        let der = hex::decode(csr).or_hint("certification request", "report this")?;
        write_new(&out.join("request.csr"), &der)?;
    }
    let certificates = list(value, "certificates_pem")
        .iter()
        .filter_map(Value::as_str);
    let certificates: Vec<&str> = certificates.collect();
    for (number, approval) in (1..).zip(request.state().approvals()) {
        let found = certificates
            .iter()
            .find(|pem| fingerprint(pem).as_deref() == Some(approval.certificate_sha256()));
        let pem = found.ok_or_else(|| {
            Failure::new(
                anyhow::anyhow!("the certificate of {} is missing", approval.uid()),
                HINT,
            )
        })?;
        let name = stem(number, approval);
        write_new(&out.join(format!("{name}.pem")), pem.as_bytes())?;
        write_new(&out.join(format!("{name}.sig")), approval.signature())?;
    }
    Ok(())
}

/// User ids have letters, digits, dots, hyphens and underscores only; anything else becomes one of these.
fn stem(number: usize, approval: &Approval) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let uid = approval.uid().chars();
    let uid: String = uid
        .map(|c| if plain(c) { c } else { '_' })
        .take(64)
        .collect();
    format!("{number}-{uid}")
}

fn fingerprint(pem: &str) -> Option<String> {
    let chain = CertificateChain::from_pem(pem).ok()?;
    chain
        .ders()
        .first()
        .map(|der| cert::fingerprint_sha256(der))
}

/// Checks every signature and certificate of an exported request.
pub(crate) fn verify(folder: &Path, root: &Path, json: bool) -> Outcome {
    let request: Request = serde_json::from_slice(&read(&folder.join("request.json"))?)
        .or_hint("request.json is no request", HINT)?;
    let statement = request.statement().or_hint("statement", HINT)?;
    if read(&folder.join("statement.json"))? != statement {
        return Err(bad("statement.json is not the statement of request.json"));
    }
    let certificates = |path: &Path| -> Outcome<Vec<pki::Certificate>> {
        let pem = String::from_utf8(read(path)?).or_hint("certificates", HINT)?;
        let chain = CertificateChain::from_pem(&pem);
        let chain = chain.or_hint(format!("{} has no certificate", path.display()), HINT)?;
        Ok(chain.certificates().to_vec())
    };
    let roots = certificates(root)?;
    let authorities = certificates(&folder.join("authorities.pem"))?;
    let trust = TrustStore::new(&roots, &authorities).or_hint("unusable authorities", HINT)?;
    let mut approvers = BTreeSet::new();
    for (number, approval) in (1..).zip(request.state().approvals()) {
        let name = stem(number, approval);
        let uid = approval.uid();
        if read(&folder.join(format!("{name}.sig")))? != approval.signature() {
            return Err(bad(format!(
                "{name}.sig is not the signature in request.json"
            )));
        }
        let pem = String::from_utf8(read(&folder.join(format!("{name}.pem")))?);
        let chain = CertificateChain::from_pem(&pem.or_hint("certificate", HINT)?);
        let chain = chain.or_hint(format!("{name}.pem is no certificate"), HINT)?;
        let leaf = chain
            .ders()
            .first()
            .map(|der| der.to_vec())
            .unwrap_or_default();
        if cert::fingerprint_sha256(&leaf) != approval.certificate_sha256() {
            return Err(bad(format!(
                "{name}.pem is another certificate than the approval names"
            )));
        }
        let identity = trust.validate(chain.ders(), Purpose::ClientUser, approval.at());
        let identity = identity.or_hint(format!("the certificate of {uid} is refused"), HINT)?;
        if identity.uid.as_deref() != Some(uid) {
            return Err(bad(format!("{name}.pem is not the certificate of {uid}")));
        }
        cert::verify_signature(&leaf, &statement, approval.signature())
            .or_hint(format!("the signature of {uid} is not good"), HINT)?;
        if request.authors().contains(uid) || request.act().subject() == Some(uid) {
            return Err(bad(format!("{uid} approved an own request")));
        }
        if !approvers.insert(uid.to_owned()) {
            return Err(bad(format!("{uid} approved twice")));
        }
    }
    let state = request.state().name();
    let is_decided = matches!(
        request.state(),
        State::Approved { .. } | State::Issued { .. } | State::Delivered { .. }
    );
    if is_decided && approvers.is_empty() {
        return Err(bad(format!(
            "request.json says {state}, and nobody has signed it"
        )));
    }
    let names: Vec<&str> = approvers.iter().map(String::as_str).collect();
    let approved = match names.as_slice() {
        [] => "nobody has approved it".to_owned(),
        names => format!("approved by {}", names.join(", ")),
    };
    let summary = format!(
        "request {} ({}) is {state}; {approved}; every signature is good\n\
         whether a certificate was revoked is not in the folder: the log of the site has that",
        request.id().0,
        request.act().name(),
    );
    let value =
        json!({ "id": request.id(), "state": state, "act": request.act(), "approvers": names });
    print(json, &value, &summary)
}

fn bad(what: impl Into<String>) -> Failure {
    Failure::new(anyhow::anyhow!(what.into()), HINT)
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let bytes = super::read_regular(path, super::MAX_SMALL_FILE, "name an exported folder")?;
    Ok(bytes.to_vec())
}
