//! The accelerator: whatever stands in its ring and lists, it stays inside of registered memory.

use accel_abi::register::control;
use accel_abi::{Register, Segment, crc32, descriptor};
use accel_simulation::cores::{AesCore, Check, Cores, Engine, HmacCore, IbcCore, MontCore};
use accel_simulation::device::{Device, Memory, Region};

const LENGTH: usize = 0x2000;
const SHARED: std::ops::Range<usize> = 0x800..0x1800;
const RING_SIZE: u32 = 8;
/// The ring is at the beginning of the shared part, lists and data behind it.
const LISTS: usize = SHARED.start + RING_SIZE as usize * descriptor::SIZE;
const LISTS_END: usize = LISTS + 0x400;

/// Runs the target on one input: the contents of the shared part, with check values put right, since
/// nothing else would get past them.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let mut memory = Memory::new(0, LENGTH);
    let bytes = memory.as_mut_slice();
    bytes.fill(0xa5);
    for (to, from) in bytes[SHARED].iter_mut().zip(data) {
        *to = *from;
    }
    let (requests, _) = bytes[SHARED.start..LISTS].as_chunks_mut::<{ descriptor::SIZE }>();
    for request in requests {
        let check = crc32(&request[..descriptor::CHECKED]);
        request[descriptor::CHECK..][..4].copy_from_slice(&check.to_le_bytes());
        request[descriptor::STATUS + 3] |= 0x80;
    }
    let (entries, _) = bytes[LISTS..LISTS_END].as_chunks_mut::<{ Segment::SIZE }>();
    for entry in entries {
        let fields = Segment {
            address: u64::from_le_bytes(*entry.first_chunk().unwrap()),
            length: u32::from_le_bytes(*entry[8..].first_chunk().unwrap()),
            flags: u16::from_le_bytes(*entry[12..].first_chunk().unwrap()),
        };
        *entry = fields.encode();
        assert_eq!(Segment::decode(entry), Some(fields));
    }
    let before = memory.as_slice().to_vec();
    memory.register(Region {
        addresses: SHARED.start as u64..SHARED.end as u64,
        writable: true,
    });

    let mut device = Device::new(Engine::new(Cores {
        aes: Some(Box::new(AesCore::new())),
        ibc: Some((Box::new(IbcCore::new()), Check::None)),
        hmac: Some(Box::new(HmacCore::new())),
        modular: Some(Box::new(MontCore::new(32).unwrap())),
    }));
    device.write(Register::RING_LOW, 0x800);
    device.write(Register::RING_SIZE, RING_SIZE);
    device.write(Register::CONTROL, control::ENABLE);
    device.write(Register::PRODUCER, RING_SIZE);
    for done in 0..RING_SIZE {
        assert!(device.step(&mut memory));
        // A result that was written over the ring makes the next descriptor unusable.
        if device.read(Register::CONTROL) & control::ENABLE == 0 {
            break;
        }
        assert_eq!(device.read(Register::CONSUMER), done + 1);
    }
    assert!(!device.step(&mut memory), "nothing is left");
    let after = memory.as_slice();
    assert_eq!(after[..SHARED.start], before[..SHARED.start]);
    assert_eq!(after[SHARED.end..], before[SHARED.end..]);
}
