//! Binds, writes, controls, comparisons, and hostile messages.

use super::*;

#[test]
fn binds_lead_to_their_proofs() {
    let mut session = Session::<()>::default();
    let dn = "uid=ana-1,ou=people,o=LEA-EU";
    match session.receive(&encode(7, simple(dn, "a password"), Vec::new())) {
        Step::Bind(Proof::Password { name, password }) => {
            assert_eq!(
                (name.text().as_str(), password.as_str()),
                (dn, "a password")
            );
        }
        other => panic!("{other:?}"),
    }
    let step = session.receive(&encode(7, sasl("EXTERNAL", b""), Vec::new()));
    assert!(
        matches!(
            step,
            Step::Bind(Proof::Certificate {
                authorization: None
            })
        ),
        "{step:?}"
    );
    let step = session.receive(&encode(7, sasl("EXTERNAL", b"u:x"), Vec::new()));
    assert!(
        matches!(
            step,
            Step::Bind(Proof::Certificate {
                authorization: Some(_)
            })
        ),
        "{step:?}"
    );
    assert_eq!(
        answer(&mut session, simple("", ""), Vec::new()).0,
        LdapResultCode::Success
    );
    assert!(
        !format!(
            "{:?}",
            Step::Bind(Proof::Password {
                name: Name::default(),
                password: "secret".to_owned().into()
            })
        )
        .contains("secret")
    );
}

#[test]
fn unprovable_binds_are_refused() {
    let dn = "uid=ana-1,ou=people,o=LEA-EU";
    let old = LdapOp::BindRequest(LdapBindRequest {
        version: 2,
        dn: dn.to_owned(),
        cred: LdapBindCred::Simple("x".to_owned()),
    });
    let cases = [
        // RFC 4513, section 5.1.2.
        (simple(dn, ""), LdapResultCode::UnwillingToPerform),
        (simple("", "password"), LdapResultCode::InvalidCredentials),
        (simple("ana-1", "password"), LdapResultCode::InvalidDNSyntax),
        (
            simple("uid=ana-1,", "password"),
            LdapResultCode::InvalidDNSyntax,
        ),
        (
            sasl("PLAIN", b"\0ana-1\0password"),
            LdapResultCode::AuthMethodNotSupported,
        ),
        (sasl("", b""), LdapResultCode::AuthMethodNotSupported),
        (
            sasl("EXTERNAL", &[0xff]),
            LdapResultCode::InvalidCredentials,
        ),
        (old, LdapResultCode::ProtocolError),
    ];
    for (op, code) in cases {
        let shown = format!("{op:?}");
        let mut session = Session::default();
        session.accept(Bound {
            dn: dn.to_owned(),
            identity: (),
        });
        assert_eq!(answer(&mut session, op, Vec::new()).0, code, "{shown}");
        // A bind that fails leaves the connection anonymous (RFC 4511, section 4.2.1).
        assert_eq!(session.bound(), None, "{shown}");
    }
}

#[test]
fn people_are_found_by_the_name_of_a_bind() {
    let tree = tree();
    let name = |text: &str| Name::parse(text).unwrap();
    assert_eq!(
        tree.uid_of(&name("UID=ANA-1,ou=people,o=LEA-EU")),
        Some("ana-1")
    );
    for text in [
        "uid=ana-1,o=LEA-EU",
        "cn=Ana Schmidt,ou=people,o=LEA-EU",
        "uid=ana-1,ou=people,o=LEA-EU,o=x",
        "uid=ana-1\\,ou\\=people\\,o\\=LEA-EU",
        "cn=traffic,ou=groups,o=LEA-EU",
    ] {
        assert_eq!(tree.uid_of(&name(text)), None, "{text}");
        assert!(!tree.is_for_people(&name(text)), "{text}");
    }
    assert!(tree.is_for_people(&name("uid=nobody,ou=people,o=LEA-EU")));
}

#[test]
fn user_ids_that_differ_in_case_have_one_entry() {
    let members = ["Ana", "ana"].map(|uid| member(uid, "A B", 1, &[], &[]));
    let tree = Tree::new(&content(members.to_vec()));
    assert_eq!(tree.hidden(), ["ana"]);
}

#[test]
fn every_write_is_unwilling_and_names_the_way() {
    let attributes = Vec::new;
    let writes = [
        LdapOp::AddRequest(LdapAddRequest {
            dn: "o=x".into(),
            attributes: attributes(),
        }),
        LdapOp::ModifyRequest(LdapModifyRequest {
            dn: "o=x".into(),
            changes: Vec::new(),
        }),
        LdapOp::DelRequest("o=x".into()),
        LdapOp::ModifyDNRequest(LdapModifyDNRequest {
            dn: "o=x".into(),
            newrdn: "o=y".into(),
            deleteoldrdn: true,
            new_superior: None,
        }),
        LdapOp::ExtendedRequest(LdapExtendedRequest {
            name: OID_PASSWORD_MODIFY.into(),
            value: None,
        }),
    ];
    for write in writes {
        let (code, message) = answer(&mut Session::default(), write, Vec::new());
        assert_eq!(code, LdapResultCode::UnwillingToPerform);
        assert!(message.contains("cordon directory"), "{message}");
    }
    let extended = |name: &str| {
        let request = LdapExtendedRequest {
            name: name.into(),
            value: None,
        };
        answer(
            &mut Session::default(),
            LdapOp::ExtendedRequest(request),
            Vec::new(),
        )
        .0
    };
    assert_eq!(
        extended("1.3.6.1.4.1.1466.20037"),
        LdapResultCode::OperationsError
    );
    assert_eq!(extended("1.2.3"), LdapResultCode::ProtocolError);
}

#[test]
fn unknown_controls_count_only_if_they_are_critical() {
    let control = |criticality| {
        vec![LdapControl::Unknown {
            oid: "1.2.3.4".to_owned(),
            criticality,
            value: None,
        }]
    };
    let search = || LdapOp::SearchRequest(request("o=LEA-EU", LdapSearchScope::Base, "(cn=*)"));
    let mut session = Session::default();
    let (code, message) = answer(&mut session, search(), control(true));
    assert_eq!(code, LdapResultCode::UnavailableCriticalExtension);
    assert!(message.contains("1.2.3.4"), "{message}");
    let step = session.receive(&encode(7, search(), control(false)));
    assert!(matches!(step, Step::Search(_)), "{step:?}");
    let manage = |criticality| vec![LdapControl::ManageDsaIT { criticality }];
    let step = session.receive(&encode(7, search(), manage(true)));
    assert!(matches!(step, Step::Search(_)), "{step:?}");
    let (code, _) = answer(&mut session, simple("", ""), manage(true));
    assert_eq!(code, LdapResultCode::UnavailableCriticalExtension);
    let (code, _) = answer(
        &mut session,
        LdapOp::DelRequest("o=x".into()),
        control(true),
    );
    assert_eq!(code, LdapResultCode::UnavailableCriticalExtension);
}

#[test]
fn comparison_tells_only_what_may_be_seen() {
    let compared = |dn: &str, name: &str, value: &str, view| {
        let mut session = Session::<()>::default();
        let request = LdapCompareRequest {
            dn: dn.into(),
            atype: name.into(),
            val: value.into(),
        };
        match session.receive(&encode(7, LdapOp::CompareRequest(request), Vec::new())) {
            Step::Compare(compare) => match decode(&session.compared(&compare, &tree(), view)).op {
                LdapOp::CompareResult(result) => result.code,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let eva = "uid=eva-3,ou=people,o=LEA-EU";
    assert_eq!(
        compared(eva, "mail", "EVA-3@example.org", CONTACTS),
        LdapResultCode::CompareTrue
    );
    assert_eq!(
        compared(eva, "mail", "x@example.org", CONTACTS),
        LdapResultCode::CompareFalse
    );
    assert_eq!(
        compared(eva, "cordonClearance", "3", ALL),
        LdapResultCode::CompareTrue
    );
    for (name, value) in [
        ("cordonClearance", "3"),
        ("cordonRole", "administrator"),
        ("userPassword", "x"),
    ] {
        assert_eq!(
            compared(eva, name, value, CONTACTS),
            LdapResultCode::NoSuchAttribute
        );
    }
    assert_eq!(
        compared(eva, "mail", "x", View::default()),
        LdapResultCode::NoSuchObject
    );
    let hidden = "cn=administrator,ou=roles,o=LEA-EU";
    assert_eq!(
        compared(hidden, "cn", "administrator", CONTACTS),
        LdapResultCode::NoSuchObject
    );
    assert_eq!(
        compared("uid=nobody,ou=people,o=LEA-EU", "cn", "x", ALL),
        LdapResultCode::NoSuchObject
    );
}

#[test]
fn who_am_i_names_the_bound_person() {
    let who = |session: &Session<()>| match decode(&session.who_am_i()).op {
        LdapOp::ExtendedResponse(response) => String::from_utf8(response.value.unwrap()).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut session = Session::default();
    let request = LdapExtendedRequest {
        name: OID_WHOAMI.into(),
        value: None,
    };
    let step = session.receive(&encode(7, LdapOp::ExtendedRequest(request), Vec::new()));
    assert!(matches!(step, Step::WhoAmI));
    assert_eq!(who(&session), "");
    session.accept(Bound {
        dn: "uid=a".to_owned(),
        identity: (),
    });
    assert_eq!(who(&session), "dn:uid=a");
    let notice = decode(&session.lost());
    assert_eq!((notice.msgid, session.bound()), (0, None));
}

#[test]
fn deep_and_large_filters_are_refused_with_an_answer() {
    let search = |filter| {
        let mut request = request("o=LEA-EU", LdapSearchScope::Subtree, "(cn=*)");
        request.filter = filter;
        answer(
            &mut Session::default(),
            LdapOp::SearchRequest(request),
            Vec::new(),
        )
        .0
    };
    let nested = |levels| {
        (0..levels).fold(LdapFilter::Present("cn".to_owned()), |filter, _| {
            LdapFilter::Not(Box::new(filter))
        })
    };
    assert_eq!(search(nested(40)), LdapResultCode::AdminLimitExceeded);
    assert_eq!(search(nested(200)), LdapResultCode::ProtocolError);
    assert_eq!(
        search(LdapFilter::Or(vec![nested(0); 300])),
        LdapResultCode::AdminLimitExceeded
    );
    // 10 000 levels take 40 KB, which is longer than any message.
    assert_eq!(frame_length(&[0x30, 0x82, 0x9c, 0x40]), Framing::Refused);
    match decode(&not_a_message()).op {
        LdapOp::ExtendedResponse(notice) => {
            assert_eq!(notice.res.code, LdapResultCode::ProtocolError)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn abandoned_requests_need_no_answer_until_there_are_too_many() {
    let mut session = Session::<()>::default();
    let abandon = encode(9, LdapOp::AbandonRequest(7), Vec::new());
    for _ in 0..16 {
        assert!(matches!(session.receive(&abandon), Step::Nothing));
    }
    let step = session.receive(&abandon);
    assert!(matches!(step, Step::End(_)), "{step:?}");
    let mut session = Session::<()>::default();
    // A client may abandon each of its requests.
    for _ in 0..1000 {
        answer(&mut session, simple("", ""), Vec::new());
        assert!(matches!(session.receive(&abandon), Step::Nothing));
    }
}

#[test]
fn garbage_ends_the_connection() {
    let mut session = Session::<()>::default();
    for bytes in [
        &b"\x30\x05\x02\x01\x01\x61\x00"[..],
        b"\x30\x00",
        b"\x30\x03\x02\x01\x01",
    ] {
        let step = session.receive(bytes);
        assert!(matches!(step, Step::End(_)), "{bytes:02x?}: {step:?}");
    }
    let zero = encode(0, simple("", ""), Vec::new());
    assert!(matches!(session.receive(&zero), Step::End(_)));
    let unbind = encode(3, LdapOp::UnbindRequest, Vec::new());
    assert!(matches!(session.receive(&unbind), Step::End(bytes) if bytes.is_empty()));
    // A request that cannot be decoded has an id, and gets an answer.
    match session.receive(&[0x30, 7, 2, 1, 9, 0x63, 2, 4, 0]) {
        Step::Answer(bytes) => assert_eq!(decode(&bytes).msgid, 9),
        other => panic!("{other:?}"),
    }
}
