// A simulated core as a process: bus operations on standard input, answers on standard output.
//
// A batch is a row of records of 8 bytes (little endian): kind (1), zero (1), address (2), data (4).
//   0 end of the batch: the answer is written
//   1 write; 2 read; 3 wait until the core is idle, at most `data` cycles
//   4 count the bits that are set in registers and memories for keys and blocks (not on the bus)
//   5 invert a permuted bit in the next wait (IBC only)
// Answer: number of words (4), state (4: 0 done, 1 a wait did not end and the rest was left out),
// cycles since the start (8), the words that were read (4 each).
//
// Built for one core: -DCORE_AES, -DCORE_HMAC or -DCORE_IBC.
#include <cstdint>
#include <cstdio>
#include <vector>

#ifdef CORE_AES
#include "Vaes.h"
#include "Vaes___024root.h"
using Top = Vaes;
#elif defined(CORE_HMAC)
#include "Vhmac.h"
#include "Vhmac___024root.h"
using Top = Vhmac;
#else
#include "Vibc.h"
#include "Vibc___024root.h"
using Top = Vibc;
#endif
#include "verilated.h"

static Top top;
static uint64_t cycles = 0;
static bool fault_armed = false;

static void clock_once() {
#ifdef CORE_IBC
  bool now = fault_armed && top.rootp->ibc__DOT__capturing && top.rootp->ibc__DOT__in_permutation;
  top.fault_bits = now;
  if (now) fault_armed = false;
#endif
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

int main() {
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
