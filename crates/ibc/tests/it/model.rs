//! A second implementation of the specification, with tables, byte by byte and bit by bit. It
//! shares no code with the library; for tests only.

/// The cipher as tables.
pub(crate) struct Model {
    rounds: usize,
    sboxes: Vec<[u8; 256]>,
    inverses: Vec<[u8; 256]>,
}

/// Product in the AES field.
fn times(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..15).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11B << (bit - 8);
        }
    }
    product as u8
}

fn inverse(a: u8) -> u8 {
    (0..=255).find(|&b| times(a, b) == 1).unwrap_or(0)
}

fn rows(part: u64, index: u64) -> [u8; 8] {
    let mut z = part.wrapping_add(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(index + 1));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mut fraction = u128::from(z ^ (z >> 31));
    let mut free: Vec<u8> = (0..8).collect();
    let mut rows = [0u8; 8];
    for i in 0..8 {
        fraction = (fraction & u128::from(u64::MAX)) * (256 - (1 << i));
        let u = (fraction >> 64) as usize;
        let chosen = (u >> i) + 1;
        let t: u8 = free
            .iter()
            .enumerate()
            .filter(|(n, _)| chosen >> n & 1 == 1)
            .map(|(_, b)| 1 << b)
            .sum();
        rows[i] = (0..i)
            .filter(|j| u >> j & 1 == 1)
            .fold(t, |row, j| row ^ rows[j]);
        free.retain(|&b| b != t.trailing_zeros() as u8);
    }
    rows
}

impl Model {
    pub(crate) fn new(key: &[u8], rounds: usize) -> Self {
        let inversions: Vec<u8> = (0..=255).map(inverse).collect();
        let mut sboxes = Vec::new();
        let mut inverses = Vec::new();
        for (index, part) in key.chunks(8).enumerate() {
            let rows = rows_of(part, index);
            let mut sbox = [0u8; 256];
            let mut back = [0u8; 256];
            for x in 0..256 {
                let mut y = 0x63;
                for (bit, row) in rows.iter().enumerate() {
                    y ^= ((row & inversions[x]).count_ones() as u8 & 1) << bit;
                }
                sbox[x] = y;
                back[usize::from(y)] = x as u8;
            }
            sboxes.push(sbox);
            inverses.push(back);
        }
        Self {
            rounds,
            sboxes,
            inverses,
        }
    }

    pub(crate) fn encrypt(&self, block: &mut [u8; 32]) {
        let k = self.sboxes.len();
        for r in 0..self.rounds {
            for (i, byte) in block.iter_mut().enumerate() {
                *byte = self.sboxes[((i / 8) % (k - 1) + r) % k][usize::from(*byte)];
            }
            *block = moved(block, &self.sboxes[(k - 1 + r) % k]);
        }
    }

    pub(crate) fn decrypt(&self, block: &mut [u8; 32]) {
        let k = self.sboxes.len();
        for r in (0..self.rounds).rev() {
            *block = moved(block, &self.inverses[(k - 1 + r) % k]);
            for (i, byte) in block.iter_mut().enumerate() {
                *byte = self.inverses[((i / 8) % (k - 1) + r) % k][usize::from(*byte)];
            }
        }
    }

    pub(crate) fn cbc_encrypt(&self, iv: &[u8], blocks: &mut [[u8; 32]]) {
        let mut value = [0; 32];
        value[..iv.len()].copy_from_slice(iv);
        if iv.len() == 16 {
            iv.iter().enumerate().for_each(|(i, b)| value[16 + i] = !b);
            self.encrypt(&mut value);
        }
        for block in blocks {
            (0..32).for_each(|i| block[i] ^= value[i]);
            self.encrypt(block);
            value = *block;
        }
    }

    pub(crate) fn ctr(&self, iv: &[u8], bytes: &mut [u8]) {
        let mut counter = [0; 32];
        counter[..iv.len()].copy_from_slice(iv);
        for piece in bytes.chunks_mut(32) {
            let mut stream = counter;
            self.encrypt(&mut stream);
            piece.iter_mut().zip(stream).for_each(|(b, s)| *b ^= s);
            for digit in counter.iter_mut().rev() {
                *digit = digit.wrapping_add(1);
                if *digit != 0 {
                    break;
                }
            }
        }
    }
}

fn rows_of(part: &[u8], index: usize) -> [u8; 8] {
    rows(u64::from_be_bytes(part.try_into().unwrap()), index as u64)
}

/// Moves bit n to bit `table[n]`.
fn moved(block: &[u8; 32], table: &[u8; 256]) -> [u8; 32] {
    let mut out = [0; 32];
    for n in 0..256 {
        let to = usize::from(table[n]);
        out[to / 8] |= (block[n / 8] >> (n % 8) & 1) << (to % 8);
    }
    out
}
