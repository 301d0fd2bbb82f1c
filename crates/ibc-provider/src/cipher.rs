//! The ciphers as `provider-abi` has OpenSSL call them.

use std::ffi::CStr;

use provider_abi::abi::data_type::{INTEGER, OCTET_STRING, UNSIGNED_INTEGER};
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use provider_abi::{CallError, Cipher, Direction, Host, Known, Regions};

use crate::algorithm::{Algorithm, COUNT, Flavour};
use crate::provider::Provider;
use crate::refusal::Refusal;
use crate::stream::Stream;

const AEAD: &CStr = c"aead";
const BLOCK_SIZE: &CStr = c"blocksize";
const CTS: &CStr = c"cts";
const CUSTOM_IV: &CStr = c"custom-iv";
const HAS_RAND_KEY: &CStr = c"has-randkey";
const IV: &CStr = c"iv";
const IV_LEN: &CStr = c"ivlen";
const KEY_LEN: &CStr = c"keylen";
const MODE: &CStr = c"mode";
const MULTIBLOCK: &CStr = c"tls-multi";
const NUM: &CStr = c"num";
const PADDING: &CStr = c"padding";
const UPDATED_IV: &CStr = c"updated-iv";

/// Gettable parameters of a cipher.
static GETTABLE: Descriptions<10> = Descriptions([
    describe(MODE, UNSIGNED_INTEGER),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(BLOCK_SIZE, UNSIGNED_INTEGER),
    describe(AEAD, INTEGER),
    describe(CUSTOM_IV, INTEGER),
    describe(CTS, INTEGER),
    describe(MULTIBLOCK, INTEGER),
    describe(HAS_RAND_KEY, INTEGER),
    params::END,
]);

/// Gettable parameters of a context.
static GETTABLE_CTX: Descriptions<7> = Descriptions([
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(PADDING, UNSIGNED_INTEGER),
    describe(NUM, UNSIGNED_INTEGER),
    describe(IV, OCTET_STRING),
    describe(UPDATED_IV, OCTET_STRING),
    params::END,
]);

/// Settable parameters of a context.
static SETTABLE_CTX: Descriptions<4> = Descriptions([
    describe(PADDING, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    params::END,
]);

/// The cipher with this number, and the module that it is of: those for OpenVPN come after all others.
const fn numbered(number: usize) -> (Algorithm, Flavour) {
    if number < COUNT {
        (Algorithm::numbered(number), Flavour::Plain)
    } else {
        (Algorithm::numbered(number - COUNT), Flavour::OpenVpn)
    }
}

impl Cipher for Stream {
    type Provider = Provider;
    type Refusal = Refusal;

    const GETTABLE: Known = Known {
        names: &[
            MODE,
            KEY_LEN,
            IV_LEN,
            BLOCK_SIZE,
            AEAD,
            CUSTOM_IV,
            CTS,
            MULTIBLOCK,
            HAS_RAND_KEY,
        ],
        list: || GETTABLE.as_ptr(),
    };
    const GETTABLE_CTX: Known = Known {
        names: &[KEY_LEN, IV_LEN, PADDING, NUM, IV, UPDATED_IV],
        list: || GETTABLE_CTX.as_ptr(),
    };
    const SETTABLE_CTX: Known = Known {
        names: &[PADDING, IV_LEN, KEY_LEN],
        list: || SETTABLE_CTX.as_ptr(),
    };

    fn new(provider: &Provider, number: usize) -> Self {
        let (algorithm, _) = numbered(number);
        Self::of(algorithm, provider.backend)
    }

    fn describe(number: usize, wanted: Wanted<'_>) -> Result<(), CallError> {
        let (algorithm, flavour) = numbered(number);
        let name = wanted.name();
        wanted.number(if name == MODE {
            algorithm.evp_mode(flavour).into()
        } else if name == KEY_LEN {
            algorithm.variant.key_size() as u64
        } else if name == IV_LEN {
            algorithm.iv_len() as u64
        } else if name == BLOCK_SIZE {
            algorithm.block_size() as u64
        } else {
            // None of the special kinds.
            0
        })
    }

    fn host(provider: &Provider) -> Host {
        provider.host
    }

    fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        Self::begin(self, direction, key, iv)
    }

    fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        Self::update(self, regions)
    }

    fn finish(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        Self::finish(self, regions)
    }

    fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        Self::cipher(self, regions)
    }

    fn get(&mut self, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let name = wanted.name();
        let answered = if name == IV {
            wanted.octets(self.iv().ok_or(Refusal::NoIv)?)
        } else if name == UPDATED_IV {
            wanted.octets(&self.updated_iv().ok_or(Refusal::NoIv)?)
        } else if name == KEY_LEN {
            wanted.number(self.algorithm().variant.key_size() as u64)
        } else if name == IV_LEN {
            wanted.number(self.iv_len() as u64)
        } else if name == PADDING {
            wanted.number(self.padding().into())
        } else {
            wanted.number(self.num())
        };
        answered.map_err(Refusal::from)
    }

    fn set(&mut self, given: Given<'_>) -> Result<(), Refusal> {
        let (name, value) = (given.name(), given.number()?);
        if name == PADDING {
            self.set_padding(value != 0);
            return Ok(());
        }
        let len = usize::try_from(value).map_err(|_| Refusal::Parameter(name))?;
        if name == IV_LEN {
            return self.set_iv_len(len);
        }
        let wanted = self.algorithm().variant.key_size();
        if len == wanted {
            Ok(())
        } else {
            Err(Refusal::KeyLength { given: len, wanted })
        }
    }
}
