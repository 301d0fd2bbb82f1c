//! The provider itself: how OpenSSL finds the algorithms.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};

use provider_abi::abi::{self, Constant, CoreHandle, Dispatch, Item};
use provider_abi::{Entries, Host, Module, Table};

use crate::algorithm::{COUNT, numbered};
use crate::cipher::Aes;
use crate::key;
use crate::loaded::Provider;
use crate::mac;
use crate::refusal::{REASONS, Refusal};
use crate::signature;

const PROPERTIES: &CStr = c"provider=cordon_accel,fips=no";

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

// SAFETY: `REASON_LIST` and all lists of algorithms end, those of ciphers by `Provider::new`, and are constants or the provider's own.
unsafe impl Module for Provider {
    type Refusal = Refusal;
    const REASONS: *const Item = REASON_LIST.0.as_ptr();

    fn load(host: Host) -> Result<Self, Refusal> {
        Self::new(host, &CIPHERS.0)
    }

    fn name(&self) -> &'static CStr {
        c"Cordon accelerator provider"
    }

    fn algorithms(&self, operation: c_int) -> *const abi::Algorithm {
        match operation {
            abi::OPERATION_CIPHER => self.ciphers(),
            abi::OPERATION_MAC if self.hmac() => MACS.0.as_ptr(),
            abi::OPERATION_KEYMGMT if self.rsa() => KEYS.0.as_ptr(),
            abi::OPERATION_SIGNATURE if self.rsa() => SIGNATURES.0.as_ptr(),
            _ => std::ptr::null(),
        }
    }
}

/// The function that OpenSSL looks for in a provider module; see [`Entries::init`].
///
/// # Safety
/// As that function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const CoreHandle,
    functions: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { Entries::<Provider>::init(handle, functions, out, context) }
}
