// SHA-1 and SHA-256, and HMAC with either: one round a cycle, one block of 64 bytes a command.
// Words are big endian, as FIPS 180-4 has them.
//
// Bus (32-bit words, a write takes effect at the clock edge):
//   0x00  control, write only
//         [2:0] command: 1 key, 2 start, 3 zeroise, 4 acknowledge an error, 5 block, 6 finish
//         [4]   SHA-256 instead of SHA-1 (key and start)
//         [5]   HMAC instead of the hash alone (start)
//   0x01  status: [0] busy, [1] error (a refused write), [2] key ready, [3] digest ready
//   0x08..0x0f  digest, five or eight words, zero unless ready
//   0x10..0x1f  block, written in order, write only
//
// "key" takes a block with the key, filled up with zeros, and keeps the two states that HMAC begins
// with (RFC 2104, section 4). Padding of messages, and the hash of keys that are longer than a block,
// are the bus master's. An HMAC's inner state cannot be read.
module hmac (
    input  wire        clk,
    input  wire        reset,
    input  wire        wr,
    input  wire [ 4:0] addr,
    input  wire [31:0] wdata,
    output reg  [31:0] rdata,
    input  wire        zeroise,
    output wire        busy
);
  localparam IDLE = 2'd0, ROUNDS = 2'd1, SUM = 2'd2;
  // What the running block is for.
  localparam MESSAGE = 2'd0, INNER = 2'd1, OUTER = 2'd2, LAST = 2'd3;
  localparam [255:0] FIRST_256 = 256'h6a09e667_bb67ae85_3c6ef372_a54ff53a_510e527f_9b05688c_1f83d9ab_5be0cd19;
  localparam [255:0] FIRST_1 = {160'h67452301_efcdab89_98badcfe_10325476_c3d2e1f0, 96'd0};

  reg [1:0] state, purpose;
  reg wide, key_wide, keyed, key_ready, started, ready, error;
  reg [6:0] count;
  reg [4:0] words;
  reg [511:0] block  /* verilator public_flat_rd */;  // message schedule, the next word first
  reg [255:0] chain  /* verilator public_flat_rd */;  // state after the last block
  reg [255:0] work  /* verilator public_flat_rd */;  // a to h
  reg [255:0] inner  /* verilator public_flat_rd */;
  reg [255:0] outer  /* verilator public_flat_rd */;

  assign busy = (state != IDLE);
  wire idle = (state == IDLE);
  wire command = wr & (addr == 5'h00);
  wire wipe = reset | zeroise | (command & (wdata[2:0] == 3'd3));
  wire acknowledge = command & (wdata[2:0] == 3'd4) & idle;
  wire key = command & (wdata[2:0] == 3'd1);
  wire start = command & (wdata[2:0] == 3'd2);
  wire more = command & (wdata[2:0] == 3'd5);
  wire finish = command & (wdata[2:0] == 3'd6);
  wire full = (words == 5'd16);
  wire key_ok = key & idle & full;
  wire start_ok = start & idle & (~wdata[5] | (key_ready & (key_wide == wdata[4])));
  wire more_ok = more & idle & full & started;
  wire finish_ok = finish & idle & started & keyed;
  wire to_block = wr & addr[4];
  wire block_ok = to_block & idle & ((addr[3:0] == 4'd0) | ({1'b0, addr[3:0]} == words));
  wire refused = (key & ~key_ok) | (start & ~start_ok) | (more & ~more_ok) | (finish & ~finish_ok) |
      (to_block & ~block_ok) | (command & ~idle) | (wr & ~command & ~to_block);

  wire [255:0] first = wdata[4] ? FIRST_256 : FIRST_1;
  wire [255:0] own_first = wide ? FIRST_256 : FIRST_1;

  // Schedule.
  wire [31:0] w0 = block[511:480], w1 = block[479:448], w2 = block[447:416], w8 = block[255:224],
      w9 = block[223:192], w13 = block[95:64], w14 = block[63:32];
  wire [31:0] mixed = w13 ^ w8 ^ w2 ^ w0;
  wire [31:0] small0 = {w1[6:0], w1[31:7]} ^ {w1[17:0], w1[31:18]} ^ {3'd0, w1[31:3]};
  wire [31:0] small1 = {w14[16:0], w14[31:17]} ^ {w14[18:0], w14[31:19]} ^ {10'd0, w14[31:10]};
  wire [31:0] next_word = wide ? small1 + w9 + small0 + w0 : {mixed[30:0], mixed[31]};

  // Rounds.
  wire [31:0] a, b, c, d, e, f, g, h;
  assign {a, b, c, d, e, f, g, h} = work;
  wire [31:0] big0 = {a[1:0], a[31:2]} ^ {a[12:0], a[31:13]} ^ {a[21:0], a[31:22]};
  wire [31:0] big1 = {e[5:0], e[31:6]} ^ {e[10:0], e[31:11]} ^ {e[24:0], e[31:25]};
  reg [31:0] constant;
  wire [31:0] t1 = h + big1 + ((e & f) ^ (~e & g)) + constant + w0;
  wire [31:0] majority = (a & b) ^ (a & c) ^ (b & c);
  reg [31:0] logic1, constant1;
  always @* begin
    if (count < 7'd20) begin
      logic1 = (b & c) ^ (~b & d);
      constant1 = 32'h5a827999;
    end else if (count < 7'd40) begin
      logic1 = b ^ c ^ d;
      constant1 = 32'h6ed9eba1;
    end else if (count < 7'd60) begin
      logic1 = (b & c) ^ (b & d) ^ (c & d);
      constant1 = 32'h8f1bbcdc;
    end else begin
      logic1 = b ^ c ^ d;
      constant1 = 32'hca62c1d6;
    end
  end
  wire [255:0] round_256 = {t1 + big0 + majority, a, b, c, d + t1, e, f, g};
  wire [255:0] round_1 = {{a[26:0], a[31:27]} + logic1 + e + constant1 + w0, a, {b[1:0], b[31:2]}, c, d, 96'd0};
  wire last = (count == (wide ? 7'd63 : 7'd79));

  wire [255:0] from = (purpose == MESSAGE) ? chain : (purpose == LAST) ? outer : own_first;
  wire [255:0] total;
  genvar i;
  generate
    for (i = 0; i < 8; i = i + 1) begin : word
      assign total[32*i+:32] = from[32*i+:32] + work[32*i+:32];
    end
  endgenerate
  // The inner digest as the one block after the outer key: 512 + 160 or 512 + 256 bits.
  wire [511:0] wrapped = wide ? {chain, 32'h80000000, 160'd0, 64'd768} : {chain[255:96], 32'h80000000, 256'd0, 64'd672};

  always @(posedge clk) begin
    if (wipe) begin
      state     <= IDLE;
      purpose   <= MESSAGE;
      wide      <= 1'b0;
      key_wide  <= 1'b0;
      keyed     <= 1'b0;
      key_ready <= 1'b0;
      started   <= 1'b0;
      ready     <= 1'b0;
      error     <= 1'b0;
      count     <= 7'd0;
      words     <= 5'd0;
      block     <= 512'd0;
      chain     <= 256'd0;
      work      <= 256'd0;
      inner     <= 256'd0;
      outer     <= 256'd0;
    end else begin
      if (acknowledge) error <= 1'b0;
      else if (refused) error <= 1'b1;
      if (block_ok) begin
        block <= {block[479:0], wdata};
        words <= {1'b0, addr[3:0]} + 5'd1;
      end
      if (key_ok) begin
        state     <= ROUNDS;
        purpose   <= INNER;
        wide      <= wdata[4];
        key_wide  <= wdata[4];
        key_ready <= 1'b0;
        started   <= 1'b0;
        ready     <= 1'b0;
        words     <= 5'd0;
        work      <= first;
        outer     <= {block[511:256]};  // the key comes back for the second state
        chain     <= {block[255:0]};
        block     <= block ^ {64{8'h36}};
      end
      if (start_ok) begin
        wide    <= wdata[4];
        keyed   <= wdata[5];
        chain   <= wdata[5] ? inner : first;
        started <= 1'b1;
        ready   <= 1'b0;
      end
      if (more_ok) begin
        state   <= ROUNDS;
        purpose <= MESSAGE;
        work    <= chain;
        words   <= 5'd0;
        ready   <= 1'b0;
      end
      if (finish_ok) begin
        state   <= ROUNDS;
        purpose <= LAST;
        work    <= outer;
        block   <= wrapped;
        words   <= 5'd0;
        started <= 1'b0;
      end
      if (state == ROUNDS) begin
        count <= count + 7'd1;
        work  <= wide ? round_256 : round_1;
        block <= {block[479:0], next_word};
        if (last) begin
          state <= SUM;
          count <= 7'd0;
        end
      end
      if (state == SUM) begin
        state <= IDLE;
        work  <= 256'd0;
        block <= 512'd0;
        case (purpose)
          INNER: begin
            inner   <= total;
            state   <= ROUNDS;
            purpose <= OUTER;
            work    <= own_first;
            block   <= {outer, chain} ^ {64{8'h5c}};
            chain   <= 256'd0;
          end
          OUTER: begin
            outer     <= total;
            key_ready <= 1'b1;
          end
          default: begin
            chain <= total;
            ready <= (purpose == LAST) | ~keyed;
          end
        endcase
      end
    end
  end

  always @* begin
    if (addr == 5'h01) rdata = {28'd0, ready, key_ready, error, busy};
    else if ((addr[4:3] == 2'd1) & ready & idle) rdata = chain[255-32*addr[2:0]-:32];
    else rdata = 32'd0;
  end

  always @* begin
    case (count)
      7'd0: constant = 32'h428a2f98;
      7'd1: constant = 32'h71374491;
      7'd2: constant = 32'hb5c0fbcf;
      7'd3: constant = 32'he9b5dba5;
      7'd4: constant = 32'h3956c25b;
      7'd5: constant = 32'h59f111f1;
      7'd6: constant = 32'h923f82a4;
      7'd7: constant = 32'hab1c5ed5;
      7'd8: constant = 32'hd807aa98;
      7'd9: constant = 32'h12835b01;
      7'd10: constant = 32'h243185be;
      7'd11: constant = 32'h550c7dc3;
      7'd12: constant = 32'h72be5d74;
      7'd13: constant = 32'h80deb1fe;
      7'd14: constant = 32'h9bdc06a7;
      7'd15: constant = 32'hc19bf174;
      7'd16: constant = 32'he49b69c1;
      7'd17: constant = 32'hefbe4786;
      7'd18: constant = 32'h0fc19dc6;
      7'd19: constant = 32'h240ca1cc;
      7'd20: constant = 32'h2de92c6f;
      7'd21: constant = 32'h4a7484aa;
      7'd22: constant = 32'h5cb0a9dc;
      7'd23: constant = 32'h76f988da;
      7'd24: constant = 32'h983e5152;
      7'd25: constant = 32'ha831c66d;
      7'd26: constant = 32'hb00327c8;
      7'd27: constant = 32'hbf597fc7;
      7'd28: constant = 32'hc6e00bf3;
      7'd29: constant = 32'hd5a79147;
      7'd30: constant = 32'h06ca6351;
      7'd31: constant = 32'h14292967;
      7'd32: constant = 32'h27b70a85;
      7'd33: constant = 32'h2e1b2138;
      7'd34: constant = 32'h4d2c6dfc;
      7'd35: constant = 32'h53380d13;
      7'd36: constant = 32'h650a7354;
      7'd37: constant = 32'h766a0abb;
      7'd38: constant = 32'h81c2c92e;
      7'd39: constant = 32'h92722c85;
      7'd40: constant = 32'ha2bfe8a1;
      7'd41: constant = 32'ha81a664b;
      7'd42: constant = 32'hc24b8b70;
      7'd43: constant = 32'hc76c51a3;
      7'd44: constant = 32'hd192e819;
      7'd45: constant = 32'hd6990624;
      7'd46: constant = 32'hf40e3585;
      7'd47: constant = 32'h106aa070;
      7'd48: constant = 32'h19a4c116;
      7'd49: constant = 32'h1e376c08;
      7'd50: constant = 32'h2748774c;
      7'd51: constant = 32'h34b0bcb5;
      7'd52: constant = 32'h391c0cb3;
      7'd53: constant = 32'h4ed8aa4a;
      7'd54: constant = 32'h5b9cca4f;
      7'd55: constant = 32'h682e6ff3;
      7'd56: constant = 32'h748f82ee;
      7'd57: constant = 32'h78a5636f;
      7'd58: constant = 32'h84c87814;
      7'd59: constant = 32'h8cc70208;
      7'd60: constant = 32'h90befffa;
      7'd61: constant = 32'ha4506ceb;
      7'd62: constant = 32'hbef9a3f7;
      7'd63: constant = 32'hc67178f2;
      default: constant = 32'd0;
    endcase
  end

  wire unused = &{1'b0, wdata[31:6], wdata[3]};
endmodule
