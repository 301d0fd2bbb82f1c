// Runs the simulated core against a model in software and prints one JSON object.
//
//   bench VECTORS      lines "key rounds plaintext ciphertext", in hexadecimal but for the rounds
//
// Exit status 0 if everything that must hold holds. CED and LANES are those of the build.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "Vibc.h"
#include "Vibc___024root.h"
#include "verilated.h"

using Block = std::array<uint8_t, 32>;
using Bytes = std::vector<uint8_t>;
using Table = std::array<uint8_t, 256>;

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct Random {
  uint64_t state;
  uint64_t next() { return mix(state += 0x9E3779B97F4A7C15ull); }
  uint32_t below(uint32_t n) { return (uint32_t)(((unsigned __int128)next() * n) >> 64); }
  Bytes bytes(size_t n) {
    Bytes out(n);
    for (auto &b : out) b = (uint8_t)next();
    return out;
  }
  Block block() {
    Block out;
    for (auto &b : out) b = (uint8_t)next();
    return out;
  }
};

// The model: written from the specification, with no code of the core or of the library.
struct Model {
  unsigned k, rounds;
  std::vector<Table> s, inverse;

  static uint8_t multiply(uint8_t a, uint8_t b) {
    uint8_t r = 0;
    for (; b; b >>= 1) {
      if (b & 1) r ^= a;
      a = (uint8_t)((a << 1) ^ (a & 0x80 ? 0x1B : 0));
    }
    return r;
  }

  Model(const Bytes &key, unsigned rounds) : k(key.size() / 8), rounds(rounds) {
    for (unsigned j = 0; j < k; j++) {
      uint64_t part = 0;
      for (int i = 0; i < 8; i++) part = part << 8 | key[8 * j + i];
      uint64_t fraction = mix(part + (j + 1) * 0x9E3779B97F4A7C15ull);
      uint8_t rows[8], free = 0xFF;
      for (int i = 0; i < 8; i++) {
        unsigned __int128 product = (unsigned __int128)fraction * (256 - (1 << i));
        unsigned u = (unsigned)(product >> 64), value = (u >> i) + 1, t = 0;
        fraction = (uint64_t)product;
        for (int at = 0, bit = 0; at < 8; at++)
          if (free >> at & 1) t |= (value >> bit++ & 1) << at;
        rows[i] = (uint8_t)t;
        for (int m = 0; m < i; m++)
          if (u >> m & 1) rows[i] ^= rows[m];
        free ^= (uint8_t)(t & -t);
      }
      Table table, back;
      for (int x = 0; x < 256; x++) {
        uint8_t power = 1, y = 0x63;
        for (int i = 0; i < 254; i++) power = multiply(power, (uint8_t)x);
        for (int i = 0; i < 8; i++) y ^= (uint8_t)(__builtin_parity(rows[i] & power) << i);
        table[x] = y;
      }
      for (int x = 0; x < 256; x++) back[table[x]] = (uint8_t)x;
      s.push_back(table);
      inverse.push_back(back);
    }
  }

  static Block permute(const Block &b, const Table &to) {
    Block out{};
    for (int n = 0; n < 256; n++)
      if (b[n / 8] >> (n % 8) & 1) out[to[n] / 8] |= (uint8_t)(1 << (to[n] % 8));
    return out;
  }

  Block run(Block b, bool decrypt) const {
    for (unsigned i = 0; i < rounds; i++) {
      unsigned r = decrypt ? rounds - 1 - i : i, p = (k - 1 + r) % k;
      if (decrypt) b = permute(b, inverse[p]);
      for (int n = 0; n < 32; n++) {
        unsigned j = ((n / 8) % (k - 1) + r) % k;
        b[n] = decrypt ? inverse[j][b[n]] : s[j][b[n]];
      }
      if (!decrypt) b = permute(b, s[p]);
    }
    return b;
  }
};

// What a fault is XORed onto.
enum Site { SUBSTITUTION, POSITION, PERMUTED };

// Bits to invert, by number within one stage's output.
struct Fault {
  Site site;
  unsigned round;  // in the order of execution
  std::vector<unsigned> bits;
};

struct Core {
  Vibc top;
  uint64_t cycles = 0;

  void clock() {
    top.clk = 0;
    top.eval();
    top.clk = 1;
    top.eval();
    cycles++;
  }
  void write(unsigned addr, uint32_t data) {
    top.wr = 1;
    top.addr = addr;
    top.wdata = data;
    clock();
    top.wr = 0;
  }
  uint32_t read(unsigned addr) {
    top.addr = addr;
    top.eval();
    return top.rdata;
  }
  uint32_t status() { return read(1); }
  void wait() {
    for (unsigned i = 0; (status() & 1) && i < 100000; i++) clock();
  }
  void reset() {
    top.reset = 1;
    clock();
    top.reset = 0;
    wait();
  }
  static unsigned check(uint8_t v) {
    return CED == 2 ? 8 - __builtin_popcount(v) : CED == 1 ? __builtin_parity(v) : 0;
  }
  // Writes tables; `flip` inverts one stored bit of one entry.
  void load(const Model &model, int flip_entry = -1, unsigned flip_bit = 0) {
    int entry = 0;
    for (unsigned j = 0; j < model.k; j++)
      for (int back = 0; back < 2; back++)
        for (int x = 0; x < 256; x++, entry++) {
          uint8_t v = back ? model.inverse[j][x] : model.s[j][x];
          uint32_t word = v | check(v) << 8;
          if (entry == flip_entry) word ^= 1u << flip_bit;
          write(0x1000 + entry, word);
        }
  }
  void rekey(const Model &model, int flip_entry = -1, unsigned flip_bit = 0) {
    write(0, 4);
    wait();
    load(model, flip_entry, flip_bit);
  }
  void put(const Block &b) {
    for (int i = 0; i < 8; i++)
      write(8 + i, b[4 * i] | b[4 * i + 1] << 8 | b[4 * i + 2] << 16 | (uint32_t)b[4 * i + 3] << 24);
  }
  Block get() {
    Block b;
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)(read(8 + i / 4) >> (8 * (i % 4)));
    return b;
  }
  // What the registers hold, whatever the bus gives out.
  Block inside() {
    Block b;
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)(top.rootp->ibc__DOT__from[i / 4] >> (8 * (i % 4)));
    return b;
  }
  void run(const Model &model, const Block &in, bool decrypt, const Fault *fault = nullptr) {
    put(in);
    write(0, 1 | (decrypt ? 2 : 0) | model.k << 4 | model.rounds << 8);
    unsigned stage = 0, captured = 0;
    bool permuting = decrypt;
    for (unsigned i = 0; (status() & 1) && i < 100000; i++) {
      if ((bool)top.rootp->ibc__DOT__in_permutation != permuting) {
        permuting = !permuting;
        stage++;
        captured = 0;
      }
      uint64_t onto_table = 0, onto_bits = 0;
      if (fault && top.rootp->ibc__DOT__capturing) {
        bool here = stage / 2 == fault->round && permuting == (fault->site != SUBSTITUTION);
        unsigned width = fault->site == PERMUTED ? LANES : 8 * LANES;
        for (unsigned bit : fault->bits)
          if (here && bit / width == captured) (fault->site == PERMUTED ? onto_bits : onto_table) |= 1ull << (bit % width);
        captured++;
      }
      top.fault_table = onto_table;
      top.fault_bits = onto_bits;
      clock();
    }
    top.fault_table = 0;
    top.fault_bits = 0;
  }
  bool alarm() { return top.alarm; }
  void acknowledge() { write(0, 8); }
  // Bits that are not zero in any copy of the tables and in the block's registers.
  unsigned remains() {
    unsigned n = 0;
#define COPY(G)                                              \
  for (int i = 0; i < 4096; i++)                             \
    n += __builtin_popcount(top.rootp->ibc__DOT__lane__BRA__##G##__KET____DOT__ram__DOT__mem[i]);
    COPY(0)
#if LANES >= 4
    COPY(2)
#endif
#if LANES >= 8
    COPY(4)
    COPY(6)
#endif
    for (int i = 0; i < 8; i++)
      n += __builtin_popcount(top.rootp->ibc__DOT__from[i]) + __builtin_popcount(top.rootp->ibc__DOT__into[i]);
    return n;
  }
};

static Bytes unhex(const std::string &text) {
  Bytes out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) out.push_back((uint8_t)std::stoul(text.substr(i, 2), nullptr, 16));
  return out;
}
static Block block_of(const Bytes &b) {
  Block out{};
  for (size_t i = 0; i < 32; i++) out[i] = b.at(i);
  return out;
}
static const unsigned PAIRS[5][2] = {{16, 8}, {24, 10}, {32, 10}, {40, 12}, {16, 14}};

static bool failed = false;
static void require(bool holds, const char *what) {
  if (!holds) {
    failed = true;
    fprintf(stderr, "bench: does not hold: %s\n", what);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: bench VECTORS\n");
    return 2;
  }
  Core core;
  Random random{20260101};
  core.reset();
  require(core.remains() == 0, "tables are zero after a reset");

  // Nothing runs without a complete key, a complete block and a specified pair.
  unsigned refused = 0, tried = 0;
  {
    Model model(random.bytes(40), 12);
    auto refuses = [&](uint32_t control) {
      core.write(0, control);
      bool no = (core.status() & 5) == 4;
      core.wait();
      core.acknowledge();
      tried++;
      refused += no;
    };
    core.put(random.block());
    refuses(1 | 5 << 4 | 12 << 8);  // no key
    core.write(0x1001, 0);          // not the first entry
    tried++;
    refused += (core.status() & 4) != 0;
    core.acknowledge();
    core.load(model);
    core.write(0x1000, 0);  // over a complete key
    tried++;
    refused += (core.status() & 4) != 0;
    core.acknowledge();
    for (unsigned k = 0; k < 8; k++)
      for (unsigned r = 0; r < 32; r++)
        if (!(k == 5 && r == 12)) refuses(1 | k << 4 | r << 8);
    core.run(model, random.block(), false);
    refuses(1 | 5 << 4 | 12 << 8);  // the same block again
  }
  require(refused == tried, "incomplete and unspecified starts are refused");

  // Vectors, both directions.
  unsigned vectors = 0, equal = 0;
  std::ifstream file(argv[1]);
  std::string key, plain, cipher;
  unsigned rounds;
  while (file >> key >> rounds >> plain >> cipher) {
    Model model(unhex(key), rounds);
    Block p = block_of(unhex(plain)), c = block_of(unhex(cipher));
    core.rekey(model);
    core.run(model, p, false);
    bool same = core.get() == c && (core.status() & 0x10) && !core.alarm();
    core.run(model, c, true);
    same = same && core.get() == p && !core.alarm();
    vectors++;
    equal += same;
  }
  require(vectors > 0 && equal == vectors, "all vectors are equal in both directions");

  // Blocks without faults.
  unsigned clean = 0, false_alarms = 0, wrong = 0;
  uint64_t cycles[5] = {};
  for (int i = 0; i < 2000; i++) {
    static std::vector<Model> model;
    if (i % 20 == 0) {
      auto &pair = PAIRS[i / 20 % 5];
      model.assign(1, Model(random.bytes(pair[0]), pair[1]));
      core.rekey(model[0]);
    }
    Block in = random.block();
    core.put(in);
    bool decrypt = i & 1;
    uint64_t before = core.cycles;
    core.run(model[0], in, decrypt);
    cycles[i / 20 % 5] = core.cycles - before;
    clean++;
    false_alarms += core.alarm();
    wrong += core.get() != model[0].run(in, decrypt);
  }
  require(false_alarms == 0 && wrong == 0, "no false alarm and no wrong block");

  // Faults, all in one stage.
  struct Count {
    unsigned injected = 0, alarmed = 0, harmless = 0, released = 0;
  };
  auto inject = [&](Site site, unsigned bits, unsigned times) {
    Count count;
    std::vector<Model> model;
    for (unsigned i = 0; i < times; i++) {
      if (i % 100 == 0) {
        auto &pair = PAIRS[i / 100 % 5];
        model.assign(1, Model(random.bytes(pair[0]), pair[1]));
        core.rekey(model[0]);
      }
      Fault fault{site, random.below(model[0].rounds), {}};
      while (fault.bits.size() < bits) {
        unsigned bit = random.below(site == POSITION ? 2048 : 256);
        bool known = false;
        for (unsigned b : fault.bits) known |= b == bit;
        if (!known) fault.bits.push_back(bit);
      }
      Block in = random.block();
      bool decrypt = random.next() & 1;
      core.run(model[0], in, decrypt, &fault);
      Block expected = model[0].run(in, decrypt);
      count.injected++;
      count.harmless += core.inside() == expected;
      count.alarmed += core.alarm();
      // A wrong result that was given out.
      count.released += (core.status() & 0x10) && core.get() != expected;
      if (core.alarm()) {
        require(core.get() == Block{}, "nothing is read after an alarm");
        core.acknowledge();
        require(core.get() == Block{}, "nothing is read after acknowledging an alarm");
      }
    }
    return count;
  };
  const char *names[3] = {"substitution", "position", "permuted"};
  std::ostringstream single, multiple;
  for (int site = 0; site < 3; site++) {
    Count c = inject((Site)site, 1, 2000);
    single << (site ? "," : "") << "\"" << names[site] << "\":{\"injected\":" << c.injected << ",\"alarmed\":" << c.alarmed
           << ",\"without_effect\":" << c.harmless << ",\"wrong_results_released\":" << c.released << "}";
    if (CED) {
      require(c.alarmed == c.injected, "every single fault is alarmed");
      require(c.released == 0, "no wrong result is released after a single fault");
    } else require(c.alarmed == 0 && c.released + c.harmless == c.injected, "without detection faults pass");
    // A fault that changes nothing would be no test. (A wrong position may find an equal bit.)
    if (site != POSITION) require(c.harmless == 0, "single faults of data change the result");
  }
  // One stored bit of a table inverted, seen when its entry is looked up: permutations look up every entry.
  unsigned stored = 0, stored_alarmed = 0;
  for (int i = 0; i < 500; i++) {
    auto &pair = PAIRS[i % 5];
    Model model(random.bytes(pair[0]), pair[1]);
    bool decrypt = random.next() & 1;
    unsigned box = random.below(model.k), back = decrypt ? 0 : 1;
    core.rekey(model, (int)(box * 512 + back * 256 + random.below(256)), random.below(CED == 2 ? 12 : CED == 1 ? 9 : 8));
    core.run(model, random.block(), decrypt);
    stored++;
    stored_alarmed += core.alarm();
    core.acknowledge();
  }
  if (CED) require(stored_alarmed == stored, "every inverted stored bit of a permutation is alarmed");

  const unsigned weights[] = {2, 3, 4, 5, 10};
  bool first = true;
  for (unsigned n : weights)
    for (Site site : {SUBSTITUTION, PERMUTED}) {
      const unsigned times = 1000;
      Count c = inject(site, n, times);
      // Parity misses even numbers. Berger misses as many 0 to 1 as 1 to 0: C(n, n/2) / 2^n.
      double miss = 1;
      if (CED == 1) miss = n % 2 ? 0 : 1;
      if (CED == 2) {
        miss = n % 2 ? 0 : 1;
        for (unsigned i = 1; i <= n / 2 && n % 2 == 0; i++) miss = miss * (n / 2 + i) / i / 4;
      }
      double rate = (double)c.alarmed / times, z = 3.29, z2 = z * z / times;  // 99.9 %, Wilson
      double centre = (rate + z2 / 2) / (1 + z2), half = z * std::sqrt(rate * (1 - rate) / times + z2 / times / 4) / (1 + z2);
      double low = std::max(0.0, centre - half), high = std::min(1.0, centre + half), computed = 1 - miss;
      require(computed >= low - 1e-9 && computed <= high + 1e-9, "the computed rate is in the measured interval");
      if (miss == 0 || miss == 1) require(c.alarmed == (miss == 0 ? times : 0), "rates of 0 and 1 are exact");
      multiple << (first ? "" : ",") << "{\"bits\":" << n << ",\"site\":\"" << names[site] << "\",\"injected\":" << times
               << ",\"alarmed\":" << c.alarmed << ",\"computed_rate\":" << computed << ",\"interval\":[" << low << "," << high
               << "]}";
      first = false;
    }

  // Zeroisation: by the bus when idle, by the pin in the middle of a block.
  Model model(random.bytes(40), 12);
  core.rekey(model);
  core.run(model, random.block(), false);
  require(core.remains() > 1000, "tables are loaded before they are zeroised");
  core.write(0, 4);
  core.wait();
  unsigned by_bus = core.remains();
  core.load(model);
  core.put(random.block());
  core.write(0, 1 | 5 << 4 | 12 << 8);
  for (int i = 0; i < 50; i++) core.clock();
  core.top.zeroise = 1;
  core.clock();
  core.top.zeroise = 0;
  unsigned alive = core.status() & 8;
  core.wait();
  unsigned by_pin = core.remains();
  core.put(random.block());
  core.write(0, 1 | 5 << 4 | 12 << 8);
  bool keyless = (core.status() & 5) == 4;
  require(by_bus == 0 && by_pin == 0 && alive && keyless, "nothing remains after a zeroisation and nothing starts");

  std::cout << "{\"ced\":" << CED << ",\"lanes\":" << LANES << ",\"passed\":" << (failed ? "false" : "true")
            << ",\"vectors\":{\"run\":" << vectors << ",\"equal\":" << equal << "},\"refused_commands\":{\"tried\":" << tried
            << ",\"refused\":" << refused << "},\"clean\":{\"blocks\":" << clean << ",\"false_alarms\":" << false_alarms
            << ",\"wrong\":" << wrong << "},\"single\":{" << single.str() << "},\"stored_bits\":{\"injected\":" << stored
            << ",\"alarmed\":" << stored_alarmed << "},\"multiple\":[" << multiple.str()
            << "],\"zeroised\":{\"bits_left_by_bus\":" << by_bus << ",\"bits_left_by_pin\":" << by_pin
            << "},\"cycles_per_block_with_bus\":{";
  for (int i = 0; i < 5; i++)
    std::cout << (i ? "," : "") << "\"" << PAIRS[i][0] * 8 << "/" << PAIRS[i][1] << "\":" << cycles[i];
  std::cout << "}}\n";
  return failed ? 1 : 0;
}
