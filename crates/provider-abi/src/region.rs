//! Input and output of one call: two regions of memory that may be the same or overlap.
#![expect(
    unsafe_code,
    reason = "callers in C may pass overlapping buffers, which references cannot describe"
)]

use std::marker::PhantomData;

use inout::InOutBuf;

use crate::CallError;

/// The bytes that a call reads and those that it may write.
///
/// The two may overlap in any way. Reading copies out and writing copies in; only
/// [`Self::blocks`] gives access in place, and only where that is sound.
pub struct Regions<'a> {
    input: *const u8,
    input_len: usize,
    output: *mut u8,
    output_len: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Regions<'a> {
    /// Input of `input_len` bytes and room for `output_len` bytes of output.
    ///
    /// # Errors
    /// [`CallError::NullPointer`] when one is null and not empty.
    ///
    /// # Safety
    /// For the lifetime `'a`, `input` must be valid for reading `input_len` bytes and `output` for
    /// writing `output_len` bytes, and nothing else may access these bytes. A null pointer is
    /// allowed.
    pub unsafe fn new(
        input: *const u8,
        input_len: usize,
        output: *mut u8,
        output_len: usize,
    ) -> Result<Self, CallError> {
        if input.is_null() && input_len > 0 {
            return Err(CallError::NullPointer { bytes: input_len });
        }
        // Who calls with a null output wants none; the room for it is told regardless.
        let output_len = if output.is_null() { 0 } else { output_len };
        Ok(Self {
            input,
            input_len,
            output,
            output_len,
            lifetime: PhantomData,
        })
    }

    /// Regions of two separate slices.
    pub fn separate(input: &'a [u8], output: &'a mut [u8]) -> Self {
        Self {
            input: input.as_ptr(),
            input_len: input.len(),
            output: output.as_mut_ptr(),
            output_len: output.len(),
            lifetime: PhantomData,
        }
    }

    /// Regions inside of one slice: `input_len` bytes from `input`, and all from `output` on.
    ///
    /// # Panics
    /// If the slice ends before.
    pub fn within(memory: &'a mut [u8], input: usize, input_len: usize, output: usize) -> Self {
        assert!(input + input_len <= memory.len() && output <= memory.len());
        let start = memory.as_mut_ptr();
        Self {
            input: start.wrapping_add(input),
            input_len,
            output: start.wrapping_add(output),
            output_len: memory.len() - output,
            lifetime: PhantomData,
        }
    }

    /// Bytes of input.
    pub fn input_len(&self) -> usize {
        self.input_len
    }

    /// Says whether the caller wants output at all.
    pub fn has_output(&self) -> bool {
        !self.output.is_null()
    }

    /// Moves `len` bytes of input from `input_at` to the output at `output_at` and gives them to be processed there. What
    /// the input had at the same place is gone.
    ///
    /// # Panics
    /// If a range is outside of its region.
    pub fn moved(&mut self, input_at: usize, output_at: usize, len: usize) -> &mut [u8] {
        let fits = |at: usize, region: usize| at.checked_add(len).is_some_and(|end| end <= region);
        assert!(fits(input_at, self.input_len), "input range");
        assert!(fits(output_at, self.output_len), "output range");
        if len == 0 {
            return &mut [];
        }
        let (from, to) = (
            self.input.wrapping_add(input_at),
            self.output.wrapping_add(output_at),
        );
        // SAFETY: both ranges lie in their regions, as just checked, which `new` promises to be readable and writable;
        // `copy` takes ranges that overlap. The slice borrows these regions, and nobody else may access them.
        unsafe {
            std::ptr::copy(from, to, len);
            std::slice::from_raw_parts_mut(to, len)
        }
    }

    /// Checks that there is room for `needed` bytes of output.
    pub fn need_room(&self, needed: usize) -> Result<(), CallError> {
        if needed <= self.output_len {
            return Ok(());
        }
        Err(CallError::OutputTooSmall {
            needed,
            room: self.output_len,
        })
    }

    /// Copies the input from `at` on into `into`.
    ///
    /// # Panics
    /// When the input ends before.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let end = at.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= self.input_len), "read range");
        // SAFETY: the range lies in the input, as just checked, which `new` promises to be
        // readable; `into` is a reference, hence memory of our own that does not overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.input.wrapping_add(at),
                into.as_mut_ptr(),
                into.len(),
            );
        }
    }

    /// Copies `bytes` to the output at `at`. What the input had at the same place is gone.
    ///
    /// # Panics
    /// When the output ends before.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.output_len), "write range");
        // SAFETY: the range lies in the output, as just checked, which `new` promises to be
        // writable; `bytes` is a reference, hence memory of our own that does not overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.output.wrapping_add(at),
                bytes.len(),
            );
        }
    }

    /// Distance in memory of output `output_at` behind input `input_at`; negative when it lies
    /// before.
    fn distance(&self, input_at: usize, output_at: usize) -> isize {
        let input = self.input.addr().wrapping_add(input_at);
        let output = self.output.addr().wrapping_add(output_at);
        output.wrapping_sub(input).cast_signed()
    }

    /// Overlap of `len` bytes of input from `input_at` with as many of output from `output_at`.
    pub fn overlap(&self, input_at: usize, output_at: usize, len: usize) -> Overlap {
        match self.distance(input_at, output_at) {
            0 => Overlap::None,
            distance if distance.unsigned_abs() >= len => Overlap::None,
            distance if distance < 0 => Overlap::Behind,
            distance => Overlap::Ahead(distance.unsigned_abs()),
        }
    }

    /// `count` blocks of `N` bytes of input from `input_at` with the output at `output_at` that they become.
    ///
    /// # Panics
    /// When a range is outside of its region, or [`Self::overlap`] is not [`Overlap::None`].
    pub fn blocks<const N: usize>(
        &mut self,
        input_at: usize,
        output_at: usize,
        count: usize,
    ) -> InOutBuf<'_, '_, [u8; N]> {
        let (input, output) = self.check(input_at, output_at, count.checked_mul(N));
        // SAFETY: both ranges hold `count` blocks, which are arrays of bytes without alignment;
        // they are the same or do not overlap, as `check` has made sure; `new` promises that they
        // are readable and writable and not accessed otherwise.
        unsafe { InOutBuf::from_raw(input.cast(), output.cast(), count) }
    }

    /// The same for `len` single bytes.
    ///
    /// # Panics
    /// As [`Self::blocks`].
    pub fn bytes(&mut self, input_at: usize, output_at: usize, len: usize) -> InOutBuf<'_, '_, u8> {
        let (input, output) = self.check(input_at, output_at, Some(len));
        // SAFETY: as in `blocks`.
        unsafe { InOutBuf::from_raw(input, output, len) }
    }

    fn check(&self, input_at: usize, output_at: usize, len: Option<usize>) -> (*const u8, *mut u8) {
        let fits = |at: usize, region: usize| {
            len.and_then(|len| at.checked_add(len))
                .is_some_and(|end| end <= region)
        };
        assert!(fits(input_at, self.input_len), "input range");
        assert!(fits(output_at, self.output_len), "output range");
        let len = len.unwrap_or(0);
        assert_eq!(self.overlap(input_at, output_at, len), Overlap::None);
        if len == 0 {
            // Possibly null, which no slice may be, the empty one included.
            let nothing = std::ptr::NonNull::dangling().as_ptr();
            return (nothing, nothing);
        }
        (
            self.input.wrapping_add(input_at),
            self.output.wrapping_add(output_at),
        )
    }
}

/// Position of output relative to input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Apart, or exactly the same bytes.
    None,
    /// Overlapping, the output before the input: writing never reaches what is still to be read
    /// as long as reading is as far as writing.
    Behind,
    /// Overlapping, the output this many bytes behind the input: writing reaches input that far
    /// ahead.
    Ahead(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_told_apart() {
        let mut memory = [0u8; 200];
        let mut at = |input, output, len| {
            Regions::within(&mut memory, input, len, output).overlap(0, 0, len)
        };
        assert_eq!(at(10, 10, 64), Overlap::None);
        assert_eq!(at(0, 64, 64), Overlap::None);
        assert_eq!(at(64, 0, 64), Overlap::None);
        assert_eq!(at(0, 63, 64), Overlap::Ahead(63));
        assert_eq!(at(63, 0, 64), Overlap::Behind);
        let regions = Regions::within(&mut memory, 10, 64, 10);
        assert_eq!(regions.overlap(12, 32, 32), Overlap::Ahead(20));
        assert_eq!(regions.overlap(32, 12, 32), Overlap::Behind);
    }

    #[test]
    fn ranges_are_checked() {
        let (input, mut output) = ([7u8; 40], [0u8; 40]);
        let mut regions = Regions::separate(&input, &mut output);
        regions.write(8, &input[..32]);
        assert_eq!(regions.blocks::<32>(8, 8, 1).len(), 1);
        assert!(regions.need_room(40).is_ok());
        assert_eq!(
            regions.need_room(41),
            Err(CallError::OutputTooSmall {
                needed: 41,
                room: 40
            })
        );
        let refused: [fn(&mut Regions<'_>); 5] = [
            |r| r.read(9, &mut [0; 32]),
            |r| r.write(9, &[0; 32]),
            |r| {
                let _ = r.blocks::<32>(9, 0, 1);
            },
            |r| {
                let _ = r.blocks::<32>(0, 9, 1);
            },
            |r| {
                let _ = r.blocks::<32>(0, 0, usize::MAX);
            },
        ];
        for call in refused {
            let mut regions = Regions::separate(&input, &mut output);
            let call = std::panic::AssertUnwindSafe(|| call(&mut regions));
            assert!(std::panic::catch_unwind(call).is_err());
        }
    }

    #[test]
    fn blocks_that_overlap_are_refused() {
        let mut memory = [0u8; 96];
        let mut regions = Regions::within(&mut memory, 0, 64, 16);
        let call = std::panic::AssertUnwindSafe(|| regions.blocks::<32>(0, 0, 2).len());
        assert!(std::panic::catch_unwind(call).is_err());
    }

    #[test]
    fn bytes_are_moved_over_any_overlap() {
        for (input, output) in [(0, 0), (0, 7), (7, 0), (0, 40)] {
            let mut memory: [u8; 80] = std::array::from_fn(|at| at.to_le_bytes()[0]);
            let expected = memory[input..input + 30].to_vec();
            let mut regions = Regions::within(&mut memory, input, 30, output);
            assert_eq!(regions.moved(0, 0, 30), expected);
        }
        let mut memory = [0u8; 40];
        let mut regions = Regions::within(&mut memory, 0, 30, 20);
        assert!(regions.moved(30, 20, 0).is_empty());
        for (input, output, len) in [(1, 0, 30), (0, 1, 20), (0, usize::MAX, 1)] {
            let mut regions = Regions::within(&mut memory, 0, 30, 20);
            let call = std::panic::AssertUnwindSafe(|| regions.moved(input, output, len).len());
            assert!(std::panic::catch_unwind(call).is_err());
        }
    }

    #[test]
    fn null_is_refused_unless_empty() {
        let null = std::ptr::null_mut();
        // SAFETY: no bytes are announced.
        assert!(unsafe { Regions::new(null, 0, null, 0) }.is_ok());
        // SAFETY: null is refused without being read.
        let refused = unsafe { Regions::new(null, 1, null, 0) };
        assert!(matches!(refused, Err(CallError::NullPointer { bytes: 1 })));
    }
}
