//! HMAC, as OpenSSL calls it.
//!
//! OpenSSL fetches one HMAC for all digests: so SHA-224, SHA-384 and SHA-512 are done here as well, in software, and others
//! are refused. A message that fits a request is gathered and goes through the policy as a whole, a longer one is
//! hashed piece by piece, in software.
#![expect(
    unsafe_code,
    reason = "entry points of a C interface take raw pointers"
)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use aws_lc_rs::hmac;
use offload_policy::{Hash, Hmac, Policy};
use provider_abi::abi::{Constant, Dispatch, Function, Param, data_type, mac_function as id};
use provider_abi::context::{self, Context};
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use provider_abi::{bytes, tell};
use zeroize::Zeroizing;

use crate::loaded::Provider;
use crate::refusal::Refusal;

const DIGEST: &CStr = c"digest";
const KEY: &CStr = c"key";
const SIZE: &CStr = c"size";
const BLOCK_SIZE: &CStr = c"block-size";
const TLS_DATA_SIZE: &CStr = c"tls-data-size";
const SETTINGS: [&CStr; 3] = [DIGEST, KEY, TLS_DATA_SIZE];

static GETTABLE: Descriptions<3> = Descriptions([
    describe(SIZE, data_type::UNSIGNED_INTEGER),
    describe(BLOCK_SIZE, data_type::UNSIGNED_INTEGER),
    params::END,
]);

static SETTABLE: Descriptions<4> = Descriptions([
    describe(DIGEST, data_type::UTF8_STRING),
    describe(KEY, data_type::OCTET_STRING),
    describe(TLS_DATA_SIZE, data_type::UNSIGNED_INTEGER),
    params::END,
]);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Digest {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Digest {
    fn named(name: &[u8]) -> Result<Self, Refusal> {
        match name.to_ascii_uppercase().as_slice() {
            b"SHA1" | b"SHA-1" | b"SSL3-SHA1" | b"1.3.14.3.2.26" => Ok(Self::Sha1),
            b"SHA224" | b"SHA2-224" | b"SHA-224" | b"2.16.840.1.101.3.4.2.4" => Ok(Self::Sha224),
            b"SHA256" | b"SHA2-256" | b"SHA-256" | b"2.16.840.1.101.3.4.2.1" => Ok(Self::Sha256),
            b"SHA384" | b"SHA2-384" | b"SHA-384" | b"2.16.840.1.101.3.4.2.2" => Ok(Self::Sha384),
            b"SHA512" | b"SHA2-512" | b"SHA-512" | b"2.16.840.1.101.3.4.2.3" => Ok(Self::Sha512),
            _ => Err(Refusal::MacDigest),
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha224 => hmac::HMAC_SHA224,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn offloaded(self) -> Option<Hash> {
        match self {
            Self::Sha1 => Some(Hash::Sha1),
            Self::Sha256 => Some(Hash::Sha256),
            _ => None,
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    const fn block_size(self) -> usize {
        match self {
            Self::Sha384 | Self::Sha512 => 128,
            _ => 64,
        }
    }
}

/// A key as both engines keep it.
#[derive(Clone)]
struct Keyed {
    software: hmac::Key,
    /// None for hashes that no device has.
    offloaded: Option<Hmac>,
}

/// A message under way.
#[derive(Clone)]
enum Message {
    /// It may still fit a request.
    Gathered(Zeroizing<Vec<u8>>),
    Hashed(Box<hmac::Context>),
}

#[derive(Clone)]
struct Mac {
    policy: Arc<Policy>,
    digest: Option<Digest>,
    key: Option<Zeroizing<Vec<u8>>>,
    keyed: Option<Keyed>,
    message: Option<Message>,
}

impl Mac {
    fn begin(&mut self, key: Option<&[u8]>) -> Result<(), Refusal> {
        if let Some(key) = key {
            self.set_key(key);
        }
        let digest = self.digest.ok_or(Refusal::MacDigest)?;
        let key = self.key.as_ref().ok_or(Refusal::NoKey)?;
        if self.keyed.is_none() {
            let offloaded = match digest.offloaded() {
                Some(hash) => Some(Hmac::new(&self.policy, hash, key)?),
                None => None,
            };
            self.keyed = Some(Keyed {
                software: hmac::Key::new(digest.algorithm(), key),
                offloaded,
            });
        }
        self.message = Some(Message::Gathered(Zeroizing::default()));
        Ok(())
    }

    fn set_key(&mut self, key: &[u8]) {
        // A key is filled up with zeros: none is as good as one of them, which no device refuses.
        let key = if key.is_empty() { &[0] } else { key };
        self.key = Some(Zeroizing::new(key.to_vec()));
        self.keyed = None;
    }

    fn update(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let keyed = self.keyed.as_ref().ok_or(Refusal::NoKey)?;
        // Without a device nothing is gathered in vain.
        let device = keyed.offloaded.as_ref().and(self.policy.device());
        let most = device.map_or(0, |device| device.max_len());
        match &mut self.message {
            None => return Err(Refusal::NotBegun),
            Some(Message::Hashed(context)) => context.update(data),
            Some(Message::Gathered(bytes)) if bytes.len().saturating_add(data.len()) <= most => {
                gather(bytes, data);
            }
            Some(message) => {
                let mut context = hmac::Context::with_key(&keyed.software);
                if let Message::Gathered(bytes) = message {
                    context.update(bytes);
                }
                context.update(data);
                *message = Message::Hashed(Box::new(context));
            }
        }
        Ok(())
    }

    /// The code, and its length.
    fn finish(&mut self) -> Result<([u8; 64], usize), Refusal> {
        let keyed = self.keyed.as_ref().ok_or(Refusal::NoKey)?;
        let size = self.digest.ok_or(Refusal::MacDigest)?.size();
        let mut code = [0; 64];
        let place = code.get_mut(..size).unwrap_or_default();
        match (
            self.message.take().ok_or(Refusal::Finished)?,
            &keyed.offloaded,
        ) {
            (Message::Gathered(data), Some(key)) => key.sign(&data, place)?,
            (Message::Gathered(data), None) => {
                place.copy_from_slice(hmac::sign(&keyed.software, &data).as_ref());
            }
            (Message::Hashed(context), _) => place.copy_from_slice(context.sign().as_ref()),
        }
        Ok((code, size))
    }

    fn set(&mut self, given: &Given<'_>) -> Result<(), Refusal> {
        let name = given.name();
        if name == DIGEST {
            let digest = Digest::named(given.text()?)?;
            if self.digest != Some(digest) {
                self.digest = Some(digest);
                self.keyed = None;
            }
            Ok(())
        } else if name == KEY {
            self.set_key(given.octets()?);
            Ok(())
        } else {
            // The code of a record in CBC mode has to be found in the same time whatever its padding is.
            Err(Refusal::TlsCbc)
        }
    }
}

/// Adds to what was gathered; memory that is left behind is wiped.
fn gather(bytes: &mut Zeroizing<Vec<u8>>, data: &[u8]) {
    let needed = bytes.len() + data.len();
    if needed > bytes.capacity() {
        let room = needed.max(2 * bytes.capacity());
        let mut larger = Zeroizing::new(Vec::with_capacity(room));
        larger.extend_from_slice(bytes);
        *bytes = larger;
    }
    bytes.extend_from_slice(data);
}

pub(crate) static FUNCTIONS: Constant<[Dispatch; 11]> = Constant([
    Dispatch::new(id::NEWCTX, Function { newctx }),
    Dispatch::new(
        id::DUPCTX,
        Function {
            dupctx: context::duplicate::<Mac>,
        },
    ),
    Dispatch::new(
        id::FREECTX,
        Function {
            freectx: context::free::<Mac>,
        },
    ),
    Dispatch::new(id::INIT, Function { mac_init: init }),
    Dispatch::new(id::UPDATE, Function { feed: update }),
    Dispatch::new(id::FINAL, Function { finalize }),
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

unsafe extern "C" fn newctx(provider: *mut c_void) -> *mut c_void {
    Context::hand_over(|| {
        // SAFETY: OpenSSL passes what `OSSL_provider_init` has given to it, which lives until teardown.
        let provider = unsafe { provider.cast::<Provider>().as_ref() }?;
        let mac = Mac {
            policy: Arc::clone(provider.policy()),
            digest: None,
            key: None,
            keyed: None,
            message: None,
        };
        Some((mac, provider.host()))
    })
}

unsafe extern "C" fn init(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    settings: *const Param,
) -> c_int {
    let work = |mac: &mut Mac| {
        // SAFETY: OpenSSL passes null or a list with an end.
        unsafe { set(mac, settings) }?;
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        mac.begin(unsafe { bytes(key, key_len) })
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Mac, Refusal>(context, work) }
}

unsafe extern "C" fn update(context: *mut c_void, data: *const u8, len: usize) -> c_int {
    let work = |mac: &mut Mac| {
        // SAFETY: OpenSSL passes null or as many bytes as it says.
        mac.update(unsafe { bytes(data, len) }.unwrap_or_default())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Mac, Refusal>(context, work) }
}

unsafe extern "C" fn finalize(
    context: *mut c_void,
    output: *mut u8,
    output_len: *mut usize,
    room: usize,
) -> c_int {
    let work = |mac: &mut Mac| {
        let needed = mac.digest.ok_or(Refusal::MacDigest)?.size();
        if output.is_null() {
            // SAFETY: OpenSSL passes null or a place for the length.
            unsafe { tell(output_len, needed) };
            return Ok(());
        }
        if room < needed {
            return Err(Refusal::OutputTooSmall { needed, room });
        }
        let (code, len) = mac.finish()?;
        // SAFETY: there is room, as just checked; the code is memory of our own, and the length has a place.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), output, len);
            tell(output_len, len);
        }
        Ok(())
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Mac, Refusal>(context, work) }
}

/// Takes over settings; names that are not known are passed over, as OpenSSL's own codes do.
///
/// # Safety
/// `list` must be null or a list with an end.
unsafe fn set(mac: &mut Mac, list: *const Param) -> Result<(), Refusal> {
    // SAFETY: as the caller promises.
    unsafe { params::take(list, &SETTINGS, |given| mac.set(&given)) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, list: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a list with an end, and its context.
    unsafe { context::with::<Mac, Refusal>(context, |mac| set(mac, list)) }
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, list: *mut Param) -> c_int {
    let work = |mac: &mut Mac| {
        let digest = mac.digest;
        let reply = |wanted: Wanted<'_>| {
            let number = if wanted.name() == SIZE {
                digest.map_or(0, Digest::size)
            } else {
                digest.map_or(0, Digest::block_size)
            };
            wanted.number(number as u64).map_err(Refusal::from)
        };
        // SAFETY: OpenSSL passes a list with an end that may be written.
        unsafe { params::answer(list, &[SIZE, BLOCK_SIZE], reply) }
    };
    // SAFETY: OpenSSL's context.
    unsafe { context::with::<Mac, Refusal>(context, work) }
}

unsafe extern "C" fn gettable(_context: *mut c_void, _provider: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

unsafe extern "C" fn settable(_context: *mut c_void, _provider: *mut c_void) -> *const Param {
    SETTABLE.as_ptr()
}
