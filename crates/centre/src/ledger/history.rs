//! Whole records of some violations, read again from the log.

use std::collections::BTreeMap;

use audit::{AuditError, AuditSink, Logged};
use evidence::digest::Sha256Digest;

use super::record::{Continues, Record};
use super::{Decided, Known, RecordHead, Step, is_of_evidence, violation_id};

/// All steps and decisions of a violation, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
    pub(crate) decisions: Vec<Decided>,
}

impl History {
    /// The history of one violation, with the head that it leads to. Blocks, as long as reading the log takes.
    ///
    /// # Errors
    /// As [`AuditSink::read_on`].
    pub(crate) fn read(
        sink: &dyn AuditSink,
        known: &Known,
    ) -> Result<(Self, RecordHead), AuditError> {
        let mut histories = Histories::read(sink, std::slice::from_ref(known))?;
        let found = histories.take(&known.block);
        Ok(found.unwrap_or((Self::default(), known.head)))
    }
}

/// The histories of some violations, by block.
pub(crate) struct Histories(BTreeMap<Sha256Digest, Told>);

struct Told {
    from: u64,
    record: Option<Record>,
    steps: Vec<(Step, Option<Decided>)>,
}

impl Histories {
    /// Reads the log once for all of `blocks`. Blocks.
    ///
    /// # Errors
    /// As [`AuditSink::read_on`].
    pub(crate) fn read(sink: &dyn AuditSink, blocks: &[Known]) -> Result<Self, AuditError> {
        let begin = |known: &Known| match known.is_adopted {
            true => 0,
            false => known.log_index,
        };
        let from = blocks.iter().map(begin).min();
        let mut told: BTreeMap<String, (Sha256Digest, Told)> = BTreeMap::new();
        for known in blocks {
            let mut one = Told {
                from: known.log_index,
                record: None,
                steps: Vec::new(),
            };
            if known.is_adopted {
                let (index, at) = (known.log_index, known.received_at);
                one.record = Some(Record::adopted(index, &known.device, at));
                let step = Step::of_receipt(index, &known.device, at);
                one.steps.push((step, None));
            }
            told.insert(known.violation(), (known.block, one));
        }
        let name = |resource: &str| match resource.split_once('/') {
            Some(("violation", id)) => id.to_owned(),
            Some(("block", hash)) => hash
                .parse()
                .map_or_else(|_| String::new(), |h| violation_id(&h)),
            _ => String::new(),
        };
        let mut each = |logged: Logged| {
            let found = told.get_mut(&name(&logged.event.resource));
            if let Some((_, one)) = found.filter(|_| logged.is_own) {
                one.add(&logged);
            }
        };
        // One violation's entries are found by its name; for many, all entries about evidence are decoded.
        let only = match blocks {
            [one] => one.violation().split_off(2),
            _ => String::new(),
        };
        let wanted = |text: &str| is_of_evidence(text) && text.contains(&only);
        sink.read_on(from.unwrap_or(u64::MAX), &wanted, &mut each)?;
        Ok(Self(told.into_values().collect()))
    }

    /// The history of `block`, with the head that it leads to.
    pub(crate) fn take(&mut self, block: &Sha256Digest) -> Option<(History, RecordHead)> {
        let told = self.0.remove(block)?;
        let head = told.record?.head();
        let mut history = History::default();
        for (step, decided) in told.steps {
            history.steps.push(step);
            history.decisions.extend(decided);
        }
        Some((history, head))
    }
}

impl Told {
    fn add(&mut self, logged: &Logged) {
        let (index, event) = (logged.index, &logged.event);
        let Some(record) = &mut self.record else {
            if index == self.from {
                self.record = Some(Record::begin(index, event));
                self.steps.push((Step::of(index, event), None));
            }
            return;
        };
        if !event.resource.starts_with("violation/") {
            return;
        }
        match record.continues(event) {
            Continues::Not => return,
            Continues::Again => drop(self.steps.pop()),
            Continues::Next => {}
        }
        record.add(index, event);
        self.steps
            .push((Step::of(index, event), Decided::of(event)));
    }
}
