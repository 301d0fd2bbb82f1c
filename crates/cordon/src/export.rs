//! What a custody package needs beside the centre's own data: trust anchor, lists, proofs.

use std::path::Path;

use audit::SharedLog;
use centre::{ExportContext, ProofError};
use evidence::export::{CustodyEvent, LogProof};

use crate::failure::{OrHint as _, Outcome};
use crate::site::Site;

/// Collects everything for one export.
pub(crate) fn context(site: &Site) -> Outcome<ExportContext> {
    let audit = site.audit.clone();
    Ok(ExportContext {
        root_pem: site.root_pem()?,
        crls_pem: site.crls_pem(),
        prove: Box::new(move |indices| prove(&audit, indices)),
    })
}

fn prove(audit: &SharedLog, indices: &[u64]) -> Result<LogProof, ProofError> {
    let view = audit.view()?;
    let mut events = Vec::with_capacity(indices.len());
    for &index in indices {
        let entry = view.entry(index)?;
        let proof = view.inclusion_proof(index)?;
        events.push(CustodyEvent {
            entry,
            index,
            proof,
        });
    }
    Ok(LogProof {
        checkpoint: view.note().to_owned(),
        origin: audit.verifier().name().to_owned(),
        public_key: *audit.verifier().public_key(),
        events,
    })
}

/// Writes a package on behalf of whoever holds the data folder, and records it.
pub(crate) async fn by_console(site: &Site, id: &str, out: &Path) -> Outcome<serde_json::Value> {
    let context = context(site)?;
    let exported = site
        .centre
        .review()
        .export_by_console(id, out.to_owned(), context)
        .await;
    exported.or_hint(
        format!("cannot export {id}"),
        "check the violation's name and that the folder does not exist yet",
    )?;
    Ok(serde_json::json!({ "violation": id, "folder": out }))
}
