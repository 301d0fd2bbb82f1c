// A simulated core as a process: bus operations on standard input, answers on standard output.
//
// A batch is a row of records of 8 bytes (little endian): kind (1), zero (1), address (2), data (4).
//   0 end of the batch: the answer is written
//   1 write; 2 read; 3 wait until the core is idle, at most `data` cycles
//   4 count the bits that are set in registers and memories for keys and blocks (not on the bus)
//   5 invert a bit: of a permuted byte in the next wait (IBC), or after `data` cycles, which one
//     the address says: where modulo 16, the rest which word and bit (MONT), or which bit of the
//     state while a block is processed then or later (AES; nothing for HMAC)
// Answer: number of words (4), state (4: 0 done, 1 a wait did not end and the rest was left out),
// cycles since the start (8), the words that were read (4 each).
//
// The arguments `fault CYCLE PLACE` are such a record at the start (AES and MONT); `end CYCLE` ends the process in that
// cycle.
//
// Built for one core: -DCORE_AES, -DCORE_HMAC, -DCORE_IBC or -DCORE_MONT.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef CORE_AES
#include "Vaes.h"
#include "Vaes___024root.h"
using Top = Vaes;
#elif defined(CORE_HMAC)
#include "Vhmac.h"
#include "Vhmac___024root.h"
using Top = Vhmac;
#elif defined(CORE_MONT)
#include "Vmont.h"
#include "Vmont___024root.h"
using Top = Vmont;
#else
#include "Vibc.h"
#include "Vibc___024root.h"
using Top = Vibc;
#endif
#include "verilated.h"

static Top top;
static uint64_t cycles = 0;
static uint64_t last_cycle = UINT64_MAX;
static bool fault_armed = false;
static uint64_t fault_cycle = 0;
static unsigned fault_place = 0;

template <typename T>
static void invert(T &where, unsigned bit) {
  ((uint8_t *)&where)[bit / 8] ^= 1 << bit % 8;
}

#ifdef CORE_AES
// One bit of a block's state before its first round: CRYPT, in its first cycle.
static void inject() { invert(top.rootp->aes__DOT__work, fault_place % 128); }
static bool at_work() { return top.rootp->aes__DOT__state == 4 && top.rootp->aes__DOT__count == 0; }
#endif

#ifdef CORE_MONT
static bool at_work() { return true; }

// One bit of a register, or of the first 16 words of a memory.
static void inject() {
  auto *r = top.rootp;
  unsigned bit = fault_place / 16 % WORD, word = fault_place / 16 / WORD % 16;
  switch (fault_place % 16) {
    case 0: invert(r->mont__DOT__slots__DOT__mem[word], bit); break;
    case 1: invert(r->mont__DOT__accumulator__DOT__mem[word], bit); break;
    case 2: invert(r->mont__DOT__modulus__DOT__mem[word], bit); break;
    case 3: invert(r->mont__DOT__running__DOT__mem[word], bit); break;
    case 4: invert(r->mont__DOT__exponent__DOT__mem[word], bit); break;
    case 5: invert(r->mont__DOT__mac__DOT__total, bit); break;
    case 6: invert(r->mont__DOT__mac__DOT__carry, bit); break;
    case 7: invert(r->mont__DOT__mac__DOT__low, bit); break;
    case 8: invert(r->mont__DOT__factor, bit); break;
    case 9: invert(r->mont__DOT__multiple, bit); break;
    case 10: invert(r->mont__DOT__inverse, bit); break;
    case 11: invert(r->mont__DOT__passed, bit); break;
    case 12: invert(r->mont__DOT__slots__DOT__q, bit); break;
    case 13: invert(r->mont__DOT__running__DOT__q, bit); break;
    case 14: invert(r->mont__DOT__top, 0); break;
    default: invert(r->mont__DOT__exponent__DOT__q, bit); break;
  }
}
#endif

static void clock_once() {
#ifdef CORE_IBC
  bool now = fault_armed && top.rootp->ibc__DOT__capturing && top.rootp->ibc__DOT__in_permutation;
  top.fault_bits = now;
  if (now) fault_armed = false;
#endif
#if defined(CORE_MONT) || defined(CORE_AES)
  if (fault_armed && cycles >= fault_cycle && at_work()) {
    inject();
    fault_armed = false;
  }
#endif
  if (cycles == last_cycle) exit(1);
  top.clk = 0;
  top.eval();
  top.clk = 1;
  top.eval();
#ifdef CORE_IBC
  top.fault_bits = 0;
#endif
  cycles++;
}

static uint32_t read_word(unsigned address) {
  top.addr = address;
  top.eval();
  return top.rdata;
}

template <typename T>
static unsigned count_in(const T &wide) {
  unsigned n = 0;
  for (size_t i = 0; i < sizeof(wide) / 4; i++) n += __builtin_popcount(((const uint32_t *)&wide)[i]);
  return n;
}

#ifdef CORE_AES
static unsigned secret_bits() {
  auto *r = top.rootp;
  unsigned n = count_in(r->aes__DOT__block) + count_in(r->aes__DOT__work) + count_in(r->aes__DOT__chain) +
               count_in(r->aes__DOT__base) + count_in(r->aes__DOT__sum) + count_in(r->aes__DOT__hash_key) +
               count_in(r->aes__DOT__multiple) + count_in(r->aes__DOT__product) + count_in(r->aes__DOT__key) +
               count_in(r->aes__DOT__window);
#define COLUMN(G)                                                            \
  for (int i = 0; i < 16; i++)                                               \
    n += __builtin_popcount(r->aes__DOT__column__BRA__##G##__KET____DOT__words[i]); \
  n += __builtin_popcount(r->aes__DOT__column__BRA__##G##__KET____DOT__q);
  COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)
  return n;
}
#elif defined(CORE_HMAC)
static unsigned secret_bits() {
  auto *r = top.rootp;
  return count_in(r->hmac__DOT__block) + count_in(r->hmac__DOT__chain) + count_in(r->hmac__DOT__work) +
         count_in(r->hmac__DOT__inner) + count_in(r->hmac__DOT__outer);
}
#elif defined(CORE_MONT)
// Bytes of anything: words have 16 or 32 bits.
template <typename T>
static unsigned set_in(const T &any) {
  unsigned n = 0;
  for (size_t i = 0; i < sizeof(any); i++) n += __builtin_popcount(((const uint8_t *)&any)[i]);
  return n;
}

static unsigned secret_bits() {
  auto *r = top.rootp;
#define MEMORY(M) set_in(r->mont__DOT__##M##__DOT__mem) + set_in(r->mont__DOT__##M##__DOT__q)
  return MEMORY(slots) + MEMORY(accumulator) + MEMORY(modulus) + MEMORY(running) + MEMORY(exponent) +
         set_in(r->mont__DOT__mac__DOT__total) + set_in(r->mont__DOT__mac__DOT__carry) +
         set_in(r->mont__DOT__mac__DOT__low) + set_in(r->mont__DOT__factor) + set_in(r->mont__DOT__multiple) +
         set_in(r->mont__DOT__inverse) + set_in(r->mont__DOT__passed) + set_in(r->mont__DOT__top);
}
#else
static unsigned secret_bits() {
  auto *r = top.rootp;
  unsigned n = count_in(r->ibc__DOT__from) + count_in(r->ibc__DOT__into);
#define LANE(G) \
  for (int i = 0; i < 4096; i++) n += __builtin_popcount(r->ibc__DOT__lane__BRA__##G##__KET____DOT__ram__DOT__mem[i]);
  LANE(0) LANE(2) LANE(4) LANE(6)
  return n;
}
#endif

int main(int count, char **arguments) {
  if (count == 4 && !strcmp(arguments[1], "fault")) {
    fault_cycle = strtoull(arguments[2], nullptr, 10);
    fault_place = strtoul(arguments[3], nullptr, 10);
    fault_armed = true;
  }
  if (count == 3 && !strcmp(arguments[1], "end")) last_cycle = strtoull(arguments[2], nullptr, 10);
  top.wr = 0;
  top.zeroise = 0;
  top.reset = 1;
  clock_once();
  top.reset = 0;
  while (read_word(1) & 1) clock_once();

  for (;;) {
    std::vector<uint32_t> words;
    bool hung = false;
    for (;;) {
      uint8_t record[8];
      if (fread(record, 1, 8, stdin) != 8) return 0;
      unsigned address = record[2] | record[3] << 8;
      uint32_t data = record[4] | record[5] << 8 | record[6] << 16 | (uint32_t)record[7] << 24;
      if (record[0] == 0) break;
      if (hung) continue;
      switch (record[0]) {
        case 1:
          top.wr = 1;
          top.addr = address;
          top.wdata = data;
          clock_once();
          top.wr = 0;
          break;
        case 2:
          words.push_back(read_word(address));
          break;
        case 3:
          while ((read_word(1) & 1) && data) clock_once(), data--;
          hung = read_word(1) & 1;
          break;
        case 4:
          words.push_back(secret_bits());
          break;
        case 5:
          fault_armed = true;
          fault_cycle = cycles + data;
          fault_place = address;
          break;
        default:
          return 2;
      }
    }
    uint32_t head[4] = {(uint32_t)words.size(), hung, (uint32_t)cycles, (uint32_t)(cycles >> 32)};
    fwrite(head, 4, 4, stdout);
    fwrite(words.data(), 4, words.size(), stdout);
    fflush(stdout);
  }
}
