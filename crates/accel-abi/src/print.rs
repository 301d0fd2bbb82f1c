//! The C header and the register manual, made from the tables.

use alloc::string::String;
use core::fmt::Write;

use crate::descriptor::{self, Algorithm, FIELDS, Mode, Operation};
use crate::register::{Field, REGISTERS};
use crate::{Segment, Status, window};

/// Bounds with the names they have in the header.
const BOUNDS: &[(&str, u64, &str)] = &[
    (
        "RING_MIN",
        crate::RING_MIN as u64,
        "Fewest descriptors of a ring",
    ),
    (
        "RING_MAX",
        crate::RING_MAX as u64,
        "Most descriptors of a ring; a power of two",
    ),
    (
        "SEGMENTS_MAX",
        crate::SEGMENTS_MAX as u64,
        "Most entries of a segment list, links included",
    ),
    (
        "TRANSFER_MAX",
        crate::TRANSFER_MAX as u64,
        "Most bytes of a source or destination",
    ),
    (
        "AAD_MAX",
        crate::AAD_MAX as u64,
        "Most bytes of associated data",
    ),
    ("KEY_MAX", crate::KEY_MAX as u64, "Most bytes of a key"),
    ("KEY_SLOTS", crate::KEY_SLOTS as u64, "Key slots"),
    (
        "SHOT_MAX",
        crate::SHOT_MAX as u64,
        "Most bytes of a single shot's vector and source, and of its result",
    ),
];

/// Lines of a text that is written into memory, which cannot fail.
struct Page(String);

impl Page {
    fn line(&mut self, line: core::fmt::Arguments<'_>) {
        let written = self.0.write_fmt(line);
        debug_assert!(written.is_ok(), "a String takes everything");
        self.0.push('\n');
    }
}

/// Numbers of a field's bits: one, or the highest and the lowest.
fn bits(field: &Field) -> String {
    let mut bits = Page(String::new());
    match field.width {
        1 => bits.line(format_args!("{}", field.shift)),
        width => bits.line(format_args!("{}:{}", field.shift + width - 1, field.shift)),
    }
    bits.0.truncate(bits.0.trim_end().len());
    bits.0
}

/// The header for drivers in C.
pub fn c_header() -> String {
    let mut page = Page(String::new());
    let p = &mut page;
    p.line(format_args!(
        "/* Interface of Cordon's accelerator. Made by accel-abi; change it there. */"
    ));
    p.line(format_args!(
        "#ifndef CORDON_ACCEL_H\n#define CORDON_ACCEL_H\n\n#ifdef __KERNEL__\n#include <linux/types.h>\n#else\n#include <stdint.h>\n#endif\n"
    ));
    p.line(format_args!(
        "#define CORDON_ACCEL_ID_VALUE {:#010x}u",
        crate::ID
    ));
    p.line(format_args!(
        "#define CORDON_ACCEL_VERSION_VALUE {}u",
        crate::VERSION
    ));
    p.line(format_args!(
        "#define CORDON_ACCEL_PAGE {}u",
        crate::register::PAGE
    ));
    for (name, value, text) in BOUNDS {
        p.line(format_args!(
            "#define CORDON_ACCEL_{name} {value}u /* {text} */"
        ));
    }
    p.line(format_args!(
        "\n/* Registers: offsets in bytes, and their bits. */"
    ));
    for entry in REGISTERS {
        let access = entry.access.abbreviation();
        p.line(format_args!(
            "#define CORDON_ACCEL_{} {:#05x}u /* {access} */",
            entry.name, entry.register.0
        ));
        for field in entry.fields {
            p.line(format_args!(
                "#define CORDON_ACCEL_{}_{} {:#x}u",
                entry.name,
                field.name,
                field.mask()
            ));
        }
    }
    p.line(format_args!(
        "\n/* The register window: places in a page of shared memory. */"
    ));
    for (offset, name, _) in window::PLACES {
        p.line(format_args!(
            "#define CORDON_ACCEL_WINDOW_{name} {offset:#05x}u"
        ));
    }
    p.line(format_args!(
        "#define CORDON_ACCEL_WINDOW_QUEUE_LENGTH {}u",
        window::QUEUE_LENGTH
    ));
    p.line(format_args!("\n/* Numbers in descriptors. */"));
    for (number, name, _) in Operation::ALL {
        p.line(format_args!(
            "#define CORDON_ACCEL_OPERATION_{name} {}u",
            number.0
        ));
    }
    for (number, name, _) in Algorithm::ALL {
        p.line(format_args!(
            "#define CORDON_ACCEL_ALGORITHM_{name} {}u",
            number.0
        ));
    }
    for (number, name, _) in Mode::ALL {
        p.line(format_args!(
            "#define CORDON_ACCEL_MODE_{name} {}u",
            number.0
        ));
    }
    p.line(format_args!(
        "#define CORDON_ACCEL_OWNED {:#x}u",
        descriptor::OWNED
    ));
    for (number, name, _) in Status::ALL {
        p.line(format_args!(
            "#define CORDON_ACCEL_STATUS_{name} {}u",
            number.0
        ));
    }
    p.line(format_args!("\n/* A request in the ring; all numbers are little endian. */\nstruct cordon_accel_descriptor {{"));
    for field in FIELDS {
        match field.count {
            1 => p.line(format_args!("\t{} {};", field.c_type, field.name)),
            n => p.line(format_args!("\t{} {}[{n}];", field.c_type, field.name)),
        }
    }
    p.line(format_args!(
        "}};\n\n/* An entry of a segment list. */\nstruct cordon_accel_segment {{"
    ));
    p.line(format_args!(
        "\tuint64_t address;\n\tuint32_t length;\n\tuint16_t flags;\n\tuint16_t check;\n}};"
    ));
    p.line(format_args!(
        "#define CORDON_ACCEL_SEGMENT_LAST {:#x}u",
        Segment::LAST
    ));
    p.line(format_args!(
        "#define CORDON_ACCEL_SEGMENT_LINK {:#x}u",
        Segment::LINK
    ));
    p.line(format_args!("\n#endif"));
    page.0
}

/// The register manual, in Markdown.
pub fn manual() -> String {
    let mut page = Page(String::new());
    let p = &mut page;
    p.line(format_args!(
        "# Registers and descriptors of the accelerator\n"
    ));
    p.line(format_args!(
        "Version {}. Made by `accel-abi`; change it there. The interface is our own and compatible with no vendor's.\n",
        crate::VERSION
    ));
    p.line(format_args!(
        "A driver allocates a ring in memory that it has registered with the device, writes the ring registers, sets ENABLE, fills \
         descriptors in order and writes their number to PRODUCER. The device takes them in order, one at a time. It reads the whole \
         source before it writes, writes nothing if its core gave an alarm, and writes `status` and `echo` last, in one aligned write \
         of eight bytes. A completion counts only if `echo` is the sequence number. The device computes tags and never compares them.\n"
    ));
    p.line(format_args!(
        "A single shot needs no ring and no registered memory: the driver writes vector and source to SHOT_DATA, what is asked for to \
         SHOT_COMMAND, SHOT_LENGTHS and SHOT_SIZES, a number to SHOT_START, reads SHOT_STATUS until the number is there, and then the \
         result from SHOT_DATA. Writing SHOT_COMMAND once more clears it.\n"
    ));
    p.line(format_args!(
        "All numbers are little endian. Unlisted numbers and bits are reserved.\n"
    ));
    p.line(format_args!(
        "## Bounds\n\n| name | value | meaning |\n|---|---|---|"
    ));
    for (name, value, text) in BOUNDS {
        p.line(format_args!("| {name} | {value} | {text} |"));
    }
    p.line(format_args!(
        "\n## Registers\n\n| offset | name | access | bits | meaning |\n|---|---|---|---|---|"
    ));
    for entry in REGISTERS {
        let (name, access) = (entry.name, entry.access.abbreviation());
        p.line(format_args!(
            "| {:#05x} | {name} | {access} | 31:0 | {} |",
            entry.register.0, entry.text
        ));
        for field in entry.fields {
            p.line(format_args!(
                "| | {name}.{} | | {} | {} |",
                field.name,
                bits(field),
                field.text
            ));
        }
    }
    p.line(format_args!(
        "\n## Register window\n\nWhere a device is reached by shared memory, nobody sees an access to a register. A page that both map \
         takes the registers' place: a write is posted into a queue, and a doorbell outside of the page follows; a read waits until all \
         writes before it were taken, and then takes the word from the mirror. The driver goes on with the numbers that it finds. A queue with \
         more than {} writes posted and not taken halts the window.\n\n| offset | name | meaning |\n|---|---|---|",
        window::QUEUE_LENGTH
    ));
    for (offset, name, text) in window::PLACES {
        p.line(format_args!("| {offset:#05x} | {name} | {text} |"));
    }
    p.line(format_args!(
        "\n## Descriptor\n\n{} bytes.\n\n| offset | name | type | meaning |\n|---|---|---|---|",
        descriptor::SIZE
    ));
    for field in FIELDS {
        match field.count {
            1 => p.line(format_args!(
                "| {} | {} | {} | {} |",
                field.offset, field.name, field.c_type, field.text
            )),
            n => p.line(format_args!(
                "| {} | {} | {}[{n}] | {} |",
                field.offset, field.name, field.c_type, field.text
            )),
        }
    }
    p.line(format_args!(
        "\n## Segment\n\n{} bytes: `address` (8), `length` (4), `flags` (2), `check` (2): CRC-16-CCITT of the 14 bytes before it.\n",
        Segment::SIZE
    ));
    p.line(format_args!(
        "Flag {} ends the list. Flag {} is a link: `address` names the next entry, `length` is zero. Every other entry has at least one \
         byte. The lengths add up to the descriptor's, each piece lies in one registered region.",
        Segment::LAST,
        Segment::LINK
    ));
    list(
        p,
        "Operations",
        Operation::ALL
            .iter()
            .map(|(n, name, text)| (u16::from(n.0), *name, *text)),
    );
    list(
        p,
        "Algorithms",
        Algorithm::ALL
            .iter()
            .map(|(n, name, text)| (u16::from(n.0), *name, *text)),
    );
    list(
        p,
        "Modes",
        Mode::ALL
            .iter()
            .map(|(n, name, text)| (u16::from(n.0), *name, *text)),
    );
    list(
        p,
        "Outcomes",
        Status::ALL
            .iter()
            .map(|(n, name, text)| (n.0, *name, *text)),
    );
    page.0
}

fn list(
    page: &mut Page,
    title: &str,
    rows: impl Iterator<Item = (u16, &'static str, &'static str)>,
) {
    page.line(format_args!(
        "\n## {title}\n\n| number | name | meaning |\n|---|---|---|"
    ));
    for (number, name, text) in rows {
        page.line(format_args!("| {number} | {name} | {text} |"));
    }
}
