//! Signatures with RSA, as OpenSSL calls them.
//!
//! TLS signs with PSS and a salt as long as the hash, or with PKCS #1 v1.5, over SHA-256, SHA-384 and SHA-512; other
//! digests, salts and hashes of the mask are refused.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use aws_lc_rs::digest;
use offload_policy::{MessageError, RsaKey, RsaPadding, SignedHash};
use provider_abi::abi::{Constant, Dispatch, Function, Param, data_type, signature_function as id};
use provider_abi::context::{self, Context};
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use provider_abi::{bytes, tell};

use crate::key::Key;
use crate::loaded::Provider;
use crate::refusal::Refusal;

const DIGEST: &CStr = c"digest";
const MASK_DIGEST: &CStr = c"mgf1-digest";
const PADDING: &CStr = c"pad-mode";
const SALT_LEN: &CStr = c"saltlen";
const ALGORITHM_ID: &CStr = c"algorithm-id";
const SETTINGS: [&CStr; 4] = [DIGEST, MASK_DIGEST, PADDING, SALT_LEN];

/// Numbers of paddings and of a salt as long as the digest (`rsa.h`).
const PKCS1: u64 = 1;
const PSS: u64 = 6;

static GETTABLE: Descriptions<4> = Descriptions([
    describe(ALGORITHM_ID, data_type::OCTET_STRING),
    describe(DIGEST, data_type::UTF8_STRING),
    describe(PADDING, data_type::UTF8_STRING),
    params::END,
]);

static SETTABLE: Descriptions<5> = Descriptions([
    describe(DIGEST, data_type::UTF8_STRING),
    describe(MASK_DIGEST, data_type::UTF8_STRING),
    describe(PADDING, data_type::UTF8_STRING),
    describe(SALT_LEN, data_type::UTF8_STRING),
    params::END,
]);

/// A message under way.
#[derive(Clone)]
struct Signature {
    key: Option<Arc<RsaKey>>,
    hash: Option<SignedHash>,
    padding: RsaPadding,
    digest: Option<digest::Context>,
}

pub(crate) static FUNCTIONS: Constant<[Dispatch; 18]> = Constant([
    Dispatch::new(
        id::NEWCTX,
        Function {
            new_signature: newctx,
        },
    ),
    Dispatch::new(
        id::FREECTX,
        Function {
            freectx: context::free::<Signature>,
        },
    ),
    Dispatch::new(
        id::DUPCTX,
        Function {
            dupctx: context::duplicate::<Signature>,
        },
    ),
    Dispatch::new(id::SIGN_INIT, Function { key_init }),
    Dispatch::new(id::SIGN, Function { update: sign }),
    Dispatch::new(id::VERIFY_INIT, Function { key_init }),
    Dispatch::new(id::VERIFY, Function { verify }),
    Dispatch::new(id::DIGEST_SIGN_INIT, Function { digest_init }),
    Dispatch::new(id::DIGEST_SIGN_UPDATE, Function { feed }),
    Dispatch::new(
        id::DIGEST_SIGN_FINAL,
        Function {
            finalize: digest_sign,
        },
    ),
    Dispatch::new(id::DIGEST_VERIFY_INIT, Function { digest_init }),
    Dispatch::new(id::DIGEST_VERIFY_UPDATE, Function { feed }),
    Dispatch::new(
        id::DIGEST_VERIFY_FINAL,
        Function {
            feed: digest_verify,
        },
    ),
    Dispatch::new(id::GET_CTX_PARAMS, Function { get_ctx_params }),
    Dispatch::new(
        id::GETTABLE_CTX_PARAMS,
        Function {
            ctx_params: gettable,
        },
    ),
    Dispatch::new(id::SET_CTX_PARAMS, Function { set_ctx_params }),
    Dispatch::new(
        id::SETTABLE_CTX_PARAMS,
        Function {
            ctx_params: settable,
        },
    ),
    Dispatch::END,
]);

fn hash_named(name: &[u8]) -> Result<SignedHash, Refusal> {
    match name.to_ascii_uppercase().as_slice() {
        b"SHA256" | b"SHA2-256" | b"SHA-256" => Ok(SignedHash::Sha256),
        b"SHA384" | b"SHA2-384" | b"SHA-384" => Ok(SignedHash::Sha384),
        b"SHA512" | b"SHA2-512" | b"SHA-512" => Ok(SignedHash::Sha512),
        _ => Err(Refusal::Digest),
    }
}

impl Signature {
    fn begin(&mut self, key: Option<&Key>) -> Result<(), Refusal> {
        if let Some(key) = key {
            self.key = Some(Arc::clone(key.rsa().ok_or(Refusal::NoKey)?));
        }
        self.digest = None;
        self.padding = RsaPadding::Pkcs1;
        Ok(())
    }

    fn set_hash(&mut self, name: &[u8]) -> Result<(), Refusal> {
        self.hash = Some(hash_named(name)?);
        Ok(())
    }

    fn start_digest(&mut self) {
        self.digest = self.hash.map(|hash| {
            digest::Context::new(match hash {
                SignedHash::Sha256 => &digest::SHA256,
                SignedHash::Sha384 => &digest::SHA384,
                SignedHash::Sha512 => &digest::SHA512,
            })
        });
    }

    fn parts(&self) -> Result<(&RsaKey, SignedHash), Refusal> {
        let key = self.key.as_ref().ok_or(Refusal::NoKey)?;
        Ok((key, self.hash.ok_or(Refusal::Digest)?))
    }

    fn sign(&self, digest: &[u8]) -> Result<Vec<u8>, Refusal> {
        let (key, hash) = self.parts()?;
        Ok(key.sign(self.padding, hash, digest)?)
    }

    fn verify(&self, digest: &[u8], signature: &[u8]) -> Result<(), Refusal> {
        let (key, hash) = self.parts()?;
        match key.verify(self.padding, hash, digest, signature) {
            Err(MessageError::Tag) => Err(Refusal::Signature),
            other => Ok(other?),
        }
    }

    fn digested(&mut self) -> Result<digest::Digest, Refusal> {
        Ok(self.digest.take().ok_or(Refusal::Finished)?.finish())
    }

    fn set(&mut self, given: &Given<'_>) -> Result<(), Refusal> {
        let name = given.name();
        let refused = Refusal::Parameter(name);
        if name == DIGEST {
            return self.set_hash(given.text()?);
        }
        if name == MASK_DIGEST {
            let same = Some(hash_named(given.text()?)?) == self.hash;
            return if same { Ok(()) } else { Err(refused) };
        }
        // Either a number or its name.
        let (number, text) = (given.number().ok(), given.text().ok());
        if name == PADDING {
            self.padding = match (number, text) {
                (Some(PKCS1), _) | (_, Some(b"pkcs1")) => RsaPadding::Pkcs1,
                (Some(PSS), _) | (_, Some(b"pss")) => RsaPadding::Pss,
                _ => return Err(refused),
            };
            return Ok(());
        }
        let digest = self.hash.map(SignedHash::size);
        let as_number = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let long = number
            .or(as_number)
            .is_some_and(|len| Some(len) == digest.map(|d| d as u64));
        // RSA_PSS_SALTLEN_DIGEST is -1, and its name this.
        if long || matches!(text, Some(b"digest" | b"-1")) {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// `AlgorithmIdentifier` of a signature with PKCS #1 v1.5 (RFC 4055, section 5).
    fn algorithm_id(&self) -> Result<[u8; 15], Refusal> {
        let last = match (self.padding, self.hash) {
            (RsaPadding::Pkcs1, Some(SignedHash::Sha256)) => 11,
            (RsaPadding::Pkcs1, Some(SignedHash::Sha384)) => 12,
            (RsaPadding::Pkcs1, Some(SignedHash::Sha512)) => 13,
            _ => return Err(Refusal::Parameter(ALGORITHM_ID)),
        };
        Ok([
            0x30, 13, 0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last, 5, 0,
        ])
    }
}

unsafe extern "C" fn newctx(provider: *mut c_void, _query: *const c_char) -> *mut c_void {
    Context::hand_over(|| {
        // SAFETY: OpenSSL passes what `OSSL_provider_init` has given to it, which lives until teardown.
        let provider = unsafe { provider.cast::<Provider>().as_ref() }?;
        let signature = Signature {
            key: None,
            hash: None,
            padding: RsaPadding::Pkcs1,
            digest: None,
        };
        Some((signature, provider.host()))
    })
}

unsafe extern "C" fn key_init(
    context: *mut c_void,
    key: *mut c_void,
    settings: *const Param,
) -> c_int {
    let work = |signature: &mut Signature| {
        // SAFETY: OpenSSL passes null or a key of this provider, which lives as long as the call.
        signature.begin(unsafe { key.cast::<Key>().as_ref() })?;
        // SAFETY: OpenSSL passes null or a list with an end.
        unsafe { set(signature, settings) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn digest_init(
    context: *mut c_void,
    name: *const c_char,
    key: *mut c_void,
    settings: *const Param,
) -> c_int {
    let work = |signature: &mut Signature| {
        // SAFETY: OpenSSL passes null or a key of this provider, which lives as long as the call.
        signature.begin(unsafe { key.cast::<Key>().as_ref() })?;
        if !name.is_null() {
            // SAFETY: OpenSSL passes text with an end.
            signature.set_hash(unsafe { CStr::from_ptr(name) }.to_bytes())?;
        }
        // SAFETY: OpenSSL passes null or a list with an end.
        unsafe { set(signature, settings) }?;
        signature.start_digest();
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn feed(context: *mut c_void, data: *const u8, len: usize) -> c_int {
    let work = |signature: &mut Signature| {
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let data = unsafe { bytes(data, len) }.unwrap_or_default();
        let digest = signature.digest.as_mut().ok_or(Refusal::NotBegun)?;
        digest.update(data);
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

/// Puts a signature where OpenSSL wants it.
///
/// # Safety
/// `output` must be writable for `room` bytes, and `output_len` be null or writable.
unsafe fn give(
    bytes: &[u8],
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
) -> Result<(), Refusal> {
    if room < bytes.len() {
        return Err(Refusal::OutputTooSmall {
            needed: bytes.len(),
            room,
        });
    }
    // SAFETY: there is room, as just checked; the signature is memory of our own.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), output, bytes.len());
        tell(output_len, bytes.len());
    }
    Ok(())
}

unsafe extern "C" fn sign(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
    digest: *const u8,
    digest_len: usize,
) -> c_int {
    let work = |signature: &mut Signature| {
        if output.is_null() {
            let (key, _) = signature.parts()?;
            // SAFETY: OpenSSL passes a place for the length.
            unsafe { tell(output_len, key.size()) };
            return Ok(());
        }
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let digest = unsafe { bytes(digest, digest_len) }.unwrap_or_default();
        let made = signature.sign(digest)?;
        // SAFETY: OpenSSL passes as much room as it says.
        unsafe { give(&made, output, output_len, room) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn verify(
    context: *mut c_void,
    given: *const u8,
    given_len: usize,
    digest: *const u8,
    digest_len: usize,
) -> c_int {
    let work = |signature: &mut Signature| {
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let (given, digest) = unsafe { (bytes(given, given_len), bytes(digest, digest_len)) };
        signature.verify(digest.unwrap_or_default(), given.unwrap_or_default())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn digest_sign(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
) -> c_int {
    let work = |signature: &mut Signature| {
        if output.is_null() {
            let (key, _) = signature.parts()?;
            // SAFETY: OpenSSL passes a place for the length.
            unsafe { tell(output_len, key.size()) };
            return Ok(());
        }
        let digest = signature.digested()?;
        let made = signature.sign(digest.as_ref())?;
        // SAFETY: OpenSSL passes as much room as it says.
        unsafe { give(&made, output, output_len, room) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn digest_verify(context: *mut c_void, given: *const u8, len: usize) -> c_int {
    let work = |signature: &mut Signature| {
        let digest = signature.digested()?;
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        let given = unsafe { bytes(given, len) }.unwrap_or_default();
        signature.verify(digest.as_ref(), given)
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

/// Takes over settings; names that are not known are passed over, as OpenSSL's own signatures do.
///
/// # Safety
/// `list` must be null or a list with an end.
unsafe fn set(signature: &mut Signature, list: *const Param) -> Result<(), Refusal> {
    // SAFETY: as the caller promises.
    unsafe { params::take(list, &SETTINGS, |given| signature.set(&given)) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, list: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a list with an end, and its context.
    unsafe { context::with::<Signature, Refusal>(context, |signature| set(signature, list)) }
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, list: *mut Param) -> c_int {
    let work = |signature: &mut Signature| {
        let reply = |wanted: Wanted<'_>| {
            let name = wanted.name();
            let answered = if name == ALGORITHM_ID {
                wanted.octets(&signature.algorithm_id()?)
            } else if name == DIGEST {
                wanted.copied_text(match signature.hash.ok_or(Refusal::Digest)? {
                    SignedHash::Sha256 => c"SHA2-256",
                    SignedHash::Sha384 => c"SHA2-384",
                    SignedHash::Sha512 => c"SHA2-512",
                })
            } else {
                wanted.copied_text(match signature.padding {
                    RsaPadding::Pkcs1 => c"pkcs1",
                    RsaPadding::Pss => c"pss",
                })
            };
            answered.map_err(Refusal::from)
        };
        // SAFETY: OpenSSL passes a list with an end that may be written.
        unsafe { params::answer(list, &[ALGORITHM_ID, DIGEST, PADDING], reply) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Signature, Refusal>(context, work) }
}

unsafe extern "C" fn gettable(_context: *mut c_void, _provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn settable(_context: *mut c_void, _provider: *mut c_void) -> *const Param {
    SETTABLE.as_ptr()
}
