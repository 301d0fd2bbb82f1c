//! Sequences of calls to the OpenSSL provider's functions, checked against the cipher library: the
//! same calls succeed, with the same bytes, whatever the order, the pieces and the overlaps.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use ibc::mode::{CbcDecryptor, CbcEncryptor, Ctr};
use ibc::{Ibc, Iv, Variant};
use ibc_provider::abi::{self, Dispatch, Function, Param, cipher_function as id, data_type};

const BLOCK: usize = 32;

/// The functions of one cipher, by number.
struct Functions(*const Dispatch);

impl Functions {
    fn get(&self, id: c_int) -> Function {
        let mut entry = self.0;
        loop {
            let found = unsafe { *entry };
            assert_ne!(found.id, 0, "function {id} is missing");
            if found.id == id {
                return found.function;
            }
            entry = unsafe { entry.add(1) };
        }
    }
}

/// The provider, loaded by a core that offers nothing.
struct Provider {
    context: *mut c_void,
    functions: Functions,
}

impl Provider {
    fn load() -> Self {
        let core = [Dispatch::END];
        let (mut functions, mut context) = (null(), null_mut());
        let made = unsafe {
            ibc_provider::OSSL_provider_init(null(), core.as_ptr(), &mut functions, &mut context)
        };
        assert_eq!(made, 1);
        Self {
            context,
            functions: Functions(functions),
        }
    }

    fn cipher(&self, number: usize) -> Functions {
        let query = self.functions.get(abi::provider_function::QUERY_OPERATION);
        let mut no_store = 1;
        let list = unsafe { (query.query)(self.context, abi::OPERATION_CIPHER, &mut no_store) };
        assert_eq!(no_store, 0);
        Functions(unsafe { (*list.add(number)).implementation })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let teardown = self.functions.get(abi::provider_function::TEARDOWN);
        unsafe { (teardown.freectx)(self.context) };
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    New,
    Begun,
    Running,
    Finished,
}

/// Expected behaviour of a context, computed by the library.
#[derive(Clone)]
struct Model {
    variant: Variant,
    mode: usize,
    encrypt: bool,
    phase: Phase,
    padding: bool,
    key: Option<Vec<u8>>,
    iv_len: usize,
    iv: Option<Vec<u8>>,
    /// The one with which the message has begun.
    message_iv: Vec<u8>,
    /// All input of the message, and how much of it was given out.
    input: Vec<u8>,
    out: usize,
}

const CBC: usize = 1;
const CTR: usize = 2;

impl Model {
    fn new(number: usize) -> Self {
        Self {
            variant: Variant::ALL[number / 3],
            mode: number % 3,
            encrypt: true,
            phase: Phase::New,
            padding: true,
            key: None,
            iv_len: if number.is_multiple_of(3) { 0 } else { 16 },
            iv: None,
            message_iv: Vec::new(),
            input: Vec::new(),
            out: 0,
        }
    }

    fn begin(&mut self, encrypt: bool, key: Option<&[u8]>, iv: Option<&[u8]>) -> bool {
        let iv = iv.filter(|_| self.iv_len > 0);
        if iv.is_some_and(|iv| iv.len() != self.iv_len)
            || key.is_some_and(|key| key.len() != self.variant.key_size())
        {
            return false;
        }
        self.key = key.map(<[u8]>::to_vec).or(self.key.take());
        self.iv = iv.map(<[u8]>::to_vec).or(self.iv.take());
        self.encrypt = encrypt;
        self.input.clear();
        self.out = 0;
        self.phase = Phase::Begun;
        true
    }

    fn run(&mut self) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Begun if self.key.is_some() && (self.mode == 0 || self.iv.is_some()) => {
                self.phase = Phase::Running;
                self.message_iv = self.iv.clone().unwrap_or_default();
                true
            }
            _ => false,
        }
    }

    /// The first `len` bytes of input, all processed.
    fn processed(&self, len: usize) -> Vec<u8> {
        let mut bytes = self.input[..len].to_vec();
        let cipher = Ibc::new(self.variant, self.key.as_ref().unwrap()).unwrap();
        let iv = || Iv::try_from(self.message_iv.as_slice()).unwrap();
        if self.mode == CTR {
            Ctr::new(cipher, iv()).apply(bytes.as_mut_slice().into());
            return bytes;
        }
        let (blocks, rest) = bytes.as_chunks_mut();
        assert!(rest.is_empty());
        match (self.mode, self.encrypt) {
            (CBC, true) => CbcEncryptor::new(cipher, iv()).encrypt(blocks.into()),
            (CBC, false) => CbcDecryptor::new(cipher, iv()).decrypt(blocks.into()),
            (_, true) => cipher.encrypt_blocks(blocks.into()),
            (_, false) => cipher.decrypt_blocks(blocks.into()),
        }
        bytes
    }

    /// Output when `ready` bytes of the message are to be out; `None` without room.
    fn give(&mut self, ready: usize, room: usize) -> Option<Vec<u8>> {
        if ready - self.out > room {
            return None;
        }
        let output = self.processed(ready).split_off(self.out);
        self.out = ready;
        Some(output)
    }

    fn update(&mut self, input: &[u8], room: usize, at_once: bool) -> Option<Vec<u8>> {
        if !self.run() {
            return None;
        }
        let before = self.input.len();
        if at_once && self.mode != CTR && (before != self.out || !input.len().is_multiple_of(BLOCK))
        {
            return None;
        }
        self.input.extend_from_slice(input);
        let total = self.input.len() - self.out;
        let held_back = !self.encrypt && self.padding && !at_once;
        let ready = match (self.mode, held_back) {
            (CTR, _) => total,
            (_, true) => total.saturating_sub(1) / BLOCK * BLOCK,
            (_, false) => total / BLOCK * BLOCK,
        };
        let output = self.give(self.out + ready, room);
        if output.is_none() {
            self.input.truncate(before);
        }
        output
    }

    fn finish(&mut self, room: usize) -> Option<Vec<u8>> {
        if !self.run() {
            return None;
        }
        let held = self.input.len() - self.out;
        let output = match (self.mode, self.padding, self.encrypt) {
            (CTR, _, _) => return Some(Vec::new()),
            (_, true, true) => {
                let fill = BLOCK - held;
                let before = self.input.len();
                self.input.resize(before + fill, fill as u8);
                let output = self.give(before + fill, room);
                if output.is_none() {
                    self.input.truncate(before);
                }
                output?
            }
            (_, true, false) => {
                self.phase = Phase::Finished;
                if held != BLOCK {
                    return None;
                }
                let last = self.give(self.input.len(), usize::MAX)?;
                let fill = usize::from(last[BLOCK - 1]);
                if !(1..=BLOCK).contains(&fill)
                    || last[BLOCK - fill..].iter().any(|b| usize::from(*b) != fill)
                    || BLOCK - fill > room
                {
                    return None;
                }
                last[..BLOCK - fill].to_vec()
            }
            (_, false, _) if held == 0 || held == BLOCK => self.give(self.input.len(), room)?,
            (_, false, _) => return None,
        };
        self.phase = Phase::Finished;
        Some(output)
    }
}

/// A context of the provider beside its model.
struct Pair<'a> {
    functions: &'a Functions,
    context: *mut c_void,
    model: Model,
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        unsafe { (self.functions.get(id::FREECTX).freectx)(self.context) };
    }
}

impl Pair<'_> {
    fn copy(&self) -> Self {
        let context = unsafe { (self.functions.get(id::DUPCTX).dupctx)(self.context) };
        assert!(!context.is_null());
        Self {
            functions: self.functions,
            context,
            model: self.model.clone(),
        }
    }

    fn begin(&mut self, encrypt: bool, key: Option<&[u8]>, iv: Option<&[u8]>) {
        let which = if encrypt {
            id::ENCRYPT_INIT
        } else {
            id::DECRYPT_INIT
        };
        let raw = |bytes: Option<&[u8]>| bytes.map_or((null(), 0), |b| (b.as_ptr(), b.len()));
        let ((key_at, key_len), (iv_at, iv_len)) = (raw(key), raw(iv));
        let done = unsafe {
            (self.functions.get(which).init)(self.context, key_at, key_len, iv_at, iv_len, null())
        };
        assert_eq!(done == 1, self.model.begin(encrypt, key, iv));
    }

    /// An update (or `cipher`) with the output `shift` bytes from the input, or apart from it.
    fn update(&mut self, input: &[u8], shift: Option<isize>, room: usize, at_once: bool) {
        const MARGIN: usize = 1000;
        let (input_at, output_at) = match shift {
            Some(shift) => (MARGIN, MARGIN.checked_add_signed(shift).unwrap()),
            None => (0, input.len()),
        };
        let mut memory = vec![0xEE; 3 * MARGIN + 2 * input.len() + 2 * BLOCK];
        memory[input_at..input_at + input.len()].copy_from_slice(input);
        let function = self
            .functions
            .get(if at_once { id::CIPHER } else { id::UPDATE });
        let mut len = usize::MAX;
        let done = unsafe {
            let base = memory.as_mut_ptr();
            let (from, to) = (base.add(input_at), base.add(output_at));
            (function.update)(self.context, to, &mut len, room, from, input.len())
        };
        let expected = self.model.update(input, room, at_once);
        assert_eq!(done == 1, expected.is_some(), "{} bytes", input.len());
        if let Some(expected) = expected {
            assert_eq!(len, expected.len());
            assert!(
                memory[output_at..output_at + len] == expected,
                "shift {shift:?}"
            );
            // Nothing else is written: behind the output everything is as it was.
            let behind = (output_at + len).max(input_at + input.len());
            assert!(memory[behind..].iter().all(|b| *b == 0xEE));
        }
    }

    fn finish(&mut self, room: usize) {
        let (mut output, mut len) = ([0xEE; BLOCK + 1], usize::MAX);
        let function = self.functions.get(id::FINAL);
        let done =
            unsafe { (function.finalize)(self.context, output.as_mut_ptr(), &mut len, room) };
        let expected = self.model.finish(room);
        assert_eq!(done == 1, expected.is_some());
        if let Some(expected) = expected {
            assert_eq!(output[..len], expected);
            assert!(output[len..].iter().all(|b| *b == 0xEE));
        }
    }

    fn set(&mut self, name: &'static std::ffi::CStr, mut value: u64) -> bool {
        let end = Param {
            key: null(),
            data_type: 0,
            data: null_mut(),
            data_size: 0,
            return_size: 0,
        };
        let list = [
            Param {
                key: name.as_ptr(),
                data_type: data_type::UNSIGNED_INTEGER,
                data: (&raw mut value).cast(),
                data_size: 8,
                return_size: 0,
            },
            end,
        ];
        let set = self.functions.get(id::SET_CTX_PARAMS);
        unsafe { (set.set_ctx_params)(self.context, list.as_ptr()) == 1 }
    }

    fn set_iv_len(&mut self, len: usize) {
        let done = self.set(c"ivlen", len as u64);
        let model = &mut self.model;
        assert_eq!(
            done,
            len == model.iv_len || (model.mode != 0 && (len == 16 || len == 32))
        );
        if done && len != model.iv_len {
            model.iv_len = len;
            model.iv = None;
        }
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let [which, rest @ ..] = data else { return };
    let number = usize::from(*which) % 15;
    let provider = Provider::load();
    let functions = provider.cipher(number);
    let new = || Pair {
        functions: &functions,
        context: unsafe { (functions.get(id::NEWCTX).newctx)(provider.context) },
        model: Model::new(number),
    };
    let mut pairs = [new(), new()];
    for (turn, op) in rest.chunks_exact(4).take(64).enumerate() {
        let [kind, a, b, c] = [op[0], op[1], op[2], op[3]];
        let pair = &mut pairs[usize::from(kind >> 7)];
        let seed = turn as u8 ^ c;
        let bytes = |len: usize| -> Vec<u8> {
            (0..len)
                .map(|n| (n as u8).wrapping_mul(13) ^ seed)
                .collect()
        };
        let len = usize::from(a) + 256 * usize::from(b % 12 / 3 * (b % 3));
        let shift = match b >> 5 {
            0 | 1 => None,
            2 | 3 => Some(0),
            4 => Some(isize::from(c)),
            5 => Some(-isize::from(c)),
            6 => Some(3 * isize::from(c)),
            _ => Some(-3 * isize::from(c)),
        };
        match kind % 16 {
            0 | 1 => {
                let (key, iv) = (
                    bytes(pair.model.variant.key_size()),
                    bytes(pair.model.iv_len),
                );
                let (key, iv) = (
                    Some(&key[..]).filter(|_| a % 4 < 3),
                    Some(&iv[..]).filter(|_| b % 4 < 3),
                );
                pair.begin(c % 2 == 0, key, iv);
            }
            2 => pair.begin(c % 2 == 0, None, Some(&bytes(pair.model.iv_len))),
            3 => {
                let (key, iv) = (bytes(usize::from(a) % 48), bytes(usize::from(b) % 40));
                pair.begin(c % 2 == 0, Some(&key), Some(&iv));
            }
            4..=7 => pair.update(&bytes(len), shift, len + BLOCK, false),
            8 => pair.update(&bytes(len), shift, usize::from(c), false),
            9 => pair.update(&bytes(len / BLOCK * BLOCK), shift, len, true),
            10 => pair.update(&bytes(len), shift, len, true),
            11 => pair.finish(BLOCK),
            12 => pair.finish(usize::from(a) % (BLOCK + 1)),
            13 => {
                assert!(pair.set(c"padding", u64::from(a % 2)));
                pair.model.padding = a % 2 == 1;
            }
            14 => pair.set_iv_len([0, 16, 32, usize::from(b)][usize::from(a % 4)]),
            _ => {
                let copy = pair.copy();
                pairs[usize::from(a % 2)] = copy;
            }
        }
    }
}
