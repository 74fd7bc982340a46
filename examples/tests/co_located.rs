//! Tests the example that needs no broker and checks itself.

use std::process::Command;

#[test]
fn the_channel_serves_in_the_supplier_s_process() {
    let output = Command::new(env!("CARGO_BIN_EXE_co-located")).output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains("refused, as it has to be") && said.contains("300 control events by deadline"),
        "{said}"
    );
}
