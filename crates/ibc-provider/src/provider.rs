//! The provider itself: how OpenSSL finds the ciphers.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{Location, catch_unwind};

use ibc::Backend;

use provider_abi::abi::{
    self, Constant, CoreHandle, Dispatch, Function, Item, Param, data_type, provider_function as id,
};
use provider_abi::params::{self, Descriptions, Wanted, describe};
use provider_abi::{CallError, Host, Refusal as _, Table};

use crate::algorithm::{Algorithm, COUNT, Flavour};
use crate::refusal::{REASONS, Refusal};
use crate::stream::Stream;

const NAME: &CStr = c"name";
const VERSION: &CStr = c"version";
const BUILD_INFO: &CStr = c"buildinfo";
const STATUS: &CStr = c"status";

/// One loaded provider: what OpenSSL calls `provctx`.
pub(crate) struct Provider {
    pub(crate) host: Host,
    /// Computing back end; `backend` in the module's section of the configuration, else the fastest.
    pub(crate) backend: Backend,
    flavour: Flavour,
}

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

// All ciphers of the module with these numbers.
macro_rules! algorithms {
    ($($number:expr),*) => {
        [$(algorithm::<{ $number }>()),*, abi::Algorithm::END]
    };
}

static PLAIN: Constant<[abi::Algorithm; COUNT + 1]> = Constant(algorithms![
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
]);
static OPENVPN: Constant<[abi::Algorithm; COUNT + 1]> = Constant(algorithms![
    15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
]);

const fn algorithm<const N: usize>() -> abi::Algorithm {
    let algorithm = Algorithm::numbered(N % COUNT);
    let properties = if N < COUNT {
        c"provider=cordon_ibc,fips=no"
    } else {
        c"provider=cordon_ibc_openvpn,fips=no"
    };
    abi::Algorithm {
        names: algorithm.name().as_ptr(),
        properties: properties.as_ptr(),
        implementation: Table::<Stream, N>::DISPATCH.as_ptr(),
        description: algorithm.description().as_ptr(),
    }
}

/// Finds the module that was loaded, by the names under which it was.
fn flavour(host: &Host) -> Flavour {
    let names = [c"module-filename", c"provider-name"];
    let for_openvpn = names
        .into_iter()
        .filter_map(|key| host.text(key))
        .any(|name| Flavour::of_name(name.as_bytes()) == Flavour::OpenVpn);
    if for_openvpn {
        Flavour::OpenVpn
    } else {
        Flavour::Plain
    }
}

/// The back end that the module's section of the configuration asks for, else the fastest.
///
/// # Errors
/// A name that is none, or a back end that this processor does not have.
fn backend(host: &Host) -> Result<Backend, Refusal> {
    let Some(name) = host.text(c"backend") else {
        return Ok(Backend::best());
    };
    let named = name.to_str().ok().and_then(|name| name.parse().ok());
    named
        .filter(|backend: &Backend| backend.is_available())
        .ok_or(Refusal::Backend)
}

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
        let flavour = flavour(&host);
        match backend(&host) {
            Ok(backend) => Some(Box::into_raw(Box::new(Provider {
                host,
                backend,
                flavour,
            }))),
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
        drop(unsafe { Box::from_raw(provider.cast::<Provider>()) });
    }
}

unsafe extern "C" fn gettable_params(_provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn get_params(provider: *mut c_void, list: *mut Param) -> c_int {
    // SAFETY: made by `OSSL_provider_init` and not yet torn down; nothing changes it.
    let Some(provider) = (unsafe { provider.cast::<Provider>().as_ref() }) else {
        return 0;
    };
    let reply = |wanted: Wanted<'_>| {
        let name = wanted.name();
        if name == NAME {
            wanted.text(match provider.flavour {
                Flavour::Plain => c"Cordon IBC provider (research cipher, not secure)",
                Flavour::OpenVpn => {
                    c"Cordon IBC provider for OpenVPN (research cipher, not secure)"
                }
            })
        } else if name == STATUS {
            wanted.number(1)
        } else {
            wanted.text(VERSION_TEXT)
        }
    };
    // SAFETY: OpenSSL passes a list with an end that may be written.
    let answered = catch_unwind(std::panic::AssertUnwindSafe(|| unsafe {
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
    match provider {
        Some(provider) if operation == abi::OPERATION_CIPHER => match provider.flavour {
            Flavour::Plain => PLAIN.0.as_ptr(),
            Flavour::OpenVpn => OPENVPN.0.as_ptr(),
        },
        _ => std::ptr::null::<abi::Algorithm>(),
    }
}

unsafe extern "C" fn reason_strings(_provider: *mut c_void) -> *const Item {
    REASON_LIST.0.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end() {
        let names = |list: &[abi::Algorithm]| list.iter().filter(|a| !a.names.is_null()).count();
        assert_eq!(names(&PLAIN.0), COUNT);
        assert_eq!(names(&OPENVPN.0), COUNT);
        let last = REASON_LIST.0[REASONS.len()].text;
        assert!(last.is_null());
    }
}
