//! Time of one access decision, request building included.

use access::{Action, Context, PersonRecord, PolicyDecisionPoint as _, Principal, Resource, Role};
use access_cedar::CedarRules;
use criterion::{Criterion, criterion_group, criterion_main};
use pki::clearance::Clearance;

fn decide(c: &mut Criterion) {
    let record = PersonRecord {
        uid: "officer-4711".into(),
        name: "Example Officer".into(),
        organisation: "LEA-EU".into(),
        clearance: Clearance::Secret,
        roles: [Role::Officer, Role::Reviewer].into(),
        units: ["traffic".to_owned()].into(),
        active: true,
    };
    let who = Principal::by_password(&record).expect("the record is active");
    let engine = CedarRules::shipped().expect("the shipped rules load");
    let seen = Resource::violation("v-1", "traffic", Clearance::Restricted);
    let unseen = Resource::violation("v-2", "traffic", Clearance::Secret);
    let context = Context::default();
    for (name, resource) in [("permit", &seen), ("refuse", &unseen)] {
        c.bench_function(name, |b| {
            b.iter(|| engine.decide(&who, Action::EvidenceView, resource, &context));
        });
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);
