//! `cordon ibc vectors check`: any vector file in the specification's format, on every back end.

mod kinds;

use std::collections::BTreeMap;
use std::path::Path;

use ibc::Backend;
use serde_json::{Value, json};

use super::args::Vectors;
use commandline::{Failure, OrHint as _, Outcome};

/// A vector that does not hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) field: String,
    pub(super) expected: String,
    pub(super) got: String,
}

/// Why a vector cannot be checked or does not hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum VectorError {
    /// The file is wrong, not the cipher.
    #[error("field {field} {problem}")]
    Malformed {
        field: String,
        problem: &'static str,
    },
    /// The cipher does something else than the vector says.
    #[error("field {}: expected {}, got {}", .0.field, .0.expected, .0.got)]
    Mismatch(Mismatch),
}

pub(super) fn run(command: Vectors, json: bool) -> Outcome {
    let Vectors::Check { file, backend } = command;
    let backends: Vec<Backend> = match backend {
        Some(backend) if !Backend::available().any(|b| b == backend) => {
            return Err(Failure::new(
                anyhow::anyhow!("this CPU has no back end {backend}"),
                "see `cordon ibc variants`",
            ));
        }
        Some(backend) => vec![backend],
        None => Backend::available().collect(),
    };
    let text = std::fs::read_to_string(&file).or_hint(
        format!("cannot read {}", file.display()),
        "name a vector file",
    )?;
    let document: Value = serde_json::from_str(&text).or_hint(
        format!("{} is no JSON", file.display()),
        "name a vector file",
    )?;
    let vectors = document.get("vectors").and_then(Value::as_array);
    let vectors = vectors.filter(|list| !list.is_empty()).ok_or_else(|| {
        Failure::new(
            anyhow::anyhow!("{} has no list `vectors`", file.display()),
            "see docs/ibc.md for the format",
        )
    })?;
    let mut counts = BTreeMap::new();
    for backend in &backends {
        for vector in vectors {
            kinds::check(vector, *backend).map_err(|e| report(&file, vector, *backend, e))?;
        }
    }
    for vector in vectors {
        *counts
            .entry(commandline::text(vector, "type"))
            .or_insert(0u64) += 1;
    }
    let names: Vec<String> = backends.iter().map(Backend::to_string).collect();
    let value = json!({
        "file": file,
        "vectors": vectors.len(),
        "types": counts,
        "backends": names,
        "holds": true,
    });
    let kinds: Vec<String> = counts.iter().map(|(k, n)| format!("{n} {k}")).collect();
    let text = format!(
        "{} vectors hold ({}) on {}",
        vectors.len(),
        kinds.join(", "),
        names.join(", ")
    );
    commandline::print(json, &value, &text)
}

/// The first thing that is wrong, in two lines.
fn report(file: &Path, vector: &Value, backend: Backend, error: VectorError) -> Failure {
    let hint = match error {
        VectorError::Malformed { .. } => "see docs/ibc.md for the format",
        VectorError::Mismatch(_) => {
            "compare with another implementation: the vector or this program is wrong"
        }
    };
    let id = vector.get("id").map_or("?".to_owned(), Value::to_string);
    let what = format!(
        "{}: vector {id} of type {} on back end {backend}",
        file.display(),
        commandline::text(vector, "type"),
    );
    Failure::new(anyhow::Error::new(error).context(what), hint)
}
