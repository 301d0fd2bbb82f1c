//! Random people do random steps; an oracle keeps its own books of who signed which content.

use super::*;

/// A small generator of its own: a seed names a sequence for ever (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).unwrap() % bound
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

fn rights(random: &mut Random) -> Rights {
    Rights {
        clearance: random.of(&Clearance::ALL),
        roles: BTreeSet::from([random.of(&Role::ALL)]),
        units: BTreeSet::new(),
    }
}

fn act(random: &mut Random, uids: &[String]) -> Act {
    let clearance = random.of(&Clearance::ALL);
    let subject = random.of(uids);
    let serial = "0a".to_owned();
    let urgency = random.of(&[Urgency::Regular, Urgency::Emergency]);
    let person = rights(random);
    match random.below(9) {
        0 => Act::RecoverKey {
            subject,
            serial,
            clearance,
            rights: Some(person),
        },
        1 => Act::Revoke {
            subject,
            serial,
            clearance,
            cause: RevocationReason::KeyCompromise,
            urgency,
        },
        2 => {
            let (old, mut new) = (rights(random), person);
            new.clearance = clearance;
            Act::ChangePerson { subject, old, new }
        }
        3 => Act::AddAuthority {
            name: "other".to_owned(),
            clearance,
            certificate_sha256: "00".to_owned(),
        },
        4 => Act::Invite {
            subject,
            profile: "user".to_owned(),
            clearance,
            unit: None,
            hours: 24,
            renewals: 1,
            names: Vec::new(),
            account: None,
            rights: Some(person),
            distinguished_name: None,
        },
        5 => Act::Renew {
            subject,
            serial,
            clearance,
            rights: Some(person),
        },
        6 => Act::ChangeHolder {
            subject,
            holder: HolderKind::Person,
            change: HolderStep::Resume,
            clearance,
            urgency,
            rights: Some(person),
        },
        7 => Act::Issue {
            subject,
            profile: "user".to_owned(),
            clearance,
            spki_sha256: "ab".repeat(32),
            account: None,
            rights: Some(person),
            distinguished_name: None,
            by_password: random.below(2) == 0,
        },
        // Of a device.
        _ => issue(&subject, clearance),
    }
}

/// Approvals that the site's rule asks for before the act, written down a second time.
fn needed(act: &Act) -> usize {
    let approves = |rights: &Rights, role| rights.roles.contains(&role);
    let approver = |rights: &Rights| {
        approves(rights, Role::Registrar) || approves(rights, Role::Administrator)
    };
    let (level, makes_approver) = match act {
        Act::Issue {
            clearance, rights, ..
        }
        | Act::Invite {
            clearance, rights, ..
        }
        | Act::Renew {
            clearance, rights, ..
        }
        | Act::ChangeHolder {
            clearance, rights, ..
        } => match rights {
            Some(person) => ((*clearance).max(person.clearance), approver(person)),
            None => (*clearance, false),
        },
        Act::Revoke {
            urgency: Urgency::Emergency,
            ..
        } => return 1,
        Act::Revoke { clearance, .. } => (*clearance, false),
        Act::ChangePerson { old, new, .. } => {
            let given = |role| approves(new, role) && !approves(old, role);
            let raised = new.clearance > old.clearance && approver(new);
            let given = given(Role::Registrar) || given(Role::Administrator);
            (old.clearance.max(new.clearance), given || raised)
        }
        _ => return 2,
    };
    let one_more = matches!(act, Act::Issue { by_password, .. } if *by_password);
    let by_level = if level >= Clearance::Secret || makes_approver {
        2
    } else {
        1
    };
    by_level + usize::from(one_more)
}

/// The oracle's own look at one signer of the present content.
fn entitled(staff: &Staff, act: &Act, authors: &BTreeSet<String>, uid: &str) -> bool {
    let person = staff.get(uid);
    let (role, about, level) = match act {
        Act::Issue {
            subject,
            clearance,
            rights,
            ..
        }
        | Act::Invite {
            subject,
            clearance,
            rights,
            ..
        }
        | Act::RecoverKey {
            subject,
            clearance,
            rights,
            ..
        }
        | Act::Renew {
            subject,
            clearance,
            rights,
            ..
        }
        | Act::ChangeHolder {
            subject,
            clearance,
            rights,
            ..
        } => {
            let of_person = rights.as_ref().map_or(*clearance, |has| has.clearance);
            (Role::Registrar, Some(subject), of_person.max(*clearance))
        }
        Act::Revoke { subject, .. } => (Role::Registrar, Some(subject), Clearance::Unclassified),
        Act::ChangePerson { subject, new, .. } => {
            (Role::Administrator, Some(subject), new.clearance)
        }
        Act::AddAuthority { clearance, .. } => (Role::Administrator, None, *clearance),
        other => panic!("no such act here: {other:?}"),
    };
    person.record.active
        && !person.revoked
        && person.record.roles.contains(&role)
        && person.record.clearance >= level
        && about.is_none_or(|about| about != uid)
        && !authors.contains(uid)
}

/// Runs one sequence; gives how many acts were carried out, and of what names.
fn run(seed: u64, staff: &mut Staff, names: &mut BTreeSet<&'static str>) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let uids: Vec<String> = staff.0.keys().cloned().collect();
    let requester = random.of(&uids);
    let id = RequestId(seed.to_string());
    let first = act(&mut random, &uids);
    let mut request = done(Request::draft(id, requester.clone(), None, first, "why", NOW).unwrap());
    let mut authors = BTreeSet::from([requester.clone()]);
    let mut signed: BTreeSet<String> = BTreeSet::new();
    let mut carried_out = 0;
    for _ in 0..24 {
        let by = random.of(&uids);
        // Half of the steps are the requester's, else few drafts are ever submitted.
        let owner = if random.below(2) == 0 {
            requester.clone()
        } else {
            by.clone()
        };
        let principal = staff.get(&by).principal();
        let version = request.version() - u64::from(random.below(8) == 0);
        let step = match random.below(12) {
            0 => {
                let content = act(&mut random, &uids);
                let person = staff.get(&owner).principal();
                let edited = request.edit(&owner, person.as_ref(), version, content, "edited", NOW);
                if edited.is_ok() {
                    authors.insert(owner);
                    signed.clear();
                }
                edited
            }
            1 | 2 => request.submit(&owner, version, NOW),
            3 if random.below(6) == 0 => request.withdraw(&owner, version, NOW),
            4 if random.below(3) == 0 => match &principal {
                Some(by) => request.send_back(by, version, "mend it", NOW),
                None => continue,
            },
            5 => {
                // Rights come and go.
                let person = staff.change(&by);
                match random.below(5) {
                    0 => person.record.active = false,
                    1 => person.record.active = true,
                    2 => person.record.clearance = random.of(&Clearance::ALL),
                    3 => person.revoked = random.below(3) == 0,
                    _ => {
                        person.record.roles =
                            BTreeSet::from([random.of(&Role::ALL), random.of(&Role::ALL)]);
                    }
                }
                continue;
            }
            6 => match request.authorize(&Policy::default(), staff, Clearance::Secret, NOW) {
                Ok(authorized) => {
                    let counted: Vec<&String> = signed
                        .iter()
                        .filter(|uid| entitled(staff, request.act(), &authors, uid))
                        .collect();
                    let need = needed(request.act());
                    assert!(
                        counted.len() >= need,
                        "seed {seed}: {counted:?} of {need}, {request:?}"
                    );
                    let level = request.act().granted();
                    assert!(
                        level.is_none_or(|level| level <= Clearance::Secret),
                        "seed {seed}"
                    );
                    carried_out += 1;
                    names.insert(request.act().name());
                    authorized.carry_out("0a", Actor::service("registry"), NOW)
                }
                Err(_) => continue,
            },
            _ => {
                let Some(who) = &principal else { continue };
                let person = staff.get(&by);
                let signature = person.key.sign(&request.statement().unwrap()).unwrap();
                let policy = Policy::default();
                let approved = request.approve(who, &person.certificate, signature, &policy, NOW);
                if approved.is_ok() {
                    signed.insert(by);
                }
                approved
            }
        };
        if let Ok(step) = step {
            if matches!(
                step.request.state(),
                State::Returned { .. } | State::Withdrawn
            ) {
                signed.clear();
            }
            request = done(step);
        }
    }
    carried_out
}

fn many(from: u64, count: u64) {
    let fresh = Staff::new();
    let start: Vec<(String, PersonRecord)> = fresh
        .0
        .iter()
        .map(|(uid, person)| (uid.clone(), person.record.clone()))
        .collect();
    let mut staff = fresh;
    let (mut carried_out, mut names) = (0, BTreeSet::new());
    for seed in from..from + count {
        for (uid, record) in &start {
            let person = staff.change(uid);
            (person.record, person.revoked) = (record.clone(), false);
        }
        carried_out += run(seed, &mut staff, &mut names);
    }
    eprintln!("{count} sequences, {carried_out} acts carried out");
    // What was never carried out shows nothing of its rule.
    for name in [
        "add-authority",
        "change-holder",
        "change-person",
        "invite",
        "issue",
        "renew",
        "revoke",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn random_sequences_carry_out_nothing_without_its_quorum() {
    many(0, 1000);
}

/// `FROM` and `COUNT` choose the seeds.
#[test]
#[ignore = "a million sequences"]
fn many_random_sequences_carry_out_nothing_without_their_quorum() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    many(number("FROM", 0), number("COUNT", 1_000_000));
}
