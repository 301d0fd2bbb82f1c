// The core without inputs for faults, as it would stand in a device: for place and route.
module ibc_top #(
    parameter CED   = 0,
    parameter LANES = 8
) (
    input  wire        clk,
    input  wire        reset,
    input  wire        wr,
    input  wire [12:0] addr,
    input  wire [31:0] wdata,
    output wire [31:0] rdata,
    input  wire        zeroise,
    output wire        busy,
    output wire        alarm
);
  ibc #(.CED(CED), .LANES(LANES)) core (
      .clk(clk),
      .reset(reset),
      .wr(wr),
      .addr(addr),
      .wdata(wdata),
      .rdata(rdata),
      .zeroise(zeroise),
      .fault_table({8 * LANES{1'b0}}),
      .fault_bits({LANES{1'b0}}),
      .busy(busy),
      .alarm(alarm)
  );
endmodule
