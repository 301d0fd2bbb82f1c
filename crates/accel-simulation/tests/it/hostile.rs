//! A driver that writes into the shared memory what it likes.

use std::sync::Arc;

use accel_abi::Register;
use accel_abi::register::{PAGE, REGISTERS, control, state};
use accel_abi::window::{POSTED, QUEUE, QUEUE_LENGTH, TAKEN};
use accel_simulation::cores::{AesCore, Cores, Engine};
use accel_simulation::device::{Device, Dma};
use accel_simulation::{Endpoint, MappedDma};
use accel_transport::DriverWindow;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sys::shared::Mapping;

const LENGTH: usize = 4 * PAGE as usize;

fn memory() -> Arc<Mapping> {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, LENGTH as u64).unwrap();
    Arc::new(Mapping::new(&file, 0, LENGTH).unwrap())
}

fn device() -> Device {
    Device::new(Engine::new(Cores {
        aes: Some(Box::new(AesCore::new())),
        ..Cores::default()
    }))
}

/// `SplitMix64`: tests need numbers that are the same everywhere.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[test]
fn queue_takes_what_it_holds_and_one_more_halts_the_window() {
    for (posted, halted) in [(QUEUE_LENGTH, false), (QUEUE_LENGTH + 1, true)] {
        let shared = memory();
        let mut endpoint = Endpoint::new(device(), Arc::clone(&shared));
        let mut dma = MappedDma::new(Arc::clone(&shared), PAGE as usize);
        shared.store(POSTED as usize, posted);
        endpoint.turn(&mut dma);
        assert_eq!(endpoint.window().halted(), halted);
        let taken = shared.load(TAKEN as usize).unwrap();
        assert_eq!(taken, if halted { 0 } else { posted });
        // Nothing brings it back but another window.
        shared.store(POSTED as usize, taken);
        assert!(!endpoint.turn(&mut dma).worked);
        assert_eq!(endpoint.window().halted(), halted);
    }
}

#[test]
fn writes_are_taken_in_order_and_reads_come_after_them() {
    let shared = memory();
    let mut endpoint = Endpoint::new(device(), Arc::clone(&shared));
    let mut dma = MappedDma::new(Arc::clone(&shared), PAGE as usize);
    let server = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            // Until the last register gets the number that ends this.
            while shared.load(Register::RING_HIGH.0 as usize) != Some(u32::MAX) {
                endpoint.turn(&mut dma);
            }
        })
    };
    let mut window = DriverWindow::new(Arc::clone(&shared));
    for value in 0..10_000 {
        assert!(window.write(Register::RING_LOW, value));
        if value % 7 == 0 {
            assert_eq!(window.read(Register::RING_LOW), value);
        }
    }
    // The next driver goes on where this one ended.
    let mut window = DriverWindow::new(Arc::clone(&shared));
    assert_eq!(window.read(Register::RING_LOW), 9_999);
    assert!(window.write(Register::RING_HIGH, u32::MAX));
    server.join().unwrap();
}

#[test]
fn nothing_in_the_page_makes_the_device_leave_its_memory() {
    for seed in 0..2000 {
        let mut random = seed;
        let shared = memory();
        let mut endpoint = Endpoint::new(device(), Arc::clone(&shared));
        // The page behind the window is not registered.
        let mut dma = MappedDma::new(Arc::clone(&shared), 2 * PAGE as usize);
        assert!(shared.write(PAGE as usize, &[0xa5; PAGE as usize]));
        for _ in 0..8 {
            for entry in 0..QUEUE_LENGTH {
                let known = REGISTERS[next(&mut random) as usize % REGISTERS.len()]
                    .register
                    .0;
                let (register, value) = match next(&mut random) % 4 {
                    0 => (next(&mut random) as u32, next(&mut random) as u32),
                    1 => (Register::CONTROL.0, control::ENABLE),
                    2 => (known, next(&mut random) as u32 % LENGTH as u32),
                    _ => (known, next(&mut random) as u32 % 8),
                };
                let at = (QUEUE + 8 * entry) as usize;
                shared.store(at, register);
                shared.store(at + 4, value);
            }
            let taken = shared.load(TAKEN as usize).unwrap();
            let more = next(&mut random) as u32 % QUEUE_LENGTH;
            shared.store(POSTED as usize, taken.wrapping_add(more));
            for _ in 0..16 {
                endpoint.turn(&mut dma);
            }
        }
        assert!(!endpoint.window().halted(), "seed {seed}");
        let mut page = [0; PAGE as usize];
        assert!(shared.read(PAGE as usize, &mut page));
        assert!(page.iter().all(|&byte| byte == 0xa5), "seed {seed}");
        let state = shared.load(Register::STATE.0 as usize).unwrap();
        assert_eq!(state & !(state::ENABLED | state::BUSY | state::HALTED), 0);
    }
}

#[test]
fn window_and_what_lies_beyond_the_memory_are_not_registered() {
    let mut dma = MappedDma::new(memory(), PAGE as usize);
    let (page, end) = (u64::from(PAGE), LENGTH as u64);
    for (address, length, inside) in [
        (page, 1, true),
        (page - 1, 2, false),
        (0, 16, false),
        (end - 8, 8, true),
        (end - 8, 9, false),
        (end, 0, true),
        (end, 1, false),
        (u64::MAX, 1, false),
        (u64::MAX, u64::MAX, false),
    ] {
        assert_eq!(dma.allows(address, length, true), inside, "{address:#x}");
        if length < 64 {
            let mut bytes = vec![7; length as usize];
            assert_eq!(dma.write(address, &bytes).is_ok(), inside, "{address:#x}");
            assert_eq!(
                dma.read(address, &mut bytes).is_ok(),
                inside,
                "{address:#x}"
            );
        }
    }
}
