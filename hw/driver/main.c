// SPDX-License-Identifier: GPL-2.0
/*
 * PCI driver of Cordon's accelerator, as QEMU shows it: a shared memory device (ivshmem-doorbell) whose other side
 * is a device process (accel_serve). There is no board.
 */
#include <linux/io.h>
#include <linux/module.h>

#include "driver.h"

static char *user = "";
module_param(user, charp, 0444);
MODULE_PARM_DESC(user, "PCI address of the device that user space gets as /dev/uioN");

#define COUNT(name, value)									\
static ssize_t name##_show(struct device *dev, struct device_attribute *attribute, char *text)	\
{												\
	struct cordon_device *device = dev_get_drvdata(dev);					\
	u64 count;										\
												\
	mutex_lock(&device->lock);								\
	count = value;										\
	mutex_unlock(&device->lock);								\
	return sysfs_emit(text, "%llu\n", count);						\
}												\
static DEVICE_ATTR_RO(name)

COUNT(requests, device->counts.requests);
COUNT(interrupts, atomic64_read(&device->interrupts));
COUNT(missed_interrupts, device->counts.missed);
COUNT(spurious_interrupts, device->counts.spurious);
COUNT(key_loads, device->counts.key_loads);
COUNT(fallbacks, atomic64_read(&device->fallbacks));

static ssize_t failure_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct cordon_device *device = dev_get_drvdata(dev);

	return sysfs_emit(text, "%s\n", READ_ONCE(device->failure) ?: "");
}
static DEVICE_ATTR_RO(failure);

static struct attribute *attributes[] = {
	&dev_attr_requests.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_missed_interrupts.attr,
	&dev_attr_spurious_interrupts.attr,
	&dev_attr_key_loads.attr,
	&dev_attr_fallbacks.attr,
	&dev_attr_failure.attr,
	NULL,
};

static const struct attribute_group statistics = { .name = "accelerator", .attrs = attributes };

static bool for_user_space(struct pci_dev *pci)
{
	return !strcmp(pci_name(pci), user);
}

/* The crypto API's device: ring, interrupts, algorithms, counts. */
static int start(struct pci_dev *pci, struct cordon_window *window)
{
	struct cordon_device *device = devm_kzalloc(&pci->dev, sizeof(*device), GFP_KERNEL);
	int irq = pci_irq_vector(pci, 0);
	int error;

	if (!device)
		return -ENOMEM;
	device->pci = pci;
	device->window = *window;
	mutex_init(&device->lock);
	pci_set_drvdata(pci, device);
	error = cordon_ring_start(device);
	if (error)
		return error;
	error = request_threaded_irq(irq, cordon_ring_interrupt, cordon_ring_handle, 0, "cordon_accel", device);
	if (error)
		goto ring;
	/* Before the algorithms: the kernel's tests of them are counted. */
	error = sysfs_create_group(&pci->dev.kobj, &statistics);
	if (error)
		goto interrupt;
	error = cordon_crypto_register(device);
	if (!error)
		return 0;
	sysfs_remove_group(&pci->dev.kobj, &statistics);
interrupt:
	free_irq(irq, device);
ring:
	cordon_ring_stop(device);
	return error;
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct device *dev = &pci->dev;
	struct cordon_window *window;
	void __iomem *doorbell;
	void *page;
	int error = pcim_enable_device(pci);

	if (error)
		return error;
	error = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	window = devm_kzalloc(dev, sizeof(*window), GFP_KERNEL);
	doorbell = pcim_iomap(pci, 0, 0);
	if (!window || !doorbell)
		return -ENOMEM;
	if (pci_resource_len(pci, 2) < CORDON_ACCEL_PAGE)
		return -ENODEV;
	/* Memory of another process, and as coherent as that. */
	page = devm_memremap(dev, pci_resource_start(pci, 2), CORDON_ACCEL_PAGE, MEMREMAP_WB);
	if (IS_ERR(page))
		return PTR_ERR(page);
	/* Other devices look the same to PCI. */
	error = cordon_window_open(window, page, doorbell);
	if (error)
		return error;
	pci_set_master(pci);
	error = pci_alloc_irq_vectors(pci, 1, 1, PCI_IRQ_MSIX);
	if (error < 0)
		return error;
	if (for_user_space(pci)) {
		error = PTR_ERR_OR_ZERO(cordon_uio_register(pci, window));
	} else {
		error = start(pci, window);
	}
	if (error)
		pci_free_irq_vectors(pci);
	return error;
}

static void remove(struct pci_dev *pci)
{
	if (for_user_space(pci)) {
		cordon_uio_unregister(pci_get_drvdata(pci));
	} else {
		struct cordon_device *device = pci_get_drvdata(pci);

		cordon_crypto_unregister(device);
		sysfs_remove_group(&pci->dev.kobj, &statistics);
		free_irq(pci_irq_vector(pci, 0), device);
		cordon_ring_stop(device);
	}
	pci_free_irq_vectors(pci);
	pci_clear_master(pci);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver cordon_accel = {
	.name = "cordon_accel",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	/* Algorithms that somebody uses cannot go: the module's count of users is what holds them. */
	.driver.suppress_bind_attrs = true,
};
module_pci_driver(cordon_accel);

MODULE_DESCRIPTION("Driver of Cordon's crypto accelerator, which exists in simulation only");
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: crypto_engine uio");
