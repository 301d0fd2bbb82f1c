// Concurrent error detection: compares what the datapath wrote with what was predicted.
//
// Every table entry carries the check value of its own byte (one parity bit, or its number of zero
// bits). A second sum over these predicts the sum over the bytes that came out. A permutation of
// bits changes neither parity nor number of zeros: its prediction is the check value of its input.
module ibc_check #(
    parameter CED   = 1,  // 1 parity, 2 Berger
    parameter LANES = 8,
    parameter CW    = 1   // check bits per table entry
) (
    input  wire               clk,
    input  wire               clear,       // forgets all sums
    input  wire               load,        // a word of the block arrives
    input  wire               load_first,  // it is the block's first
    input  wire [31:0]        word,
    input  wire               capture,     // the lanes hold results
    input  wire               permuting,
    input  wire [8*LANES-1:0] bytes,       // table outputs
    input  wire [CW*LANES-1:0] checks,     // their check values
    input  wire [LANES-1:0]   bits,        // permuted bits
    input  wire               compare,     // end of a stage
    output wire               differs
);
  // Berger: 256 lookups of 8 bits have at most 2048 zeros; 12 bits hold that exactly.
  localparam W = (CED == 2) ? 12 : 1;

  reg [W-1:0] block_sum;  // of the block as the previous stage left it
  reg [W-1:0] actual, predicted, gathered;
  reg [W-1:0] new_word, new_bytes, new_checks, new_bits;

  generate
    if (CED == 2) begin : berger
      integer i;
      always @* begin
        new_word = 0;
        for (i = 0; i < 32; i = i + 1) new_word = new_word + {{(W - 1) {1'b0}}, ~word[i]};
        new_bytes = 0;
        for (i = 0; i < 8 * LANES; i = i + 1) new_bytes = new_bytes + {{(W - 1) {1'b0}}, ~bytes[i]};
        new_checks = 0;
        for (i = 0; i < LANES; i = i + 1) new_checks = new_checks + {{(W - CW) {1'b0}}, checks[CW*i+:CW]};
        new_bits = 0;
        for (i = 0; i < LANES; i = i + 1) new_bits = new_bits + {{(W - 1) {1'b0}}, ~bits[i]};
      end
      always @(posedge clk) begin
        if (clear) block_sum <= 0;
        else if (load) block_sum <= (load_first ? {W{1'b0}} : block_sum) + new_word;
        else if (compare) block_sum <= permuting ? gathered : actual;
        if (clear | compare) begin
          actual    <= 0;
          predicted <= 0;
          gathered  <= 0;
        end else if (capture) begin
          actual    <= actual + new_bytes;
          predicted <= predicted + new_checks;
          gathered  <= gathered + new_bits;
        end
      end
    end else begin : parity
      always @* begin
        new_word   = ^word;
        new_bytes  = ^bytes;
        new_checks = ^checks;
        new_bits   = ^bits;
      end
      always @(posedge clk) begin
        if (clear) block_sum <= 0;
        else if (load) block_sum <= (load_first ? 1'b0 : block_sum) ^ new_word;
        else if (compare) block_sum <= permuting ? gathered : actual;
        if (clear | compare) begin
          actual    <= 0;
          predicted <= 0;
          gathered  <= 0;
        end else if (capture) begin
          actual    <= actual ^ new_bytes;
          predicted <= predicted ^ new_checks;
          gathered  <= gathered ^ new_bits;
        end
      end
    end
  endgenerate

  assign differs = compare & ((actual != predicted) | (permuting & (gathered != block_sum)));
endmodule
