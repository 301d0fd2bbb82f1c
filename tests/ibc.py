"""The cipher on the command line: vectors, published options, refusals, kills, full disks."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

from tests.diskfull import MEBIBYTE, Disk
from tests.harness import CORDON, LAB, ROOT, contains, cordon, cordon_json, equal, run as call, wait_for

VECTORS = ROOT / "crates/ibc/tests/data/ibc_vectors.json"
VARIANTS = {(16, 8): "INDECT-128", (24, 10): "INDECT-192", (32, 10): "INDECT-256",
            (40, 12): "INDECT-320", (16, 14): "INDECT-128-VH"}
LEVELS = {"low": 16, "medium": 32, "high": 40, "veryhigh": 16}
WARNING = "IBC is broken"


def run(suite):
    folder = suite.folder
    vectors = json.loads(VECTORS.read_text())["vectors"]
    vector_files(suite, folder, vectors)
    through_files(suite, folder, vectors)
    published(suite, folder)
    keys(suite, folder)
    refusals(suite, folder)
    streams(suite, folder)
    kills(suite, folder)
    full_disks(suite, folder)
    errors_on_purpose(suite, folder)
    attacks(suite, folder)


def refused(*arguments, code=1, **options):
    """Runs a command that must fail with two lines, and returns the first."""
    done = cordon("ibc", *arguments, code=code, **options)
    lines = [line for line in done.stderr.splitlines() if WARNING not in line]
    equal(len(lines), 2, f"number of lines in {lines}")
    assert lines[0].startswith("cordon-lab: ") and lines[1].startswith("  to do: "), lines
    return lines[0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def vector_files(suite, folder, vectors):
    with suite.case("every vector holds on every back end of this CPU"):
        report = cordon_json("ibc", "vectors", "check", VECTORS)
        equal((report["vectors"], report["holds"]), (len(vectors), True))
        backends = cordon_json("ibc", "variants")["backends"]
        equal(report["backends"], backends)
        for backend in backends:
            cordon("ibc", "vectors", "check", VECTORS, "--backend", backend)
    with suite.case("the first wrong vector is named with field, expectation and result"):
        changed = json.loads(VECTORS.read_text())
        wrong = next(v for v in changed["vectors"] if v["type"] == "block")
        right, wrong["ct"] = wrong["ct"], "00" * 32
        file = folder / "wrong.json"
        file.write_text(json.dumps(changed))
        line = refused("vectors", "check", file)
        contains(line, f"vector {wrong['id']} of type block")
        contains(line, f"field ct: expected {'00' * 32}, got {right}")
        for text in ("", "[]", '{"vectors": []}', '{"vectors": [{"type": "x", "id": 1}]}'):
            file.write_text(text)
            refused("vectors", "check", file)


def through_files(suite, folder, vectors):
    key, plain, secret, again = (folder / name for name in ("k", "plain", "secret", "again"))

    def both_ways(vector, expected, *options):
        key.write_bytes(bytes.fromhex(vector["key"]))
        plain.write_bytes(bytes.fromhex(vector["pt"]))
        # ECB vectors may name an IV, which changes nothing; the tool takes none.
        iv = ["--iv", vector["iv"]] if vector.get("iv") and vector["mode"] != "ecb" else []
        which = ["--variant", VARIANTS[len(vector["key"]) // 2, vector["rounds"]]]
        mode = ["--mode", vector.get("mode", "ecb")]
        common = ["--key-file", key, "--quiet", *options]
        cordon("ibc", "encrypt", *common, *which, *mode, *iv, "-i", plain, "-o", secret)
        equal(secret.read_bytes().hex(), expected, f"vector {vector['id']}")
        stated = [*which, *mode, *iv] if "--raw" in options else []
        cordon("ibc", "decrypt", *common, *stated, "-i", secret, "-o", again)
        equal(again.read_bytes(), plain.read_bytes(), f"vector {vector['id']} decrypted")

    with suite.case("modes and single blocks of the vectors, as raw files both ways"):
        for vector in vectors:
            if vector["type"] == "mode":
                both_ways(vector, vector["ct"], "--raw")
            if vector["type"] == "block":
                both_ways(vector, vector["ct"], "--raw", "--no-padding")
    with suite.case("files with headers of the vectors, both ways"):
        for vector in vectors:
            if vector["type"] == "container":
                both_ways(vector, vector["file"])
    with suite.case("checked encryption gives the same bytes"):
        for vector in [v for v in vectors if v["type"] == "container"]:
            for method in (["parity", "--parity-bits", "1"], ["parity"], ["berger"], ["crc"]):
                both_ways(vector, vector["file"], "--ced", *method)


def published(suite, folder):
    """The published command line, word by word, under the published name."""
    place = folder / "published"
    place.mkdir()
    (place / "ibcipher").symlink_to(LAB)
    content = random.randbytes(1000)
    (place / "IN").write_bytes(content)

    def ibcipher(words, **options):
        return call(place / "ibcipher", *words.split(), cwd=place, **options)

    for level, size in LEVELS.items():
        with suite.case(f"ibcipher -e {level}, in both published modes"):
            (place / "KEYFILE").write_text(random.randbytes(size).hex() + "\n")
            for mode in ("ecb", "cbc"):
                ibcipher(f"-i IN -o OUT -k KEYFILE -e {level} -m {mode} --encrypt")
                done = ibcipher(f"-i OUT -o BACK -k KEYFILE -e {level} -m {mode} --decrypt")
                contains(done.stderr, WARNING)
                equal((place / "BACK").read_bytes(), content)
                for ced in (0, 1, 2, 3):
                    ibcipher(f"-i OUT -o BACK -k KEYFILE -e {level} -m {mode} --decrypt --cedtype {ced}")
                    equal((place / "BACK").read_bytes(), content)
    with suite.case("ibcipher with errors, and the same as a subcommand"):
        words = "-i IN -o OUT -k KEYFILE -e veryhigh -m ecb --encrypt --cedtype 1 --paritybits 8 --errortesting 5 --debug"
        done = ibcipher(words)
        contains(done.stdout, "FAULTY")
        contains(done.stderr, "detected parity1=1")
        first = (place / "OUT").read_bytes()
        call(CORDON, "ibc", "cipher", *words.split(), cwd=place)
        equal((place / "OUT").read_bytes(), first, "the same seed's output")
        # By chance the wrong last block may end in valid padding.
        assert ibcipher("-i OUT -o BACK2 -k KEYFILE --decrypt", code=None).returncode in (0, 1)
    with suite.case("ibcipher with our options"):
        (place / "KEYFILE").write_text(random.randbytes(24).hex())
        ibcipher("-i IN -o OUT -k KEYFILE --rounds-name INDECT-192 -m ctr --encrypt")
        ibcipher("-i OUT -o BACK -k KEYFILE --decrypt")
        equal((place / "BACK").read_bytes(), content)
        ibcipher("-i IN -o OUT -k KEYFILE --encrypt", code=2)
        ibcipher("-i IN -o OUT -k KEYFILE -e low -m cbc", code=2)
        ibcipher("-i IN -o OUT -k KEYFILE -e low -m cbc --decrypt --errortesting 5", code=2)


def keys(suite, folder):
    key, plain, out = folder / "key", folder / "plain", folder / "key-out"
    plain.write_bytes(b"x" * 100)

    def encrypt(content, variant, code=0):
        key.write_bytes(content)
        common = ["--key-file", key, "--variant", variant, "--mode", "ecb", "-i", plain, "-o", out]
        return cordon("ibc", "encrypt", *common, code=code) if code == 0 else refused("encrypt", *common, code=code)

    with suite.case("raw and hexadecimal keys mean the same"):
        for (size, _), variant in VARIANTS.items():
            raw = random.randbytes(size)
            encrypt(raw, variant)
            first = out.read_bytes()
            spaced = "# a key\n" + raw.hex(" ").upper() + "\n# end"
            encrypt(spaced.encode(), variant)
            equal(out.read_bytes(), first, variant)
    with suite.case("keys of any other size are refused, and nothing is written"):
        out.unlink()
        for (size, _), variant in VARIANTS.items():
            for wrong in {0, 1, 15, 16, 17, 24, 32, 39, 40, 41, 80} - {size}:
                line = encrypt(random.randbytes(wrong), variant, code=1)
                contains(line, f"holds no key for {variant}")
            encrypt(random.randbytes(size).hex()[1:].encode(), variant, code=1)
            encrypt(b"a password, surely", variant, code=1)
        assert not out.exists()


def refusals(suite, folder):
    key, plain, secret = folder / "rkey", folder / "rplain", folder / "rsecret"
    out = folder / "refusals" / "out"
    out.parent.mkdir()
    key.write_bytes(b"k" * 16)
    plain.write_bytes(random.randbytes(3000))
    cordon("ibc", "encrypt", "--key-file", key, "--level", "low", "-i", plain, "-o", secret)
    good = secret.read_bytes()

    def decrypt(content, *options, code=1):
        (folder / "given").write_bytes(content)
        line = refused("decrypt", "--key-file", key, *options, "-i", folder / "given", "-o", out, code=code)
        equal(names(out.parent), [], "files after a refusal")
        return line

    with suite.case("foreign, cut and damaged files give an error and no output"):
        contains(decrypt(plain.read_bytes()), "does not begin with IBC1")
        contains(decrypt(b""), "ends after 0 bytes")
        contains(decrypt(good[:47]), "ends after 47 bytes of a header of 48")
        contains(decrypt(good[:48]), "no data")
        contains(decrypt(good[:-1]), "not a multiple of 32")
        contains(decrypt(good[:-32]), "padding")
        for at, what in ((4, "version"), (5, "mode"), (6, "key length"), (7, "rounds"), (8, "padding"),
                         (9, "IV length"), (10, "reserved byte 10"), (15, "reserved byte 15")):
            contains(decrypt(good[:at] + b"\x07" + good[at + 1:]), what)
        key.write_bytes(b"K" * 16)
        contains(decrypt(good), "the padding at the end is wrong")
        key.write_bytes(b"k" * 16)
    with suite.case("options that contradict the header are refused"):
        contains(decrypt(good, "--level", "veryhigh"), "header says INDECT-128, asked for is INDECT-128-VH")
        contains(decrypt(good, "--mode", "ctr"), "header says mode cbc, asked for is ctr")
        contains(decrypt(good, "--iv", "00" * 32), "IV is not the one given")
    with suite.case("wrong usage ends with 2"):
        decrypt(good, "--raw", code=2)
        decrypt(good, "--raw", "--level", "low", "--mode", "cbc", code=2)
        decrypt(good, "--iv", "00", code=2)
        decrypt(good, "--ced", "parity", "--parity-bits", "3", code=2)
        decrypt(good, "--no-padding", code=2)
        cordon("ibc", "decrypt", "--key-file", key, "-i", secret, "-o", "-", "--json", code=2)
    with suite.case("help and warning say that the cipher is broken"):
        contains(cordon("ibc", "encrypt", "--help").stdout, WARNING)
        contains(cordon("ibc", "--help").stdout, "broken")
        line = ["ibc", "decrypt", "--key-file", key, "-i", secret, "-o", folder / "rback"]
        equal(cordon(*line).stderr.count(WARNING), 1, "warnings")
        equal(cordon(*line, "--quiet").stderr, "")
        contains(cordon_json(*line)["warning"], WARNING)


def streams(suite, folder):
    key = folder / "skey"
    key.write_bytes(b"s" * 40)
    common = ["--key-file", str(key), "--quiet"]
    which = ["--level", "high"]

    with suite.case("standard input and output, of many lengths"):
        for length in (0, 1, 31, 32, 33, 262143, 262144, 262145, 1_000_000):
            content = random.randbytes(length)
            for mode in ("ecb", "cbc", "ctr"):
                there = [CORDON, "ibc", "encrypt", *common, *which, "--mode", mode, "-i", "-", "-o", "-"]
                secret = subprocess.run(there, input=content, stdout=subprocess.PIPE, check=True).stdout
                back = [CORDON, "ibc", "decrypt", *common, "-i", "-", "-o", "-"]
                again = subprocess.run(back, input=secret, stdout=subprocess.PIPE, check=True).stdout
                assert again == content, (length, mode)
    with suite.case("400 MB go through a pipe in little memory"):
        line = f"head -c 400000000 /dev/zero | {CORDON} ibc encrypt {' '.join(common + which)} --mode ctr -i - -o - | tail -c 1"
        # A small process of its own asks: the largest size of a child counts that of its parent before
        # it became another program, and this one is large by now.
        ask = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); " \
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        done = call("python3", "-c", ask, "bash", "-o", "pipefail", "-c", line + " >/dev/null")
        peak = int(done.stdout)
        assert peak < 150_000, f"{peak} KiB"
    with suite.case("a reader that goes away is no error"):
        line = f"{CORDON} ibc encrypt {' '.join(common + which)} -i /dev/zero -o - | head -c 100000 | wc -c"
        done = call("bash", "-o", "pipefail", "-c", line)
        equal((done.stdout.strip(), done.stderr), ("100000", ""))
    with suite.case("in place: input and output are the same file"):
        file = folder / "same"
        file.write_bytes(b"content" * 100_000)
        cordon("ibc", "encrypt", *common, *which, "-i", file, "-o", file)
        equal(file.read_bytes()[:4], b"IBC1")
        cordon("ibc", "decrypt", *common, "-i", file, "-o", file)
        equal(file.read_bytes(), b"content" * 100_000)


def kills(suite, folder):
    place = folder / "kills"
    place.mkdir()
    key = folder / "kkey"
    key.write_bytes(b"s" * 16)
    target = place / "target"
    line = [CORDON, "ibc", "encrypt", "--key-file", str(key), "--level", "low", "-i", "-", "-o", str(target)]

    def start():
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdin.write(random.randbytes(1_000_000))
        child.stdin.flush()
        wait_for(lambda: any(path.stat().st_size > 500_000 for path in place.iterdir()), "the output to grow")
        return child

    for old in (None, b"old"):
        with suite.case(f"killed in mid-write: the target is {'absent' if old is None else 'the old one'}"):
            if old is not None:
                target.write_bytes(old)
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
                child = start()
                equal(target.read_bytes() if target.exists() else None, old)
                child.send_signal(number)
                code = child.wait(20)
                equal(target.read_bytes() if target.exists() else None, old, "target afterwards")
                left = [name for name in names(place) if name != "target"]
                if number == signal.SIGKILL:
                    equal(code, -signal.SIGKILL)
                    for name in left:
                        assert name.startswith(".cordon-ibc-"), name
                        (place / name).unlink()
                else:
                    equal((code, left), (1, []), "exit code and files left")
                    contains(child.stderr.read().decode(), "interrupted")
                child.stdin.close()
                child.stderr.close()


def full_disks(suite, folder):
    key, plain = folder / "fkey", folder / "fplain"
    key.write_bytes(b"s" * 16)
    plain.write_bytes(bytes(4 * MEBIBYTE))
    disk = Disk(suite, folder / "small", 2)
    with suite.case("a full disk: an error, nothing left, the old file untouched"):
        for old in (None, b"old"):
            target = disk.folder / "target"
            if old:
                target.write_bytes(old)
            line = refused("encrypt", "--key-file", key, "--level", "low", "-i", plain, "-o", target)
            contains(line, "No space left on device")
            equal(names(disk.folder), ["target"] if old else [])
            equal(target.read_bytes() if old else None, old)
    with suite.case("a full device"):
        line = refused("encrypt", "--key-file", key, "--level", "low", "-i", plain, "-o", "/dev/full")
        contains(line, "No space left on device")


def errors_on_purpose(suite, folder):
    with suite.case("the figures come out as specified"):
        expected = {
            (5, False): [1.000, 1.000, 1.947, 3.061, 1.859, 1.000],
            (10, False): [0.000, 0.960, 2.015, 3.793, 2.458, 1.000],
            (5, True): [3.881, 4.395, 4.710, 4.862, 4.402, 4.405],
            (10, True): [5.919, 7.647, 8.740, 9.334, 7.808, 7.622],
        }
        for (errors, spread), values in expected.items():
            plot = folder / f"{errors}{spread}.svg"
            options = ["--spread"] if spread else []
            report = cordon_json("ibc", "faults", "--errors", errors, "--blocks", 3000, *options, "--plot", plot)
            methods = report["methods"]
            found = [methods[name]["average"] for name in ("parity1", "parity2", "parity4", "parity8", "berger", "crc")]
            equal([round(value, 3) for value in found], values, f"{errors} errors")
            contains(plot.read_text(), f"{values[3]:.3f}")
    with suite.case("faulty output is marked, and good output takes the mark away"):
        key, plain, out = folder / "ekey", folder / "eplain", folder / "eout"
        key.write_bytes(b"e" * 16)
        plain.write_bytes(bytes(3200))
        line = ["ibc", "cipher", "-i", plain, "-o", out, "-k", key, "-e", "low", "-m", "ecb", "--encrypt"]
        report = cordon_json(*line, "--errortesting", 3, "--seed", 7)
        equal((report["faulty"], report["testing"]["blocks"]), (True, 101))
        equal(report["testing"]["methods"]["crc"]["blocks_noticed"], 101)
        mark = Path(f"{out}.faulty")
        contains(mark.read_text(), "FAULTY OUTPUT")
        faulty = out.read_bytes()
        cordon(*line)
        assert not mark.exists()
        different = sum(a != b for a, b in zip(faulty, out.read_bytes()))
        assert different > 2000, different


def attacks(suite, folder):
    with suite.case("the attacks give what docs/ibc-security.md says, and pictures"):
        plots = folder / "plots"
        started = time.monotonic()
        found = cordon_json("ibc", "analyse", "all", "--rounds", "5-6", "--plot-dir", plots)
        assert found["recovery"]["results"][1]["recovered"], found["recovery"]
        equal([row["recovered"] for row in found["slide"]["results"]], [True, True])
        assert all(row["pairs"] > 100 for row in found["differential"]["results"])
        equal(len(names(plots)), 5, "pictures")
        print(f"        {time.monotonic() - started:.1f} s", flush=True)
        again = cordon_json("ibc", "analyse", "slide", "--rounds", "5-6")
        for report in (found, again):
            report["slide"].pop("seconds")
        equal(again["slide"], found["slide"], "the same seed's result")
