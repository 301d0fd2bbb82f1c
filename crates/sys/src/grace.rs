//! Waiting for what the kernel has under way.
#![expect(unsafe_code, reason = "membarrier")]

use std::time::Duration;

/// Longer than a processor stays in one packet's way, where the kernel cannot say it.
const LONG_ENOUGH: Duration = Duration::from_millis(50);

/// Waits until every packet that the kernel had begun to filter has left its filters: until a grace period of RCU has
/// passed, which is how Linux carries `MEMBARRIER_CMD_GLOBAL` out (kernel/sched/membarrier.c).
pub fn wait_for_packets_under_way() {
    let command = libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL);
    let (flags, processor): (libc::c_long, libc::c_long) = (0, 0);
    // SAFETY: the call takes three numbers and touches no memory of this process.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, processor) };
    if done != 0 {
        std::thread::sleep(LONG_ENOUGH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends() {
        let began = std::time::Instant::now();
        for _ in 0..3 {
            wait_for_packets_under_way();
        }
        assert!(began.elapsed() < Duration::from_secs(3));
    }
}
