// SPDX-License-Identifier: GPL-2.0
/*
 * The ring: one request at a time, completed by an interrupt, or by the watchdog if that is lost.
 *
 * The device is not trusted. It reads and writes nothing but pages of this driver, from which results are
 * copied after the completion was checked; a completion counts only with the number of its request, a
 * known outcome and exactly the expected length. What a working device never does gives it up for good:
 * it is reset, its pages are not used again, and software does everything.
 */
#include <linux/crc-itu-t.h>
#include <linux/crc32.h>
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/random.h>

#include "crypto.h"

#define RING 2

static unsigned int deadline_ms = 2000;
module_param(deadline_ms, uint, 0444);
MODULE_PARM_DESC(deadline_ms, "A request that takes longer makes the driver give the device up");

static unsigned int watchdog_ms = 50;
module_param(watchdog_ms, uint, 0444);
MODULE_PARM_DESC(watchdog_ms, "Without an interrupt for so long, the driver looks by itself");

static u32 get(struct cordon_device *device, u32 offset)
{
	return cordon_window_read(&device->window, offset);
}

static void put(struct cordon_device *device, u32 offset, u32 value)
{
	cordon_window_write(&device->window, offset, value);
}

/* Copies between bytes and pages, from an offset in the latter on. */
void cordon_pages_write(struct cordon_page *pages, u32 offset, const void *bytes, u32 length)
{
	while (length) {
		u32 in_page = offset % PAGE_SIZE;
		u32 part = min_t(u32, length, PAGE_SIZE - in_page);

		memcpy(pages[offset / PAGE_SIZE].bytes + in_page, bytes, part);
		bytes += part;
		offset += part;
		length -= part;
	}
}

void cordon_pages_read(struct cordon_page *pages, u32 offset, void *bytes, u32 length)
{
	while (length) {
		u32 in_page = offset % PAGE_SIZE;
		u32 part = min_t(u32, length, PAGE_SIZE - in_page);

		memcpy(bytes, pages[offset / PAGE_SIZE].bytes + in_page, part);
		bytes += part;
		offset += part;
		length -= part;
	}
}

void cordon_pages_wipe(struct cordon_page *pages, u32 length)
{
	u32 page;

	for (page = 0; page < DIV_ROUND_UP(length, PAGE_SIZE); page++)
		if (pages[page].bytes)
			memzero_explicit(pages[page].bytes, min_t(u32, PAGE_SIZE, length - page * PAGE_SIZE));
}

/* Lists pages as a segment list; its device address, zero for nothing. */
static u64 list(struct cordon_device *device, int which, struct cordon_page *pages, u32 length)
{
	u32 at = which * CORDON_ACCEL_SEGMENTS_MAX;
	struct cordon_accel_segment *entry = &device->lists[at];
	u32 page;

	if (!length)
		return 0;
	for (page = 0; page * PAGE_SIZE < length; page++, entry++) {
		u32 left = length - page * PAGE_SIZE;

		entry->address = pages[page].address;
		entry->length = min_t(u32, left, PAGE_SIZE);
		entry->flags = left <= PAGE_SIZE ? CORDON_ACCEL_SEGMENT_LAST : 0;
		entry->check = crc_itu_t(0xffff, (u8 *)entry, offsetof(struct cordon_accel_segment, check));
	}
	return device->lists_address + at * sizeof(*entry);
}

/* Gives the device up; whoever has a job there calls it back afterwards. */
static void fail(struct cordon_device *device, const char *reason)
{
	if (device->failure)
		return;
	device->failure = reason;
	dev_notice(&device->pci->dev, "given up: %s; software does everything\n", reason);
	put(device, CORDON_ACCEL_CONTROL, CORDON_ACCEL_CONTROL_RESET);
}

/* The same, for those who find out later that a result was wrong. */
void cordon_ring_give_up(struct cordon_device *device, const char *reason)
{
	mutex_lock(&device->lock);
	fail(device, reason);
	mutex_unlock(&device->lock);
}

/* The outcome of the request under way: 0, -EINPROGRESS, or -EIO. */
static int outcome(struct cordon_device *device)
{
	struct cordon_accel_descriptor *descriptor = &device->ring[device->sequence % RING];
	/* One load, as the device stores both in one. */
	u64 both = smp_load_acquire((u64 *)&descriptor->status);
	u32 status = lower_32_bits(both);

	if (status & CORDON_ACCEL_OWNED)
		return -EINPROGRESS;
	if (upper_32_bits(both) != device->sequence) {
		fail(device, "a completion is that of another request");
	} else if (status == CORDON_ACCEL_STATUS_OK) {
		if (READ_ONCE(descriptor->produced) == device->job->destination_length)
			return 0;
		fail(device, "a completion has another length");
	} else if (status == CORDON_ACCEL_STATUS_CORE_ALARM) {
		dev_notice_ratelimited(&device->pci->dev, "the core detected an error of its own\n");
	} else {
		/* All that this driver asks for, the device does. */
		fail(device, "a completion has an outcome that it must not have");
	}
	return -EIO;
}

/* Looks for the completion; the job if it has ended. Called with the lock. */
static struct cordon_job *look(struct cordon_device *device, int *error)
{
	struct cordon_job *job = device->job;

	if (!job)
		return NULL;
	*error = device->failure ? -EIO : outcome(device);
	if (*error == -EINPROGRESS) {
		if (!time_after(jiffies, device->submitted + msecs_to_jiffies(deadline_ms)))
			return NULL;
		fail(device, "a request was not completed in time");
		*error = -EIO;
	}
	device->job = NULL;
	device->sequence++;
	device->counts.requests++;
	return job;
}

/* Counts; the threaded half reads the cause, for which it may have to sleep. */
irqreturn_t cordon_ring_interrupt(int irq, void *data)
{
	struct cordon_device *device = data;

	atomic64_inc(&device->interrupts);
	return IRQ_WAKE_THREAD;
}

irqreturn_t cordon_ring_handle(int irq, void *data)
{
	struct cordon_device *device = data;
	struct cordon_job *job;
	u32 causes;
	int error = 0;

	mutex_lock(&device->lock);
	causes = get(device, CORDON_ACCEL_INTERRUPT_STATUS);
	if (!device->failure && causes == U32_MAX)
		fail(device, "no device answers");
	else if (!device->failure && causes & CORDON_ACCEL_INTERRUPT_STATUS_HALT)
		fail(device, "it has halted");
	put(device, CORDON_ACCEL_INTERRUPT_STATUS, causes);
	/* Waits until the cause is cleared: a completion after the look interrupts again. */
	get(device, CORDON_ACCEL_STATE);
	job = look(device, &error);
	if (!job)
		device->counts.spurious++;
	mutex_unlock(&device->lock);
	if (job)
		job->done(device, job, error);
	return IRQ_HANDLED;
}

static void watch(struct work_struct *work)
{
	struct cordon_device *device = container_of(work, struct cordon_device, watchdog.work);
	struct cordon_job *job;
	int error = 0;

	mutex_lock(&device->lock);
	job = look(device, &error);
	if (job) {
		device->counts.missed++;
		/* The device sends no second message for a cause that is not cleared: one lost, all lost. */
		put(device, CORDON_ACCEL_INTERRUPT_STATUS, CORDON_ACCEL_INTERRUPT_STATUS_COMPLETION);
	} else if (device->job) {
		schedule_delayed_work(&device->watchdog, msecs_to_jiffies(watchdog_ms));
	}
	mutex_unlock(&device->lock);
	if (job)
		job->done(device, job, error);
}

/* Hands a job, whose source is in its pages, to the device. */
void cordon_ring_submit(struct cordon_device *device, struct cordon_job *job)
{
	struct cordon_accel_descriptor *descriptor;

	mutex_lock(&device->lock);
	if (device->failure) {
		mutex_unlock(&device->lock);
		job->done(device, job, -EIO);
		return;
	}
	descriptor = &device->ring[device->sequence % RING];
	memset(descriptor, 0, sizeof(*descriptor));
	descriptor->operation = job->operation;
	descriptor->algorithm = job->algorithm;
	descriptor->mode = job->mode;
	descriptor->slot = job->slot;
	descriptor->sequence = device->sequence;
	descriptor->source = list(device, 0, device->source, job->source_length);
	descriptor->destination = list(device, 1, device->destination, job->destination_length);
	descriptor->source_length = job->source_length;
	descriptor->aad_length = job->aad_length;
	descriptor->destination_length = job->destination_length;
	descriptor->iv_length = job->iv_length;
	descriptor->tag_length = job->tag_length;
	memcpy(descriptor->iv, job->iv, job->iv_length);
	descriptor->check = ~crc32_le(~0, (u8 *)descriptor, offsetof(struct cordon_accel_descriptor, check));
	smp_store_release(&descriptor->status, CORDON_ACCEL_OWNED);

	device->job = job;
	device->submitted = jiffies;
	device->posted++;
	put(device, CORDON_ACCEL_PRODUCER, device->posted);
	mod_delayed_work(system_wq, &device->watchdog, msecs_to_jiffies(watchdog_ms));
	mutex_unlock(&device->lock);
}

/* A job whose end a thread waits for. */
struct waiting_job {
	struct cordon_job job;
	struct completion end;
	int error;
};

static void wake(struct cordon_device *device, struct cordon_job *job, int error)
{
	struct waiting_job *waiting = container_of(job, struct waiting_job, job);

	waiting->error = error;
	complete(&waiting->end);
}

/* The watchdog ends every job by its deadline, and this wait with it. */
static int submit_and_wait(struct cordon_device *device, struct waiting_job *waiting)
{
	init_completion(&waiting->end);
	waiting->job.done = wake;
	cordon_ring_submit(device, &waiting->job);
	wait_for_completion(&waiting->end);
	return waiting->error;
}

/* Overwrites keys that nobody has any more. */
static int zeroise_stale(struct cordon_device *device)
{
	int slot, error = 0;

	for (slot = 0; slot < CORDON_ACCEL_KEY_SLOTS && !error; slot++) {
		struct waiting_job waiting = {
			.job = { .operation = CORDON_ACCEL_OPERATION_ZEROISE_KEY, .slot = slot },
		};
		bool stale;

		mutex_lock(&device->lock);
		stale = device->slots[slot].stale;
		device->slots[slot].stale = false;
		mutex_unlock(&device->lock);
		if (stale)
			error = submit_and_wait(device, &waiting);
	}
	return error;
}

/* The slot that holds a key, which is loaded if none does; -EIO if the device failed. Only the engine calls it. */
int cordon_ring_load_key(struct cordon_device *device, const struct cordon_tfm *tfm, u8 algorithm)
{
	struct waiting_job waiting = {
		.job = {
			.operation = CORDON_ACCEL_OPERATION_LOAD_KEY,
			.algorithm = algorithm,
			.source_length = tfm->key_length,
		},
	};
	int slot, oldest = 0, error;

	error = zeroise_stale(device);
	if (error)
		return error;
	mutex_lock(&device->lock);
	/* No key is put where a device that was given up can still read it. */
	if (device->failure) {
		mutex_unlock(&device->lock);
		return -EIO;
	}
	for (slot = 0; slot < CORDON_ACCEL_KEY_SLOTS; slot++) {
		if (device->slots[slot].key == tfm->id) {
			device->slots[slot].used = ++device->uses;
			mutex_unlock(&device->lock);
			return slot;
		}
		if (device->slots[slot].used < device->slots[oldest].used)
			oldest = slot;
	}
	/* Until the device has the key, the slot holds nobody's. */
	memset(&device->slots[oldest], 0, sizeof(device->slots[oldest]));
	mutex_unlock(&device->lock);

	cordon_pages_write(device->source, 0, tfm->key, tfm->key_length);
	waiting.job.slot = oldest;
	error = submit_and_wait(device, &waiting);
	cordon_pages_wipe(device->source, tfm->key_length);
	if (error)
		return error;
	mutex_lock(&device->lock);
	device->slots[oldest].key = tfm->id;
	device->slots[oldest].used = ++device->uses;
	device->counts.key_loads++;
	mutex_unlock(&device->lock);
	return oldest;
}

/* Has a key overwritten before the next request: whoever ends a transform must not wait for the device. */
void cordon_ring_forget_key(struct cordon_device *device, u64 key)
{
	struct cordon_key_slot stale = { .stale = true };
	int slot;

	mutex_lock(&device->lock);
	for (slot = 0; slot < CORDON_ACCEL_KEY_SLOTS; slot++)
		if (device->slots[slot].key == key)
			device->slots[slot] = stale;
	mutex_unlock(&device->lock);
}

/* Gives the pages back that no device writes to any more. */
static void release(struct cordon_device *device)
{
	struct device *dev = &device->pci->dev;
	int page;

	if (device->ring)
		dma_free_coherent(dev, PAGE_SIZE, device->ring, device->ring_address);
	if (device->lists)
		dma_free_coherent(dev, PAGE_SIZE, device->lists, device->lists_address);
	for (page = 0; page < 2 * CORDON_PAGES; page++) {
		struct cordon_page *each = &device->source[page];

		if (page >= CORDON_PAGES)
			each = &device->destination[page - CORDON_PAGES];
		if (each->bytes)
			dma_free_coherent(dev, PAGE_SIZE, each->bytes, each->address);
	}
}

/* Pages of their own: a device behind an IOMMU reaches nothing else. */
static int allocate(struct cordon_device *device)
{
	struct device *dev = &device->pci->dev;
	int page;

	device->ring = dma_alloc_coherent(dev, PAGE_SIZE, &device->ring_address, GFP_KERNEL);
	device->lists = dma_alloc_coherent(dev, PAGE_SIZE, &device->lists_address, GFP_KERNEL);
	if (!device->ring || !device->lists)
		return -ENOMEM;
	for (page = 0; page < CORDON_PAGES; page++) {
		struct cordon_page *source = &device->source[page];
		struct cordon_page *destination = &device->destination[page];

		source->bytes = dma_alloc_coherent(dev, PAGE_SIZE, &source->address, GFP_KERNEL);
		destination->bytes = dma_alloc_coherent(dev, PAGE_SIZE, &destination->address, GFP_KERNEL);
		if (!source->bytes || !destination->bytes)
			return -ENOMEM;
	}
	return 0;
}

static int enable(struct cordon_device *device)
{
	put(device, CORDON_ACCEL_CONTROL, CORDON_ACCEL_CONTROL_RESET);
	put(device, CORDON_ACCEL_RING_LOW, lower_32_bits(device->ring_address));
	put(device, CORDON_ACCEL_RING_HIGH, upper_32_bits(device->ring_address));
	put(device, CORDON_ACCEL_RING_SIZE, RING);
	put(device, CORDON_ACCEL_CONTROL, CORDON_ACCEL_CONTROL_ENABLE);
	if (get(device, CORDON_ACCEL_STATE) != CORDON_ACCEL_STATE_ENABLED)
		return -ENODEV;
	put(device, CORDON_ACCEL_INTERRUPT_ENABLE,
	    CORDON_ACCEL_INTERRUPT_ENABLE_COMPLETION | CORDON_ACCEL_INTERRUPT_ENABLE_HALT);
	return 0;
}

/* Resets the device and enables its ring. */
int cordon_ring_start(struct cordon_device *device)
{
	int error;

	/* Another number at each start: completions of an earlier use of the same memory do not count. */
	device->sequence = get_random_u32() & ~(RING - 1);
	INIT_DELAYED_WORK(&device->watchdog, watch);
	error = allocate(device) ?: enable(device);
	if (error)
		cordon_ring_stop(device);
	return error;
}

/* Has the device forget ring and keys. No job is under way any more. */
void cordon_ring_stop(struct cordon_device *device)
{
	cancel_delayed_work_sync(&device->watchdog);
	/* Another chance for a device that was slow: it decides about the memory. */
	device->window.absent = false;
	put(device, CORDON_ACCEL_CONTROL, CORDON_ACCEL_CONTROL_RESET);
	if (get(device, CORDON_ACCEL_STATE) == U32_MAX) {
		/* It may go on some day, and write where it was told to. */
		dev_notice(&device->pci->dev, "did not take its reset: its memory is not given back\n");
		return;
	}
	cordon_pages_wipe(device->source, CORDON_PAGES * PAGE_SIZE);
	cordon_pages_wipe(device->destination, CORDON_PAGES * PAGE_SIZE);
	release(device);
}
