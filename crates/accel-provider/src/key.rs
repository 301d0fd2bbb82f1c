//! Private keys of RSA, as OpenSSL's own provider exports them for a signature.
//!
//! Only what the accelerator can use is imported: whole private keys of 2048, 3072 and 4096 bits. Every other key is
//! refused, and OpenSSL goes on with its own provider; so public keys never come here.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use offload_policy::{Policy, RsaKey, RsaNumbers};
use provider_abi::CallError;
use provider_abi::abi::{
    self, Constant, Dispatch, Function, Param, data_type, key_selection, keymgmt_function as id,
};
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use zeroize::Zeroizing;

use crate::loaded::Provider;

const BITS: &CStr = c"bits";
const SECURITY_BITS: &CStr = c"security-bits";
const MAX_SIZE: &CStr = c"max-size";
const DEFAULT_DIGEST: &CStr = c"default-digest";

/// Names of the numbers in the order of [`RsaNumbers`].
const NUMBERS: [&CStr; 8] = [
    c"n",
    c"e",
    c"d",
    c"rsa-factor1",
    c"rsa-factor2",
    c"rsa-exponent1",
    c"rsa-exponent2",
    c"rsa-coefficient1",
];
/// A third prime: the accelerator has none such.
const THIRD: &CStr = c"rsa-factor3";

/// OpenSSL's `keydata`.
pub(crate) struct Key {
    policy: Arc<Policy>,
    numbers: OnceLock<Arc<RsaKey>>,
}

impl Key {
    pub(crate) fn rsa(&self) -> Option<&Arc<RsaKey>> {
        self.numbers.get()
    }
}

pub(crate) static FUNCTIONS: Constant<[Dispatch; 10]> = Constant([
    Dispatch::new(id::NEW, Function { newctx: new }),
    Dispatch::new(id::FREE, Function { freectx: free }),
    Dispatch::new(
        id::GET_PARAMS,
        Function {
            get_ctx_params: get_params,
        },
    ),
    Dispatch::new(
        id::GETTABLE_PARAMS,
        Function {
            params: gettable_params,
        },
    ),
    Dispatch::new(id::HAS, Function { has }),
    Dispatch::new(id::MATCH, Function { matches }),
    Dispatch::new(id::IMPORT, Function { import }),
    Dispatch::new(id::IMPORT_TYPES, Function { import_types }),
    Dispatch::new(id::QUERY_OPERATION_NAME, Function { operation_name }),
    Dispatch::END,
]);

static GETTABLE: Descriptions<5> = Descriptions([
    describe(BITS, data_type::INTEGER),
    describe(SECURITY_BITS, data_type::INTEGER),
    describe(MAX_SIZE, data_type::INTEGER),
    describe(DEFAULT_DIGEST, data_type::UTF8_STRING),
    params::END,
]);

static IMPORTED: Descriptions<9> = Descriptions([
    describe(c"n", data_type::UNSIGNED_INTEGER),
    describe(c"e", data_type::UNSIGNED_INTEGER),
    describe(c"d", data_type::UNSIGNED_INTEGER),
    describe(c"rsa-factor1", data_type::UNSIGNED_INTEGER),
    describe(c"rsa-factor2", data_type::UNSIGNED_INTEGER),
    describe(c"rsa-exponent1", data_type::UNSIGNED_INTEGER),
    describe(c"rsa-exponent2", data_type::UNSIGNED_INTEGER),
    describe(c"rsa-coefficient1", data_type::UNSIGNED_INTEGER),
    params::END,
]);

unsafe extern "C" fn new(provider: *mut c_void) -> *mut c_void {
    let made = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes what `OSSL_provider_init` has given to it, which lives until teardown.
        let provider = unsafe { provider.cast::<Provider>().as_ref() }?;
        let key = Box::new(Key {
            policy: Arc::clone(provider.policy()),
            numbers: OnceLock::new(),
        });
        Some(Box::into_raw(key).cast())
    }));
    made.ok().flatten().unwrap_or(std::ptr::null_mut())
}

unsafe extern "C" fn free(key: *mut c_void) {
    if !key.is_null() {
        // SAFETY: made by `new`; OpenSSL frees it once and does not use it again.
        let key = unsafe { Box::from_raw(key.cast::<Key>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(key)));
    }
}

/// The numbers of a private key; none if one is missing or there are more primes.
fn imported(policy: &Arc<Policy>, numbers: &[Zeroizing<Vec<u8>>; 8]) -> Option<RsaKey> {
    let [n, e, d, p, q, dp, dq, qinv] = numbers;
    if numbers.iter().any(|number| number.is_empty()) {
        return None;
    }
    let numbers = RsaNumbers {
        n,
        e,
        d,
        p,
        q,
        dp,
        dq,
        qinv,
    };
    RsaKey::new(policy, &numbers).ok()
}

unsafe extern "C" fn import(key: *mut c_void, selection: c_int, list: *const Param) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes a key of `new`.
        let key = unsafe { key.cast::<Key>().as_ref() }?;
        if selection & key_selection::PRIVATE_KEY == 0 {
            return None;
        }
        let mut numbers: [Zeroizing<Vec<u8>>; 8] = Default::default();
        let mut third = false;
        let take = |given: Given<'_>| {
            let place = NUMBERS.iter().position(|name| *name == given.name());
            match place.and_then(|at| numbers.get_mut(at)) {
                Some(number) => *number = Zeroizing::new(given.large_number()?),
                None => third = true,
            }
            Ok::<_, CallError>(())
        };
        let mut known = [c""; NUMBERS.len() + 1];
        let names = NUMBERS.iter().chain([&THIRD]);
        known
            .iter_mut()
            .zip(names)
            .for_each(|(to, from)| *to = from);
        // SAFETY: OpenSSL passes a list with an end.
        unsafe { params::take(list, &known, take) }.ok()?;
        if third {
            return None;
        }
        let rsa = imported(&key.policy, &numbers)?;
        key.numbers.set(Arc::new(rsa)).ok()
    }));
    c_int::from(matches!(done, Ok(Some(()))))
}

unsafe extern "C" fn import_types(selection: c_int) -> *const Param {
    if selection & key_selection::PRIVATE_KEY == 0 {
        std::ptr::null()
    } else {
        IMPORTED.as_ptr()
    }
}

unsafe extern "C" fn has(key: *const c_void, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes a key of `new`.
    let key = unsafe { key.cast::<Key>().as_ref() };
    let wanted = selection & (key_selection::PRIVATE_KEY | key_selection::PUBLIC_KEY);
    c_int::from(key.is_some_and(|key| wanted == 0 || key.rsa().is_some()))
}

unsafe extern "C" fn matches(one: *const c_void, other: *const c_void, _selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes keys of `new`.
    let (one, other) = unsafe { (one.cast::<Key>().as_ref(), other.cast::<Key>().as_ref()) };
    let keys = one.and_then(Key::rsa).zip(other.and_then(Key::rsa));
    let same = catch_unwind(AssertUnwindSafe(|| {
        keys.is_some_and(|(one, other)| one.same_public(other))
    }));
    c_int::from(same.unwrap_or(false))
}

unsafe extern "C" fn gettable_params(_provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn get_params(key: *mut c_void, list: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a key of `new`.
    let Some(rsa) = (unsafe { key.cast::<Key>().as_ref() }).and_then(Key::rsa) else {
        return 0;
    };
    let bytes = rsa.size() as u64;
    let reply = |wanted: Wanted<'_>| {
        let name = wanted.name();
        if name == DEFAULT_DIGEST {
            wanted.copied_text(c"SHA256")
        } else if name == BITS {
            wanted.number(8 * bytes)
        } else if name == MAX_SIZE {
            wanted.number(bytes)
        } else {
            // NIST SP 800-57, part 1, table 2; between two of its sizes as OpenSSL rounds.
            wanted.number(match bytes {
                256 => 112,
                384 => 128,
                _ => 152,
            })
        }
    };
    let known = [BITS, SECURITY_BITS, MAX_SIZE, DEFAULT_DIGEST];
    // SAFETY: OpenSSL passes a list with an end that may be written.
    let answered = catch_unwind(AssertUnwindSafe(|| unsafe {
        params::answer::<CallError>(list, &known, reply)
    }));
    c_int::from(matches!(answered, Ok(Ok(()))))
}

unsafe extern "C" fn operation_name(operation: c_int) -> *const c_char {
    if operation == abi::OPERATION_SIGNATURE {
        c"RSA".as_ptr()
    } else {
        std::ptr::null()
    }
}
