//! The block cipher traits of the `cipher` crate.

use crate::{BLOCK_SIZE, Block, Ibc};
use ::cipher::consts::{U16, U32};
use ::cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut, ParBlocks, ParBlocksSizeUser,
};

type Array = ::cipher::Block<Ibc>;

impl BlockSizeUser for Ibc {
    type BlockSize = U32;
}

impl BlockCipherEncrypt for Ibc {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U32>) {
        f.call(&View(self));
    }
}

impl BlockCipherDecrypt for Ibc {
    fn decrypt_with_backend(&self, f: impl BlockCipherDecClosure<BlockSize = U32>) {
        f.call(&View(self));
    }
}

/// Callback of the traits: single blocks and batches of 16.
struct View<'a>(&'a Ibc);

impl BlockSizeUser for View<'_> {
    type BlockSize = U32;
}

impl ParBlocksSizeUser for View<'_> {
    type ParBlocksSize = U16;
}

/// Copies a batch out, works on it, and copies it in again.
fn through<'i, 'o>(mut batch: InOut<'i, 'o, ParBlocks<View<'_>>>, work: impl FnOnce(&mut [Block])) {
    let mut blocks: [Block; 16] = batch.get_in().0.map(|b| b.0);
    work(&mut blocks);
    for (to, from) in batch.get_out().iter_mut().zip(blocks) {
        to.0 = from;
    }
}

impl BlockCipherEncBackend for View<'_> {
    fn encrypt_block(&self, mut block: InOut<'_, '_, Array>) {
        let mut one: [u8; BLOCK_SIZE] = block.get_in().0;
        self.0.encrypt_block(&mut one);
        block.get_out().0 = one;
    }

    fn encrypt_par_blocks(&self, blocks: InOut<'_, '_, ParBlocks<Self>>) {
        through(blocks, |b| self.0.encrypt_blocks(b.into()));
    }
}

impl BlockCipherDecBackend for View<'_> {
    fn decrypt_block(&self, mut block: InOut<'_, '_, Array>) {
        let mut one: [u8; BLOCK_SIZE] = block.get_in().0;
        self.0.decrypt_block(&mut one);
        block.get_out().0 = one;
    }

    fn decrypt_par_blocks(&self, blocks: InOut<'_, '_, ParBlocks<Self>>) {
        through(blocks, |b| self.0.decrypt_blocks(b.into()));
    }
}
