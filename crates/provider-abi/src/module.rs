//! A provider in safe types, and its functions for OpenSSL.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::abi::{
    Algorithm, CoreHandle, Dispatch, Function, Item, Param, data_type, provider_function as id,
};
use crate::params::{self, Descriptions, Wanted, describe};
use crate::{CallError, Host, Refusal};

const NAME: &CStr = c"name";
const VERSION: &CStr = c"version";
const BUILD_INFO: &CStr = c"buildinfo";
const STATUS: &CStr = c"status";

static GETTABLE: Descriptions<5> = Descriptions([
    describe(NAME, data_type::UTF8_PTR),
    describe(VERSION, data_type::UTF8_PTR),
    describe(BUILD_INFO, data_type::UTF8_PTR),
    describe(STATUS, data_type::UNSIGNED_INTEGER),
    params::END,
]);

/// The workspace's version, which all its providers have, with the end that C wants.
const VERSION_TEXT: &CStr = {
    let text = concat!(env!("CARGO_PKG_VERSION"), "\0");
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"unknown",
    }
};

/// A provider while OpenSSL has it loaded; [`Entries`] are its functions.
///
/// # Safety
/// [`Self::REASONS`] and the lists of [`Self::algorithms`] must have an end, stand as long as the provider does, and have
/// valid pointers.
pub unsafe trait Module: Sized {
    /// The reasons for which it refuses calls.
    type Refusal: Refusal;

    /// Their codes with texts ([`crate::abi::reason_list`]).
    const REASONS: *const Item;

    /// Starts it with the settings that the core has for it.
    ///
    /// # Errors
    /// The reason for which it cannot start.
    fn load(host: Host) -> Result<Self, Self::Refusal>;

    /// The name for people.
    fn name(&self) -> &'static CStr;

    /// Its algorithms for a kind of operation; null if it has none.
    fn algorithms(&self, operation: c_int) -> *const Algorithm;
}

/// The functions of a provider.
pub struct Entries<M>(PhantomData<M>);

impl<M: Module> Entries<M> {
    const FUNCTIONS: &[Dispatch] = &[
        Dispatch::new(
            id::TEARDOWN,
            Function {
                freectx: teardown::<M>,
            },
        ),
        Dispatch::new(
            id::GETTABLE_PARAMS,
            Function {
                params: gettable_params,
            },
        ),
        Dispatch::new(
            id::GET_PARAMS,
            Function {
                get_ctx_params: get_params::<M>,
            },
        ),
        Dispatch::new(
            id::QUERY_OPERATION,
            Function {
                query: query_operation::<M>,
            },
        ),
        Dispatch::new(
            id::GET_REASON_STRINGS,
            Function {
                reasons: reason_strings::<M>,
            },
        ),
        Dispatch::END,
    ];

    /// Does the work of a module's `OSSL_provider_init`: gives the provider's functions and its context; returns 1, or 0 when it
    /// cannot start.
    ///
    /// # Safety
    /// As OpenSSL's `core.h` has it: `functions` is the core's table, which ends with the number 0 and
    /// is valid, like `handle`, until teardown; `out` and `context` are places for pointers.
    pub unsafe fn init(
        handle: *const CoreHandle,
        functions: *const Dispatch,
        out: *mut *const Dispatch,
        context: *mut *mut c_void,
    ) -> c_int {
        let made = catch_unwind(|| {
            // SAFETY: as the caller promises.
            let host = unsafe { Host::new(handle, functions) };
            match M::load(host) {
                Ok(module) => Some(Box::into_raw(Box::new(module))),
                Err(refusal) => {
                    refusal.raise(&host, Location::caller());
                    None
                }
            }
        });
        let Ok(Some(module)) = made else { return 0 };
        // SAFETY: places for pointers, as the caller promises.
        unsafe {
            out.write(Self::FUNCTIONS.as_ptr());
            context.write(module.cast());
        }
        1
    }
}

unsafe extern "C" fn teardown<M: Module>(module: *mut c_void) {
    if !module.is_null() {
        // SAFETY: made by `init`; OpenSSL calls this last, and once.
        let module = unsafe { Box::from_raw(module.cast::<M>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(module)));
    }
}

unsafe extern "C" fn gettable_params(_module: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn get_params<M: Module>(module: *mut c_void, list: *mut Param) -> c_int {
    // SAFETY: made by `init` and not yet torn down; nothing changes it.
    let Some(module) = (unsafe { module.cast::<M>().as_ref() }) else {
        return 0;
    };
    let reply = |wanted: Wanted<'_>| {
        let name = wanted.name();
        if name == NAME {
            wanted.text(module.name())
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

unsafe extern "C" fn query_operation<M: Module>(
    module: *mut c_void,
    operation: c_int,
    no_store: *mut c_int,
) -> *const Algorithm {
    // SAFETY: OpenSSL passes null or a place for a number.
    if let Some(no_store) = unsafe { no_store.as_mut() } {
        *no_store = 0;
    }
    // SAFETY: made by `init` and not yet torn down; nothing changes it.
    let module = unsafe { module.cast::<M>().as_ref() };
    module.map_or(std::ptr::null(), |module| module.algorithms(operation))
}

unsafe extern "C" fn reason_strings<M: Module>(_module: *mut c_void) -> *const Item {
    M::REASONS
}
