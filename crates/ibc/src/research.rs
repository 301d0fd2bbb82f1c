//! Weakened and dissected forms of the cipher, for analysis and tests only.

pub mod analysis;

use crate::backend::Engine;
use crate::backend::portable::Layers;
use crate::key::{self, KeyError, MAX_ROUNDS, Roles, Schedule};
use crate::{Backend, Block, Variant};
use alloc::sync::Arc;
use alloc::vec::Vec;
use inout::InOutBuf;

/// The cipher with any number of rounds, whose layers can be applied one by one.
#[derive(Clone)]
pub struct ReducedIbc {
    schedule: Schedule,
    layers: Layers,
    engine: Arc<dyn Engine>,
}

impl ReducedIbc {
    /// Sets up a key of 16, 24, 32 or 40 bytes for 1 to 32 rounds.
    ///
    /// # Errors
    /// [`KeyError::Length`] or [`KeyError::Rounds`] outside these.
    pub fn new(key: &[u8], rounds: usize) -> Result<Self, KeyError> {
        Self::with_roles(key, rounds, Roles::Rotating)
    }

    /// Sets up the rejected variant in which every round uses the S-boxes alike (section 3.3); it
    /// falls to a slide attack at any number of rounds.
    ///
    /// # Errors
    /// As [`ReducedIbc::new`].
    pub fn with_static_roles(key: &[u8], rounds: usize) -> Result<Self, KeyError> {
        Self::with_roles(key, rounds, Roles::Static)
    }

    fn with_roles(key: &[u8], rounds: usize, roles: Roles) -> Result<Self, KeyError> {
        if !matches!(key.len(), 16 | 24 | 32 | 40) {
            let variant = Variant::Indect128;
            let expected = variant.key_size();
            return Err(KeyError::Length {
                variant,
                expected,
                actual: key.len(),
            });
        }
        if !(1..=MAX_ROUNDS).contains(&rounds) {
            return Err(KeyError::Rounds(rounds));
        }
        let schedule = Schedule::with_roles(key, rounds, roles);
        let backend = Backend::best();
        let engine = backend
            .engine(&schedule)
            .ok_or(KeyError::BackendUnavailable(backend))?;
        Ok(Self {
            layers: Layers::new(&schedule),
            engine,
            schedule,
        })
    }

    /// Returns the number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.schedule.rounds()
    }

    /// Encrypts one block in place.
    pub fn encrypt_block(&self, block: &mut Block) {
        self.engine.encrypt_blocks(InOutBuf::from_mut(block));
    }

    /// Decrypts one block in place.
    pub fn decrypt_block(&self, block: &mut Block) {
        self.engine.decrypt_blocks(InOutBuf::from_mut(block));
    }

    /// Encrypts every block by itself.
    pub fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        self.engine.encrypt_blocks(blocks);
    }

    /// Decrypts every block by itself.
    pub fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        self.engine.decrypt_blocks(blocks);
    }

    /// Applies the substitution of a round, counted from 0; any number is taken.
    pub fn substitute(&self, round: usize, block: &mut Block) {
        self.layers.substitute(round, block);
    }

    /// Applies the inverse substitution of a round.
    pub fn unsubstitute(&self, round: usize, block: &mut Block) {
        self.layers.unsubstitute(round, block);
    }

    /// Applies the permutation of a round: bit n moves to bit S(n).
    pub fn permute(&self, round: usize, block: &mut Block) {
        self.layers.permute(round, block);
    }

    /// Applies the inverse permutation of a round.
    pub fn unpermute(&self, round: usize, block: &mut Block) {
        self.layers.unpermute(round, block);
    }

    /// Returns the matrices of the S-boxes; row `i` of each yields bit `i`.
    #[must_use]
    pub fn matrices(&self) -> Vec<[u8; 8]> {
        (0..self.schedule.parts())
            .map(|j| *self.schedule.sbox(j).0)
            .collect()
    }

    /// Returns the S-boxes as tables.
    #[must_use]
    pub fn sboxes(&self) -> Vec<[u8; 256]> {
        (0..self.schedule.parts())
            .map(|j| crate::ced::sbox_table(self.schedule.sbox(j).0))
            .collect()
    }

    /// Returns the table of the S-box that permutes in a round: bit n moves to bit `table[n]`.
    #[must_use]
    pub fn permutation_table(&self, round: usize) -> [u8; 256] {
        crate::ced::sbox_table(self.schedule.permutation(round).0)
    }

    /// Returns the table of the S-box that substitutes sub-block `q` (taken modulo 4) in a round.
    #[must_use]
    pub fn substitution_table(&self, round: usize, q: usize) -> [u8; 256] {
        crate::ced::sbox_table(self.schedule.substitution(round, q % 4).0)
    }
}

/// Step 1 of section 3.2: mixes the 64-bit part with this index of a key.
#[must_use]
pub fn mix_part(part: u64, index: u64) -> u64 {
    key::mix_part(part, index)
}

/// Step 2 of section 3.2: decodes a mixed word into the rows of an invertible matrix.
#[must_use]
pub fn matrix_from_word(word: u64) -> [u8; 8] {
    key::matrix_from_word(word)
}

/// Table of the S-box `x -> A·inv(x) ^ 0x63` of a matrix.
#[must_use]
pub fn sbox_table(matrix: &[u8; 8]) -> [u8; 256] {
    crate::ced::sbox_table(matrix)
}
