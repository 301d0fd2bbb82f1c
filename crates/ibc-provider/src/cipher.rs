//! The functions of each cipher, as OpenSSL calls them.
//!
//! Each does three things: turn pointers into safe types, call [`Stream`], turn the outcome into
//! 1 or into 0 with an entry in the error queue. A panic is caught; the context is then refused
//! for good.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use provider_abi::abi::{
    Dispatch, Function, Param, cipher_function as id, data_type::INTEGER, data_type::OCTET_STRING,
    data_type::UNSIGNED_INTEGER,
};
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use provider_abi::{CallError, Host, Regions, bytes, tell};

use crate::algorithm::{Algorithm, Flavour};
use crate::provider::Provider;
use crate::refusal::Refusal;
use crate::stream::{Direction, Stream};

const AEAD: &CStr = c"aead";
const BLOCK_SIZE: &CStr = c"blocksize";
const CTS: &CStr = c"cts";
const CUSTOM_IV: &CStr = c"custom-iv";
const HAS_RAND_KEY: &CStr = c"has-randkey";
const IV: &CStr = c"iv";
const IV_LEN: &CStr = c"ivlen";
const KEY_LEN: &CStr = c"keylen";
const MODE: &CStr = c"mode";
const MULTIBLOCK: &CStr = c"tls-multi";
const NUM: &CStr = c"num";
const PADDING: &CStr = c"padding";
const UPDATED_IV: &CStr = c"updated-iv";

/// Gettable parameters of a cipher.
static GETTABLE: Descriptions<10> = Descriptions([
    describe(MODE, UNSIGNED_INTEGER),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(BLOCK_SIZE, UNSIGNED_INTEGER),
    describe(AEAD, INTEGER),
    describe(CUSTOM_IV, INTEGER),
    describe(CTS, INTEGER),
    describe(MULTIBLOCK, INTEGER),
    describe(HAS_RAND_KEY, INTEGER),
    params::END,
]);

/// Gettable parameters of a context.
static GETTABLE_CTX: Descriptions<7> = Descriptions([
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(PADDING, UNSIGNED_INTEGER),
    describe(NUM, UNSIGNED_INTEGER),
    describe(IV, OCTET_STRING),
    describe(UPDATED_IV, OCTET_STRING),
    params::END,
]);

/// Settable parameters of a context.
static SETTABLE_CTX: Descriptions<4> = Descriptions([
    describe(PADDING, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    params::END,
]);

/// A cipher context: what OpenSSL calls `cctx`.
struct Context {
    stream: Stream,
    host: Host,
    broken: bool,
}

/// The functions of cipher number `N` as the module of flavour `OPENVPN` has them.
pub(crate) struct Table<const N: usize, const OPENVPN: bool>;

impl<const N: usize, const OPENVPN: bool> Table<N, OPENVPN> {
    const ALGORITHM: Algorithm = Algorithm::numbered(N);
    const FLAVOUR: Flavour = if OPENVPN {
        Flavour::OpenVpn
    } else {
        Flavour::Plain
    };

    pub(crate) const DISPATCH: &[Dispatch] = &[
        Dispatch::new(
            id::NEWCTX,
            Function {
                newctx: newctx::<N>,
            },
        ),
        Dispatch::new(id::FREECTX, Function { freectx }),
        Dispatch::new(id::DUPCTX, Function { dupctx }),
        Dispatch::new(id::ENCRYPT_INIT, Function { init: encrypt_init }),
        Dispatch::new(id::DECRYPT_INIT, Function { init: decrypt_init }),
        Dispatch::new(id::UPDATE, Function { update }),
        Dispatch::new(id::FINAL, Function { finalize }),
        Dispatch::new(id::CIPHER, Function { update: cipher }),
        Dispatch::new(
            id::GET_PARAMS,
            Function {
                get_params: get_params::<N, OPENVPN>,
            },
        ),
        Dispatch::new(id::GET_CTX_PARAMS, Function { get_ctx_params }),
        Dispatch::new(id::SET_CTX_PARAMS, Function { set_ctx_params }),
        Dispatch::new(
            id::GETTABLE_PARAMS,
            Function {
                params: gettable_params,
            },
        ),
        Dispatch::new(
            id::GETTABLE_CTX_PARAMS,
            Function {
                ctx_params: gettable_ctx_params,
            },
        ),
        Dispatch::new(
            id::SETTABLE_CTX_PARAMS,
            Function {
                ctx_params: settable_ctx_params,
            },
        ),
        Dispatch::END,
    ];
}

unsafe extern "C" fn newctx<const N: usize>(provider: *mut c_void) -> *mut c_void {
    let made = catch_unwind(|| {
        // SAFETY: OpenSSL passes what `OSSL_provider_init` has given to it, which lives until
        // teardown, and nothing changes it.
        let provider = unsafe { provider.cast::<Provider>().as_ref() }?;
        let stream = Stream::new(Algorithm::numbered(N), provider.backend);
        let context = Box::new(Context {
            stream,
            host: provider.host,
            broken: false,
        });
        Some(Box::into_raw(context).cast())
    });
    made.ok().flatten().unwrap_or(std::ptr::null_mut())
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    if context.is_null() {
        return;
    }
    // SAFETY: OpenSSL frees what `newctx` or `dupctx` has made, once, and does not use it again.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(context)));
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    let copied = catch_unwind(|| {
        // SAFETY: OpenSSL passes a context of `newctx` that nobody changes at the same time.
        let context = unsafe { context.cast::<Context>().as_ref() }?;
        let copy = Box::new(Context {
            stream: context.stream.clone(),
            host: context.host,
            broken: context.broken,
        });
        Some(Box::into_raw(copy).cast())
    });
    copied.ok().flatten().unwrap_or(std::ptr::null_mut())
}

/// Runs `work` on a context; the outcome for OpenSSL is 1 or 0.
///
/// # Safety
/// `context` must be null or come from `newctx` or `dupctx`, and nobody else may use it meanwhile:
/// OpenSSL leaves that to its callers, for contexts of all ciphers.
#[track_caller]
unsafe fn with(
    context: *mut c_void,
    work: impl FnOnce(&mut Stream) -> Result<(), Refusal>,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(context) = (unsafe { context.cast::<Context>().as_mut() }) else {
        return 0;
    };
    let stream = &mut context.stream;
    let refusal = if context.broken {
        Refusal::Broken
    } else {
        match catch_unwind(AssertUnwindSafe(|| work(stream))) {
            Ok(Ok(())) => return 1,
            Ok(Err(refusal)) => refusal,
            Err(_) => {
                context.broken = true;
                Refusal::Broken
            }
        }
    };
    let host = context.host;
    // Formatting a message does not panic; if it ever did, the 0 below would still be returned.
    let place = Location::caller();
    let _ = catch_unwind(AssertUnwindSafe(|| refusal.raise(&host, place)));
    0
}

unsafe extern "C" fn encrypt_init(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    settings: *const Param,
) -> c_int {
    // SAFETY: these are OpenSSL's arguments, which keep the promises of `init`.
    unsafe {
        init(
            context,
            Direction::Encrypt,
            (key, key_len),
            (iv, iv_len),
            settings,
        )
    }
}

unsafe extern "C" fn decrypt_init(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    settings: *const Param,
) -> c_int {
    // SAFETY: as in `encrypt_init`.
    unsafe {
        init(
            context,
            Direction::Decrypt,
            (key, key_len),
            (iv, iv_len),
            settings,
        )
    }
}

/// Both init functions.
///
/// # Safety
/// As for [`with`]; key and IV are null or readable for their lengths, `settings` is null or a
/// list with an end.
unsafe fn init(
    context: *mut c_void,
    direction: Direction,
    (key, key_len): (*const u8, usize),
    (iv, iv_len): (*const u8, usize),
    settings: *const Param,
) -> c_int {
    let work = |stream: &mut Stream| {
        // SAFETY: OpenSSL passes a list with an end, or null.
        unsafe { set(stream, settings) }?;
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let (key, iv) = unsafe { (bytes(key, key_len), bytes(iv, iv_len)) };
        stream.begin(direction, key, iv)
    };
    // SAFETY: as the caller promises.
    unsafe { with(context, work) }
}

unsafe extern "C" fn update(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
    input: *const u8,
    input_len: usize,
) -> c_int {
    let work = |stream: &mut Stream| {
        // SAFETY: OpenSSL passes as much input and room for output as it says.
        let mut regions = unsafe { Regions::new(input, input_len, output, room) }?;
        let len = stream.update(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { with(context, work) }
}

unsafe extern "C" fn finalize(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
) -> c_int {
    let work = |stream: &mut Stream| {
        // SAFETY: OpenSSL passes as much room for output as it says; there is no input.
        let mut regions = unsafe { Regions::new(std::ptr::null(), 0, output, room) }?;
        let len = stream.finish(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { with(context, work) }
}

unsafe extern "C" fn cipher(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
    input: *const u8,
    input_len: usize,
) -> c_int {
    let work = |stream: &mut Stream| {
        // SAFETY: OpenSSL passes as much input and room for output as it says.
        let mut regions = unsafe { Regions::new(input, input_len, output, room) }?;
        let len = stream.cipher(&mut regions)?;
        // SAFETY: OpenSSL passes a place for the length.
        unsafe { tell(output_len, len) };
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { with(context, work) }
}

unsafe extern "C" fn get_params<const N: usize, const OPENVPN: bool>(list: *mut Param) -> c_int {
    const KNOWN: [&CStr; 9] = [
        MODE,
        KEY_LEN,
        IV_LEN,
        BLOCK_SIZE,
        AEAD,
        CUSTOM_IV,
        CTS,
        MULTIBLOCK,
        HAS_RAND_KEY,
    ];
    let (algorithm, flavour) = (Table::<N, OPENVPN>::ALGORITHM, Table::<N, OPENVPN>::FLAVOUR);
    let reply = |wanted: Wanted<'_>| {
        let name = wanted.name();
        wanted.number(if name == MODE {
            algorithm.evp_mode(flavour).into()
        } else if name == KEY_LEN {
            algorithm.variant.key_size() as u64
        } else if name == IV_LEN {
            algorithm.iv_len() as u64
        } else if name == BLOCK_SIZE {
            algorithm.block_size() as u64
        } else {
            // None of the special kinds.
            0
        })
    };
    // SAFETY: OpenSSL passes a list with an end that may be written.
    let answered = catch_unwind(|| unsafe { params::answer::<CallError>(list, &KNOWN, reply) });
    c_int::from(matches!(answered, Ok(Ok(()))))
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, list: *mut Param) -> c_int {
    const KNOWN: [&CStr; 6] = [KEY_LEN, IV_LEN, PADDING, NUM, IV, UPDATED_IV];
    let work = |stream: &mut Stream| {
        let reply = |wanted: Wanted<'_>| {
            let name = wanted.name();
            let answered = if name == IV {
                let iv = stream.iv().ok_or(Refusal::NoIv)?;
                wanted.octets(iv)
            } else if name == UPDATED_IV {
                let iv = stream.updated_iv().ok_or(Refusal::NoIv)?;
                wanted.octets(&iv)
            } else if name == KEY_LEN {
                wanted.number(stream.algorithm().variant.key_size() as u64)
            } else if name == IV_LEN {
                wanted.number(stream.iv_len() as u64)
            } else if name == PADDING {
                wanted.number(stream.padding().into())
            } else {
                wanted.number(stream.num())
            };
            answered.map_err(Refusal::from)
        };
        // SAFETY: OpenSSL passes a list with an end that may be written.
        unsafe { params::answer(list, &KNOWN, reply) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { with(context, work) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, list: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a list with an end, and its context.
    unsafe { with(context, |stream| set(stream, list)) }
}

/// Takes over settings; names that are not known are passed over, as OpenSSL's own ciphers do.
///
/// # Safety
/// `list` must be null or a list with an end.
unsafe fn set(stream: &mut Stream, list: *const Param) -> Result<(), Refusal> {
    let apply = |given: Given<'_>| {
        let (name, value) = (given.name(), given.number()?);
        if name == PADDING {
            stream.set_padding(value != 0);
            return Ok(());
        }
        let len = usize::try_from(value).map_err(|_| Refusal::Parameter(name))?;
        if name == IV_LEN {
            return stream.set_iv_len(len);
        }
        let wanted = stream.algorithm().variant.key_size();
        if len == wanted {
            Ok(())
        } else {
            Err(Refusal::KeyLength { given: len, wanted })
        }
    };
    // SAFETY: as the caller promises.
    unsafe { params::take(list, &[PADDING, IV_LEN, KEY_LEN], apply) }
}

unsafe extern "C" fn gettable_params(_provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn gettable_ctx_params(
    _context: *mut c_void,
    _provider: *mut c_void,
) -> *const Param {
    GETTABLE_CTX.as_ptr()
}

unsafe extern "C" fn settable_ctx_params(
    _context: *mut c_void,
    _provider: *mut c_void,
) -> *const Param {
    SETTABLE_CTX.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_refused_and_breaks_the_context() {
        // SAFETY: a core without functions.
        let host = unsafe { Host::new(std::ptr::null(), std::ptr::null()) };
        let mut context = Context {
            stream: Stream::new(Algorithm::numbered(1), ibc::Backend::best()),
            host,
            broken: false,
        };
        let pointer: *mut c_void = std::ptr::from_mut(&mut context).cast();
        // SAFETY: a context that nobody else uses.
        unsafe {
            assert_eq!(with(pointer, |_| Ok(())), 1);
            assert_eq!(with(pointer, |_| panic!("on purpose")), 0);
            assert_eq!(with(pointer, |_| Ok(())), 0);
            assert_eq!(with(std::ptr::null_mut(), |_| Ok(())), 0);
        }
    }
}
