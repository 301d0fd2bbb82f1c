/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Driver of Cordon's accelerator: what its files share.
 */
#ifndef CORDON_ACCEL_DRIVER_H
#define CORDON_ACCEL_DRIVER_H

#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include <cordon_accel.h>

/* Most bytes of data, and of associated data, that go to the device; more is for software. */
#define CORDON_DATA_MAX 65536
#define CORDON_AAD_MAX 512
#define CORDON_TAG 16
#define CORDON_PAGES DIV_ROUND_UP(CORDON_DATA_MAX + CORDON_AAD_MAX + CORDON_TAG, PAGE_SIZE)

static_assert(CORDON_PAGES <= CORDON_ACCEL_SEGMENTS_MAX);
static_assert(sizeof(struct cordon_accel_descriptor) == 128);
static_assert(sizeof(struct cordon_accel_segment) == 16);

/* Registers of a device behind a page of shared memory. */
struct cordon_window {
	u8 *page;
	void __iomem *doorbell;
	u32 posted;
	bool absent;
};

/* A page that the device may read and write for as long as the driver is bound. */
struct cordon_page {
	void *bytes;
	dma_addr_t address;
};

struct cordon_device;
struct cordon_tfm;

/* One request for the device. */
struct cordon_job {
	u8 operation, algorithm, mode, slot;
	u8 iv_length, tag_length;
	u32 source_length, aad_length, destination_length;
	u8 iv[16];
	/* Called once, from a context that may sleep; 0, or -EIO if software has to do it. */
	void (*done)(struct cordon_device *device, struct cordon_job *job, int error);
};

/* Counts, for comparison with the device's. */
struct cordon_counts {
	u64 requests;
	/* Completions that were found without an interrupt. */
	u64 missed;
	/* Interrupts that found nothing. */
	u64 spurious;
	u64 key_loads;
};

struct cordon_key_slot {
	/* Number of the key, 0 for none, and when it was used last. */
	u64 key;
	u64 used;
	/* The device has a key there that is nobody's any more. */
	bool stale;
};

struct cordon_device {
	struct pci_dev *pci;
	struct cordon_window window;
	/* Held whenever registers, ring or counts are used. */
	struct mutex lock;

	/*
	 * Ring, lists, source and destination are given back only after the device has taken a reset: one
	 * that was given up may still write to them.
	 */
	struct cordon_accel_descriptor *ring;
	dma_addr_t ring_address;
	struct cordon_accel_segment *lists;
	dma_addr_t lists_address;
	struct cordon_page source[CORDON_PAGES];
	struct cordon_page destination[CORDON_PAGES];

	u32 posted;
	u32 sequence;
	/* The request that the device has; one at a time. */
	struct cordon_job *job;
	unsigned long submitted;
	struct delayed_work watchdog;
	/* The reason for which the device was given up. */
	const char *failure;

	struct cordon_key_slot slots[CORDON_ACCEL_KEY_SLOTS];
	u64 uses;
	struct crypto_engine *engine;
	atomic64_t interrupts;
	atomic64_t fallbacks;
	struct cordon_counts counts;
};

/* window.c */
int cordon_window_open(struct cordon_window *window, void *page, void __iomem *doorbell);
u32 cordon_window_read(struct cordon_window *window, u32 offset);
bool cordon_window_write(struct cordon_window *window, u32 offset, u32 value);

/* ring.c */
int cordon_ring_start(struct cordon_device *device);
void cordon_ring_stop(struct cordon_device *device);
irqreturn_t cordon_ring_interrupt(int irq, void *data);
irqreturn_t cordon_ring_handle(int irq, void *data);
void cordon_ring_give_up(struct cordon_device *device, const char *reason);
void cordon_ring_submit(struct cordon_device *device, struct cordon_job *job);
int cordon_ring_load_key(struct cordon_device *device, const struct cordon_tfm *tfm, u8 algorithm);
void cordon_ring_forget_key(struct cordon_device *device, u64 key);
void cordon_pages_write(struct cordon_page *pages, u32 offset, const void *bytes, u32 length);
void cordon_pages_wipe(struct cordon_page *pages, u32 length);
void cordon_pages_read(struct cordon_page *pages, u32 offset, void *bytes, u32 length);

/* crypto.c */
int cordon_crypto_register(struct cordon_device *device);
void cordon_crypto_unregister(struct cordon_device *device);

/* uio.c */
struct cordon_uio;
struct cordon_uio *cordon_uio_register(struct pci_dev *pci, struct cordon_window *window);
void cordon_uio_unregister(struct cordon_uio *uio);

#endif
