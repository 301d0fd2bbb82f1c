//! The state of an accelerator, for people and programs.

use offload_policy::{Operation, Policy};
use serde::{Deserialize, Serialize};

/// State of use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It gets what it is quicker at.
    InUse,
    /// It could not be reached at the start.
    Unreachable,
    /// It was set aside until the next start.
    Quarantine,
}

impl State {
    /// The name, as in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InUse => "in-use",
            Self::Unreachable => "unreachable",
            Self::Quarantine => "quarantine",
        }
    }
}

/// The state of an accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Status {
    /// Its socket, or `/dev/uioN`.
    pub device: String,
    /// Its state of use.
    pub state: State,
    /// The reason, if it is not.
    pub reason: Option<String>,
    /// Every operation.
    pub operations: Vec<OperationStatus>,
    /// Requests that went to software because the device was busy.
    pub busy: u64,
    /// Requests that software did again after the device had failed at them.
    pub repeated: u64,
    /// Results of the device that were computed a second time.
    pub checked: u64,
}

/// Requests of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OperationStatus {
    /// Its name.
    pub operation: String,
    /// Requests that the device did.
    pub device: u64,
    /// Requests that software did.
    pub software: u64,
    /// Bytes from which on the device does them; of RSA, bytes of the modulus. None if software does all.
    pub from: Option<usize>,
}

impl OperationStatus {
    pub(crate) fn of(policy: &Policy, operation: Operation) -> Self {
        let requests = policy.requests(operation);
        Self {
            operation: operation.name().to_owned(),
            device: requests.device,
            software: requests.software,
            from: policy.break_even(operation),
        }
    }
}

impl Status {
    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let mut first = format!("accelerator {}  {}", self.device, self.state.name());
        if let Some(reason) = &self.reason {
            first.push_str(": ");
            first.push_str(reason);
        }
        let used = self
            .operations
            .iter()
            .filter(|one| one.device > 0 || one.software > 0 || one.from.is_some());
        let used = used.map(|one| {
            let from = match one.from {
                Some(bytes) => format!("device from {bytes} bytes on"),
                None => "software".to_owned(),
            };
            format!(
                "  {}  {from}  requests {} by the device, {} by software",
                one.operation, one.device, one.software
            )
        });
        std::iter::once(first).chain(used).collect()
    }

    /// The sentence about a device that is not in use.
    pub fn warning(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        Some(format!(
            "the accelerator {} is not in use: {reason}",
            self.device
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_engine_and_why_it_is_not_in_use() {
        let mut status = Status {
            device: "/run/accelerator".to_owned(),
            state: State::InUse,
            reason: None,
            operations: vec![
                OperationStatus {
                    operation: "AES-GCM seal".to_owned(),
                    device: 7,
                    software: 2,
                    from: Some(1024),
                },
                OperationStatus {
                    operation: "AES-CTR".to_owned(),
                    device: 0,
                    software: 0,
                    from: None,
                },
            ],
            busy: 0,
            repeated: 0,
            checked: 7,
        };
        assert_eq!(
            status.lines(),
            [
                "accelerator /run/accelerator  in-use",
                "  AES-GCM seal  device from 1024 bytes on  requests 7 by the device, 2 by software",
            ]
        );
        assert_eq!(status.warning(), None);
        status.state = State::Quarantine;
        status.reason = Some("the device failed".to_owned());
        assert_eq!(
            status.lines()[0],
            "accelerator /run/accelerator  quarantine: the device failed"
        );
        assert_eq!(
            status.warning().unwrap(),
            "the accelerator /run/accelerator is not in use: the device failed"
        );
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.contains("\"state\":\"quarantine\""), "{text}");
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }
}
