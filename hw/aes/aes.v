// AES with 128, 192 and 256 bits of key, one round a cycle, and a sequencer for modes, one block a
// command. Blocks are numbers whose highest byte is the first.
//
// Bus (32-bit words, a write takes effect at the clock edge):
//   0x00  control, write only
//         [2:0]   command: 1 step, 2 expand the key, 3 zeroise, 4 acknowledge an error
//         [6:4]   mode: 0 ECB, 1 CBC, 2 CTR, 3 CFB, 4 OFB, 5 GCM, 6 CCM
//         [8]     decrypt
//         [10:9]  phase: 0 data, 1 associated data (GCM, CCM), 2 tag (GCM, CCM)
//         [15:11] valid bytes of the block, 1 to 16; the rest counts as zero and comes out as zero
//         [17:16] key size: 0 128, 1 192, 2 256 bits
//   0x01  status: [0] busy, [1] error (a refused write), [2] key ready, [3] result ready
//   0x04..0x07  block, written in order; result, zero unless ready
//   0x08..0x0f  key, written in order, write only
//   0x10..0x13  vector or first counter block, written in order, write only; the first word
//               forgets the sum of the authentication
//
// CTS is CBC with the last blocks rearranged, by whoever drives the bus. So are the formatting of
// CCM's blocks, GCM's block of lengths and its counter block (vectors of 96 bits). A tag is only
// computed here, never compared. There is no error detection in this core.
module aes #(
    parameter HASH_BITS = 8  // of a GCM block multiplied in a cycle: 1, 2, 4 or 8
) (
    input  wire        clk,
    input  wire        reset,
    input  wire        wr,
    input  wire [ 4:0] addr,
    input  wire [31:0] wdata,
    output reg  [31:0] rdata,
    input  wire        zeroise,
    output wire        busy
);
  localparam ECB = 3'd0, CBC = 3'd1, CTR = 3'd2, CFB = 3'd3, OFB = 3'd4, GCM = 3'd5, CCM = 3'd6;
  localparam DATA = 2'd0, AAD = 2'd1, TAG = 2'd2;
  localparam IDLE = 3'd0, ZERO = 3'd1, EXPAND = 3'd2, PRIME = 3'd3, CRYPT = 3'd4, HASH = 3'd5;

  reg [2:0] state  /* verilator public_flat_rd */;
  reg [2:0] mode;
  reg [1:0] phase;
  reg decrypt;  // of the message
  reg inverse;  // of the running block
  reg second;  // the second block operation of a CCM step
  reg deriving;  // the block operation that makes the hash key
  reg key_ready, ready, error;
  reg [15:0] mask;
  reg [6:0] count;  // within ZERO, CRYPT and HASH
  reg [2:0] block_words, iv_words;
  reg [3:0] key_words;
  reg [3:0] rounds;
  reg carry;

  reg [127:0] block  /* verilator public_flat_rd */;
  reg [127:0] work  /* verilator public_flat_rw */;
  reg [127:0] chain  /* verilator public_flat_rd */;
  reg [127:0] base  /* verilator public_flat_rd */;
  reg [127:0] sum  /* verilator public_flat_rd */;
  reg [127:0] hash_key  /* verilator public_flat_rd */;
  reg [127:0] multiple  /* verilator public_flat_rd */;  // hash key times a power of x
  reg [127:0] product  /* verilator public_flat_rd */;
  reg [255:0] key  /* verilator public_flat_rd */;
  reg [255:0] window  /* verilator public_flat_rd */;  // the last eight words of the schedule

  assign busy = (state != IDLE);

  // Commands.
  wire idle = (state == IDLE);
  wire command = wr & (addr == 5'h00);
  wire wipe = reset | zeroise | (command & (wdata[2:0] == 3'd3));
  wire acknowledge = command & (wdata[2:0] == 3'd4) & idle;
  wire to_block = wr & (addr[4:2] == 3'd1);
  wire to_key = wr & (addr[4:3] == 2'd1);
  wire to_iv = wr & (addr[4:2] == 3'd4);
  wire block_ok = to_block & idle & ((addr[1:0] == 2'd0) | ({1'b0, addr[1:0]} == block_words));
  wire key_ok = to_key & idle & ((addr[2:0] == 3'd0) | ({1'b0, addr[2:0]} == key_words));
  wire iv_ok = to_iv & idle & ((addr[1:0] == 2'd0) | ({1'b0, addr[1:0]} == iv_words));
  wire [1:0] size = wdata[17:16];
  wire [3:0] size_words = {1'b0, size, 1'b0} + 4'd4;
  wire expand = command & (wdata[2:0] == 3'd2);
  wire expand_ok = expand & idle & (size != 2'd3) & (key_words == size_words);
  wire step = command & (wdata[2:0] == 3'd1);
  wire [2:0] step_mode = wdata[6:4];
  wire [1:0] step_phase = wdata[10:9];
  wire [4:0] valid = wdata[15:11];
  wire sealing = (step_mode == GCM) | (step_mode == CCM);
  // A tag needs no block; whole-block modes take whole blocks; only ECB needs no vector.
  wire step_ok = step & idle & key_ready & (step_mode != 3'd7) & (step_phase != 2'd3) &
      (sealing | (step_phase == DATA)) & ((step_phase == TAG) | (block_words == 3'd4)) &
      ((step_mode == ECB) | (iv_words == 3'd4)) & (valid != 5'd0) & (valid <= 5'd16) &
      ((valid == 5'd16) | (step_mode >= CTR));
  wire known = (addr == 5'h00) | to_block | to_key | to_iv;
  wire refused = (step & ~step_ok) | (expand & ~expand_ok) | (to_block & ~block_ok) | (to_key & ~key_ok) |
      (to_iv & ~iv_ok) | (command & ~idle) | (wr & ~known);

  function [127:0] masked;
    input [127:0] value;
    input [15:0] bytes;
    integer i;
    for (i = 0; i < 16; i = i + 1) masked[127-8*i-:8] = bytes[15-i] ? value[127-8*i-:8] : 8'h00;
  endfunction

  wire [15:0] step_mask = ~(16'hffff >> valid);
  wire [127:0] next_counter = {chain[127:32], chain[31:0] + 32'd1};

  // Round keys: four memories of words, read one cycle ahead.
  wire [3:0] key_row = (state == ZERO) ? count[3:0] : window_index[5:2];
  reg [5:0] window_index;  // number of the word that is made
  reg half;
  wire [31:0] new_word;
  wire first = (state == PRIME);
  wire [3:0] ahead = first ? 4'd0 : count[3:0] + 4'd1;
  wire [3:0] read_row = (state == ZERO) ? 4'd0 : inverse ? rounds - ahead : ahead;
  wire [127:0] round_key;
  genvar g;
  generate
    for (g = 0; g < 4; g = g + 1) begin : column
      reg [31:0] words[0:15]  /* verilator public_flat_rd */;
      reg [31:0] q  /* verilator public_flat_rd */;
      wire write = (state == ZERO) | ((state == EXPAND) & half & (window_index[1:0] == g));
      always @(posedge clk) begin
        if (write) words[key_row] <= (state == ZERO) ? 32'd0 : new_word;
        q <= words[read_row];
      end
      assign round_key[127-32*g-:32] = q;
    end
  endgenerate

  // Substitution: sixteen memories with both tables; the first four make the key schedule as well.
  wire [127:0] looked_up;
  wire [127:0] next_state;
  reg [3:0] position;  // of the word within the key's length
  wire [3:0] length = {1'b0, key_size, 1'b0} + 4'd4;
  reg [1:0] key_size;
  wire [31:0] last_word = window[31:0];
  wire [31:0] schedule_in = (position == 4'd0) ? {last_word[23:0], last_word[31:24]} : last_word;
  generate
    for (g = 0; g < 16; g = g + 1) begin : lane
      wire [7:0] direct = (state == CRYPT) ? next_state[127-8*g-:8] : 8'h00;
      wire [7:0] in;
      if (g < 4) begin : both
        assign in = (state == EXPAND) ? schedule_in[31-8*g-:8] : direct;
      end else begin : only
        assign in = direct;
      end
      aes_sbox table_of_lane (
          .clk(clk),
          .addr({inverse & (state == CRYPT), in}),
          .q(looked_up[127-8*g-:8])
      );
    end
  endgenerate

  // Rounds.
  function [7:0] twice;
    input [7:0] a;
    twice = {a[6:0], 1'b0} ^ (a[7] ? 8'h1b : 8'h00);
  endfunction
  function [31:0] mix;  // one column of MixColumns
    input [31:0] c;
    reg [7:0] a, b, d, e, all;
    begin
      {a, b, d, e} = c;
      all = a ^ b ^ d ^ e;
      mix = {
        a ^ all ^ twice(a ^ b), b ^ all ^ twice(b ^ d), d ^ all ^ twice(d ^ e), e ^ all ^ twice(e ^ a)
      };
    end
  endfunction
  function [31:0] unmix;  // its inverse: MixColumns after a correction of 4 (a + c) and 4 (b + d)
    input [31:0] c;
    reg [7:0] u, v;
    begin
      u = twice(twice(c[31:24] ^ c[15:8]));
      v = twice(twice(c[23:16] ^ c[7:0]));
      unmix = mix(c ^ {u, v, u, v});
    end
  endfunction

  wire [127:0] shifted, unshifted;
  wire [127:0] keyed_back = unshifted ^ round_key;
  wire [127:0] forward, backward;
  generate
    for (g = 0; g < 4; g = g + 1) begin : mixing
      genvar r;
      for (r = 0; r < 4; r = r + 1) begin : row
        assign shifted[127-8*(4*g+r)-:8] = looked_up[127-8*(4*((g+r)%4)+r)-:8];
        assign unshifted[127-8*(4*g+r)-:8] = looked_up[127-8*(4*((g+4-r)%4)+r)-:8];
      end
      assign forward[127-32*g-:32] = mix(shifted[127-32*g-:32]) ^ round_key[127-32*g-:32];
      assign backward[127-32*g-:32] = unmix(keyed_back[127-32*g-:32]);
    end
  endgenerate
  assign next_state = (count == 7'd0) ? work ^ round_key : inverse ? backward : forward;
  wire last = (state == CRYPT) & (count == {3'd0, rounds});
  wire [127:0] result = inverse ? keyed_back : shifted ^ round_key;

  // Key schedule.
  reg [7:0] rcon;
  wire [31:0] oldest = (key_size == 2'd0) ? window[127:96] : (key_size == 2'd1) ? window[191:160] : window[255:224];
  wire [31:0] substituted = looked_up[127:96];
  assign new_word = (window_index < {2'd0, length}) ? key[255:224] :
      oldest ^ ((position == 4'd0) ? substituted ^ {rcon, 24'd0} :
                ((key_size == 2'd2) & (position == 4'd4)) ? substituted : last_word);
  wire [5:0] last_index = {rounds, 2'b11};

  // GHASH: some bits of the sum a cycle.
  localparam [31:0] HASH_LAST = 128 / HASH_BITS - 1;
  reg [127:0] next_multiple, next_product;
  integer i;
  always @* begin
    next_multiple = multiple;
    next_product  = product;
    for (i = 0; i < HASH_BITS; i = i + 1) begin
      if (sum[127-i]) next_product = next_product ^ next_multiple;
      next_multiple = {1'b0, next_multiple[127:1]} ^ (next_multiple[0] ? {8'he1, 120'd0} : 128'd0);
    end
  end

  wire [127:0] streamed = masked(block ^ result, mask);
  wire [127:0] ciphertext = decrypt ? masked(block, mask) : streamed;
  wire [127:0] plaintext = decrypt ? streamed : masked(block, mask);
  reg [127:0] operand;
  always @* begin
    case (step_mode)
      ECB: operand = block;
      CBC: operand = wdata[8] ? block : block ^ chain;
      GCM, CCM:
      operand = (step_phase == TAG) ? base : (step_phase == AAD) ? sum ^ masked(block, step_mask) : next_counter;
      default: operand = chain;
    endcase
  end

  always @(posedge clk) begin
    if (wipe) begin
      state        <= ZERO;
      count        <= 7'd0;
      block        <= 128'd0;
      work         <= 128'd0;
      chain        <= 128'd0;
      base         <= 128'd0;
      sum          <= 128'd0;
      hash_key     <= 128'd0;
      multiple     <= 128'd0;
      product      <= 128'd0;
      key          <= 256'd0;
      window       <= 256'd0;
      key_ready    <= 1'b0;
      ready        <= 1'b0;
      error        <= 1'b0;
      block_words  <= 3'd0;
      iv_words     <= 3'd0;
      key_words    <= 4'd0;
      rounds       <= 4'd10;
      key_size     <= 2'd0;
      mode         <= ECB;
      phase        <= DATA;
      decrypt      <= 1'b0;
      inverse      <= 1'b0;
      second       <= 1'b0;
      deriving     <= 1'b0;
      mask         <= 16'd0;
      carry        <= 1'b0;
      window_index <= 6'd0;
      position     <= 4'd0;
      half         <= 1'b0;
      rcon         <= 8'h01;
    end else begin
      if (acknowledge) error <= 1'b0;
      else if (refused) error <= 1'b1;

      if (block_ok) begin
        block       <= {block[95:0], wdata};
        block_words <= {1'b0, addr[1:0]} + 3'd1;
        ready       <= 1'b0;
      end
      if (iv_ok) begin
        chain    <= {chain[95:0], wdata};
        base     <= {base[95:0], wdata};
        iv_words <= {1'b0, addr[1:0]} + 3'd1;
        if (addr[1:0] == 2'd0) sum <= 128'd0;
      end
      if (key_ok) begin
        key[255-32*addr[2:0]-:32] <= wdata;
        key_words <= {1'b0, addr[2:0]} + 4'd1;
        key_ready <= 1'b0;
      end

      case (state)
        ZERO: begin
          count <= count + 7'd1;
          if (count == 7'd16) state <= IDLE;
        end
        EXPAND: begin
          half <= ~half;
          if (half) begin
            window       <= {window[223:0], new_word};
            key          <= {key[223:0], 32'd0};
            window_index <= window_index + 6'd1;
            position     <= (position == length - 4'd1) ? 4'd0 : position + 4'd1;
            if ((window_index >= {2'd0, length}) & (position == 4'd0)) rcon <= twice(rcon);
            if (window_index == last_index) begin
              state    <= PRIME;
              deriving <= 1'b1;
              work     <= 128'd0;
              window   <= 256'd0;
              key      <= 256'd0;
            end
          end
        end
        PRIME: begin
          state <= CRYPT;
          count <= 7'd0;
        end
        CRYPT: begin
          count <= count + 7'd1;
          // The counter of CTR goes on a word a cycle: a carry over 128 bits would be the longest path.
          if ((mode == CTR) & ~deriving & (count < 7'd4)) {carry, chain} <= {bumped[32], bumped[31:0], chain[127:32]};
          if (last) begin
            state <= IDLE;
            work  <= 128'd0;
            if (deriving) begin
              deriving  <= 1'b0;
              hash_key  <= result;
              key_ready <= 1'b1;
            end else begin
              ready <= (phase != AAD);
              case (mode)
                ECB: block <= result;
                CBC: begin
                  block <= decrypt ? result ^ chain : result;
                  chain <= decrypt ? block : result;
                end
                CTR: block <= streamed;
                CFB: begin
                  block <= streamed;
                  chain <= decrypt ? block : block ^ result;
                end
                OFB: begin
                  block <= streamed;
                  chain <= result;
                end
                GCM: begin
                  if (phase == TAG) block <= result ^ sum;
                  else begin
                    block    <= streamed;
                    sum      <= sum ^ ciphertext;
                    state    <= HASH;
                    count    <= 7'd0;
                    multiple <= hash_key;
                    product  <= 128'd0;
                  end
                end
                default: begin  // CCM
                  if (phase == TAG) block <= result ^ sum;
                  else if ((phase == AAD) | second) sum <= result;
                  else begin
                    block  <= streamed;
                    work   <= sum ^ plaintext;
                    second <= 1'b1;
                    state  <= PRIME;
                    ready  <= 1'b0;
                  end
                end
              endcase
            end
          end
        end
        HASH: begin
          count    <= count + 7'd1;
          multiple <= next_multiple;
          product  <= next_product;
          sum      <= sum << HASH_BITS;
          if (count == HASH_LAST[6:0]) begin
            state    <= IDLE;
            sum      <= next_product;
            multiple <= 128'd0;
            product  <= 128'd0;
          end
        end
        default: begin
          if (expand_ok) begin
            state        <= EXPAND;
            key_size     <= size;
            rounds       <= {1'b0, size, 1'b0} + 4'd10;
            window_index <= 6'd0;
            position     <= 4'd0;
            half         <= 1'b0;
            rcon         <= 8'h01;
            key_words    <= 4'd0;
            inverse      <= 1'b0;
            key_ready    <= 1'b0;
          end
          if (step_ok) begin
            mode        <= step_mode;
            phase       <= step_phase;
            decrypt     <= wdata[8];
            inverse     <= wdata[8] & (step_mode <= CBC);
            mask        <= step_mask;
            second      <= 1'b0;
            carry       <= 1'b1;
            count       <= 7'd0;
            block_words <= 3'd0;
            ready       <= 1'b0;
            work        <= operand;
            if (sealing & (step_phase == DATA)) chain <= next_counter;
            if ((step_mode == GCM) & (step_phase == AAD)) begin
              state    <= HASH;
              sum      <= operand;
              work     <= 128'd0;
              multiple <= hash_key;
              product  <= 128'd0;
            end else state <= PRIME;
          end
        end
      endcase
    end
  end
  wire [32:0] bumped = {1'b0, chain[31:0]} + {32'd0, carry};

  always @* begin
    if (addr == 5'h01) rdata = {28'd0, ready, key_ready, error, busy};
    else if ((addr[4:2] == 3'd1) & ready & idle) rdata = block[127-32*addr[1:0]-:32];
    else rdata = 32'd0;
  end

  wire unused = &{1'b0, HASH_LAST[31:7], wdata[31:18], wdata[7], wdata[3], CFB, OFB};
endmodule
