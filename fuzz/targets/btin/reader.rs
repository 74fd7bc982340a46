//! The properties that every reader must have.

use unisono_btin::NetworkFile;
use unisono_btin::read::{Assume, Language, LeafVertices, read};

/// No text makes a reader panic, and a network that was read can be written and read again.
pub fn reads(language: Language, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let leaves = if bytes.len() % 2 == 0 { LeafVertices::Nodes } else { LeafVertices::Switches };
    let assume = Assume { leaves, nodes_per_switch: (bytes.len() % 3) as u16, ..Assume::default() };
    if let Ok((topology, report)) = read(text, Some(language), &assume) {
        let again = NetworkFile::from_json(&topology.to_json()).expect("what was written can be read");
        assert!(again.network == topology.network && again.groups == topology.groups);
        assert!(again.switch_names == topology.switch_names && again.node_names == topology.node_names);
        assert_eq!(report.links, topology.network.links().len());
    }
}
