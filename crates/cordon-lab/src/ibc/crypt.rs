//! Encryption and decryption of files, for both command lines.

use std::io::{self, Cursor, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ibc::ced::{CheckedIbc, Code};
use ibc::container::{self, Expected, Header, Mode};
use ibc::{Backend, Block, Ibc, Variant};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::args::GivenIv;
use super::files::{self, Input, Output, Writer};
use super::progress::Progress;
use super::stream::{BUFFER, Ending, StreamError, Totals, pump};
use super::testing::{Faulty, Setting};
use super::transform::{Direction, Fast, Serial, Transform};
use commandline::{Failure, OrHint as _, Outcome};

/// The work, whichever command line asked for it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) direction: Direction,
    pub(super) input: PathBuf,
    pub(super) output: PathBuf,
    pub(super) key_file: PathBuf,
    pub(super) variant: Option<Variant>,
    pub(super) mode: Option<Mode>,
    pub(super) iv: Option<GivenIv>,
    pub(super) raw: bool,
    pub(super) padding: bool,
    pub(super) ced: Option<Code>,
    pub(super) backend: Option<Backend>,
    pub(super) testing: Option<Setting>,
    pub(super) debug: bool,
    pub(super) quiet: bool,
}

/// A plan with nothing left open.
struct Job {
    variant: Variant,
    mode: Mode,
    iv: Block,
    engine: Engine,
}

pub(super) async fn run(plan: &Plan, json: bool) -> Outcome {
    if json && files::is_standard(&plan.output) {
        return Err(Failure::usage(
            "--json and -o - both need standard output",
            "write to a file, or leave --json away",
        ));
    }
    if !json && !plan.quiet {
        super::warning::warn();
    }
    let mut input = files::open(&plan.input)?;
    let header = match plan.direction {
        Direction::Decrypt if !plan.raw => Some(read_header(plan, &mut input)?),
        _ => None,
    };
    let job = prepare(plan, header)?;
    if plan.debug {
        eprintln!("{}", describe(plan, &job));
    }
    let (output, mut writer) = Output::create(&plan.output)?;
    if plan.direction == Direction::Encrypt && !plan.raw {
        let header = match job.mode {
            Mode::Ecb => Header::ecb(job.variant),
            Mode::Cbc => Header::cbc(job.variant, job.iv),
            Mode::Ctr => Header::ctr(job.variant, job.iv),
        };
        let written = writer.write_all(&header.encode());
        written.or_hint(
            format!("cannot write {}", plan.output.display()),
            "check the disk",
        )?;
    }
    let Some(done) = transfer(plan, job, input, writer, json).await? else {
        return Ok(());
    };
    output.finish(&done.writer)?;
    conclude(plan, &done, json)
}

/// Takes the header off the input and compares it with the options.
fn read_header(plan: &Plan, input: &mut Input) -> Outcome<Header> {
    let file = plan.input.display();
    let mut start = Vec::with_capacity(container::MAX_LEN);
    (&mut input.reader)
        .take(container::MAX_LEN as u64)
        .read_to_end(&mut start)
        .or_hint(format!("cannot read {file}"), "check the disk")?;
    let (header, rest) = Header::parse(&start).or_hint(
        format!("{file} is no IBC file of ours"),
        "name another file, or decrypt with --raw what has no header",
    )?;
    let rest = Cursor::new(rest.to_vec());
    let behind = std::mem::replace(&mut input.reader, Box::new(io::empty()));
    input.reader = Box::new(rest.chain(behind));
    input.len = input
        .len
        .map(|len| len.saturating_sub(header.encode().len() as u64));
    Ok(header)
}

/// Fills in what the options leave open, from the header or by chance.
fn prepare(plan: &Plan, header: Option<Header>) -> Outcome<Job> {
    let variant = header.map(|h| h.variant()).or(plan.variant);
    let variant = variant.ok_or_else(|| {
        Failure::usage(
            "neither the options nor a header say which key size and rounds",
            "name the level (-e low) or the variant (INDECT-192)",
        )
    })?;
    // What contradicts is told before the key is looked at, whose size may be wrong for it.
    let expected = Expected {
        variant: plan.variant,
        mode: plan.mode,
        iv: None,
    };
    check(plan, header, &expected)?;
    let mode = header.map(|h| h.mode()).or(plan.mode);
    let mode = mode.ok_or_else(|| {
        Failure::usage(
            "no header says which mode",
            "name the mode: ecb, cbc or ctr",
        )
    })?;
    let key = read_key(plan, variant)?;
    let unusable = "choose another back end, see `cordon ibc variants`";
    let cipher = match plan.backend {
        Some(backend) => Ibc::with_backend(variant, &key, backend),
        None => Ibc::new(variant, &key),
    };
    let cipher = cipher.or_hint("cannot set up the cipher", unusable)?;
    let given = plan.iv.as_ref().map(|iv| expand(&cipher, mode, iv));
    let expected = Expected {
        iv: given,
        ..Expected::default()
    };
    check(plan, header, &expected)?;
    let iv = match (header.and_then(|h| h.iv().copied()), given, mode) {
        (_, Some(_), Mode::Ecb) => {
            return Err(Failure::usage("ECB has no IV", "leave --iv away"));
        }
        (Some(iv), _, _) | (None, Some(iv), _) => iv,
        (None, None, Mode::Ecb) => Block::default(),
        (None, None, _) if plan.raw => {
            return Err(Failure::usage(
                format!("raw {mode} needs an IV, and the output has no place for one"),
                "pass --iv with 32 or 64 hexadecimal digits",
            ));
        }
        (None, None, _) => random_iv()?,
    };
    let engine = Engine::new(plan, cipher, &key, mode, iv)?;
    Ok(Job {
        variant,
        mode,
        iv,
        engine,
    })
}

fn check(plan: &Plan, header: Option<Header>, expected: &Expected) -> Outcome {
    header
        .map_or(Ok(()), |header| header.check(expected))
        .or_hint(
            format!("{} contradicts the options", plan.input.display()),
            "leave the option away, or name the right file",
        )
}

fn read_key(plan: &Plan, variant: Variant) -> Outcome<Zeroizing<Vec<u8>>> {
    let path = plan.key_file.display();
    let mut content = Zeroizing::new(Vec::new());
    // One byte more than allowed tells a file that is too long.
    std::fs::File::open(&plan.key_file)
        .and_then(|file| {
            file.take(ibc::keyfile::MAX_LEN as u64 + 1)
                .read_to_end(&mut content)
        })
        .or_hint(
            format!("cannot read the key file {path}"),
            "check the file's name and rights",
        )?;
    ibc::keyfile::parse(&content, variant.key_size()).or_hint(
        format!("{path} holds no key for {variant}"),
        format!(
            "make one, for instance: openssl rand -hex {} > key.hex",
            variant.key_size()
        ),
    )
}

/// The IV of 32 bytes that a given one stands for (specification, section 4).
fn expand(cipher: &Ibc, mode: Mode, given: &GivenIv) -> Block {
    let mut iv = Block::default();
    let (first, second) = iv.split_at_mut(16);
    match given.0.split_at_checked(16) {
        Some((start, [])) => {
            first.copy_from_slice(start);
            if mode == Mode::Cbc {
                for (to, from) in second.iter_mut().zip(start) {
                    *to = !from;
                }
                cipher.encrypt_block(&mut iv);
            }
        }
        _ => iv
            .iter_mut()
            .zip(&given.0)
            .for_each(|(to, from)| *to = *from),
    }
    iv
}

fn random_iv() -> Outcome<Block> {
    let mut iv = Block::default();
    aws_lc_rs::rand::fill(&mut iv)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))
        .or_hint("cannot make an IV", "pass one with --iv")?;
    Ok(iv)
}

fn describe(plan: &Plan, job: &Job) -> String {
    let backend = plan.backend.unwrap_or_else(Backend::best);
    let iv = match job.mode {
        Mode::Ecb => "none".to_owned(),
        Mode::Cbc | Mode::Ctr => hex::encode(job.iv),
    };
    format!(
        "{} with {} bytes of key and {} rounds, mode {}, iv {iv}, error detection {}, back end {}",
        job.variant,
        job.variant.key_size(),
        job.variant.rounds(),
        job.mode,
        plan.ced.map_or("none", Code::name),
        match job.engine {
            Engine::Fast(_) => backend.to_string(),
            Engine::Checked(_) | Engine::Faulty(_) => "checked, one block at a time".to_owned(),
        },
    )
}

/// The ways to transform data.
enum Engine {
    Fast(Fast),
    Checked(Box<Serial<CheckedIbc>>),
    Faulty(Box<Serial<Faulty>>),
}

impl Engine {
    fn new(plan: &Plan, cipher: Ibc, key: &[u8], mode: Mode, iv: Block) -> Outcome<Self> {
        const HINT: &str = "check the key";
        let variant = cipher.variant();
        if let Some(setting) = plan.testing {
            let faulty = Faulty::new(variant, key, setting).or_hint("error testing", HINT)?;
            let serial = Serial::new(faulty, mode, plan.direction, iv);
            return Ok(Self::Faulty(Box::new(serial)));
        }
        match plan.ced {
            Some(code) => {
                let checked = CheckedIbc::new(variant, key, code);
                let checked = checked.or_hint("error detection", HINT)?;
                let serial = Serial::new(checked, mode, plan.direction, iv);
                Ok(Self::Checked(Box::new(serial)))
            }
            None => Ok(Self::Fast(Fast::new(cipher, mode, plan.direction, iv))),
        }
    }

    fn transform(&mut self) -> &mut dyn Transform {
        match self {
            Self::Fast(fast) => fast,
            Self::Checked(serial) => serial.as_mut(),
            Self::Faulty(serial) => serial.as_mut(),
        }
    }
}

/// Results once all data went through.
struct Done {
    variant: Variant,
    mode: Mode,
    engine: Engine,
    writer: Writer,
    totals: Totals,
}

/// Moves the data on a thread of its own, so that a signal ends the program even while it waits
/// for a pipe. `None`: whoever reads our standard output has had enough, which is no error.
async fn transfer(
    plan: &Plan,
    job: Job,
    mut input: Input,
    mut writer: Writer,
    json: bool,
) -> Outcome<Option<Done>> {
    let Job {
        variant,
        mode,
        mut engine,
        ..
    } = job;
    let padded = mode.is_padded() && plan.padding;
    let ending = match (mode, plan.direction) {
        (Mode::Ctr, _) => Ending::Any,
        (_, Direction::Encrypt) if padded => Ending::Pad,
        (_, Direction::Decrypt) if padded => Ending::Unpad,
        _ => Ending::Whole,
    };
    let stop = CancellationToken::new();
    commandline::stop_on_signals(stop.clone())?;
    let read = Arc::new(AtomicU64::new(0));
    let progress = Progress::start(input.len, Arc::clone(&read), json || plan.quiet);
    let (answer, answered) = tokio::sync::oneshot::channel();
    let stopped = stop.clone();
    std::thread::spawn(move || {
        let result = pump(
            input.reader.as_mut(),
            &mut writer,
            engine.transform(),
            ending,
            BUFFER,
            &mut |bytes| {
                read.store(bytes, Ordering::Relaxed);
                !stopped.is_cancelled()
            },
        );
        // Nobody listens any more after a signal.
        let _ = answer.send(result.map(|totals| (totals, writer, engine)));
    });
    let result = tokio::select! {
        result = answered => result.unwrap_or(Err(StreamError::Interrupted)),
        () = stop.cancelled() => Err(StreamError::Interrupted),
    };
    progress.end();
    let (totals, writer, engine) = match result {
        Ok(done) => done,
        Err(StreamError::Write(e))
            if e.kind() == io::ErrorKind::BrokenPipe && files::is_standard(&plan.output) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failure(plan, error)),
    };
    Ok(Some(Done {
        variant,
        mode,
        engine,
        writer,
        totals,
    }))
}

/// Two lines for each way in which a stream can break off.
fn failure(plan: &Plan, error: StreamError) -> Failure {
    const FAULT: &str = "use nothing of the output; test the machine's memory and cooling";
    let (input, output) = (plan.input.display(), plan.output.display());
    let (what, hint) = match &error {
        StreamError::Read(_) => (format!("{input}"), "check the disk"),
        StreamError::Write(_) => (
            format!("{output}"),
            "check the room on the disk; nothing was kept",
        ),
        StreamError::Length(_) if plan.direction == Direction::Encrypt => (
            format!("{input} cannot be encrypted without padding"),
            "leave --no-padding away",
        ),
        StreamError::Length(_) | StreamError::Empty => (
            format!("{input} is cut off or no encrypted file"),
            "get the file again; nothing was kept",
        ),
        StreamError::Padding => (
            format!("{input} cannot be decrypted"),
            "check the key, the mode and the IV, or get the file again; nothing was kept",
        ),
        StreamError::Fault { .. } => {
            let error = anyhow::Error::new(error)
                .context(format!("a fault while working on {input}, output deleted"));
            return Failure::fault(error, FAULT);
        }
        StreamError::Interrupted => (
            format!("{input} was not finished"),
            "run it again; nothing was kept",
        ),
    };
    Failure::new(anyhow::Error::new(error).context(what), hint)
}

/// Says what was done.
fn conclude(plan: &Plan, done: &Done, json: bool) -> Outcome {
    let verb = match plan.direction {
        Direction::Encrypt => "encrypted",
        Direction::Decrypt => "decrypted",
    };
    let mut value = json!({
        "done": verb,
        "variant": done.variant.name(),
        "mode": done.mode.name(),
        "bytes_in": done.totals.read,
        "bytes_out": done.totals.written,
        "output": plan.output,
        "warning": super::warning::WARNING,
    });
    let mut text = format!(
        "{verb} {} bytes with {} in mode {} into {}",
        done.totals.read,
        done.variant,
        done.mode,
        plan.output.display(),
    );
    if let Engine::Faulty(serial) = &done.engine {
        let report = format!(
            "FAULTY OUTPUT: {} holds errors put in on purpose\n{}",
            plan.output.display(),
            serial.cipher.text()
        );
        mark(&plan.output, &report)?;
        if let Value::Object(fields) = &mut value {
            fields.insert("faulty".to_owned(), json!(true));
            fields.insert("testing".to_owned(), serial.cipher.value());
        }
        text = format!("{text}\n{report}");
    } else {
        unmark(&plan.output)?;
    }
    if files::is_standard(&plan.output) {
        if plan.testing.is_some() {
            eprintln!("{text}");
        }
        return Ok(());
    }
    if plan.quiet && !json {
        return Ok(());
    }
    commandline::print(json, &value, &text)
}

/// First word of a mark, by which it is known as ours.
const MARK: &str = "FAULTY OUTPUT";

/// The file beside an output that says it is faulty.
fn mark_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".faulty");
    name.into()
}

/// Puts a report beside an output with errors: the file itself must look like any other.
fn mark(output: &Path, report: &str) -> Outcome {
    if files::is_standard(output) || !output.is_file() {
        return Ok(());
    }
    let path = mark_of(output);
    std::fs::write(&path, report).or_hint(
        format!("cannot write {}", path.display()),
        "check the folder",
    )
}

/// Takes away the mark of an earlier test that wrote to the same name.
fn unmark(output: &Path) -> Outcome {
    let path = mark_of(output);
    if files::is_standard(output)
        || !std::fs::read(&path).is_ok_and(|text| text.starts_with(MARK.as_bytes()))
    {
        return Ok(());
    }
    std::fs::remove_file(&path).or_hint(
        format!("cannot remove {}, which is out of date", path.display()),
        "remove it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ibc::transform::FaultFound;

    #[test]
    fn a_detected_fault_ends_with_three_and_everything_else_with_one() {
        let plan = Plan {
            direction: Direction::Encrypt,
            input: "plain".into(),
            output: "secret".into(),
            key_file: "key".into(),
            variant: Some(Variant::Indect128),
            mode: Some(Mode::Cbc),
            iv: None,
            raw: false,
            padding: true,
            ced: Some(Code::Parity8),
            backend: None,
            testing: None,
            debug: false,
            quiet: false,
        };
        let fault = FaultFound(ibc::ced::FaultDetected {
            errors: 2,
            alarms: 1,
            round: 5,
            stage: ibc::ced::Stage::Substitution,
        });
        let found = failure(&plan, StreamError::Fault { block: 7, fault });
        assert_eq!(found.code(), 3);
        assert_eq!(
            found.message(),
            "a fault while working on plain, output deleted: block 7: fault detected in the \
             substitution of round 5"
        );
        for error in [
            StreamError::Read(io::ErrorKind::UnexpectedEof.into()),
            StreamError::Write(io::ErrorKind::StorageFull.into()),
            StreamError::Length(33),
            StreamError::Empty,
            StreamError::Padding,
            StreamError::Interrupted,
        ] {
            assert_eq!(failure(&plan, error).code(), 1);
        }
    }
}
