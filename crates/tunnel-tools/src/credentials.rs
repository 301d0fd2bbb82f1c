//! Our certificates that are renewed in their files while `cordon vpn up` runs.

use std::path::PathBuf;
use std::time::SystemTime;

use commandline::text;
use serde_json::Value;
use time::OffsetDateTime;
use vpn::ResolvedConfig;

/// Files with the time and length that they had.
pub(super) type Seen = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

/// How files look now.
pub(super) fn look(files: &[PathBuf]) -> Seen {
    let of = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(|file| (file.clone(), of(file))).collect()
}

/// The files with our certificates and keys, as they were when they were last taken over.
pub(super) struct Credentials {
    files: Vec<PathBuf>,
    used: Seen,
    /// As they were when they could not be used, and whether the log says so. While two files are replaced, they do
    /// not match for a moment.
    unusable: Option<(Seen, bool)>,
    looked: Seen,
}

impl Credentials {
    /// Those of a configuration that was just read.
    pub(super) fn of(loaded: &ResolvedConfig) -> Self {
        let files = loaded.credential_files().to_vec();
        let used = look(&files);
        Self {
            files,
            looked: used.clone(),
            used,
            unusable: None,
        }
    }

    /// Whether they differ from those in use and are worth reading: such as could not be used are read
    /// once more, and then when they change.
    pub(super) fn have_changed(&mut self) -> bool {
        // Before the contents, so that what changes meanwhile is seen the next time.
        self.looked = look(&self.files);
        let given_up = |(seen, said): &(Seen, bool)| *said && *seen == self.looked;
        self.looked != self.used && !self.unusable.as_ref().is_some_and(given_up)
    }

    /// Notes that they are in use. `changed` are connections of whose files more has changed.
    pub(super) fn taken_over(&mut self, changed: &[String]) {
        if !changed.is_empty() {
            tracing::warn!(
                ?changed,
                "more than certificates has changed: `cordon vpn reload`"
            );
        }
        self.used.clone_from(&self.looked);
        self.unusable = None;
    }

    /// Notes that they cannot be used.
    pub(super) fn refused(&mut self, error: &dyn std::fmt::Display) {
        let again = matches!(&self.unusable, Some((seen, _)) if *seen == self.looked);
        if again {
            tracing::error!(%error, "renewed certificates are not taken over");
        }
        self.unusable = Some((self.looked.clone(), again));
    }
}

/// One of our certificates in a status, for people.
pub(super) fn describe(own: &Value) -> String {
    let end = own.get("not_after").and_then(Value::as_i64);
    let end = end.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let end = end.map_or_else(|| "?".to_owned(), |end| end.date().to_string());
    format!("  certificate {}  until {end}", text(own, "subject"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[PathBuf]) -> Credentials {
        Credentials {
            files: files.to_vec(),
            used: look(files),
            looked: Vec::new(),
            unusable: None,
        }
    }

    #[test]
    fn unusable_files_are_read_twice_and_then_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("camera.pem");
        std::fs::write(&file, "one").unwrap();
        let mut credentials = of(std::slice::from_ref(&file));
        assert!(!credentials.have_changed());
        std::fs::write(&file, "number two").unwrap();
        for _ in 0..2 {
            assert!(credentials.have_changed());
            credentials.refused(&"not the key of the certificate");
        }
        assert!(!credentials.have_changed());
        std::fs::write(&file, "number three").unwrap();
        assert!(credentials.have_changed());
        credentials.taken_over(&[]);
        assert!(!credentials.have_changed());
    }
}
