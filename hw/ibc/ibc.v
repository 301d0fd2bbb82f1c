// INDECT Block Cipher: one block at a time, key-dependent tables in block RAM.
//
// Bus (32-bit words, a write takes effect at the clock edge):
//   0x1000 + {S-box[2:0], inverse, input[7:0]}  write only: table entry, value in [7:0], its check
//          value above it. Entries must come in ascending order from S-box 0 after a zeroisation;
//          anything else is refused, so a key is complete or not usable.
//   0x000  control: [0] start, [1] decrypt, [2] zeroise, [3] acknowledge alarm and error,
//          [6:4] S-boxes, [12:8] rounds
//   0x001  status: [0] busy, [1] alarm, [2] error (a refused write), [3] zeroising, [4] result ready
//   0x008..0x00f  block, little endian, written in order; reads as zero without a result
//
// No result can be read after an alarm. Tables cannot be read at all.
module ibc #(
    parameter CED   = 0,  // 0 none, 1 parity, 2 Berger
    parameter LANES = 8   // bytes substituted and bits permuted in a cycle: 2, 4 or 8
) (
    input  wire               clk,
    input  wire               reset,
    input  wire               wr,
    input  wire [12:0]        addr,
    input  wire [31:0]        wdata,
    output reg  [31:0]        rdata,
    input  wire               zeroise,
    // Fault injection, for tests: tie to zero elsewhere. XORed onto what the tables give
    // (bytes of a substitution, positions of a permutation) and onto permuted bits.
    input  wire [8*LANES-1:0] fault_table,
    input  wire [LANES-1:0]   fault_bits,
    output wire               busy,
    output reg                alarm
);
  localparam CW = (CED == 2) ? 4 : (CED == 1) ? 1 : 0;
  localparam WIDTH = 8 + CW;
  localparam [31:0] SUB_STEPS = 32 / LANES;
  localparam [31:0] PERM_STEPS = 256 / LANES;

  localparam IDLE = 2'd0, ZERO = 2'd1, RUN = 2'd2;
  reg [1:0] mode;
  reg decrypt, permuting, error, ready;
  reg [2:0] boxes;  // S-boxes of the running block
  reg [3:0] left;  // rounds after this one
  reg [2:0] turn;  // round modulo S-boxes
  reg [8:0] step;  // lookups issued in this stage
  reg [3:0] words;  // words of the block that have come
  reg [11:0] loaded;  // table entries since the zeroisation; address while zeroising
  reg [255:0] from  /* verilator public_flat_rd */;
  reg [255:0] into  /* verilator public_flat_rd */;

  assign busy = (mode != IDLE);
  // For benches: where in a block the core is.
  wire capturing  /* verilator public_flat_rd */ = capture;
  wire in_permutation  /* verilator public_flat_rd */ = permuting;

  // Commands.
  wire command = wr & (addr == 13'h0000);
  wire idle = (mode == IDLE);
  wire wipe = reset | zeroise | (command & wdata[2]);
  wire to_table = wr & addr[12];
  wire table_ok = to_table & idle & (addr[11:0] == loaded) & (loaded < 12'd2560);
  wire to_block = wr & (addr[12:3] == 10'd1);
  wire block_ok = to_block & idle & ((addr[2:0] == 3'd0) | ({1'b0, addr[2:0]} == words));
  wire [2:0] k = wdata[6:4];
  wire [4:0] rounds = wdata[12:8];
  // Exactly the specified pairs of key size and rounds.
  wire pair_ok = ((k == 3'd2) & ((rounds == 5'd8) | (rounds == 5'd14))) | ((k == 3'd3) & (rounds == 5'd10)) |
      ((k == 3'd4) & (rounds == 5'd10)) | ((k == 3'd5) & (rounds == 5'd12));
  wire start = command & wdata[0];
  wire start_ok = start & idle & pair_ok & ~alarm & ~wdata[3] & (words == 4'd8) & (loaded == {k, 9'd0});

  // Which S-box: the first lane's sub-block decides, as LANES divides its eight bytes.
  localparam SHIFT = (LANES == 8) ? 0 : (LANES == 4) ? 1 : 2;
  wire [8:0] scaled = step >> SHIFT;
  wire [1:0] quarter = scaled[1:0];
  reg [2:0] offset;
  always @* begin
    case (boxes)
      3'd3: offset = {2'b00, quarter[0]};
      3'd4: offset = (quarter == 2'd3) ? 3'd0 : {1'b0, quarter};
      3'd5: offset = {1'b0, quarter};
      default: offset = 3'd0;
    endcase
  end
  wire [3:0] sum = {1'b0, offset} + {1'b0, turn};
  wire [3:0] wrapped = (sum >= {1'b0, boxes}) ? sum - {1'b0, boxes} : sum;
  wire [2:0] previous = (turn == 3'd0) ? boxes - 3'd1 : turn - 3'd1;
  wire [2:0] box = permuting ? previous : wrapped[2:0];

  // Result bit n of a permutation is input bit T(n), with T the inverse S-box when encrypting: the
  // stages of one direction use both tables.
  wire inverse = decrypt ^ permuting;

  wire running = (mode == RUN);
  wire [8:0] steps = permuting ? PERM_STEPS[8:0] : SUB_STEPS[8:0];
  wire issue = running & (step < steps);
  wire capture = running & (step != 9'd0) & (step <= steps);
  wire compare = running & (step == steps + 9'd1);

  wire table_we = (mode == ZERO) | table_ok;
  wire [WIDTH-1:0] table_data = (mode == ZERO) ? {WIDTH{1'b0}} : wdata[WIDTH-1:0];
  wire [8*LANES-1:0] values;
  wire [LANES-1:0] bits;

  genvar g;
  generate
    for (g = 0; g < LANES; g = g + 2) begin : lane
      wire [WIDTH-1:0] q_a, q_b;
      // Positions of a permutation in this step; a lane's place is constant in the low bits.
      wire [31:0] position = {23'd0, step} * LANES + g;
      wire [7:0] x_a = permuting ? position[7:0] : from[8*g+:8];
      wire [7:0] x_b = permuting ? {position[7:1], 1'b1} : from[8*g+8+:8];
      ibc_table #(.WIDTH(WIDTH)) ram (
          .clk(clk),
          .we(table_we),
          .wdata(table_data),
          .addr_a(table_we ? loaded : {box, inverse, x_a}),
          .addr_b({box, inverse, x_b}),
          .q_a(q_a),
          .q_b(q_b)
      );
      assign values[8*g+:16] = {q_b[7:0], q_a[7:0]} ^ fault_table[8*g+:16];
      assign bits[g] = from[values[8*g+:8]] ^ fault_bits[g];
      assign bits[g+1] = from[values[8*g+8+:8]] ^ fault_bits[g+1];
      wire unused = &{1'b0, position[31:8], position[0]};
    end
  endgenerate

  wire differs;
  generate
    if (CED == 0) begin : no_check
      assign differs = 1'b0;
    end else begin : check
      wire [CW*LANES-1:0] checks;
      for (g = 0; g < LANES; g = g + 2) begin : of_lane
        assign checks[CW*g+:CW] = lane[g].q_a[8+:CW];
        assign checks[CW*(g+1)+:CW] = lane[g].q_b[8+:CW];
      end
      ibc_check #(.CED(CED), .LANES(LANES), .CW(CW)) unit (
          .clk(clk),
          .clear(wipe),
          .load(block_ok),
          .load_first(addr[2:0] == 3'd0),
          .word(wdata),
          .capture(capture),
          .permuting(permuting),
          .bytes(values),
          .checks(checks),
          .bits(bits),
          .compare(compare),
          .differs(differs)
      );
    end
  endgenerate

  // Encryption substitutes first, decryption permutes first.
  wire round_done = compare & (permuting ^ decrypt);

  always @(posedge clk) begin
    if (wipe) begin
      mode      <= ZERO;
      loaded    <= 12'd0;
      from      <= 256'd0;
      into      <= 256'd0;
      words     <= 4'd0;
      step      <= 9'd0;
      ready     <= 1'b0;
      alarm     <= 1'b0;
      error     <= 1'b0;
      decrypt   <= 1'b0;
      permuting <= 1'b0;
      boxes     <= 3'd2;
      left      <= 4'd0;
      turn      <= 3'd0;
    end else begin
      if (command & wdata[3] & idle) begin
        alarm <= 1'b0;
        error <= 1'b0;
      end else if ((start & ~start_ok) | (to_table & ~table_ok) | (to_block & ~block_ok)) error <= 1'b1;

      if (mode == ZERO) begin
        loaded <= loaded + 12'd1;
        if (loaded == 12'hfff) mode <= IDLE;  // and loaded is 0 again
      end
      if (table_ok) loaded <= loaded + 12'd1;
      if (block_ok) begin
        from  <= {wdata, from[255:32]};
        words <= {1'b0, addr[2:0]} + 4'd1;
        ready <= 1'b0;
      end
      if (start_ok) begin
        mode      <= RUN;
        decrypt   <= wdata[1];
        permuting <= wdata[1];
        boxes     <= k;
        left      <= rounds[3:0] - 4'd1;
        // The last round modulo the S-boxes, for the five pairs.
        turn      <= (wdata[1] & (k != 3'd3)) ? 3'd1 : 3'd0;
        step      <= 9'd0;
        words     <= 4'd0;
        ready     <= 1'b0;
      end
      if (running) step <= compare ? 9'd0 : step + 9'd1;
      if (issue & ~permuting) from <= from >> (8 * LANES);
      if (capture) into <= permuting ? {bits, into[255:LANES]} : {values, into[255:8*LANES]};
      if (compare) begin
        from      <= into;
        permuting <= ~permuting;
      end
      if (differs) alarm <= 1'b1;
      if (round_done) begin
        if (left == 4'd0) begin
          mode  <= IDLE;
          ready <= ~alarm & ~differs;
        end else left <= left - 4'd1;
        if (decrypt) turn <= previous;
        else turn <= (turn == boxes - 3'd1) ? 3'd0 : turn + 3'd1;
      end
    end
  end

  always @* begin
    if (addr == 13'h0001) rdata = {27'd0, ready, mode == ZERO, error, alarm, busy};
    else if ((addr[12:3] == 10'd1) & ready & idle & ~alarm) rdata = from[{addr[2:0], 5'd0}+:32];
    else rdata = 32'd0;
  end

  wire unused = &{1'b0, wdata[31:13], wdata[7], scaled[8:2], wrapped[3], capture};
endmodule
