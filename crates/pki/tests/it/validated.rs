//! Paths that were validated before: what is asked again of them, and what is not.

use pki::crl::RevocationReason;
use pki::oid::ExtensionArc;
use pki::path::{PathError, Purpose};
use pki::profile::Profile;
use pki::status::{IssuerId, Revocation};
use rustls_pki_types::CertificateDer;
use time::Duration;

use crate::fixture::{NOW, World};

const USER: Profile = Profile::User {
    administrator: false,
};

#[test]
fn revoked_leaf_and_revoked_authority_are_refused_from_then_on() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    for revoked in [chain.leaf(), world.users.certificate()] {
        let trust = world.trust();
        let tbs = &revoked.tbs_certificate;
        let validated = trust
            .validate_chain(chain.ders(), Purpose::ClientUser, NOW)
            .unwrap();
        let at = NOW + Duration::MINUTE;
        let revocation = Revocation {
            at,
            reason: RevocationReason::KeyCompromise,
        };
        trust
            .status()
            .revoke(
                IssuerId::of(&tbs.issuer),
                tbs.serial_number.as_bytes(),
                revocation,
            )
            .unwrap();
        let before = at - Duration::SECOND;
        trust
            .validate(chain.ders(), Purpose::ClientUser, before)
            .unwrap();
        trust.recheck(&validated, before).unwrap();
        for outcome in [
            trust
                .validate(chain.ders(), Purpose::ClientUser, at)
                .map(|_| ()),
            trust.recheck(&validated, at),
        ] {
            assert!(matches!(
                outcome,
                Err(PathError::Revoked { at: when, reason: RevocationReason::KeyCompromise, .. })
                    if when == at
            ));
        }
        trust
            .validate_ignoring_revocation(chain.ders(), Purpose::ClientUser, at)
            .unwrap();
    }
}

#[test]
fn a_path_that_was_validated_before_is_refused_as_if_it_were_new() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    let validated = |purpose, now| trust.validate_chain(chain.ders(), purpose, now);
    let first = validated(Purpose::ClientUser, NOW).unwrap();
    let again = validated(Purpose::ClientUser, NOW + Duration::MINUTE).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &again), "validated once");
    assert!(matches!(
        validated(Purpose::ClientDevice, NOW),
        Err(PathError::WrongKind { .. } | PathError::WrongPurpose { .. })
    ));
    assert!(matches!(
        validated(Purpose::ClientUser, NOW + Duration::days(3660)),
        Err(PathError::Expired { .. })
    ));
    assert!(matches!(
        validated(Purpose::ClientUser, NOW - Duration::days(3660)),
        Err(PathError::NotYetValid { .. })
    ));
    // One bit of the signature makes it another certificate.
    let mut forged = chain.ders()[0].to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let forged = [forged.into()];
    assert!(matches!(
        trust.validate_chain(&forged, Purpose::ClientUser, NOW),
        Err(PathError::BadSignature { .. })
    ));
    let long = vec![chain.ders()[0].clone(); 100];
    assert!(matches!(
        trust.validate_chain(&long, Purpose::ClientUser, NOW),
        Err(PathError::ChainTooLong { .. })
    ));
}

#[test]
fn a_chain_with_what_is_not_of_its_path_is_validated_anew_each_time() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    let validated = |chain: &[_]| {
        let twice = [(); 2].map(|()| {
            trust
                .validate_chain(chain, Purpose::ClientUser, NOW)
                .unwrap()
        });
        std::sync::Arc::ptr_eq(&twice[0], &twice[1])
    };
    assert!(validated(chain.ders()));
    let leaf = chain.ders()[0].clone();
    let issuer: CertificateDer<'_> = world.users.certificate_der().into();
    assert!(validated(std::slice::from_ref(&leaf)));
    assert!(validated(&[leaf.clone(), issuer.clone()]));
    // The same certificate with as many others as somebody likes would fill the places of all.
    assert!(!validated(&[leaf.clone(), issuer.clone(), issuer]));
    assert!(!validated(&[leaf.clone(), leaf.clone()]));
    assert!(!validated(&[leaf, b"no certificate".to_vec().into()]));
}

#[test]
fn what_was_read_under_another_arc_is_read_anew() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    trust
        .validate(chain.ders(), Purpose::ClientUser, NOW)
        .unwrap();
    let elsewhere = ExtensionArc::under("1.3.6.1.4.1.32473.9".parse().unwrap()).unwrap();
    let refused = trust
        .with_arc(elsewhere)
        .validate(chain.ders(), Purpose::ClientUser, NOW);
    assert!(
        matches!(refused, Err(PathError::NoKind { .. })),
        "{refused:?}"
    );
}

#[test]
fn recheck_notices_the_end_of_the_period() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    let validated = trust
        .validate_chain(chain.ders(), Purpose::ClientUser, NOW)
        .unwrap();
    assert!(matches!(
        trust.recheck(&validated, NOW + Duration::days(366)),
        Err(PathError::Expired { .. })
    ));
    assert!(matches!(
        trust.recheck(&validated, NOW - Duration::DAY),
        Err(PathError::NotYetValid { .. })
    ));
}
