//! The provider itself: how OpenSSL finds the algorithms.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use provider_abi::abi::{
    self, Constant, CoreHandle, Dispatch, Function, Item, Param, data_type, provider_function as id,
};
use provider_abi::params::{self, Descriptions, Wanted, describe};
use provider_abi::{CallError, Host, Refusal as _, Table};

use crate::algorithm::{COUNT, numbered};
use crate::cipher::Aes;
use crate::key;
use crate::loaded::Provider;
use crate::mac;
use crate::refusal::REASONS;
use crate::signature;

const NAME: &CStr = c"name";
const VERSION: &CStr = c"version";
const BUILD_INFO: &CStr = c"buildinfo";
const STATUS: &CStr = c"status";
const PROPERTIES: &CStr = c"provider=cordon_accel,fips=no";

static FUNCTIONS: [Dispatch; 6] = [
    Dispatch::new(id::TEARDOWN, Function { freectx: teardown }),
    Dispatch::new(
        id::GETTABLE_PARAMS,
        Function {
            params: gettable_params,
        },
    ),
    Dispatch::new(
        id::GET_PARAMS,
        Function {
            get_ctx_params: get_params,
        },
    ),
    Dispatch::new(
        id::QUERY_OPERATION,
        Function {
            query: query_operation,
        },
    ),
    Dispatch::new(
        id::GET_REASON_STRINGS,
        Function {
            reasons: reason_strings,
        },
    ),
    Dispatch::END,
];

static GETTABLE: Descriptions<5> = Descriptions([
    describe(NAME, data_type::UTF8_PTR),
    describe(VERSION, data_type::UTF8_PTR),
    describe(BUILD_INFO, data_type::UTF8_PTR),
    describe(STATUS, data_type::UNSIGNED_INTEGER),
    params::END,
]);

static REASON_LIST: Constant<[Item; REASONS.len() + 1]> = Constant(abi::reason_list(&REASONS));

static CIPHERS: Constant<[abi::Algorithm; COUNT]> = Constant([
    cipher::<0>(),
    cipher::<1>(),
    cipher::<2>(),
    cipher::<3>(),
    cipher::<4>(),
    cipher::<5>(),
    cipher::<6>(),
    cipher::<7>(),
    cipher::<8>(),
    cipher::<9>(),
    cipher::<10>(),
    cipher::<11>(),
]);

const fn cipher<const N: usize>() -> abi::Algorithm {
    let (_, _, names) = numbered(N);
    abi::Algorithm {
        names: names.as_ptr(),
        properties: PROPERTIES.as_ptr(),
        implementation: Table::<Aes, N>::DISPATCH.as_ptr(),
        description: c"AES, on the accelerator or in software".as_ptr(),
    }
}

/// Keys come here from OpenSSL's own provider, for a signature. So no fetch shall prefer them: they have not the property
/// by which this provider is preferred, and keys are made, read and compared where they always are.
static KEYS: Constant<[abi::Algorithm; 2]> = Constant([
    abi::Algorithm {
        names: c"RSA:rsaEncryption:1.2.840.113549.1.1.1".as_ptr(),
        properties: c"fips=no".as_ptr(),
        implementation: key::FUNCTIONS.0.as_ptr(),
        description: c"RSA keys for signatures".as_ptr(),
    },
    abi::Algorithm::END,
]);

static SIGNATURES: Constant<[abi::Algorithm; 2]> = Constant([
    abi::Algorithm {
        names: c"RSA:rsaEncryption:1.2.840.113549.1.1.1".as_ptr(),
        properties: PROPERTIES.as_ptr(),
        implementation: signature::FUNCTIONS.0.as_ptr(),
        description: c"RSA signatures, on the accelerator or in software".as_ptr(),
    },
    abi::Algorithm::END,
]);

static MACS: Constant<[abi::Algorithm; 2]> = Constant([
    abi::Algorithm {
        names: c"HMAC".as_ptr(),
        properties: PROPERTIES.as_ptr(),
        implementation: mac::FUNCTIONS.0.as_ptr(),
        description: c"HMAC, on the accelerator or in software".as_ptr(),
    },
    abi::Algorithm::END,
]);

/// The function that OpenSSL looks for in a provider module.
///
/// Gives back the provider's functions and its context; returns 1, or 0 when it cannot start.
///
/// # Safety
/// As OpenSSL's `core.h` has it: `functions` is the core's table, which ends with the number 0 and
/// is valid, like `handle`, until teardown; `out` and `context` are places for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const CoreHandle,
    functions: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    let made = catch_unwind(|| {
        // SAFETY: as the caller promises.
        let host = unsafe { Host::new(handle, functions) };
        match Provider::new(host, &CIPHERS.0) {
            Ok(provider) => Some(Box::into_raw(Box::new(provider))),
            Err(refusal) => {
                refusal.raise(&host, Location::caller());
                None
            }
        }
    });
    let Ok(Some(provider)) = made else { return 0 };
    // SAFETY: places for pointers, as the caller promises.
    unsafe {
        out.write(FUNCTIONS.as_ptr());
        context.write(provider.cast());
    }
    1
}

unsafe extern "C" fn teardown(provider: *mut c_void) {
    if !provider.is_null() {
        // SAFETY: made by `OSSL_provider_init`; OpenSSL calls this last, and once.
        let provider = unsafe { Box::from_raw(provider.cast::<Provider>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(provider)));
    }
}

unsafe extern "C" fn gettable_params(_provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn get_params(_provider: *mut c_void, list: *mut Param) -> c_int {
    let reply = |wanted: Wanted<'_>| {
        let name = wanted.name();
        if name == NAME {
            wanted.text(c"Cordon accelerator provider")
        } else if name == STATUS {
            wanted.number(1)
        } else {
            wanted.text(VERSION_TEXT)
        }
    };
    // SAFETY: OpenSSL passes a list with an end that may be written.
    let answered = catch_unwind(AssertUnwindSafe(|| unsafe {
        params::answer::<CallError>(list, &[NAME, VERSION, BUILD_INFO, STATUS], reply)
    }));
    c_int::from(matches!(answered, Ok(Ok(()))))
}

/// This crate's version, with the end that C wants.
const VERSION_TEXT: &CStr = {
    let text = concat!(env!("CARGO_PKG_VERSION"), "\0");
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"unknown",
    }
};

unsafe extern "C" fn query_operation(
    provider: *mut c_void,
    operation: c_int,
    no_store: *mut c_int,
) -> *const abi::Algorithm {
    // SAFETY: OpenSSL passes null or a place for a number.
    if let Some(no_store) = unsafe { no_store.as_mut() } {
        *no_store = 0;
    }
    // SAFETY: made by `OSSL_provider_init` and not yet torn down; nothing changes it.
    let provider = unsafe { provider.cast::<Provider>().as_ref() };
    match (provider, operation) {
        (Some(provider), abi::OPERATION_CIPHER) => provider.ciphers(),
        (Some(provider), abi::OPERATION_MAC) if provider.hmac() => MACS.0.as_ptr(),
        (Some(provider), abi::OPERATION_KEYMGMT) if provider.rsa() => KEYS.0.as_ptr(),
        (Some(provider), abi::OPERATION_SIGNATURE) if provider.rsa() => SIGNATURES.0.as_ptr(),
        _ => std::ptr::null::<abi::Algorithm>(),
    }
}

unsafe extern "C" fn reason_strings(_provider: *mut c_void) -> *const Item {
    REASON_LIST.0.as_ptr()
}
