//! The functions of a cipher, as OpenSSL calls them.
//!
//! Each does three things: turn pointers into safe types, call a [`Cipher`], turn the outcome into
//! 1 or into 0 with an entry in the error queue. A panic is caught; the context is then refused
//! for good.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::panic::catch_unwind;

use crate::abi::{Dispatch, Function, Param, cipher_function as id};
use crate::context::{self, Context};
use crate::params::{self, Given, Wanted};
use crate::{CallError, Host, Refusal, Regions, bytes, tell};

/// Direction of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

/// A list of parameters: the names that are known, and the list for those who ask.
#[derive(Clone, Copy)]
pub struct Known {
    /// Names.
    pub names: &'static [&'static CStr],
    /// The list with an end, for all threads to read.
    pub list: fn() -> *const Param,
}

/// A context of a cipher, in safe types.
pub trait Cipher: Clone + Sized + 'static {
    /// Type behind the provider's context.
    type Provider: 'static;
    /// A reason to refuse a call.
    type Refusal: Refusal;

    /// Parameters of a cipher of this kind.
    const GETTABLE: Known;
    /// Parameters of a context that can be read.
    const GETTABLE_CTX: Known;
    /// Parameters of a context that can be set.
    const SETTABLE_CTX: Known;

    /// A context without key and IV of the cipher with this number.
    fn new(provider: &Self::Provider, number: usize) -> Self;
    /// Answers a question about the cipher with this number.
    ///
    /// # Errors
    /// [`CallError`].
    fn describe(number: usize, wanted: Wanted<'_>) -> Result<(), CallError>;
    /// The core that has loaded the provider.
    fn host(provider: &Self::Provider) -> Host;
    /// Begins a message. Without a key or an IV the one set before stays.
    ///
    /// # Errors
    /// The reason to refuse it; so for all that follow.
    fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Self::Refusal>;
    /// Takes the next piece of a message and gives out what is ready; returns its length.
    ///
    /// # Errors
    /// See [`Self::begin`].
    fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Self::Refusal>;
    /// Ends a message and gives out the rest; returns its length.
    ///
    /// # Errors
    /// See [`Self::begin`].
    fn finish(&mut self, regions: &mut Regions<'_>) -> Result<usize, Self::Refusal>;
    /// Does what `EVP_Cipher` does.
    ///
    /// # Errors
    /// See [`Self::begin`].
    fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Self::Refusal>;
    /// Answers a question about the context.
    ///
    /// # Errors
    /// See [`Self::begin`].
    fn get(&mut self, wanted: Wanted<'_>) -> Result<(), Self::Refusal>;
    /// Takes over a setting of the context.
    ///
    /// # Errors
    /// See [`Self::begin`].
    fn set(&mut self, given: Given<'_>) -> Result<(), Self::Refusal>;
}

/// The functions of the cipher with number `N`.
pub struct Table<C, const N: usize>(PhantomData<C>);

impl<C: Cipher, const N: usize> Table<C, N> {
    /// The functions with their numbers.
    pub const DISPATCH: &[Dispatch] = &[
        Dispatch::new(
            id::NEWCTX,
            Function {
                newctx: newctx::<C, N>,
            },
        ),
        Dispatch::new(
            id::FREECTX,
            Function {
                freectx: context::free::<C>,
            },
        ),
        Dispatch::new(
            id::DUPCTX,
            Function {
                dupctx: context::duplicate::<C>,
            },
        ),
        Dispatch::new(
            id::ENCRYPT_INIT,
            Function {
                init: encrypt_init::<C>,
            },
        ),
        Dispatch::new(
            id::DECRYPT_INIT,
            Function {
                init: decrypt_init::<C>,
            },
        ),
        Dispatch::new(
            id::UPDATE,
            Function {
                update: update::<C>,
            },
        ),
        Dispatch::new(
            id::FINAL,
            Function {
                finalize: finalize::<C>,
            },
        ),
        Dispatch::new(
            id::CIPHER,
            Function {
                update: cipher::<C>,
            },
        ),
        Dispatch::new(
            id::GET_PARAMS,
            Function {
                get_params: get_params::<C, N>,
            },
        ),
        Dispatch::new(
            id::GET_CTX_PARAMS,
            Function {
                get_ctx_params: get_ctx_params::<C>,
            },
        ),
        Dispatch::new(
            id::SET_CTX_PARAMS,
            Function {
                set_ctx_params: set_ctx_params::<C>,
            },
        ),
        Dispatch::new(
            id::GETTABLE_PARAMS,
            Function {
                params: gettable_params::<C>,
            },
        ),
        Dispatch::new(
            id::GETTABLE_CTX_PARAMS,
            Function {
                ctx_params: gettable_ctx_params::<C>,
            },
        ),
        Dispatch::new(
            id::SETTABLE_CTX_PARAMS,
            Function {
                ctx_params: settable_ctx_params::<C>,
            },
        ),
        Dispatch::END,
    ];
}

unsafe extern "C" fn newctx<C: Cipher, const N: usize>(provider: *mut c_void) -> *mut c_void {
    Context::hand_over(|| {
        // SAFETY: OpenSSL passes what the provider's init function has given to it, which lives until
        // teardown, and nothing changes it but by shared references.
        let provider = unsafe { provider.cast::<C::Provider>().as_ref() }?;
        Some((C::new(provider, N), C::host(provider)))
    })
}

unsafe extern "C" fn encrypt_init<C: Cipher>(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    settings: *const Param,
) -> c_int {
    let (key, iv) = ((key, key_len), (iv, iv_len));
    // SAFETY: these are OpenSSL's arguments, which keep the promises of `init`.
    unsafe { init::<C>(context, Direction::Encrypt, key, iv, settings) }
}

unsafe extern "C" fn decrypt_init<C: Cipher>(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    settings: *const Param,
) -> c_int {
    let (key, iv) = ((key, key_len), (iv, iv_len));
    // SAFETY: as in `encrypt_init`.
    unsafe { init::<C>(context, Direction::Decrypt, key, iv, settings) }
}

/// Both init functions.
///
/// # Safety
/// As for [`with`]; key and IV are null or readable for their lengths, `settings` is null or a
/// list with an end.
unsafe fn init<C: Cipher>(
    context: *mut c_void,
    direction: Direction,
    (key, key_len): (*const u8, usize),
    (iv, iv_len): (*const u8, usize),
    settings: *const Param,
) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: OpenSSL passes a list with an end, or null.
        unsafe { set(cipher, settings) }?;
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let (key, iv) = unsafe { (bytes(key, key_len), bytes(iv, iv_len)) };
        cipher.begin(direction, key, iv)
    };
    // SAFETY: as the caller promises.
    unsafe { context::with::<C, C::Refusal>(context, work) }
}

unsafe extern "C" fn update<C: Cipher>(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
    input: *const u8,
    input_len: usize,
) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: OpenSSL passes as much input and room for output as it says.
        let mut regions = unsafe { Regions::new(input, input_len, output, room) }?;
        let len = cipher.update(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<C, C::Refusal>(context, work) }
}

unsafe extern "C" fn finalize<C: Cipher>(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: OpenSSL passes as much room for output as it says; there is no input.
        let mut regions = unsafe { Regions::new(std::ptr::null(), 0, output, room) }?;
        let len = cipher.finish(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<C, C::Refusal>(context, work) }
}

unsafe extern "C" fn cipher<C: Cipher>(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
    input: *const u8,
    input_len: usize,
) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: OpenSSL passes as much input and room for output as it says.
        let mut regions = unsafe { Regions::new(input, input_len, output, room) }?;
        let len = cipher.cipher(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<C, C::Refusal>(context, work) }
}

unsafe extern "C" fn get_params<C: Cipher, const N: usize>(list: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a list with an end that may be written.
    let answered = catch_unwind(|| unsafe {
        params::answer(list, C::GETTABLE.names, |wanted| C::describe(N, wanted))
    });
    c_int::from(matches!(answered, Ok(Ok(()))))
}

unsafe extern "C" fn get_ctx_params<C: Cipher>(context: *mut c_void, list: *mut Param) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: OpenSSL passes a list with an end that may be written.
        unsafe { params::answer(list, C::GETTABLE_CTX.names, |wanted| cipher.get(wanted)) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<C, C::Refusal>(context, work) }
}

unsafe extern "C" fn set_ctx_params<C: Cipher>(context: *mut c_void, list: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a list with an end, and its context.
    unsafe { context::with::<C, C::Refusal>(context, |cipher| set(cipher, list)) }
}

/// Takes over settings; names that are not known are passed over, as OpenSSL's own ciphers do.
///
/// # Safety
/// `list` must be null or a list with an end.
unsafe fn set<C: Cipher>(cipher: &mut C, list: *const Param) -> Result<(), C::Refusal> {
    // SAFETY: as the caller promises.
    unsafe { params::take(list, C::SETTABLE_CTX.names, |given| cipher.set(given)) }
}

unsafe extern "C" fn gettable_params<C: Cipher>(_provider: *mut c_void) -> *const Param {
    (C::GETTABLE.list)()
}

unsafe extern "C" fn gettable_ctx_params<C: Cipher>(
    _context: *mut c_void,
    _provider: *mut c_void,
) -> *const Param {
    (C::GETTABLE_CTX.list)()
}

unsafe extern "C" fn settable_ctx_params<C: Cipher>(
    _context: *mut c_void,
    _provider: *mut c_void,
) -> *const Param {
    (C::SETTABLE_CTX.list)()
}
