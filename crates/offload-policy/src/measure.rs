//! Measurement of a device, before messages come.

use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use crate::break_even::SIZES;
use crate::device::{DeviceError, DeviceKey, Request};
use crate::operation::Operation;
use crate::policy::{Policy, Quarantine};
use crate::software::SoftwareKey;

/// Bytes of the keys with which a device is measured: all operations have such keys.
const MEASURED_KEY: usize = 16;
/// Computations of which the quickest counts when a cost is measured: others were interrupted.
const REPETITIONS: u32 = 3;

impl Policy {
    /// Measures what device and software cost, and chooses by that.
    ///
    /// Takes no longer than the settings allow, and the request that is then under way. Sizes that
    /// were not reached count as slower with the device. Other threads may go on meanwhile, and make
    /// the figures worse.
    pub fn measure(&self) {
        let Some(device) = self.device() else { return };
        let end = Instant::now() + self.settings().measuring;
        let data = vec![0x5a; SIZES.iter().copied().max().unwrap_or(0)];
        let mut key = [0; MEASURED_KEY];
        let _ = aws_lc_rs::rand::fill(&mut key);
        let keys: Vec<_> = Operation::MESSAGES
            .into_iter()
            .filter_map(|operation| {
                let on_device = self.device_key(operation, &key)?;
                Some((operation, SoftwareKey::new(operation, &key)?, on_device))
            })
            .collect();
        for (index, size) in SIZES.into_iter().enumerate() {
            for (operation, software, key) in &keys {
                let Some(data) = data.get(..size).filter(|_| size <= device.max_len()) else {
                    continue;
                };
                if Instant::now() >= end || self.quarantine().is_some() {
                    return;
                }
                self.measure_one(index, *operation, software, key, data, end);
            }
        }
    }

    fn measure_one(
        &self,
        index: usize,
        operation: Operation,
        software: &SoftwareKey,
        key: &DeviceKey,
        data: &[u8],
        end: Instant,
    ) {
        let iv = [0x1f; 16];
        let iv = match operation {
            Operation::GcmSeal | Operation::GcmOpen => iv.get(..12),
            Operation::HmacSha1 | Operation::HmacSha256 => Some(&[][..]),
            _ => Some(&iv[..]),
        };
        let (Some(iv), Some(device)) = (iv, self.device()) else {
            return;
        };
        let mut request = Request {
            operation,
            key,
            iv,
            aad: &[],
            data,
            tag: &[],
        };
        // A message to open is one that was sealed before.
        let sealed;
        if operation == Operation::GcmOpen {
            let seal = Request {
                operation: Operation::GcmSeal,
                ..request
            };
            let Some(bytes) = software.result(&seal) else {
                return;
            };
            sealed = bytes;
            let Some((data, tag)) = sealed.split_at_checked(data.len()) else {
                return;
            };
            request = Request {
                data,
                tag,
                ..request
            };
        }
        let mut best = (Duration::MAX, Duration::MAX);
        for round in 0..REPETITIONS {
            if round > 0 && Instant::now() >= end {
                break;
            }
            let started = Instant::now();
            let expected = software.result(&request);
            best.0 = best.0.min(started.elapsed());
            let started = Instant::now();
            let result = device.run(&request);
            best.1 = best.1.min(started.elapsed());
            match (result, expected) {
                (Ok(bytes), Some(expected)) if bool::from(bytes.ct_eq(&expected)) => {}
                (Ok(_), _) => return self.set_aside(Quarantine::Result(operation)),
                (Err(DeviceError::Busy), _) => return,
                (Err(DeviceError::Tag), _) => return self.set_aside(Quarantine::Tag(operation)),
                (Err(DeviceError::Failed(error)), _) => {
                    return self.set_aside(Quarantine::Failed(error.to_string()));
                }
            }
        }
        self.measured(operation, index, best);
    }
}
