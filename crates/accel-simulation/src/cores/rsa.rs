//! RSA's private operation over the core of `hw/mont`, by the Chinese remainder theorem.

use accel_abi::Status;
use zeroize::Zeroizing;

use crate::cores::modular::{Field, Modular, Number, big_endian, less, number, padded};
use crate::cores::mont_core::{BITS_MAX, map};

/// Most bytes of a public exponent. Our choice: it bounds what the check of a result costs.
const EXPONENT_MAX: usize = 8;
/// Fewest bytes of a modulus: two numbers of the core's least size. What is safe is the caller's.
const MODULUS_MIN: usize = 64;

/// A private key as RFC 8017 (section 3.2, second form, two primes) has it; highest bytes first.
#[derive(Clone, Copy)]
pub struct RsaParts<'a> {
    /// The modulus.
    pub n: &'a [u8],
    /// The public exponent.
    pub e: &'a [u8],
    /// The first prime.
    pub p: &'a [u8],
    /// The second prime.
    pub q: &'a [u8],
    /// The first prime's exponent, dP.
    pub dp: &'a [u8],
    /// The second prime's exponent, dQ.
    pub dq: &'a [u8],
    /// The coefficient, qInv.
    pub qinv: &'a [u8],
}

/// A private key with the constants of its three moduli.
pub struct RsaKey {
    n: Field,
    p: Field,
    q: Field,
    e: Number,
    dp: Number,
    dq: Number,
    /// qInv in Montgomery form, modulo p.
    coefficient: Number,
    /// q in Montgomery form, modulo n.
    q_in_n: Number,
    length: usize,
}

impl RsaKey {
    /// Bytes of the modulus.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Modular {
    /// Has the core compute a key's constants.
    ///
    /// Exponents and coefficient are not checked against the primes: with wrong ones every result
    /// fails its check.
    ///
    /// # Errors
    /// [`Status::BAD_LENGTH`] for a modulus outside of 512 to 4096 bits, or parts that are longer
    /// than half of it or of eight bytes; [`Status::BAD_OPERAND`] if n is not p times q, or a
    /// number is even that must not be; [`Status::CORE_HUNG`].
    pub fn rsa_key(&mut self, parts: &RsaParts<'_>) -> Result<RsaKey, Status> {
        let RsaParts {
            n,
            e,
            p,
            q,
            dp,
            dq,
            qinv,
        } = [
            parts.n, parts.e, parts.p, parts.q, parts.dp, parts.dq, parts.qinv,
        ]
        .map(without_zeros)
        .into();
        let half = padded(p.len().max(q.len()));
        let bounded = (MODULUS_MIN..=BITS_MAX / 8).contains(&n.len()) && 2 * half <= BITS_MAX / 8;
        let parts_fit = [dp, dq, qinv].iter().all(|part| part.len() <= half);
        if !bounded || !parts_fit || n.len() > 2 * half || !(1..=EXPONENT_MAX).contains(&e.len()) {
            return Err(Status::BAD_LENGTH);
        }
        let length = n.len();
        let [n, q_long] = [n, q].map(|bytes| number(bytes, 2 * half));
        let [p, q, dp, dq, qinv] = [p, q, dp, dq, qinv].map(|bytes| number(bytes, half));
        let odd = e.last().is_some_and(|low| low & 1 == 1) && e != [1];
        if !odd || product(&p, &q) != n || !less(&qinv, &p) {
            return Err(Status::BAD_OPERAND);
        }
        let key = self.constants(n, p, q, qinv, &q_long).map(|computed| {
            let (n, p, q, coefficient, q_in_n) = computed;
            RsaKey {
                n,
                p,
                q,
                e: number(e, e.len().next_multiple_of(4)),
                dp,
                dq,
                coefficient,
                q_in_n,
                length,
            }
        });
        self.finish(key)
    }

    fn constants(
        &mut self,
        n: Number,
        p: Number,
        q: Number,
        qinv: Number,
        q_long: &[u8],
    ) -> Result<(Field, Field, Field, Number, Number), Status> {
        let (n, p, q) = (self.field(n)?, self.field(p)?, self.field(q)?);
        let coefficient = self.in_montgomery_form(&p, &qinv)?;
        let q_in_n = self.in_montgomery_form(&n, q_long)?;
        Ok((n, p, q, coefficient, q_in_n))
    }

    fn in_montgomery_form(&mut self, field: &Field, value: &[u8]) -> Result<Number, Status> {
        self.load(field, &[0; 4])?;
        self.put(1, value);
        self.put(2, &field.square);
        self.command(map::MULTIPLY, 1, 1, 2);
        self.get(1)
    }

    /// The private operation, RSADP and RSASP1 of RFC 8017 (sections 5.1.2 and 5.2.1), without any
    /// encoding: `input` and result are as long as the modulus.
    ///
    /// One wrong half of such a result gives away a prime (Boneh, DeMillo and Lipton, "On the
    /// Importance of Checking Cryptographic Protocols for Faults", EUROCRYPT 1997; the form with
    /// one faulty signature is Lenstra's). So it is handed out only if the public exponent takes
    /// it back to the input.
    ///
    /// # Errors
    /// [`Status::BAD_LENGTH`], [`Status::BAD_OPERAND`] if the input is not less than the modulus,
    /// [`Status::CORE_ALARM`] if the result is wrong, [`Status::CORE_HUNG`].
    pub fn rsa_private(
        &mut self,
        key: &RsaKey,
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        if input.len() != key.length {
            return Err(Status::BAD_LENGTH);
        }
        let input = number(input, key.n.modulus.len());
        if !less(&input, &key.n.modulus) {
            return Err(Status::BAD_OPERAND);
        }
        let result = self.rsa_unchecked(key, &input);
        let checked = result.and_then(|result| {
            let back = self.power_in(&key.n, &result, &key.e)?;
            if back == input {
                Ok(result)
            } else {
                Err(Status::CORE_ALARM)
            }
        });
        self.finish(checked)
            .map(|result| big_endian(&result, key.length))
    }

    fn rsa_unchecked(&mut self, key: &RsaKey, input: &[u8]) -> Result<Number, Status> {
        let one = number(&[1], key.p.modulus.len());
        // m_2 = c^dQ mod q.
        self.half_power(&key.q, input, &key.dq)?;
        self.put(2, &one);
        self.command(map::MULTIPLY, 1, 1, 2);
        let m_2 = self.get(1)?;
        // h = (c^dP - m_2) * qInv mod p, of which m_2 may be more than p.
        self.half_power(&key.p, input, &key.dp)?;
        self.put(2, &key.p.square);
        self.put(3, &m_2);
        self.command(map::MULTIPLY, 3, 3, 2);
        self.command(map::SUBTRACT, 1, 1, 3);
        self.put(2, &key.coefficient);
        self.command(map::MULTIPLY, 1, 1, 2);
        self.put(2, &one);
        self.command(map::MULTIPLY, 1, 1, 2);
        let h = self.get(1)?;
        // m_2 + q * h, which is less than n.
        let long = |short: &[u8]| {
            let mut long = Number::new(vec![0; key.n.modulus.len()]);
            long.iter_mut()
                .zip(short)
                .for_each(|(to, from)| *to = *from);
            long
        };
        self.load(&key.n, &[0; 4])?;
        self.put(1, &long(&h));
        self.put(2, &key.q_in_n);
        self.put(3, &long(&m_2));
        self.command(map::MULTIPLY, 1, 1, 2);
        self.command(map::ADD, 1, 1, 3);
        self.get(1)
    }

    /// An input of twice the field's length to the exponent, in Montgomery form in slot 1.
    fn half_power(&mut self, field: &Field, input: &[u8], exponent: &[u8]) -> Result<(), Status> {
        let (low, high) = input
            .split_at_checked(field.modulus.len())
            .ok_or(Status::BAD_LENGTH)?;
        self.load(field, exponent)?;
        self.put(0, &field.one);
        self.put(2, &field.square);
        self.put(1, low);
        self.put(3, high);
        // low + high * R, reduced: one factor of a product may be any number below R.
        self.command(map::MULTIPLY, 1, 1, 2);
        self.command(map::MULTIPLY, 3, 3, 2);
        self.command(map::MULTIPLY, 3, 3, 2);
        self.command(map::ADD, 1, 1, 3);
        self.command(map::POWER, 1, 0, 0);
        Ok(())
    }
}

impl<'a> From<[&'a [u8]; 7]> for RsaParts<'a> {
    fn from([n, e, p, q, dp, dq, qinv]: [&'a [u8]; 7]) -> Self {
        Self {
            n,
            e,
            p,
            q,
            dp,
            dq,
            qinv,
        }
    }
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or(&[])
}

/// The product of two numbers of the same length, twice as long.
fn product(a: &[u8], b: &[u8]) -> Number {
    let mut sum = Number::new(vec![0; a.len() + b.len()]);
    for (at, a) in a.iter().enumerate() {
        let mut carry = 0;
        let places = sum.iter_mut().skip(at);
        for (to, b) in places.zip(b.iter().chain([&0])) {
            let [low, high] = (u16::from(*a) * u16::from(*b)).to_le_bytes();
            let total = u16::from(*to) + u16::from(low) + carry;
            [*to, _] = total.to_le_bytes();
            carry = u16::from(high) + (total >> 8);
        }
    }
    sum
}
