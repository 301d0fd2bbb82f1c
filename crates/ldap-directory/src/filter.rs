//! Search filters (RFC 4511, section 4.5.1.7), within bounds, against what an asker may see.

use ldap3_proto::proto::{LdapFilter, LdapSubstringFilter};

use crate::name::prepared;
use crate::schema::{self, Attribute, Syntax, View};
use crate::tree::{Entry, Tree, Value};

/// Filters inside one another at most. Our choice: those of known clients have five levels.
const MAX_DEPTH: usize = 32;
/// Comparisons of a filter at most, a part of a substring counted as one. Each is done for each entry. Our choice: SSSD's
/// longest filter has some twenty.
const MAX_TERMS: usize = 256;

/// A filter is larger than the bounds allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter has more than {MAX_TERMS} comparisons or {MAX_DEPTH} levels")]
pub(crate) struct TooLarge;

/// The result of a filter for one entry. `Undefined` comes of attributes and rules that are unknown, and of attributes that
/// the asker may not see: neither a filter nor its negation matches then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    True,
    False,
    Undefined,
}

/// A filter whose values are prepared for comparing.
#[derive(Debug)]
pub(crate) enum Filter {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Undefined,
    Present(&'static Attribute),
    Equal(&'static Attribute, String),
    Substring(&'static Attribute, Parts),
    /// Integers of at least, or at most, this value.
    AtLeast(&'static Attribute, i64),
    AtMost(&'static Attribute, i64),
}

/// The parts of a substring filter.
#[derive(Debug)]
pub(crate) struct Parts {
    initial: Option<String>,
    any: Vec<String>,
    last: Option<String>,
}

impl Filter {
    /// Prepares a filter.
    pub(crate) fn new(filter: &LdapFilter) -> Result<Self, TooLarge> {
        let mut terms = 0;
        Self::within(filter, 0, &mut terms)
    }

    fn within(filter: &LdapFilter, depth: usize, terms: &mut usize) -> Result<Self, TooLarge> {
        *terms += match filter {
            LdapFilter::Substring(_, parts) => parts.any.len() + 2,
            _ => 1,
        };
        if depth >= MAX_DEPTH || *terms > MAX_TERMS {
            return Err(TooLarge);
        }
        let mut several = |filters: &[LdapFilter]| -> Result<Vec<Self>, TooLarge> {
            let filters = filters.iter();
            filters
                .map(|filter| Self::within(filter, depth + 1, terms))
                .collect()
        };
        Ok(match filter {
            LdapFilter::And(filters) => Self::And(several(filters)?),
            LdapFilter::Or(filters) => Self::Or(several(filters)?),
            LdapFilter::Not(filter) => Self::Not(Box::new(Self::within(filter, depth + 1, terms)?)),
            LdapFilter::Present(name) => match comparable(name) {
                Some(attribute) => Self::Present(attribute),
                None => Self::Undefined,
            },
            // An approximate match is at least an exact one (RFC 4511, section 4.5.1.7.6).
            LdapFilter::Equality(name, value) | LdapFilter::Approx(name, value) => {
                equal(name, value)
            }
            LdapFilter::Substring(name, parts) => substring(name, parts),
            LdapFilter::GreaterOrEqual(name, value) => ordered(name, value, Self::AtLeast),
            LdapFilter::LessOrEqual(name, value) => ordered(name, value, Self::AtMost),
            LdapFilter::Extensible(_) => Self::Undefined,
        })
    }

    /// Whether the filter matches `entry` for an asker with `view`.
    pub(crate) fn matches(&self, entry: &Entry, view: View) -> bool {
        self.truth(entry, view) == Truth::True
    }

    fn truth(&self, entry: &Entry, view: View) -> Truth {
        match self {
            Self::And(filters) => combined(filters, entry, view, Truth::False, Truth::True),
            Self::Or(filters) => combined(filters, entry, view, Truth::True, Truth::False),
            Self::Not(filter) => match filter.truth(entry, view) {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                Truth::Undefined => Truth::Undefined,
            },
            Self::Undefined => Truth::Undefined,
            Self::Present(attribute) => of_values(attribute, entry, view, |_| true),
            Self::Equal(attribute, value) => {
                of_values(attribute, entry, view, |known| known.prepared == *value)
            }
            Self::Substring(attribute, parts) => {
                of_values(attribute, entry, view, |known| parts.fit(&known.prepared))
            }
            Self::AtLeast(attribute, least) => of_values(attribute, entry, view, |known| {
                number(known) >= Some(*least)
            }),
            Self::AtMost(attribute, most) => of_values(attribute, entry, view, |known| {
                number(known).is_some_and(|number| number <= *most)
            }),
        }
    }

    /// Positions of all entries that can match, if an index knows them.
    pub(crate) fn candidates(&self, tree: &Tree, view: View) -> Option<Vec<usize>> {
        match self {
            // What the asker may not see must not be faster to find either.
            Self::Equal(attribute, value) if view.has(attribute.class) => {
                tree.indexed(attribute, value)
            }
            Self::And(filters) => filters
                .iter()
                .find_map(|filter| filter.candidates(tree, view)),
            _ => None,
        }
    }

    /// The filter with names of attributes and without values, for the audit log.
    pub(crate) fn shape(&self) -> String {
        let several = |sign: char, filters: &[Self]| {
            let mut shapes: Vec<_> = filters.iter().map(Self::shape).collect();
            shapes.dedup();
            format!("({sign}{})", shapes.concat())
        };
        match self {
            Self::And(filters) => several('&', filters),
            Self::Or(filters) => several('|', filters),
            Self::Not(filter) => format!("(!{})", filter.shape()),
            Self::Undefined => "(?)".to_owned(),
            Self::Present(attribute) => format!("({}=*)", attribute.name),
            Self::Equal(attribute, _) => format!("({}=?)", attribute.name),
            Self::Substring(attribute, _) => format!("({}=*?*)", attribute.name),
            Self::AtLeast(attribute, _) => format!("({}>=?)", attribute.name),
            Self::AtMost(attribute, _) => format!("({}<=?)", attribute.name),
        }
    }
}

/// `decides` if one filter gives it, `otherwise` if none is undefined.
fn combined(
    filters: &[Filter],
    entry: &Entry,
    view: View,
    decides: Truth,
    otherwise: Truth,
) -> Truth {
    let mut truth = otherwise;
    for filter in filters {
        match filter.truth(entry, view) {
            found if found == decides => return decides,
            Truth::Undefined => truth = Truth::Undefined,
            _ => {}
        }
    }
    truth
}

/// An attribute that the asker may not see anywhere is undefined; one that the entry lacks is false.
fn of_values(
    attribute: &'static Attribute,
    entry: &Entry,
    view: View,
    fits: impl Fn(&Value) -> bool,
) -> Truth {
    match entry.values(attribute, view) {
        Some(values) if values.iter().any(fits) => Truth::True,
        Some(_) => Truth::False,
        None if view.has(attribute.class) => Truth::False,
        None => Truth::Undefined,
    }
}

/// The attribute of this name, unless its values are fetched when they are asked for and so cannot be filtered by.
fn comparable(name: &str) -> Option<&'static Attribute> {
    schema::by_name(name).filter(|attribute| attribute.syntax != Syntax::Binary)
}

fn equal(name: &str, value: &str) -> Filter {
    let prepared = |attribute: &Attribute| attribute.syntax.prepared(value);
    comparable(name)
        .and_then(|attribute| Some(Filter::Equal(attribute, prepared(attribute)?)))
        .unwrap_or(Filter::Undefined)
}

fn substring(name: &str, parts: &LdapSubstringFilter) -> Filter {
    match comparable(name) {
        Some(attribute) if attribute.syntax == Syntax::Text => {
            let parts = Parts {
                initial: parts.initial.as_deref().map(part),
                any: parts.any.iter().map(|text| part(text)).collect(),
                last: parts.final_.as_deref().map(part),
            };
            Filter::Substring(attribute, parts)
        }
        _ => Filter::Undefined,
    }
}

/// Prepares a part of a substring: spaces at its ends are significant (RFC 4518, section 2.6.1).
fn part(text: &str) -> String {
    let inner = prepared(text);
    let before = if text.starts_with(' ') { " " } else { "" };
    let after = if text.ends_with(' ') { " " } else { "" };
    format!("{before}{inner}{after}")
}

fn ordered(name: &str, value: &str, filter: impl Fn(&'static Attribute, i64) -> Filter) -> Filter {
    match comparable(name) {
        Some(attribute) if attribute.syntax == Syntax::Integer => match value.trim().parse() {
            Ok(number) => filter(attribute, number),
            Err(_) => Filter::Undefined,
        },
        _ => Filter::Undefined,
    }
}

fn number(value: &Value) -> Option<i64> {
    value.prepared.parse().ok()
}

impl Parts {
    /// Whether the parts occur in `text` in their order without overlap.
    fn fit(&self, text: &str) -> bool {
        let rest = match &self.initial {
            Some(initial) => text.strip_prefix(initial.as_str()),
            None => Some(text),
        };
        let rest = match (&self.last, rest) {
            (Some(last), Some(rest)) => rest.strip_suffix(last.as_str()),
            (None, rest) => rest,
            (Some(_), None) => None,
        };
        let Some(mut rest) = rest else {
            return false;
        };
        for part in &self.any {
            let Some((_, after)) = rest.split_once(part.as_str()) else {
                return false;
            };
            rest = after;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use ldap3_proto::parse_ldap_filter_str;

    use super::*;
    use crate::tests::{ALL, CONTACTS, tree};

    fn found(filter: &str, view: View) -> Vec<String> {
        let parsed = parse_ldap_filter_str(filter);
        let filter = Filter::new(&parsed.unwrap_or_else(|e| panic!("{filter}: {e}"))).unwrap();
        let tree = tree();
        let entries = (0..).map_while(|position| tree.get(position));
        let entries = entries.filter(|entry| filter.matches(entry, view));
        entries
            .filter_map(|entry| Some(entry.values(&schema::UID, ALL)?[0].text.clone()))
            .collect()
    }

    #[test]
    fn filters_match_as_their_rules_say() {
        let table: &[(&str, &[&str])] = &[
            ("(uid=ANA-1)", &["ana-1"]),
            ("(sn=SCHMIDT)", &["ana-1"]),
            ("(mail=*@example.org)", &["ana-1", "ben-2", "eva-3"]),
            ("(cn=ana*id*)", &["ana-1"]),
            ("(cn=a*n*a*)", &["ana-1"]),
            ("(cn=ana*ana)", &[]),
            ("(&(ou=traffic)(!(uid=ana-1)))", &["ben-2"]),
            ("(|(uid=ana-1)(uid=eva-3))", &["ana-1", "eva-3"]),
            ("(objectClass=INETORGPERSON)", &["ana-1", "ben-2", "eva-3"]),
            ("(cordonClearance>=3)", &["eva-3"]),
            ("(cordonClearance<=2)", &["ana-1", "ben-2"]),
            ("(cordonClearance=2)", &["ben-2"]),
            ("(givenName=*)", &["ana-1", "ben-2"]),
            ("(!(givenName=*))", &["eva-3"]),
            ("(uid~=ana-1)", &["ana-1"]),
        ];
        for (filter, uids) in table {
            assert_eq!(found(filter, ALL), *uids, "{filter}");
        }
    }

    #[test]
    fn names_are_compared_as_names() {
        let tree = tree();
        let (_, entry) = tree.find("o=lea-eu\0ou=people\0uid=ana-1").unwrap();
        for (name, is_group) in [
            ("CN=traffic, OU=Groups,o=lea-eu", true),
            ("cn=forensics,ou=groups,o=LEA-EU", false),
            ("traffic", false),
        ] {
            assert_eq!(equal("memberOf", name).matches(entry, ALL), is_group);
        }
    }

    #[test]
    fn spaces_are_compared_as_the_matching_rule_says() {
        let tree = tree();
        let (_, entry) = tree.find("o=lea-eu\0ou=people\0uid=ana-1").unwrap();
        for value in ["ana schmidt", "  Ana   SCHMIDT "] {
            assert!(equal("cn", value).matches(entry, ALL), "{value:?}");
        }
        let parts = |initial: &str| LdapSubstringFilter {
            initial: Some(initial.to_owned()),
            ..Default::default()
        };
        assert!(substring("cn", &parts("ana ")).matches(entry, ALL));
        assert!(!substring("cn", &parts("an ")).matches(entry, ALL));
    }

    #[test]
    fn undefined_filter_and_its_negation_match_nothing() {
        for filter in [
            "(userPassword=*)",
            "(uid:caseExactMatch:=ana-1)",
            "(cordonClearance>=x)",
            "(cn>=a)",
            "(memberOf=traffic)",
            "(userCertificate=*)",
        ] {
            assert!(found(filter, ALL).is_empty(), "{filter}");
            let negated = format!("(!{filter})");
            assert!(found(&negated, ALL).is_empty(), "{negated}");
        }
    }

    #[test]
    fn hidden_attribute_is_no_oracle() {
        for filter in [
            "(cordonClearance=3)",
            "(cordonClearance>=0)",
            "(cordonRole=administrator)",
            "(cordonRole=*)",
            "(|(cordonClearance=1)(cordonClearance=2)(cordonClearance=3))",
        ] {
            assert!(!found(filter, ALL).is_empty(), "{filter}");
            assert!(found(filter, CONTACTS).is_empty(), "{filter}");
            let negated = format!("(!{filter})");
            assert!(found(&negated, CONTACTS).is_empty(), "{negated}");
        }
        // Beside a comparison that decides alone, it changes nothing.
        assert_eq!(
            found("(|(uid=eva-3)(cordonClearance=3))", CONTACTS),
            ["eva-3"]
        );
    }

    #[test]
    fn nobody_sees_anything_without_contacts() {
        for filter in ["(uid=ana-1)", "(mail=*)", "(!(uid=x))"] {
            assert!(found(filter, View::default()).is_empty(), "{filter}");
        }
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let nested = |levels: usize| {
            let mut filter = LdapFilter::Present("cn".to_owned());
            for _ in 1..levels {
                filter = LdapFilter::Not(Box::new(filter));
            }
            Filter::new(&filter).map(drop)
        };
        assert_eq!(nested(MAX_DEPTH), Ok(()));
        assert_eq!(nested(MAX_DEPTH + 1), Err(TooLarge));
        let wide = |terms: usize| {
            let term = LdapFilter::Present("cn".to_owned());
            Filter::new(&LdapFilter::Or(vec![term; terms - 1])).map(drop)
        };
        assert_eq!(wide(MAX_TERMS), Ok(()));
        assert_eq!(wide(MAX_TERMS + 1), Err(TooLarge));
        let parts = |parts: usize| {
            let any = vec!["a".to_owned(); parts];
            let filter = LdapSubstringFilter {
                any,
                ..Default::default()
            };
            Filter::new(&LdapFilter::Substring("cn".to_owned(), filter)).map(drop)
        };
        assert_eq!(parts(MAX_TERMS - 2), Ok(()));
        assert_eq!(parts(MAX_TERMS - 1), Err(TooLarge));
    }

    #[test]
    fn shape_has_no_values() {
        let filter = parse_ldap_filter_str("(&(mail=ana@example.org)(|(cn=a*b)(cn=c*))(!(x=y)))");
        let shape = Filter::new(&filter.unwrap()).unwrap().shape();
        assert_eq!(shape, "(&(mail=?)(|(cn=*?*))(!(?)))");
    }
}
