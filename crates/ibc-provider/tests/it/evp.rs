//! The part of libcrypto's EVP interface that the tests use, in safe types.
#![expect(unsafe_code, reason = "libcrypto is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::{NonNull, null, null_mut};

use ibc_provider::abi::{Param, data_type};

use crate::setup::modules;

#[link(name = "crypto")]
unsafe extern "C" {
    fn OSSL_LIB_CTX_new() -> *mut c_void;
    fn OSSL_LIB_CTX_free(ctx: *mut c_void);
    fn OSSL_LIB_CTX_load_config(ctx: *mut c_void, file: *const c_char) -> c_int;
    fn OSSL_PROVIDER_set_default_search_path(ctx: *mut c_void, path: *const c_char) -> c_int;
    fn OSSL_PROVIDER_load(ctx: *mut c_void, name: *const c_char) -> *mut c_void;
    fn OSSL_PROVIDER_unload(provider: *mut c_void) -> c_int;
    fn EVP_CIPHER_fetch(ctx: *mut c_void, name: *const c_char, props: *const c_char)
    -> *mut c_void;
    fn EVP_CIPHER_free(cipher: *mut c_void);
    fn EVP_CIPHER_get_block_size(cipher: *const c_void) -> c_int;
    fn EVP_CIPHER_get_key_length(cipher: *const c_void) -> c_int;
    fn EVP_CIPHER_get_iv_length(cipher: *const c_void) -> c_int;
    fn EVP_CIPHER_get_mode(cipher: *const c_void) -> c_int;
    fn EVP_CIPHER_get_flags(cipher: *const c_void) -> c_ulong;
    fn EVP_CIPHER_CTX_new() -> *mut c_void;
    fn EVP_CIPHER_CTX_free(ctx: *mut c_void);
    fn EVP_CIPHER_CTX_copy(out: *mut c_void, from: *const c_void) -> c_int;
    fn EVP_CIPHER_CTX_set_padding(ctx: *mut c_void, padding: c_int) -> c_int;
    fn EVP_CIPHER_CTX_set_params(ctx: *mut c_void, params: *const Param) -> c_int;
    fn EVP_CIPHER_CTX_get_updated_iv(ctx: *mut c_void, buf: *mut c_void, len: usize) -> c_int;
    fn EVP_CIPHER_CTX_get_original_iv(ctx: *mut c_void, buf: *mut c_void, len: usize) -> c_int;
    fn EVP_CIPHER_CTX_get_num(ctx: *const c_void) -> c_int;
    fn EVP_CIPHER_CTX_set_key_length(ctx: *mut c_void, len: c_int) -> c_int;
    fn EVP_CipherInit_ex2(
        ctx: *mut c_void,
        cipher: *const c_void,
        key: *const u8,
        iv: *const u8,
        enc: c_int,
        params: *const Param,
    ) -> c_int;
    fn EVP_CipherUpdate(
        ctx: *mut c_void,
        out: *mut u8,
        out_len: *mut c_int,
        input: *const u8,
        input_len: c_int,
    ) -> c_int;
    fn EVP_CipherFinal_ex(ctx: *mut c_void, out: *mut u8, out_len: *mut c_int) -> c_int;
    fn EVP_Cipher(ctx: *mut c_void, out: *mut u8, input: *const u8, input_len: c_uint) -> c_int;
    fn ERR_get_error_all(
        file: *mut *const c_char,
        line: *mut c_int,
        func: *mut *const c_char,
        data: *mut *const c_char,
        flags: *mut c_int,
    ) -> c_ulong;
    fn ERR_reason_error_string(code: c_ulong) -> *const c_char;
    fn ERR_clear_error();
}

/// A library context with the default provider and one of ours.
pub(crate) struct Library {
    context: NonNull<c_void>,
    providers: Vec<NonNull<c_void>>,
}

// SAFETY: library contexts and fetched ciphers are made for use by several threads.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub(crate) fn with(module: &str) -> Self {
        let path = CString::new(modules().to_str().unwrap()).unwrap();
        // SAFETY: a fresh context, texts with an end.
        unsafe {
            let context = NonNull::new(OSSL_LIB_CTX_new()).unwrap();
            assert_eq!(
                OSSL_PROVIDER_set_default_search_path(context.as_ptr(), path.as_ptr()),
                1
            );
            let providers = ["default", module].map(|name| {
                let name = CString::new(name).unwrap();
                let provider = OSSL_PROVIDER_load(context.as_ptr(), name.as_ptr());
                NonNull::new(provider).unwrap_or_else(|| panic!("{name:?}: {:?}", errors()))
            });
            Self {
                context,
                providers: providers.to_vec(),
            }
        }
    }

    /// A library context set up by a configuration file that names a back end. OpenSSL 3.0 goes on
    /// without a provider that does not start.
    pub(crate) fn configured(backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openssl.cnf");
        let module = modules().join("cordon_ibc.so");
        let text = format!(
            "config_diagnostics = 1\nopenssl_conf = init\n[init]\nproviders = all\n[all]\n\
             default = standard\ncordon_ibc = ibc\n[standard]\nactivate = 1\n[ibc]\n\
             module = {}\nbackend = {backend}\nactivate = 1\n",
            module.display()
        );
        std::fs::write(&file, text).unwrap();
        let file = CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: a fresh context, a text with an end.
        unsafe {
            let context = NonNull::new(OSSL_LIB_CTX_new()).unwrap();
            let library = Self {
                context,
                providers: Vec::new(),
            };
            assert_eq!(OSSL_LIB_CTX_load_config(context.as_ptr(), file.as_ptr()), 1);
            library
        }
    }

    pub(crate) fn fetch(&self, name: &str) -> Cipher {
        self.find(name)
            .unwrap_or_else(|| panic!("{name:?}: {:?}", errors()))
    }

    pub(crate) fn find(&self, name: &str) -> Option<Cipher> {
        let name = CString::new(name).unwrap();
        // SAFETY: a living context, a text with an end.
        let cipher = unsafe { EVP_CIPHER_fetch(self.context.as_ptr(), name.as_ptr(), null()) };
        NonNull::new(cipher).map(Cipher)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: made by `with`, freed once.
        unsafe {
            for provider in &self.providers {
                assert_eq!(OSSL_PROVIDER_unload(provider.as_ptr()), 1);
            }
            OSSL_LIB_CTX_free(self.context.as_ptr());
        }
    }
}

pub(crate) struct Cipher(NonNull<c_void>);

// SAFETY: as for `Library`.
unsafe impl Send for Cipher {}
// SAFETY: as for `Library`.
unsafe impl Sync for Cipher {}

impl Cipher {
    /// Block size, key length, IV length, mode, and flags beside the mode.
    pub(crate) fn properties(&self) -> (c_int, c_int, c_int, c_int, c_ulong) {
        let cipher = self.0.as_ptr();
        // SAFETY: a fetched cipher.
        unsafe {
            (
                EVP_CIPHER_get_block_size(cipher),
                EVP_CIPHER_get_key_length(cipher),
                EVP_CIPHER_get_iv_length(cipher),
                EVP_CIPHER_get_mode(cipher),
                EVP_CIPHER_get_flags(cipher) & !0xF_0007,
            )
        }
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: fetched, freed once.
        unsafe { EVP_CIPHER_free(self.0.as_ptr()) };
    }
}

/// Reasons and details of the thread's error queue, which is emptied.
pub(crate) fn errors() -> Vec<String> {
    let mut list = Vec::new();
    loop {
        let mut data = null();
        // SAFETY: places for pointers or null; texts belong to the queue's entry.
        unsafe {
            let code = ERR_get_error_all(
                null_mut(),
                null_mut(),
                null_mut(),
                &raw mut data,
                null_mut(),
            );
            if code == 0 {
                ERR_clear_error();
                return list;
            }
            let text = |text: *const c_char| {
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            };
            let reason = text(ERR_reason_error_string(code)).unwrap_or_default();
            list.push(format!("{reason}: {}", text(data).unwrap_or_default()));
        }
    }
}

pub(crate) struct Context(NonNull<c_void>);

// SAFETY: a context may move to another thread; it is used by one at a time (no `Sync`).
unsafe impl Send for Context {}

pub(crate) type Outcome<T = ()> = Result<T, Vec<String>>;

fn outcome(code: c_int) -> Outcome {
    if code > 0 { Ok(()) } else { Err(errors()) }
}

impl Context {
    pub(crate) fn new() -> Self {
        // SAFETY: no arguments.
        Self(NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).unwrap())
    }

    /// One init call with any of its arguments; key and IV must have the lengths of the cipher.
    pub(crate) fn init(
        &mut self,
        cipher: Option<&Cipher>,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
        encrypt: Option<bool>,
    ) -> Outcome {
        let pointer = |bytes: Option<&[u8]>| bytes.map_or(null(), <[u8]>::as_ptr);
        let cipher = cipher.map_or(null(), |c| c.0.as_ptr().cast_const());
        let (key, iv) = (pointer(key), pointer(iv));
        let direction = encrypt.map_or(-1, c_int::from);
        // SAFETY: a living context; lengths are as promised.
        outcome(unsafe { EVP_CipherInit_ex2(self.0.as_ptr(), cipher, key, iv, direction, null()) })
    }

    /// Appends what an update gives out.
    pub(crate) fn update(&mut self, input: &[u8], output: &mut Vec<u8>) -> Outcome {
        let mut room = vec![0; input.len() + 64];
        let len = self.update_raw(input.as_ptr(), input.len(), room.as_mut_ptr())?;
        output.extend_from_slice(&room[..len]);
        Ok(())
    }

    /// Input and output in one memory.
    pub(crate) fn update_in_place(&mut self, memory: &mut [u8], len: usize) -> Outcome<usize> {
        assert!(memory.len() >= len + 64);
        let pointer = memory.as_mut_ptr();
        self.update_raw(pointer, len, pointer)
    }

    fn update_raw(&mut self, input: *const u8, len: usize, output: *mut u8) -> Outcome<usize> {
        let mut out_len = 0;
        let len = c_int::try_from(len).unwrap();
        // SAFETY: a living context; both callers have room for a block more than the input.
        outcome(unsafe {
            EVP_CipherUpdate(self.0.as_ptr(), output, &raw mut out_len, input, len)
        })?;
        Ok(usize::try_from(out_len).unwrap())
    }

    pub(crate) fn finish(&mut self, output: &mut Vec<u8>) -> Outcome {
        let (mut room, mut len) = ([0; 64], 0);
        // SAFETY: a living context and room for more than a block.
        outcome(unsafe { EVP_CipherFinal_ex(self.0.as_ptr(), room.as_mut_ptr(), &raw mut len) })?;
        output.extend_from_slice(&room[..usize::try_from(len).unwrap()]);
        Ok(())
    }

    /// `EVP_Cipher`: all at once, without padding.
    pub(crate) fn cipher(&mut self, input: &[u8]) -> Outcome<Vec<u8>> {
        let mut output = vec![0; input.len() + 64];
        let len = c_uint::try_from(input.len()).unwrap();
        // SAFETY: a living context and room for a block more than the input.
        let len = unsafe { EVP_Cipher(self.0.as_ptr(), output.as_mut_ptr(), input.as_ptr(), len) };
        let len = usize::try_from(len).map_err(|_| errors())?;
        output.truncate(len);
        Ok(output)
    }

    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        // SAFETY: two living contexts.
        let copied = unsafe { EVP_CIPHER_CTX_copy(copy.0.as_ptr(), self.0.as_ptr()) };
        assert_eq!(copied, 1);
        copy
    }

    pub(crate) fn set_padding(&mut self, padding: bool) {
        // SAFETY: a living context.
        let set = unsafe { EVP_CIPHER_CTX_set_padding(self.0.as_ptr(), padding.into()) };
        assert_eq!(set, 1);
    }

    pub(crate) fn set_key_length(&mut self, len: c_int) -> Outcome {
        // SAFETY: a living context.
        outcome(unsafe { EVP_CIPHER_CTX_set_key_length(self.0.as_ptr(), len) })
    }

    /// Sets the length of IVs that the provider takes.
    pub(crate) fn set_iv_length(&mut self, mut len: usize) -> Outcome {
        let end = Param {
            key: null(),
            data_type: 0,
            data: null_mut(),
            data_size: 0,
            return_size: 0,
        };
        let list = [
            Param {
                key: c"ivlen".as_ptr(),
                data_type: data_type::UNSIGNED_INTEGER,
                data: (&raw mut len).cast(),
                data_size: size_of::<usize>(),
                return_size: data_type::UNMODIFIED,
            },
            end,
        ];
        // SAFETY: a living context and a list with an end.
        outcome(unsafe { EVP_CIPHER_CTX_set_params(self.0.as_ptr(), list.as_ptr()) })
    }

    /// The IV that was given, and the one with which the message goes on.
    pub(crate) fn ivs(&self, len: usize) -> Outcome<(Vec<u8>, Vec<u8>)> {
        let (mut original, mut updated) = (vec![0; len], vec![0; len]);
        // SAFETY: a living context and as much room as is said.
        unsafe {
            let context = self.0.as_ptr();
            outcome(EVP_CIPHER_CTX_get_original_iv(
                context,
                original.as_mut_ptr().cast(),
                len,
            ))?;
            outcome(EVP_CIPHER_CTX_get_updated_iv(
                context,
                updated.as_mut_ptr().cast(),
                len,
            ))?;
        }
        Ok((original, updated))
    }

    pub(crate) fn num(&self) -> c_int {
        // SAFETY: a living context.
        unsafe { EVP_CIPHER_CTX_get_num(self.0.as_ptr()) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}
