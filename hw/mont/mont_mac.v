// a * x + b * y + t + carry, a word at a time: the sum's low word goes out, the rest is carried.
//
// Six cycles from the operands to `low`: partial products of half words (a multiplier of 18 bits
// does one), their sums, and last the carry, which alone depends on the word before. `sum` is what
// has been added up before the carry; it is there two cycles earlier.
module mont_mac #(
    parameter WORD = 32
) (
    input  wire            clk,
    input  wire            wipe,
    input  wire            clear,   // no carry into the next word
    input  wire            advance, // a sum goes into the carry
    input  wire [WORD-1:0] a,
    input  wire [WORD-1:0] x,
    input  wire [WORD-1:0] b,
    input  wire [WORD-1:0] y,
    input  wire [WORD-1:0] t,
    output wire [WORD-1:0] sum,
    output reg  [WORD-1:0] low  /* verilator public_flat_rw */,
    output wire            high     // the carry's lowest bit
);
  localparam HALF = WORD / 2;
  reg [WORD-1:0] a00, a01, a10, a11, b00, b01, b10, b11, t1, t2;
  reg [WORD:0] middle_a, middle_b;
  reg [2*WORD:0] outer1, outer2;
  reg [WORD+1:0] middle;
  reg [2*WORD:0] total  /* verilator public_flat_rw */;
  reg [WORD:0] carry  /* verilator public_flat_rw */;

  assign sum = total[WORD-1:0];
  assign high = carry[0];
  wire [2*WORD:0] with_carry = total + {{WORD{1'b0}}, carry};

  always @(posedge clk) begin
    if (wipe) begin
      {a00, a01, a10, a11, b00, b01, b10, b11, t1, t2} <= {10 * WORD{1'b0}};
      {middle_a, middle_b, outer1, outer2, middle, total} <= {3 * (2 * WORD + 1) + 3 * WORD + 4{1'b0}};
      carry <= {WORD + 1{1'b0}};
      low   <= {WORD{1'b0}};
    end else begin
      a00     <= {{HALF{1'b0}}, a[HALF-1:0]} * {{HALF{1'b0}}, x[HALF-1:0]};
      a01     <= {{HALF{1'b0}}, a[HALF-1:0]} * {{HALF{1'b0}}, x[WORD-1:HALF]};
      a10     <= {{HALF{1'b0}}, a[WORD-1:HALF]} * {{HALF{1'b0}}, x[HALF-1:0]};
      a11     <= {{HALF{1'b0}}, a[WORD-1:HALF]} * {{HALF{1'b0}}, x[WORD-1:HALF]};
      b00     <= {{HALF{1'b0}}, b[HALF-1:0]} * {{HALF{1'b0}}, y[HALF-1:0]};
      b01     <= {{HALF{1'b0}}, b[HALF-1:0]} * {{HALF{1'b0}}, y[WORD-1:HALF]};
      b10     <= {{HALF{1'b0}}, b[WORD-1:HALF]} * {{HALF{1'b0}}, y[HALF-1:0]};
      b11     <= {{HALF{1'b0}}, b[WORD-1:HALF]} * {{HALF{1'b0}}, y[WORD-1:HALF]};
      t1      <= t;
      middle_a <= {1'b0, a01} + {1'b0, a10};
      middle_b <= {1'b0, b01} + {1'b0, b10};
      outer1  <= {1'b0, a11, a00} + {1'b0, b11, b00};
      t2      <= t1;
      middle   <= {1'b0, middle_a} + {1'b0, middle_b};
      outer2  <= outer1 + {{WORD + 1{1'b0}}, t2};
      total   <= outer2 + {{HALF - 1{1'b0}}, middle, {HALF{1'b0}}};
      if (clear) carry <= {WORD + 1{1'b0}};
      else if (advance) carry <= with_carry[2*WORD:WORD];
      if (advance) low <= with_carry[WORD-1:0];
    end
  end
endmodule
