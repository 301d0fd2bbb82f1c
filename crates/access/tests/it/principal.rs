use access::{Credential, Principal, PrincipalError, Role};
use pki::clearance::Clearance;
use pki::path::SubjectKind;

use crate::support::{identity, record};

#[test]
fn the_lowest_of_certificate_directory_and_login_counts() {
    for directory in Clearance::ALL {
        let record = record(directory, &[Role::Officer], &["traffic"]);
        for certificate in Clearance::ALL {
            let identity = identity(SubjectKind::User, Some("officer-4711"), certificate);
            let ana = Principal::by_certificate(&identity, &record).unwrap();
            assert_eq!(
                ana.clearance().level(),
                certificate.level().min(directory.level())
            );
            let fingerprint = identity.fingerprint.clone();
            assert_eq!(*ana.credential(), Credential::Certificate { fingerprint });
        }
        let by_password = Principal::by_password(&record).unwrap();
        assert_eq!(by_password.clearance().level(), directory.level().min(1));
    }
}

#[test]
fn password_gives_the_role_of_an_officer_at_most() {
    for (roles, by_password) in [
        (&Role::ALL[..], &[Role::Officer][..]),
        (&[Role::Reviewer], &[Role::Officer]),
        (&[Role::Auditor, Role::Registrar, Role::Administrator], &[]),
    ] {
        let record = record(Clearance::Secret, roles, &["traffic"]);
        let ana = Principal::by_password(&record).unwrap();
        assert_eq!(ana.roles(), &by_password.iter().copied().collect());
        let identity = identity(SubjectKind::User, Some("officer-4711"), Clearance::Secret);
        let ana = Principal::by_certificate(&identity, &record).unwrap();
        assert_eq!(ana.roles(), &record.roles);
    }
}

#[test]
fn devices_strangers_and_the_disabled_are_refused() {
    let record = record(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let refused = |kind, uid, record| {
        Principal::by_certificate(&identity(kind, uid, Clearance::Secret), record)
            .unwrap_err()
            .code()
    };
    for kind in [SubjectKind::Device, SubjectKind::Service] {
        assert_eq!(refused(kind, Some("officer-4711"), &record), "not-a-person");
    }
    assert_eq!(refused(SubjectKind::User, None, &record), "no-user-id");
    assert_eq!(
        refused(SubjectKind::User, Some("officer-1"), &record),
        "other-person"
    );
    let disabled = access::PersonRecord {
        active: false,
        ..record.clone()
    };
    assert_eq!(
        refused(SubjectKind::User, Some("officer-4711"), &disabled),
        "account-disabled"
    );
    assert!(matches!(
        Principal::by_password(&disabled),
        Err(PrincipalError::Disabled(_))
    ));
}
