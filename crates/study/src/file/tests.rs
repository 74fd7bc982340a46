use super::*;

const GOOD: &str = r#"
id = "example"
topic = "gang"
title = "An example"
question = "Does it parse?"
method = "It is parsed."
driver = "pair"
repetitions = { smoke = 1, quick = 2, paper = 10 }
seconds = { smoke = 0.01, quick = 0.1, paper = 1.0 }

[settings]
threads = 2

[[variant]]
name = "linux"
settings = { regime = "linux" }

[[variant]]
name = "gang"
settings = { regime = "gang", slice_ms = 20 }

[[sweep]]
parameter = "interval_us"
values = { smoke = [0], quick = [0, 10], paper = [0, 10, 100] }

[[verdict]]
compare = "gang/linux.barriers_per_s@interval_us=each"
sides = ["gangs", "plain Linux"]
"#;

fn refused(text: &str) -> String {
    StudyFile::parse("my.toml", text).expect_err("refused").to_string()
}

#[test]
fn a_study_file_is_read() {
    let file = StudyFile::parse("my.toml", GOOD).expect("a good file");
    assert_eq!((file.variants.len(), file.sweeps.len()), (2, 1));
    assert_eq!(file.variants[1].settings.values()["slice_ms"], 20.0);
    assert_eq!(file.line(Profile::Quick).verdicts[0].words, "gangs against plain Linux");
}

#[test]
fn an_unknown_key_is_refused_with_line_column_and_the_nearest_known_key() {
    assert_eq!(
        refused(&GOOD.replace("title = ", "titel = ")),
        "my.toml:4:1: unknown key `titel`; did you mean `title`?"
    );
    assert!(
        refused(&GOOD.replace("regime = \"linux\"", "regime = \"linus\"")).contains("did you mean `linux`?")
    );
}

#[test]
fn a_setting_that_the_driver_does_not_have_is_refused_with_those_that_it_has() {
    let message = refused(&GOOD.replace("threads = 2", "placement = \"same\""));
    assert!(
        message.starts_with(
            "my.toml:12:1: the driver `pair` has no setting `placement` (it has program, threads"
        ),
        "{message}"
    );
    let message = refused(&GOOD.replace("slice_ms = 20", "slicems = 20"));
    assert!(
        message.starts_with(
            "my.toml:20:31: the driver `pair` has no setting `slicems`; did you mean `slice_ms`?"
        ),
        "{message}"
    );
    let message = refused(&GOOD.replace("parameter = \"interval_us\"", "parameter = \"bytes\""));
    assert!(
        message.starts_with("my.toml:23:13: the driver `pair` has no setting `bytes`"),
        "{message}"
    );
}

#[test]
fn what_is_no_toml_is_refused_with_its_place() {
    assert!(refused("id = \n").starts_with("my.toml:1:"), "{}", refused("id = \n"));
    assert!(refused(&GOOD.replace("threads = 2", "threads = \"two\"")).starts_with("my.toml:12:11: "));
}

#[test]
fn names_that_do_not_exist_are_refused() {
    let message = refused(&GOOD.replace("gang/linux", "gang/linix"));
    assert!(message.contains("there is no variant \"linix\"; did you mean \"linux\"?"), "{message}");
    let message = refused(&GOOD.replace("name = \"gang\"", "name = \"linux\""));
    assert!(message.contains("there twice"), "{message}");
    let message = refused(&GOOD.replace("@interval_us=each", "@threads=each"));
    assert!(message.contains("not swept"), "{message}");
}

#[test]
fn a_verdict_names_one_variant_and_another_to_compare_with() {
    let message = refused(&GOOD.replace("gang/linux.barriers_per_s", "gang.barriers_per_s"));
    assert!(message.contains("compares nothing; write VARIANT/VARIANT.FIGURE"), "{message}");
    let message = refused(&GOOD.replace("gang/linux.barriers_per_s", "gang/linux"));
    assert!(message.starts_with("my.toml:27:11: ") && message.contains("names no figure"), "{message}");
    let message = refused(&GOOD.replace("@interval_us=each", "@interval_us=most"));
    assert!(message.contains("is to name one variant, and values of parameters"), "{message}");
}

#[test]
fn a_verdict_without_sides_is_named_by_the_labels() {
    let text = GOOD.replace("sides = [\"gangs\", \"plain Linux\"]", "circumstance = \"idle\"");
    let labels = "[labels]\ngang = \"the gang\"\n\n[[variant]]\nname = \"linux\"";
    let text = text.replace("[[variant]]\nname = \"linux\"", labels);
    let verdict =
        StudyFile::parse("my.toml", &text).expect("a good file").line(Profile::Quick).verdicts.remove(0);
    assert_eq!((verdict.words.as_str(), verdict.sides), ("the gang against linux, idle", None));
}

#[test]
fn a_verdict_that_a_sweep_splits_says_where_in_the_words_of_the_labels() {
    let text = GOOD.replace("@interval_us=each", "").replace(
        "parameter = \"interval_us\"\nvalues = { smoke = [0], quick = [0, 10], paper = [0, 10, 100] }",
        "parameter = \"program\"\nvalues = { smoke = [\"libgomp\"], quick = [\"libgomp\", \"stencil-rayon\"], paper = [\"libgomp\"] }",
    );
    let labels = "[labels]\n\"program=libgomp\" = \"barriers of OpenMP\"\n\n[[variant]]\nname = \"linux\"";
    let text = text.replace("[[variant]]\nname = \"linux\"", labels);
    let verdicts = StudyFile::parse("my.toml", &text).expect("a good file").line(Profile::Quick).verdicts;
    let words: Vec<&str> = verdicts.iter().filter_map(|verdict| verdict.circumstance.as_deref()).collect();
    assert_eq!(words, ["barriers of OpenMP", "program = stencil-rayon"]);
}

#[test]
fn numbers_beyond_reason_are_refused() {
    assert!(refused(&GOOD.replace("quick = 2,", "quick = 0,")).contains("repetitions"));
    assert!(refused(&GOOD.replace("quick = 0.1", "quick = 1e9")).contains("seconds"));
    assert!(
        refused(&GOOD.replace("quick = [0, 10]", "quick = [0, \"ten\"]"))
            .contains("\"ten\" is no interval_us")
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message =
        StudyFile::read(std::path::Path::new("/nowhere/my.toml")).expect_err("not there").to_string();
    assert!(message.contains("/nowhere/my.toml"), "{message}");
}

#[test]
fn a_chart_over_a_parameter_that_is_not_swept_is_refused() {
    let chart = "\n[[chart]]\ntitle = \"t\"\nkind = \"line\"\nx = \"elapsed_s\"\ny = [\"received_mb\"]\n";
    let message = refused(&format!("{GOOD}{chart}"));
    assert!(message.contains("\"elapsed_s\" is not swept"), "{message}");
}
