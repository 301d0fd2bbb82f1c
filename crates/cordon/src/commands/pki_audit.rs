//! `cordon pki audit`: whether every certificate was issued as the rules say.

use std::path::{Path, PathBuf};

use audit::verify::Verifier;
use audit::{Leaf, VerifierKey, View};
use pki::Certificate;
use pki::file::load_chain;
use registry::{Completeness, CompletenessReport, Registry};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::audit::key_text;
use super::print;
use crate::cli::PkiAudit;
use commandline::{Failure, OrHint as _, Outcome};
use site::config::Config;

const HINT: &str = "ask who had access, and keep log and registry as they are";
/// Lines about gaps that are shown to people; `--json` has all.
const SHOWN: usize = 50;

pub(crate) async fn run(args: &PkiAudit, json: bool) -> Outcome {
    let config = Config::load(args.config.as_deref())?;
    let policy = config.registration.policy();
    let policy = policy.or_hint("numbers of approvals", "correct [registration]")?;
    let (root, authorities) = authorities(args)?;
    let mut completeness = Completeness::new(&root, &authorities, policy)
        .or_hint("unusable authorities", "name those of the site")?;
    const NAME: &str = "name the site's folder with --data";
    // Before the log, which grows while a site runs.
    let rows = match &args.data {
        Some(data) => Some(
            registry::rows_in_book(data)
                .await
                .or_hint("cannot read the registry's book", NAME)?,
        ),
        None => None,
    };
    let events = read_log(args, &mut completeness)?;
    for file in &args.certificates {
        let failed = || format!("cannot read certificates from {}", file.display());
        // It may be long, but has an end.
        let metadata = std::fs::metadata(file).or_hint(failed(), "name a PEM file")?;
        if !metadata.is_file() {
            let what = anyhow::anyhow!("{} is no regular file", file.display());
            return Err(Failure::new(what, "name a PEM file"));
        }
        let certificates = CertificateDer::pem_file_iter(file);
        for certificate in certificates.or_hint(failed(), "name a PEM file")? {
            completeness.look_for(&certificate.or_hint(failed(), "name a PEM file")?);
        }
    }
    if let Some(data) = &args.data {
        let book = registry::for_each_in_book(data, |row| completeness.look_for_of_book(row));
        book.await
            .or_hint("cannot read the registry's book", NAME)?;
    }
    if let Some(rows) = rows {
        completeness.look_for_rows(&rows);
    }
    let report = completeness.finish(args.data.is_some());
    let complete = report.gaps.is_empty();
    let value = json!({ "complete": complete, "events": events, "report": report });
    print(json, &value, &text(&report, events))?;
    if complete {
        return Ok(());
    }
    let gaps = report.gaps.len();
    Err(Failure::new(
        anyhow::anyhow!("{gaps} things do not fit the rules"),
        HINT,
    ))
}

/// The root and the issuing authorities.
fn authorities(args: &PkiAudit) -> Outcome<(Certificate, Vec<Certificate>)> {
    let load = |path: &Path| {
        let failed = format!("cannot read {}", path.display());
        load_chain(path).or_hint(failed, "name PEM files")
    };
    let folder = args.data.as_ref().map(|data| data.join("pki"));
    let in_folder = |name: &str| folder.as_ref().map(|folder| folder.join(name));
    let missing = || {
        Failure::new(
            anyhow::anyhow!("no root and authorities are named"),
            "use --data, or --root and --authorities",
        )
    };
    let root = args.root.clone().or_else(|| in_folder("root.pem"));
    let root = load(&root.ok_or_else(missing)?)?.leaf().clone();
    let authorities = match &args.authorities {
        Some(file) => load(file)?.certificates().to_vec(),
        None => {
            let data = args.data.as_ref().ok_or_else(missing)?;
            let authorities = Registry::certified_authorities(data);
            authorities.or_hint("cannot read the authorities", "check the folder pki")?
        }
    };
    Ok((root, authorities))
}

/// Verifies the log and hands its events over; gives their number.
fn read_log(args: &PkiAudit, completeness: &mut Completeness) -> Outcome<u64> {
    let in_data = || args.data.as_ref().map(|data| data.join("audit/log"));
    let dir: PathBuf = args.audit_log.clone().or_else(in_data).unwrap_or_default();
    let key = key_text(&dir, args.key.as_deref())?;
    let verifier = Verifier::new(&key).or_hint("the public key is none", "see --help")?;
    let broken = format!("the log in {} does not hold", dir.display());
    verifier.verify(&dir).or_hint(broken, HINT)?;
    let key: VerifierKey = key
        .parse()
        .or_hint("the public key is none", "see --help")?;
    let view = View::open(&dir, &key).or_hint("cannot open the log", HINT)?;
    let mut index = 0;
    for bundle in 0.. {
        if index >= view.size() {
            break;
        }
        for entry in view.bundle(bundle).or_hint("cannot read the log", HINT)? {
            let leaf = Leaf::decode(&entry).or_hint(format!("entry {index}"), HINT)?;
            completeness.note(index, &leaf.event);
            index += 1;
        }
    }
    Ok(index)
}

fn text(report: &CompletenessReport, events: u64) -> String {
    let of = |title: &str, counts: &std::collections::BTreeMap<String, u64>| {
        let lines = counts
            .iter()
            .map(|(name, count)| format!("\n  {name:<16} {count:>6}"));
        let none = if counts.is_empty() { "\n  none" } else { "" };
        format!("\n{title}{}{none}", lines.collect::<String>())
    };
    let mut text = format!("the log holds: {events} events");
    text += &of("certificates by how they came about", &report.certificates);
    text += &of("approved acts that were carried out", &report.acts);
    text += &format!(
        "\napprovals with a good signature: {}\ncertificates looked for in the log: {}",
        report.approvals, report.looked_for
    );
    for gap in report.gaps.iter().take(SHOWN) {
        let entry = gap
            .entry
            .map_or_else(|| "-".to_owned(), |entry| entry.to_string());
        text += &format!("\n{entry:>7}  {}", commandline::visible(&gap.what));
    }
    if let Some(more) = report
        .gaps
        .len()
        .checked_sub(SHOWN)
        .filter(|more| *more > 0)
    {
        text += &format!("\n{more} more; --json has all");
    }
    text
}
