//! The ciphers as `provider-abi` has OpenSSL call them.

use std::ffi::{CStr, c_uint};
#[expect(
    unsafe_code,
    reason = "a length of -1 is a convention of the C interface"
)]
mod whole {
    use super::{CallError, Given};

    /// Bytes of a fixed IV: a length of -1 stands for the whole one.
    pub(super) fn fixed_iv<'a>(given: &Given<'a>, iv_len: usize) -> Result<&'a [u8], CallError> {
        // SAFETY: who passes -1 as length of `EVP_CTRL_GCM_SET_IV_FIXED` passes a whole IV: so its description says.
        unsafe { given.octets_or_whole(iv_len) }
    }
}

use provider_abi::abi::data_type::{INTEGER, OCTET_STRING, UNSIGNED_INTEGER, UTF8_STRING};
use provider_abi::abi::evp_mode;
use provider_abi::params::{self, Descriptions, Given, Wanted, describe};
use provider_abi::{CallError, Cipher, Direction, Host, Known, Regions};

use crate::algorithm::{Kind, numbered};
use crate::blocks::{BLOCK, Blocks, Mode};
use crate::cts::{Cts, Variant};
use crate::gcm::Gcm;
use crate::loaded::Provider;
use crate::pieces::TAG;
use crate::refusal::Refusal;

const AEAD: &CStr = c"aead";
const BLOCK_SIZE: &CStr = c"blocksize";
const CTS: &CStr = c"cts";
const CTS_MODE: &CStr = c"cts_mode";
const CUSTOM_IV: &CStr = c"custom-iv";
const HAS_RAND_KEY: &CStr = c"has-randkey";
const IV: &CStr = c"iv";
const IV_LEN: &CStr = c"ivlen";
const KEY_LEN: &CStr = c"keylen";
const MODE: &CStr = c"mode";
const MULTIBLOCK: &CStr = c"tls-multi";
const NUM: &CStr = c"num";
const PADDING: &CStr = c"padding";
const TAG_VALUE: &CStr = c"tag";
const TAG_LEN: &CStr = c"taglen";
const TLS_AAD: &CStr = c"tlsaad";
const TLS_AAD_PAD: &CStr = c"tlsaadpad";
const TLS_IV_FIXED: &CStr = c"tlsivfixed";
const TLS_IV_GENERATED: &CStr = c"tlsivgen";
const TLS_IV_SET: &CStr = c"tlsivinv";
const TLS_MAC_SIZE: &CStr = c"tls-mac-size";
const TLS_VERSION: &CStr = c"tls-version";
const UPDATED_IV: &CStr = c"updated-iv";

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

static GETTABLE_CTX: Descriptions<12> = Descriptions([
    describe(CTS_MODE, UTF8_STRING),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(PADDING, UNSIGNED_INTEGER),
    describe(NUM, UNSIGNED_INTEGER),
    describe(IV, OCTET_STRING),
    describe(UPDATED_IV, OCTET_STRING),
    describe(TAG_VALUE, OCTET_STRING),
    describe(TAG_LEN, UNSIGNED_INTEGER),
    describe(TLS_AAD_PAD, UNSIGNED_INTEGER),
    describe(TLS_IV_GENERATED, OCTET_STRING),
    params::END,
]);

static SETTABLE_CTX: Descriptions<11> = Descriptions([
    describe(CTS_MODE, UTF8_STRING),
    describe(PADDING, UNSIGNED_INTEGER),
    describe(IV_LEN, UNSIGNED_INTEGER),
    describe(KEY_LEN, UNSIGNED_INTEGER),
    describe(TAG_VALUE, OCTET_STRING),
    describe(TLS_AAD, OCTET_STRING),
    describe(TLS_IV_FIXED, OCTET_STRING),
    describe(TLS_IV_SET, OCTET_STRING),
    describe(TLS_VERSION, UNSIGNED_INTEGER),
    describe(TLS_MAC_SIZE, UNSIGNED_INTEGER),
    params::END,
]);

/// A context of any of the ciphers.
#[derive(Clone)]
pub(crate) enum Aes {
    Blocks(Box<Blocks>),
    Gcm(Box<Gcm>),
    Cts(Box<Cts>),
}

impl Cipher for Aes {
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
        names: &[
            KEY_LEN,
            IV_LEN,
            PADDING,
            NUM,
            IV,
            UPDATED_IV,
            TAG_VALUE,
            TAG_LEN,
            TLS_AAD_PAD,
            TLS_IV_GENERATED,
            CTS_MODE,
        ],
        list: || GETTABLE_CTX.as_ptr(),
    };
    const SETTABLE_CTX: Known = Known {
        names: &[
            PADDING,
            IV_LEN,
            KEY_LEN,
            TAG_VALUE,
            TLS_AAD,
            TLS_IV_FIXED,
            TLS_IV_SET,
            TLS_VERSION,
            TLS_MAC_SIZE,
            CTS_MODE,
        ],
        list: || SETTABLE_CTX.as_ptr(),
    };

    fn new(provider: &Provider, number: usize) -> Self {
        let (kind, key_size, _) = numbered(number);
        let policy = provider.policy();
        match kind {
            Kind::Gcm => Self::Gcm(Box::new(Gcm::new(policy, key_size))),
            Kind::Ctr => Self::Blocks(Box::new(Blocks::new(policy, Mode::Ctr, key_size))),
            Kind::Cbc => Self::Blocks(Box::new(Blocks::new(policy, Mode::Cbc, key_size))),
            Kind::Cts => Self::Cts(Box::new(Cts::new(policy, key_size))),
        }
    }

    fn describe(number: usize, wanted: Wanted<'_>) -> Result<(), CallError> {
        let (kind, key_size, _) = numbered(number);
        let (mode, iv_len, block): (c_uint, u64, u64) = match kind {
            Kind::Gcm => (evp_mode::GCM, 12, 1),
            Kind::Ctr => (evp_mode::CTR, 16, 1),
            Kind::Cbc | Kind::Cts => (evp_mode::CBC, 16, 16),
        };
        let name = wanted.name();
        wanted.number(if name == MODE {
            mode.into()
        } else if name == KEY_LEN {
            key_size as u64
        } else if name == IV_LEN {
            iv_len
        } else if name == BLOCK_SIZE {
            block
        } else if name == AEAD || name == CUSTOM_IV {
            u64::from(kind == Kind::Gcm)
        } else if name == CTS {
            u64::from(kind == Kind::Cts)
        } else {
            // None of the other special kinds.
            0
        })
    }

    fn host(provider: &Provider) -> Host {
        provider.host()
    }

    fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        match self {
            Self::Blocks(blocks) => blocks.begin(direction, key, iv),
            Self::Gcm(gcm) => gcm.begin(direction, key, iv),
            Self::Cts(cts) => cts.begin(direction, key, iv),
        }
    }

    fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        match self {
            Self::Blocks(blocks) => blocks.update(regions),
            Self::Gcm(gcm) => gcm.update(regions),
            Self::Cts(cts) => cts.update(regions),
        }
    }

    fn finish(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        match self {
            Self::Blocks(blocks) => blocks.finish(regions),
            Self::Gcm(gcm) => gcm.finish(),
            // All of it came out of the one call before.
            Self::Cts(_) => Ok(0),
        }
    }

    fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        match self {
            Self::Blocks(blocks) => blocks.cipher(regions),
            Self::Gcm(gcm) => gcm.cipher(regions),
            Self::Cts(cts) => cts.update(regions),
        }
    }

    fn get(&mut self, wanted: Wanted<'_>) -> Result<(), Refusal> {
        match self {
            Self::Blocks(blocks) => get_of_blocks(blocks, wanted),
            Self::Gcm(gcm) => get_of_gcm(gcm, wanted),
            Self::Cts(cts) => get_of_cts(cts, wanted),
        }
    }

    fn set(&mut self, given: Given<'_>) -> Result<(), Refusal> {
        match self {
            Self::Blocks(blocks) => set_of_blocks(blocks, &given),
            Self::Gcm(gcm) => set_of_gcm(gcm, &given),
            Self::Cts(cts) => set_of_cts(cts, &given),
        }
    }
}

fn get_of_blocks(blocks: &Blocks, wanted: Wanted<'_>) -> Result<(), Refusal> {
    let name = wanted.name();
    let answered = if name == IV {
        wanted.octets(&blocks.iv().ok_or(Refusal::NoIv)?)
    } else if name == UPDATED_IV {
        let (iv, _) = blocks.position().ok_or(Refusal::NoIv)?;
        wanted.octets(&iv)
    } else if name == NUM {
        wanted.number(blocks.position().map_or(0, |(_, used)| used as u64))
    } else if name == KEY_LEN {
        wanted.number(blocks.key_size() as u64)
    } else if name == IV_LEN {
        wanted.number(BLOCK as u64)
    } else if name == PADDING {
        wanted.number(blocks.padding().into())
    } else {
        // Of GCM only.
        return Ok(());
    };
    answered.map_err(Refusal::from)
}

fn get_of_gcm(gcm: &mut Gcm, wanted: Wanted<'_>) -> Result<(), Refusal> {
    let name = wanted.name();
    let answered = if name == IV || name == UPDATED_IV {
        wanted.octets(gcm.iv().ok_or(Refusal::NoIv)?)
    } else if name == KEY_LEN {
        wanted.number(gcm.key_size() as u64)
    } else if name == IV_LEN {
        wanted.number(gcm.iv_len() as u64)
    } else if name == TAG_LEN || name == TLS_AAD_PAD {
        wanted.number(match name == TAG_LEN {
            true => gcm.tag_len() as u64,
            false => TAG as u64,
        })
    } else if name == TAG_VALUE {
        let room = wanted.room().unwrap_or(TAG).min(TAG);
        wanted.octets(gcm.computed_tag(room)?)
    } else if name == TLS_IV_GENERATED {
        let room = wanted.room().unwrap_or(0);
        let mut end = vec![0; room.min(gcm.iv_len())];
        gcm.generated_iv(&mut end)?;
        wanted.octets(&end)
    } else {
        // Of the other modes only.
        return Ok(());
    };
    answered.map_err(Refusal::from)
}

fn get_of_cts(cts: &Cts, wanted: Wanted<'_>) -> Result<(), Refusal> {
    let name = wanted.name();
    let answered = if name == IV || name == UPDATED_IV {
        wanted.octets(&cts.iv().ok_or(Refusal::NoIv)?)
    } else if name == KEY_LEN {
        wanted.number(cts.key_size() as u64)
    } else if name == IV_LEN {
        wanted.number(BLOCK as u64)
    } else if name == CTS_MODE {
        let mut variants = Variant::ALL.into_iter();
        let variant = variants.find(|(variant, _)| *variant == cts.variant());
        wanted.copied_text(variant.map_or(c"CS1", |(_, name)| name))
    } else {
        // Of the other modes only.
        return Ok(());
    };
    answered.map_err(Refusal::from)
}

fn length(given: &Given<'_>) -> Result<usize, Refusal> {
    usize::try_from(given.number()?).map_err(|_| Refusal::Parameter(given.name()))
}

fn key_length(given: &Given<'_>, wanted: usize) -> Result<(), Refusal> {
    match length(given)? {
        len if len == wanted => Ok(()),
        len => Err(Refusal::KeyLength(len)),
    }
}

fn set_of_blocks(blocks: &mut Blocks, given: &Given<'_>) -> Result<(), Refusal> {
    let name = given.name();
    if name == PADDING {
        blocks.set_padding(given.number()? != 0);
    } else if name == KEY_LEN {
        return key_length(given, blocks.key_size());
    } else if name == IV_LEN && length(given)? != BLOCK {
        return Err(Refusal::Parameter(name));
    } else if (name == TLS_VERSION || name == TLS_MAC_SIZE) && blocks.mode() == Mode::Cbc {
        // Padding and code of a record would have to be taken off in the same time whatever they are.
        return Err(Refusal::TlsCbc);
    }
    Ok(())
}

fn set_of_gcm(gcm: &mut Gcm, given: &Given<'_>) -> Result<(), Refusal> {
    let name = given.name();
    if name == IV_LEN {
        gcm.set_iv_len(length(given)?)
    } else if name == KEY_LEN {
        key_length(given, gcm.key_size())
    } else if name == TAG_VALUE {
        gcm.set_tag(given.octets()?)
    } else if name == TLS_AAD {
        gcm.set_tls_aad(given.octets()?)
    } else if name == TLS_IV_FIXED {
        gcm.set_fixed_iv(whole::fixed_iv(given, gcm.iv_len())?)
    } else if name == TLS_IV_SET {
        gcm.set_explicit_iv(given.octets()?)
    } else {
        Ok(())
    }
}

fn set_of_cts(cts: &mut Cts, given: &Given<'_>) -> Result<(), Refusal> {
    let name = given.name();
    if name == CTS_MODE {
        let wanted = given.text()?;
        let mut variants = Variant::ALL.into_iter();
        let variant = variants.find(|(_, name)| wanted.eq_ignore_ascii_case(name.to_bytes()));
        cts.set_variant(variant.ok_or(Refusal::Parameter(name))?.0);
    } else if name == KEY_LEN {
        return key_length(given, cts.key_size());
    } else if name == IV_LEN && length(given)? != BLOCK {
        return Err(Refusal::Parameter(name));
    }
    Ok(())
}
