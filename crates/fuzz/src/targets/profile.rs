//! Profiles as administrators write them: what is taken goes no further than its authority, or than what is built in under
//! its name, and nothing that is refused reaches a terminal as it is.

use std::sync::LazyLock;

use pki::KeyAlgorithm;
use pki::profile::{CaKind, Definition, Issuer, Presence, Profile, built_in, purpose_name};

use crate::support::edit;

/// What no certificate of the kind says that anybody asks for, but those of a built-in name that has it.
const FORBIDDEN: [&str; 9] = [
    "serverAuth",
    "OCSPSigning",
    "cmcCA",
    "cmcRA",
    "msEFSRecovery",
    "receiptSigning",
    "trustBundleSigning",
    "anyExtendedKeyUsage",
    "1.3.6.1.5.5.7.3.3",
];

/// Lines of all profiles that are built in, and others that go with none of them.
static LINES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let further = [
        "name = \"own\"",
        "issuer = \"root\"",
        "issuer = \"itself\"",
        "administrators_only = false",
        "highest_clearance = 4",
        "days = 3650",
        "authority = { path_length = 0 }",
        "critical = false",
        "time_stamping_among_others = true",
        "purposes = [\"anyExtendedKeyUsage\"]",
        "purposes = [\"clientAuth\"]",
        "purposes = [\"2.5.29.37.0\", \"1.3.6.1.5.5.7.3.3\"]",
        "ed25519 = [\"keyCertSign\", \"cRLSign\"]",
    ];
    let mut lines: Vec<&str> = built_in().flat_map(|(_, text)| text.lines()).collect();
    lines.extend(further);
    lines.retain(|line| !line.is_empty() && !line.starts_with('#'));
    lines.sort_unstable();
    lines.dedup();
    lines
});

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    check(&String::from_utf8_lossy(data));
    // A file that is built in, with edits; and lines of all, as the input chooses them.
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let count = built_in().count();
    let (_, text) = built_in().nth(usize::from(*first) % count).unwrap();
    check(&String::from_utf8_lossy(&edit(text.as_bytes(), rest)));
    let line = |byte: &u8| LINES[usize::from(*byte) % LINES.len()];
    let lines: Vec<&str> = rest.iter().map(line).collect();
    check(&lines.join("\n"));
    // A line of a file in the place of another one.
    let mut changed: Vec<&str> = text.lines().collect();
    for pair in rest.chunks_exact(2).take(8) {
        let at = usize::from(pair[0]) % changed.len();
        changed[at] = line(&pair[1]);
    }
    check(&changed.join("\n"));
}

fn check(text: &str) {
    let definition = match Definition::parse(text) {
        Ok(definition) => definition,
        Err(error) => {
            assert!(
                !error.place.is_empty() && !error.problem.is_empty() && !error.advice.is_empty()
            );
            let shown = error.to_string();
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
            return;
        }
    };
    let hidden = |c: char| {
        let controls = c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        controls
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}')
    };
    assert!(!text.chars().any(hidden), "{text:?}");
    let Issuer::Authority(authority) = definition.issuer() else {
        panic!("of the site's own: {text}");
    };
    assert!(!definition.is_ca() && definition.path_len().is_none());
    let profile = definition.profile().expect("it has a name");
    assert!(profile.is_on_request(), "{profile}");
    assert_eq!(profile.issued_by(), Some(authority));
    assert_eq!(profile.to_string(), definition.name());
    let of_name = built_in().find(|(one, _)| one.name() == definition.name());
    let of_name = of_name.map(|(one, _)| one);
    for purpose in definition.purposes() {
        match of_name {
            Some(most) => assert!(most.purposes().contains(purpose)),
            None => assert!(
                !FORBIDDEN.contains(&purpose_name(*purpose).as_str()),
                "{text}"
            ),
        }
    }
    if of_name.is_some_and(|most| most.is_for_administrators()) {
        assert!(definition.is_for_administrators(), "{text}");
    }
    if authority == CaKind::Users {
        assert_eq!(definition.names().uid, Presence::Required);
    } else {
        assert!(!definition.is_for_administrators());
        assert!(!matches!(profile, Profile::User { .. }));
    }
    let mut usages = KeyAlgorithm::ALL
        .into_iter()
        .filter_map(|key| definition.key_usage(key));
    assert!(usages.clone().next().is_some());
    assert!(
        !usages
            .clone()
            .any(|usage| usage.key_cert_sign() || usage.crl_sign())
    );
    assert!(!definition.centre_makes_key() || !usages.any(|usage| usage.non_repudiation()));
}
