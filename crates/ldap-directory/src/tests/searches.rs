//! Scopes, views, limits and pages of searches.

use super::*;

#[test]
fn scopes_give_their_entries() {
    use LdapSearchScope::{Base, OneLevel, Subtree};
    let any = "(objectClass=*)";
    assert_eq!(
        names("ou=people,o=LEA-EU", Base, any, CONTACTS),
        ["ou=people,o=LEA-EU"]
    );
    let people =
        ["uid=ana-1", "uid=ben-2", "uid=eva-3"].map(|rdn| format!("{rdn},ou=people,o=LEA-EU"));
    assert_eq!(names("OU=People,O=lea-eu", OneLevel, any, CONTACTS), people);
    assert_eq!(names("o=LEA-EU", OneLevel, "(ou=*)", CONTACTS).len(), 4);
    assert_eq!(names("o=LEA-EU", OneLevel, "(ou=*)", ALL).len(), 5);
    let all = names("o=LEA-EU", Subtree, any, ALL);
    assert_eq!(all, names("", Subtree, any, ALL));
    assert_eq!(names("", OneLevel, any, ALL), ["o=LEA-EU"]);
    // Neither root DSE nor subschema are below the base.
    assert!(all.iter().all(|name| name.ends_with("o=LEA-EU")), "{all:?}");
    assert_eq!(names("", Base, any, View::default()), [""]);
    assert_eq!(
        names("cn=schema", Base, any, View::default()),
        ["cn=schema"]
    );
}

#[test]
fn entries_outside_the_view_do_not_exist() {
    use LdapSearchScope::{Base, Subtree};
    let hidden = "cn=administrator,ou=roles,o=LEA-EU";
    let search = |name: &str| started(request(name, Base, "(objectClass=*)"), Vec::new());
    assert!(search(hidden).has_base(&tree(), ALL));
    assert!(!search(hidden).has_base(&tree(), CONTACTS));
    assert!(!search("uid=nobody,ou=people,o=LEA-EU").has_base(&tree(), ALL));
    assert!(!search("o=LEA-EU").has_base(&tree(), View::default()));
    assert!(names("o=LEA-EU", Subtree, "(objectClass=*)", View::default()).is_empty());
    let visible = names("o=LEA-EU", Subtree, "(cn=*)", CONTACTS);
    assert!(
        !visible.iter().any(|name| name.contains("ou=roles")),
        "{visible:?}"
    );
}

#[test]
fn result_has_what_is_asked_for_of_what_may_be_seen() {
    let attributes = |attrs: &[&str], view| {
        let mut request = request(
            "uid=ben-2,ou=people,o=LEA-EU",
            LdapSearchScope::Base,
            "(objectClass=*)",
        );
        request.attrs = attrs.iter().map(|name| (*name).to_owned()).collect();
        let mut search = started(request, Vec::new());
        let tree = tree();
        let Batch::Last(entries, _) = search.next(&tree, view, 9) else {
            panic!("more than one");
        };
        let late = Fetched {
            user_certificates: vec![vec![0x30]],
            ..Fetched::default()
        };
        let result = search.result(entries[0], view, &late);
        result
            .attributes
            .into_iter()
            .map(|one| one.atype)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        attributes(&["MAIL", "cordonClearance", "x"], CONTACTS),
        ["mail"]
    );
    assert_eq!(
        attributes(&["mail", "cordonClearance"], ALL),
        ["mail", "cordonClearance"]
    );
    assert_eq!(
        attributes(&["userCertificate"], CONTACTS),
        ["userCertificate;binary"]
    );
    assert_eq!(
        attributes(&["userCertificate;binary", "1.1"], CONTACTS),
        ["userCertificate;binary"]
    );
    assert!(attributes(&["1.1"], ALL).is_empty());
    let user = attributes(&[], CONTACTS);
    assert!(
        user.contains(&"memberOf".to_owned()) && !user.contains(&"entryUUID".to_owned()),
        "{user:?}"
    );
    let operational = attributes(&["+"], CONTACTS);
    assert!(
        operational.contains(&"entryUUID".to_owned()) && !operational.contains(&"cn".to_owned())
    );
    for view in [CONTACTS, ALL] {
        let all = attributes(&["*", "+"], view);
        assert_eq!(
            all.contains(&"cordonRole".to_owned()),
            view.rights,
            "{all:?}"
        );
    }
}

fn large() -> Tree {
    let members = (0..MAX_ENTRIES + 5).map(|n| member(&format!("p{n:05}"), "P Q", 1, &[], &[]));
    Tree::new(&content(members.collect()))
}

#[test]
fn size_limits_of_both_sides_end_a_search() {
    let tree = large();
    let limited = |sizelimit| {
        let mut request = request("o=LEA-EU", LdapSearchScope::Subtree, "(uid=p*)");
        request.sizelimit = sizelimit;
        let (names, code, _) = run(&mut started(request, Vec::new()), &tree, ALL);
        (names.len(), code)
    };
    assert_eq!(limited(0), (MAX_ENTRIES, LdapResultCode::SizeLimitExceeded));
    assert_eq!(
        limited(i32::MAX),
        (MAX_ENTRIES, LdapResultCode::SizeLimitExceeded)
    );
    assert_eq!(limited(10), (10, LdapResultCode::SizeLimitExceeded));
    let mut one = request("o=LEA-EU", LdapSearchScope::Subtree, "(uid=p00003)");
    one.sizelimit = 1;
    let (found, code, _) = run(&mut started(one, Vec::new()), &tree, ALL);
    assert_eq!((found.len(), code), (1, LdapResultCode::Success));
}

#[test]
fn pages_give_every_entry_once() {
    let tree = large();
    for (size, pages) in [
        (400, 3),
        (335, 3),
        (MAX_ENTRIES, 2),
        (MAX_ENTRIES + 5, 2),
        (1, MAX_ENTRIES + 5),
    ] {
        let (mut seen, mut cookie, mut count) = (BTreeSet::new(), Vec::new(), 0);
        loop {
            let request = request("ou=people,o=LEA-EU", LdapSearchScope::OneLevel, "(uid=*)");
            let size = i64::try_from(size).unwrap();
            let (names, code, next) = run(&mut started(request, paged(size, cookie)), &tree, ALL);
            assert_eq!(code, LdapResultCode::Success);
            count += 1;
            for name in names {
                assert!(seen.insert(name));
            }
            if next.is_empty() {
                break;
            }
            cookie = next;
        }
        assert_eq!(seen.len(), MAX_ENTRIES + 5, "pages of {size}");
        // A page that is full to the last entry is followed by an empty one.
        assert!(
            count == pages || count == pages + 1,
            "{count} pages of {size}"
        );
    }
}

#[test]
fn wrong_pages_are_refused() {
    let refused = |size, cookie: &[u8]| {
        let request = request("o=LEA-EU", LdapSearchScope::Subtree, "(uid=*)");
        let op = LdapOp::SearchRequest(request);
        answer(&mut Session::default(), op, paged(size, cookie.to_vec())).0
    };
    assert_eq!(refused(5, &[0xff]), LdapResultCode::UnwillingToPerform);
    assert_eq!(
        refused(5, &[b'a'; 5000]),
        LdapResultCode::UnwillingToPerform
    );
    // A cookie that a client invents shows it nothing that it may not see.
    let request = request("o=LEA-EU", LdapSearchScope::Subtree, "(cn=*)");
    let cookie = b"o=lea-eu\0ou=roles".to_vec();
    let (names, ..) = run(&mut started(request, paged(5, cookie)), &tree(), CONTACTS);
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn units_that_differ_in_case_are_one_group() {
    let members = [
        ("ana-1", "Traffic"),
        ("ben-2", "traffic"),
        ("eva-3", "K9, A=B"),
    ];
    let members = members.map(|(uid, unit)| member(uid, "A B", 1, &[], &[unit]));
    let tree = Tree::new(&content(members.to_vec()));
    let found = |filter: LdapFilter| {
        let mut request = request("o=LEA-EU", LdapSearchScope::Subtree, "(cn=*)");
        request.filter = filter;
        run(&mut started(request, Vec::new()), &tree, CONTACTS).0
    };
    let people = found(LdapFilter::Equality(
        "memberOf".to_owned(),
        "cn=traffic,ou=groups,o=LEA-EU".to_owned(),
    ));
    assert_eq!(people.len(), 2);
    let groups = found(LdapFilter::Equality(
        "member".to_owned(),
        "uid=ben-2,ou=people,o=LEA-EU".to_owned(),
    ));
    assert_eq!(groups, ["cn=Traffic,ou=groups,o=LEA-EU"]);
    // A name with the signs of names is escaped where it is part of one.
    let units = found(LdapFilter::Equality("ou".to_owned(), "k9, a=b".to_owned()));
    assert_eq!(
        units,
        [
            "uid=eva-3,ou=people,o=LEA-EU",
            "ou=K9\\, A\\=B,ou=units,o=LEA-EU"
        ]
    );
}
