/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the algorithms of the crypto API have in common.
 */
#ifndef CORDON_ACCEL_CRYPTO_H
#define CORDON_ACCEL_CRYPTO_H

#include <crypto/aead.h>
#include <crypto/hash.h>
#include <crypto/skcipher.h>

#include "driver.h"

/* Above all software. */
#define CORDON_PRIORITY 1000
/* Most bytes of a key: a block of SHA-256. */
#define CORDON_KEY_MAX 64
#define SALT 4
/* Excludes what is asynchronous, or needs another algorithm itself. */
#define CORDON_SOFTWARE (CRYPTO_ALG_ASYNC | CRYPTO_ALG_NEED_FALLBACK)

struct cordon_tfm {
	union {
		struct crypto_skcipher *skcipher;
		struct crypto_aead *aead;
		struct crypto_ahash *hash;
	} fallback;
	/* A number that no other key has. */
	u64 id;
	u32 key_length;
	u8 key[CORDON_KEY_MAX];
	/* In the place of a vector's beginning, RFC 4106 has it at the key's end. */
	u8 salt[SALT];
};

/* The device for all transforms; there is one as long as the algorithms are registered. */
extern struct cordon_device *cordon;

/* crypto.c */
void cordon_gather(u32 offset, struct scatterlist *from, u32 start, u32 length);
void cordon_new_key(struct cordon_tfm *tfm, const u8 *key, u32 length);
void cordon_end_key(struct cordon_tfm *tfm);
void cordon_wipe(struct cordon_job *job);

/* hash.c */
int cordon_hash_register(void);
void cordon_hash_unregister(void);

#define CORDON_ALGORITHM(name, driver, blocksize) {					\
	.cra_name = name,							\
	.cra_driver_name = driver,						\
	.cra_priority = CORDON_PRIORITY,						\
	.cra_flags = CRYPTO_ALG_ASYNC | CRYPTO_ALG_NEED_FALLBACK | CRYPTO_ALG_KERN_DRIVER_ONLY, \
	.cra_blocksize = blocksize,						\
	.cra_ctxsize = sizeof(struct cordon_tfm),				\
	.cra_module = THIS_MODULE,						\
}

#endif
