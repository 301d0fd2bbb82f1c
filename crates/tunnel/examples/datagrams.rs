//! Small datagrams at a steady rate, and a sink that counts them: `scripts/bench-vpn` measures packet
//! rates with it.
//!
//! ```text
//! datagrams receive ADDRESS                              prints "ready", then a count at end of input
//! datagrams send ADDRESS --size 64 --rate 50000 --seconds 1     prints how many were sent
//! ```
//!
//! The source makes one datagram of each packet (no segmentation offload), in batches of one system
//! call every half millisecond.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the shell"
)]

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags};

const TICK: Duration = Duration::from_micros(500);
const SOCKET_BUFFER: usize = 8 << 20;
const USAGE: &str =
    "datagrams receive ADDRESS | datagrams send ADDRESS --size BYTES --rate PER_SECOND --seconds N";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => parse(address).map(receive),
        [
            "send",
            address,
            "--size",
            size,
            "--rate",
            rate,
            "--seconds",
            seconds,
        ] => {
            let numbers = (parse(size), parse(rate), parse(seconds));
            match (parse(address), numbers) {
                (Some(address), (Some(size), Some(rate), Some(seconds))) => {
                    Some(send(address, size, rate, seconds))
                }
                _ => None,
            }
        }
        _ => None,
    };
    match done {
        Some(Ok(count)) => {
            println!("{count}");
            ExitCode::SUCCESS
        }
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse<T: std::str::FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

/// Counts datagrams until standard input ends.
fn receive(address: SocketAddr) -> io::Result<u64> {
    let socket = UdpSocket::bind(address)?;
    let udp = UdpSocketState::new((&socket).into())?;
    udp.set_recv_buffer_size((&socket).into(), SOCKET_BUFFER)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    println!("ready");
    let input = thread::spawn(|| io::stdin().read_to_end(&mut Vec::new()));
    let mut memory = vec![0; BATCH_SIZE << 16];
    let mut count = 0;
    // A timeout means that nothing is under way any more.
    let mut silent = false;
    while !(silent && input.is_finished()) {
        let mut buffers: Vec<IoSliceMut<'_>> =
            memory.chunks_mut(1 << 16).map(IoSliceMut::new).collect();
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        match udp.recv((&socket).into(), &mut buffers, &mut metas) {
            Ok(messages) => {
                silent = false;
                for meta in metas.iter().take(messages) {
                    count += meta.len.div_ceil(meta.stride.max(1)) as u64;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => silent = true,
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Sends at a rate, never more than what is due; returns how many were sent.
fn send(address: SocketAddr, size: usize, rate: u64, seconds: u64) -> io::Result<u64> {
    let any = if address.is_ipv6() {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    let payload = vec![0x5a; size];
    let contents = [IoSlice::new(&payload)];
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut sent = 0;
    loop {
        let elapsed = start.elapsed();
        if elapsed >= length {
            return Ok(sent);
        }
        let due = u64::try_from(elapsed.as_nanos() * u128::from(rate) / 1_000_000_000).unwrap_or(0);
        while sent < due {
            let batch = usize::try_from(due - sent).unwrap_or(usize::MAX).min(64);
            let mut controls: Vec<_> = (0..batch).map(|_| SendAncillaryBuffer::default()).collect();
            let mut messages: Vec<_> = controls
                .iter_mut()
                .map(|control| MMsgHdr::new(&contents, control))
                .collect();
            sent += rustix::net::sendmmsg(&socket, &mut messages, SendFlags::empty())? as u64;
        }
        thread::sleep(TICK);
    }
}
