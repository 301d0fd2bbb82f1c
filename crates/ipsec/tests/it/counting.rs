//! An allocator that counts, per thread: tests beside each other do not see one another.
#![expect(
    unsafe_code,
    reason = "the allocator's interface is unsafe; all calls go on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread allocated and did not free.
pub(crate) fn bytes() -> i64 {
    BYTES.get()
}

/// The system's allocator, counted.
pub(crate) struct Counting;

fn count(new: usize, old: usize) {
    // A thread that ends has no counters any more, and nobody to ask for them.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + u64::from(new > old)));
    let change = i64::try_from(new).unwrap_or(0) - i64::try_from(old).unwrap_or(0);
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + change));
}

// SAFETY: every call goes on to the system's allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as our caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
