//! Messages of an LDAP client: nothing panics, each answer is a whole message, and nothing leaves that the asker may not see.

use std::sync::LazyLock;

use ldap_directory::{
    Authority, Batch, Bound, Content, Fetched, Framing, Member, Name, Session, Step, Tree, View,
    frame_length,
};

const CONTACTS: View = View {
    contacts: true,
    rights: false,
};
const CSN: &str = "20261128120000.000000Z#000000#000#000000";
/// A role that only one person has; it is part of no other value.
const SECRET: &str = "kingmaker";

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let member = |n: u8| Member {
        uid: format!("p-{n}"),
        name: format!("Person {n}"),
        given_name: String::new(),
        surname: String::new(),
        mail: format!("p-{n}@example.org"),
        organisation: "LEA-EU".to_owned(),
        clearance: n % 5,
        roles: (n == 3).then(|| SECRET.to_owned()).into_iter().collect(),
        units: ["traffic".to_owned()].into(),
    };
    Tree::new(&Content {
        base: Name::parse("o=LEA-EU").unwrap(),
        organisation: "LEA-EU".to_owned(),
        namespace: "fuzz".to_owned(),
        members: (0..8).map(member).collect(),
        authorities: vec![Authority {
            name: "users".to_owned(),
        }],
    })
});

/// Runs a connection of a person who is bound and may see contact data.
pub fn run(input: &[u8]) {
    let mut session = Session::default();
    session.accept(Bound {
        dn: "uid=p-1,ou=people,o=LEA-EU".to_owned(),
        identity: (),
    });
    let mut rest = input;
    while let Framing::Complete(length) = frame_length(rest) {
        let (message, after) = rest.split_at(length);
        rest = after;
        let answers = match session.receive(message) {
            Step::Nothing => continue,
            Step::Answer(answer) => vec![answer],
            Step::End(notice) => {
                assert!(notice.is_empty() || is_message(&notice));
                return;
            }
            Step::Bind(_) => vec![session.accept(Bound {
                dn: "uid=p-1,ou=people,o=LEA-EU".to_owned(),
                identity: (),
            })],
            Step::Compare(compare) => vec![session.compared(&compare, &TREE, CONTACTS)],
            Step::WhoAmI => vec![session.who_am_i()],
            Step::Search(mut search) => {
                let mut answers = Vec::new();
                loop {
                    let (entries, end) = match search.next(&TREE, CONTACTS, 3) {
                        Batch::More(entries) => (entries, None),
                        Batch::Last(entries, code) => (entries, Some(code)),
                    };
                    for entry in entries {
                        let late = Fetched::default();
                        answers.push(match search.is_synchronising() {
                            true => session.synchronised(&search, entry, CONTACTS, &late, CSN),
                            false => session.found(&search, entry, CONTACTS, &late),
                        });
                    }
                    if let Some(code) = end {
                        answers.push(match search.is_synchronising() {
                            true => session.refreshed(&search, CSN),
                            false => session.done(&search, code, ""),
                        });
                        break;
                    }
                }
                answers
            }
        };
        for answer in &answers {
            assert!(is_message(answer), "{answer:02x?}");
            let secret = answer
                .windows(SECRET.len())
                .any(|text| text == SECRET.as_bytes());
            // A cookie or a message may repeat what the client itself sent.
            let sent = input
                .windows(SECRET.len())
                .any(|text| text == SECRET.as_bytes());
            assert!(!secret || sent);
        }
    }
}

/// The schema is longer than what a client may send.
fn is_message(answer: &[u8]) -> bool {
    answer.len() > ldap_directory::MAX_MESSAGE
        || frame_length(answer) == Framing::Complete(answer.len())
}
