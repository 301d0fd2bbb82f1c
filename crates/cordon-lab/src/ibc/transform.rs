//! Blocks through the cipher: as fast as it goes, or one by one with checks or with faults.

use std::fmt;

use ibc::ced::{CheckedIbc, FaultDetected};
use ibc::container::Mode;
use ibc::mode::{CbcDecryptor, CbcEncryptor, Ctr};
use ibc::{BLOCK_SIZE, Block, Ibc, Iv};

/// Transformation of a stream of bytes, buffer by buffer.
pub(super) trait Transform: Send {
    /// Transforms the next bytes in place: whole blocks, except at the end of a counter mode.
    ///
    /// # Errors
    /// The number of the block in `bytes` and what went wrong in it.
    fn apply(&mut self, bytes: &mut [u8]) -> Result<(), (u64, FaultFound)>;
}

/// A detected fault, or another reason why a block is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultFound(pub(super) FaultDetected);

impl fmt::Display for FaultFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Encrypt,
    Decrypt,
}

/// The parallel path without checks.
pub(super) enum Fast {
    EcbEncrypt(Ibc),
    EcbDecrypt(Ibc),
    CbcEncrypt(CbcEncryptor),
    CbcDecrypt(CbcDecryptor),
    Ctr(Ctr),
}

impl Fast {
    /// `iv` is the expanded IV; ECB does not look at it.
    pub(super) fn new(cipher: Ibc, mode: Mode, direction: Direction, iv: Block) -> Self {
        let iv = Iv::Full(iv);
        match (mode, direction) {
            (Mode::Ecb, Direction::Encrypt) => Self::EcbEncrypt(cipher),
            (Mode::Ecb, Direction::Decrypt) => Self::EcbDecrypt(cipher),
            (Mode::Cbc, Direction::Encrypt) => Self::CbcEncrypt(CbcEncryptor::new(cipher, iv)),
            (Mode::Cbc, Direction::Decrypt) => Self::CbcDecrypt(CbcDecryptor::new(cipher, iv)),
            (Mode::Ctr, _) => Self::Ctr(Ctr::new(cipher, iv)),
        }
    }
}

impl Transform for Fast {
    fn apply(&mut self, bytes: &mut [u8]) -> Result<(), (u64, FaultFound)> {
        if let Self::Ctr(ctr) = self {
            ctr.apply(bytes.into());
            return Ok(());
        }
        let (blocks, _) = bytes.as_chunks_mut::<BLOCK_SIZE>();
        match self {
            Self::EcbEncrypt(cipher) => cipher.encrypt_blocks(blocks.into()),
            Self::EcbDecrypt(cipher) => cipher.decrypt_blocks(blocks.into()),
            Self::CbcEncrypt(cbc) => cbc.encrypt(blocks.into()),
            Self::CbcDecrypt(cbc) => cbc.decrypt(blocks.into()),
            Self::Ctr(_) => {}
        }
        Ok(())
    }
}

/// A block cipher whose every call may fail.
pub(super) trait BlockCipher: Send {
    fn encrypt(&mut self, block: &mut Block) -> Result<(), FaultFound>;
    fn decrypt(&mut self, block: &mut Block) -> Result<(), FaultFound>;
}

impl BlockCipher for CheckedIbc {
    fn encrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        self.encrypt_block(block).map_err(FaultFound)
    }

    fn decrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        self.decrypt_block(block).map_err(FaultFound)
    }
}

/// The modes of operation over a cipher that takes one block at a time.
pub(super) struct Serial<C> {
    pub(super) cipher: C,
    mode: Mode,
    direction: Direction,
    /// The chaining value, or the next counter.
    state: Block,
}

impl<C: BlockCipher> Serial<C> {
    /// `iv` is the expanded IV; ECB does not look at it.
    pub(super) const fn new(cipher: C, mode: Mode, direction: Direction, iv: Block) -> Self {
        Self {
            cipher,
            mode,
            direction,
            state: iv,
        }
    }

    fn block(&mut self, bytes: &mut [u8]) -> Result<(), FaultFound> {
        if self.mode == Mode::Ctr {
            let mut stream = self.state;
            self.cipher.encrypt(&mut stream)?;
            xor(bytes, &stream);
            increment(&mut self.state);
            return Ok(());
        }
        let Some(block) = bytes.first_chunk_mut::<BLOCK_SIZE>() else {
            return Ok(());
        };
        match (self.mode, self.direction) {
            (Mode::Cbc, Direction::Encrypt) => {
                xor(block, &self.state);
                self.cipher.encrypt(block)?;
                self.state = *block;
            }
            (Mode::Cbc, Direction::Decrypt) => {
                let next = *block;
                self.cipher.decrypt(block)?;
                xor(block, &self.state);
                self.state = next;
            }
            (_, Direction::Encrypt) => self.cipher.encrypt(block)?,
            (_, Direction::Decrypt) => self.cipher.decrypt(block)?,
        }
        Ok(())
    }
}

impl<C: BlockCipher> Transform for Serial<C> {
    fn apply(&mut self, bytes: &mut [u8]) -> Result<(), (u64, FaultFound)> {
        for (index, block) in (0..).zip(bytes.chunks_mut(BLOCK_SIZE)) {
            self.block(block).map_err(|fault| (index, fault))?;
        }
        Ok(())
    }
}

fn xor(bytes: &mut [u8], other: &Block) {
    for (byte, other) in bytes.iter_mut().zip(other) {
        *byte ^= other;
    }
}

/// Adds one to a big-endian number of 256 bits.
fn increment(counter: &mut Block) {
    for byte in counter.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}
