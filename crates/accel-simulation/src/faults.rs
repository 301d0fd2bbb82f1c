//! A device that does not do what it should, to see what its drivers make of it.

use crate::device::{Dma, DmaFault};
use accel_abi::descriptor::{self, Completion};
use accel_abi::{Descriptor, Mode, Operation, Status};

/// The way in which a device behaves, from one request to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conduct {
    /// As it should.
    #[default]
    Proper,
    /// The last byte of every tag has an inverted bit.
    LieAboutTag,
    /// The first byte of every result has an inverted bit, and the tag behind it is the one without.
    LieAboutData,
    /// It ends in the middle: the result is written, the completion is not, and nothing follows.
    Die,
    /// Interrupts are not sent.
    LoseInterrupts,
    /// Every interrupt is sent twice.
    DoubleInterrupts,
    /// Completions have the sequence number of another request.
    WrongEcho,
    /// Completions give one byte more than was written.
    WrongLength,
    /// Completions have an outcome that the interface does not know.
    WrongOutcome,
    /// Completions come after six seconds.
    Late,
}

/// All ways of behaving, with their names for the program `accel_serve`.
const NAMES: &[(&str, Conduct)] = &[
    ("proper", Conduct::Proper),
    ("lie-about-tag", Conduct::LieAboutTag),
    ("lie-about-data", Conduct::LieAboutData),
    ("die", Conduct::Die),
    ("lose-interrupts", Conduct::LoseInterrupts),
    ("double-interrupts", Conduct::DoubleInterrupts),
    ("wrong-echo", Conduct::WrongEcho),
    ("wrong-length", Conduct::WrongLength),
    ("wrong-outcome", Conduct::WrongOutcome),
    ("late", Conduct::Late),
];

impl Conduct {
    /// The conduct of a name; none if there is no such name.
    pub fn named(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, conduct)| *conduct)
    }

    /// The name of a conduct.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, conduct)| *conduct == self);
        found.map_or("", |(name, _)| name)
    }
}

/// Memory as a device with a conduct reads and writes it.
pub struct Faulty<D> {
    dma: D,
    /// Applies from the next request on.
    pub conduct: Conduct,
    /// Bytes of the destination, how many are still to come, and whether they end in a tag.
    destination: u32,
    left: u32,
    tagged: bool,
    completed: u64,
    dead: bool,
}

impl<D: Dma> Faulty<D> {
    /// Memory of a device that behaves.
    pub fn new(dma: D) -> Self {
        Self {
            dma,
            conduct: Conduct::Proper,
            destination: 0,
            left: 0,
            tagged: false,
            completed: 0,
            dead: false,
        }
    }

    /// Completions that the device has written, those included that were falsified.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// True once the device has died.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// A dead device comes back, as after a power cycle.
    pub fn revive(&mut self) {
        self.dead = false;
    }

    /// A completion as the device writes it, with what is wrong with it.
    fn completion(&mut self, address: u64, bytes: &[u8; 8]) -> Result<(), DmaFault> {
        self.completed += 1;
        let mut all = [0; descriptor::SIZE];
        let part = all.iter_mut().skip(descriptor::STATUS);
        part.zip(bytes).for_each(|(to, from)| *to = *from);
        let mut completion = Completion::decode(&all);
        match self.conduct {
            Conduct::Die => {
                self.dead = true;
                return Ok(());
            }
            Conduct::WrongEcho => completion.echo ^= 1,
            Conduct::WrongOutcome => completion.status = Some(Status(77)),
            Conduct::Late => late(),
            _ => {}
        }
        self.dma.write(address, &completion.status_and_echo())
    }
}

/// Waits longer than a driver does for a completion.
#[expect(clippy::disallowed_methods, reason = "a device that is late waits")]
fn late() {
    std::thread::sleep(std::time::Duration::from_secs(6));
}

impl<D: Dma> Dma for Faulty<D> {
    fn allows(&self, address: u64, length: u64, write: bool) -> bool {
        self.dma.allows(address, length, write)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        self.dma.read(address, into)?;
        if let Ok(bytes) = <&[u8; descriptor::SIZE]>::try_from(&*into)
            && let Ok(request) = Descriptor::decode(bytes)
        {
            self.destination = request.destination_length;
            self.left = request.destination_length;
            self.tagged = request.operation == Operation::AUTHENTICATE
                || matches!(request.mode, Mode::GCM | Mode::CCM);
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let at = usize::try_from(address % descriptor::SIZE as u64).unwrap_or(0);
        if self.left > 0 {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let first = self.left == self.destination;
            self.left = self.left.saturating_sub(length);
            let mut bytes = bytes.to_vec();
            let place = match self.conduct {
                Conduct::LieAboutTag if self.left == 0 && self.tagged => bytes.last_mut(),
                Conduct::LieAboutData if first => bytes.first_mut(),
                _ => None,
            };
            if let Some(byte) = place {
                *byte ^= 0x40;
            }
            return self.dma.write(address, &bytes);
        }
        match (at, <&[u8; 8]>::try_from(bytes)) {
            (descriptor::STATUS, Ok(bytes)) => self.completion(address, bytes),
            (descriptor::PRODUCED, _) if self.conduct == Conduct::WrongLength => {
                let mut bytes = bytes.to_vec();
                if let Some(low) = bytes.first_mut() {
                    *low = low.wrapping_add(1);
                }
                self.dma.write(address, &bytes)
            }
            _ => self.dma.write(address, bytes),
        }
    }
}
