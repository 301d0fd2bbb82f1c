//! The custody record: that it is about this violation, and that nothing is left out.

use time::OffsetDateTime;

use super::error::CheckError;
use super::log::{Event, Log};
use crate::digest::Sha256Digest;
use crate::package::{EPOCH, PackageFile};
use crate::receipt::Receipt;

/// Role of the log in which the centre records.
const ROLE: &str = "centre";
const COUNT: &str = "custody_count";
const PREVIOUS: &str = "custody_previous";
const EARLIER: &str = "custody_earlier_sha256";

/// Facts that the record fixes for the other checks.
pub(super) struct Custody {
    /// When the event of receipt was logged.
    pub(super) logged_at: OffsetDateTime,
    /// When the export was logged.
    pub(super) exported_at: OffsetDateTime,
    /// Epoch of the camera's chain.
    pub(super) epoch: u64,
}

pub(super) fn check(
    log: &Log,
    package: &PackageFile,
    receipt: &Receipt,
) -> Result<Custody, CheckError> {
    let none = CheckError::Missing("events".to_owned());
    let (Some(first), Some(last)) = (log.events.first(), log.events.last()) else {
        return Err(none);
    };
    let block = receipt.block_sha256.to_string();
    let violation = format!("v-{}", block.get(..16).unwrap_or_default());
    if package.violation != violation {
        return Err(CheckError::Mismatch("violation of package.json"));
    }
    if log.events.iter().any(|e| e.leaf.role != ROLE) {
        return Err(CheckError::Mismatch("role of a custody event"));
    }
    check_receipt(first, package, receipt)?;
    let epoch = epoch(log, first, receipt)?;
    check_chain(log, &violation)?;
    let event = &last.leaf.event;
    let exported = event.action == "evidence.export"
        && (event.outcome == "permit" || event.outcome == "ok")
        && last.index == package.export_index;
    if !exported {
        return Err(CheckError::Custody {
            index: last.index,
            problem: "the newest event is not the export of this package",
        });
    }
    Ok(Custody {
        logged_at: first.leaf.event.at,
        exported_at: event.at,
        epoch,
    })
}

/// The epoch of the camera's chain: 0, or one that two people began before the block came.
fn epoch(log: &Log, first: &Event, receipt: &Receipt) -> Result<u64, CheckError> {
    let (epoch, begun) = match (number(first, "epoch"), &log.epoch) {
        (None, None) => return Ok(0),
        (Some(_), None) => return Err(CheckError::Missing(EPOCH.to_owned())),
        (None, Some(_)) => return Err(CheckError::Unexpected(EPOCH.to_owned())),
        (Some(epoch), Some(begun)) => (epoch, begun),
    };
    let event = &begun.leaf.event;
    let proposed_by = text(event, "proposed_by");
    let holds = begun.index < first.index
        && begun.leaf.role == ROLE
        && event.action == "chain.begin-epoch"
        && event.outcome == "permit"
        && event.resource == format!("chain/{}", receipt.device)
        && number(begun, "epoch") == Some(epoch)
        && event.actor.kind == "user"
        && proposed_by.is_some_and(|uid| uid != event.actor.id);
    match holds {
        true => Ok(epoch),
        false => Err(CheckError::Custody {
            index: begun.index,
            problem: "does not begin the epoch of the camera's chain",
        }),
    }
}

/// The first event is the one that the receipt names, and says the same.
fn check_receipt(
    first: &Event,
    package: &PackageFile,
    receipt: &Receipt,
) -> Result<(), CheckError> {
    let event = &first.leaf.event;
    let manifest = receipt.manifest_sha256.map(|hash| hash.to_string());
    let same = first.index == receipt.log_index
        && first.index == package.receipt_index
        && event.action == "evidence.receive"
        && event.outcome == "ok"
        && event.actor.kind == "device"
        && event.actor.id == receipt.device
        && event.resource == format!("block/{}", receipt.block_sha256)
        && text(event, "manifest_sha256") == manifest.as_deref()
        && number(first, "size") == Some(receipt.size)
        && number(first, "sequence") == receipt.sequence;
    if same {
        return Ok(());
    }
    Err(CheckError::Custody {
        index: first.index,
        problem: "is not the receipt's event",
    })
}

/// Every event has the number after its predecessor's and names its predecessor's index.
fn check_chain(log: &Log, violation: &str) -> Result<(), CheckError> {
    let resource = format!("violation/{violation}");
    let mut before: Option<&Event> = None;
    let mut numbered = false;
    let mut indices: Vec<String> = Vec::new();
    for (event, place) in log.events.iter().zip(1_u64..) {
        let bad = |problem| {
            Err(CheckError::Custody {
                index: event.index,
                problem,
            })
        };
        if before.is_some() && event.leaf.event.resource != resource {
            return bad("is about something else");
        }
        let earlier = text(&event.leaf.event, EARLIER);
        match (number(event, COUNT), before) {
            // Events of versions before the numbers; the first numbered one vouches for them.
            (None, _) if numbered => return bad("has no number"),
            (None, _) => {}
            (Some(count), _) if count != place => {
                return bad("does not have the next number: an event is missing");
            }
            (Some(_), before) => {
                if number(event, PREVIOUS) != before.map(|b| b.index) {
                    return bad("does not follow the event before it: an event is missing");
                }
                let vouches = !numbered && before.is_some();
                let list = Sha256Digest::of(indices.join(",").as_bytes()).to_string();
                if vouches != earlier.is_some() || (vouches && earlier != Some(list.as_str())) {
                    return bad("does not vouch for the events before it");
                }
                numbered = true;
            }
        }
        indices.push(event.index.to_string());
        before = Some(event);
    }
    match (numbered, before) {
        (false, Some(last)) => Err(CheckError::Custody {
            index: last.index,
            problem: "has no number, nor has any before it",
        }),
        _ => Ok(()),
    }
}

fn number(event: &Event, name: &str) -> Option<u64> {
    event.leaf.event.details.get(name)?.as_u64()
}

fn text<'a>(event: &'a super::log::EventBody, name: &str) -> Option<&'a str> {
    event.details.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const VIOLATION: &str = "v-0123456789abcdef";

    fn log(events: &[(u64, Value)]) -> Log {
        let event = |(index, details): &(u64, Value)| {
            let leaf = json!({
                "role": ROLE,
                "event": {
                    "at": "2026-11-22T10:00:00.000Z",
                    "actor": {"kind": "user", "id": "u"},
                    "action": "evidence.view",
                    "resource": format!("violation/{VIOLATION}"),
                    "outcome": "permit",
                    "details": details,
                },
            });
            Event {
                index: *index,
                leaf: serde_json::from_value(leaf).unwrap(),
            }
        };
        Log {
            size: 100,
            root: Sha256Digest::ZERO,
            events: events.iter().map(event).collect(),
            epoch: None,
        }
    }

    fn begun(index: u64, change: (&str, Value)) -> Event {
        let mut leaf = json!({
            "role": ROLE,
            "event": {
                "at": "2026-11-22T10:00:00.000Z",
                "actor": {"kind": "user", "id": "anna"},
                "action": "chain.begin-epoch",
                "resource": "chain/camera-17",
                "outcome": "permit",
                "details": {"epoch": 1, "proposed_by": "ben"},
            },
        });
        *leaf.pointer_mut(change.0).unwrap() = change.1;
        Event {
            index,
            leaf: serde_json::from_value(leaf).unwrap(),
        }
    }

    #[test]
    fn epoch_needs_an_earlier_event_of_two_people() {
        let receipt = Receipt {
            schema: crate::receipt::SCHEMA.into(),
            block_sha256: Sha256Digest::ZERO,
            size: 1,
            device: "camera-17".into(),
            sequence: Some(1),
            manifest_sha256: Some(Sha256Digest::ZERO),
            verdict: crate::receipt::Verdict::Accepted,
            reason: None,
            received_at: OffsetDateTime::UNIX_EPOCH,
            log_origin: "log".into(),
            log_index: 7,
            checkpoint: None,
        };
        let outcome = |details: Value, begun: Option<Event>| {
            let mut log = log(&[(7, details)]);
            log.epoch = begun;
            let first = log.events.first().unwrap();
            epoch(&log, first, &receipt)
        };
        let same = ("/role", json!(ROLE));
        assert_eq!(outcome(json!({}), None).unwrap(), 0);
        let one = || json!({"epoch": 1});
        assert_eq!(outcome(one(), Some(begun(6, same.clone()))).unwrap(), 1);
        let missing = outcome(one(), None);
        assert!(matches!(missing, Err(CheckError::Missing(_))));
        let surplus = outcome(json!({}), Some(begun(6, same.clone())));
        assert!(matches!(surplus, Err(CheckError::Unexpected(_))));
        for (index, change) in [
            (8, same.clone()),
            (6, ("/role", json!("camera"))),
            (6, ("/event/action", json!("chain.propose"))),
            (6, ("/event/outcome", json!("deny"))),
            (6, ("/event/resource", json!("chain/camera-18"))),
            (6, ("/event/details/epoch", json!(2))),
            (6, ("/event/actor/kind", json!("service"))),
            (6, ("/event/details/proposed_by", json!("anna"))),
            (6, ("/event/details", json!({"epoch": 1}))),
        ] {
            let refused = outcome(one(), Some(begun(index, change.clone())));
            assert!(
                matches!(refused, Err(CheckError::Custody { .. })),
                "{change:?}"
            );
        }
    }

    fn outcome(events: &[(u64, Value)]) -> Result<(), &'static str> {
        match check_chain(&log(events), VIOLATION) {
            Ok(()) => Ok(()),
            Err(CheckError::Custody { problem, .. }) => Err(problem),
            Err(other) => panic!("{other}"),
        }
    }

    fn numbered(count: u64, previous: u64) -> Value {
        json!({"custody_count": count, "custody_previous": previous})
    }

    #[test]
    fn chain_from_the_receipt_holds_and_misses_each_event() {
        let whole = [
            (3, json!({"custody_count": 1})),
            (7, numbered(2, 3)),
            (8, numbered(3, 7)),
            (20, numbered(4, 8)),
        ];
        assert_eq!(outcome(&whole), Ok(()));
        for left_out in 0..3 {
            let mut fewer = whole.to_vec();
            fewer.remove(left_out);
            assert!(outcome(&fewer).is_err(), "{left_out}");
        }
        let mut other = whole.to_vec();
        other[2].1 = numbered(3, 3);
        assert!(outcome(&other).is_err());
        other[2].1 = json!({});
        assert_eq!(outcome(&other), Err("has no number"));
    }

    #[test]
    fn earlier_events_need_the_right_voucher() {
        let vouched = |list: &str| {
            let hash = Sha256Digest::of(list.as_bytes()).to_string();
            json!({"custody_count": 3, "custody_previous": 7, "custody_earlier_sha256": hash})
        };
        let begin = [(3, json!({})), (7, json!({}))];
        let with = |third: Value| [&begin[..], &[(8, third), (9, numbered(4, 8))]].concat();
        assert_eq!(outcome(&with(vouched("3,7"))), Ok(()));
        let unvouched = Err("does not vouch for the events before it");
        assert_eq!(outcome(&with(vouched("3,5"))), unvouched);
        assert_eq!(outcome(&with(numbered(3, 7))), unvouched);
        let mut fewer = with(vouched("3,7"));
        fewer.remove(1);
        assert!(outcome(&fewer).is_err());
        assert!(outcome(&begin).is_err());
        // A record that began with numbers has nothing to vouch for.
        let mut both = with(vouched("3,7"));
        both[0].1 = json!({"custody_count": 1});
        assert!(outcome(&both).is_err());
    }
}
