// Key-dependent tables for two lookups per cycle: one dual-port block RAM with one write port.
//
// Address {S-box, direction, input}. No read happens in a cycle that writes, so that no family
// needs logic for collisions.
module ibc_table #(
    parameter WIDTH = 8
) (
    input  wire             clk,
    input  wire             we,
    input  wire [WIDTH-1:0] wdata,
    input  wire [11:0]      addr_a,  // also the address of a write
    input  wire [11:0]      addr_b,
    output reg  [WIDTH-1:0] q_a,
    output reg  [WIDTH-1:0] q_b
);
  reg [WIDTH-1:0] mem[0:4095]  /* verilator public_flat_rd */;

  always @(posedge clk) begin
    if (we) mem[addr_a] <= wdata;
    else begin
      q_a <= mem[addr_a];
      q_b <= mem[addr_b];
    end
  end
endmodule
