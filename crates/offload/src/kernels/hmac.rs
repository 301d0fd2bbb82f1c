//! HMAC (RFC 2104) over sixteen messages at once, of any lengths: where one ends, the next takes
//! its lane.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::sha::{Hash, LANES, Sha1, Sha256, State};
use super::vector::detected;
use crate::jobs::{Job, Jobs, MAX_DIGEST};

/// HMAC-SHA1 or HMAC-SHA2-256 with one key.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct HmacKernel {
    /// The hash's state after the block of key and inner pad.
    inner: [u32; 8],
    /// The hash's state after the block of key and outer pad.
    outer: [u32; 8],
    #[zeroize(skip)]
    algorithm: Algorithm,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Sha1,
    Sha256,
}

impl HmacKernel {
    /// HMAC-SHA1. None for keys longer than a block and where the processor lacks the instructions.
    pub(crate) fn sha1(key: &[u8]) -> Option<Self> {
        Self::new::<Sha1>(key, Algorithm::Sha1)
    }

    /// HMAC-SHA2-256, as [`sha1`](Self::sha1).
    pub(crate) fn sha256(key: &[u8]) -> Option<Self> {
        Self::new::<Sha256>(key, Algorithm::Sha256)
    }

    fn new<H: Hash>(key: &[u8], algorithm: Algorithm) -> Option<Self> {
        if !detected() {
            return None;
        }
        let padded = |pad: u8| {
            let mut block = [pad; 64];
            for (byte, key) in block.get_mut(..key.len())?.iter_mut().zip(key) {
                *byte ^= key;
            }
            let mut state = H::START.map(|word| [word; LANES]);
            let mut blocks = [block];
            // SAFETY: the features were just detected.
            unsafe { H::compress(&mut state, &[&blocks; LANES], 1) };
            let result = state.map(|[first, ..]| first);
            state.zeroize();
            blocks.zeroize();
            block.zeroize();
            Some(result)
        };
        Some(Self {
            inner: padded(0x36)?,
            outer: padded(0x5C)?,
            algorithm,
        })
    }

    /// From how many messages on sixteen lanes are faster than one message after the other. Measured
    /// against aws-lc-rs, which uses the processor's own SHA instructions.
    pub(crate) const fn worthwhile(&self) -> usize {
        match self.algorithm {
            Algorithm::Sha1 => 6,
            Algorithm::Sha256 => 10,
        }
    }

    /// Hands the value of each job to [`Jobs::done`], at most `limit` of them, in any order.
    pub(crate) fn run(&self, buffer: &mut [u8], jobs: &mut impl Jobs, limit: usize) {
        match self.algorithm {
            Algorithm::Sha1 => self.run_with::<Sha1>(buffer, jobs, limit),
            Algorithm::Sha256 => self.run_with::<Sha256>(buffer, jobs, limit),
        }
    }

    fn run_with<H: Hash>(&self, buffer: &mut [u8], jobs: &mut impl Jobs, limit: usize) {
        let mut limit = limit;
        let mut state: State = [[0; LANES]; 8];
        let mut lanes: [Option<Lane>; LANES] = [const { None }; LANES];
        loop {
            for (at, lane) in lanes.iter_mut().enumerate() {
                while lane.is_none() && limit > 0 {
                    let Some(job) = jobs.next(buffer) else { break };
                    limit -= 1;
                    *lane = Lane::new(job, buffer);
                    set(&mut state, at, &self.inner);
                }
            }
            let Some(steps) = lanes.iter().flatten().map(|lane| lane.blocks).min() else {
                break;
            };
            let Some(idle) = lanes.iter().flatten().next() else {
                break;
            };
            let idle = idle.source(buffer);
            let messages = lanes
                .each_ref()
                .map(|lane| lane.as_ref().map_or(idle, |lane| lane.source(buffer)));
            // SAFETY: a kernel exists only where the features were detected.
            unsafe { H::compress(&mut state, &messages, steps) };
            for (at, place) in lanes.iter_mut().enumerate() {
                let Some(lane) = place else { continue };
                if lane.advance(steps) {
                    continue;
                }
                let digest = digest(&state, at);
                let digest = digest.get(..H::WORDS * 4).unwrap_or(&digest);
                if lane.begin_outer(digest) {
                    set(&mut state, at, &self.outer);
                } else {
                    jobs.done(buffer, &lane.job, digest);
                    *place = None;
                }
            }
        }
        state.zeroize();
    }
}

/// Source of a lane's blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The message's whole blocks, in the buffer.
    Message,
    /// The message's end with padding.
    Tail,
    /// The inner digest with padding.
    Outer,
}

struct Lane {
    job: Job,
    phase: Phase,
    /// Offset in the buffer of the next block; in [`Phase::Message`] only.
    at: usize,
    /// Blocks left in this phase.
    blocks: usize,
    tail: [[u8; 64]; 2],
    tail_blocks: usize,
}

impl Lane {
    /// None where the job reaches out of the buffer.
    fn new(job: Job, buffer: &[u8]) -> Option<Self> {
        let message = buffer.get(job.range())?;
        let (whole, rest) = message.as_chunks::<64>();
        let suffix = job.suffix();
        let mut tail = [[0; 64]; 2];
        let bytes = tail.as_flattened_mut();
        let used = rest.len() + suffix.len();
        bytes.get_mut(..rest.len())?.copy_from_slice(rest);
        bytes.get_mut(rest.len()..used)?.copy_from_slice(suffix);
        *bytes.get_mut(used)? = 0x80;
        // FIPS 180-4 §5.1.1: the length in bits, the block of the key included.
        let tail_blocks = (used + 9).div_ceil(64);
        let bits = (64 + message.len() + suffix.len()) as u64 * 8;
        let (_, length) = bytes.get_mut(..tail_blocks * 64)?.split_last_chunk_mut()?;
        *length = bits.to_be_bytes();
        let (phase, blocks) = if whole.is_empty() {
            (Phase::Tail, tail_blocks)
        } else {
            (Phase::Message, whole.len())
        };
        Some(Self {
            at: job.range().start,
            job,
            phase,
            blocks,
            tail,
            tail_blocks,
        })
    }

    /// The blocks of this phase that are left.
    fn source<'a>(&'a self, buffer: &'a [u8]) -> &'a [[u8; 64]] {
        match self.phase {
            Phase::Message => {
                let rest = buffer.get(self.at..).unwrap_or(&[]);
                rest.as_chunks().0
            }
            Phase::Tail => {
                let from = self.tail_blocks.saturating_sub(self.blocks);
                self.tail.get(from..).unwrap_or(&[])
            }
            Phase::Outer => &self.tail,
        }
    }

    /// Counts blocks as read; false when the digest of this phase is complete.
    fn advance(&mut self, steps: usize) -> bool {
        self.blocks = self.blocks.saturating_sub(steps);
        self.at += steps * 64;
        if self.blocks == 0 && self.phase == Phase::Message {
            (self.phase, self.blocks) = (Phase::Tail, self.tail_blocks);
        }
        self.blocks != 0
    }

    /// Goes on with the outer hash; false if that was it.
    fn begin_outer(&mut self, digest: &[u8]) -> bool {
        if self.phase == Phase::Outer {
            return false;
        }
        let [block, _] = &mut self.tail;
        block.fill(0);
        let bits = (64 + digest.len()) as u64 * 8;
        let end = [0x80].iter().chain(&[0; 64]);
        for (byte, value) in block.iter_mut().zip(digest.iter().chain(end)) {
            *byte = *value;
        }
        if let Some((_, length)) = block.split_last_chunk_mut() {
            *length = bits.to_be_bytes();
        }
        (self.phase, self.blocks) = (Phase::Outer, 1);
        true
    }
}

/// Puts a state into a lane.
fn set(state: &mut State, lane: usize, value: &[u32; 8]) {
    for (word, value) in state.iter_mut().zip(value) {
        if let Some(place) = word.get_mut(lane) {
            *place = *value;
        }
    }
}

/// A lane's state as bytes.
fn digest(state: &State, lane: usize) -> [u8; MAX_DIGEST] {
    let mut digest = [0; MAX_DIGEST];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.get(lane).copied().unwrap_or(0).to_be_bytes();
    }
    digest
}
