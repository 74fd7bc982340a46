//! Tests events from C and from Python with a broker process that is killed, and the examples in all
//! languages, in each combination of two. The programs check their results themselves.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::processes::{Killed, text};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, pypi, require};
use unisono_linux::programs::python_with;

/// Starts a broker, and waits for the message that it serves: its socket exists a moment earlier, but refuses
/// programs until then.
fn serve(socket: &Path) -> Killed {
    serve_with(&["--listen", &socket.display().to_string()])
}

fn serve_with(options: &[&str]) -> Killed {
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve"]).args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let mut broker = Killed(command.stderr(Stdio::piped()).spawn().expect("unisono starts"));
    let mut lines = BufReader::new(broker.0.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("serving at")), "the broker does not serve");
    // copies the broker's further messages to the test's output, so that they do not fill the pipe
    std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
    broker
}

/// Compiles a program of the tests in C.
fn compile(source: &str, to: &Path) {
    let library = program::directory();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra", "-Werror", "-I", "abi/c/include"])
        .args([source, "-o"])
        .arg(to)
        .arg("-L")
        .arg(&library)
        .args(["-lunisono", program::LIBRARY_PATH])
        .arg(&library)
        .current_dir(program::workspace())
        .output()
        .expect("the compiler starts: linking Rust needs one, too");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
}

fn a_c_program_is_told_when_its_broker_is_killed_and_comes_back_to_the_next() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a directory");
    let (built, socket) = (scratch.path().join("program"), scratch.path().join("events"));
    compile("abi/c/tests/events.c", &built);
    let first = serve(&socket);
    let mut command = Command::new(&built);
    command.arg(&socket).arg("until it is killed").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Killed(command.spawn().expect("it starts"));
    let said = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("it publishes"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(first); // kill -9
    assert_eq!(lines.next().as_deref(), Some("it is told"));
    let _second = serve(&socket);
    assert_eq!(lines.next().as_deref(), Some("it came back"));
    assert!(running.0.wait().expect("it ends").success());
    Ok(())
}

/// Receives numbers in their order, up to the one with the key `last`, and prints how many came.
const CONSUMER: &str = r#"
import sys, unisono
at, direct = sys.argv[1], sys.argv[2] == "direct"
with unisono.Subscriber("numbers", at=at, full="block-supplier", direct=direct) as consumer:
    print("subscribed", flush=True)
    number, last = 0, False
    while not last:
        event = consumer.receive(60)
        number += 1
        if not isinstance(event, unisono.Event) or bytes(event) != str(number).encode():
            sys.exit(f"not {number}: {event!r}")
        last = event.key == "last"
print(number)
"#;

fn a_consumer_in_python_gets_all_events_of_a_supplier_in_c_over_a_direct_link_or_refuses_it() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a directory");
    let (built, socket) = (scratch.path().join("links"), scratch.path().join("events"));
    compile("abi/c/tests/links.c", &built);
    let [port] = free_ports();
    let at = format!("tcp:{port}");
    let _broker = serve_with(&["--direct-tcp", "--listen", &socket.display().to_string(), "--listen", &at]);
    for way in ["direct", "refused"] {
        let mut consumer = python()?;
        consumer.args(["-c", CONSUMER, &at, way]).stdout(Stdio::piped());
        let mut consuming = Killed(consumer.spawn().expect("python3 starts"));
        let mut said = BufReader::new(consuming.0.stdout.take().expect("a pipe")).lines();
        assert_eq!(said.next().and_then(Result::ok).as_deref(), Some("subscribed"));
        let supplied = Command::new(&built).arg(&at).arg(way).output().expect("it starts");
        assert!(supplied.status.success(), "{way}: {}", text(&supplied.stderr));
        let came = said.next().and_then(Result::ok).unwrap_or_default();
        assert!(consuming.0.wait().expect("our child").success(), "{way}");
        assert_eq!(came, text(&supplied.stdout).trim(), "{way}");
    }
    Ok(())
}

/// Returns the command `python3` with the package of this source tree and the library that was built with the
/// program under test.
pub(crate) fn python() -> Result<Command, Skipped> {
    require::program("python3", "apt-get install python3")?;
    Ok(with_package("python3"))
}

fn with_package(python: &str) -> Command {
    let mut command = Command::new(python);
    command
        .env("UNISONO_PROGRAM", program::unisono())
        .env("UNISONO_LIBRARY", program::directory())
        .env("PYTHONPATH", program::workspace().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null());
    command
}

/// Runs the tests of the Python package whose names hold a word.
fn package_tests(mut python: Command, word: &str) -> Output {
    let tests: PathBuf = program::workspace().join("python/tests");
    python.args(["-m", "unittest", "discover", "-k", word, "-s"]).arg(tests);
    python.output().expect("python3 starts")
}

fn the_python_package_does_what_its_tests_say() -> TestOutcome {
    let output = package_tests(python()?, "test_");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

fn the_python_package_has_the_types_that_mypy_finds_in_strict_mode() -> TestOutcome {
    let missing = || Skipped::because("no python3 here has mypy; apt-get install mypy");
    let mut python = with_package(python_with("mypy").ok_or_else(missing)?);
    // numpy is optional
    python.args(["-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir=/dev/null"]);
    python.args(["unisono", "tests/typed.py"]);
    let output = python.current_dir(program::workspace().join("python")).output().expect("python3 starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}

fn an_event_is_a_numpy_array_without_a_copy() -> TestOutcome {
    let missing = || Skipped::because("no python3 here has numpy; apt-get install python3-numpy");
    let python = with_package(python_with("numpy").ok_or_else(missing)?);
    let output = package_tests(python, "test_an_array_of_an_event_is_no_copy");
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("Ran 2 tests") && !said.contains("skipped"),
        "{said}"
    );
    Ok(())
}

fn readings_in_cbor_and_protobuf_are_decoded_by_their_content_type() -> TestOutcome {
    let environment = pypi::environment("readings", "python3", &["cbor2", "protobuf"])?;
    let scratch = tempfile::tempdir().expect("a directory");
    let socket = scratch.path().join("events");
    let _broker = serve(&socket);
    let start = |role: &[&str]| {
        let mut command = with_package(&environment.join("bin/python").display().to_string());
        command
            .arg(program::workspace().join("examples/python/readings.py"))
            .args(role)
            .arg("--at")
            .arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("python3 starts")
    };
    let consumer = start(&["consume"]);
    for encoding in ["cbor", "protobuf"] {
        let supplied = start(&["supply", encoding]).wait_with_output().expect("it ends");
        assert!(supplied.status.success(), "{}", text(&supplied.stderr));
    }
    let consumed = consumer.wait_with_output().expect("it ends");
    let (said, failed) = (text(&consumed.stdout), text(&consumed.stderr));
    let both = said.contains("in application/cbor, ") && said.contains("in application/protobuf");
    assert!(consumed.status.success() && both && failed.is_empty(), "{said}{failed}");
    Ok(())
}

/// A language in which the examples are written: how to start one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExampleLanguage {
    Rust,
    C,
    Python,
}

pub(crate) const LANGUAGES: [ExampleLanguage; 3] =
    [ExampleLanguage::Rust, ExampleLanguage::C, ExampleLanguage::Python];

impl ExampleLanguage {
    /// Returns the command of an example, given by its name in C and Python. Examples in C are in `built`.
    pub(crate) fn example(self, name: &str, built: &Path) -> Result<Command, Skipped> {
        Ok(match self {
            Self::Rust => Command::new(program::directory().join(name.replace('_', "-"))),
            Self::C => Command::new(built.join(name)),
            Self::Python => {
                let mut command = python()?;
                command.arg(program::workspace().join(format!("examples/python/{name}.py")));
                command
            }
        })
    }
}

/// Compiles the examples in C into a directory.
pub(crate) fn compiled(to: &Path) -> TestOutcome {
    require::program("make", "apt-get install make")?;
    let make = Command::new("make")
        .args(["--silent", "CFLAGS=-O2 -Wall -Wextra -Werror"])
        .arg(format!("LIBRARY={}", program::directory().display()))
        .arg(format!("OUT={}", to.display()))
        .current_dir(program::workspace().join("examples/c"))
        .output()
        .expect("make starts");
    assert!(make.status.success(), "{}", text(&make.stderr));
    Ok(())
}

/// Runs a consumer in each language with a supplier in each language, and passes the consumers' output to
/// `check`.
fn each_with_each(
    name: &str,
    supplier: &[&str],
    consumer: impl Fn(&Path) -> String,
    check: impl Fn(&Path, &str),
) -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a directory");
    compiled(scratch.path())?;
    let socket = scratch.path().join("events");
    let _broker = serve(&socket);
    for (supplies, consumes) in LANGUAGES.iter().flat_map(|one| LANGUAGES.map(|other| (*one, other))) {
        let start = |language: ExampleLanguage, role: &str, arguments: &[&str]| -> Result<Killed, Skipped> {
            let mut command = language.example(name, scratch.path())?;
            command.arg(role).args(arguments).arg(&socket);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            Ok(Killed(command.spawn().expect("the example starts")))
        };
        let argument = consumer(scratch.path());
        let mut consuming = start(consumes, "consume", &[&argument])?;
        let mut supplying = start(supplies, "supply", supplier)?;
        let ended = consuming.0.wait().expect("our child");
        let (mut said, mut complaint) = (String::new(), String::new());
        consuming.0.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
        consuming.0.stderr.take().expect("a pipe").read_to_string(&mut complaint).expect("text");
        if !ended.success() {
            let supplied = supplying.0.try_wait().expect("our child");
            let mut theirs = String::new();
            if supplied.is_some() {
                supplying.0.stderr.take().expect("a pipe").read_to_string(&mut theirs).expect("text");
            }
            panic!("{supplies:?} to {consumes:?}: {ended}: {complaint}; {supplied:?}: {theirs}");
        }
        check(scratch.path(), &said);
        if supplier.len() == 1 && supplier[0].parse::<u32>().is_ok() {
            // the supplier ends by itself when it has published as many events as it was told to
            assert!(supplying.0.wait().expect("our child").success(), "{supplies:?}");
        }
    }
    Ok(())
}

fn sensor_feeds_in_all_languages_lose_nothing() -> TestOutcome {
    // of every 60 temperatures, 39 are above 40 degrees
    let all = |_: &Path, said: &str| assert!(said.starts_with("sensor feed: 78 hot events, none"), "{said}");
    each_with_each("sensor_feed", &["120"], |_| "120".to_owned(), all)
}

fn video_streams_in_all_languages_are_whole_or_say_what_is_missing() -> TestOutcome {
    let all = |_: &Path, said: &str| {
        let numbers: Vec<u32> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.iter().sum::<u32>(), 45, "{said}");
    };
    each_with_each("video_stream", &["45"], |_| "45".to_owned(), all)
}

fn files_are_downloaded_in_all_languages_as_they_are() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("file");
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&file, &bytes).expect("it can be written");
    let all = |scratch: &Path, said: &str| {
        assert_eq!(said, "file download: 1000003 bytes by 16 requests, each with the right checksum\n");
        assert!(std::fs::read(scratch.join("copy")).expect("it is there") == bytes);
    };
    let copy = |scratch: &Path| scratch.join("copy").display().to_string();
    each_with_each("file_download", &[file.to_str().expect("plain")], copy, all)
}

/// Returns the code blocks of a language in docs/events.md.
fn of_the_guide(language: &str) -> Vec<String> {
    let guide = std::fs::read_to_string(program::workspace().join("docs/events.md")).expect("it is there");
    let begin = format!("```{language}\n");
    let blocks = guide.split(&begin).skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn the_programs_of_the_guide_say_what_came() -> TestOutcome {
    let (library, scratch) = (program::directory(), tempfile::tempdir().expect("a directory"));
    let _broker = serve(&scratch.path().join("unisono-events"));
    let [in_c] = &of_the_guide("c")[..] else { panic!("the guide has one program in C") };
    std::fs::write(scratch.path().join("heat.c"), in_c).expect("there is room");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "heat.c", "-o", "heat", "-lunisono", "-I"])
        .arg(program::workspace().join("abi/c/include"))
        .arg("-L")
        .arg(&library)
        .arg(program::LIBRARY_PATH)
        .arg(&library)
        .current_dir(scratch.path())
        .output()
        .expect("the compiler starts: linking Rust needs one, too");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let mut program = Command::new(scratch.path().join("heat"));
    let said = program.env("XDG_RUNTIME_DIR", scratch.path()).output().expect("it starts");
    assert_eq!((text(&said.stdout), text(&said.stderr)), ("plant/1/heat: 3 bytes\n".into(), "".into()));

    let [publishes, subscribes] = &of_the_guide("python")[..] else { panic!("the guide has two in Python") };
    let start = |program: &str| -> Result<Command, Skipped> {
        let mut command = python()?;
        command.args(["-u", "-c", program]).env("XDG_RUNTIME_DIR", scratch.path()).stdout(Stdio::piped());
        Ok(command)
    };
    let mut consumer = Killed(start(subscribes)?.spawn().expect("python3 starts"));
    let mut said = BufReader::new(consumer.0.stdout.take().expect("a pipe")).lines();
    // events that are published before the consumer has subscribed are lost, so publish again
    let (sender, first) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(said.next()));
    let first = loop {
        assert!(start(publishes)?.status().expect("python3 starts").success());
        if let Ok(line) = first.recv_timeout(std::time::Duration::from_millis(50)) {
            break line;
        }
    };
    assert_eq!(first.expect("a line").expect("a text"), "plant/1/heat 81.5 b'hot'");
    Ok(())
}

host_tests![needs Nothing;
    the_programs_of_the_guide_say_what_came within 240,
    a_c_program_is_told_when_its_broker_is_killed_and_comes_back_to_the_next within 240,
    a_consumer_in_python_gets_all_events_of_a_supplier_in_c_over_a_direct_link_or_refuses_it within 240,
    the_python_package_does_what_its_tests_say within 300,
    readings_in_cbor_and_protobuf_are_decoded_by_their_content_type within 300,
    the_python_package_has_the_types_that_mypy_finds_in_strict_mode within 240,
    an_event_is_a_numpy_array_without_a_copy within 120,
    sensor_feeds_in_all_languages_lose_nothing within 300,
    video_streams_in_all_languages_are_whole_or_say_what_is_missing within 300,
    files_are_downloaded_in_all_languages_as_they_are within 300,
];
