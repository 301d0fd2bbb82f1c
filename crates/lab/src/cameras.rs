//! Many cameras in one process, and the viewer who looks at all of them in another.
//!
//! Each camera has a connection of its own and sends its film as live HTTP: one POST whose body comes in
//! chunks (RFC 9112, section 7.1), one chunk for each frame, each frame when it is due and not earlier.
//! Both ends read the same clock, and the first line of a camera tells when it began; so the viewer knows
//! when each frame was due.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::epoll;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::film::{FRAMES_PER_SECOND, frames};

/// Nanoseconds between two frames.
const PERIOD: u64 = 1_000_000_000 / FRAMES_PER_SECOND as u64;
/// Frames that a camera keeps when they do not go out; then it drops them.
const MEMORY: usize = FRAMES_PER_SECOND as usize;
/// Between the last camera's connection and its first frame.
const LEAD: u64 = 100_000_000;
/// Shortest sleep; frames leave that much late at most.
const STEP: Duration = Duration::from_millis(1);
/// All cameras are connected within.
const CONNECTED: u64 = 20_000_000_000;
/// Bytes of a camera's first lines at most.
const MAX_HEAD: usize = 512;
const CHUNK: usize = 256 * 1024;

/// The cameras' orders.
#[derive(Debug, Serialize, Deserialize)]
pub struct Filming {
    /// Address of the viewer.
    pub viewer: SocketAddr,
    pub film: PathBuf,
    pub cameras: u32,
    pub frames: u32,
}

/// Observations of the cameras.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Filmed {
    /// The latest that a frame was handed to the network, in milliseconds after it was due: the sender's
    /// own share.
    pub behind_ms: f64,
    /// Frames for which there was no memory.
    pub dropped: u64,
}

/// The viewer's orders.
#[derive(Debug, Serialize, Deserialize)]
pub struct Viewing {
    /// Address to listen on.
    pub address: SocketAddr,
    pub cameras: u32,
    pub frames: u32,
    /// A frame is late when its last byte comes more than this after it was due, in milliseconds.
    pub limit_ms: u32,
}

/// Observations of the viewer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Viewed {
    /// Frames that came whole.
    pub frames: u64,
    /// Whether one was late; then the viewer looked no further.
    pub late: bool,
    /// Frames that did not come.
    pub lost: u64,
    /// The longest that a frame took, in milliseconds.
    pub worst_ms: f64,
}

fn read<T: for<'a> Deserialize<'a>>() -> Result<T, LabError> {
    let mut text = String::new();
    std::io::stdin()
        .read_line(&mut text)
        .map_err(LabError::io("the description"))?;
    serde_json::from_str(&text).map_err(|error| LabError::Unexpected(error.to_string()))
}

fn say(text: &str) -> Result<(), LabError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(LabError::io("a line"))
}

fn answer(value: &impl Serialize) -> Result<(), LabError> {
    say(&serde_json::to_string(value).map_err(|error| LabError::Unexpected(error.to_string()))?)
}

/// Nanoseconds of the clock that all processes of a machine share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// Every camera is an open file.
fn allow_files() {
    let most = getrlimit(Resource::Nofile).maximum;
    // Without it, fewer cameras connect, and that is told.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    );
}

/// Plays all cameras: the description comes from standard input, the result goes to standard output.
///
/// # Errors
/// The description makes no sense, the film is none, or the viewer cannot be reached.
pub fn film() -> Result<(), LabError> {
    let filming: Filming = read()?;
    answer(&play(&filming)?)
}

struct Camera {
    stream: TcpStream,
    /// The clock at its first frame.
    began: u64,
    /// First frame of the film: cameras are not synchronous.
    first: usize,
    /// Frames that still have to go out, and how much of the first one has.
    waiting: VecDeque<usize>,
    sent: usize,
}

impl Camera {
    /// Sends what the network takes; whether all of it went.
    fn push(&mut self, film: &[Vec<u8>]) -> std::io::Result<bool> {
        while let Some(frame) = self.waiting.front().and_then(|index| film.get(*index)) {
            match self
                .stream
                .write(frame.get(self.sent..).unwrap_or_default())
            {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent >= frame.len() {
                self.waiting.pop_front();
                self.sent = 0;
            }
        }
        Ok(true)
    }
}

fn play(filming: &Filming) -> Result<Filmed, LabError> {
    allow_files();
    let bytes = std::fs::read(&filming.film).map_err(LabError::io("the film"))?;
    let film: Vec<Vec<u8>> = frames(&bytes)?
        .into_iter()
        .filter_map(|range| bytes.get(range))
        .map(|frame| [format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat())
        .collect();
    let mut cameras = connect(filming, film.len())?;
    let mut filmed = Filmed::default();
    let mut blocked: Vec<usize> = Vec::new();
    let mut retried = now();
    'all: for frame in 0..filming.frames {
        for number in 0..cameras.len() {
            let due = cameras
                .get(number)
                .map_or(0, |camera| camera.began + u64::from(frame) * PERIOD);
            loop {
                let clock = now();
                if clock.saturating_sub(retried) >= 1_000_000 {
                    retried = clock;
                    if !retry(&mut cameras, &mut blocked, &film) {
                        break 'all;
                    }
                }
                if clock >= due {
                    filmed.behind_ms = filmed.behind_ms.max(milliseconds(clock - due));
                    break;
                }
                std::thread::sleep(Duration::from_nanos(due - clock).max(STEP));
            }
            let Some(camera) = cameras.get_mut(number) else {
                continue;
            };
            if camera.waiting.len() >= MEMORY {
                filmed.dropped += 1;
                continue;
            }
            let stuck = !camera.waiting.is_empty();
            camera
                .waiting
                .push_back((camera.first + frame as usize) % film.len());
            if stuck {
                continue;
            }
            match camera.push(&film) {
                Ok(true) => {}
                Ok(false) => blocked.push(number),
                // The viewer has seen a late frame and is gone.
                Err(_) => break 'all,
            }
        }
    }
    let end = now() + 1_000_000_000;
    while !blocked.is_empty() && now() < end && retry(&mut cameras, &mut blocked, &film) {
        std::thread::sleep(STEP);
    }
    for camera in &mut cameras {
        // The last chunk. Who is gone has all that it wanted.
        let _ = camera.stream.write(b"0\r\n\r\n");
    }
    Ok(filmed)
}

/// Tries again what did not go out; false when the viewer is gone.
fn retry(cameras: &mut [Camera], blocked: &mut Vec<usize>, film: &[Vec<u8>]) -> bool {
    let mut there = true;
    blocked.retain(
        |number| match cameras.get_mut(*number).map(|c| c.push(film)) {
            Some(Ok(all)) => !all,
            _ => {
                there = false;
                false
            }
        },
    );
    there
}

fn connect(filming: &Filming, length: usize) -> Result<Vec<Camera>, LabError> {
    let failed = || LabError::io("a camera's connection");
    let mut streams = Vec::new();
    for _ in 0..filming.cameras {
        let stream = TcpStream::connect(filming.viewer).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        streams.push(stream);
    }
    let start = now() + LEAD;
    let count = u64::from(filming.cameras.max(1));
    let mut cameras = Vec::new();
    for (number, mut stream) in (0_u64..).zip(streams) {
        // Interval evenly over the time of a frame, and over the film.
        let began = start + PERIOD * number / count;
        let head = format!(
            "POST /camera-{number} HTTP/1.1\r\nHost: viewer.example.org\r\nContent-Type: video/mp2t\r\n\
             Transfer-Encoding: chunked\r\nCamera-Clock: {began}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).map_err(failed())?;
        stream.set_nonblocking(true).map_err(failed())?;
        cameras.push(Camera {
            stream,
            began,
            first: usize::try_from(number).unwrap_or_default() * 7 % length,
            waiting: VecDeque::new(),
            sent: 0,
        });
    }
    Ok(cameras)
}

/// Looks at all cameras: the description comes from standard input; says `listening`, then what it saw, and
/// stays until it is ended, so that what it used can be read.
///
/// # Errors
/// The description makes no sense, or the address cannot be used.
pub fn view() -> Result<(), LabError> {
    let viewing: Viewing = read()?;
    allow_files();
    let listener = TcpListener::bind(viewing.address).map_err(LabError::io("the viewer's port"))?;
    say("listening")?;
    let viewed = watch(&viewing, &listener)?;
    answer(&viewed)?;
    drop(listener);
    loop {
        std::thread::park();
    }
}

/// Place of the viewer in a camera's stream.
enum At {
    /// In the first lines.
    Head(Vec<u8>),
    /// In a chunk's length.
    Length(usize),
    /// In a frame, or in the line's end after it; so many bytes are to come.
    Frame(usize),
    /// After the last chunk.
    End,
}

struct Seen {
    stream: TcpStream,
    at: At,
    began: u64,
    frames: u32,
}

/// A stream is not what a camera sends.
struct Garbled;

impl Seen {
    /// Takes bytes that came; calls `whole` with the number of each frame that is complete with them.
    fn take(&mut self, mut bytes: &[u8], mut whole: impl FnMut(u64, u32)) -> Result<(), Garbled> {
        while let Some((&first, rest)) = bytes.split_first() {
            match &mut self.at {
                At::Head(head) => {
                    head.push(first);
                    bytes = rest;
                    if head.len() > MAX_HEAD {
                        return Err(Garbled);
                    }
                    if head.ends_with(b"\r\n\r\n") {
                        self.began = clock_of(head).ok_or(Garbled)?;
                        self.at = At::Length(0);
                    }
                }
                At::Length(length) => {
                    bytes = rest;
                    match (char::from(first).to_digit(16), first) {
                        (Some(digit), _) if *length < CHUNK * 16 => {
                            *length = *length * 16 + digit as usize;
                        }
                        (None, b'\r') => {}
                        (None, b'\n') if *length == 0 => self.at = At::End,
                        // The line's end after a frame counts with it.
                        (None, b'\n') => self.at = At::Frame(*length + 2),
                        _ => return Err(Garbled),
                    }
                }
                At::Frame(left) => {
                    let count = (*left).min(bytes.len());
                    *left -= count;
                    bytes = bytes.get(count..).unwrap_or_default();
                    if *left == 0 {
                        whole(self.began, self.frames);
                        self.frames += 1;
                        self.at = At::Length(0);
                    }
                }
                At::End => return Ok(()),
            }
        }
        Ok(())
    }
}

/// When a camera began, by its first lines.
fn clock_of(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("Camera-Clock: ")?.parse().ok())
}

fn watch(viewing: &Viewing, listener: &TcpListener) -> Result<Viewed, LabError> {
    let failed = || LabError::io("the viewer's connections");
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed()(e.into()))?;
    let add = |stream: &dyn std::os::fd::AsFd, number: u64| {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&poller, stream.as_fd(), data, epoll::EventFlags::IN)
            .map_err(|error| failed()(error.into()))
    };
    listener.set_nonblocking(true).map_err(failed())?;
    add(listener, u64::MAX)?;
    let expected = u64::from(viewing.cameras) * u64::from(viewing.frames);
    let limit = u64::from(viewing.limit_ms) * 1_000_000;
    let mut seen: Vec<Seen> = Vec::new();
    let mut viewed = Viewed::default();
    let mut buffer = vec![0; CHUNK];
    let mut events = Vec::with_capacity(1024);
    let opened = now();
    // When the last frame of all is late; unknown until a camera has said when it began.
    let mut last = opened + CONNECTED;
    while viewed.frames < expected && !viewed.late && now() < last {
        events.clear();
        let pause = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        match epoll::wait(
            &poller,
            rustix::buffer::spare_capacity(&mut events),
            Some(&pause),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed()(error.into())),
        }
        for event in &events {
            let number = event.data.u64();
            if number == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).map_err(failed())?;
                    add(&stream, seen.len() as u64)?;
                    seen.push(Seen {
                        stream,
                        at: At::Head(Vec::new()),
                        began: 0,
                        frames: 0,
                    });
                }
                continue;
            }
            let Some(camera) = usize::try_from(number).ok().and_then(|n| seen.get_mut(n)) else {
                continue;
            };
            let count = match camera.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Ok(0) | Err(_) => {
                    // It would be ready for ever; what did not come counts as lost at the end.
                    let _ = epoll::delete(&poller, &camera.stream);
                    continue;
                }
                Ok(count) => count,
            };
            let clock = now();
            let bytes = buffer.get(..count).unwrap_or_default();
            let taken = camera.take(bytes, |began, frame| {
                let took = clock.saturating_sub(began + u64::from(frame) * PERIOD);
                viewed.frames += 1;
                viewed.worst_ms = viewed.worst_ms.max(milliseconds(took));
                viewed.late |= took > limit;
            });
            if taken.is_err() {
                return Err(LabError::Unexpected(
                    "a camera sent something else".to_owned(),
                ));
            }
            if camera.began != 0 {
                last = camera.began + u64::from(viewing.frames) * PERIOD + limit;
            }
        }
    }
    viewed.lost = expected - viewed.frames.min(expected);
    if viewed.late {
        // Not waited for.
        viewed.lost = 0;
    }
    Ok(viewed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::film::tests::packet;

    fn film() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let stream = [packet(0, true), packet(0, false), packet(0, true)].concat();
        std::fs::write(&path, stream).unwrap();
        (folder, path)
    }

    fn both(limit_ms: u32, frames: u32, expected: u32) -> (Filmed, Viewed) {
        let (_folder, film) = film();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let viewing = Viewing {
            address: listener.local_addr().unwrap(),
            cameras: 5,
            frames: expected,
            limit_ms,
        };
        let filming = Filming {
            viewer: viewing.address,
            film,
            cameras: 5,
            frames,
        };
        let viewer = std::thread::spawn(move || watch(&viewing, &listener).unwrap());
        let filmed = play(&filming).unwrap();
        (filmed, viewer.join().unwrap())
    }

    #[test]
    fn all_frames_of_all_cameras_come_when_they_are_due() {
        let (filmed, viewed) = both(5000, 10, 10);
        assert_eq!(
            (viewed.frames, viewed.late, viewed.lost),
            (50, false, 0),
            "{viewed:?}"
        );
        assert!(
            viewed.worst_ms > 0.0 && filmed.dropped == 0,
            "{viewed:?} {filmed:?}"
        );
    }

    #[test]
    fn frames_that_never_come_are_lost() {
        let (_, viewed) = both(300, 3, 5);
        assert_eq!((viewed.frames, viewed.lost, viewed.late), (15, 10, false));
    }

    #[test]
    fn a_frame_after_its_limit_is_late() {
        // None is over in no time at all.
        let (_, viewed) = both(0, 10, 10);
        assert!(viewed.late, "{viewed:?}");
    }

    #[test]
    fn a_stream_is_taken_apart_wherever_it_is_cut() {
        let text = b"POST / HTTP/1.1\r\nCamera-Clock: 77\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
        for cut in 0..text.len() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut seen = Seen {
                stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
                at: At::Head(Vec::new()),
                began: 0,
                frames: 0,
            };
            let mut found = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                assert!(
                    seen.take(part, |began, frame| found.push((began, frame)))
                        .is_ok()
                );
            }
            assert_eq!(found, [(77, 0), (77, 1)]);
            assert!(matches!(seen.at, At::End));
        }
    }

    #[test]
    fn what_no_camera_sends_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for text in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[b'x'; MAX_HEAD + 1],
            b"POST /\r\nCamera-Clock: 1\r\n\r\nz",
        ] {
            let mut seen = Seen {
                stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
                at: At::Head(Vec::new()),
                began: 0,
                frames: 0,
            };
            assert!(seen.take(text, |_, _| {}).is_err());
        }
    }
}
