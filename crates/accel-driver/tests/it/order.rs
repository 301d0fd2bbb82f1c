//! A working device: results, bounds, and the ways to learn of completions.

use std::time::Duration;

use accel_abi::{Algorithm, Mode, Status, TAG_MAX};
use accel_driver::{
    Completion, Driver, Message, Request, RequestError, SubmitError, Ticket, Timestamp,
};

use crate::simulation::{BUFFER, KEYS, Planned, REGISTERED, at, config, key, plan, reference};
use crate::world::{Faults, Random, World};

pub(crate) fn driver(completion: Completion, faults: Faults) -> Driver<World> {
    let world = World::new(REGISTERED, faults, 1);
    Driver::new(world, config(4, completion), at(0)).unwrap()
}

/// Lets the device work and the driver look until nothing is pending; the ticks it took.
pub(crate) fn settle(driver: &mut Driver<World>, from: u64) -> u64 {
    let mut tick = from;
    while driver.pending() > 0 {
        tick += 1;
        for _ in 0..driver.transport_mut().advance() {
            driver.handle_interrupt(at(tick));
        }
        if driver
            .poll_timeout()
            .is_some_and(|timeout| timeout <= at(tick))
        {
            driver.handle_timeout(at(tick));
        }
        assert!(tick < from + 10_000, "it hangs");
    }
    tick
}

pub(crate) fn load_keys(driver: &mut Driver<World>) {
    for (slot, (algorithm, length)) in (0..).zip(KEYS) {
        let key = key(slot, length);
        let request = Request::LoadKey {
            slot,
            algorithm,
            key: &key,
        };
        driver.submit(&request, at(0)).unwrap();
    }
    settle(driver, 0);
    while let Some(completed) = driver.poll_completion() {
        completed.result.unwrap();
    }
}

pub(crate) fn message(data: &[u8]) -> Message<'_> {
    Message {
        algorithm: Algorithm::AES,
        mode: Mode::ECB,
        slot: 0,
        iv: &[],
        aad: &[],
        data,
    }
}

pub(crate) fn encrypt(data: &[u8]) -> Request<'_> {
    Request::Encrypt {
        message: message(data),
        tag_length: 0,
    }
}

#[test]
fn results_come_in_order_and_are_right() {
    let (mut random, mut reference) = (Random(3), reference());
    for completion in [Completion::Interrupt, Completion::Polling] {
        let mut driver = driver(completion, Faults::default());
        load_keys(&mut driver);
        let plans: Vec<Planned> = (0..40).map(|_| plan(&mut random, &mut reference)).collect();
        for four in plans.chunks(4) {
            for plan in four {
                plan.submit(&mut driver, at(0)).unwrap();
            }
            settle(&mut driver, 0);
            for plan in four {
                let result = driver.poll_completion().unwrap().result;
                assert_eq!(result.ok().map(|output| output.bytes.to_vec()), plan.answer);
            }
        }
        assert_eq!(driver.statistics().completed, 40 + KEYS.len() as u64);
        assert_eq!(driver.statistics().missed_interrupts, 0);
    }
}

#[test]
fn ring_takes_as_many_as_it_has_results_included() {
    let mut driver = driver(Completion::Interrupt, Faults::default());
    load_keys(&mut driver);
    let first = KEYS.len() as u64;
    for expected in first..first + 4 {
        assert_eq!(
            driver.submit(&encrypt(&[0; 16]), at(0)),
            Ok(Ticket(expected))
        );
    }
    assert_eq!(
        driver.submit(&encrypt(&[0; 16]), at(0)),
        Err(SubmitError::Full)
    );
    settle(&mut driver, 0);
    assert_eq!(
        driver.submit(&encrypt(&[0; 16]), at(0)),
        Err(SubmitError::Full),
        "nobody fetched"
    );
    assert_eq!(driver.poll_completion().unwrap().ticket, Ticket(first));
    assert!(driver.submit(&encrypt(&[0; 16]), at(0)).is_ok());
}

#[test]
fn requests_that_do_not_fit_are_not_submitted() {
    let mut driver = driver(Completion::Interrupt, Faults::default());
    let tag = |tag_length| Request::Encrypt {
        message: message(&[0; 16]),
        tag_length,
    };
    let long = [0; BUFFER + 1];
    let wrong = [
        encrypt(&[]),
        encrypt(&long),
        tag(TAG_MAX as u8 + 1),
        Request::Decrypt {
            message: message(&[0; 16]),
            tag: &long,
        },
        Request::Encrypt {
            message: Message {
                iv: &long,
                ..message(&[0; 16])
            },
            tag_length: 0,
        },
        Request::Encrypt {
            message: Message {
                aad: &long[..BUFFER],
                ..message(&[0; 16])
            },
            tag_length: 0,
        },
        Request::LoadKey {
            slot: 0,
            algorithm: Algorithm::AES,
            key: &[],
        },
        Request::Power {
            modulus: &long[..BUFFER / 2],
            base: &long[..BUFFER / 2],
            exponent: &[1],
        },
        Request::Authenticate {
            slot: 0,
            algorithm: Algorithm::HMAC_SHA_1,
            data: &long,
            tag_length: 20,
        },
    ];
    for request in &wrong {
        assert_eq!(
            driver.submit(request, at(0)),
            Err(SubmitError::Length),
            "{request:?}"
        );
    }
    assert_eq!(driver.pending(), 0);
}

#[test]
fn refusals_of_the_device_concern_one_request() {
    let mut driver = driver(Completion::Interrupt, Faults::default());
    load_keys(&mut driver);
    let no_slot = Message {
        slot: 9,
        ..message(&[0; 16])
    };
    for request in [
        encrypt(&[0; 17]),
        Request::Encrypt {
            message: no_slot,
            tag_length: 0,
        },
        Request::Encrypt {
            message: Message {
                mode: Mode(77),
                ..message(&[0; 16])
            },
            tag_length: 0,
        },
        encrypt(&[0; 16]),
    ] {
        driver.submit(&request, at(0)).unwrap();
    }
    settle(&mut driver, 0);
    let results: Vec<_> = std::iter::from_fn(|| driver.poll_completion())
        .map(|completed| completed.result.err())
        .collect();
    let refused = |status| Some(RequestError::Refused(status));
    let expected = [
        refused(Status::BAD_LENGTH),
        refused(Status::NO_KEY),
        refused(Status::UNSUPPORTED),
        None,
    ];
    assert_eq!(results, expected);
    assert_eq!(driver.failure(), None);
}

#[test]
fn zeroised_slot_serves_no_more() {
    let mut driver = driver(Completion::Interrupt, Faults::default());
    load_keys(&mut driver);
    driver
        .submit(&Request::ZeroiseKey { slot: 0 }, at(0))
        .unwrap();
    driver.submit(&encrypt(&[0; 16]), at(0)).unwrap();
    settle(&mut driver, 0);
    assert!(driver.poll_completion().unwrap().result.is_ok());
    let second = driver.poll_completion().unwrap().result;
    assert_eq!(second.err(), Some(RequestError::Refused(Status::NO_KEY)));
}

#[test]
fn keys_and_data_do_not_stay_in_memory() {
    let secret = [0x5a; 16];
    let traces = |driver: &mut Driver<World>| {
        let memory = driver.transport_mut().registered();
        memory
            .windows(8)
            .filter(|window| *window == &secret[..8])
            .count()
    };
    let mut driver = driver(Completion::Interrupt, Faults::default());
    let request = Request::LoadKey {
        slot: 0,
        algorithm: Algorithm::AES,
        key: &secret,
    };
    driver.submit(&request, at(0)).unwrap();
    assert!(traces(&mut driver) > 0, "it is there for the device");
    settle(&mut driver, 0);
    assert_eq!(traces(&mut driver), 0);
    driver.submit(&encrypt(&secret), at(0)).unwrap();
    settle(&mut driver, 0);
    assert_eq!(traces(&mut driver), 0);
}

#[test]
fn interrupts_are_off_while_polling_and_adaptive_changes_over() {
    let mut polling = driver(Completion::Polling, Faults::default());
    polling
        .submit(&Request::ZeroiseKey { slot: 0 }, at(0))
        .unwrap();
    assert!(!polling.waits_for_interrupt());
    assert_eq!(polling.poll_timeout(), Some(at(2)));
    polling.transport_mut().advance();
    assert_eq!(polling.transport_mut().advance(), 0, "no interrupt");

    let mut adaptive = driver(
        Completion::Adaptive(Duration::from_millis(5)),
        Faults::default(),
    );
    adaptive
        .submit(&Request::ZeroiseKey { slot: 0 }, at(0))
        .unwrap();
    assert!(adaptive.waits_for_interrupt());
    assert_eq!(adaptive.poll_timeout(), Some(at(50)), "the watchdog");
    let now = settle(&mut adaptive, 0);
    adaptive.poll_completion();
    adaptive
        .submit(&Request::ZeroiseKey { slot: 0 }, at(now))
        .unwrap();
    assert!(!adaptive.waits_for_interrupt(), "one tick was short");
    assert_eq!(adaptive.poll_timeout(), Some(at(now + 2)));
}

#[test]
fn nothing_under_way_wants_no_timeout() {
    let driver = driver(Completion::Interrupt, Faults::default());
    assert_eq!(driver.poll_timeout(), None::<Timestamp>);
    assert!(!driver.waits_for_interrupt());
}

#[test]
fn configuration_must_fit_the_memory() {
    let world = || World::new(REGISTERED, Faults::default(), 1);
    for (ring_size, buffer) in [(3, 64), (1, 64), (16, BUFFER + 64), (4, 10)] {
        let mut wrong = config(ring_size, Completion::Interrupt);
        wrong.buffer = buffer;
        assert!(
            Driver::new(world(), wrong, at(0)).is_none(),
            "{ring_size} {buffer}"
        );
    }
}
