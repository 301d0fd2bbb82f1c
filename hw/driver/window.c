// SPDX-License-Identifier: GPL-2.0
/*
 * The driver's end of a register window: writes are posted into a queue, reads wait until all of them
 * were taken. All functions may sleep.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "driver.h"

/* Offset of the doorbell of QEMU's shared memory device, and the number of the device in it. */
#define DOORBELL 12
#define PEER 0

/* A device takes a write between two requests, of 64 KiB at most. */
#define PATIENCE (2 * HZ)

static u32 *word(struct cordon_window *window, u32 offset)
{
	return (u32 *)(window->page + offset);
}

/* Waits until at most so many writes are not taken; false if no device takes them. */
static bool settle(struct cordon_window *window, u32 most)
{
	unsigned long end = jiffies + PATIENCE;
	int turn;

	for (turn = 0; !window->absent; turn++) {
		u32 taken = smp_load_acquire(word(window, CORDON_ACCEL_WINDOW_TAKEN));

		if (window->posted - taken <= most)
			return true;
		if (time_after(jiffies, end))
			window->absent = true;
		else if (turn < 100)
			cpu_relax();
		else
			usleep_range(20, 60);
	}
	return false;
}

/* Writes a register; false if no device answers. */
bool cordon_window_write(struct cordon_window *window, u32 offset, u32 value)
{
	u32 *entry;

	if (!settle(window, CORDON_ACCEL_WINDOW_QUEUE_LENGTH - 1))
		return false;
	entry = word(window, CORDON_ACCEL_WINDOW_QUEUE +
		     8 * (window->posted % CORDON_ACCEL_WINDOW_QUEUE_LENGTH));
	WRITE_ONCE(entry[0], offset);
	WRITE_ONCE(entry[1], value);
	window->posted++;
	/* Behind the entry, and behind all that was written to memory for the device before. */
	smp_store_release(word(window, CORDON_ACCEL_WINDOW_POSTED), window->posted);
	/* Has a barrier of its own before it. */
	writel(PEER << 16, window->doorbell + DOORBELL);
	return true;
}

/* Reads a register as it is after all writes before; all ones if no device answers. */
u32 cordon_window_read(struct cordon_window *window, u32 offset)
{
	if (!settle(window, 0))
		return U32_MAX;
	return smp_load_acquire(word(window, CORDON_ACCEL_WINDOW_MIRROR + offset));
}

/* Goes on where the driver before ended; -ENODEV if the page is no window of a device that this driver knows. */
int cordon_window_open(struct cordon_window *window, void *page, void __iomem *doorbell)
{
	window->page = page;
	window->doorbell = doorbell;
	window->absent = false;
	window->posted = READ_ONCE(*word(window, CORDON_ACCEL_WINDOW_POSTED));
	if (cordon_window_read(window, CORDON_ACCEL_ID) != CORDON_ACCEL_ID_VALUE ||
	    cordon_window_read(window, CORDON_ACCEL_VERSION) != CORDON_ACCEL_VERSION_VALUE)
		return -ENODEV;
	return 0;
}
