// SPDX-License-Identifier: GPL-2.0
/*
 * A device for a driver in user space, as /dev/uioN: maps of the register window, of the doorbell's page and of
 * memory for DMA; a read waits for an interrupt. The address of that memory is in the attribute dma_address.
 *
 * Without an IOMMU the device reaches all memory by whatever addresses its driver gives it: who may open
 * /dev/uioN is as mighty as the kernel.
 */
#include <linux/delay.h>
#include <linux/uio_driver.h>

#include "driver.h"

#define BUFFER (1 << 20)

struct cordon_uio {
	struct uio_info info;
	struct cordon_window *window;
	struct pci_dev *pci;
	void *buffer;
	dma_addr_t address;
	atomic_t users;
};

static irqreturn_t interrupt(int irq, struct uio_info *info)
{
	/* Who is woken reads the cause; a message needs no acknowledgement. */
	return IRQ_HANDLED;
}

/* The device forgets ring and keys, and writes nothing any more; false if it does not answer. */
static bool reset(struct cordon_uio *uio)
{
	/* User space has posted writes meanwhile. */
	int error = cordon_window_open(uio->window, uio->window->page, uio->window->doorbell);

	return !error && cordon_window_write(uio->window, CORDON_ACCEL_CONTROL, CORDON_ACCEL_CONTROL_RESET) &&
	       cordon_window_read(uio->window, CORDON_ACCEL_STATE) != U32_MAX;
}

/* One user at a time, who finds the buffer empty. */
static int open(struct uio_info *info, struct inode *inode)
{
	struct cordon_uio *uio = info->priv;

	if (atomic_cmpxchg(&uio->users, 0, 1))
		return -EBUSY;
	if (!reset(uio)) {
		atomic_set(&uio->users, 0);
		return -ENODEV;
	}
	memset(uio->buffer, 0, BUFFER);
	return 0;
}

static int release(struct uio_info *info, struct inode *inode)
{
	struct cordon_uio *uio = info->priv;

	/* Mappings go before the last descriptor: nobody uses it any more. */
	reset(uio);
	memzero_explicit(uio->buffer, BUFFER);
	atomic_set(&uio->users, 0);
	return 0;
}

static ssize_t dma_address_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct cordon_uio *uio = dev_get_drvdata(dev);

	return sysfs_emit(text, "%pad\n", &uio->address);
}
static DEVICE_ATTR_RO(dma_address);

struct cordon_uio *cordon_uio_register(struct pci_dev *pci, struct cordon_window *window)
{
	struct device *dev = &pci->dev;
	struct cordon_uio *uio;
	int error;

	/* A page is the least that can be mapped; the doorbell may share it with nothing else. */
	if (!PAGE_ALIGNED(pci_resource_start(pci, 0)) || pci_resource_len(pci, 0) < PAGE_SIZE) {
		dev_err(dev, "the doorbell has no page of its own: boot with pci=resource_alignment=12@pci:1af4:1110\n");
		return ERR_PTR(-EINVAL);
	}
	uio = devm_kzalloc(dev, sizeof(*uio), GFP_KERNEL);
	if (!uio)
		return ERR_PTR(-ENOMEM);
	uio->buffer = dma_alloc_coherent(dev, BUFFER, &uio->address, GFP_KERNEL);
	if (!uio->buffer)
		return ERR_PTR(-ENOMEM);
	uio->window = window;
	uio->pci = pci;
	uio->info = (struct uio_info){
		.name = "cordon_accel",
		.version = "1",
		.irq = pci_irq_vector(pci, 0),
		.handler = interrupt,
		.open = open,
		.release = release,
		.priv = uio,
		.mem = {
			{
				.name = "window",
				.memtype = UIO_MEM_PHYS,
				.addr = pci_resource_start(pci, 2),
				.size = CORDON_ACCEL_PAGE,
			},
			{
				.name = "doorbell",
				.memtype = UIO_MEM_PHYS,
				.addr = pci_resource_start(pci, 0),
				.size = PAGE_SIZE,
			},
			{
				.name = "buffer",
				.memtype = UIO_MEM_DMA_COHERENT,
				.addr = (phys_addr_t)(uintptr_t)uio->buffer,
				.dma_addr = uio->address,
				.dma_device = dev,
				.size = BUFFER,
			},
		},
	};
	pci_set_drvdata(pci, uio);
	error = device_create_file(dev, &dev_attr_dma_address);
	if (error)
		goto buffer;
	error = uio_register_device(dev, &uio->info);
	if (!error)
		return uio;
	device_remove_file(dev, &dev_attr_dma_address);
buffer:
	dma_free_coherent(dev, BUFFER, uio->buffer, uio->address);
	return ERR_PTR(error);
}

void cordon_uio_unregister(struct cordon_uio *uio)
{
	struct device *dev = &uio->pci->dev;

	uio_unregister_device(&uio->info);
	device_remove_file(dev, &dev_attr_dma_address);
	if (reset(uio))
		dma_free_coherent(dev, BUFFER, uio->buffer, uio->address);
	else
		dev_notice(dev, "did not take its reset: its memory is not given back\n");
}
