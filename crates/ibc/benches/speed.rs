//! Every back end, mode and size from 16 bytes to 1 MiB.
//!
//! `cargo bench -p ibc` takes a few minutes; `cargo bench -p ibc -- --test` runs each once. The
//! comparison with OpenSSL is the example `speed_table`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ibc::mode::{CbcDecryptor, CbcEncryptor, CbcJob, Ctr, cbc_encrypt_many};
use ibc::{Backend, Block, Ibc, Iv, Variant};
use std::hint::black_box;
use std::time::Duration;

/// Sizes in bytes; CTR takes all, the modes of whole blocks those from 32.
const SIZES: [usize; 9] = [16, 32, 64, 256, 1024, 4096, 16 << 10, 128 << 10, 1 << 20];

const IV: Iv = Iv::Short([7; 16]);

fn modes(criterion: &mut Criterion) {
    for backend in Backend::available() {
        let Ok(cipher) = Ibc::with_backend(Variant::Indect128, &[0x5A; 16], backend) else {
            continue;
        };
        let mut group = criterion.benchmark_group(format!("INDECT-128 {backend}"));
        for size in SIZES {
            group.throughput(Throughput::Bytes(size as u64));
            let mut bytes = vec![0x33; size];
            let mut ctr = Ctr::new(cipher.clone(), IV);
            group.bench_function(BenchmarkId::new("ctr", size), |b| {
                b.iter(|| ctr.apply(bytes.as_mut_slice().into()));
            });
            let mut blocks: Vec<Block> = vec![[0x33; 32]; size / 32];
            if blocks.is_empty() {
                continue;
            }
            group.bench_function(BenchmarkId::new("ecb-encrypt", size), |b| {
                b.iter(|| cipher.encrypt_blocks(blocks.as_mut_slice().into()));
            });
            group.bench_function(BenchmarkId::new("ecb-decrypt", size), |b| {
                b.iter(|| cipher.decrypt_blocks(blocks.as_mut_slice().into()));
            });
            let mut encryptor = CbcEncryptor::new(cipher.clone(), IV);
            group.bench_function(BenchmarkId::new("cbc-encrypt", size), |b| {
                b.iter(|| encryptor.encrypt(blocks.as_mut_slice().into()));
            });
            let mut decryptor = CbcDecryptor::new(cipher.clone(), IV);
            group.bench_function(BenchmarkId::new("cbc-decrypt", size), |b| {
                b.iter(|| decryptor.decrypt(blocks.as_mut_slice().into()));
            });
            let mut chains: Vec<_> = (0..8)
                .map(|_| (CbcEncryptor::new(cipher.clone(), IV), blocks.clone()))
                .collect();
            group.throughput(Throughput::Bytes(8 * size as u64));
            group.bench_function(BenchmarkId::new("cbc-encrypt-8", size), |b| {
                b.iter(|| {
                    let mut jobs: Vec<CbcJob<'_>> = chains
                        .iter_mut()
                        .map(|(e, blocks)| CbcJob::new(e, blocks.as_mut_slice().into()))
                        .collect();
                    cbc_encrypt_many(&mut jobs);
                });
            });
        }
    }
}

fn key_setup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("key set-up");
    for backend in Backend::available() {
        for variant in Variant::ALL {
            let key = vec![0xA7; variant.key_size()];
            group.bench_function(BenchmarkId::new(variant.name(), backend), |b| {
                b.iter(|| Ibc::with_backend(variant, black_box(&key), backend));
            });
        }
    }
}

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
}

criterion_group! { name = benches; config = quick(); targets = modes, key_setup }
criterion_main!(benches);
