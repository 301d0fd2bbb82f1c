//! A message in pieces: what is kept between calls and what each call gives out.
//!
//! ```text
//!          init (key and IV, together or one after the other, in either order)
//!            │
//!            ▼        first data: the IV is expanded, which needs the key
//!         begun ───────────────► running ◄─┐ update, cipher
//!            ▲                     │  └────┘
//!            │ init                ▼ final
//!            └──────────────── finished      (CTR stays running: its final does nothing)
//! ```
//!
//! An init call with an IV alone keeps the key and its schedule: that is what OpenVPN does for
//! every packet. One with neither begins the message again with the last IV.
//!
//! Whole blocks go from input to output directly. Held back are less than a block when encrypting,
//! and up to a whole one when decrypting with padding, because only the last block has padding and
//! which one is last is known at the end.

use ibc::mode::{CbcDecryptor, CbcEncryptor, Ctr};
use ibc::{BLOCK_SIZE, Backend, Block, Ibc, InOutBuf, Iv};
use zeroize::{Zeroize as _, Zeroizing};

use crate::algorithm::{Algorithm, Mode};
use crate::refusal::Refusal;
use provider_abi::{Direction, Overlap, Regions};

/// Bytes that are copied aside at a time where output overlaps later input; also how far ahead of
/// its input an output may lie. Our choice: in the first-level cache, and a batch for the cipher.
pub(crate) const CHUNK: usize = 1024;

/// Longest IV in bytes: the native one.
const MAX_IV: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No init call yet.
    New,
    /// Between an init call and the first data.
    Begun,
    Running,
    Finished,
}

/// The mode at work; owns its copy of the key schedule.
#[derive(Clone)]
enum Engine {
    None,
    CbcEncrypt(CbcEncryptor),
    CbcDecrypt(CbcDecryptor),
    Ctr(Ctr),
}

#[derive(Clone)]
pub(crate) struct Stream {
    algorithm: Algorithm,
    backend: Backend,
    direction: Direction,
    phase: Phase,
    padding: bool,
    key: Option<Ibc>,
    engine: Engine,
    iv: [u8; MAX_IV],
    iv_len: usize,
    iv_set: bool,
    held: Zeroizing<Block>,
    held_len: usize,
    /// CBC: the last block of ciphertext, once there is one.
    last: Option<Block>,
    /// CTR: bytes of key stream used.
    position: u128,
}

impl Stream {
    /// A context without key and IV.
    pub(crate) fn of(algorithm: Algorithm, backend: Backend) -> Self {
        Self {
            algorithm,
            backend,
            direction: Direction::Encrypt,
            phase: Phase::New,
            padding: true,
            key: None,
            engine: Engine::None,
            iv: [0; MAX_IV],
            iv_len: algorithm.iv_len(),
            iv_set: false,
            held: Zeroizing::new([0; BLOCK_SIZE]),
            held_len: 0,
            last: None,
            position: 0,
        }
    }

    /// Begins a message. Without a key or an IV the one set before stays.
    pub(crate) fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        // ECB is given an IV by programs that do not ask; it is ignored.
        let iv = iv.filter(|_| self.iv_len > 0);
        if let Some(iv) = iv
            && iv.len() != self.iv_len
        {
            return Err(Refusal::IvLength {
                given: iv.len(),
                wanted: self.iv_len,
            });
        }
        if let Some(key) = key {
            let schedule = Ibc::with_backend(self.algorithm.variant, key, self.backend);
            self.key = Some(schedule.map_err(|_| Refusal::KeyLength {
                given: key.len(),
                wanted: self.algorithm.variant.key_size(),
            })?);
            self.engine = Engine::None;
        }
        if let Some(iv) = iv
            && let Some(place) = self.iv.get_mut(..iv.len())
        {
            place.copy_from_slice(iv);
            self.iv_set = true;
        }
        self.direction = direction;
        self.forget_message();
        self.phase = Phase::Begun;
        Ok(())
    }

    fn forget_message(&mut self) {
        self.held.zeroize();
        self.held_len = 0;
        self.last = None;
        self.position = 0;
    }

    /// Expands the IV before the first data of a message.
    fn run(&mut self) -> Result<(), Refusal> {
        match self.phase {
            Phase::Running => return Ok(()),
            Phase::New => return Err(Refusal::NotBegun),
            Phase::Finished => return Err(Refusal::Finished),
            Phase::Begun => {}
        }
        let key = self.key.as_ref().ok_or(Refusal::NoKey)?;
        if self.algorithm.mode != Mode::Ecb {
            if !self.iv_set {
                return Err(Refusal::NoIv);
            }
            let iv = self.iv.get(..self.iv_len).unwrap_or_default();
            let iv = Iv::try_from(iv).map_err(|_| Refusal::IvLength {
                given: self.iv_len,
                wanted: self.algorithm.iv_len(),
            })?;
            match (self.algorithm.mode, self.direction, &mut self.engine) {
                (Mode::Cbc, Direction::Encrypt, Engine::CbcEncrypt(engine)) => engine.reset(iv),
                (Mode::Cbc, Direction::Decrypt, Engine::CbcDecrypt(engine)) => engine.reset(iv),
                (Mode::Ctr, _, Engine::Ctr(engine)) => engine.reset(iv),
                (Mode::Cbc, Direction::Encrypt, engine) => {
                    *engine = Engine::CbcEncrypt(CbcEncryptor::new(key.clone(), iv));
                }
                (Mode::Cbc, Direction::Decrypt, engine) => {
                    *engine = Engine::CbcDecrypt(CbcDecryptor::new(key.clone(), iv));
                }
                (_, _, engine) => *engine = Engine::Ctr(Ctr::new(key.clone(), iv)),
            }
        }
        self.phase = Phase::Running;
        Ok(())
    }

    /// Takes the next piece of a message and gives out what is ready; returns its length.
    pub(crate) fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.run()?;
        if self.algorithm.mode == Mode::Ctr {
            return self.whole(regions);
        }
        let hold_last = self.direction == Direction::Decrypt && self.padding;
        let plan = Plan::new(self.held_len, regions.input_len(), hold_last);
        if plan.blocks() == 0 {
            if let Some(place) = self.held.get_mut(self.held_len..plan.keep) {
                regions.read(0, place);
            }
            self.held_len = plan.keep;
            return Ok(0);
        }
        let output = plan.blocks() * BLOCK_SIZE;
        regions.need_room(output)?;
        let head_len = if plan.head { BLOCK_SIZE } else { 0 };
        let direct = plan.direct * BLOCK_SIZE;
        let overlap = regions.overlap(plan.fill, head_len, direct);
        passable(overlap)?;

        // What stays is read before anything is written, and the first block is written after
        // everything is read: then only the middle part has to mind an overlap.
        let mut keep = Zeroizing::new([0; BLOCK_SIZE]);
        if let Some(place) = keep.get_mut(..plan.keep) {
            regions.read(regions.input_len() - plan.keep, place);
        }
        let mut head = Zeroizing::new([0; BLOCK_SIZE]);
        if plan.head {
            *head = *self.held;
            if let Some(place) = head.get_mut(self.held_len..) {
                regions.read(0, place);
            }
            self.blocks(std::slice::from_mut(&mut *head).into());
        }
        if overlap == Overlap::None {
            self.blocks(regions.blocks(plan.fill, head_len, plan.direct));
        } else {
            staged(regions, plan.fill, head_len, direct, |chunk| {
                self.blocks(chunk.as_chunks_mut().0.into());
            });
        }
        if plan.head {
            regions.write(0, &*head);
        }
        self.held = keep;
        self.held_len = plan.keep;
        Ok(output)
    }

    /// Ends a message and gives out the rest; returns its length.
    pub(crate) fn finish(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.run()?;
        if self.algorithm.mode == Mode::Ctr {
            return Ok(0);
        }
        let len = match (self.direction, self.padding) {
            (Direction::Encrypt, true) => {
                regions.need_room(BLOCK_SIZE)?;
                ibc::padding::pad(self.held_len, &mut self.held);
                self.crypt_held();
                BLOCK_SIZE
            }
            (Direction::Decrypt, true) => self.unpad()?,
            // Held back with padding that was switched off afterwards.
            (_, false) if self.held_len == BLOCK_SIZE => {
                regions.need_room(BLOCK_SIZE)?;
                self.crypt_held();
                BLOCK_SIZE
            }
            (_, false) if self.held_len == 0 => 0,
            (_, false) => {
                return Err(Refusal::PartialBlock {
                    left: self.held_len,
                });
            }
        };
        regions.need_room(len)?;
        regions.write(0, self.held.get(..len).unwrap_or_default());
        self.held.zeroize();
        self.held_len = 0;
        self.phase = Phase::Finished;
        Ok(len)
    }

    /// Decrypts the last block in place; returns how much of it is payload.
    fn unpad(&mut self) -> Result<usize, Refusal> {
        self.phase = Phase::Finished;
        if self.held_len != BLOCK_SIZE {
            return Err(Refusal::BadDecrypt);
        }
        self.crypt_held();
        ibc::padding::unpad(&self.held).map_err(|_| Refusal::BadDecrypt)
    }

    /// Whole blocks (or any length of CTR) in one go, without padding and without keeping any:
    /// what `EVP_Cipher` does.
    pub(crate) fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.run()?;
        let left = (self.held_len + regions.input_len()) % BLOCK_SIZE;
        if self.algorithm.mode != Mode::Ctr && (left != 0 || self.held_len != 0) {
            return Err(Refusal::PartialBlock { left });
        }
        self.whole(regions)
    }

    /// All input to as much output.
    fn whole(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        let len = regions.input_len();
        regions.need_room(len)?;
        let overlap = regions.overlap(0, 0, len);
        passable(overlap)?;
        match (self.algorithm.mode, overlap) {
            (Mode::Ctr, Overlap::None) => self.bytes(regions.bytes(0, 0, len)),
            (Mode::Ctr, _) => staged(regions, 0, 0, len, |chunk| self.bytes(chunk.into())),
            (_, Overlap::None) => self.blocks(regions.blocks(0, 0, len / BLOCK_SIZE)),
            (_, _) => staged(regions, 0, 0, len, |chunk| {
                self.blocks(chunk.as_chunks_mut().0.into());
            }),
        }
        Ok(len)
    }

    fn crypt_held(&mut self) {
        let mut block = Zeroizing::new(*self.held);
        self.blocks(std::slice::from_mut(&mut *block).into());
        self.held = block;
    }

    fn blocks(&mut self, mut blocks: InOutBuf<'_, '_, Block>) {
        if blocks.is_empty() {
            return;
        }
        match (&mut self.engine, &self.key, self.direction) {
            (Engine::CbcEncrypt(engine), _, _) => {
                engine.encrypt(blocks.reborrow());
                self.last = blocks.get_out().last().copied();
            }
            (Engine::CbcDecrypt(engine), _, _) => {
                self.last = blocks.get_in().last().copied();
                engine.decrypt(blocks);
            }
            (_, Some(key), Direction::Encrypt) => key.encrypt_blocks(blocks),
            (_, Some(key), Direction::Decrypt) => key.decrypt_blocks(blocks),
            (_, None, _) => unreachable!("`run` has seen the key"),
        }
    }

    fn bytes(&mut self, bytes: InOutBuf<'_, '_, u8>) {
        self.position = self.position.wrapping_add(bytes.len() as u128);
        if let Engine::Ctr(engine) = &mut self.engine {
            engine.apply(bytes);
        }
    }

    /// The cipher of this context.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Length in bytes of the IVs that this context takes.
    pub(crate) fn iv_len(&self) -> usize {
        self.iv_len
    }

    /// Chooses between the 16-byte IV and the native one of 32 bytes; an IV set before is
    /// forgotten.
    pub(crate) fn set_iv_len(&mut self, len: usize) -> Result<(), Refusal> {
        if len == self.iv_len {
            return Ok(());
        }
        let native = self.algorithm.iv_len() > 0 && len == MAX_IV;
        if !native && len != self.algorithm.iv_len() {
            return Err(Refusal::Parameter(c"ivlen"));
        }
        self.iv_len = len;
        self.iv_set = false;
        Ok(())
    }

    /// Whether messages are padded.
    pub(crate) fn padding(&self) -> bool {
        self.padding
    }

    /// Switches padding on or off.
    pub(crate) fn set_padding(&mut self, padding: bool) {
        self.padding = padding;
    }

    /// The IV as it was given.
    pub(crate) fn iv(&self) -> Option<&[u8]> {
        self.iv.get(..self.iv_len).filter(|_| self.iv_set)
    }

    /// The IV with which the message could go on elsewhere: the last block of ciphertext (CBC) or
    /// the counter of the next byte (CTR), 32 bytes each, or the IV itself before the first data.
    pub(crate) fn updated_iv(&self) -> Option<Vec<u8>> {
        let iv = self.iv()?;
        match self.algorithm.mode {
            Mode::Ctr if self.position > 0 => {
                let mut counter = iv.to_vec();
                counter.resize(MAX_IV, 0);
                add(&mut counter, self.position / BLOCK_SIZE as u128);
                Some(counter)
            }
            _ => Some(self.last.map_or_else(|| iv.to_vec(), |last| last.to_vec())),
        }
    }

    /// CTR: how many bytes of the key stream's current block are used.
    pub(crate) fn num(&self) -> u64 {
        u64::try_from(self.position % BLOCK_SIZE as u128).unwrap_or(0)
    }
}

/// Steps of an update with held and new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Whether what is held becomes the first block of output.
    head: bool,
    /// Bytes of input that complete it.
    fill: usize,
    /// Blocks that go from input to output directly.
    direct: usize,
    /// Bytes to hold afterwards.
    keep: usize,
}

impl Plan {
    fn new(held: usize, len: usize, hold_last: bool) -> Self {
        // Together less than twice the address space, which nobody has; the buffers exist.
        let total = held.saturating_add(len);
        let ready = if hold_last {
            total.saturating_sub(1)
        } else {
            total
        };
        let blocks = ready / BLOCK_SIZE;
        let head = held > 0 && blocks > 0;
        Self {
            head,
            fill: if head { BLOCK_SIZE - held } else { 0 },
            direct: blocks - usize::from(head),
            keep: total - blocks * BLOCK_SIZE,
        }
    }

    fn blocks(self) -> usize {
        self.direct + usize::from(self.head)
    }
}

/// Refuses overlaps in which writing would run over input further ahead than [`CHUNK`].
fn passable(overlap: Overlap) -> Result<(), Refusal> {
    match overlap {
        Overlap::Ahead(distance) if distance > CHUNK => Err(Refusal::Overlap),
        _ => Ok(()),
    }
}

/// Processes `len` bytes from input to output that overlap: each chunk is read before the one in
/// front of it is written, so that writing up to [`CHUNK`] bytes ahead runs over nothing unread.
fn staged(
    regions: &mut Regions<'_>,
    input_at: usize,
    output_at: usize,
    len: usize,
    mut process: impl FnMut(&mut [u8]),
) {
    let mut current = Zeroizing::new([0; CHUNK]);
    let mut next = Zeroizing::new([0; CHUNK]);
    let size = |at: usize| CHUNK.min(len - at);
    let read = |regions: &Regions<'_>, at: usize, chunk: &mut [u8; CHUNK]| {
        if let Some(chunk) = chunk.get_mut(..size(at)) {
            regions.read(input_at + at, chunk);
        }
    };
    read(regions, 0, &mut next);
    let mut at = 0;
    while at < len {
        std::mem::swap(&mut *current, &mut *next);
        let end = at + size(at);
        read(regions, end, &mut next);
        if let Some(chunk) = current.get_mut(..end - at) {
            process(chunk);
            regions.write(output_at + at, chunk);
        }
        at = end;
    }
}

/// Adds to a big-endian number, modulo its length.
fn add(number: &mut [u8], summand: u128) {
    let mut carry = summand;
    for byte in number.iter_mut().rev() {
        let sum = u128::from(*byte) + (carry & 0xff);
        *byte = sum.to_le_bytes()[0];
        carry = (carry >> 8) + (sum >> 8);
    }
}

#[cfg(test)]
mod tests;
