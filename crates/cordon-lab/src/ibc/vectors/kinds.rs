//! The kinds of vectors (specification, section 9), each checked in both directions where there
//! are two.

use aws_lc_rs::digest::{SHA256, digest};
use ibc::ced::inject::{Placement, SplitMix64, draw_faults, encrypt_block_with_faults};
use ibc::ced::{CheckedIbc, Code, Stage};
use ibc::container::{Header, Mode};
use ibc::mode::{CbcDecryptor, CbcEncryptor, Ctr};
use ibc::research::{ReducedIbc, matrix_from_word, mix_part, sbox_table};
use ibc::{BLOCK_SIZE, Backend, Block, Ibc, Iv, Variant};
use serde_json::Value;

use super::{Mismatch, VectorError};

type Checked<T = ()> = Result<T, VectorError>;

pub(super) fn check(vector: &Value, backend: Backend) -> Checked {
    let vector = Vector(vector);
    match vector.text("type")? {
        "matrix" => matrix(&vector),
        "keysetup" => key_setup(&vector),
        "trace" => trace(&vector, backend),
        "block" => block(&vector, backend),
        "chain" => chain(&vector, backend),
        "iv" => iv(&vector, backend),
        "mode" => mode(&vector, backend),
        "container" => container(&vector, backend),
        "check" => check_value(&vector),
        "ced" => detection(&vector),
        _ => Err(malformed("type", "is none that is known")),
    }
}

/// Access to the fields of a vector, which comes from outside.
struct Vector<'a>(&'a Value);

impl<'a> Vector<'a> {
    fn field(&self, name: &str) -> Checked<&'a Value> {
        self.0
            .get(name)
            .ok_or_else(|| malformed(name, "is missing"))
    }

    fn text(&self, name: &str) -> Checked<&'a str> {
        self.field(name)?
            .as_str()
            .ok_or_else(|| malformed(name, "is no text"))
    }

    fn number(&self, name: &str) -> Checked<usize> {
        let number = self.field(name)?.as_u64();
        number
            .and_then(|number| usize::try_from(number).ok())
            .ok_or_else(|| malformed(name, "is no number"))
    }

    fn bytes(&self, name: &str) -> Checked<Vec<u8>> {
        hex::decode(self.text(name)?).map_err(|_| malformed(name, "is not hexadecimal"))
    }

    fn block(&self, name: &str) -> Checked<Block> {
        let bytes = self.bytes(name)?;
        Block::try_from(bytes).map_err(|_| malformed(name, "is no block of 32 bytes"))
    }

    fn word(&self, name: &str) -> Checked<u64> {
        u64::from_str_radix(self.text(name)?, 16)
            .map_err(|_| malformed(name, "is no number of 64 bits"))
    }

    fn texts(&self, name: &str) -> Checked<Vec<&'a str>> {
        let list = self.field(name)?.as_array();
        let texts = list.map(|list| list.iter().map(Value::as_str).collect());
        texts
            .flatten()
            .ok_or_else(|| malformed(name, "is no list of texts"))
    }

    fn variant(&self) -> Checked<(Variant, Vec<u8>)> {
        let (key, rounds) = (self.bytes("key")?, self.number("rounds")?);
        let variant = Variant::from_parts(key.len(), rounds)
            .ok_or_else(|| malformed("rounds", "and the key's length are no variant"))?;
        Ok((variant, key))
    }

    fn cipher(&self, backend: Backend) -> Checked<Ibc> {
        let (variant, key) = self.variant()?;
        Ibc::with_backend(variant, &key, backend)
            .map_err(|_| malformed("key", "cannot be used on this back end"))
    }

    fn mode(&self) -> Checked<Mode> {
        self.text("mode")?
            .parse()
            .map_err(|_| malformed("mode", "is none that is known"))
    }

    fn code(&self) -> Checked<Code> {
        self.text("ced")?
            .parse()
            .map_err(|_| malformed("ced", "is none that is known"))
    }

    /// Compares bytes with a field.
    fn same(&self, name: &str, got: impl AsRef<[u8]>) -> Checked {
        same(name, self.text(name)?, &hex::encode(got))
    }
}

fn malformed(field: &str, problem: &'static str) -> VectorError {
    let field = field.to_owned();
    VectorError::Malformed { field, problem }
}

fn same(field: &str, expected: &str, got: &str) -> Checked {
    if expected.eq_ignore_ascii_case(got) {
        return Ok(());
    }
    Err(VectorError::Mismatch(Mismatch {
        field: field.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    }))
}

fn matrix(vector: &Vector<'_>) -> Checked {
    vector.same("rows", matrix_from_word(vector.word("word")?))
}

fn key_setup(vector: &Vector<'_>) -> Checked {
    let key = vector.bytes("key")?;
    let cipher = ReducedIbc::new(&key, 1).map_err(|_| malformed("key", "has no IBC key size"))?;
    let (parts, _) = key.as_chunks::<8>();
    let words: Vec<String> = (0u64..)
        .zip(parts)
        .map(|(index, part)| format!("{:016x}", mix_part(u64::from_be_bytes(*part), index)))
        .collect();
    same_list("words", &vector.texts("words")?, &words)?;
    let matrices = cipher.matrices();
    let encoded: Vec<String> = matrices.iter().map(hex::encode).collect();
    same_list("matrices", &vector.texts("matrices")?, &encoded)?;
    let tables = matrices.iter().map(sbox_table);
    let sboxes: Vec<String> = match vector.text("sboxes_are")? {
        "tables" => tables.map(hex::encode).collect(),
        "sha256" => tables.map(|t| hex::encode(digest(&SHA256, &t))).collect(),
        _ => return Err(malformed("sboxes_are", "is neither tables nor sha256")),
    };
    same_list("sboxes", &vector.texts("sboxes")?, &sboxes)
}

fn same_list(field: &str, expected: &[&str], got: &[String]) -> Checked {
    same(field, &expected.len().to_string(), &got.len().to_string())?;
    for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
        same(&format!("{field}[{index}]"), expected, got)?;
    }
    Ok(())
}

fn trace(vector: &Vector<'_>, backend: Backend) -> Checked {
    let (variant, key) = vector.variant()?;
    let cipher = ReducedIbc::new(&key, variant.rounds())
        .map_err(|_| malformed("key", "has no IBC key size"))?;
    let mut state = vector.block("pt")?;
    let mut states = Vec::new();
    for round in 0..variant.rounds() {
        cipher.substitute(round, &mut state);
        states.push(hex::encode(state));
        cipher.permute(round, &mut state);
        states.push(hex::encode(state));
    }
    same_list("states", &vector.texts("states")?, &states)?;
    block(vector, backend)
}

fn block(vector: &Vector<'_>, backend: Backend) -> Checked {
    let cipher = vector.cipher(backend)?;
    let (mut there, mut back) = (vector.block("pt")?, vector.block("ct")?);
    cipher.encrypt_block(&mut there);
    vector.same("ct", there)?;
    cipher.decrypt_block(&mut back);
    vector.same("pt", back)
}

fn chain(vector: &Vector<'_>, backend: Backend) -> Checked {
    let cipher = vector.cipher(backend)?;
    let mut state = vector.block("pt")?;
    for _ in 0..vector.number("count")? {
        cipher.encrypt_block(&mut state);
    }
    vector.same("ct", state)
}

/// Decrypting a block of CBC gives the chaining value away: it is what the block decrypts to,
/// added to the plain text.
fn iv(vector: &Vector<'_>, backend: Backend) -> Checked {
    let cipher = vector.cipher(backend)?;
    let mut alone = Block::default();
    cipher.decrypt_block(&mut alone);
    let mut chained = [Block::default()];
    CbcDecryptor::new(cipher, given_iv(vector)?).decrypt(chained.as_mut_slice().into());
    let expanded: Vec<u8> = chained
        .as_flattened()
        .iter()
        .zip(alone)
        .map(|(a, b)| a ^ b)
        .collect();
    vector.same("iv32", expanded)
}

fn given_iv(vector: &Vector<'_>) -> Checked<Iv> {
    let bytes = vector.bytes("iv")?;
    Iv::try_from(bytes.as_slice()).map_err(|_| malformed("iv", "has neither 16 nor 32 bytes"))
}

fn mode(vector: &Vector<'_>, backend: Backend) -> Checked {
    let padded = match vector.text("padding")? {
        "pkcs7" => true,
        "none" => false,
        _ => return Err(malformed("padding", "is neither pkcs7 nor none")),
    };
    vector.same("ct", encrypt(vector, backend, padded)?)?;
    vector.same("pt", decrypt(vector, backend, padded)?)
}

fn encrypt(vector: &Vector<'_>, backend: Backend, padded: bool) -> Checked<Vec<u8>> {
    let cipher = vector.cipher(backend)?;
    let mut data = vector.bytes("pt")?;
    if padded {
        let payload = data.len();
        data.resize(payload - payload % BLOCK_SIZE + BLOCK_SIZE, 0);
        if let Some(last) = data.last_chunk_mut() {
            ibc::padding::pad(payload, last);
        }
    }
    let mode = vector.mode()?;
    if mode == Mode::Ctr {
        Ctr::new(cipher, given_iv(vector)?).apply(data.as_mut_slice().into());
        return Ok(data);
    }
    let (blocks, []) = data.as_chunks_mut::<BLOCK_SIZE>() else {
        return Err(malformed("pt", "has no whole blocks"));
    };
    if mode == Mode::Ecb {
        cipher.encrypt_blocks(blocks.into());
    } else {
        CbcEncryptor::new(cipher, given_iv(vector)?).encrypt(blocks.into());
    }
    Ok(data)
}

fn decrypt(vector: &Vector<'_>, backend: Backend, padded: bool) -> Checked<Vec<u8>> {
    let cipher = vector.cipher(backend)?;
    let mut data = vector.bytes("ct")?;
    let mode = vector.mode()?;
    if mode == Mode::Ctr {
        Ctr::new(cipher, given_iv(vector)?).apply(data.as_mut_slice().into());
        return Ok(data);
    }
    let (blocks, []) = data.as_chunks_mut::<BLOCK_SIZE>() else {
        return Err(malformed("ct", "has no whole blocks"));
    };
    if mode == Mode::Ecb {
        cipher.decrypt_blocks(blocks.into());
    } else {
        CbcDecryptor::new(cipher, given_iv(vector)?).decrypt(blocks.into());
    }
    if padded {
        let last = data
            .last_chunk()
            .ok_or_else(|| malformed("ct", "is empty"))?;
        let payload = ibc::padding::unpad(last);
        let payload = payload.map_err(|_| malformed("ct", "decrypts to wrong padding"))?;
        data.truncate(data.len() - BLOCK_SIZE + payload);
    }
    Ok(data)
}

fn container(vector: &Vector<'_>, backend: Backend) -> Checked {
    let (variant, _) = vector.variant()?;
    let mode = vector.mode()?;
    let header = match mode {
        Mode::Ecb => Header::ecb(variant),
        Mode::Cbc => Header::cbc(variant, vector.block("iv")?),
        Mode::Ctr => Header::ctr(variant, vector.block("iv")?),
    };
    let mut file = header.encode();
    file.extend(encrypt(vector, backend, mode.is_padded())?);
    vector.same("file", file)?;
    let file = vector.bytes("file")?;
    let (read, _) = Header::parse(&file).map_err(|_| malformed("file", "has no valid header"))?;
    same(
        "file (header)",
        &format!("{header:?}"),
        &format!("{read:?}"),
    )
}

fn check_value(vector: &Vector<'_>) -> Checked {
    let got = vector.code()?.check(&vector.block("block")?);
    same(
        "value",
        &vector.number("value")?.to_string(),
        &got.to_string(),
    )
}

fn detection(vector: &Vector<'_>) -> Checked {
    let (variant, key) = vector.variant()?;
    let placement = match vector.field("spread")?.as_bool() {
        Some(true) => Placement::Spread,
        Some(false) => Placement::OneStage,
        None => return Err(malformed("spread", "is neither true nor false")),
    };
    let mut random = SplitMix64::new(vector.word("fault_seed")?);
    let faults = draw_faults(
        &mut random,
        variant.rounds(),
        vector.number("errors")?,
        placement,
    );
    let faults = faults.map_err(|_| malformed("errors", "are too many"))?;
    let listed: Vec<Value> = faults
        .iter()
        .map(|((round, stage), mask)| {
            let stage = u8::from(*stage == Stage::Permutation);
            serde_json::json!([round, stage, hex::encode(mask)])
        })
        .collect();
    let expected = vector.field("faults")?.to_string();
    same("faults", &expected, &Value::from(listed).to_string())?;
    let cipher = CheckedIbc::new(variant, &key, vector.code()?)
        .map_err(|_| malformed("key", "has the wrong size"))?;
    let mut block = vector.block("pt")?;
    let outcome = encrypt_block_with_faults(&cipher, &mut block, &faults);
    vector.same("ct", block)?;
    for (name, got) in [("detected", outcome.detected), ("alarms", outcome.alarms)] {
        same(name, &vector.number(name)?.to_string(), &got.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../../../ibc/tests/data/ibc_vectors.json");

    #[test]
    fn every_vector_holds_on_every_back_end() {
        let document: Value = serde_json::from_str(FILE).unwrap();
        let vectors = document["vectors"].as_array().unwrap();
        assert_eq!(vectors.len(), 200);
        for backend in Backend::available() {
            for vector in vectors {
                check(vector, backend).unwrap();
            }
        }
    }

    /// Whatever field of whatever vector is changed, removed or made nonsense: it does not hold.
    #[test]
    fn no_field_may_be_wrong() {
        let document: Value = serde_json::from_str(FILE).unwrap();
        for vector in document["vectors"].as_array().unwrap() {
            for (name, value) in vector.as_object().unwrap() {
                // Many blocks have the same check value, and the number is a name.
                if name == "id" || name == "block" {
                    continue;
                }
                let mut removed = vector.clone();
                removed.as_object_mut().unwrap().remove(name);
                let unused = name == "iv" && vector["mode"] == "ecb";
                assert_eq!(check(&removed, Backend::Portable).is_ok(), unused, "{name}");
                let mut changed = vector.clone();
                changed[name] = other(value);
                // No fault needs no seed, and one fault is in one stage either way.
                let errors = vector["errors"].as_u64();
                let same_faults = (name == "spread" && errors <= Some(1))
                    || (name == "fault_seed" && errors == Some(0));
                let result = check(&changed, Backend::Portable);
                assert_eq!(result.is_ok(), unused || same_faults, "{name} of {vector}");
            }
        }
    }

    /// Another value of the same kind.
    fn other(value: &Value) -> Value {
        match value {
            Value::Bool(value) => Value::from(!value),
            Value::Number(number) => Value::from(number.as_u64().unwrap() + 1),
            Value::Array(list) if list.is_empty() => Value::from(vec!["x"]),
            Value::Array(list) => {
                let mut list = list.clone();
                list.pop();
                Value::from(list)
            }
            Value::String(text) if text.is_empty() => Value::from("00"),
            Value::String(text) => {
                // The first digit: words that differ in the last one give the same matrix.
                let (first, rest) = text.split_at(1);
                let first = if first == "0" { "1" } else { "0" };
                Value::from(format!("{first}{rest}"))
            }
            _ => Value::Null,
        }
    }
}
