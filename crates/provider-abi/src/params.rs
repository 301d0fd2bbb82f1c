//! Values that OpenSSL passes in and asks for by name (`OSSL_PARAM`).
#![expect(
    unsafe_code,
    reason = "lists and values are raw pointers of the C interface"
)]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::marker::PhantomData;

use crate::CallError;
use crate::abi::{Param, data_type};

/// Sizes of numbers that programs use: `int` and `unsigned int`, `size_t`.
const NARROW: usize = 4;
const WIDE: usize = 8;

/// One wanted value, to be answered.
pub struct Wanted<'a> {
    param: *mut Param,
    name: &'static CStr,
    list: PhantomData<&'a mut Param>,
}

/// One given value, to be read.
pub struct Given<'a> {
    param: Param,
    name: &'static CStr,
    list: PhantomData<&'a Param>,
}

/// Calls `answer` for each wanted value whose name is in `known`.
///
/// # Safety
/// `params` must be null or a list of parameters that ends with a null key and may be written,
/// with keys that are text and data of the announced sizes.
pub unsafe fn answer<E>(
    params: *mut Param,
    known: &[&'static CStr],
    mut answer: impl FnMut(Wanted<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut param = params;
    // SAFETY: the caller promises a list up to a null key; the loop does not go beyond.
    while let Some(key) = unsafe { key_of(param) } {
        if let Some(&name) = known.iter().find(|&&name| name == key) {
            answer(Wanted {
                param,
                name,
                list: PhantomData,
            })?;
        }
        // SAFETY: this one was not the end, hence there is a next one.
        param = unsafe { param.add(1) };
    }
    Ok(())
}

/// Calls `take` for each given value whose name is in `known`.
///
/// # Safety
/// As for [`answer`], but the list is only read.
pub unsafe fn take<E>(
    params: *const Param,
    known: &[&'static CStr],
    mut take: impl FnMut(Given<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut param = params;
    // SAFETY: as in `answer`.
    while let Some(key) = unsafe { key_of(param) } {
        if let Some(&name) = known.iter().find(|&&name| name == key) {
            take(Given {
                // SAFETY: `key_of` has read its key, so it is a parameter of the list.
                param: unsafe { *param },
                name,
                list: PhantomData,
            })?;
        }
        // SAFETY: as in `answer`.
        param = unsafe { param.add(1) };
    }
    Ok(())
}

/// The name of a parameter; `None` at the end of the list, and for no list at all.
///
/// # Safety
/// `param` is null or points to a parameter whose key is null or text.
unsafe fn key_of<'a>(param: *const Param) -> Option<&'a CStr> {
    if param.is_null() {
        return None;
    }
    // SAFETY: not null, hence a parameter, as the caller promises.
    let key = unsafe { (*param).key };
    // SAFETY: a key that is not null is text with an end, as the caller promises.
    (!key.is_null()).then(|| unsafe { CStr::from_ptr(key) })
}

impl Wanted<'_> {
    /// Name of the wanted value.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// Bytes of the place for the answer; none if only its size is asked for.
    pub fn room(&self) -> Option<usize> {
        // SAFETY: `answer` got a list that may be read, of which this is an element.
        let param = unsafe { &*self.param };
        (!param.data.is_null()).then_some(param.data_size)
    }

    fn refused(&self) -> CallError {
        CallError::Parameter(self.name)
    }

    fn param(&mut self) -> &mut Param {
        // SAFETY: `answer` got a list that may be written, and hands out one element at a time.
        unsafe { &mut *self.param }
    }

    /// Answers with a number.
    pub fn number(mut self, value: u64) -> Result<(), CallError> {
        let refused = self.refused();
        let param = self.param();
        if param.data.is_null() {
            param.return_size = WIDE;
            return Ok(());
        }
        let size = param.data_size;
        let largest = match (param.data_type, size) {
            (data_type::INTEGER, NARROW) => u64::from(i32::MAX.unsigned_abs()),
            (data_type::INTEGER, WIDE) => i64::MAX.unsigned_abs(),
            (data_type::UNSIGNED_INTEGER, NARROW) => u64::from(u32::MAX),
            (data_type::UNSIGNED_INTEGER, WIDE) => u64::MAX,
            _ => return Err(refused),
        };
        if value > largest {
            return Err(refused);
        }
        param.return_size = size;
        let bytes = value.to_ne_bytes();
        let bytes = if cfg!(target_endian = "little") {
            bytes.get(..size)
        } else {
            bytes.get(WIDE - size..)
        };
        // SAFETY: `answer` promises `data_size` writable bytes, which is what `bytes` has.
        unsafe { write(param.data, bytes.unwrap_or_default()) };
        Ok(())
    }

    /// Answers with bytes, copied. Pointers into a context are not given out: they would dangle
    /// with it.
    pub fn octets(mut self, value: &[u8]) -> Result<(), CallError> {
        let refused = self.refused();
        let param = self.param();
        if param.data_type != data_type::OCTET_STRING {
            return Err(refused);
        }
        param.return_size = value.len();
        if param.data.is_null() {
            return Ok(());
        }
        if param.data_size < value.len() {
            return Err(refused);
        }
        // SAFETY: `answer` promises `data_size` writable bytes, which are enough.
        unsafe { write(param.data, value) };
        Ok(())
    }

    /// Answers with text, copied, or with a pointer to it; it lives as long as the library.
    pub fn copied_text(mut self, value: &'static CStr) -> Result<(), CallError> {
        let param = self.param();
        if param.data_type != data_type::UTF8_STRING {
            return self.text(value);
        }
        param.return_size = value.count_bytes();
        if param.data.is_null() {
            return Ok(());
        }
        let bytes = value.to_bytes_with_nul();
        if param.data_size < bytes.len() {
            return Err(self.refused());
        }
        // SAFETY: `answer` promises `data_size` writable bytes, which are enough.
        unsafe { write(self.param().data, bytes) };
        Ok(())
    }

    /// Answers with a pointer to text that lives as long as the library.
    pub fn text(mut self, value: &'static CStr) -> Result<(), CallError> {
        let refused = self.refused();
        let param = self.param();
        if param.data_type != data_type::UTF8_PTR {
            return Err(refused);
        }
        param.return_size = value.count_bytes();
        if !param.data.is_null() {
            // SAFETY: the data of this type is a place for a pointer.
            unsafe { param.data.cast::<*const c_char>().write(value.as_ptr()) };
        }
        Ok(())
    }
}

/// Copies `bytes` to `data`.
///
/// # Safety
/// `data` must be writable for as many bytes and not overlap them.
unsafe fn write(data: *mut c_void, bytes: &[u8]) {
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len()) };
}

impl Given<'_> {
    /// Name of the given value.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// Reads a number that is not negative.
    pub fn number(&self) -> Result<u64, CallError> {
        let refused = CallError::Parameter(self.name);
        let data = self.param.data;
        if data.is_null() {
            return Err(refused);
        }
        // SAFETY: `take` promises data of the announced size, which is that of the type read;
        // programs may pass it without alignment.
        unsafe {
            match (self.param.data_type, self.param.data_size) {
                (data_type::UNSIGNED_INTEGER, NARROW) => {
                    Ok(u64::from(data.cast::<u32>().read_unaligned()))
                }
                (data_type::UNSIGNED_INTEGER, WIDE) => Ok(data.cast::<u64>().read_unaligned()),
                (data_type::INTEGER, NARROW) => {
                    u64::try_from(data.cast::<i32>().read_unaligned()).map_err(|_| refused)
                }
                (data_type::INTEGER, WIDE) => {
                    u64::try_from(data.cast::<i64>().read_unaligned()).map_err(|_| refused)
                }
                _ => Err(refused),
            }
        }
    }
}

impl<'a> Given<'a> {
    fn data(&self, kinds: &[c_uint]) -> Result<&'a [u8], CallError> {
        let refused = CallError::Parameter(self.name);
        if !kinds.contains(&self.param.data_type) {
            return Err(refused);
        }
        let size = self.param.data_size;
        if size > isize::MAX.unsigned_abs() {
            return Err(refused);
        }
        // SAFETY: `take` promises data of the announced size for as long as its list lives.
        unsafe { crate::bytes(self.param.data.cast(), size) }.ok_or(refused)
    }

    /// Reads bytes, of which the largest size stands for `whole`: so `EVP_CIPHER_CTX_ctrl` passes on a length of -1.
    ///
    /// # Safety
    /// With the largest size, `whole` bytes must be readable.
    pub unsafe fn octets_or_whole(&self, whole: usize) -> Result<&'a [u8], CallError> {
        if self.param.data_size != usize::MAX {
            return self.octets();
        }
        // SAFETY: as the caller promises.
        unsafe { crate::bytes(self.param.data.cast(), whole) }
            .ok_or(CallError::Parameter(self.name))
    }

    /// Reads bytes.
    pub fn octets(&self) -> Result<&'a [u8], CallError> {
        self.data(&[data_type::OCTET_STRING])
    }

    /// Reads text, without the zero at its end.
    pub fn text(&self) -> Result<&'a [u8], CallError> {
        let bytes = self.data(&[data_type::UTF8_STRING])?;
        Ok(bytes.split(|byte| *byte == 0).next().unwrap_or(bytes))
    }

    /// Reads a number of any size; its bytes, the highest first, without zeros before them.
    pub fn large_number(&self) -> Result<Vec<u8>, CallError> {
        let bytes = self.data(&[data_type::UNSIGNED_INTEGER])?;
        let mut bytes = bytes.to_vec();
        if cfg!(target_endian = "little") {
            bytes.reverse();
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.drain(..zeros);
        Ok(bytes)
    }
}

/// An element of a list that tells which values there are.
pub const fn describe(name: &'static CStr, data_type: c_uint) -> Param {
    Param {
        key: name.as_ptr(),
        data_type,
        data: std::ptr::null_mut(),
        data_size: match data_type {
            data_type::INTEGER => NARROW,
            data_type::UNSIGNED_INTEGER => WIDE,
            _ => 0,
        },
        return_size: data_type::UNMODIFIED,
    }
}

/// The end of such a list.
pub const END: Param = Param {
    key: std::ptr::null(),
    data_type: 0,
    data: std::ptr::null_mut(),
    data_size: 0,
    return_size: 0,
};

/// A constant list of descriptions, for all threads to read.
#[repr(transparent)]
pub struct Descriptions<const N: usize>(pub [Param; N]);

// SAFETY: the pointers in it are null or lead to constant text; nobody writes through them.
unsafe impl<const N: usize> Sync for Descriptions<N> {}

impl<const N: usize> Descriptions<N> {
    pub fn as_ptr(&'static self) -> *const Param {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&CStr; 1] = [c"value"];

    fn ask(
        data_type: c_uint,
        data: &mut [u8],
        reply: impl Fn(Wanted<'_>) -> Result<(), CallError>,
    ) -> (Result<(), CallError>, usize) {
        let mut list = [describe(c"other", 1), describe(c"value", data_type), END];
        if !data.is_empty() {
            list[1].data = data.as_mut_ptr().cast();
        }
        list[1].data_size = data.len();
        // SAFETY: a list with an end and data of the announced size.
        let result = unsafe { answer(list.as_mut_ptr(), &KNOWN, reply) };
        assert_eq!(list[0].return_size, data_type::UNMODIFIED);
        (result, list[1].return_size)
    }

    #[test]
    fn numbers_fit_or_are_refused() {
        let refused = Err(CallError::Parameter(c"value"));
        for (data_type, size, value, fits) in [
            (data_type::INTEGER, 4, 0x7fff_ffff, true),
            (data_type::INTEGER, 4, 0x8000_0000, false),
            (data_type::INTEGER, 8, 1 << 62, true),
            (data_type::INTEGER, 8, 1 << 63, false),
            (data_type::UNSIGNED_INTEGER, 4, 0xffff_ffff, true),
            (data_type::UNSIGNED_INTEGER, 4, 1 << 32, false),
            (data_type::UNSIGNED_INTEGER, 8, u64::MAX, true),
            (data_type::UNSIGNED_INTEGER, 2, 1, false),
            (data_type::OCTET_STRING, 8, 1, false),
        ] {
            let mut data = vec![0xA5; size + 1];
            let (result, _) = ask(data_type, &mut data[..size], |w| w.number(value));
            assert_eq!(result, if fits { Ok(()) } else { refused });
            assert_eq!(data[size], 0xA5);
            if fits {
                assert_eq!(data[..size], value.to_ne_bytes()[..size]);
            }
        }
        let sizes = ask(data_type::UNSIGNED_INTEGER, &mut [], |w| w.number(1));
        assert_eq!(sizes, (Ok(()), 8));
    }

    #[test]
    fn octets_are_copied_when_there_is_room() {
        let mut data = [0; 4];
        let (result, size) = ask(data_type::OCTET_STRING, &mut data, |w| w.octets(b"abc"));
        assert_eq!((result, size, &data), (Ok(()), 3, b"abc\0"));
        let (result, size) = ask(data_type::OCTET_STRING, &mut data[..2], |w| {
            w.octets(b"abc")
        });
        assert_eq!((result, size), (Err(CallError::Parameter(c"value")), 3));
        let (result, _) = ask(data_type::OCTET_PTR, &mut [0; 8], |w| w.octets(b"abc"));
        assert!(result.is_err());
    }

    #[test]
    fn numbers_are_read_at_any_address() {
        let mut data = [0u8; 16];
        for (data_type, bytes, expected) in [
            (data_type::INTEGER, &1i32.to_ne_bytes()[..], Some(1)),
            (data_type::INTEGER, &(-1i32).to_ne_bytes()[..], None),
            (data_type::INTEGER, &(-1i64).to_ne_bytes()[..], None),
            (
                data_type::UNSIGNED_INTEGER,
                &u32::MAX.to_ne_bytes()[..],
                Some(0xffff_ffff),
            ),
            (
                data_type::UNSIGNED_INTEGER,
                &u64::MAX.to_ne_bytes()[..],
                Some(u64::MAX),
            ),
            (data_type::UNSIGNED_INTEGER, &[1, 0][..], None),
            (data_type::OCTET_STRING, &[1, 0, 0, 0][..], None),
        ] {
            for at in 0..4 {
                data[at..at + bytes.len()].copy_from_slice(bytes);
                let mut list = [describe(c"value", data_type), END];
                list[0].data = data[at..].as_mut_ptr().cast();
                list[0].data_size = bytes.len();
                let mut seen = None;
                // SAFETY: a list with an end and data of the announced size.
                let result: Result<(), CallError> = unsafe {
                    take(list.as_ptr(), &KNOWN, |given| {
                        seen = Some(given.number()?);
                        Ok(())
                    })
                };
                assert_eq!(result.is_ok(), expected.is_some());
                assert_eq!(seen, expected);
            }
        }
    }
}
