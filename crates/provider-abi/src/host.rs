//! OpenSSL's core as a provider asks it: its settings and names, and a place for errors.
#![expect(
    unsafe_code,
    reason = "the core's functions are raw pointers of the C interface"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::Location;

use crate::abi::{self, CoreHandle, Dispatch, Param, core_function, data_type};
use crate::params;

/// The core that has loaded a provider.
#[derive(Clone, Copy)]
pub struct Host {
    handle: *const CoreHandle,
    get_params: Option<abi::GetCtxParams>,
    new_error: Option<abi::NewError>,
    set_error_debug: Option<abi::SetErrorDebug>,
    vset_error: Option<abi::VsetError>,
}

impl Host {
    /// Finds the functions of interest in the core's table.
    ///
    /// # Safety
    /// `functions` must be null or a table that ends with the number 0, in which each function has
    /// the type that OpenSSL gives to its number, and `handle` what these functions take; both
    /// valid until teardown.
    pub unsafe fn new(handle: *const CoreHandle, functions: *const Dispatch) -> Self {
        let mut host = Self {
            handle,
            get_params: None,
            new_error: None,
            set_error_debug: None,
            vset_error: None,
        };
        let mut entry = functions;
        while !entry.is_null() {
            // SAFETY: an entry of the table, which the loop does not leave.
            let Dispatch { id, function } = unsafe { *entry };
            // SAFETY: the number says which field of the union is valid.
            unsafe {
                match id {
                    0 => break,
                    core_function::GET_PARAMS => host.get_params = Some(function.get_ctx_params),
                    core_function::NEW_ERROR => host.new_error = Some(function.new_error),
                    core_function::SET_ERROR_DEBUG => {
                        host.set_error_debug = Some(function.set_error_debug);
                    }
                    core_function::VSET_ERROR => host.vset_error = Some(function.vset_error),
                    _ => {}
                }
            }
            // SAFETY: this was not the end.
            entry = unsafe { entry.add(1) };
        }
        host
    }

    /// Asks the core for the text under `key`: names of its own, or an entry of the module's section of the
    /// configuration.
    pub fn text(&self, key: &'static CStr) -> Option<CString> {
        let get_params = self.get_params?;
        let mut text = std::ptr::null::<c_char>();
        let wanted = Param {
            data: std::ptr::from_mut(&mut text).cast(),
            data_size: size_of::<*const c_char>(),
            ..params::describe(key, data_type::UTF8_PTR)
        };
        let mut list = [wanted, params::END];
        // SAFETY: the core's own function with its handle and a list with an end, whose data is a
        // place for a pointer to text.
        let answered = unsafe { get_params(self.handle.cast_mut(), list.as_mut_ptr()) };
        if answered != 1 || text.is_null() {
            return None;
        }
        // SAFETY: what is not null was put there by the core and is text with an end.
        Some(unsafe { CStr::from_ptr(text) }.to_owned())
    }

    /// Puts an error of the provider's own into the error queue of the calling thread: a reason code, its details, and
    /// where it was found.
    pub fn raise(&self, reason: u32, text: &str, provider: &CStr, place: &Location<'_>) {
        let (Some(new_error), Some(vset_error)) = (self.new_error, self.vset_error) else {
            return;
        };
        // Percent signs would be conversions; there are none in our texts, and none is let in.
        let text = text.replace(['%', '\0'], "?");
        let text = CString::new(text).unwrap_or_default();
        // No conversions, so this list of arguments is never read. Both supported processors pass
        // a `va_list` as a pointer, to 24 bytes on x86-64 and 32 on AArch64.
        let mut arguments = [0u64; 4];
        // SAFETY: the core's own functions with its handle; all texts end and are copied by it.
        unsafe {
            new_error(self.handle);
            if let Some(set_error_debug) = self.set_error_debug {
                let line = c_int::try_from(place.line()).unwrap_or(0);
                let file = place.file_as_c_str().as_ptr();
                set_error_debug(self.handle, file, line, provider.as_ptr());
            }
            let arguments: *mut c_void = arguments.as_mut_ptr().cast();
            vset_error(self.handle, reason, text.as_ptr(), arguments);
        }
    }
}
