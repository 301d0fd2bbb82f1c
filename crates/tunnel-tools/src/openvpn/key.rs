//! `cordon vpn openvpn-verify-key`: OpenVPN's hook for devices' keys of the control channel (`tls-crypt-v2-verify`).
//!
//! It is called before OpenVPN reads anything else of a device. The key says whose it is, so a key that a revoked or stolen device
//! still has opens not even TLS to it.

use std::path::{Path, PathBuf};

use clap::Args;
use client_profiles::openvpn::control_key;
use commandline::{Failure, Outcome};
use keyhost::secret_file;

/// Bytes of a key's metadata at most (from the format, with room).
const MAX_METADATA: u64 = 4096;
/// Bytes of the file with names at most: a quarter of a million devices.
const MAX_NAMES: u64 = 16 << 20;

/// What OpenVPN calls the hook with.
#[derive(Debug, Args)]
pub struct VerifyKey {
    /// Names of devices that are refused, one a line.
    #[arg(long, value_name = "FILE")]
    refused: PathBuf,
    /// The key's metadata, where OpenVPN has put them.
    #[arg(long, env = "metadata_file", value_name = "FILE")]
    metadata: PathBuf,
    /// Their type; 0 is ours.
    #[arg(long, env = "metadata_type", value_name = "NUMBER")]
    metadata_type: String,
}

pub(crate) fn run(args: &VerifyKey) -> Outcome {
    let read = |file: &Path, most| {
        secret_file::read_public(file, most).map_err(|what| {
            let hint = "no device connects without this file: `cordon vpn openvpn-guard` writes it";
            Failure::new(anyhow::anyhow!(what), hint)
        })
    };
    let metadata = read(&args.metadata, MAX_METADATA)?;
    let Some(device) = control_key::device_of(&args.metadata_type, &metadata) else {
        return Err(Failure::new(
            anyhow::anyhow!("the key names no device"),
            "make the device's profile with `cordon vpn openvpn-profile`",
        ));
    };
    let refused = read(&args.refused, MAX_NAMES)?;
    match refused
        .split(|byte| *byte == b'\n')
        .any(|name| name == device.as_bytes())
    {
        false => Ok(()),
        true => Err(Failure::new(
            anyhow::anyhow!("the key is that of {device}, which is refused"),
            "`cordon registry list` shows its state",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_refused_device_and_key_of_nobody_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("refused"), "camera-1\ncamera-22\n").unwrap();
        let verify = |metadata: &[u8], kind: &str, refused: &str| {
            std::fs::write(at("metadata"), metadata).unwrap();
            let args = VerifyKey {
                refused: at(refused),
                metadata: at("metadata"),
                metadata_type: kind.to_owned(),
            };
            run(&args).map_err(|failure| failure.message())
        };
        for good in ["camera-2", "camera-11", "camera-222"] {
            let metadata = format!("device={good}");
            assert_eq!(verify(metadata.as_bytes(), "0", "refused"), Ok(()));
        }
        let refused = verify(b"device=camera-22", "0", "refused").unwrap_err();
        assert!(refused.contains("camera-22, which is refused"), "{refused}");
        for (metadata, kind) in [
            (&b"device=camera-2"[..], "1"),
            (b"12345678", "0"),
            (b"", "0"),
        ] {
            let refused = verify(metadata, kind, "refused").unwrap_err();
            assert!(refused.contains("names no device"), "{refused}");
        }
        assert!(verify(b"device=camera-2", "0", "missing").is_err());
    }
}
