//! Streaming modes: CBC, CTR, and many CBC chains at once (specification, section 4).
//!
//! Each mode owns its cipher (a clone is cheap) and carries its state from call to call, so a
//! message may arrive in pieces. `reset` starts the next message under the same key. ECB has no
//! state: see [`Ibc::encrypt_blocks`]. No mode authenticates anything; [`crate::padding`] is
//! separate.

use crate::backend::{Chain, Counter, whole_blocks};
use crate::{BLOCK_SIZE, Block, Ibc, Iv};
use alloc::vec::Vec;
use inout::InOutBuf;
use zeroize::Zeroize;

/// CBC encryption of one message.
#[derive(Clone)]
pub struct CbcEncryptor {
    cipher: Ibc,
    value: Block,
}

impl CbcEncryptor {
    /// Starts a message.
    #[must_use]
    pub fn new(cipher: Ibc, iv: Iv) -> Self {
        let value = iv.chaining_value(&cipher);
        Self { cipher, value }
    }

    /// Starts the next message under the same key.
    pub fn reset(&mut self, iv: Iv) {
        self.value = iv.chaining_value(&self.cipher);
    }

    /// Encrypts the next whole blocks of the message.
    pub fn encrypt(&mut self, blocks: InOutBuf<'_, '_, Block>) {
        self.cipher.engine().cbc_encrypt(&mut self.value, blocks);
    }
}

/// CBC decryption of one message.
#[derive(Clone)]
pub struct CbcDecryptor {
    cipher: Ibc,
    value: Block,
}

impl CbcDecryptor {
    /// Starts a message.
    #[must_use]
    pub fn new(cipher: Ibc, iv: Iv) -> Self {
        let value = iv.chaining_value(&cipher);
        Self { cipher, value }
    }

    /// Starts the next message under the same key.
    pub fn reset(&mut self, iv: Iv) {
        self.value = iv.chaining_value(&self.cipher);
    }

    /// Decrypts the next whole blocks of the message.
    pub fn decrypt(&mut self, blocks: InOutBuf<'_, '_, Block>) {
        self.cipher.engine().cbc_decrypt(&mut self.value, blocks);
    }
}

/// CTR: encryption and decryption are the same.
#[derive(Clone)]
pub struct Ctr {
    cipher: Ibc,
    counter: Counter,
    /// Key stream of the block that was begun last.
    stream: Block,
    /// Used bytes of `stream`; 32 if no block is begun.
    used: usize,
}

impl Ctr {
    /// Starts a message.
    #[must_use]
    pub fn new(cipher: Ibc, iv: Iv) -> Self {
        let counter = Counter::new(&iv.counter_block());
        Self {
            cipher,
            counter,
            stream: [0; 32],
            used: BLOCK_SIZE,
        }
    }

    /// Starts the next message under the same key.
    pub fn reset(&mut self, iv: Iv) {
        self.counter = Counter::new(&iv.counter_block());
        self.stream.zeroize();
        self.used = BLOCK_SIZE;
    }

    /// XORs the next bytes of the key stream into the buffer, which may have any length.
    pub fn apply(&mut self, bytes: InOutBuf<'_, '_, u8>) {
        let begun = bytes.len().min(BLOCK_SIZE - self.used);
        let (head, rest) = bytes.split_at(begun);
        self.apply_partly(head);
        let (blocks, tail) = whole_blocks(rest);
        self.cipher.engine().ctr_xor(&mut self.counter, blocks);
        if !tail.is_empty() {
            self.stream = self.counter.next_block();
            self.cipher.encrypt_block(&mut self.stream);
            self.used = 0;
            self.apply_partly(tail);
        }
    }

    /// Uses up what is left of the begun block; `bytes` is not longer than that.
    fn apply_partly(&mut self, bytes: InOutBuf<'_, '_, u8>) {
        let count = bytes.len();
        for (mut byte, key) in bytes.into_iter().zip(self.stream.iter().skip(self.used)) {
            let text = *byte.get_in() ^ key;
            *byte.get_out() = text;
        }
        self.used += count;
    }
}

impl Drop for Ctr {
    fn drop(&mut self) {
        self.stream.zeroize();
    }
}

/// The next whole blocks of one message in a call of [`cbc_encrypt_many`].
pub struct CbcJob<'a> {
    encryptor: &'a mut CbcEncryptor,
    blocks: InOutBuf<'a, 'a, Block>,
}

impl<'a> CbcJob<'a> {
    /// Binds blocks to the message they continue.
    #[must_use]
    pub fn new(encryptor: &'a mut CbcEncryptor, blocks: InOutBuf<'a, 'a, Block>) -> Self {
        Self { encryptor, blocks }
    }
}

/// Encrypts several independent messages side by side, with the result of
/// [`CbcEncryptor::encrypt`] for each.
///
/// One CBC chain keeps the processor waiting for its own result; eight chains fill the gaps and
/// take little longer than one. Jobs gain if their encryptors were made from clones of one
/// [`Ibc`]; others are encrypted in turn. Lengths may differ, but equal ones gain most.
pub fn cbc_encrypt_many(jobs: &mut [CbcJob<'_>]) {
    let mut rest = jobs;
    while let [first, ..] = rest {
        let cipher = first.encryptor.cipher.clone();
        let same = rest
            .iter()
            .take_while(|j| j.encryptor.cipher.same_key(&cipher))
            .count();
        let (group, others) = rest.split_at_mut(same);
        let mut chains: Vec<Chain<'_>> = group
            .iter_mut()
            .map(|j| Chain {
                value: &mut j.encryptor.value,
                blocks: j.blocks.reborrow(),
            })
            .collect();
        cipher.engine().cbc_encrypt_many(&mut chains);
        rest = others;
    }
}
