//! Memory that a long-running program does not need any more.
#![expect(unsafe_code, reason = "madvise, malloc_trim")]

use std::ffi::c_void;
use std::io;

use rustix::mm::{Advice, madvise};

/// Gives back the pages of this program's code; those that are still needed come back from the file at
/// their next use. What only setting up needed stays away, which is most of a large program. Returns
/// how many bytes of mappings it concerned.
///
/// # Errors
/// Those of reading `/proc/self/maps` and of `madvise`.
pub fn release_code() -> io::Result<usize> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let mut released = 0;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((start, len)) = code_mapping(line, &program.to_string_lossy()) else {
            continue;
        };
        let start = std::ptr::without_provenance_mut::<c_void>(start);
        // SAFETY: the range is a private mapping of the program's file that can be read and executed but
        // not written, so every page of it equals the file's. The kernel takes the pages away, and
        // reads them from the file again when they are touched: nothing observable changes.
        unsafe { madvise(start, len, Advice::LinuxDontNeed) }?;
        released += len;
    }
    Ok(released)
}

/// Gives back what was freed and the allocator keeps, which after an answer about thousands of tunnels is more than the tunnels
/// take. Does nothing where the C library is not glibc.
pub fn release_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call reads and writes the allocator's own state, under its locks, and gives back pages that nobody has.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Start and length of a line of `/proc/self/maps`, if it is executable code of `program` that cannot
/// be written. Read-only data is left alone: relocated data is among it, which differs from the file.
fn code_mapping(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if words.next()? != "r-xp" || !line.ends_with(&format!(" {program}")) {
        return None;
    }
    let address = |text| usize::from_str_radix(text, 16).ok();
    let start = address(start)?;
    Some((start, address(end)?.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_code_of_the_program_is_meant() {
        let of = |line| code_mapping(line, "/usr/bin/cordon");
        let code = "5592bfa7f000-5592bfa81000 r-xp 00021000 fe:00 1057 /usr/bin/cordon";
        assert_eq!(of(code), Some((0x5592_bfa7_f000, 0x2000)));
        for other in [
            "5592bfa7f000-5592bfa81000 r--p 00021000 fe:00 1057 /usr/bin/cordon",
            "5592bfa7f000-5592bfa81000 rwxp 00021000 fe:00 1057 /usr/bin/cordon",
            "5592bfa7f000-5592bfa81000 r-xp 00021000 fe:00 1057 /usr/bin/cordon2",
            "5592bfa7f000-5592bfa81000 r-xp 00000000 00:00 0 [vdso]",
            "5592bfa81000-5592bfa7f000 r-xp 00021000 fe:00 1057 /usr/bin/cordon",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    /// KiB of a process's code that are mapped to memory.
    fn resident(process: u32) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
        let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap();
        let mut ours = false;
        let mut kib = 0;
        for line in text.lines() {
            if line.contains('-') && line.contains(" r") {
                ours = code_mapping(line, &program.to_string_lossy()).is_some();
            } else if ours && let Some(rss) = line.strip_prefix("Rss:") {
                kib += rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            }
        }
        kib
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_was_freed_between_what_is_kept_goes_back() {
        let own = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib: usize = line
                .unwrap()
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .unwrap();
            kib
        };
        let mut pieces: Vec<_> = (0..64_000).map(|_| Some(vec![1_u8; 1000])).collect();
        for (number, piece) in pieces.iter_mut().enumerate() {
            if number % 1000 != 999 {
                *piece = None;
            }
        }
        let before = own();
        release_heap();
        let after = own();
        assert!(
            after + 32_000 < before,
            "{before} KiB before, {after} KiB after"
        );
        assert_eq!(pieces.iter().flatten().count(), 64);
    }

    /// Set for the process that gives its pages back.
    const RELEASES: &str = "SYS_TEST_RELEASES";

    /// Reads one line, as slowly as it comes.
    fn wait_for_line(mut input: impl Read) {
        let mut octet = [0];
        while input.read(&mut octet).unwrap() == 1 && octet != *b"\n" {}
    }

    /// Brings all code of this program into its memory. How much of it a fresh process has depends on
    /// what was in the page cache when it started: pages that are there are mapped with their neighbours.
    fn touch_code() {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
        for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
            if let Some((start, len)) = code_mapping(line, &program.to_string_lossy()) {
                memory.seek(SeekFrom::Start(start as u64)).unwrap();
                memory.read_exact(&mut vec![0; len]).unwrap();
            }
        }
    }

    /// Another process is looked at, which does nothing meanwhile: in this one the other tests' threads
    /// bring pages back at once.
    #[test]
    fn the_program_goes_on_without_the_pages() {
        if std::env::var_os(RELEASES).is_some() {
            touch_code();
            io::stderr().write_all(b"before\n").unwrap();
            wait_for_line(io::stdin());
            assert!(release_code().unwrap() > 0);
            io::stderr().write_all(b"after\n").unwrap();
            wait_for_line(io::stdin());
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("memory::tests::the_program_goes_on_without_the_pages")
            .env(RELEASES, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut said) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
        wait_for_line(&mut said);
        let before = resident(child.id());
        input.write_all(b"\n").unwrap();
        wait_for_line(&mut said);
        let after = resident(child.id());
        input.write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert!(after < before, "{before} KiB before, {after} KiB after");
    }
}
