//! Films as cameras send them: MPEG transport streams made by a real encoder, cut into frames.
//!
//! ISO/IEC 13818-1, sections 2.4.3.2 and 2.4.3.6: packets of 188 bytes; a frame of video is one packetised
//! elementary stream packet, which begins where a packet of the video's PID says so.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LabError;
use crate::process::Call;
use crate::program::Program;

pub(crate) const FFMPEG: Program = Program {
    name: "ffmpeg",
    package: "ffmpeg",
    version: &["-version"],
};
/// Frames of a second.
pub(crate) const FRAMES_PER_SECOND: u32 = 25;
/// Bytes of a packet, and the first of them.
const PACKET: usize = 188;
const SYNC: u8 = 0x47;
/// Encoding takes longer than the film on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A film on disk.
#[derive(Clone)]
pub(crate) struct Film {
    pub(crate) path: PathBuf,
    /// Measured rate in Mbit/s, transport stream included.
    pub(crate) rate: f64,
}

impl Film {
    /// Encodes H.264 of about `megabits` per second, a key frame every second: a moving test picture with
    /// noise, because the encoder makes next to nothing of a still one.
    pub(crate) fn encode(folder: &Path, megabits: u32, seconds: u32) -> Result<Self, LabError> {
        let path = folder.join(format!("film-{megabits}.ts"));
        let rate = format!("{megabits}M");
        let source =
            format!("testsrc2=size=1280x720:rate={FRAMES_PER_SECOND},noise=alls=20:allf=t");
        let program = FFMPEG.path().unwrap_or_else(|| FFMPEG.name.into());
        Call::new(program)
            .args([
                "-hide_banner",
                "-loglevel",
                "error",
                "-nostdin",
                "-f",
                "lavfi",
            ])
            .args(["-i", &source, "-t", &seconds.to_string()])
            .args([
                "-c:v",
                "libx264",
                "-preset",
                "ultrafast",
                "-tune",
                "zerolatency",
            ])
            .args(["-pix_fmt", "yuv420p", "-g", &FRAMES_PER_SECOND.to_string()])
            .args(["-b:v", &rate, "-maxrate", &rate, "-bufsize", &rate])
            .args(["-f", "mpegts"])
            .arg(&path)
            .limit(LIMIT)
            .run()?;
        let bytes = std::fs::read(&path).map_err(LabError::io("the film"))?;
        let count = frames(&bytes)?.len();
        let expected = (seconds * FRAMES_PER_SECOND) as usize;
        if count != expected {
            let text = format!("ffmpeg made {count} frames instead of {expected}");
            return Err(LabError::Unexpected(text));
        }
        let rate = bytes.len() as f64 * 8.0 / f64::from(seconds) / 1e6;
        Ok(Self { path, rate })
    }
}

/// Finds the frames of a transport stream with one video; bytes before the first belong to it.
pub(crate) fn frames(bytes: &[u8]) -> Result<Vec<Range<usize>>, LabError> {
    let unclear = |why: &str| LabError::Unexpected(format!("not a transport stream: {why}"));
    let mut video = None;
    let mut starts = Vec::new();
    for (number, packet) in bytes.chunks(PACKET).enumerate() {
        let &[SYNC, high, low, control, ..] = packet else {
            return Err(unclear("a packet does not begin as it should"));
        };
        let identifier = (u16::from(high & 0x1F) << 8) | u16::from(low);
        let begins = high & 0x40 != 0;
        if !begins || !carries_video(packet, control) || video.is_some_and(|v| v != identifier) {
            continue;
        }
        video = Some(identifier);
        starts.push(number * PACKET);
    }
    if let Some(first) = starts.first_mut() {
        *first = 0;
    }
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let found: Vec<_> = starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(a, b)| a..b)
        .collect();
    if found.is_empty() {
        return Err(unclear("no video"));
    }
    Ok(found)
}

/// Whether a packet's payload begins with a packet of a video (stream numbers E0 to EF).
fn carries_video(packet: &[u8], control: u8) -> bool {
    let adaptation = match control & 0x20 {
        0 => 0,
        _ => 1 + packet.get(4).map_or(0, |length| usize::from(*length)),
    };
    let payload = packet.get(4 + adaptation..).unwrap_or_default();
    matches!(payload, [0, 0, 1, 0xE0..=0xEF, ..])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet of a stream; one that begins a frame of video says so.
    pub(crate) fn packet(identifier: u8, begins: bool) -> Vec<u8> {
        let mut packet = vec![0xFF; PACKET];
        let high = if begins { 0x41 } else { 0x01 };
        packet[..4].copy_from_slice(&[SYNC, high, identifier, 0x30]);
        // Seven bytes of adaptation field.
        packet[4] = 7;
        if begins {
            packet[12..16].copy_from_slice(&[0, 0, 1, 0xE0]);
        }
        packet
    }

    #[test]
    fn frames_are_cut_where_the_video_says() {
        // A table first, then frames of three, one and two packets, with sound between.
        let mut sound = packet(1, true);
        sound[15] = 0xC0;
        let stream = [
            packet(7, false),
            packet(0, true),
            packet(0, false),
            packet(0, false),
            packet(0, true),
            sound,
            packet(0, true),
            packet(0, false),
        ]
        .concat();
        let found = frames(&stream).unwrap();
        let packets: Vec<_> = found
            .iter()
            .map(|r| (r.start / PACKET, r.end / PACKET))
            .collect();
        assert_eq!(packets, [(0, 4), (4, 6), (6, 8)]);
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        assert!(frames(&[]).is_err());
        assert!(frames(&[0; PACKET]).is_err());
        assert!(frames(&packet(0, false)).is_err());
        // Cut off within a packet's head.
        let stream = [packet(0, true), vec![SYNC, 0]].concat();
        assert!(frames(&stream).is_err());
    }
}
