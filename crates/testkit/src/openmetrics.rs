//! A strict reader of OpenMetrics text 1.0, which refuses whatever a scraper might only tolerate.
//!
//! It knows the types that Cordon exports (counter, gauge and info) and neither time stamps nor exemplars.

use std::collections::{BTreeMap, BTreeSet};

/// The media type under which the text is served.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The first line that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Malformed {
    /// Counted from 1.
    pub line: usize,
    pub fault: Fault,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the text does not end with `# EOF` and a line feed")]
    End,
    #[error("neither a sample nor one of HELP, TYPE and UNIT")]
    Syntax,
    #[error("a name has other characters than it may have")]
    Name,
    #[error("an unknown type of metric")]
    Type,
    #[error("the second of its kind for this family, or a family that was there before")]
    Repeated,
    #[error("the sample's name does not follow from the family above it and its type")]
    Foreign,
    #[error("labels are not as they must be, or one stands twice")]
    Labels,
    #[error("the value is no number, or none that this type may have")]
    Value,
    #[error("the unit is not the end of the family's name")]
    Unit,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Info,
}

impl Kind {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }
}

type Labels = BTreeMap<String, String>;

/// A page that was read.
#[derive(Debug, Default)]
pub struct Page {
    /// Each family with its type.
    pub families: BTreeMap<String, Kind>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Page {
    /// The value of the sample with exactly these labels.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let key = (name.to_owned(), labels.collect());
        self.samples.get(&key).copied()
    }

    /// The number of samples with a name.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|(own, _)| own == name).count()
    }
}

/// The family whose lines are being read.
#[derive(Default)]
struct Family {
    name: String,
    kind: Option<Kind>,
    helped: bool,
    unit: bool,
    sampled: bool,
}

/// Reads a page.
///
/// # Errors
/// The first line that breaks a rule.
pub fn parse(text: &str) -> Result<Page, Malformed> {
    let lines: Vec<&str> = text.split('\n').collect();
    let last = lines.len();
    let ended = |line| Malformed {
        line,
        fault: Fault::End,
    };
    let [lines @ .., "# EOF", ""] = lines.as_slice() else {
        return Err(ended(last));
    };
    let mut page = Page::default();
    let mut family = Family::default();
    let mut closed = BTreeSet::new();
    for (index, line) in lines.iter().enumerate() {
        let done = match line.strip_prefix("# ") {
            Some("EOF") => Err(Fault::End),
            Some(descriptor) => describe(&mut page, &mut family, &mut closed, descriptor),
            None => sample(&mut page, &mut family, line),
        };
        done.map_err(|fault| Malformed {
            line: index + 1,
            fault,
        })?;
    }
    Ok(page)
}

fn describe(
    page: &mut Page,
    family: &mut Family,
    closed: &mut BTreeSet<String>,
    line: &str,
) -> Result<(), Fault> {
    let mut words = line.splitn(3, ' ');
    let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return Err(Fault::Syntax);
    };
    if !is_name(name, true) {
        return Err(Fault::Name);
    }
    if family.name != name {
        if !closed.insert(name.to_owned()) {
            return Err(Fault::Repeated);
        }
        *family = Family {
            name: name.to_owned(),
            ..Family::default()
        };
    }
    // Descriptions stand before the family's samples.
    let repeated = match word {
        _ if family.sampled => true,
        "HELP" => std::mem::replace(&mut family.helped, true),
        "TYPE" => {
            let kind = match rest {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "info" => Kind::Info,
                _ => return Err(Fault::Type),
            };
            page.families.insert(name.to_owned(), kind);
            family.kind.replace(kind).is_some()
        }
        "UNIT" if !name.ends_with(&format!("_{rest}")) => return Err(Fault::Unit),
        "UNIT" => std::mem::replace(&mut family.unit, true),
        _ => return Err(Fault::Syntax),
    };
    if repeated {
        Err(Fault::Repeated)
    } else {
        Ok(())
    }
}

fn sample(page: &mut Page, family: &mut Family, line: &str) -> Result<(), Fault> {
    let end = line.find(['{', ' ']).ok_or(Fault::Syntax)?;
    let (name, rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err(Fault::Name);
    }
    let kind = family.kind.ok_or(Fault::Foreign)?;
    if name.strip_prefix(&family.name) != Some(kind.suffix()) {
        return Err(Fault::Foreign);
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Labels::new(), rest),
    };
    let number = rest.strip_prefix(' ').ok_or(Fault::Syntax)?;
    let digits = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    if !number.chars().all(digits) {
        return Err(Fault::Value);
    }
    let value: f64 = number.parse().map_err(|_| Fault::Value)?;
    let possible = match kind {
        Kind::Counter => value >= 0.0,
        Kind::Gauge => true,
        Kind::Info => value == 1.0,
    };
    if !possible {
        return Err(Fault::Value);
    }
    family.sampled = true;
    let key = (name.to_owned(), labels);
    match page.samples.insert(key, value) {
        None => Ok(()),
        Some(_) => Err(Fault::Repeated),
    }
}

/// Labels up to their closing brace, and what follows it.
fn labels(mut text: &str) -> Result<(Labels, &str), Fault> {
    let mut labels = Labels::new();
    if let Some(rest) = text.strip_prefix('}') {
        return Ok((labels, rest));
    }
    loop {
        let (name, rest) = text.split_once("=\"").ok_or(Fault::Labels)?;
        if !is_name(name, false) {
            return Err(Fault::Name);
        }
        let (value, rest) = quoted(rest)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(Fault::Labels);
        }
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        text = rest.strip_prefix(',').ok_or(Fault::Labels)?;
    }
}

/// A value up to its closing quotation mark, and what follows it.
fn quoted(text: &str) -> Result<(String, &str), Fault> {
    let mut value = String::new();
    let mut letters = text.chars();
    loop {
        match letters.next().ok_or(Fault::Labels)? {
            '"' => return Ok((value, letters.as_str())),
            '\\' => value.push(match letters.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                _ => return Err(Fault::Labels),
            }),
            c => value.push(c),
        }
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let mut letters = name.chars();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    letters.next().is_some_and(first) && letters.all(|c| first(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_seconds Help.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
        a_seconds_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 1.5\na_seconds_total{x=\"2\"} 0\n\
        # TYPE b gauge\nb -3\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n";

    #[test]
    fn page_within_the_rules_is_read() {
        let page = parse(GOOD).unwrap();
        let labels = [("x", "1"), ("y", "q\"\\\n")];
        assert_eq!(page.value("a_seconds_total", &labels), Some(1.5));
        assert_eq!(page.value("b", &[]), Some(-3.0));
        assert_eq!(page.value("b", &labels), None);
        assert_eq!(page.count("a_seconds_total"), 2);
        assert_eq!(page.families.get("c"), Some(&Kind::Info));
        assert_eq!(parse("# EOF\n").unwrap().families.len(), 0);
    }

    #[test]
    fn page_against_a_rule_is_refused_at_its_line() {
        let cases = [
            ("# EOF\n", "", Fault::End, 10),
            ("# EOF\n", "# EOF", Fault::End, 10),
            ("# EOF\n", "# EOF\n\n", Fault::End, 12),
            ("b -3\n", "# EOF\nb -3\n", Fault::End, 7),
            ("b -3\n", "\n", Fault::Syntax, 7),
            ("b -3\n", "b -3 \n", Fault::Value, 7),
            ("b -3\n", "b NaN\n", Fault::Value, 7),
            ("b -3\n", "b  3\n", Fault::Value, 7),
            ("b -3\n", "b -3 1700000000\n", Fault::Value, 7),
            ("b -3\n", "b -3\nb 4\n", Fault::Repeated, 8),
            ("b -3\n", "b_total 3\n", Fault::Foreign, 7),
            ("b -3\n", "a_seconds_total 3\n", Fault::Foreign, 7),
            ("b -3\n", "b{1=\"\"} 3\n", Fault::Name, 7),
            ("b -3\n", "b{x=\"\",x=\"\"} 3\n", Fault::Labels, 7),
            ("b -3\n", "b{x=\"\\t\"} 3\n", Fault::Labels, 7),
            ("b -3\n", "b{x=\"} 3\n", Fault::Labels, 7),
            ("b -3\n", "b{x=\"\",} 3\n", Fault::Labels, 7),
            ("gauge\n", "gauge\n# TYPE b gauge\n", Fault::Repeated, 7),
            ("b -3\n", "b -3\n# HELP b x\n", Fault::Repeated, 8),
            ("b -3\n", "b -3\n# HELP a_seconds x\n", Fault::Repeated, 8),
            ("b gauge", "b summary", Fault::Type, 6),
            ("b gauge", "b-c gauge", Fault::Name, 6),
            ("# TYPE b", "#TYPE b", Fault::Name, 6),
            ("# TYPE b", "# KIND b", Fault::Syntax, 6),
            ("s counter", "s gauge", Fault::Foreign, 4),
            ("s seconds", "s bytes", Fault::Unit, 3),
            ("} 1.5", "} -1.5", Fault::Value, 4),
            ("} 1\n", "} 2\n", Fault::Value, 9),
        ];
        for (from, to, fault, line) in cases {
            let bad = GOOD.replacen(from, to, 1);
            assert_eq!(parse(&bad).unwrap_err(), Malformed { line, fault }, "{bad}");
        }
    }
}
