//! Tar archives of files that are carried to another host.

/// Bytes of a block of a tar archive (POSIX.1-2001, pax, "ustar Interchange Format").
const BLOCK: usize = 512;

/// Makes a tar archive (ustar) of a folder with files that only their owner may read. Nothing in it depends on time or user.
pub(super) fn archive(folder: &str, files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = header(&format!("{folder}/"), 0, b'5', 0o700);
    for (name, bytes) in files {
        archive.extend(header(
            &format!("{folder}/{name}"),
            bytes.len(),
            b'0',
            0o600,
        ));
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks are the end.
    archive.resize(archive.len().saturating_add(2 * BLOCK), 0);
    archive
}

/// Makes a block that describes a file: numbers are octal text, and the checksum is over itself as spaces.
fn header(name: &str, len: usize, kind: u8, mode: u32) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK);
    let mut field = |bytes: &[u8], width: usize| {
        block.extend(bytes.iter().take(width));
        let rest = width.saturating_sub(bytes.len());
        block.resize(block.len().saturating_add(rest), 0);
    };
    field(name.as_bytes(), 100);
    field(format!("{mode:07o}").as_bytes(), 8);
    field(b"0000000", 8);
    field(b"0000000", 8);
    field(format!("{len:011o}").as_bytes(), 12);
    field(b"00000000000", 12);
    field(b"        ", 8);
    field(&[kind], 1);
    field(b"", 100);
    field(b"ustar\x0000", 8);
    block.resize(BLOCK, 0);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    block.splice(148..156, text.bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &std::path::Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn archive_is_read_by_tar() {
        let folder = tempfile::tempdir().unwrap();
        let big = vec![7; 1000];
        let archive = archive(
            "there",
            &[("vpn.toml", b"text".to_vec()), ("secret", big.clone())],
        );
        assert_eq!(archive.len() % BLOCK, 0);
        let file = folder.path().join("there.tar");
        std::fs::write(&file, archive).unwrap();
        let done = std::process::Command::new("tar")
            .arg("-xf")
            .arg(&file)
            .arg("-C")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        let inside = folder.path().join("there");
        assert_eq!(std::fs::read(inside.join("vpn.toml")).unwrap(), b"text");
        assert_eq!(std::fs::read(inside.join("secret")).unwrap(), big);
        assert_eq!(
            (mode(&inside), mode(&inside.join("secret"))),
            (0o700, 0o600)
        );
    }
}
