// Montgomery multiplication, addition and subtraction modulo an odd number of up to 4096 bits, and
// exponentiation with a fixed window over them. Words are WORD bits (16 or 32), the lowest first;
// a number has 8 to 4096 / WORD of them ("size"), R is 2^(WORD * size).
//
// Bus (a write takes effect at the clock edge; data are WORD bits, but for control and size):
//   0x0000  control, write only
//           [2:0] command: 1 multiply, 2 add, 3 zeroise, 4 acknowledge an error, 5 subtract, 6 power,
//                 7 constants
//           [15:8] destination, [23:16] first, [31:24] second operand: slots
//   0x0001  status: [0] busy, [1] error (a refused write), [15:8] WORD
//   0x0002  size: [8:0] words of a number, [24:16] words of the exponent; write only
//   0x0003  -1 / modulus modulo 2^WORD, write only
//   0x0004  address of a slot's word to fetch, write only; busy for a cycle
//   0x0005  the word fetched, until the next write
//   0x1000  modulus, write only
//   0x1800  exponent, write only
//   0x2000  slots, write only; a slot begins at a multiple of the size's next power of two
//
// Operands are less than the modulus (the first of a product: less than R), and then results are.
// "multiply" gives first * second / R, "power" slot 1 to the exponent, with R in slot 0 and slot 1 and
// the result in Montgomery form (a number times R); it overwrites slots 2 to 15. "constants" takes 1
// in slot 0 and leaves R there, and R^2 in the destination. Nothing depends on data or exponent but
// what is written: neither the number of cycles nor the order of operations. What addresses are read
// depends on the exponent.
module mont #(
    parameter WORD = 32
) (
    input  wire        clk,
    input  wire        reset,
    input  wire        wr,
    input  wire [13:0] addr,
    input  wire [31:0] wdata,
    output reg  [31:0] rdata,
    input  wire        zeroise,
    output wire        busy
);
  localparam INDEX = $clog2(4096 / WORD);  // bits of a word's number
  localparam SLOTS = INDEX + 4;  // bits of a word's address
  localparam DIGIT = $clog2(WORD / 4);
  localparam [12:0] SQUARINGS = (WORD == 32) ? 13'd5 : 13'd4;  // log2 of WORD
  localparam [3:0] IDLE = 4'd0, WIPE = 4'd1, FETCH = 4'd2, NEXT = 4'd3, PRODUCT = 4'd4, LOAD = 4'd5, PLUS = 4'd6,
      MINUS = 4'd7, COMPARE = 4'd8, STORE = 4'd9;
  localparam [2:0] MULTIPLY = 3'd1, ADD = 3'd2, ZEROISE = 3'd3, ACKNOWLEDGE = 3'd4, SUBTRACT = 3'd5, POWER = 3'd6,
      CONSTANTS = 3'd7;
  // What the sequencer does next.
  localparam [2:0] ONE = 3'd0, TABLE = 3'd1, FIRST = 3'd2, SQUARE = 3'd3, WINDOW = 3'd4, DOUBLE = 3'd5, AGAIN = 3'd6,
      END = 3'd7;
  // Steps of a row of a product: the row's factor, its multiple of the modulus, then the words.
  localparam [SLOTS:0] CLEAR = 8, FACTOR = 10;

  reg [3:0] state;
  reg [2:0] phase, kind, command;
  reg error, held, squaring_constant;
  reg [SLOTS:0] count;
  reg [INDEX:0] size;
  reg [INDEX-1:0] exponent_size;  // zero is the largest
  reg [3:0] shift;
  reg [7:0] target, left, right;
  reg [SLOTS-1:0] fetched;
  reg [12:0] repeats;
  reg [9:0] digit;
  reg [2:0] squarings;
  // Operands of the running operation: where they begin, and whether the accumulator is meant.
  reg [SLOTS-1:0] to, from_a, from_b;
  reg to_x, a_x, b_x;

  assign busy = (state != IDLE);
  wire idle = ~busy;

  // The bus.
  wire to_control = wr & (addr == 14'h0000);
  wire to_size = wr & (addr == 14'h0002);
  wire to_inverse = wr & (addr == 14'h0003);
  wire to_fetch = wr & (addr == 14'h0004);
  wire to_modulus = wr & (addr[13:11] == 3'b010);
  wire to_exponent = wr & (addr[13:11] == 3'b011);
  wire to_slots = wr & addr[13];
  wire wipe = reset | zeroise | (to_control & (wdata[2:0] == ZEROISE));
  wire in_number = (addr[10:INDEX] == {11 - INDEX{1'b0}});
  wire in_slots = (addr[12:SLOTS] == {13 - SLOTS{1'b0}});
  wire size_fits = (wdata[8:0] >= 9'd8) & (wdata[8:0] <= 9'd1 << INDEX) & (wdata[24:16] != 9'd0) &
      (wdata[24:16] <= 9'd1 << INDEX);
  wire size_ok = to_size & idle & size_fits;
  wire inverse_ok = to_inverse & idle;
  wire fetch_ok = to_fetch & idle & (wdata[31:SLOTS] == {32 - SLOTS{1'b0}});
  wire modulus_ok = to_modulus & idle & in_number;
  wire exponent_ok = to_exponent & idle & in_number;
  wire slots_ok = to_slots & idle & in_slots;
  function exists(input [7:0] slot, input [3:0] by);
    exists = ({16'd0, slot} << by) < (24'd16 << INDEX);
  endfunction
  wire operands = exists(wdata[23:16], shift) & exists(wdata[31:24], shift);
  wire sequenced = (wdata[2:0] == POWER) | (wdata[2:0] == CONSTANTS);
  wire works = sequenced | (wdata[2:0] == MULTIPLY) | (wdata[2:0] == ADD) | (wdata[2:0] == SUBTRACT);
  wire start_ok = to_control & idle & works & (size != 0) & exists(wdata[15:8], shift) & (sequenced | operands);
  wire acknowledge = to_control & idle & (wdata[2:0] == ACKNOWLEDGE);
  wire nothing = to_control & idle & (wdata[2:0] == 3'd0);
  wire accepted = size_ok | inverse_ok | fetch_ok | modulus_ok | exponent_ok | slots_ok | start_ok | acknowledge | nothing;

  // Memories: slots, the accumulator of "power", modulus, running sum, exponent.
  reg m_we, x_we, t_we;
  reg [SLOTS-1:0] m_to;
  reg [INDEX-1:0] t_to;
  reg [WORD-1:0] m_data, t_data;
  wire wiping = (state == WIPE);
  wire [WORD-1:0] m_q, x_q, n_q, t_q, e_q;
  reg [SLOTS-1:0] m_at;
  wire [INDEX-1:0] row = (state == WIPE) ? {INDEX{1'b0}} : word_at;
  reg [INDEX-1:0] word_at;
  mont_ram #(.WORD(WORD), .DEPTH_BITS(SLOTS)) slots (
      .clk(clk), .we(m_we), .waddr(m_to), .wdata(m_data), .raddr(m_at), .q(m_q)
  );
  mont_ram #(.WORD(WORD), .DEPTH_BITS(INDEX)) accumulator (
      .clk(clk), .we(x_we), .waddr(t_to), .wdata(m_data), .raddr(row), .q(x_q)
  );
  mont_ram #(.WORD(WORD), .DEPTH_BITS(INDEX)) modulus (
      .clk(clk), .we(wiping | modulus_ok), .waddr(wiping ? count[INDEX-1:0] : addr[INDEX-1:0]),
      .wdata(wiping ? {WORD{1'b0}} : wdata[WORD-1:0]), .raddr(row), .q(n_q)
  );
  mont_ram #(.WORD(WORD), .DEPTH_BITS(INDEX)) running (
      .clk(clk), .we(t_we), .waddr(t_to), .wdata(t_data), .raddr(row), .q(t_q)
  );
  mont_ram #(.WORD(WORD), .DEPTH_BITS(INDEX)) exponent (
      .clk(clk), .we(wiping | exponent_ok), .waddr(wiping ? count[INDEX-1:0] : addr[INDEX-1:0]),
      .wdata(wiping ? {WORD{1'b0}} : wdata[WORD-1:0]), .raddr(wiping ? {INDEX{1'b0}} : digit[9:DIGIT]), .q(e_q)
  );

  // Rows of a product.
  reg [INDEX-1:0] line;
  reg [WORD-1:0] inverse  /* verilator public_flat_rw */;
  reg [WORD-1:0] factor  /* verilator public_flat_rw */;
  reg [WORD-1:0] multiple  /* verilator public_flat_rw */;
  reg top  /* verilator public_flat_rw */;
  reg from_x, issued, issued_last, skip;
  reg [4:0] valid, ending;
  reg [INDEX-1:0] written;
  wire product = (state == PRODUCT);
  wire streaming = product & (count >= FACTOR);
  wire [SLOTS:0] position = count - FACTOR;
  wire last_word = (position == {{SLOTS - INDEX{1'b0}}, size});
  wire last_line = ({1'b0, line} == size - 1'b1);
  wire [WORD-1:0] operand = from_x ? x_q : m_q;
  wire inverting = product & (count == 6);
  wire lowest = product & (count == 2);
  wire [WORD-1:0] sum, low;
  wire high;
  wire [WORD-1:0] old = (line == 0) ? {WORD{1'b0}} : t_q;
  mont_mac #(.WORD(WORD)) mac (
      .clk(clk), .wipe(wipe), .clear(product & (count == CLEAR)), .advance(valid[3]),
      .a(inverting ? sum : (issued_last | ~(issued | lowest)) ? {WORD{1'b0}} : operand),
      .x(inverting ? inverse : factor),
      .b((issued & ~issued_last) ? n_q : {WORD{1'b0}}), .y(multiple),
      .t(issued_last ? {{WORD - 1{1'b0}}, top} : (issued | lowest) ? old : {WORD{1'b0}}),
      .sum(sum), .low(low), .high(high)
  );

  // Passes: the running sum with an operand or the modulus, a word a cycle.
  reg pass_1, pass_2, carry, over;
  reg [WORD-1:0] passed  /* verilator public_flat_rw */;
  wire passing = (state == LOAD) | (state == PLUS) | (state == MINUS) | (state == COMPARE) | (state == STORE);
  wire minus = (state == MINUS) | (state == COMPARE) | ((state == STORE) & (kind != SUBTRACT));
  wire masked = (kind == SUBTRACT) ? top : over;
  wire [WORD-1:0] pass_a = (state == LOAD) ? operand : t_q;
  wire [WORD-1:0] pass_b = (state == LOAD) ? {WORD{1'b0}} : ((state == PLUS) | (state == MINUS)) ? operand :
      ((state == STORE) & ~masked) ? {WORD{1'b0}} : n_q;
  wire [WORD:0] pass_sum = {1'b0, pass_a} + {1'b0, pass_b ^ {WORD{minus}}} + {{WORD{1'b0}}, carry};
  wire pass_end = (count == {{SLOTS - INDEX{1'b0}}, size} + 1'b1);

  // Which word of which operand is read.
  reg use_b;
  always @* begin
    use_b = (product & (count == 0)) | (state == PLUS) | (state == MINUS);
    if (product) word_at = (count == 0) ? line : streaming ? position[INDEX-1:0] : {INDEX{1'b0}};
    else word_at = count[INDEX-1:0];
    if (state == WIPE) m_at = {SLOTS{1'b0}};
    else if ((state == FETCH) | idle) m_at = fetched;
    else m_at = (use_b ? from_b : from_a) | {4'd0, word_at};
  end

  always @* begin
    m_we   = wiping | slots_ok | ((state == STORE) & pass_2 & ~to_x);
    x_we   = wiping | ((state == STORE) & pass_2 & to_x);
    m_to   = wiping ? count[SLOTS-1:0] : slots_ok ? addr[SLOTS-1:0] : to | {4'd0, written};
    m_data = wiping ? {WORD{1'b0}} : slots_ok ? wdata[WORD-1:0] : passed;
    t_we   = wiping | valid[4] | (((state == LOAD) | (state == PLUS) | (state == MINUS)) & pass_2);
    t_to   = wiping ? count[INDEX-1:0] : written;
    t_data = wiping ? {WORD{1'b0}} : valid[4] ? low : passed;
  end

  wire [3:0] wanted = (wdata[8:0] <= 9'd8) ? 4'd3 : (wdata[8:0] <= 9'd16) ? 4'd4 : (wdata[8:0] <= 9'd32) ? 4'd5 :
      (wdata[8:0] <= 9'd64) ? 4'd6 : (wdata[8:0] <= 9'd128) ? 4'd7 : 4'd8;
  function [SLOTS-1:0] place(input [7:0] slot, input [3:0] by);
    place = {{SLOTS - 8{1'b0}}, slot} << by;
  endfunction
  wire [3:0] window = e_q[4*digit[DIGIT-1:0]+:4];
  wire [SLOTS-1:0] entry = place({4'd0, window}, shift);
  wire [SLOTS-1:0] own = place(target, shift);

  always @(posedge clk) begin
    if (wipe) begin
      state <= WIPE;
      phase <= END;
      {kind, command, error, held, squaring_constant} <= 9'd0;
      count <= 0;
      {size, exponent_size, shift, target, left, right, fetched} <= 0;
      {repeats, digit, squarings, to, from_a, from_b, to_x, a_x, b_x} <= 0;
      {line, inverse, factor, multiple, top, from_x, issued, issued_last, skip, valid, ending, written} <= 0;
      {pass_1, pass_2, carry, over, passed} <= 0;
    end else begin
      if (acknowledge) error <= 1'b0;
      else if (wr & ~accepted) error <= 1'b1;
      if (wr) held <= fetch_ok;
      if (size_ok) begin
        size          <= wdata[INDEX:0];
        exponent_size <= wdata[16+:INDEX];
        shift         <= wanted;
      end
      if (inverse_ok) inverse <= wdata[WORD-1:0];
      if (fetch_ok) begin
        fetched <= wdata[SLOTS-1:0];
        state   <= FETCH;
      end
      if (start_ok) begin
        state     <= NEXT;
        command   <= wdata[2:0];
        target    <= wdata[15:8];
        left      <= wdata[23:16];
        right     <= wdata[31:24];
        phase     <= (wdata[2:0] == POWER) ? TABLE : (wdata[2:0] == CONSTANTS) ? DOUBLE : ONE;
        digit     <= {exponent_size, {DIGIT{1'b0}}} - 1'b1;
        repeats   <= (wdata[2:0] == POWER) ? 13'd2 : {size, {SQUARINGS{1'b0}}};
        squarings <= 3'd0;
      end

      // The data path: what follows a read, a cycle at a time.
      from_x      <= use_b ? b_x : a_x;
      issued      <= streaming;
      issued_last <= streaming & last_word;
      valid       <= {valid[3:0], issued};
      ending      <= {ending[3:0], issued_last};
      pass_1      <= passing & (count < {{SLOTS - INDEX{1'b0}}, size});
      pass_2      <= pass_1;
      if (pass_1) begin
        passed <= pass_sum[WORD-1:0];
        carry  <= pass_sum[WORD];
      end
      // The lowest word of a row is a multiple of 2^WORD and is left out.
      if (valid[4]) begin
        skip <= 1'b0;
        if (~skip) written <= written + 1'b1;
      end
      if (ending[4]) top <= high;
      if (pass_2) written <= written + 1'b1;

      case (state)
        WIPE: begin
          count <= count + 1'b1;
          if (count[SLOTS-1:0] == {SLOTS{1'b1}}) begin
            state <= IDLE;
            count <= 0;
          end
        end
        FETCH: state <= IDLE;
        NEXT: begin
          count   <= 0;
          line    <= 0;
          written <= 0;
          top     <= 1'b0;
          state   <= PRODUCT;
          kind    <= MULTIPLY;
          {to_x, a_x, b_x} <= 3'b000;
          to      <= own;
          from_a  <= own;
          from_b  <= own;
          case (phase)
            ONE: begin
              kind   <= command;
              from_a <= place(left, shift);
              from_b <= place(right, shift);
              state  <= (command == MULTIPLY) ? PRODUCT : LOAD;
              phase  <= END;
            end
            TABLE: begin
              to      <= place(repeats[7:0], shift);
              from_a  <= place(repeats[7:0] - 8'd1, shift);
              from_b  <= place(8'd1, shift);
              repeats <= repeats + 13'd1;
              if (repeats == 13'd15) phase <= FIRST;
            end
            FIRST: begin
              to_x   <= 1'b1;
              from_a <= 0;
              from_b <= entry;
              digit  <= digit - 10'd1;
              phase  <= SQUARE;
            end
            SQUARE: begin
              {to_x, a_x, b_x} <= 3'b111;
              squarings <= squarings + 3'd1;
              if (squarings == 3'd3) phase <= WINDOW;
            end
            WINDOW: begin
              to_x      <= (digit != 10'd0);
              a_x       <= 1'b1;
              from_b    <= entry;
              squarings <= 3'd0;
              digit     <= digit - 10'd1;
              phase     <= (digit == 10'd0) ? END : SQUARE;
            end
            DOUBLE: begin
              kind    <= ADD;
              state   <= LOAD;
              to      <= 0;
              from_a  <= 0;
              from_b  <= 0;
              repeats <= repeats - 13'd1;
              if (repeats == 13'd1) begin
                repeats <= {{12 - INDEX{1'b0}}, size};
                squaring_constant <= 1'b0;
                phase <= AGAIN;
              end
            end
            AGAIN: begin
              // 2^size * R first, then its squares: 2^(size * WORD) * R is R^2.
              kind  <= squaring_constant ? MULTIPLY : ADD;
              state <= squaring_constant ? PRODUCT : LOAD;
              if (~squaring_constant & (repeats == {{12 - INDEX{1'b0}}, size})) begin
                from_a <= 0;
                from_b <= 0;
              end
              repeats <= repeats - 13'd1;
              if (repeats == 13'd1) begin
                repeats <= SQUARINGS;
                squaring_constant <= 1'b1;
                if (squaring_constant) phase <= END;
              end
            end
            default: state <= IDLE;
          endcase
        end
        PRODUCT: begin
          count <= count + 1'b1;
          if (count == 1) begin
            factor   <= operand;
            multiple <= {WORD{1'b0}};
          end
          if (count == CLEAR) begin
            skip    <= 1'b1;
            written <= 0;
          end
          if (count == FACTOR) multiple <= sum;
          if (streaming & last_word) begin
            count <= 0;
            line  <= line + 1'b1;
            if (last_line) state <= COMPARE;
          end
        end
        LOAD, PLUS, MINUS, COMPARE, STORE: begin
          count <= count + 1'b1;
          if (count == 0) carry <= minus;
          if (pass_end) begin
            count   <= 0;
            written <= 0;
            case (state)
              LOAD: state <= (kind == ADD) ? PLUS : MINUS;
              PLUS: begin
                top   <= carry;
                state <= COMPARE;
              end
              MINUS: begin
                top   <= ~carry;
                state <= STORE;
              end
              COMPARE: begin
                over  <= top | carry;
                state <= STORE;
              end
              default: state <= NEXT;
            endcase
          end
        end
        default: ;
      endcase
    end
  end

  always @* begin
    if (addr == 14'h0001) rdata = {16'd0, WORD[7:0], 6'd0, error, busy};
    else if ((addr == 14'h0005) & held & idle) rdata = {{32 - WORD{1'b0}}, m_q};
    else rdata = 32'd0;
  end
endmodule
