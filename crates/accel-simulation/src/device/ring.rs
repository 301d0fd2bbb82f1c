//! One request: its descriptor, its lists, its result.

use crate::cores::{Engine, Job};
use accel_abi::descriptor::{self, Completion};
use accel_abi::{
    Algorithm, Descriptor, KEY_MAX, Mode, Operation, SEGMENTS_MAX, Segment, Status, TRANSFER_MAX,
};
use zeroize::Zeroizing;

use crate::device::dma::{Dma, DmaFault};

/// A piece of memory that may be used as the request wants.
struct Piece {
    address: u64,
    length: usize,
}

/// Processes the descriptor at `address` and completes it; the number of refused accesses.
///
/// An error means that the descriptor itself cannot be used: the ring is broken.
pub(crate) fn process(
    engine: &mut Engine,
    dma: &mut dyn Dma,
    address: u64,
) -> Result<u32, DmaFault> {
    let mut bytes = Zeroizing::new([0; descriptor::SIZE]);
    dma.read(address, bytes.as_mut_slice())?;
    let whole = descriptor::SIZE as u64;
    if Completion::decode(&bytes).status.is_some() || !dma.allows(address, whole, true) {
        return Err(DmaFault);
    }
    let before = engine.cycles();
    let (sequence, done) = match Descriptor::decode(&bytes) {
        Ok(request) => (request.sequence, execute(engine, dma, &request)),
        // The echo may be as wrong as the rest; the driver compares it.
        Err(_) => (sequence_of(&bytes), Err(Status::BAD_DESCRIPTOR)),
    };
    let (status, produced) = match done {
        Ok(produced) => (Status::OK, produced),
        Err(status) => (status, 0),
    };
    let completion = Completion {
        produced,
        cycles: engine.cycles() - before,
        status: Some(status),
        echo: sequence,
    };
    let at = |offset: usize| address.checked_add(offset as u64).ok_or(DmaFault);
    dma.write(at(descriptor::PRODUCED)?, &completion.results())?;
    dma.write(at(descriptor::STATUS)?, &completion.status_and_echo())?;
    Ok(u32::from(status == Status::BAD_ADDRESS))
}

fn sequence_of(bytes: &[u8; descriptor::SIZE]) -> u32 {
    let [_, _, _, _, a, b, c, d, ..] = *bytes;
    u32::from_le_bytes([a, b, c, d])
}

/// Does what the descriptor asks for; the number of bytes written.
fn execute(engine: &mut Engine, dma: &mut dyn Dma, request: &Descriptor) -> Result<u32, Status> {
    let length = request.source_length as usize;
    match request.operation {
        Operation::LOAD_KEY if nothing_but_source(request) && (1..=KEY_MAX).contains(&length) => {
            let key = gather(dma, request.source, length)?;
            perform(engine, request, &key)?;
            Ok(0)
        }
        Operation::LOAD_KEY => Err(Status::BAD_LENGTH),
        Operation::ZEROISE_KEY => {
            perform(engine, request, &[])?;
            Ok(0)
        }
        _ => transform(engine, dma, request),
    }
}

/// Does what a request asks for with its source, associated data first; the result.
pub(crate) fn perform(
    engine: &mut Engine,
    request: &Descriptor,
    source: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Status> {
    match request.operation {
        Operation::LOAD_KEY => {
            if !nothing_but_source(request) || !(1..=KEY_MAX).contains(&source.len()) {
                return Err(Status::BAD_LENGTH);
            }
            engine.load_key(request.slot, request.algorithm, source)?;
            Ok(Zeroizing::default())
        }
        Operation::ZEROISE_KEY => {
            let empty = request.source_length == 0 && request.algorithm == Algorithm(0);
            if !nothing_but_source(request) || !empty {
                return Err(Status::BAD_LENGTH);
            }
            engine.zeroise_key(request.slot)?;
            Ok(Zeroizing::default())
        }
        _ => {
            let (aad, data) = source
                .split_at_checked(request.aad_length as usize)
                .ok_or(Status::BAD_LENGTH)?;
            compute(engine, request, aad, data)
        }
    }
}

/// Bytes of a request's result; an error if a length is zero, too large, or does not fit the others.
pub(crate) fn result_length(request: &Descriptor) -> Result<u32, Status> {
    let bounded = |length: u32| (1..=TRANSFER_MAX).contains(&length);
    let data = request.source_length.checked_sub(request.aad_length);
    let tag = u32::from(request.tag_length);
    let expected = match request.operation {
        Operation::ENCRYPT | Operation::DECRYPT | Operation::EXPONENTIATE => {
            data.and_then(|data| data.checked_add(tag))
        }
        Operation::AUTHENTICATE => data.map(|_| tag),
        _ => return Err(Status::UNSUPPORTED),
    };
    let expected = expected.filter(|expected| bounded(*expected));
    expected
        .filter(|_| bounded(request.source_length))
        .ok_or(Status::BAD_LENGTH)
}

fn nothing_but_source(request: &Descriptor) -> bool {
    request.mode == Mode(0)
        && request.aad_length == 0
        && request.destination_length == 0
        && request.tag_length == 0
        && request.iv.as_slice().is_empty()
}

/// A result from a source: lists, work, and the writes of the result.
fn transform(engine: &mut Engine, dma: &mut dyn Dma, request: &Descriptor) -> Result<u32, Status> {
    if result_length(request)? != request.destination_length {
        return Err(Status::BAD_LENGTH);
    }
    // Both lists are looked at before the first byte moves.
    let to = resolve(
        dma,
        request.destination,
        request.destination_length as usize,
        true,
    )?;
    let source = gather(dma, request.source, request.source_length as usize)?;
    let output = perform(engine, request, &source)?;
    let mut rest = output.as_slice();
    for piece in &to {
        let (now, later) = rest
            .split_at_checked(piece.length)
            .ok_or(Status::BAD_LENGTH)?;
        dma.write(piece.address, now)
            .map_err(|DmaFault| Status::BAD_ADDRESS)?;
        rest = later;
    }
    Ok(request.destination_length)
}

/// The result of a request whose source is there.
fn compute(
    engine: &mut Engine,
    request: &Descriptor,
    aad: &[u8],
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Status> {
    let tag_length = usize::from(request.tag_length);
    let bare = request.mode == Mode(0) && request.iv.as_slice().is_empty();
    match (request.operation, request.algorithm) {
        (Operation::ENCRYPT | Operation::DECRYPT, algorithm) => engine.run(&Job {
            decrypt: request.operation == Operation::DECRYPT,
            algorithm,
            mode: request.mode,
            slot: request.slot,
            iv: request.iv.as_slice(),
            aad,
            data,
            tag_length,
        }),
        (Operation::AUTHENTICATE, algorithm) if bare && aad.is_empty() => {
            engine.authenticate(algorithm, request.slot, data, tag_length)
        }
        (Operation::EXPONENTIATE, Algorithm::RSA) if bare && aad.is_empty() && tag_length == 0 => {
            engine.rsa_private(request.slot, data)
        }
        (Operation::EXPONENTIATE, Algorithm::MODULAR)
            if bare && request.slot == 0 && tag_length == 0 =>
        {
            let (modulus, exponent) = aad.split_at_checked(data.len()).ok_or(Status::BAD_LENGTH)?;
            engine.exponentiate(modulus, data, exponent)
        }
        (Operation::AUTHENTICATE, _) | (_, Algorithm::RSA | Algorithm::MODULAR) => {
            Err(Status::BAD_LENGTH)
        }
        _ => Err(Status::UNSUPPORTED),
    }
}

/// Reads a source of `total` bytes.
fn gather(dma: &mut dyn Dma, list: u64, total: usize) -> Result<Zeroizing<Vec<u8>>, Status> {
    let pieces = resolve(dma, list, total, false)?;
    let mut bytes = Zeroizing::new(vec![0; total]);
    let mut rest = bytes.as_mut_slice();
    for piece in &pieces {
        let (now, later) = rest
            .split_at_mut_checked(piece.length)
            .ok_or(Status::BAD_LIST)?;
        dma.read(piece.address, now)
            .map_err(|DmaFault| Status::BAD_ADDRESS)?;
        rest = later;
    }
    Ok(bytes)
}

/// Follows a segment list: its pieces, all allowed, together `total` bytes.
fn resolve(dma: &mut dyn Dma, list: u64, total: usize, write: bool) -> Result<Vec<Piece>, Status> {
    let mut pieces = Vec::new();
    let mut address = list;
    let mut left = total;
    for _ in 0..SEGMENTS_MAX {
        if !address.is_multiple_of(Segment::SIZE as u64) {
            return Err(Status::BAD_LIST);
        }
        let mut entry = [0; Segment::SIZE];
        dma.read(address, &mut entry)
            .map_err(|DmaFault| Status::BAD_ADDRESS)?;
        let entry = Segment::decode(&entry).ok_or(Status::BAD_LIST)?;
        match entry.flags {
            Segment::LINK if entry.length == 0 => {
                address = entry.address;
                continue;
            }
            0 | Segment::LAST if entry.length > 0 => {}
            _ => return Err(Status::BAD_LIST),
        }
        let length = entry.length as usize;
        left = left.checked_sub(length).ok_or(Status::BAD_LIST)?;
        if !dma.allows(entry.address, u64::from(entry.length), write) {
            return Err(Status::BAD_ADDRESS);
        }
        pieces.push(Piece {
            address: entry.address,
            length,
        });
        if entry.flags == Segment::LAST {
            return if left == 0 {
                Ok(pieces)
            } else {
                Err(Status::BAD_LIST)
            };
        }
        address = address
            .checked_add(Segment::SIZE as u64)
            .ok_or(Status::BAD_ADDRESS)?;
    }
    Err(Status::BAD_LIST)
}
