//! The chat, through a pipe.

use crate::program::{Ended, argument, command, run_with};
use mlxcel_test_support::demo_model;

fn chat(input: &str, options: &[&str]) -> Ended {
    let demo = argument(&demo_model());
    let common = ["run", &demo, "--interactive", "-n", "6"];
    run_with(command(common.iter().chain(options)), input)
}

#[test]
fn each_line_is_answered() {
    let once = chat("What is a violin?\n", &[]).success();
    assert_eq!(once, "Bowed stringed instrument that\n");
    // A cleared conversation begins again; one that goes on knows what was said.
    let cleared = chat("What is a violin?\n/clear\nWhat is a violin?\n", &[]).success();
    assert_eq!(cleared, once.repeat(2));
    let on = chat("What is a violin?\nWhat is a violin?\n", &[]).success();
    assert!(on.starts_with(&once));
    // What is cached does not change what is said.
    let interpreted = chat(
        "What is a violin?\nWhat is a violin?\n",
        &["-b", "reference"],
    );
    assert_eq!(interpreted.success(), on);
}

#[test]
fn what_was_said_before_is_not_read_again() {
    let ended = chat("What is a violin?\nWhy?\n", &["--stats"]);
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(told.len(), 2, "{ended:#?}");
    assert!(!told[0].contains("from cache"), "{ended:#?}");
    assert!(told[1].contains("from cache"), "{ended:#?}");
}

#[test]
fn commands_are_not_said_to_the_model() {
    let ended = chat("/help\n/nonsense\n\n/bye\nWhat is a violin?\n", &[]);
    assert!(ended.stderr.contains("/clear"), "{ended:#?}");
    assert!(ended.stderr.contains("there is no /nonsense"), "{ended:#?}");
    assert_eq!(ended.success(), "");
}

#[test]
fn a_message_can_have_several_lines() {
    let block = chat("\"\"\"What is\na violin?\"\"\"\n", &[]).success();
    assert_eq!(block.lines().count(), 1, "{block:?}");
}

#[test]
fn a_message_that_does_not_fit_leaves_the_chat_alive() {
    let long = "word ".repeat(600);
    let ended = chat(&format!("{long}\nWhat is a violin?\n"), &[]);
    assert!(ended.stderr.contains("context holds 512"), "{ended:#?}");
    assert!(ended.success().starts_with("Bowed"));
}
