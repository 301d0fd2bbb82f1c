//! The register window: registers of a device that is reached by shared memory.
//!
//! For links on which nobody sees an access to a register: its words stand in one page that both sides map. A
//! write is posted: it goes into a queue, and a doorbell says so. A read takes its word from the
//! mirror, after the device has taken every write before it.

use crate::register::PAGE;

/// Offset of the mirror: here the device shows each register at its own offset.
pub const MIRROR: u32 = 0x000;

/// Offset of the number of writes that the driver has posted, modulo 2^32.
pub const POSTED: u32 = 0x800;

/// Offset of the number of writes that the device has taken, modulo 2^32. In another cache line.
pub const TAKEN: u32 = 0x840;

/// Offset of the queue of writes: pairs of a register's offset and its value.
pub const QUEUE: u32 = 0xc00;

/// Writes that the queue holds, a power of two.
pub const QUEUE_LENGTH: u32 = 64;

/// Bytes of one write in the queue.
pub const WRITE_SIZE: u32 = 8;

const _: () = assert!(QUEUE + QUEUE_LENGTH * WRITE_SIZE <= PAGE && QUEUE_LENGTH.is_power_of_two());

/// All places of the window with their names and meanings, for header and manual.
pub const PLACES: &[(u32, &str, &str)] = &[
    (
        MIRROR,
        "MIRROR",
        "Written by the device: each register at its own offset.",
    ),
    (
        POSTED,
        "POSTED",
        "Written by the driver: writes posted, modulo 2^32.",
    ),
    (
        TAKEN,
        "TAKEN",
        "Written by the device, after the mirror: writes taken, modulo 2^32.",
    ),
    (
        QUEUE,
        "QUEUE",
        "Written by the driver, before POSTED: 64 entries, each a register's offset and the value written to it, four bytes each.",
    ),
];

/// Offset of the entry of write `number`.
pub const fn entry(number: u32) -> u32 {
    QUEUE + (number % QUEUE_LENGTH) * WRITE_SIZE
}
