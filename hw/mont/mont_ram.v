// A memory with a port to write and a port to read, whose output is a register: a block RAM.
module mont_ram #(
    parameter WORD = 32,
    parameter DEPTH_BITS = 7
) (
    input  wire                  clk,
    input  wire                  we,
    input  wire [DEPTH_BITS-1:0] waddr,
    input  wire [      WORD-1:0] wdata,
    input  wire [DEPTH_BITS-1:0] raddr,
    output reg  [      WORD-1:0] q  /* verilator public_flat_rw */
);
  reg [WORD-1:0] mem[0:(1<<DEPTH_BITS)-1]  /* verilator public_flat_rw */;

  always @(posedge clk) begin
    if (we) mem[waddr] <= wdata;
    q <= mem[raddr];
  end
endmodule
