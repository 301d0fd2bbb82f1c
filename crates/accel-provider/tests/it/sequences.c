// Random sequences of calls to EVP, with OpenSSL's own provider and with cordon_accel: outputs and outcomes must be equal.
//
// sequences COUNT SEED
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t next(void) {
  uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

static size_t below(size_t bound) { return next() % bound; }

static void fill(unsigned char *to, size_t len) {
  for (size_t i = 0; i < len; i++) to[i] = next();
}

#define WANT(condition)                                                        \
  if (!(condition)) {                                                          \
    fprintf(stderr, "line %d, sequence %zu, %s: %s\n", __LINE__, sequence, name, #condition); \
    ERR_print_errors_fp(stderr);                                               \
    exit(1);                                                                   \
  }

enum { MOST = 150000 };
static unsigned char text[MOST], cut[MOST], one[MOST + 32], two[MOST + 32];
static const char *PROVIDERS[] = {"provider=default", "provider=cordon_accel"};

static size_t message_len(void) {
  static const size_t bounds[] = {2, 40, 300, 5000, 70000, MOST};
  return below(bounds[below(6)]);
}

// One message of CBC or CTR in pieces; both must give the same in each step.
static void blocks(size_t sequence, const char *name, int encrypt) {
  unsigned char key[32], iv[16], seen[2][16];
  fill(key, 32), fill(iv, 16);
  size_t len = message_len(), padding = below(2);
  if (below(2)) len = len / 16 * 16;
  fill(text, len);
  size_t pieces[8], count = 1 + below(8), left = len;
  for (size_t i = 0; i + 1 < count; i++) left -= pieces[i] = below(left + 1);
  pieces[count - 1] = left;
  int in_place = below(2), keep = below(2);
  size_t lens[2] = {0, 0};
  int outcome[2];
  for (int p = 0; p < 2; p++) {
    unsigned char *out = p ? two : one;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, PROVIDERS[p]);
    WANT(cipher);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    WANT(EVP_CipherInit_ex2(ctx, cipher, key, keep ? NULL : iv, encrypt, NULL));
    if (keep) WANT(EVP_CipherInit_ex2(ctx, NULL, NULL, iv, -1, NULL));
    EVP_CIPHER_CTX_set_padding(ctx, padding);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
      int n = 0;
      unsigned char *in = text + at, *to = out + lens[p];
      // The same bytes as input and output, where lengths agree.
      if (in_place && lens[p] == at && to + pieces[i] <= out + MOST) memcpy(to, in, pieces[i]), in = to;
      WANT(EVP_CipherUpdate(ctx, to, &n, in, pieces[i]));
      lens[p] += n, at += pieces[i];
    }
    // In counter mode libcrypto's own "updated-iv" is that after whole blocks of its own buffering: compared for CBC only.
    WANT(EVP_CIPHER_CTX_get_updated_iv(ctx, seen[p], 16));
    EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
    WANT(EVP_CIPHER_CTX_copy(copy, ctx));
    int n = 0;
    outcome[p] = EVP_CipherFinal_ex(copy, out + lens[p], &n);
    if (outcome[p]) lens[p] += n;
    EVP_CIPHER_CTX_free(copy);
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
  }
  ERR_clear_error();
  WANT(outcome[0] == outcome[1]);
  WANT(lens[0] == lens[1]);
  WANT(!memcmp(one, two, lens[0]));
  if (strstr(name, "CBC")) WANT(!memcmp(seen[0], seen[1], 16));
}

// A message with ciphertext stealing, in its three orders: sealed by one provider and opened by the other.
static void stolen(size_t sequence, const char *name) {
  static const char *orders[] = {"CS1", "CS2", "CS3"};
  unsigned char key[32], iv[16];
  fill(key, 32), fill(iv, 16);
  size_t len = message_len();
  if (below(2)) len = len / 16 * 16;
  fill(text, len);
  const char *order = orders[below(3)];
  OSSL_PARAM settings[] = {OSSL_PARAM_construct_utf8_string("cts_mode", (char *)order, 0), OSSL_PARAM_construct_end()};
  int outcome[2], n, in_place = below(2), opener = below(2);
  for (int p = 0; p < 2; p++) {
    unsigned char *out = p ? two : one;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, PROVIDERS[p]);
    WANT(cipher);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    WANT(EVP_EncryptInit_ex2(ctx, cipher, key, iv, settings));
    if (in_place) memcpy(out, text, len);
    outcome[p] = EVP_EncryptUpdate(ctx, out, &n, in_place ? out : text, len);
    if (outcome[p]) {
      WANT((size_t)n == len);
      WANT(EVP_EncryptFinal_ex(ctx, out + len, &n) && n == 0);
    }
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
  }
  ERR_clear_error();
  WANT(outcome[0] == outcome[1]);
  if (!outcome[0]) return;
  WANT(!memcmp(one, two, len));
  EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, PROVIDERS[opener]);
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  WANT(EVP_DecryptInit_ex2(ctx, cipher, key, iv, settings));
  WANT(EVP_DecryptUpdate(ctx, cut, &n, one, len) && (size_t)n == len);
  WANT(!memcmp(cut, text, len));
  // One call a message.
  if (opener) WANT(!EVP_DecryptUpdate(ctx, cut, &n, one, len));
  ERR_clear_error();
  EVP_CIPHER_CTX_free(ctx);
  EVP_CIPHER_free(cipher);
}

// A message of HMAC in pieces, by both, with keys of any length; then another one with the same key.
static void codes(size_t sequence, const char *name) {
  static const char *digests[] = {"SHA1", "SHA224", "SHA256", "SHA2-256", "SHA384", "SHA512"};
  const char *digest = digests[below(6)];
  unsigned char key[200], seen[2][64];
  size_t key_len = below(4) ? 1 + below(64) : below(200), lens[2];
  fill(key, sizeof key);
  OSSL_PARAM settings[] = {OSSL_PARAM_construct_utf8_string("digest", (char *)digest, 0), OSSL_PARAM_construct_end()};
  EVP_MAC *macs[2];
  EVP_MAC_CTX *ctx[2];
  for (int p = 0; p < 2; p++) {
    macs[p] = EVP_MAC_fetch(NULL, name, PROVIDERS[p]);
    WANT(macs[p]);
    ctx[p] = EVP_MAC_CTX_new(macs[p]);
    WANT(EVP_MAC_init(ctx[p], key, key_len, settings));
    WANT(EVP_MAC_CTX_get_mac_size(ctx[p]) == EVP_MAC_CTX_get_mac_size(ctx[0]));
    WANT(EVP_MAC_CTX_get_block_size(ctx[p]) == EVP_MAC_CTX_get_block_size(ctx[0]));
  }
  for (int message = 0; message < 3; message++) {
    size_t len = message_len();
    fill(text, len);
    size_t pieces[6], count = 1 + below(6), left = len;
    for (size_t i = 0; i + 1 < count; i++) left -= pieces[i] = below(left + 1);
    pieces[count - 1] = left;
    for (int p = 0; p < 2; p++) {
      if (message) WANT(EVP_MAC_init(ctx[p], NULL, 0, NULL));
      size_t at = 0;
      for (size_t i = 0; i < count; i++) {
        WANT(EVP_MAC_update(ctx[p], text + at, pieces[i]));
        at += pieces[i];
      }
      EVP_MAC_CTX *copy = EVP_MAC_CTX_dup(ctx[p]);
      WANT(copy);
      WANT(EVP_MAC_final(copy, seen[p], &lens[p], sizeof seen[p]));
      EVP_MAC_CTX_free(copy);
      unsigned char again[64];
      WANT(EVP_MAC_final(ctx[p], again, &lens[p], sizeof again));
      WANT(!memcmp(again, seen[p], lens[p]));
    }
    WANT(lens[0] == lens[1]);
    WANT(!memcmp(seen[0], seen[1], lens[0]));
  }
  for (int p = 0; p < 2; p++) EVP_MAC_CTX_free(ctx[p]), EVP_MAC_free(macs[p]);
}

// A message of GCM: sealed by both, then opened by both, damaged or not; in pieces or whole, the tag set before or after.
static void gcm(size_t sequence, const char *name) {
  unsigned char key[32], iv[64], aad[400], tags[2][16];
  fill(key, 32), fill(iv, 64), fill(aad, 400);
  if (below(8) == 0) memset(iv + 8, 0xff, 8);
  size_t iv_len = below(3) ? 12 : 1 + below(64), aad_len = below(400), len = message_len();
  fill(text, len);
  size_t count = below(2) ? 1 : 1 + below(5), pieces[6], left = len;
  for (size_t i = 0; i + 1 < count; i++) left -= pieces[i] = below(left + 1);
  pieces[count - 1] = left;
  size_t first_aad = below(3) ? aad_len : below(aad_len + 1);
  int n;
  for (int p = 0; p < 2; p++) {
    unsigned char *out = p ? two : one;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, PROVIDERS[p]);
    WANT(cipher);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    WANT(EVP_EncryptInit_ex2(ctx, cipher, NULL, NULL, NULL));
    WANT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) > 0);
    WANT(EVP_EncryptInit_ex2(ctx, NULL, key, iv, NULL));
    if (first_aad) WANT(EVP_EncryptUpdate(ctx, NULL, &n, aad, first_aad));
    if (aad_len > first_aad) WANT(EVP_EncryptUpdate(ctx, NULL, &n, aad + first_aad, aad_len - first_aad));
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
      WANT(EVP_EncryptUpdate(ctx, out + at, &n, text + at, pieces[i]));
      WANT((size_t)n == pieces[i]);
      at += n;
    }
    WANT(EVP_EncryptFinal_ex(ctx, out + at, &n) && n == 0);
    WANT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tags[p]) > 0);
    // A second message without another IV would use it twice.
    WANT(!EVP_EncryptUpdate(ctx, cut, &n, text, 16));
    ERR_clear_error();
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
  }
  WANT(!memcmp(one, two, len));
  WANT(!memcmp(tags[0], tags[1], 16));
  int damage = below(3), late = below(2), tag_len = below(4) ? 16 : 12 + below(4);
  unsigned char tag[16];
  memcpy(tag, tags[0], 16), memcpy(cut, one, len);
  if (damage == 1) tag[below(tag_len)] ^= 1 << below(8);
  if (damage == 2 && len) cut[below(len)] ^= 1 << below(8);
  if (damage == 2 && !len) damage = 0;
  for (int p = 0; p < 2; p++) {
    unsigned char *out = p ? two : one;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, PROVIDERS[p]);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    WANT(EVP_DecryptInit_ex2(ctx, cipher, NULL, NULL, NULL));
    WANT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) > 0);
    WANT(EVP_DecryptInit_ex2(ctx, NULL, key, iv, NULL));
    if (!late) WANT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, tag_len, tag) > 0);
    if (aad_len) WANT(EVP_DecryptUpdate(ctx, NULL, &n, aad, aad_len));
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
      WANT(EVP_DecryptUpdate(ctx, out + at, &n, cut + at, pieces[i]));
      at += n;
    }
    if (late) WANT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, tag_len, tag) > 0);
    WANT((EVP_DecryptFinal_ex(ctx, out + at, &n) > 0) == (damage == 0));
    ERR_clear_error();
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
  }
  if (!damage) WANT(!memcmp(one, text, len) && !memcmp(two, text, len));
}

// Records of TLS 1.2 and counted IVs of SSH, sealed by one provider and opened by the other.
static void records(size_t sequence, const char *name) {
  unsigned char key[32], fixed[12], tag[16];
  fill(key, 32), fill(fixed, 12);
  int sealer = below(2), tls = below(2), n;
  EVP_CIPHER *ciphers[2] = {EVP_CIPHER_fetch(NULL, name, PROVIDERS[sealer]), EVP_CIPHER_fetch(NULL, name, PROVIDERS[!sealer])};
  EVP_CIPHER_CTX *ctx[2] = {EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_new()};
  for (int side = 0; side < 2; side++) {
    WANT(EVP_CipherInit_ex2(ctx[side], ciphers[side], key, NULL, !side, NULL));
    WANT(EVP_CIPHER_CTX_ctrl(ctx[side], EVP_CTRL_GCM_SET_IV_FIXED, tls ? 4 : -1, fixed) > 0);
  }
  unsigned char last[2][12] = {{0}};
  for (int message = 0; message < 4; message++) {
    size_t len = 1 + below(16000);
    fill(text, len);
    int damage = below(5) == 0;
    if (tls) {
      unsigned char aad[13];
      fill(aad, 11), aad[11] = (len + 8) >> 8, aad[12] = len + 8;
      memcpy(one + 8, text, len);
      WANT(EVP_CIPHER_CTX_ctrl(ctx[0], EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
      WANT(EVP_CipherUpdate(ctx[0], one, &n, one, len + 24) && n == (int)len + 24);
      if (damage) one[8 + below(len + 16)] ^= 4;
      aad[11] = (len + 24) >> 8, aad[12] = len + 24;
      WANT(EVP_CIPHER_CTX_ctrl(ctx[1], EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
      WANT((EVP_CipherUpdate(ctx[1], one, &n, one, len + 24) && n == (int)len) == !damage);
      if (!damage) WANT(!memcmp(one + 8, text, len));
    } else {
      for (int side = 0; side < 2; side++) WANT(EVP_CIPHER_CTX_ctrl(ctx[side], EVP_CTRL_GCM_IV_GEN, 12, last[side]) > 0);
      WANT(!memcmp(last[0], last[1], 12));
      WANT(EVP_Cipher(ctx[0], NULL, key, 4) == 4);
      WANT(EVP_Cipher(ctx[0], one, text, len) == (int)len);
      WANT(EVP_Cipher(ctx[0], NULL, NULL, 0) == 0);
      WANT(EVP_CIPHER_CTX_ctrl(ctx[0], EVP_CTRL_GCM_GET_TAG, 16, tag) > 0);
      if (damage) tag[below(16)] ^= 8;
      WANT(EVP_CIPHER_CTX_ctrl(ctx[1], EVP_CTRL_GCM_SET_TAG, 16, tag) > 0);
      WANT(EVP_Cipher(ctx[1], NULL, key, 4) == 4);
      WANT(EVP_Cipher(ctx[1], two, one, len) == (int)len);
      WANT((EVP_Cipher(ctx[1], NULL, NULL, 0) == 0) == !damage);
      if (!damage) WANT(!memcmp(two, text, len));
    }
    ERR_clear_error();
    if (damage) break;
  }
  for (int side = 0; side < 2; side++) EVP_CIPHER_CTX_free(ctx[side]), EVP_CIPHER_free(ciphers[side]);
}

// Signatures of one provider, verified by the other.
static void signatures(EVP_PKEY *key, size_t sequence) {
  static const char *names[] = {"SHA256", "SHA384", "SHA512"};
  const char *name = names[below(3)];
  int signer = below(2), pss = below(2), salt = below(2), damage = below(3) == 0;
  unsigned char signature[512];
  size_t len = sizeof signature, data = below(5000);
  fill(text, data);
  for (int step = 0; step < 2; step++) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *settings = NULL;
    // Preferred only: a key that is demanded of cordon_accel is not found, as no fetch shall make keys there.
    const char *query = (step ? !signer : signer) ? "?provider=cordon_accel" : "provider=default";
    int begun = step ? EVP_DigestVerifyInit_ex(ctx, &settings, name, NULL, query, key, NULL)
                     : EVP_DigestSignInit_ex(ctx, &settings, name, NULL, query, key, NULL);
    WANT(begun > 0);
    if (pss) {
      WANT(EVP_PKEY_CTX_set_rsa_padding(settings, RSA_PKCS1_PSS_PADDING) > 0);
      int wanted = salt ? RSA_PSS_SALTLEN_DIGEST : EVP_MD_get_size(EVP_MD_CTX_get0_md(ctx));
      WANT(EVP_PKEY_CTX_set_rsa_pss_saltlen(settings, wanted) > 0);
    }
    if (!step) {
      WANT(EVP_DigestSign(ctx, signature, &len, text, data) > 0);
      WANT(len == (size_t)EVP_PKEY_get_size(key));
      if (damage) signature[below(len)] ^= 1;
    } else
      WANT((EVP_DigestVerify(ctx, signature, len, text, data) > 0) == !damage);
    ERR_clear_error();
    EVP_MD_CTX_free(ctx);
  }
}

int main(int count, char **arguments) {
  size_t sequence = 0, sequences = strtoul(arguments[1], NULL, 10);
  const char *name = "start";
  WANT(count == 3);
  WANT(OSSL_PROVIDER_load(NULL, "default"));
  WANT(OSSL_PROVIDER_load(NULL, "cordon_accel") || OSSL_PROVIDER_available(NULL, "cordon_accel"));
  EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, "provider=default", "RSA", (size_t)2048);
  WANT(key);
  for (; sequence < sequences; sequence++) {
    state = strtoull(arguments[2], NULL, 10) + sequence;
    static const char *sizes[] = {"128", "192", "256"};
    char cipher[16];
    name = cipher;
    const char *size = sizes[below(3)];
    switch (sequence % 10) {
      case 8: snprintf(cipher, 16, "AES-%s-CBC-CTS", size); stolen(sequence, cipher); break;
      case 9: snprintf(cipher, 16, "HMAC"); codes(sequence, cipher); break;
      case 0: case 1: snprintf(cipher, 16, "AES-%s-CBC", size); blocks(sequence, cipher, below(2)); break;
      case 2: snprintf(cipher, 16, "AES-%s-CTR", size); blocks(sequence, cipher, below(2)); break;
      case 3: case 4: case 5: snprintf(cipher, 16, "AES-%s-GCM", size); gcm(sequence, cipher); break;
      case 6: snprintf(cipher, 16, "AES-%s-GCM", size); records(sequence, cipher); break;
      default: if (sequence % 50 == 7) signatures(key, sequence);
    }
  }
  EVP_PKEY_free(key);
  printf("%zu sequences\n", sequence);
  return 0;
}
