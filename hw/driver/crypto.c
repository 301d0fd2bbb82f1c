// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's crypto API over the ring: cbc(aes), ctr(aes), gcm(aes), rfc4106(gcm(aes)) and, in hash.c, hmac(sha256);
 * asynchronous, by crypto_engine, which gives one request after the other.
 *
 * Data are copied into the driver's pages and back. So a request whose device fails still has its source, even
 * if source and destination are the same memory, and software does it again.
 */
#include <crypto/aes.h>
#include <crypto/algapi.h>
#include <crypto/engine.h>
#include <crypto/gcm.h>
#include <crypto/internal/aead.h>
#include <crypto/internal/skcipher.h>
#include <crypto/scatterwalk.h>

#include "crypto.h"

/* Requests that wait for the device at most; those beyond are for software. */
#define QUEUE 64

struct cordon_device *cordon;
static atomic64_t keys;

struct cordon_request {
	struct cordon_job job;
	bool encrypt;
	/* The fallback's, with room behind it for what that needs. Last. */
	union {
		struct skcipher_request skcipher;
		struct aead_request aead;
	} fallback;
};

/* Copies between a scatterlist and pages. */
void cordon_gather(u32 offset, struct scatterlist *from, u32 start, u32 length)
{
	while (length) {
		u32 in_page = offset % PAGE_SIZE;
		u32 part = min_t(u32, length, PAGE_SIZE - in_page);
		void *bytes = cordon->source[offset / PAGE_SIZE].bytes + in_page;

		scatterwalk_map_and_copy(bytes, from, start, part, 0);
		offset += part;
		start += part;
		length -= part;
	}
}

static void scatter(struct scatterlist *to, u32 start, u32 length)
{
	u32 offset = 0;

	while (length) {
		u32 part = min_t(u32, length, PAGE_SIZE);

		scatterwalk_map_and_copy(cordon->destination[offset / PAGE_SIZE].bytes, to, start, part, 1);
		offset += part;
		start += part;
		length -= part;
	}
}

void cordon_new_key(struct cordon_tfm *tfm, const u8 *key, u32 length)
{
	if (tfm->id)
		cordon_ring_forget_key(cordon, tfm->id);
	tfm->id = atomic64_inc_return(&keys);
	tfm->key_length = length;
	memcpy(tfm->key, key, length);
}

void cordon_end_key(struct cordon_tfm *tfm)
{
	if (tfm->id)
		cordon_ring_forget_key(cordon, tfm->id);
	memzero_explicit(tfm->key, sizeof(tfm->key));
}

/* Nothing of a message stays where the device can read it. */
void cordon_wipe(struct cordon_job *job)
{
	cordon_pages_wipe(cordon->source, job->source_length);
	cordon_pages_wipe(cordon->destination, job->destination_length);
}

/* Ciphers without a tag. */

static int skcipher_setkey(struct crypto_skcipher *cipher, const u8 *key, unsigned int length)
{
	struct cordon_tfm *tfm = crypto_skcipher_ctx(cipher);
	struct crypto_skcipher *fallback = tfm->fallback.skcipher;
	int error = aes_check_keylen(length);

	if (error)
		return error;
	crypto_skcipher_clear_flags(fallback, CRYPTO_TFM_REQ_MASK);
	crypto_skcipher_set_flags(fallback, crypto_skcipher_get_flags(cipher) & CRYPTO_TFM_REQ_MASK);
	error = crypto_skcipher_setkey(fallback, key, length);
	if (!error)
		cordon_new_key(tfm, key, length);
	return error;
}

static int skcipher_by_software(struct skcipher_request *request)
{
	struct cordon_tfm *tfm = crypto_skcipher_ctx(crypto_skcipher_reqtfm(request));
	struct cordon_request *ours = skcipher_request_ctx(request);
	struct skcipher_request *other = &ours->fallback.skcipher;

	atomic64_inc(&cordon->fallbacks);
	skcipher_request_set_tfm(other, tfm->fallback.skcipher);
	/* A fallback is synchronous, and the engine's thread may not sleep on behalf of others. */
	skcipher_request_set_callback(other, request->base.flags & ~CRYPTO_TFM_REQ_MAY_SLEEP, NULL, NULL);
	skcipher_request_set_crypt(other, request->src, request->dst, request->cryptlen, request->iv);
	return ours->encrypt ? crypto_skcipher_encrypt(other) : crypto_skcipher_decrypt(other);
}

static void skcipher_end(struct skcipher_request *request, int error)
{
	/* The engine calls back as from an interrupt. */
	local_bh_disable();
	crypto_finalize_skcipher_request(cordon->engine, request, error);
	local_bh_enable();
}

/* The vector with which a following request goes on. */
static void next_vector(struct skcipher_request *request, struct cordon_job *job, bool encrypt)
{
	u32 blocks = DIV_ROUND_UP(job->source_length, AES_BLOCK_SIZE);
	struct cordon_page *ciphertext = encrypt ? cordon->destination : cordon->source;

	if (job->mode == CORDON_ACCEL_MODE_CBC) {
		cordon_pages_read(ciphertext, job->source_length - AES_BLOCK_SIZE, request->iv, AES_BLOCK_SIZE);
		return;
	}
	while (blocks--)
		crypto_inc(request->iv, AES_BLOCK_SIZE);
}

static void skcipher_done(struct cordon_device *device, struct cordon_job *job, int error)
{
	struct cordon_request *ours = container_of(job, struct cordon_request, job);
	struct skcipher_request *request = container_of((void *)ours, struct skcipher_request, __ctx);

	if (error) {
		error = skcipher_by_software(request);
	} else {
		next_vector(request, job, ours->encrypt);
		scatter(request->dst, 0, request->cryptlen);
	}
	cordon_wipe(job);
	skcipher_end(request, error);
}

static int skcipher_do_one(struct crypto_engine *engine, void *any)
{
	struct skcipher_request *request = container_of(any, struct skcipher_request, base);
	struct crypto_skcipher *cipher = crypto_skcipher_reqtfm(request);
	struct cordon_tfm *tfm = crypto_skcipher_ctx(cipher);
	struct cordon_request *ours = skcipher_request_ctx(request);
	int slot = cordon_ring_load_key(cordon, tfm, CORDON_ACCEL_ALGORITHM_AES);
	bool chained = crypto_skcipher_chunksize(cipher) == crypto_tfm_alg_blocksize(&cipher->base);

	if (slot < 0) {
		skcipher_end(request, skcipher_by_software(request));
		return 0;
	}
	cordon_gather(0, request->src, 0, request->cryptlen);
	ours->job = (struct cordon_job){
		.operation = ours->encrypt ? CORDON_ACCEL_OPERATION_ENCRYPT : CORDON_ACCEL_OPERATION_DECRYPT,
		.algorithm = CORDON_ACCEL_ALGORITHM_AES,
		.mode = chained ? CORDON_ACCEL_MODE_CBC : CORDON_ACCEL_MODE_CTR,
		.slot = slot,
		.iv_length = AES_BLOCK_SIZE,
		.source_length = request->cryptlen,
		.destination_length = request->cryptlen,
		.done = skcipher_done,
	};
	memcpy(ours->job.iv, request->iv, AES_BLOCK_SIZE);
	cordon_ring_submit(cordon, &ours->job);
	return 0;
}

static int skcipher_crypt(struct skcipher_request *request, bool encrypt)
{
	struct crypto_skcipher *cipher = crypto_skcipher_reqtfm(request);
	struct cordon_request *ours = skcipher_request_ctx(request);
	int error;

	if (!request->cryptlen)
		return 0;
	if (request->cryptlen % crypto_tfm_alg_blocksize(&cipher->base))
		return -EINVAL;
	ours->encrypt = encrypt;
	if (READ_ONCE(cordon->failure) || request->cryptlen > CORDON_DATA_MAX)
		return skcipher_by_software(request);
	error = crypto_transfer_skcipher_request_to_engine(cordon->engine, request);
	/* The queue is full, and the caller would not wait: a packet would be lost. */
	return error == -ENOSPC ? skcipher_by_software(request) : error;
}

static int skcipher_encrypt(struct skcipher_request *request)
{
	return skcipher_crypt(request, true);
}

static int skcipher_decrypt(struct skcipher_request *request)
{
	return skcipher_crypt(request, false);
}

static int skcipher_init(struct crypto_skcipher *cipher)
{
	struct cordon_tfm *tfm = crypto_skcipher_ctx(cipher);
	struct crypto_skcipher *fallback = crypto_alloc_skcipher(crypto_tfm_alg_name(&cipher->base), 0, CORDON_SOFTWARE);

	if (IS_ERR(fallback))
		return PTR_ERR(fallback);
	tfm->fallback.skcipher = fallback;
	crypto_skcipher_set_reqsize(cipher, sizeof(struct cordon_request) + crypto_skcipher_reqsize(fallback));
	return 0;
}

static void skcipher_exit(struct crypto_skcipher *cipher)
{
	struct cordon_tfm *tfm = crypto_skcipher_ctx(cipher);

	cordon_end_key(tfm);
	crypto_free_skcipher(tfm->fallback.skcipher);
}

/* Ciphers with a tag. */

static bool is_rfc4106(struct crypto_aead *cipher)
{
	return crypto_aead_ivsize(cipher) == GCM_RFC4106_IV_SIZE;
}

static int aead_setkey(struct crypto_aead *cipher, const u8 *key, unsigned int length)
{
	struct cordon_tfm *tfm = crypto_aead_ctx(cipher);
	struct crypto_aead *fallback = tfm->fallback.aead;
	u32 salt = is_rfc4106(cipher) ? SALT : 0;
	int error = length < salt ? -EINVAL : aes_check_keylen(length - salt);

	if (error)
		return error;
	crypto_aead_clear_flags(fallback, CRYPTO_TFM_REQ_MASK);
	crypto_aead_set_flags(fallback, crypto_aead_get_flags(cipher) & CRYPTO_TFM_REQ_MASK);
	error = crypto_aead_setkey(fallback, key, length);
	if (error)
		return error;
	cordon_new_key(tfm, key, length - salt);
	memcpy(tfm->salt, key + length - salt, salt);
	return 0;
}

static int aead_setauthsize(struct crypto_aead *cipher, unsigned int size)
{
	struct cordon_tfm *tfm = crypto_aead_ctx(cipher);
	int error = is_rfc4106(cipher) ? crypto_rfc4106_check_authsize(size) : crypto_gcm_check_authsize(size);

	return error ?: crypto_aead_setauthsize(tfm->fallback.aead, size);
}

static int aead_by_software(struct aead_request *request)
{
	struct cordon_tfm *tfm = crypto_aead_ctx(crypto_aead_reqtfm(request));
	struct cordon_request *ours = aead_request_ctx(request);
	struct aead_request *other = &ours->fallback.aead;

	atomic64_inc(&cordon->fallbacks);
	aead_request_set_tfm(other, tfm->fallback.aead);
	aead_request_set_callback(other, request->base.flags & ~CRYPTO_TFM_REQ_MAY_SLEEP, NULL, NULL);
	aead_request_set_crypt(other, request->src, request->dst, request->cryptlen, request->iv);
	aead_request_set_ad(other, request->assoclen);
	return ours->encrypt ? crypto_aead_encrypt(other) : crypto_aead_decrypt(other);
}

static void aead_end(struct aead_request *request, int error)
{
	local_bh_disable();
	crypto_finalize_aead_request(cordon->engine, request, error);
	local_bh_enable();
}

/* Bytes of the message without its tag; negative for less than a tag. */
static int data_length(struct aead_request *request, bool encrypt)
{
	return encrypt ? request->cryptlen : request->cryptlen - crypto_aead_authsize(crypto_aead_reqtfm(request));
}

/* Hands the plaintext out if the tag is right. If it is not, software says whose fault that is. */
static int opened(struct aead_request *request, u32 length)
{
	u32 tag_length = crypto_aead_authsize(crypto_aead_reqtfm(request));
	u8 given[CORDON_TAG], computed[CORDON_TAG];
	int error;

	scatterwalk_map_and_copy(given, request->src, request->assoclen + length, tag_length, 0);
	cordon_pages_read(cordon->destination, length, computed, tag_length);
	if (!crypto_memneq(given, computed, tag_length)) {
		scatter(request->dst, request->assoclen, length);
		return 0;
	}
	error = aead_by_software(request);
	if (!error)
		cordon_ring_give_up(cordon, "a tag is wrong");
	return error;
}

static void aead_done(struct cordon_device *device, struct cordon_job *job, int error)
{
	struct cordon_request *ours = container_of(job, struct cordon_request, job);
	struct aead_request *request = container_of((void *)ours, struct aead_request, __ctx);
	u32 length = data_length(request, ours->encrypt);

	if (error) {
		error = aead_by_software(request);
	} else if (ours->encrypt) {
		length += crypto_aead_authsize(crypto_aead_reqtfm(request));
		scatter(request->dst, request->assoclen, length);
	} else {
		error = opened(request, length);
	}
	cordon_wipe(job);
	aead_end(request, error);
}

static int aead_do_one(struct crypto_engine *engine, void *any)
{
	struct aead_request *request = container_of(any, struct aead_request, base);
	struct crypto_aead *cipher = crypto_aead_reqtfm(request);
	struct cordon_tfm *tfm = crypto_aead_ctx(cipher);
	struct cordon_request *ours = aead_request_ctx(request);
	int slot = cordon_ring_load_key(cordon, tfm, CORDON_ACCEL_ALGORITHM_AES);
	u32 length = data_length(request, ours->encrypt);
	bool rfc4106 = is_rfc4106(cipher);
	/* RFC 4106 has the vector behind the associated data. */
	u32 aad = request->assoclen - (rfc4106 ? GCM_RFC4106_IV_SIZE : 0);
	u32 salt = rfc4106 ? SALT : 0;

	if (slot < 0) {
		aead_end(request, aead_by_software(request));
		return 0;
	}
	cordon_gather(0, request->src, 0, aad);
	cordon_gather(aad, request->src, request->assoclen, length);
	ours->job = (struct cordon_job){
		.operation = ours->encrypt ? CORDON_ACCEL_OPERATION_ENCRYPT : CORDON_ACCEL_OPERATION_DECRYPT,
		.algorithm = CORDON_ACCEL_ALGORITHM_AES,
		.mode = CORDON_ACCEL_MODE_GCM,
		.slot = slot,
		.iv_length = GCM_AES_IV_SIZE,
		/* Shorter tags are the beginning of this one. */
		.tag_length = CORDON_TAG,
		.source_length = aad + length,
		.aad_length = aad,
		.destination_length = length + CORDON_TAG,
		.done = aead_done,
	};
	memcpy(ours->job.iv, tfm->salt, salt);
	memcpy(ours->job.iv + salt, request->iv, GCM_AES_IV_SIZE - salt);
	cordon_ring_submit(cordon, &ours->job);
	return 0;
}

static int aead_crypt(struct aead_request *request, bool encrypt)
{
	struct crypto_aead *cipher = crypto_aead_reqtfm(request);
	struct cordon_request *ours = aead_request_ctx(request);
	u32 aad = request->assoclen;
	int length = data_length(request, encrypt);
	int error;

	if (length < 0)
		return -EINVAL;
	if (is_rfc4106(cipher)) {
		error = crypto_ipsec_check_assoclen(aad);
		if (error)
			return error;
		aad -= GCM_RFC4106_IV_SIZE;
	}
	ours->encrypt = encrypt;
	/* The device takes no message without a byte. */
	if (READ_ONCE(cordon->failure) || length > CORDON_DATA_MAX || aad > CORDON_AAD_MAX || aad + length == 0)
		return aead_by_software(request);
	error = crypto_transfer_aead_request_to_engine(cordon->engine, request);
	return error == -ENOSPC ? aead_by_software(request) : error;
}

static int aead_encrypt(struct aead_request *request)
{
	return aead_crypt(request, true);
}

static int aead_decrypt(struct aead_request *request)
{
	return aead_crypt(request, false);
}

static int aead_init(struct crypto_aead *cipher)
{
	struct cordon_tfm *tfm = crypto_aead_ctx(cipher);
	struct crypto_aead *fallback = crypto_alloc_aead(crypto_tfm_alg_name(&cipher->base), 0, CORDON_SOFTWARE);

	if (IS_ERR(fallback))
		return PTR_ERR(fallback);
	tfm->fallback.aead = fallback;
	crypto_aead_set_reqsize(cipher, sizeof(struct cordon_request) + crypto_aead_reqsize(fallback));
	return 0;
}

static void aead_exit(struct crypto_aead *cipher)
{
	struct cordon_tfm *tfm = crypto_aead_ctx(cipher);

	cordon_end_key(tfm);
	crypto_free_aead(tfm->fallback.aead);
}

#define SKCIPHER(name, driver, blocksize) {					\
	.base = {								\
		.base = CORDON_ALGORITHM(name, driver, blocksize),			\
		.init = skcipher_init,						\
		.exit = skcipher_exit,						\
		.setkey = skcipher_setkey,					\
		.encrypt = skcipher_encrypt,					\
		.decrypt = skcipher_decrypt,					\
		.min_keysize = AES_MIN_KEY_SIZE,				\
		.max_keysize = AES_MAX_KEY_SIZE,				\
		.ivsize = AES_BLOCK_SIZE,					\
		.chunksize = AES_BLOCK_SIZE,					\
	},									\
	.op.do_one_request = skcipher_do_one,					\
}

#define AEAD(name, driver, vector) {						\
	.base = {								\
		.base = CORDON_ALGORITHM(name, driver, 1),				\
		.init = aead_init,						\
		.exit = aead_exit,						\
		.setkey = aead_setkey,						\
		.setauthsize = aead_setauthsize,				\
		.encrypt = aead_encrypt,					\
		.decrypt = aead_decrypt,					\
		.ivsize = vector,						\
		.maxauthsize = CORDON_TAG,					\
		.chunksize = AES_BLOCK_SIZE,					\
	},									\
	.op.do_one_request = aead_do_one,					\
}

static struct skcipher_engine_alg skciphers[] = {
	SKCIPHER("cbc(aes)", "cbc-aes-cordon", AES_BLOCK_SIZE),
	SKCIPHER("ctr(aes)", "ctr-aes-cordon", 1),
};

static struct aead_engine_alg aeads[] = {
	AEAD("gcm(aes)", "gcm-aes-cordon", GCM_AES_IV_SIZE),
	AEAD("rfc4106(gcm(aes))", "rfc4106-gcm-aes-cordon", GCM_RFC4106_IV_SIZE),
};

/* Registers all algorithms, each of which the kernel tests then; -EBUSY if another device has them. */
int cordon_crypto_register(struct cordon_device *device)
{
	int error;

	if (cmpxchg(&cordon, NULL, device))
		return -EBUSY;
	error = -ENOMEM;
	device->engine = crypto_engine_alloc_init_and_set(&device->pci->dev, false, NULL, false, QUEUE);
	if (!device->engine)
		goto none;
	error = crypto_engine_start(device->engine);
	if (error)
		goto engine;
	error = crypto_engine_register_skciphers(skciphers, ARRAY_SIZE(skciphers));
	if (error)
		goto engine;
	error = crypto_engine_register_aeads(aeads, ARRAY_SIZE(aeads));
	if (error)
		goto skciphers;
	error = cordon_hash_register();
	if (!error)
		return 0;
	crypto_engine_unregister_aeads(aeads, ARRAY_SIZE(aeads));
skciphers:
	crypto_engine_unregister_skciphers(skciphers, ARRAY_SIZE(skciphers));
engine:
	crypto_engine_exit(device->engine);
none:
	cordon = NULL;
	return error;
}

/* No transform is left: each holds the module, and the driver cannot be unbound otherwise. */
void cordon_crypto_unregister(struct cordon_device *device)
{
	cordon_hash_unregister();
	crypto_engine_unregister_aeads(aeads, ARRAY_SIZE(aeads));
	crypto_engine_unregister_skciphers(skciphers, ARRAY_SIZE(skciphers));
	crypto_engine_exit(device->engine);
	cordon = NULL;
}
