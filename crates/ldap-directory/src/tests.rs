//! A small site, and sessions with it.

mod searches;
mod sessions;

use std::collections::BTreeSet;

use bytes::BytesMut;
use ldap3_proto::LdapCodec;
use ldap3_proto::control::LdapControl;
use ldap3_proto::proto::*;
use tokio_util::codec::{Decoder as _, Encoder as _};

use crate::search::MAX_ENTRIES;
use crate::*;

pub(crate) const ALL: View = View {
    contacts: true,
    rights: true,
};
pub(crate) const CONTACTS: View = View {
    contacts: true,
    rights: false,
};

fn member(uid: &str, name: &str, clearance: u8, roles: &[&str], units: &[&str]) -> Member {
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let (given_name, surname) = name.split_once(' ').unwrap_or(("", ""));
    Member {
        uid: uid.to_owned(),
        name: name.to_owned(),
        given_name: given_name.to_owned(),
        surname: surname.to_owned(),
        mail: format!("{uid}@example.org"),
        organisation: "LEA-EU".to_owned(),
        clearance,
        roles: set(roles),
        units: set(units),
    }
}

fn content(members: Vec<Member>) -> Content {
    Content {
        base: Name::parse("o=LEA-EU").unwrap(),
        organisation: "LEA-EU".to_owned(),
        namespace: "example.org/log".to_owned(),
        members,
        authorities: vec![Authority {
            name: "users".to_owned(),
        }],
    }
}

pub(crate) fn tree() -> Tree {
    Tree::new(&content(vec![
        member("ana-1", "Ana Schmidt", 1, &["officer"], &["traffic"]),
        member(
            "ben-2",
            "Ben Nowak",
            2,
            &["reviewer"],
            &["traffic", "forensics"],
        ),
        member("eva-3", "Eva", 3, &["administrator"], &[]),
    ]))
}

fn encode(id: i32, op: LdapOp, ctrl: Vec<LdapControl>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let message = LdapMsg {
        msgid: id,
        op,
        ctrl,
    };
    LdapCodec::default().encode(message, &mut bytes).unwrap();
    bytes.to_vec()
}

fn decode(bytes: &[u8]) -> LdapMsg {
    LdapCodec::default()
        .decode(&mut BytesMut::from(bytes))
        .unwrap()
        .unwrap()
}

/// Result code and message of the one answer that a message gets.
fn answer(
    session: &mut Session<()>,
    op: LdapOp,
    ctrl: Vec<LdapControl>,
) -> (LdapResultCode, String) {
    match session.receive(&encode(7, op, ctrl)) {
        Step::Answer(bytes) => {
            let message = decode(&bytes);
            assert_eq!(message.msgid, 7);
            let result = match message.op {
                LdapOp::BindResponse(response) => response.res,
                LdapOp::ExtendedResponse(response) => response.res,
                LdapOp::SearchResultDone(result)
                | LdapOp::ModifyResponse(result)
                | LdapOp::AddResponse(result)
                | LdapOp::DelResponse(result)
                | LdapOp::ModifyDNResponse(result)
                | LdapOp::CompareResult(result) => result,
                other => panic!("{other:?}"),
            };
            (result.code, result.message)
        }
        other => panic!("{other:?}"),
    }
}

fn bind(dn: &str, cred: LdapBindCred) -> LdapOp {
    LdapOp::BindRequest(LdapBindRequest {
        version: 3,
        dn: dn.to_owned(),
        cred,
    })
}

fn simple(dn: &str, password: &str) -> LdapOp {
    bind(dn, LdapBindCred::Simple(password.to_owned()))
}

fn sasl(mechanism: &str, credentials: &[u8]) -> LdapOp {
    bind(
        "",
        LdapBindCred::SASL(SaslCredentials {
            mechanism: mechanism.to_owned(),
            credentials: credentials.to_vec(),
        }),
    )
}

fn request(base: &str, scope: LdapSearchScope, filter: &str) -> LdapSearchRequest {
    LdapSearchRequest {
        base: base.to_owned(),
        scope,
        aliases: LdapDerefAliases::Never,
        sizelimit: 0,
        timelimit: 0,
        typesonly: false,
        filter: ldap3_proto::parse_ldap_filter_str(filter).unwrap(),
        attrs: Vec::new(),
    }
}

fn started(request: LdapSearchRequest, ctrl: Vec<LdapControl>) -> Box<Search> {
    let mut session = Session::<()>::default();
    match session.receive(&encode(7, LdapOp::SearchRequest(request), ctrl)) {
        Step::Search(search) => search,
        other => panic!("{other:?}"),
    }
}

/// Names that a search gives, how it ends, and the cookie of the next page.
fn run(search: &mut Search, tree: &Tree, view: View) -> (Vec<String>, LdapResultCode, Vec<u8>) {
    let mut names = Vec::new();
    loop {
        // Few at once, so that a search is continued.
        let (entries, end) = match search.next(tree, view, 3) {
            Batch::More(entries) => (entries, None),
            Batch::Last(entries, code) => (entries, Some(code)),
        };
        names.extend(entries.iter().map(|entry| entry.dn().to_owned()));
        if let Some(code) = end {
            return (names, code, search.cookie());
        }
    }
}

fn names(base: &str, scope: LdapSearchScope, filter: &str, view: View) -> Vec<String> {
    let mut search = started(request(base, scope, filter), Vec::new());
    let (names, code, _) = run(&mut search, &tree(), view);
    assert_eq!(code, LdapResultCode::Success);
    names
}

fn paged(size: i64, cookie: Vec<u8>) -> Vec<LdapControl> {
    vec![LdapControl::SimplePagedResults { size, cookie }]
}
