//! Eight blocks side by side, in groups: for ECB, CTR, CBC decryption and several CBC chains.
//!
//! A group is four registers, one per sub-block; lane `p` of register `q` holds byte `8q + p` of
//! the eight blocks. One instruction substitutes a register. Transposing the squares of 8×8 bits in
//! the lanes turns bytes into slices: byte `64q + 8p + i` then holds bit `i` of byte `8q + p` of
//! all blocks, so the bit permutation moves whole bytes. A second transposition leads back.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of bits and bytes of a block, below 256"
)]

use super::super::{Chain, Counter, split_front};
use super::tables::{IDENTITY, Round, TRANSPOSE, TRANSPOSE_REVERSED, Tables};
use super::{V, load, store};
use crate::{BLOCK_SIZE, Block};
use core::arch::x86_64::*;
use inout::InOutBuf;

type Group = [V; 4];

/// Blocks in a group.
const WIDTH: usize = 8;

/// Bytes whose source lies in the second pair of registers when a group is put together.
const SECOND_PAIR: u64 = 0xF0F0_F0F0_F0F0_F0F0;

/// Source of byte `b` of lane `p` of register `q`: byte `8q + p` of block `b`, blocks 0
/// to 3 being in the first pair of registers and 4 to 7 in the second.
const TO_GROUP: [[u8; 64]; 4] = {
    let mut order = [[0; 64]; 4];
    let mut n = 0;
    while n < 256 {
        let (q, p, b) = (n / 64, n / 8 % 8, n % 8);
        order[q][n % 64] = (32 * (b % 4) + 8 * q + p) as u8;
        n += 1;
    }
    order
};

/// The way back: byte `8q + p` of block `b` is byte `b` of lane `p` of register `q`; registers 0
/// and 1 are the first pair.
const FROM_GROUP: [[u8; 64]; 4] = {
    let mut order = [[0; 64]; 4];
    let mut n = 0;
    while n < 256 {
        let (b, byte) = (n / 32, n % 32);
        order[n / 64][n % 64] = (64 * (byte / 8 % 2) + 8 * (byte % 8) + b) as u8;
        n += 1;
    }
    order
};

/// Bytes whose source lies in the second pair on the way back.
const SECOND_HALF: u64 = 0xFFFF_0000_FFFF_0000;

/// Byte `index` of a table of 256 bytes; `second` tells which bytes come from `table[2..]`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn choose(table: &[V; 4], index: V, second: __mmask64) -> V {
    let low = _mm512_permutex2var_epi8(table[0], index, table[1]);
    let high = _mm512_permutex2var_epi8(table[2], index, table[3]);
    _mm512_mask_blend_epi8(second, low, high)
}

/// Chooses 256 bytes in a fixed order.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn rearrange(table: &[V; 4], order: &[[u8; 64]; 4], second: __mmask64) -> [V; 4] {
    let mut chosen = *table;
    for (v, order) in chosen.iter_mut().zip(order) {
        *v = choose(table, load(order), second);
    }
    chosen
}

/// Blocks as they lie in memory, two per register, to a group.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn to_group(lines: &[V; 4]) -> Group {
    rearrange(lines, &TO_GROUP, SECOND_PAIR)
}

/// A group to blocks as they lie in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn from_group(group: &Group) -> [V; 4] {
    rearrange(group, &FROM_GROUP, SECOND_HALF)
}

/// Masks of the bytes that come from the second pair: those with the highest bit set.
#[target_feature(enable = "avx512bw")]
#[inline]
fn selectors([a, b, c, d]: &[V; 4]) -> [__mmask64; 4] {
    [
        _mm512_movepi8_mask(*a),
        _mm512_movepi8_mask(*b),
        _mm512_movepi8_mask(*c),
        _mm512_movepi8_mask(*d),
    ]
}

/// Calls `work` for each round's tables in the order of encryption.
macro_rules! each_round {
    ($tables:expr, $round:ident, $work:block) => {{
        let mut r = 0;
        for _ in 0..$tables.count {
            let $round: &Round = &$tables.rounds[r];
            $work
            r += 1;
            if r == $tables.period {
                r = 0;
            }
        }
    }};
}

/// Encrypts `G` groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn encrypt<const G: usize>(tables: &Tables, groups: &mut [Group; G]) {
    let there = _mm512_set1_epi64(TRANSPOSE);
    let back = _mm512_set1_epi64(TRANSPOSE_REVERSED);
    each_round!(tables, round, {
        let [a, b, c, d] = &round.permute;
        let index = [a.get(), b.get(), c.get(), d.get()];
        let second = selectors(&index);
        for group in &mut *groups {
            let mut slices = *group;
            for q in 0..4 {
                let matrix = _mm512_set1_epi64(round.forward[q]);
                let substituted = _mm512_gf2p8affineinv_epi64_epi8::<0x63>(group[q], matrix);
                slices[q] = _mm512_gf2p8affine_epi64_epi8::<0>(there, substituted);
            }
            for q in 0..4 {
                let permuted = choose(&slices, index[q], second[q]);
                group[q] = _mm512_gf2p8affine_epi64_epi8::<0>(back, permuted);
            }
        }
    });
}

/// Decrypts `G` groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn decrypt<const G: usize>(tables: &Tables, groups: &mut [Group; G]) {
    let there = _mm512_set1_epi64(TRANSPOSE);
    let back = _mm512_set1_epi64(TRANSPOSE_REVERSED);
    let identity = _mm512_set1_epi64(IDENTITY);
    let mut r = (tables.count - 1) % tables.period;
    for _ in 0..tables.count {
        let round = &tables.rounds[r];
        let [a, b, c, d] = &round.unpermute;
        let index = [a.get(), b.get(), c.get(), d.get()];
        let second = selectors(&index);
        for group in &mut *groups {
            let mut slices = *group;
            for v in &mut slices {
                *v = _mm512_gf2p8affine_epi64_epi8::<0>(there, *v);
            }
            for q in 0..4 {
                let permuted = choose(&slices, index[q], second[q]);
                // The constant of the S-box goes off on the way.
                let linear = _mm512_gf2p8affine_epi64_epi8::<0x63>(back, permuted);
                let matrix = _mm512_set1_epi64(round.inverse[q]);
                let inverted = _mm512_gf2p8affine_epi64_epi8::<0>(linear, matrix);
                group[q] = _mm512_gf2p8affineinv_epi64_epi8::<0>(inverted, identity);
            }
        }
        r = if r == 0 { tables.period - 1 } else { r - 1 };
    }
}

/// Reads `8 * G` blocks as they lie in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn read<const G: usize>(blocks: &[Block]) -> [[V; 4]; G] {
    let (source, _) = blocks.as_flattened().as_chunks::<64>();
    let mut lines = [[_mm512_setzero_si512(); 4]; G];
    for (v, line) in lines.as_flattened_mut().iter_mut().zip(source) {
        *v = load(line);
    }
    lines
}

/// Reads `G` groups from `8 * G` blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn read_groups<const G: usize>(blocks: &[Block]) -> [Group; G] {
    let mut groups = read::<G>(blocks);
    for group in &mut groups {
        *group = to_group(group);
    }
    groups
}

/// Writes `G` groups to `8 * G` blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn write_groups<const G: usize>(blocks: &mut [Block], groups: &[Group; G]) {
    let mut lines = *groups;
    for group in &mut lines {
        *group = from_group(group);
    }
    write(blocks, &lines);
}

/// Writes `8 * G` blocks as they lie in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn write<const G: usize>(blocks: &mut [Block], groups: &[[V; 4]; G]) {
    let (lines, _) = blocks.as_flattened_mut().as_chunks_mut::<64>();
    for (line, v) in lines.iter_mut().zip(groups.as_flattened()) {
        store(line, *v);
    }
}

/// Groups that are worked on together: enough independent work to hide the latencies.
const BATCH: usize = 4;

/// Walks over all blocks in batches, then groups, then a padded group.
macro_rules! in_batches {
    ($blocks:ident, $one:ident, $($argument:expr),*) => {{
        let mut rest = $blocks;
        while rest.len() >= BATCH * WIDTH {
            let (some, others) = split_front(rest, BATCH * WIDTH);
            $one::<BATCH>($($argument,)* some);
            rest = others;
        }
        while rest.len() >= WIDTH {
            let (some, others) = split_front(rest, WIDTH);
            $one::<1>($($argument,)* some);
            rest = others;
        }
        if !rest.is_empty() {
            let mut padded = [[0; BLOCK_SIZE]; WIDTH];
            let count = rest.len();
            padded[..count].copy_from_slice(rest.get_in());
            $one::<1>($($argument,)* padded.as_mut_slice().into());
            rest.get_out().copy_from_slice(&padded[..count]);
        }
    }};
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn encrypt_blocks(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    in_batches!(blocks, encrypt_batch, tables);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn encrypt_batch<const G: usize>(tables: &Tables, mut blocks: InOutBuf<'_, '_, Block>) {
    let mut groups = read_groups::<G>(blocks.get_in());
    encrypt(tables, &mut groups);
    write_groups(blocks.get_out(), &groups);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn decrypt_blocks(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    in_batches!(blocks, decrypt_batch, tables);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn decrypt_batch<const G: usize>(tables: &Tables, mut blocks: InOutBuf<'_, '_, Block>) {
    let mut groups = read_groups::<G>(blocks.get_in());
    decrypt(tables, &mut groups);
    write_groups(blocks.get_out(), &groups);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn cbc_decrypt(tables: &Tables, value: &mut Block, blocks: InOutBuf<'_, '_, Block>) {
    let Some(last) = blocks.get_in().last().copied() else {
        return;
    };
    in_batches!(blocks, cbc_decrypt_batch, tables, value);
    *value = last;
}

/// Decrypts a batch of a chain; `value` is the block before it and then its last block.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn cbc_decrypt_batch<const G: usize>(
    tables: &Tables,
    value: &mut Block,
    mut blocks: InOutBuf<'_, '_, Block>,
) {
    let mut groups = read_groups::<G>(blocks.get_in());
    decrypt(tables, &mut groups);
    let last = blocks.get_in()[WIDTH * G - 1];
    for group in &mut groups {
        *group = from_group(group);
    }
    // From the end, since output may overwrite the input that the next line needs.
    for (i, line) in groups.as_flattened().iter().enumerate().rev() {
        let text = if i == 0 {
            let before = [*value, blocks.get_in()[0]];
            _mm512_xor_si512(*line, load_pair(&before))
        } else {
            _mm512_xor_si512(*line, load_pair(&blocks.get_in()[2 * i - 1..]))
        };
        let (lines, _) = blocks.get_out()[2 * i..].as_flattened_mut().as_chunks_mut();
        store(&mut lines[0], text);
    }
    *value = last;
}

/// Reads the first two blocks.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_pair(blocks: &[Block]) -> V {
    let (lines, _) = blocks.as_flattened().as_chunks();
    load(&lines[0])
}

/// Source of byte `b` of lane `p` if the lanes are eight little-endian numbers and the
/// blocks end in these numbers, big-endian.
const COUNT: [u8; 64] = {
    let mut order = [0; 64];
    let mut n = 0;
    while n < 64 {
        order[n] = (8 * (n % 8) + 7 - n / 8) as u8;
        n += 1;
    }
    order
};

/// Lane `p` is byte `8q + p` of a block, eight times.
const REPEAT: [[u8; 64]; 3] = {
    let mut order = [[0; 64]; 3];
    let mut n = 0;
    while n < 192 {
        order[n / 64][n % 64] = (n / 8) as u8;
        n += 1;
    }
    order
};

/// The next `8 * G` counter blocks as groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn counters<const G: usize>(counter: &mut Counter) -> [Group; G] {
    let (first, low) = (counter.block(), counter.low_word());
    let count = (WIDTH * G) as u64;
    if low.checked_add(count).is_none() {
        // The addition carries into the next word; rare enough to be slow.
        let blocks: [[Block; WIDTH]; G] =
            core::array::from_fn(|_| core::array::from_fn(|_| counter.next_block()));
        return read_groups(blocks.as_flattened());
    }
    counter.add(count);
    let first = load_pair(&[first; 2]);
    let mut group = [first; 4];
    for (v, order) in group.iter_mut().zip(&REPEAT) {
        *v = _mm512_permutexvar_epi8(load(order), first);
    }
    let steps = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    let mut groups = [group; G];
    for (g, group) in groups.iter_mut().enumerate() {
        let start = low.wrapping_add((WIDTH * g) as u64).cast_signed();
        let numbers = _mm512_add_epi64(_mm512_set1_epi64(start), steps);
        group[3] = _mm512_permutexvar_epi8(load(&COUNT), numbers);
    }
    groups
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn ctr_xor(tables: &Tables, counter: &mut Counter, blocks: InOutBuf<'_, '_, Block>) {
    let mut end = *counter;
    end.add(blocks.len() as u64);
    in_batches!(blocks, ctr_batch, tables, counter);
    // A padded group counts too far.
    *counter = end;
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn ctr_batch<const G: usize>(
    tables: &Tables,
    counter: &mut Counter,
    mut blocks: InOutBuf<'_, '_, Block>,
) {
    let mut groups = counters::<G>(counter);
    encrypt(tables, &mut groups);
    let mut lines = read::<G>(blocks.get_in());
    for (lines, group) in lines.iter_mut().zip(&groups) {
        for (line, stream) in lines.iter_mut().zip(from_group(group)) {
            *line = _mm512_xor_si512(*line, stream);
        }
    }
    write(blocks.get_out(), &lines);
}

/// Encrypts chains of any lengths, eight or sixteen at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn cbc_encrypt_many(tables: &Tables, chains: &mut [Chain<'_>]) {
    if chains.len() > WIDTH {
        run_chains::<2>(tables, chains);
    } else {
        run_chains::<1>(tables, chains);
    }
}

/// A place for one chain: the chain's number and how many of its blocks are done.
type Seat = Option<(usize, usize)>;

/// Encrypts chains in `8 * G` places; a place whose chain ends takes the next chain.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn run_chains<const G: usize>(tables: &Tables, chains: &mut [Chain<'_>]) {
    let mut waiting = 0;
    let mut seats: [[Seat; WIDTH]; G] = [[None; WIDTH]; G];
    loop {
        for seat in seats.as_flattened_mut() {
            if seat.is_some_and(|(chain, done)| done == chains[chain].blocks.len()) {
                *seat = None;
            }
            while seat.is_none() && waiting < chains.len() {
                if !chains[waiting].blocks.is_empty() {
                    *seat = Some((waiting, 0));
                }
                waiting += 1;
            }
        }
        let mut taken = seats.as_flattened().iter().flatten();
        let Some(&(chain, done)) = taken.next() else {
            return;
        };
        if taken.next().is_none() {
            // The last one alone is faster in the serial form.
            let Chain { value, blocks } = &mut chains[chain];
            let (_, rest) = blocks.reborrow().split_at(done);
            return super::serial::cbc_encrypt(tables, value, rest);
        }
        lockstep(tables, chains, &mut seats);
    }
}

/// Encrypts as many blocks of all seated chains as the one with the fewest left has.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn lockstep<const G: usize>(
    tables: &Tables,
    chains: &mut [Chain<'_>],
    seats: &mut [[Seat; WIDTH]; G],
) {
    let left = |seat: &Seat| seat.map(|(chain, done)| chains[chain].blocks.len() - done);
    let steps = seats
        .as_flattened()
        .iter()
        .filter_map(left)
        .min()
        .unwrap_or(0);

    let mut buffer = [[[0; BLOCK_SIZE]; WIDTH]; G];
    for (slot, seat) in buffer
        .as_flattened_mut()
        .iter_mut()
        .zip(seats.as_flattened())
    {
        if let Some((chain, _)) = seat {
            *slot = *chains[*chain].value;
        }
    }
    let mut state = read_groups::<G>(buffer.as_flattened());
    for _ in 0..steps {
        for (slot, seat) in buffer
            .as_flattened_mut()
            .iter_mut()
            .zip(seats.as_flattened())
        {
            if let Some((chain, done)) = seat {
                *slot = *chains[*chain].blocks.get(*done).get_in();
            }
        }
        for (group, text) in state
            .iter_mut()
            .zip(read_groups::<G>(buffer.as_flattened()))
        {
            for q in 0..4 {
                group[q] = _mm512_xor_si512(group[q], text[q]);
            }
        }
        encrypt(tables, &mut state);
        write_groups(buffer.as_flattened_mut(), &state);
        for (slot, seat) in buffer.as_flattened().iter().zip(seats.as_flattened_mut()) {
            if let Some((chain, done)) = seat {
                *chains[*chain].blocks.get(*done).get_out() = *slot;
                *done += 1;
            }
        }
    }
    for (slot, seat) in buffer.as_flattened().iter().zip(seats.as_flattened()) {
        if let Some((chain, _)) = seat {
            *chains[*chain].value = *slot;
        }
    }
}
