//! The provider itself: how OpenSSL finds the ciphers.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};

use ibc::Backend;
use provider_abi::abi::{self, Constant, CoreHandle, Dispatch, Item};
use provider_abi::{Entries, Host, Module, Table};

use crate::algorithm::{Algorithm, COUNT, Flavour};
use crate::refusal::{REASONS, Refusal};
use crate::stream::Stream;

/// One loaded provider: what OpenSSL calls `provctx`.
pub(crate) struct Provider {
    pub(crate) host: Host,
    /// Computing back end; `backend` in the module's section of the configuration, else the fastest.
    pub(crate) backend: Backend,
    flavour: Flavour,
}

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

// SAFETY: the lists are constants that end.
unsafe impl Module for Provider {
    type Refusal = Refusal;
    const REASONS: *const Item = REASON_LIST.0.as_ptr();

    fn load(host: Host) -> Result<Self, Refusal> {
        Ok(Self {
            host,
            backend: backend(&host)?,
            flavour: flavour(&host),
        })
    }

    fn name(&self) -> &'static CStr {
        match self.flavour {
            Flavour::Plain => c"Cordon IBC provider (research cipher, not secure)",
            Flavour::OpenVpn => c"Cordon IBC provider for OpenVPN (research cipher, not secure)",
        }
    }

    fn algorithms(&self, operation: c_int) -> *const abi::Algorithm {
        match self.flavour {
            _ if operation != abi::OPERATION_CIPHER => std::ptr::null(),
            Flavour::Plain => PLAIN.0.as_ptr(),
            Flavour::OpenVpn => OPENVPN.0.as_ptr(),
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
