//! The part of the OpenSSL 3 provider interface that ciphers, keys and signatures need.
//!
//! Written from `core.h` and `core_dispatch.h` of OpenSSL 3.0; later 3.x versions only add to it.
//! `ibc-provider`'s and `accel-provider`'s `tests/it/constants.rs` compare every number and layout here with the installed headers.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The core's handle of this provider; opaque.
pub type CoreHandle = c_void;

/// `OSSL_PARAM`: one named value passed in or asked for. A list ends with a null key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Param {
    /// Name.
    pub key: *const c_char,
    /// One of the [`data_type`]s.
    pub data_type: c_uint,
    /// Address of the value; null asks for its size.
    pub data: *mut c_void,
    /// Bytes at `data`.
    pub data_size: usize,
    /// Bytes of the value, told to who asks.
    pub return_size: usize,
}

/// Codes of reasons with their texts, as a list that ends with zero and null.
pub const fn reason_list<const N: usize>(reasons: &[(c_uint, &'static CStr)]) -> [Item; N] {
    assert!(
        reasons.len() + 1 == N,
        "an end and nothing else after the reasons"
    );
    let mut list = [const {
        Item {
            id: 0,
            text: std::ptr::null(),
        }
    }; N];
    let mut rest = reasons;
    let mut place: &mut [Item] = &mut list;
    while let ([(code, text), others @ ..], [item, places @ ..]) = (rest, place) {
        item.id = *code;
        item.text = text.as_ptr();
        (rest, place) = (others, places);
    }
    list
}

/// A constant list for all threads to read.
#[repr(transparent)]
pub struct Constant<T>(pub T);

#[expect(
    unsafe_code,
    reason = "pointers are not shared between threads by themselves"
)]
// SAFETY: the lists hold pointers to constants and functions only, and nobody writes to them.
unsafe impl<T> Sync for Constant<T> {}

/// Kinds of [`Param`]s.
pub mod data_type {
    use super::c_uint;

    /// Signed number in native byte order.
    pub const INTEGER: c_uint = 1;
    /// Unsigned number in native byte order.
    pub const UNSIGNED_INTEGER: c_uint = 2;
    /// Text, copied.
    pub const UTF8_STRING: c_uint = 4;
    /// Bytes, copied.
    pub const OCTET_STRING: c_uint = 5;
    /// Pointer to text.
    pub const UTF8_PTR: c_uint = 6;
    /// Pointer to bytes.
    pub const OCTET_PTR: c_uint = 7;
    /// `return_size` of a value that nobody has set.
    pub const UNMODIFIED: usize = usize::MAX;
}

/// `OSSL_ITEM`: here a reason code with its text. A list ends with zero and null.
#[repr(C)]
pub struct Item {
    /// The code.
    pub id: c_uint,
    /// The text.
    pub text: *const c_char,
}

impl Algorithm {
    /// The end of a list.
    pub const END: Self = Self {
        names: std::ptr::null(),
        properties: std::ptr::null(),
        implementation: std::ptr::null(),
        description: std::ptr::null(),
    };
}

/// `OSSL_ALGORITHM`: names and properties of an implementation. A list ends with null names.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Names, separated by colons.
    pub names: *const c_char,
    /// Properties that a fetch can ask for.
    pub properties: *const c_char,
    /// Its functions.
    pub implementation: *const Dispatch,
    /// For people.
    pub description: *const c_char,
}

/// `OSSL_DISPATCH`: a function with its number. A list ends with the number 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// Kind of the function; says which field of [`Function`] is meant.
    pub id: c_int,
    /// The function.
    pub function: Function,
}

impl Dispatch {
    /// An entry of a list.
    pub const fn new(id: c_int, function: Function) -> Self {
        Self { id, function }
    }

    /// The end of a list.
    pub const END: Self = Self {
        id: 0,
        function: Function { end: None },
    };
}

pub type NewCtx = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
pub type FreeCtx = unsafe extern "C" fn(*mut c_void);
pub type DupCtx = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
/// `encrypt_init` and `decrypt_init`: context, key and its length, IV and its length, settings.
pub type Init =
    unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize, *const Param) -> c_int;
/// `update` and `cipher`: context, output with length and room, input with length.
pub type Update =
    unsafe extern "C" fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
/// `final`: context, output with length and room.
pub type Final = unsafe extern "C" fn(*mut c_void, *mut u8, *mut usize, usize) -> c_int;
/// `newctx` of a signature: provider, property query.
pub type NewSignature = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// `sign_init` and `verify_init`: context, key, settings.
pub type KeyInit = unsafe extern "C" fn(*mut c_void, *mut c_void, *const Param) -> c_int;
/// `digest_sign_init` and `digest_verify_init`: context, name of the digest, key, settings.
pub type DigestInit =
    unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, *const Param) -> c_int;
/// `init` of a code: context, key with length, settings.
pub type MacInit = unsafe extern "C" fn(*mut c_void, *const u8, usize, *const Param) -> c_int;
/// `update` of a code, `digest_sign_update` and `digest_verify_update`, and with another meaning `digest_verify_final`: context, data with
/// length.
pub type Feed = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int;
/// `verify`: context, signature with length, digest with length.
pub type Verify = unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize) -> c_int;
/// `has` of a key: key, selection.
pub type Has = unsafe extern "C" fn(*const c_void, c_int) -> c_int;
/// `match` of two keys: the keys, selection.
pub type Match = unsafe extern "C" fn(*const c_void, *const c_void, c_int) -> c_int;
/// `import` of a key: key, selection, values.
pub type Import = unsafe extern "C" fn(*mut c_void, c_int, *const Param) -> c_int;
/// `import_types`: selection.
pub type ImportTypes = unsafe extern "C" fn(c_int) -> *const Param;
/// `query_operation_name`: operation.
pub type OperationName = unsafe extern "C" fn(c_int) -> *const c_char;
pub type GetParams = unsafe extern "C" fn(*mut Param) -> c_int;
/// `get_ctx_params`, and `get_params` of the provider and of the core.
pub type GetCtxParams = unsafe extern "C" fn(*mut c_void, *mut Param) -> c_int;
pub type SetCtxParams = unsafe extern "C" fn(*mut c_void, *const Param) -> c_int;
pub type Params = unsafe extern "C" fn(*mut c_void) -> *const Param;
/// `gettable_ctx_params` and `settable_ctx_params`.
pub type CtxParams = unsafe extern "C" fn(*mut c_void, *mut c_void) -> *const Param;
/// `query_operation`: provider, operation, and whether the answer may not be kept.
pub type Query = unsafe extern "C" fn(*mut c_void, c_int, *mut c_int) -> *const Algorithm;
pub type Reasons = unsafe extern "C" fn(*mut c_void) -> *const Item;
pub type NewError = unsafe extern "C" fn(*const CoreHandle);
/// `core_set_error_debug`: file, line, function.
pub type SetErrorDebug =
    unsafe extern "C" fn(*const CoreHandle, *const c_char, c_int, *const c_char);
/// `core_vset_error`: reason, format, and a `va_list`, which both supported processors pass as a
/// pointer.
pub type VsetError = unsafe extern "C" fn(*const CoreHandle, u32, *const c_char, *mut c_void);

/// A function pointer of any of the types in use.
///
/// A union and no cast: a function can only be put into a table under a type that it has.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each field is named and described by its type")]
pub union Function {
    pub newctx: NewCtx,
    pub freectx: FreeCtx,
    pub dupctx: DupCtx,
    pub init: Init,
    pub new_signature: NewSignature,
    pub key_init: KeyInit,
    pub digest_init: DigestInit,
    pub mac_init: MacInit,
    pub feed: Feed,
    pub verify: Verify,
    pub has: Has,
    pub matches: Match,
    pub import: Import,
    pub import_types: ImportTypes,
    pub operation_name: OperationName,
    pub update: Update,
    pub finalize: Final,
    pub get_params: GetParams,
    pub get_ctx_params: GetCtxParams,
    pub set_ctx_params: SetCtxParams,
    pub params: Params,
    pub ctx_params: CtxParams,
    pub query: Query,
    pub reasons: Reasons,
    pub new_error: NewError,
    pub set_error_debug: SetErrorDebug,
    pub vset_error: VsetError,
    /// Null, at the end of a list.
    pub end: Option<unsafe extern "C" fn()>,
}

/// Numbers of the core's functions (`core_dispatch.h`).
pub mod core_function {
    use super::c_int;

    /// [`super::GetCtxParams`] on the handle.
    pub const GET_PARAMS: c_int = 2;
    pub const NEW_ERROR: c_int = 5;
    pub const SET_ERROR_DEBUG: c_int = 6;
    pub const VSET_ERROR: c_int = 7;
}

/// Numbers of a provider's functions (`core_dispatch.h`).
pub mod provider_function {
    use super::c_int;

    pub const TEARDOWN: c_int = 1024;
    pub const GETTABLE_PARAMS: c_int = 1025;
    pub const GET_PARAMS: c_int = 1026;
    pub const QUERY_OPERATION: c_int = 1027;
    pub const GET_REASON_STRINGS: c_int = 1029;
}

/// The operation of symmetric ciphers, `OSSL_OP_CIPHER`.
pub const OPERATION_CIPHER: c_int = 2;
/// The operation of message authentication codes, `OSSL_OP_MAC`.
pub const OPERATION_MAC: c_int = 3;
/// The operation of keys, `OSSL_OP_KEYMGMT`.
pub const OPERATION_KEYMGMT: c_int = 10;
/// The operation of signatures, `OSSL_OP_SIGNATURE`.
pub const OPERATION_SIGNATURE: c_int = 12;

/// Numbers of a key's functions (`core_dispatch.h`).
pub mod keymgmt_function {
    use super::c_int;

    pub const NEW: c_int = 1;
    pub const FREE: c_int = 10;
    pub const GET_PARAMS: c_int = 11;
    pub const GETTABLE_PARAMS: c_int = 12;
    pub const QUERY_OPERATION_NAME: c_int = 20;
    pub const HAS: c_int = 21;
    pub const MATCH: c_int = 23;
    pub const IMPORT: c_int = 40;
    pub const IMPORT_TYPES: c_int = 41;
}

/// Numbers of a code's functions (`core_dispatch.h`).
pub mod mac_function {
    use super::c_int;

    pub const NEWCTX: c_int = 1;
    pub const DUPCTX: c_int = 2;
    pub const FREECTX: c_int = 3;
    pub const INIT: c_int = 4;
    pub const UPDATE: c_int = 5;
    pub const FINAL: c_int = 6;
    pub const GET_CTX_PARAMS: c_int = 8;
    pub const SET_CTX_PARAMS: c_int = 9;
    pub const GETTABLE_CTX_PARAMS: c_int = 11;
    pub const SETTABLE_CTX_PARAMS: c_int = 12;
}

/// Parts of a key that are meant (`core_dispatch.h`).
pub mod key_selection {
    use super::c_int;

    pub const PRIVATE_KEY: c_int = 1;
    pub const PUBLIC_KEY: c_int = 2;
}

/// Numbers of a signature's functions (`core_dispatch.h`).
pub mod signature_function {
    use super::c_int;

    pub const NEWCTX: c_int = 1;
    pub const SIGN_INIT: c_int = 2;
    pub const SIGN: c_int = 3;
    pub const VERIFY_INIT: c_int = 4;
    pub const VERIFY: c_int = 5;
    pub const DIGEST_SIGN_INIT: c_int = 8;
    pub const DIGEST_SIGN_UPDATE: c_int = 9;
    pub const DIGEST_SIGN_FINAL: c_int = 10;
    pub const DIGEST_VERIFY_INIT: c_int = 12;
    pub const DIGEST_VERIFY_UPDATE: c_int = 13;
    pub const DIGEST_VERIFY_FINAL: c_int = 14;
    pub const FREECTX: c_int = 16;
    pub const DUPCTX: c_int = 17;
    pub const GET_CTX_PARAMS: c_int = 18;
    pub const GETTABLE_CTX_PARAMS: c_int = 19;
    pub const SET_CTX_PARAMS: c_int = 20;
    pub const SETTABLE_CTX_PARAMS: c_int = 21;
}

/// Numbers of a cipher's functions (`core_dispatch.h`).
pub mod cipher_function {
    use super::c_int;

    pub const NEWCTX: c_int = 1;
    pub const ENCRYPT_INIT: c_int = 2;
    pub const DECRYPT_INIT: c_int = 3;
    pub const UPDATE: c_int = 4;
    pub const FINAL: c_int = 5;
    pub const CIPHER: c_int = 6;
    pub const FREECTX: c_int = 7;
    pub const DUPCTX: c_int = 8;
    pub const GET_PARAMS: c_int = 9;
    pub const GET_CTX_PARAMS: c_int = 10;
    pub const SET_CTX_PARAMS: c_int = 11;
    pub const GETTABLE_PARAMS: c_int = 12;
    pub const GETTABLE_CTX_PARAMS: c_int = 13;
    pub const SETTABLE_CTX_PARAMS: c_int = 14;
}

/// Modes as `EVP_CIPHER_get_mode` tells them (`evp.h`).
pub mod evp_mode {
    use super::c_uint;

    pub const ECB: c_uint = 1;
    pub const CBC: c_uint = 2;
    pub const OFB: c_uint = 4;
    pub const CTR: c_uint = 5;
    pub const GCM: c_uint = 6;
}
