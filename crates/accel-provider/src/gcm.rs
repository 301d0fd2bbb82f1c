//! Contexts of AES-GCM.
//!
//! A device takes whole messages. So the first piece of data is processed as if it were the whole one, with its tag: it
//! mostly is (TLS, OpenVPN, SSH, IPsec). If another piece follows, or something is unusual, the message goes on piece by
//! piece in counter mode, still under the policy, with the hash in software ([`Pieces`]).

use std::sync::Arc;

use offload_policy::{AesGcm, Policy};
use provider_abi::{Direction, Regions};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::pieces::{IV, Pieces, TAG};
use crate::refusal::Refusal;

/// Most bytes of an IV; as many as OpenSSL's own GCM takes.
const IV_MAX: usize = 128;
/// Most bytes of associated data, and of a first piece, that are kept until it is clear how the message goes on. Our
/// choice: more than a record of TLS and the largest packet have.
const WHOLE_MAX: usize = 65_536;
/// Bytes of the IV in a record of TLS 1.2 (RFC 5288, section 3), and of its associated data.
const EXPLICIT: usize = 8;
const TLS_AAD: usize = 13;

/// State of the IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IvState {
    Unset,
    /// For the next message.
    Set,
    /// A message is under way or done with it.
    Used,
}

/// State of the message.
#[derive(Clone)]
enum Message {
    /// Only associated data so far.
    Begun,
    /// Sealed as a whole, if nothing follows: its tag; the ciphertext is in `first`.
    Sealed([u8; TAG]),
    /// Opened as a whole, if nothing follows.
    Opened,
    Pieces(Box<Pieces>),
    Finished,
}

/// A context.
#[derive(Clone)]
pub(crate) struct Gcm {
    policy: Arc<Policy>,
    key_size: usize,
    direction: Direction,
    key: Option<(Zeroizing<Vec<u8>>, AesGcm)>,
    /// For the next message; once one is under way with a counted one, the number after it.
    iv: Vec<u8>,
    /// Of the message under way.
    nonce: Vec<u8>,
    iv_len: usize,
    iv_state: IvState,
    /// True where IVs are counted here (`tlsivfixed`).
    counts: bool,
    /// To compare with, or computed.
    tag: Option<([u8; TAG], usize)>,
    aad: Vec<u8>,
    first: Vec<u8>,
    message: Message,
    tls: Option<[u8; TLS_AAD]>,
}

impl Gcm {
    pub(crate) fn new(policy: &Arc<Policy>, key_size: usize) -> Self {
        Self {
            policy: Arc::clone(policy),
            key_size,
            direction: Direction::Encrypt,
            key: None,
            iv: vec![0; IV],
            nonce: Vec::new(),
            iv_len: IV,
            iv_state: IvState::Unset,
            counts: false,
            tag: None,
            aad: Vec::new(),
            first: Vec::new(),
            message: Message::Begun,
            tls: None,
        }
    }

    pub(crate) fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        if let Some(key) = key {
            if key.len() != self.key_size {
                return Err(Refusal::KeyLength(key.len()));
            }
            let whole = AesGcm::new(&self.policy, key)?;
            self.key = Some((Zeroizing::new(key.to_vec()), whole));
        }
        self.direction = direction;
        if let Some(iv) = iv {
            if !(1..=IV_MAX).contains(&iv.len()) {
                return Err(Refusal::IvLength {
                    given: iv.len(),
                    wanted: self.iv_len,
                });
            }
            self.iv = iv.to_vec();
            self.iv_len = iv.len();
            self.fresh_iv();
        }
        Ok(())
    }

    /// Another message begins with the IV as it is now.
    fn fresh_iv(&mut self) {
        self.iv_state = IvState::Set;
        self.aad.clear();
        self.first.clear();
        self.message = Message::Begun;
        if self.direction == Direction::Encrypt {
            self.tag = None;
        }
    }

    /// The message under way has the IV as it is now, and no other may have it.
    fn take_iv(&mut self) {
        self.nonce.clone_from(&self.iv);
        self.iv_state = IvState::Used;
    }

    fn whole_key(&self) -> Result<&AesGcm, Refusal> {
        self.key.as_ref().map(|(_, key)| key).ok_or(Refusal::NoKey)
    }

    /// Makes sure that a message is under way.
    fn run(&mut self) -> Result<(), Refusal> {
        self.whole_key()?;
        match (self.iv_state, &self.message) {
            (IvState::Unset, _) => Err(Refusal::NoIv),
            (IvState::Used, Message::Finished) => Err(Refusal::Finished),
            (IvState::Set, _) => {
                self.fresh_iv();
                self.take_iv();
                Ok(())
            }
            (IvState::Used, _) => Ok(()),
        }
    }

    pub(crate) fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        if let Some(aad) = self.tls.take() {
            return self.record(&aad, regions);
        }
        let len = regions.input_len();
        self.run()?;
        if len == 0 {
            return Ok(0);
        }
        if !regions.has_output() {
            self.associated(regions)?;
            return Ok(len);
        }
        regions.need_room(len)?;
        match self.message {
            Message::Begun if self.fits_whole(len) => self.first_piece(regions, len)?,
            _ => self.pieces()?.data(regions.moved(0, 0, len))?,
        }
        Ok(len)
    }

    fn associated(&mut self, regions: &Regions<'_>) -> Result<(), Refusal> {
        let mut bytes = vec![0; regions.input_len()];
        regions.read(0, &mut bytes);
        match &mut self.message {
            Message::Begun if self.aad.len() + bytes.len() <= WHOLE_MAX => {
                self.aad.extend_from_slice(&bytes);
                Ok(())
            }
            Message::Begun | Message::Pieces(_) => self.pieces()?.associated(&bytes),
            _ => Err(Refusal::NotBegun),
        }
    }

    fn fits_whole(&self, len: usize) -> bool {
        let tag = self.tag.is_some_and(|(_, tag_len)| tag_len == TAG);
        self.iv_len == IV && len <= WHOLE_MAX && (self.direction == Direction::Encrypt || tag)
    }

    fn nonce(&self) -> Result<[u8; IV], Refusal> {
        let nonce = self.nonce.as_slice().try_into();
        nonce.map_err(|_| Refusal::NoIv)
    }

    fn first_piece(&mut self, regions: &mut Regions<'_>, len: usize) -> Result<(), Refusal> {
        let nonce = self.nonce()?;
        match (self.direction, self.tag) {
            (Direction::Decrypt, Some((tag, _))) => {
                self.first.resize(len, 0);
                regions.read(0, &mut self.first);
                let data = regions.moved(0, 0, len);
                if self.whole_key()?.open(nonce, &self.aad, data, &tag).is_ok() {
                    self.message = Message::Opened;
                    return Ok(());
                }
                // Wrong, or more is to come. What came out of the attempt is no longer of use.
                let mut text = Zeroizing::new(std::mem::take(&mut self.first));
                self.pieces()?.data(&mut text)?;
                regions.write(0, &text);
                Ok(())
            }
            _ => {
                let data = regions.moved(0, 0, len);
                let tag = self.whole_key()?.seal(nonce, &self.aad, data)?;
                self.first.clear();
                self.first.extend_from_slice(data);
                self.message = Message::Sealed(tag);
                Ok(())
            }
        }
    }

    /// The message as pieces, with what there was of it so far.
    fn pieces(&mut self) -> Result<&mut Pieces, Refusal> {
        if !matches!(self.message, Message::Pieces(_)) {
            let (key, _) = self.key.as_ref().ok_or(Refusal::NoKey)?;
            let mut pieces = Pieces::new(&self.policy, key, &self.nonce, self.direction)?;
            pieces.associated(&self.aad)?;
            if !self.first.is_empty() {
                pieces.skip(&self.first)?;
            }
            self.message = Message::Pieces(Box::new(pieces));
        }
        match &mut self.message {
            Message::Pieces(pieces) => Ok(pieces),
            _ => Err(Refusal::Finished),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<usize, Refusal> {
        self.run()?;
        let expected = match (self.direction, self.tag) {
            (Direction::Encrypt, _) => None,
            (Direction::Decrypt, Some(tag)) => Some(tag),
            (Direction::Decrypt, None) => return Err(Refusal::Signature),
        };
        let computed = match std::mem::replace(&mut self.message, Message::Finished) {
            Message::Sealed(tag) => tag,
            Message::Opened => return Ok(0),
            Message::Pieces(pieces) => pieces.finish()?,
            // No data at all.
            Message::Begun if self.iv_len == IV => {
                // The tag of an empty message is the same in both directions.
                self.whole_key()?.seal(self.nonce()?, &self.aad, &mut [])?
            }
            Message::Begun => {
                self.message = Message::Begun;
                self.pieces()?;
                match std::mem::replace(&mut self.message, Message::Finished) {
                    Message::Pieces(pieces) => pieces.finish()?,
                    _ => return Err(Refusal::Finished),
                }
            }
            Message::Finished => return Err(Refusal::Finished),
        };
        match expected {
            None => self.tag = Some((computed, TAG)),
            Some((tag, len)) => {
                self.tag = None;
                let (tag, computed) = (tag.get(..len), computed.get(..len));
                let equal = tag.zip(computed).is_some_and(|(a, b)| a.ct_eq(b).into());
                if !equal {
                    return Err(Refusal::Signature);
                }
            }
        }
        Ok(0)
    }

    /// Carries out `EVP_Cipher`: without input the end of the message, without output associated data.
    pub(crate) fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        if self.tls.is_none() && !regions.has_output() && regions.input_len() == 0 {
            return self.finish();
        }
        self.update(regions)
    }

    /// A record of TLS 1.2: the explicit part of the IV, the data, the tag, in place.
    fn record(&mut self, aad: &[u8; TLS_AAD], regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        let len = regions.input_len();
        let data_len = len
            .checked_sub(EXPLICIT + TAG)
            .ok_or(Refusal::MessageLength)?;
        regions.need_room(len)?;
        let encrypts = self.direction == Direction::Encrypt;
        let mut explicit = [0; EXPLICIT];
        if encrypts {
            self.generated_iv(&mut explicit)?;
        } else {
            regions.read(0, &mut explicit);
            self.set_explicit_iv(&explicit)?;
            self.take_iv();
        }
        let nonce = self.nonce()?;
        self.message = Message::Finished;
        let key = self.whole_key()?;
        let record = regions.moved(0, 0, len);
        let (head, rest) = record.split_at_mut(EXPLICIT);
        let (data, tag) = rest.split_at_mut(data_len);
        let tag: &mut [u8; TAG] = tag.try_into().map_err(|_| Refusal::MessageLength)?;
        if encrypts {
            head.copy_from_slice(&explicit);
            *tag = key.seal(nonce, aad, data)?;
            return Ok(len);
        }
        if key.open(nonce, aad, data, tag).is_err() {
            data.fill(0);
            return Err(Refusal::Signature);
        }
        Ok(data_len)
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    pub(crate) fn iv_len(&self) -> usize {
        self.iv_len
    }

    pub(crate) fn set_iv_len(&mut self, len: usize) -> Result<(), Refusal> {
        if !(1..=IV_MAX).contains(&len) {
            return Err(Refusal::Parameter(c"ivlen"));
        }
        if len != self.iv_len {
            self.iv_len = len;
            self.iv = vec![0; len];
            self.iv_state = IvState::Unset;
        }
        Ok(())
    }

    /// The IV of the message, or of the next one.
    pub(crate) fn iv(&self) -> Option<&[u8]> {
        (self.iv_state != IvState::Unset).then_some(&self.iv)
    }

    /// Sets a tag to compare with.
    pub(crate) fn set_tag(&mut self, tag: &[u8]) -> Result<(), Refusal> {
        let mut whole = [0; TAG];
        let place = whole.get_mut(..tag.len());
        let place = place.filter(|place| !place.is_empty());
        place
            .ok_or(Refusal::Parameter(c"tag"))?
            .copy_from_slice(tag);
        if self.direction == Direction::Encrypt {
            return Err(Refusal::Parameter(c"tag"));
        }
        self.tag = Some((whole, tag.len()));
        Ok(())
    }

    /// The computed tag, as long as it is wanted.
    pub(crate) fn computed_tag(&self, len: usize) -> Result<&[u8], Refusal> {
        let refused = Refusal::Parameter(c"tag");
        let (tag, _) = self.tag.as_ref().ok_or(refused)?;
        if self.direction == Direction::Decrypt || len == 0 {
            return Err(refused);
        }
        tag.get(..len).ok_or(refused)
    }

    pub(crate) fn tag_len(&self) -> usize {
        self.tag.map_or(TAG, |(_, len)| len)
    }

    /// Begins to count IVs: with a whole one, or its fixed part and a random rest.
    pub(crate) fn set_fixed_iv(&mut self, fixed: &[u8]) -> Result<(), Refusal> {
        let refused = Refusal::Parameter(c"tlsivfixed");
        if fixed.len() != self.iv_len {
            let rest = self.iv_len.checked_sub(fixed.len()).ok_or(refused)?;
            if fixed.len() < 4 || rest < EXPLICIT {
                return Err(refused);
            }
        }
        let (place, rest) = self.iv.split_at_mut_checked(fixed.len()).ok_or(refused)?;
        place.copy_from_slice(fixed);
        if self.direction == Direction::Encrypt && !rest.is_empty() {
            aws_lc_rs::rand::fill(rest).map_err(|_| refused)?;
        }
        self.counts = true;
        self.fresh_iv();
        Ok(())
    }

    /// Takes the next counted IV for the next message, and tells the end of it.
    pub(crate) fn generated_iv(&mut self, end: &mut [u8]) -> Result<(), Refusal> {
        let refused = Refusal::Parameter(c"tlsivgen");
        self.whole_key()?;
        let from = self.iv.len().checked_sub(end.len()).ok_or(refused)?;
        if !self.counts || end.is_empty() {
            return Err(refused);
        }
        self.fresh_iv();
        self.take_iv();
        end.copy_from_slice(self.nonce.get(from..).unwrap_or_default());
        let counter = self.iv.last_chunk_mut::<EXPLICIT>().ok_or(refused)?;
        *counter = u64::from_be_bytes(*counter).wrapping_add(1).to_be_bytes();
        Ok(())
    }

    /// Sets the end of the IV for the next message to open.
    pub(crate) fn set_explicit_iv(&mut self, end: &[u8]) -> Result<(), Refusal> {
        let refused = Refusal::Parameter(c"tlsivinv");
        let from = self.iv.len().checked_sub(end.len()).ok_or(refused)?;
        if !self.counts || self.direction == Direction::Encrypt {
            return Err(refused);
        }
        let place = self.iv.get_mut(from..).ok_or(refused)?;
        place.copy_from_slice(end);
        self.fresh_iv();
        Ok(())
    }

    /// Announces a record of TLS 1.2; how many bytes its tag has.
    pub(crate) fn set_tls_aad(&mut self, aad: &[u8]) -> Result<(), Refusal> {
        let refused = Refusal::Parameter(c"tlsaad");
        let mut aad: [u8; TLS_AAD] = aad.try_into().map_err(|_| refused)?;
        let [.., high, low] = aad;
        let around = match self.direction {
            Direction::Encrypt => EXPLICIT,
            Direction::Decrypt => EXPLICIT + TAG,
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let len = len.checked_sub(around).ok_or(refused)?;
        let len = u16::try_from(len).map_err(|_| refused)?;
        if let Some(place) = aad.last_chunk_mut() {
            *place = len.to_be_bytes();
        }
        self.tls = Some(aad);
        Ok(())
    }
}
