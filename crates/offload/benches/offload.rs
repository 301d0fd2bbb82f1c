//! Time per packet by engine, suite and size, in batches of 45 as one segmented send has them.
//!
//! `cargo bench -p offload` prints `seal` and `open` times; a time is that of one packet, not of the
//! batch. Packets lie in the first-level cache's neighbourhood, so this is the cost of the crypto
//! alone.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use offload::{Direction, Encryption, Engine, Integrity, KeyMaterial, Slot, Suite, Transform};

/// Packets of a batch.
const BATCH: usize = 45;
/// Bytes of inner packets: the smallest, the classical smallest maximum, the largest that fits a path
/// of 1500 with AES-GCM in UDP.
const SIZES: [usize; 3] = [64, 576, 1438];

fn suites() -> Vec<(&'static str, Suite)> {
    use Encryption::{AesCbc128, AesGcm128, AesGcm256, ChaCha20Poly1305, Null};
    use Integrity::{HmacSha1_96, HmacSha256_128, HmacSha512_256};
    [
        ("aes-128-gcm", AesGcm128, None),
        ("aes-256-gcm", AesGcm256, None),
        ("chacha20-poly1305", ChaCha20Poly1305, None),
        ("aes-128-cbc sha1", AesCbc128, Some(HmacSha1_96)),
        ("aes-128-cbc sha2-256", AesCbc128, Some(HmacSha256_128)),
        ("aes-128-cbc sha2-512", AesCbc128, Some(HmacSha512_256)),
        ("null sha2-256", Null, Some(HmacSha256_128)),
    ]
    .into_iter()
    .filter_map(|(name, encryption, integrity)| {
        Some((name, Suite::new(encryption, integrity).ok()?))
    })
    .collect()
}

/// The median time of a batch stands for all of them: other work on the machine interrupts some, and
/// the mean would measure that. Sealing works on the same bytes again and again; opening needs a
/// fresh copy, whose time is not counted.
fn time(
    transform: &Transform,
    direction: Direction,
    sealed: &[u8],
    slots: &[Slot],
    rounds: u64,
) -> Duration {
    let (mut buffer, mut work) = (sealed.to_vec(), slots.to_vec());
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            work.copy_from_slice(slots);
            if direction == Direction::Open {
                buffer.copy_from_slice(sealed);
            }
            let start = Instant::now();
            match direction {
                Direction::Seal => transform.seal(&mut buffer, &mut work),
                Direction::Open => transform.open(&mut buffer, &mut work),
            }
            let time = start.elapsed();
            assert!(work.iter().all(|slot| slot.valid), "a packet was refused");
            time
        })
        .collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    median.mul_f64(rounds as f64 / BATCH as f64)
}

fn packets(criterion: &mut Criterion) {
    for (name, suite) in suites() {
        let mut group = criterion.benchmark_group(name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(50))
            .measurement_time(Duration::from_millis(150));
        let keys = KeyMaterial::new(
            &vec![7; suite.encryption().key_len()],
            &vec![9; suite.integrity().map_or(0, Integrity::key_len)],
        );
        for engine in [Engine::Library, Engine::Fastest] {
            let new = |direction| Transform::with_engine(suite, &keys, false, direction, engine);
            let (Ok(seal), Ok(open)) = (new(Direction::Seal), new(Direction::Open)) else {
                continue;
            };
            if engine == Engine::Fastest && seal.engine_name() == "library" {
                continue;
            }
            for size in SIZES {
                let text = (size + 2).next_multiple_of(suite.encryption().alignment());
                let len = seal.payload_offset() + text + suite.icv_len();
                let slots: Vec<_> = (0..BATCH)
                    .map(|at| Slot::new(at * len, len, 1 + at as u64))
                    .collect();
                let mut sealed = vec![1; BATCH * len];
                seal.seal(&mut sealed, &mut slots.clone());
                let name = seal.engine_name();
                for (verb, transform, direction) in [
                    ("seal", &seal, Direction::Seal),
                    ("open", &open, Direction::Open),
                ] {
                    let id = BenchmarkId::new(format!("{verb} by {name}"), size);
                    group.bench_function(id, |bencher| {
                        bencher.iter_custom(|rounds| {
                            time(transform, direction, &sealed, &slots, rounds)
                        });
                    });
                }
            }
        }
        group.finish();
    }
}

criterion_group!(benches, packets);
criterion_main!(benches);
