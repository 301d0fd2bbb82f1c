//! A device without hardware, and what a test makes it do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use offload_policy::{Device, DeviceError, Operation, Request};
use zeroize::Zeroizing;

/// What the device does with the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Right,
    /// One bit of the result is inverted, the last one first.
    Flip,
    /// The result lacks its last byte.
    Short,
    /// The result has a byte too many.
    Long,
    Busy,
    /// It fails as a driver does after a missed deadline.
    Fail,
    /// It says that a tag is wrong.
    DenyTag,
}

pub(crate) struct FakeDevice {
    pub(crate) act: Mutex<Act>,
    /// Time that it waits in each request, and a nanosecond for each of so many bytes.
    pub(crate) delay: Mutex<Duration>,
    pub(crate) requests: AtomicUsize,
    pub(crate) under_way: AtomicUsize,
    pub(crate) most_under_way: AtomicUsize,
    pub(crate) forgotten: Mutex<Vec<u64>>,
    pub(crate) max_len: usize,
}

impl Default for FakeDevice {
    fn default() -> Self {
        Self {
            act: Mutex::new(Act::Right),
            delay: Mutex::new(Duration::ZERO),
            requests: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            forgotten: Mutex::new(Vec::new()),
            max_len: 70_000 / 16 * 16,
        }
    }
}

impl FakeDevice {
    pub(crate) fn act(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

pub(crate) fn cipher(key: &[u8]) -> UnboundCipherKey {
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        _ => &AES_256,
    };
    UnboundCipherKey::new(algorithm, key).unwrap()
}

/// The result as it should be, made without the crate under test.
pub(crate) fn right(request: &Request<'_>) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = request.data.to_vec();
    let iv = || FixedLength::from(<&[u8; 16]>::try_from(request.iv).unwrap());
    let gcm = || {
        let algorithm = match request.key.bytes().len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            _ => &AES_256_GCM,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, request.key.bytes()).unwrap());
        let nonce = Nonce::assume_unique_for_key(request.iv.try_into().unwrap());
        (key, nonce, Aad::from(request.aad))
    };
    match request.operation {
        Operation::GcmSeal => {
            let (key, nonce, aad) = gcm();
            let tag = key
                .seal_in_place_separate_tag(nonce, aad, &mut bytes)
                .unwrap();
            bytes.extend_from_slice(tag.as_ref());
        }
        Operation::GcmOpen => {
            let (key, nonce, aad) = gcm();
            bytes.extend_from_slice(request.tag);
            if key.open_in_place(nonce, aad, &mut bytes).is_err() {
                return Err(DeviceError::Tag);
            }
            bytes.truncate(request.data.len());
        }
        Operation::CbcEncrypt => {
            let key = EncryptingKey::cbc(cipher(request.key.bytes())).unwrap();
            key.less_safe_encrypt(&mut bytes, EncryptionContext::Iv128(iv()))
                .unwrap();
        }
        Operation::CbcDecrypt => {
            let key = DecryptingKey::cbc(cipher(request.key.bytes())).unwrap();
            key.decrypt(&mut bytes, DecryptionContext::Iv128(iv()))
                .unwrap();
        }
        Operation::Ctr => {
            let key = EncryptingKey::ctr(cipher(request.key.bytes())).unwrap();
            key.less_safe_encrypt(&mut bytes, EncryptionContext::Iv128(iv()))
                .unwrap();
        }
        Operation::HmacSha1 | Operation::HmacSha256 => {
            let algorithm = match request.operation {
                Operation::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                _ => hmac::HMAC_SHA256,
            };
            let key = hmac::Key::new(algorithm, request.key.bytes());
            bytes = hmac::sign(&key, request.data).as_ref().to_vec();
        }
        Operation::RsaPrivate => return Err(DeviceError::Busy),
    }
    Ok(bytes)
}

impl Device for FakeDevice {
    fn name(&self) -> &str {
        "fake"
    }

    fn supports(&self, operation: Operation, key_len: usize) -> bool {
        let hmac = matches!(operation, Operation::HmacSha1 | Operation::HmacSha256);
        hmac || matches!(key_len, 16 | 24 | 32)
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn run(&self, request: &Request<'_>) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::Relaxed);
        let delay = *self.delay.lock().unwrap();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut bytes = right(request)?;
        match *self.act.lock().unwrap() {
            Act::Right => {}
            Act::Flip => *bytes.last_mut().unwrap() ^= 1,
            Act::Short => bytes.truncate(bytes.len() - 1),
            Act::Long => bytes.push(0),
            Act::Busy => return Err(DeviceError::Busy),
            Act::Fail => return Err(DeviceError::Failed("a missed deadline".into())),
            Act::DenyTag => return Err(DeviceError::Tag),
        }
        Ok(Zeroizing::new(bytes))
    }

    fn forget(&self, id: u64) {
        self.forgotten.lock().unwrap().push(id);
    }
}

/// `SplitMix64`: tests need numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
