// SPDX-License-Identifier: GPL-2.0
/*
 * hmac(sha256) over the ring. The device authenticates messages that are there as a whole; pieces of messages are
 * for software. Nobody compares the result here: a wrong one is noticed by whoever has another.
 */
#include <crypto/algapi.h>
#include <crypto/engine.h>
#include <crypto/internal/hash.h>
#include <crypto/sha2.h>

#include "crypto.h"

struct cordon_hash_request {
	struct cordon_job job;
	/* The fallback's, with room behind it for what that needs. Last. */
	struct ahash_request fallback;
};

static int setkey(struct crypto_ahash *hash, const u8 *key, unsigned int length)
{
	struct cordon_tfm *tfm = crypto_ahash_ctx(hash);
	u8 digest[SHA256_DIGEST_SIZE];
	int error = crypto_ahash_setkey(tfm->fallback.hash, key, length);

	if (error)
		return error;
	/* RFC 2104 has the hash of a long key in its place; one without a byte is as one of zeros. */
	if (length > SHA256_BLOCK_SIZE) {
		sha256(key, length, digest);
		cordon_new_key(tfm, digest, sizeof(digest));
		memzero_explicit(digest, sizeof(digest));
	} else if (length) {
		cordon_new_key(tfm, key, length);
	} else {
		cordon_new_key(tfm, "", 1);
	}
	return 0;
}

/* The fallback's request in the place of ours. */
static struct ahash_request *software(struct ahash_request *request)
{
	struct cordon_tfm *tfm = crypto_ahash_ctx(crypto_ahash_reqtfm(request));
	struct cordon_hash_request *ours = ahash_request_ctx(request);
	struct ahash_request *other = &ours->fallback;

	ahash_request_set_tfm(other, tfm->fallback.hash);
	ahash_request_set_callback(other, request->base.flags & ~CRYPTO_TFM_REQ_MAY_SLEEP, NULL, NULL);
	ahash_request_set_crypt(other, request->src, request->result, request->nbytes);
	return other;
}

static int digest_by_software(struct ahash_request *request)
{
	atomic64_inc(&cordon->fallbacks);
	return crypto_ahash_digest(software(request));
}

static void end(struct ahash_request *request, int error)
{
	local_bh_disable();
	crypto_finalize_hash_request(cordon->engine, request, error);
	local_bh_enable();
}

static void done(struct cordon_device *device, struct cordon_job *job, int error)
{
	struct cordon_hash_request *ours = container_of(job, struct cordon_hash_request, job);
	struct ahash_request *request = container_of((void *)ours, struct ahash_request, __ctx);

	if (error)
		error = digest_by_software(request);
	else
		cordon_pages_read(cordon->destination, 0, request->result, SHA256_DIGEST_SIZE);
	cordon_wipe(job);
	end(request, error);
}

static int do_one(struct crypto_engine *engine, void *any)
{
	struct ahash_request *request = container_of(any, struct ahash_request, base);
	struct cordon_tfm *tfm = crypto_ahash_ctx(crypto_ahash_reqtfm(request));
	struct cordon_hash_request *ours = ahash_request_ctx(request);
	int slot = cordon_ring_load_key(cordon, tfm, CORDON_ACCEL_ALGORITHM_HMAC_SHA_256);

	if (slot < 0) {
		end(request, digest_by_software(request));
		return 0;
	}
	cordon_gather(0, request->src, 0, request->nbytes);
	ours->job = (struct cordon_job){
		.operation = CORDON_ACCEL_OPERATION_AUTHENTICATE,
		.algorithm = CORDON_ACCEL_ALGORITHM_HMAC_SHA_256,
		.slot = slot,
		.tag_length = SHA256_DIGEST_SIZE,
		.source_length = request->nbytes,
		.destination_length = SHA256_DIGEST_SIZE,
		.done = done,
	};
	cordon_ring_submit(cordon, &ours->job);
	return 0;
}

static int digest(struct ahash_request *request)
{
	int error;

	/* The device takes no message without a byte. */
	if (READ_ONCE(cordon->failure) || !request->nbytes || request->nbytes > CORDON_DATA_MAX)
		return digest_by_software(request);
	error = crypto_transfer_hash_request_to_engine(cordon->engine, request);
	return error == -ENOSPC ? digest_by_software(request) : error;
}

static int init(struct ahash_request *request)
{
	return crypto_ahash_init(software(request));
}

static int update(struct ahash_request *request)
{
	return crypto_ahash_update(software(request));
}

static int final(struct ahash_request *request)
{
	return crypto_ahash_final(software(request));
}

static int finup(struct ahash_request *request)
{
	return crypto_ahash_finup(software(request));
}

static int export(struct ahash_request *request, void *state)
{
	return crypto_ahash_export(software(request), state);
}

static int import(struct ahash_request *request, const void *state)
{
	return crypto_ahash_import(software(request), state);
}

static int init_tfm(struct crypto_ahash *hash)
{
	struct cordon_tfm *tfm = crypto_ahash_ctx(hash);
	struct crypto_ahash *fallback = crypto_alloc_ahash(crypto_ahash_alg_name(hash), 0, CORDON_SOFTWARE);

	if (IS_ERR(fallback))
		return PTR_ERR(fallback);
	/* Whoever exports a state has room for as much. */
	if (crypto_ahash_statesize(fallback) > crypto_ahash_statesize(hash)) {
		crypto_free_ahash(fallback);
		return -EINVAL;
	}
	tfm->fallback.hash = fallback;
	crypto_ahash_set_reqsize(hash, sizeof(struct cordon_hash_request) + crypto_ahash_reqsize(fallback));
	return 0;
}

static void exit_tfm(struct crypto_ahash *hash)
{
	struct cordon_tfm *tfm = crypto_ahash_ctx(hash);

	cordon_end_key(tfm);
	crypto_free_ahash(tfm->fallback.hash);
}

static struct ahash_engine_alg algorithm = {
	.base = {
		.init = init,
		.update = update,
		.final = final,
		.finup = finup,
		.digest = digest,
		.export = export,
		.import = import,
		.setkey = setkey,
		.init_tfm = init_tfm,
		.exit_tfm = exit_tfm,
		.halg = {
			.base = CORDON_ALGORITHM("hmac(sha256)", "hmac-sha256-cordon", SHA256_BLOCK_SIZE),
			.digestsize = SHA256_DIGEST_SIZE,
			.statesize = sizeof(struct sha256_state),
		},
	},
	.op.do_one_request = do_one,
};

int cordon_hash_register(void)
{
	return crypto_engine_register_ahash(&algorithm);
}

void cordon_hash_unregister(void)
{
	crypto_engine_unregister_ahash(&algorithm);
}
