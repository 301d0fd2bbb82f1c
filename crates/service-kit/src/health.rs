//! What a person has to know of a running process.

use untrusted_text::escape_invisible;

/// Problems now, and those to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Something does not work, or stops working soon: a person is needed now.
    pub problems: Vec<String>,
    /// A person has time for these.
    pub warnings: Vec<String>,
}

impl Health {
    /// Adds what another part of the process reports.
    pub fn extend(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.warnings.extend(other.warnings);
    }

    /// The text of `/healthz`: `ok` or `not ok`, then one line for each problem and each warning. Text of others is escaped: it makes
    /// no lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = match self.problems.as_slice() {
            [] => "ok\n".to_owned(),
            _ => "not ok\n".to_owned(),
        };
        for problem in &self.problems {
            text.push_str(&format!("problem: {}\n", escape_invisible(problem)));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {}\n", escape_invisible(warning)));
        }
        text
    }
}
