//! One fault at a time, and what the driver makes of it.

use accel_abi::Mode;
use accel_driver::{Completion, Driver, Failure, Message, Request, RequestError, SubmitError};

use crate::order::{driver, encrypt, load_keys, message, settle};
use crate::simulation::{REGISTERED, at, config};
use crate::world::{Faults, Life, World};

/// A driver with keys whose world then has these faults.
fn ready(faults: Faults) -> Driver<World> {
    let mut driver = driver(Completion::Interrupt, Faults::default());
    load_keys(&mut driver);
    driver.transport_mut().faults = faults;
    driver
}

#[test]
fn lost_interrupt_costs_the_watchdog_and_nothing_else() {
    let mut driver = ready(Faults {
        lost: 1000,
        ..Faults::default()
    });
    driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
    assert_eq!(settle(&mut driver, 100), 150);
    assert!(driver.poll_completion().unwrap().result.is_ok());
    assert_eq!(driver.statistics().missed_interrupts, 1);
    assert_eq!(driver.failure(), None);
    // Those that follow arrive: the device sends none while a cause is not cleared.
    driver.transport_mut().faults = Faults::default();
    for start in [200, 300] {
        driver.submit(&encrypt(&[0; 16]), at(start)).unwrap();
        assert!(settle(&mut driver, start) < start + 10);
        assert!(driver.poll_completion().unwrap().result.is_ok());
    }
    assert_eq!(driver.statistics().missed_interrupts, 1);
}

#[test]
fn spurious_and_doubled_interrupts_do_nothing() {
    let mut driver = ready(Faults {
        doubled: 1000,
        spurious: 1000,
        ..Faults::default()
    });
    for tick in 0..50 {
        driver.handle_interrupt(at(tick));
    }
    driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
    settle(&mut driver, 100);
    assert!(driver.poll_completion().unwrap().result.is_ok());
    assert!(driver.poll_completion().is_none());
    assert!(driver.statistics().spurious_interrupts >= 50);
}

#[test]
fn dead_device_is_given_up_at_the_deadline() {
    let mut driver = ready(Faults {
        die: 1000,
        ..Faults::default()
    });
    driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
    driver.submit(&encrypt(&[0; 16]), at(200)).unwrap();
    assert_eq!(
        settle(&mut driver, 200),
        1100,
        "the first request's deadline"
    );
    for _ in 0..2 {
        let error = driver.poll_completion().unwrap().result.err();
        assert_eq!(error, Some(RequestError::Failed(Failure::Deadline)));
    }
    let again = driver.submit(&encrypt(&[0; 16]), at(1200));
    assert_eq!(again, Err(SubmitError::Failed(Failure::Deadline)));
    assert_eq!(driver.poll_timeout(), None);
    driver.handle_interrupt(at(1300));
    driver.handle_timeout(at(1300));
}

#[test]
fn device_that_vanishes_is_noticed_before_the_deadline() {
    let mut driver = ready(Faults {
        vanish: 1000,
        ..Faults::default()
    });
    driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
    assert_eq!(settle(&mut driver, 100), 150);
    assert_eq!(driver.failure(), Some(Failure::NoDevice));
}

#[test]
fn absent_or_foreign_device_makes_a_driver_that_has_failed() {
    let mut world = World::new(REGISTERED, Faults::default(), 1);
    world.life = Life::Gone;
    let mut driver = Driver::new(world, config(4, Completion::Interrupt), at(0)).unwrap();
    assert_eq!(driver.failure(), Some(Failure::NoDevice));
    let refused = driver.submit(&encrypt(&[0; 16]), at(0));
    assert_eq!(refused, Err(SubmitError::Failed(Failure::NoDevice)));
}

#[test]
fn damaged_descriptors_and_lists_make_the_driver_give_up() {
    for faults in [
        Faults {
            descriptor: 1000,
            ..Faults::default()
        },
        Faults {
            list: 1000,
            ..Faults::default()
        },
    ] {
        let mut driver = ready(faults);
        driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
        settle(&mut driver, 100);
        assert!(driver.poll_completion().unwrap().result.is_err());
        let failure = driver.failure();
        let expected = matches!(failure, Some(Failure::Outcome(_) | Failure::Echo { .. }));
        assert!(expected, "{failure:?}");
        assert!(driver.transport_mut().margins_untouched());
    }
}

#[test]
fn false_completions_are_not_believed() {
    for seed in 0..20 {
        let mut driver = ready(Faults {
            lie: 1000,
            ..Faults::default()
        });
        driver.transport_mut().random.0 = seed;
        driver.submit(&encrypt(&[0; 16]), at(100)).unwrap();
        settle(&mut driver, 100);
        let failure = driver.failure();
        let expected = matches!(
            failure,
            Some(Failure::Outcome(_) | Failure::Echo { .. } | Failure::Produced { .. })
        );
        assert!(expected, "{failure:?}");
    }
}

#[test]
fn opened_message_needs_its_tag_whatever_the_device_says() {
    let sealed = |data: &[u8]| {
        let mut driver = ready(Faults::default());
        let message = Message {
            mode: Mode::GCM,
            iv: &[1; 12],
            ..message(data)
        };
        let request = Request::Encrypt {
            message,
            tag_length: 16,
        };
        driver.submit(&request, at(0)).unwrap();
        settle(&mut driver, 0);
        driver
            .poll_completion()
            .unwrap()
            .result
            .unwrap()
            .bytes
            .to_vec()
    };
    let whole = sealed(b"a plate number");
    let (data, tag) = whole.split_at(14);
    let open = |faults, tag: &[u8]| {
        let mut driver = ready(faults);
        let message = Message {
            mode: Mode::GCM,
            iv: &[1; 12],
            ..message(data)
        };
        driver
            .submit(&Request::Decrypt { message, tag }, at(0))
            .unwrap();
        settle(&mut driver, 0);
        driver.poll_completion().unwrap().result
    };
    assert_eq!(
        open(Faults::default(), tag).unwrap().bytes.as_slice(),
        b"a plate number"
    );
    let mut wrong = tag.to_vec();
    wrong[15] ^= 1;
    let refused = Some(RequestError::Authentication);
    assert_eq!(open(Faults::default(), &wrong).err(), refused);
    let lying = Faults {
        lie_about_tag: 1000,
        ..Faults::default()
    };
    assert_eq!(open(lying, tag).err(), refused);
    let idle = Faults {
        claim_undone: 1000,
        ..Faults::default()
    };
    assert_eq!(
        open(idle, tag).err(),
        refused,
        "an empty result has no right tag"
    );
}
