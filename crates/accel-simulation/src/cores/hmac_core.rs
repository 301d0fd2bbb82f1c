//! The functional model of `hw/hmac`.

use zeroize::Zeroize;

use crate::cores::bus::{BusOperation, Core, CoreError};

/// Commands of the core's control word.
pub(crate) mod command {
    pub(crate) const KEY: u32 = 1;
    pub(crate) const START: u32 = 2;
    pub(crate) const ZEROISE: u32 = 3;
    pub(crate) const ACKNOWLEDGE: u32 = 4;
    pub(crate) const BLOCK: u32 = 5;
    pub(crate) const FINISH: u32 = 6;
}

type State = [u32; 8];

/// First states of FIPS 180-4, sections 5.3.1 and 5.3.3; SHA-1 has five words.
const FIRST_1: State = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
    0,
    0,
    0,
];
const FIRST_256: State = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Constants of SHA-256, section 4.2.2.
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// SHA-1, SHA-256 and HMAC with them: the same bus, results and cycles as the Verilog.
#[derive(Default)]
pub struct HmacCore {
    block: [u32; 16],
    words: u16,
    chain: State,
    inner: State,
    outer: State,
    wide: bool,
    key_wide: bool,
    keyed: bool,
    key_ready: bool,
    started: bool,
    ready: bool,
    error: bool,
    busy: u64,
    cycles: u64,
}

impl Drop for HmacCore {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl HmacCore {
    /// A core after its reset.
    pub fn new() -> Self {
        let mut core = Self::default();
        core.cycles += 1;
        core
    }

    fn wipe(&mut self) {
        self.block.zeroize();
        for state in [&mut self.chain, &mut self.inner, &mut self.outer] {
            state.zeroize();
        }
        self.words = 0;
        self.wide = false;
        self.key_wide = false;
        self.keyed = false;
        self.key_ready = false;
        self.started = false;
        self.ready = false;
        self.error = false;
        self.busy = 0;
    }

    fn write(&mut self, address: u16, data: u32) {
        let idle = self.busy == 0;
        self.cycles += 1;
        self.busy = self.busy.saturating_sub(1);
        let done = match address {
            0 => self.command(data, idle),
            0x10..0x20 => {
                let index = address - 0x10;
                let fits = idle && (index == 0 || index == self.words);
                if fits {
                    self.block.rotate_left(1);
                    if let Some(last) = self.block.last_mut() {
                        *last = data;
                    }
                    self.words = index + 1;
                }
                fits
            }
            _ => false,
        };
        self.error |= !done;
    }

    /// Carries a command out; false if it is refused.
    fn command(&mut self, data: u32, idle: bool) -> bool {
        let wide = data >> 4 & 1 == 1;
        let full = self.words == 16;
        match data & 7 {
            command::ZEROISE => {
                self.wipe();
                true
            }
            _ if !idle => false,
            command::ACKNOWLEDGE => {
                self.error = false;
                true
            }
            command::KEY if full => {
                self.inner = compress(wide, first(wide), self.block.map(|word| word ^ 0x3636_3636));
                self.outer = compress(wide, first(wide), self.block.map(|word| word ^ 0x5c5c_5c5c));
                self.chain = State::default();
                self.wide = wide;
                self.key_wide = wide;
                self.key_ready = true;
                self.started = false;
                self.ready = false;
                self.spend(2);
                true
            }
            command::START => {
                let keyed = data >> 5 & 1 == 1;
                if keyed && !(self.key_ready && self.key_wide == wide) {
                    return false;
                }
                self.wide = wide;
                self.keyed = keyed;
                self.chain = if keyed { self.inner } else { first(wide) };
                self.started = true;
                self.ready = false;
                true
            }
            command::BLOCK if full && self.started => {
                self.chain = compress(self.wide, self.chain, self.block);
                self.ready = !self.keyed;
                self.spend(1);
                true
            }
            command::FINISH if self.started && self.keyed => {
                let (digest, bits) = if self.wide { (8, 768) } else { (5, 672) };
                let mut block = [0; 16];
                for (to, from) in block.iter_mut().zip(self.chain.iter().take(digest)) {
                    *to = *from;
                }
                block[15] = bits;
                if let Some(end) = block.get_mut(digest) {
                    *end = 1 << 31;
                }
                self.chain = compress(self.wide, self.outer, block);
                self.started = false;
                self.ready = true;
                self.spend(1);
                true
            }
            command::KEY | command::BLOCK | command::FINISH => false,
            _ => true,
        }
    }

    /// The block is used up, by so many compressions.
    fn spend(&mut self, compressions: u64) {
        self.block.zeroize();
        self.words = 0;
        self.busy = compressions * if self.wide { 65 } else { 81 };
    }

    fn read(&self, address: u16) -> u32 {
        let idle = self.busy == 0;
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        match address {
            1 => bit(!idle, 1) | bit(self.error, 2) | bit(self.key_ready, 4) | bit(self.ready, 8),
            8..16 if self.ready && idle => {
                let word = self.chain.get(usize::from(address - 8));
                word.copied().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl Core for HmacCore {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        for operation in operations {
            match *operation {
                BusOperation::Write { address, data } => self.write(address, data),
                BusOperation::Read { address } => words.push(self.read(address)),
                BusOperation::Wait => self.cycles += std::mem::take(&mut self.busy),
            }
        }
        Ok(())
    }

    fn cycles(&self) -> u64 {
        self.cycles
    }
}

fn first(wide: bool) -> State {
    if wide { FIRST_256 } else { FIRST_1 }
}

/// The compression functions of FIPS 180-4, sections 6.1.2 and 6.2.2.
fn compress(wide: bool, from: State, block: [u32; 16]) -> State {
    let mut schedule = block;
    let mut state = from;
    for round in 0..if wide { 64 } else { 80 } {
        let [w0, w1, w2, .., w8, w9, _, _, _, w13, w14, _] = schedule;
        let next = if wide {
            state = round_256(state, round, w0);
            let small0 = w1.rotate_right(7) ^ w1.rotate_right(18) ^ w1 >> 3;
            let small1 = w14.rotate_right(17) ^ w14.rotate_right(19) ^ w14 >> 10;
            small1
                .wrapping_add(w9)
                .wrapping_add(small0)
                .wrapping_add(w0)
        } else {
            state = round_1(state, round, w0);
            (w13 ^ w8 ^ w2 ^ w0).rotate_left(1)
        };
        schedule.rotate_left(1);
        schedule[15] = next;
    }
    let mut sum = from;
    for (to, add) in sum.iter_mut().zip(state) {
        *to = to.wrapping_add(add);
    }
    sum
}

fn round_256([a, b, c, d, e, f, g, h]: State, round: usize, word: u32) -> State {
    let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
    let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
    let choice = (e & f) ^ (!e & g);
    let majority = (a & b) ^ (a & c) ^ (b & c);
    let constant = K.get(round).copied().unwrap_or(0);
    let addends = [big1, choice, constant, word];
    let t1 = addends.into_iter().fold(h, u32::wrapping_add);
    let t2 = big0.wrapping_add(majority);
    [t1.wrapping_add(t2), a, b, c, d.wrapping_add(t1), e, f, g]
}

fn round_1([a, b, c, d, e, ..]: State, round: usize, word: u32) -> State {
    let (logic, constant) = match round {
        0..20 => ((b & c) ^ (!b & d), 0x5a82_7999),
        20..40 => (b ^ c ^ d, 0x6ed9_eba1),
        40..60 => ((b & c) ^ (b & d) ^ (c & d), 0x8f1b_bcdc),
        _ => (b ^ c ^ d, 0xca62_c1d6),
    };
    let addends = [logic, e, constant, word];
    let sum = addends
        .into_iter()
        .fold(a.rotate_left(5), u32::wrapping_add);
    [sum, a, b.rotate_left(30), c, d, 0, 0, 0]
}
