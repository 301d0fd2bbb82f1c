//! Points of P-256 over the core of `hw/mont`.
//!
//! The core does the products, sums and differences; their order is here, in Rust.

use accel_abi::Status;
use zeroize::Zeroizing;

use crate::cores::modular::{Field, Modular, Number, big_endian, less, number};
use crate::cores::mont_core::map;

/// Bytes of a coordinate or scalar.
const SIZE: usize = 32;

// SP 800-186, section 3.2.1.3.
#[rustfmt::skip]
const P: [u8; SIZE] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];
#[rustfmt::skip]
const ORDER: [u8; SIZE] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
#[rustfmt::skip]
const B: [u8; SIZE] = [
    0x5a, 0xc6, 0x35, 0xd8, 0xaa, 0x3a, 0x93, 0xe7, 0xb3, 0xeb, 0xbd, 0x55, 0x76, 0x98, 0x86, 0xbc,
    0x65, 0x1d, 0x06, 0xb0, 0xcc, 0x53, 0xb0, 0xf6, 0x3b, 0xce, 0x3c, 0x3e, 0x27, 0xd2, 0x60, 0x4b,
];

// Slots. The core's exponentiation takes 0 to 15.
const ONE: u8 = 0;
const COEFFICIENT: u8 = 16;
const SQUARE: u8 = 17;
const PLAIN_ONE: u8 = 18;
/// Temporaries t0 to t4 of the formulas.
const T: [u8; 5] = [19, 20, 21, 22, 23];
/// The running point, in turns.
const POINTS: [u8; 2] = [24, 27];
/// Multiples 0 to 15 of the point; a point has three slots.
const TABLE: u8 = 32;

fn entry(number: u8) -> u8 {
    TABLE + 3 * number
}

impl Modular {
    /// `scalar` times the point with the coordinates x and y: both coordinates of the result, all
    /// with the highest byte first. The private key's half of ECDH.
    ///
    /// Double and add with a window of four bits and complete formulas: the same operations for
    /// every scalar. A result that is not on the curve is not handed out: from such ones, faults
    /// in a device give away the scalar (Biehl, Meyer and Müller, "Differential Fault Attacks on
    /// Elliptic Curve Cryptosystems", CRYPTO 2000), and so do points of other curves as input.
    ///
    /// # Errors
    /// [`Status::BAD_LENGTH`]; [`Status::BAD_OPERAND`] for a scalar that is zero or not less than
    /// the order, and for a point that is not on the curve; [`Status::CORE_ALARM`] if the result
    /// is not; [`Status::CORE_HUNG`].
    pub fn p256_multiply(
        &mut self,
        scalar: &[u8],
        point: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        let (x, y) = point.split_at_checked(SIZE).ok_or(Status::BAD_LENGTH)?;
        if scalar.len() != SIZE || y.len() != SIZE {
            return Err(Status::BAD_LENGTH);
        }
        let [p, order, scalar, x, y] = [&P, &ORDER, scalar, x, y].map(|bytes| number(bytes, SIZE));
        let zero = scalar.iter().fold(0, |any, byte| any | byte) == 0;
        if zero || !less(&scalar, &order) || !less(&x, &p) || !less(&y, &p) {
            return Err(Status::BAD_OPERAND);
        }
        let result = self.field(p).and_then(|field| {
            if self.on_curve(&field, &x, &y)? {
                self.multiple(&field, &scalar, &x, &y)
            } else {
                Err(Status::BAD_OPERAND)
            }
        });
        self.finish(result)
    }

    fn prepare(&mut self, field: &Field, exponent: &[u8]) -> Result<(), Status> {
        self.load(field, exponent)?;
        self.put(ONE, &field.one);
        self.put(SQUARE, &field.square);
        self.put(PLAIN_ONE, &number(&[1], SIZE));
        self.put(COEFFICIENT, &number(&B, SIZE));
        self.command(map::MULTIPLY, COEFFICIENT, COEFFICIENT, SQUARE);
        Ok(())
    }

    /// Writes a coordinate in Montgomery form.
    fn coordinate(&mut self, slot: u8, value: &[u8]) {
        self.put(slot, value);
        self.command(map::MULTIPLY, slot, slot, SQUARE);
    }

    /// y^2 = x^3 - 3x + b.
    fn on_curve(&mut self, field: &Field, x: &[u8], y: &[u8]) -> Result<bool, Status> {
        self.prepare(field, &[0; 4])?;
        let [x_slot, y_slot, sum, ..] = T;
        self.coordinate(x_slot, x);
        self.coordinate(y_slot, y);
        self.command(map::MULTIPLY, y_slot, y_slot, y_slot);
        self.command(map::MULTIPLY, sum, x_slot, x_slot);
        self.command(map::MULTIPLY, sum, sum, x_slot);
        for _ in 0..3 {
            self.command(map::SUBTRACT, sum, sum, x_slot);
        }
        self.command(map::ADD, sum, sum, COEFFICIENT);
        let square = self.get(y_slot)?;
        Ok(square == self.get(sum)?)
    }

    fn multiple(
        &mut self,
        field: &Field,
        scalar: &[u8],
        x: &[u8],
        y: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        // The exponent of the inversion at the end: p - 2 by Fermat.
        let mut exponent = field.modulus.clone();
        if let Some(low) = exponent.first_mut() {
            *low -= 2;
        }
        self.prepare(field, &exponent)?;
        let zero = Number::new(vec![0; SIZE]);
        for infinity in [entry(0), POINTS[0]] {
            self.put(infinity, &zero);
            self.put(infinity + 1, &field.one);
            self.put(infinity + 2, &zero);
        }
        self.coordinate(entry(1), x);
        self.coordinate(entry(1) + 1, y);
        self.put(entry(1) + 2, &field.one);
        for number in 2..16 {
            self.add_points(entry(number), entry(number - 1), entry(1));
        }
        let [mut point, mut other] = POINTS;
        for byte in scalar.iter().rev() {
            for digit in [byte >> 4, byte & 15] {
                for _ in 0..4 {
                    self.add_points(other, point, point);
                    std::mem::swap(&mut point, &mut other);
                }
                self.add_points(other, point, entry(digit));
                std::mem::swap(&mut point, &mut other);
            }
        }
        self.affine(field, point)
    }

    /// A projective point's coordinates, if it is on the curve.
    fn affine(&mut self, field: &Field, point: u8) -> Result<Zeroizing<Vec<u8>>, Status> {
        // Multiplied by R, a number in Montgomery form stays as it is.
        self.command(map::MULTIPLY, 1, point + 2, ONE);
        self.command(map::POWER, 1, 0, 0);
        for slot in [point, point + 1] {
            self.command(map::MULTIPLY, slot, slot, 1);
            self.command(map::MULTIPLY, slot, slot, PLAIN_ONE);
        }
        let (x, y) = (self.get(point)?, self.get(point + 1)?);
        if !self.on_curve(field, &x, &y)? {
            return Err(Status::CORE_ALARM);
        }
        let [x, y] = [x, y].map(|coordinate| big_endian(&coordinate, SIZE));
        Ok(Zeroizing::new([x.as_slice(), y.as_slice()].concat()))
    }

    /// The sum of two points, equal or not: algorithm 4 of Renes, Costello and Batina, "Complete
    /// addition formulas for prime order elliptic curves", EUROCRYPT 2016. `to` is neither of them.
    fn add_points(&mut self, to: u8, a: u8, b: u8) {
        const M: u32 = map::MULTIPLY;
        const A: u32 = map::ADD;
        const S: u32 = map::SUBTRACT;
        let [t0, t1, t2, t3, t4] = T;
        let (x1, y1, z1) = (a, a + 1, a + 2);
        let (x2, y2, z2) = (b, b + 1, b + 2);
        let (x3, y3, z3) = (to, to + 1, to + 2);
        #[rustfmt::skip]
        let steps = [
            (M, t0, x1, x2), (M, t1, y1, y2), (M, t2, z1, z2), (A, t3, x1, y1), (A, t4, x2, y2),
            (M, t3, t3, t4), (A, t4, t0, t1), (S, t3, t3, t4), (A, t4, y1, z1), (A, x3, y2, z2),
            (M, t4, t4, x3), (A, x3, t1, t2), (S, t4, t4, x3), (A, x3, x1, z1), (A, y3, x2, z2),
            (M, x3, x3, y3), (A, y3, t0, t2), (S, y3, x3, y3), (M, z3, COEFFICIENT, t2), (S, x3, y3, z3),
            (A, z3, x3, x3), (A, x3, x3, z3), (S, z3, t1, x3), (A, x3, t1, x3), (M, y3, COEFFICIENT, y3),
            (A, t1, t2, t2), (A, t2, t1, t2), (S, y3, y3, t2), (S, y3, y3, t0), (A, t1, y3, y3),
            (A, y3, t1, y3), (A, t1, t0, t0), (A, t0, t1, t0), (S, t0, t0, t2), (M, t1, t4, y3),
            (M, t2, t0, y3), (M, y3, x3, z3), (A, y3, y3, t2), (M, x3, t3, x3), (S, x3, x3, t1),
            (M, z3, t4, z3), (M, t1, t3, t0), (A, z3, z3, t1),
        ];
        for (command, to, a, b) in steps {
            self.command(command, to, a, b);
        }
    }
}
