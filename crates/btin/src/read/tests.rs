//! Tests of all readers: accepted files, reports and errors.

use super::*;
use crate::{NodeId, SwitchLink};
use proptest::prelude::*;

fn parsed(text: &str) -> (NetworkFile, ReadReport) {
    read(text, None, &Assume::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> String {
    read(text, None, &Assume::default()).expect_err("it is wrong").to_string()
}

fn links(topology: &NetworkFile) -> Vec<[u32; 4]> {
    let numbers = |l: &SwitchLink| [l.a.switch.0, l.a.port.0.into(), l.b.switch.0, l.b.port.0.into()];
    topology.network.links().iter().map(numbers).collect()
}

fn nodes(topology: &NetworkFile) -> Vec<(u32, u16)> {
    topology.network.nodes().iter().map(|end| (end.switch.0, end.port.0)).collect()
}

const IB: &str = "#\n# NetworkFile file: generated\n#\nvendid=0x2c9\ndevid=0xc738\nsysimgguid=0x1\nswitchguid=0x1(1)\n\
    Switch\t36 \"S-0001\"\t\t# \"leaf\" enhanced port 0 lid 1 lmc 0\n\
    [1]\t\"H-0101\"[1](102) \t\t# \"node-1 HCA-1\" lid 9 4xEDR\n\
    [2][ext 1]\t\"H-0102\"[2](104)\n\
    [17]\t\"S-0002\"[4]\t\t# \"spine\" lid 2 4xEDR\n\
    [18]\t\"S-0002\"[5][ext 3]\n\
    \nvendid=0x2c9\nswitchguid=0x2(2)\nSwitch\t36 \"S-0002\"\n[4]\t\"S-0001\"[17]\n[5]\t\"S-0001\"[18]\n\
    \ncaguid=0x101\nCa\t1 \"H-0101\"\t# \"node-1 HCA-1\"\n[1](102) \t\"S-0001\"[1]\t\t# lid 9\n\
    \nCa\t2 \"H-0102\"\n[2](104) \t\"S-0001\"[2]\n";

#[test]
fn ibnetdiscover_keeps_the_real_port_numbers_and_reads_each_cable_once() {
    let (topology, report) = parsed(IB);
    assert_eq!(report.language, Language::Ibnetdiscover);
    assert_eq!(links(&topology), [[0, 17, 1, 4], [0, 18, 1, 5]]);
    assert_eq!(nodes(&topology), [(0, 1), (0, 2)]);
    assert_eq!(topology.switch_names, ["S-0001", "S-0002"]);
    assert_eq!(topology.node_names, ["H-0101", "H-0102"]);
    assert_eq!(topology.network.ports(crate::SwitchId(0)), 37);
    assert_eq!((report.parallel_links, report.ports_assigned, report.notes.len()), (1, 0, 0));
}

#[test]
fn ibnetdiscover_may_be_aligned_with_spaces() {
    let aligned = IB.replace("Switch\t36 ", "Switch   36   ").replace("Ca\t", "Ca      ");
    assert_eq!(parsed(&aligned).0, parsed(IB).0);
}

#[test]
fn ibnetdiscover_with_ends_that_disagree_is_refused_with_its_line() {
    let crossed = IB.replace("[5]\t\"S-0001\"[18]", "[5]\t\"S-0001\"[19]");
    let error = "12:1: port 18 of S-0001 leads to port 5 of S-0002, which leads to port 19 of S-0001";
    assert_eq!(refused(&crossed), error);
    let twice = IB.replace("[18]\t\"S-0002\"[5]", "[17]\t\"S-0002\"[5]");
    assert_eq!(refused(&twice), "12:1: port 17 of S-0001 is used twice");
    let beyond = IB.replace("[18]\t\"S-0002\"[5]", "[37]\t\"S-0002\"[5]");
    assert_eq!(refused(&beyond), "12:1: port 37 of S-0001, which has ports 1 to 36");
    let ahead = "vendid=1\n[1] \"S-1\"[1]\n";
    assert_eq!(refused(ahead), "2:1: a port before the first Switch, Ca or Rt");
}

#[test]
fn ibnetdiscover_with_one_end_only_is_read_and_said() {
    let text = "Switch\t4 \"S-1\"\n[1]\t\"H-9\"[1](a)\n[2]\t\"S-1\"[3]\n[3]\t\"S-1\"[2]\nflavour=2\n";
    let (topology, report) = parsed(text);
    assert_eq!((nodes(&topology), links(&topology)), (vec![(0, 1)], vec![[0, 2, 0, 3]]));
    assert_eq!(report.self_loops, 1);
    assert_eq!(report.unknown, BTreeMap::from([("key flavour".to_owned(), 1)]));
    let notes = ["1 cable listed at one end only", "1 cable to something that has no block of its own"];
    assert_eq!(report.notes, notes);
}

const GRAPHML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="type" attr.type="string"/>
  <key id="d1" for="node" attr.name="member" attr.type="boolean"/>
  <key id="d2" for="node" attr.name="Longitude" attr.type="double"/>
  <graph id="G" edgedefault="undirected">
    <edge source="a" target="b" sourceport="3" targetport="5"/>
    <node id="a"><data key="d0">switch</data><data key="d2">9.1</data><port name="3"/></node>
    <node id="b" ports="8"><data key="d0">switch</data></node>
    <node id="x"><data key="d0">host</data><data key="d1">true</data></node>
    <edge source="x" target="b"/>
    <edge source="b" target="a"><data key="weight">2</data></edge>
  </graph>
</graphml>
"#;

#[test]
fn graphml_takes_named_ports_and_fills_in_the_others() {
    let (topology, report) = parsed(GRAPHML);
    assert_eq!(links(&topology), [[0, 3, 1, 5], [1, 0, 0, 0]]);
    assert_eq!(nodes(&topology), [(1, 1)]);
    assert_eq!(topology.groups[0].members(), [NodeId(0)]);
    assert_eq!(topology.network.ports(crate::SwitchId(1)), 8);
    assert_eq!(report.ports_assigned, 3);
    let unknown = [("edge attribute weight".to_owned(), 1), ("node attribute Longitude".to_owned(), 1)];
    assert_eq!(report.unknown, BTreeMap::from(unknown));
}

#[test]
fn graphml_that_is_wrong_is_refused_with_line_and_element() {
    assert_eq!(
        refused(&GRAPHML.replace("target=\"a\"", "target=\"c\"")),
        "12:5: edge: its target c is not there"
    );
    assert_eq!(
        refused(&GRAPHML.replace("id=\"x\"", "id=\"a\"")),
        "10:5: node a: this node is there twice"
    );
    let taken = GRAPHML
        .replace("<edge source=\"x\" target=\"b\"/>", "<edge source=\"x\" target=\"b\" targetport=\"5\"/>");
    assert_eq!(refused(&taken), "11:5: node x: port 5 of switch b is used twice");
    let beyond = GRAPHML.replace("targetport=\"5\"", "targetport=\"8\"");
    assert_eq!(
        refused(&beyond),
        "7:5: cable: there is no port 8 at switch b, which has 8 ports (counted from 0)"
    );
    assert!(
        refused("<graphml><graph></graphml>").starts_with("1:17: "),
        "{}",
        refused("<graphml><graph></graphml>")
    );
    assert_eq!(refused("<svg/>"), "1:1: the root element is <svg>, expected <graphml>");
}

#[test]
fn graphml_with_a_document_type_is_refused_before_an_entity_grows() {
    let entities: String = (1..9).map(|n| format!("<!ENTITY e{n} \"&e{};&e{};\">", n - 1, n - 1)).collect();
    let text = format!(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE graphml [<!ENTITY e0 \"0123456789\">{entities}]>\n\
         <graphml><graph><node id=\"&e8;\"/></graph></graphml>"
    );
    assert_eq!(refused(&text), "2:1: a document type (<!DOCTYPE ...>) is not read; remove it");
}

#[test]
fn graphml_nested_without_bound_is_refused_with_the_limit() {
    let deep = format!("<graphml>{}{}</graphml>", "<x>".repeat(50_000), "</x>".repeat(50_000));
    assert_eq!(refused(&deep), "1:199: elements more than 64 deep");
}

#[test]
fn an_element_of_graphml_with_very_many_attributes_is_refused_with_the_limit() {
    let many: String = (0..200_000).map(|n| format!(" a{n}=''")).collect();
    let text = format!("<graphml><graph><node id='a'{many}/></graph></graphml>");
    assert_eq!(refused(&text), "1:17: an element with more than 256 attributes");
    let spaces: String = (0..200_000).map(|n| format!(" xmlns:a{n}='{n}'")).collect();
    assert!(refused(&format!("<graphml{spaces}/>")).contains("more than 256 attributes"));
}

#[test]
fn dot_reads_chains_subgraphs_ports_defaults_and_comments() {
    let text = "/* a ring */ graph \"g\" {\n  rankdir=LR; // ignored\n# line\n  node [type=switch, shape=box]\n  a:1 -- b:2:ne; b -- c -- \"a b\"\n\
          { node [type=node] x y [member=true] } -- a\n  <b>x</b> ; subgraph s { c } -- b [weight=3]\n}\n";
    let fixed = text.replace("  <b>x</b> ;", "  ");
    let (topology, report) = parsed(&fixed);
    assert_eq!(topology.switch_names, ["a", "b", "c", "a b"]);
    assert_eq!(topology.node_names, ["x", "y"]);
    assert_eq!(links(&topology), [[0, 1, 1, 2], [1, 0, 2, 0], [2, 1, 3, 0], [2, 2, 1, 1]]);
    assert_eq!(nodes(&topology), [(0, 0), (0, 2)]);
    assert_eq!(topology.groups[0].members(), [NodeId(1)]);
    assert_eq!(report.parallel_links, 1);
    let unknown = [("edge attribute weight", 1), ("graph attribute rankdir", 1), ("node attribute shape", 6)];
    assert_eq!(report.unknown, unknown.map(|(name, n)| (name.to_owned(), n)).into());
}

#[test]
fn dot_that_is_wrong_is_refused_with_line_and_column() {
    assert_eq!(refused("graph {\n a -- ;\n}"), "2:7: ; or ,, expected a vertex, a subgraph or attributes");
    assert_eq!(refused("graph {\n a -- \"b\n}"), "2:7: the quotes do not end");
    assert_eq!(
        refused("graph {\n 1a -- b }"),
        "2:2: a name that begins with a digit, as \"1\" here, needs quotes"
    );
    assert_eq!(refused("graph { a:1 -- b; a:1 -- c }"), "1:23: cable: port 1 of switch a is used twice");
    assert_eq!(refused("graph { a [ports=x] }"), "1:12: ports=x of a, expected a number from 0 to 65535");
    assert_eq!(refused("graph { a"), "1:10: the file ends before its } does");
    let deep = format!("graph {}", "{".repeat(100_000));
    assert!(refused(&deep).ends_with("subgraphs more than 64 deep"), "{}", refused(&deep));
}

#[test]
fn dot_with_very_many_defaults_is_refused_before_each_vertex_takes_them_all() {
    let defaults: Vec<String> = (0..300).map(|n| format!("a{n}=1")).collect();
    let text = format!("graph {{ node [{}]; x; y; z }}", defaults.join(","));
    assert_eq!(refused(&text), "1:1697: more than 256 attributes of vertices in effect at once");
}

#[test]
fn json_nested_without_bound_is_refused() {
    for text in [format!("{{\"x\":{}", "[".repeat(1_000_000)), "{\"registers\":".repeat(1_000_000)] {
        let error = NetworkFile::from_json(&text).expect_err("it never ends").to_string();
        assert!(!error.is_empty());
        let error = crate::Tree::from_json(&text).expect_err("it never ends").to_string();
        assert!(!error.is_empty());
    }
}

#[test]
fn vertices_that_do_not_say_what_they_are_become_switches_or_leaves_become_nodes() {
    let text = "graph { a -- b; b -- c; a -- x; c -- y }";
    let (topology, report) = parsed(text);
    assert_eq!((topology.network.switch_count(), topology.network.nodes().len()), (5, 0));
    assert_eq!(report.notes.len(), 1);
    let assume = Assume { leaves: LeafVertices::Nodes, ..Assume::default() };
    let (topology, _) = read(text, None, &assume).expect("it is right");
    assert_eq!((topology.network.switch_count(), topology.node_names == ["x", "y"]), (3, true));
    let assume = Assume { nodes_per_switch: 2, ports: Some(8), ..Assume::default() };
    let (topology, _) = read(text, None, &assume).expect("it is right");
    assert_eq!((topology.network.nodes().len(), topology.network.ports(crate::SwitchId(4))), (10, 8));
}

#[test]
fn parallel_links_self_loops_and_parts_are_counted() {
    let (_, report) = parsed("graph { a -- b; b -- a; a -- a; c -- d; x [type=host]; x -- x }");
    assert_eq!((report.links, report.parallel_links, report.self_loops, report.parts), (4, 1, 1, 2));
    let left_out = report.left_out;
    assert_eq!((left_out.cables_between_nodes, left_out.nodes_without_a_cable), (1, 1));
    assert!(
        report.notes.iter().any(|note| note.starts_with("1 cable between two nodes")),
        "{:?}",
        report.notes
    );
}

#[test]
fn names_of_ports_that_are_no_numbers_get_numbers_in_their_order() {
    let (topology, _) = parsed("graph { a:eth10 -- b:0; a:eth9 -- c:7; a:1 -- d }");
    assert_eq!(links(&topology), [[0, 2, 1, 0], [0, 0, 2, 7], [0, 1, 3, 0]]);
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn a_switch_with_more_cables_than_ports_can_be_numbered_is_refused_with_the_limit() {
    let star: String = (0..=65_535).map(|n| format!("hub -- s{n};")).collect();
    let error = refused(&format!("graph {{ {star} }}"));
    assert!(
        error.ends_with("cable: switch hub has more than 65535 cables, the most a switch can have"),
        "{error}"
    );
    let nodes: String = (0..=65_535).map(|n| format!("<node id=\"n{n}\"/>")).collect();
    let edges: String = (0..=65_535).map(|n| format!("<edge source=\"hub\" target=\"n{n}\"/>")).collect();
    let graphml = format!("<graphml><graph><node id=\"hub\"/>{nodes}{edges}</graph></graphml>");
    assert!(
        refused(&graphml).contains("switch hub has more than 65535 cables"),
        "{}",
        refused(&graphml)
    );
    let named: String = (0..=65_535).map(|n| format!("hub:p{n} -- s{n};")).collect();
    assert!(refused(&format!("graph {{ {named} }}")).contains("more than 65535 cables"));
    let fits: String = (0..65_535).map(|n| format!("hub -- s{n};")).collect();
    assert_eq!(parsed(&format!("graph {{ {fits} }}")).0.network.ports(crate::SwitchId(0)), 65_535);
}

/// Makes a GraphML file like those of topology collections: most vertices have a label for drawings, and no
/// attribute gives a role.
fn zoo() -> String {
    let node = |n: usize| {
        let label = if n.is_multiple_of(9) { "" } else { "<data key=\"d1\">Node</data>" };
        format!("<node id=\"{n}\"><data key=\"d0\">City {n}</data>{label}</node>\n")
    };
    let edge = |n: usize| format!("<edge source=\"{n}\" target=\"{}\"/>\n", (n + 1) % 50);
    let nodes: String = (0..50).map(node).collect();
    let edges: String = (0..50).map(edge).collect();
    format!(
        "<graphml>\n<key attr.name=\"label\" for=\"node\" id=\"d0\"/>\n<key attr.name=\"type\" for=\"node\" \
         id=\"d1\"/>\n<graph>\n{nodes}{edges}</graph>\n</graphml>\n"
    )
}

#[test]
fn a_drawing_label_that_calls_every_vertex_a_node_gives_no_roles() {
    let (topology, report) = parsed(&zoo());
    assert_eq!(
        (topology.network.switch_count(), topology.network.nodes().len(), report.links),
        (50, 0, 50)
    );
    assert_eq!(report.unknown["node attribute type"], 44);
    assert!(report.notes[0].contains("type=Node is not taken for a role"), "{:?}", report.notes);
}

#[test]
fn the_word_node_is_a_role_where_others_are_called_switches() {
    let text = "graph { a [type=switch]; b [type=switch]; h [type=Node]; a -- b; a -- h; b -- h }";
    assert_eq!(parsed(text).0.node_names, ["h", "h/2"]);
    // DOT has no attribute `type` of its own, so there the word *node* alone is enough if it fits the cables
    assert_eq!(parsed("graph { h [type=node]; a -- b; a -- h }").0.node_names, ["h"]);
    let labels = "graph { node [type=node]; a -- b; b -- c; c -- a }";
    assert_eq!(parsed(labels).0.network.switch_count(), 3);
}

#[test]
fn roles_can_be_given_by_any_attribute_and_value() {
    let text = "graph { node [tier=leaf]; l1; l2; node [tier=rack]; h1; h2; h1 -- l1 -- l2 -- h2 }";
    assert_eq!(parsed(text).0.network.switch_count(), 4);
    let with = |roles: &[&str]| {
        let roles = roles.iter().map(|role| role.parse().expect("it is a role")).collect();
        read(text, None, &Assume { roles, ..Assume::default() })
    };
    let (topology, _) = with(&["tier=rack:host"]).expect("it is right");
    assert_eq!((topology.switch_names == ["l1", "l2"], topology.node_names == ["h1", "h2"]), (true, true));
    let error = with(&["tier=spine:switch"]).expect_err("there is none").to_string();
    assert_eq!(error, "1:1: --role tier=spine:switch: no vertex has tier=spine; tier is leaf, rack");
    let error = with(&["shape=box:host"]).expect_err("there is none").to_string();
    assert_eq!(
        error,
        "1:1: --role shape=box:host: no vertex has shape=box; no vertex has an attribute shape"
    );
    for wrong in ["tier=rack", "tier:host", "tier=rack:router", "=x:host"] {
        assert_eq!(wrong.parse::<VertexRole>(), Err(BadRole), "{wrong}");
    }
}

#[test]
fn roles_by_which_most_of_a_file_is_left_out_are_refused() {
    let roles = vec!["type=Node:host".parse().expect("it is a role")];
    let assume = Assume { roles, ..Assume::default() };
    let error = read(&zoo(), None, &assume).expect_err("it is not what the file means").to_string();
    assert!(
        error.starts_with("1:1: most of the file would be left out: 38 of 50 cables join two hosts"),
        "{error}"
    );
    assert!(error.ends_with("say what is a switch: --role ATTRIBUTE=VALUE:switch"), "{error}");
}

/// Two switches and four adapters, one of them with two cables, as in the manual page of ibnetdiscover.
const GROUPED: &str = r#"
          #
          # NetworkFile file: generated on Tue Jun  5 14:15:10 2007
          #
          # Max of 3 hops discovered
          # Initiated from node 0000000000000a30 port 0000000000000a31

          Non-Chassis Nodes

          vendid=0x8f1
          devid=0x5a06
          sysimgguid=0x100
          switchguid=0x110(110)
          Switch  24 "S-0000000000000110"         # "ISR24" base port 0 lid 6 lmc 0
          [22]    "H-0000000000000a20"[1](a21)         # "mynode Adapter" lid 4 4xSDR
          [10]    "S-0000000000000120"[1]         # "SW8" lid 3 4xSDR
          [8]     "H-0000000000000a30"[2](a32)         # "MT1 Adapter" lid 14 4xSDR
          [6]     "S-0000000000000120"[3]         # "SW8" lid 3 4xSDR
          [12]    "H-0000000000000a30"[1](a31)         # "MT1 Adapter" lid 10 4xSDR

          vendid=0x8f1
          devid=0x5a05
          switchguid=0x120(120)
          Switch  8 "S-0000000000000120"          # "SW8" base port 0 lid 3 lmc 0
          [6]     "H-0000000000000a40"[1](a41)         # "Mellanox Technologies Aggregation Node" lid 16 4xSDR
          [1]     "S-0000000000000110"[10]                # "ISR24" lid 6 1xSDR
          [3]     "S-0000000000000110"[6]         # "ISR24" lid 6 4xSDR

          vendid=0x2c9
          devid=0x5a44
          caguid=0xa40
          Ca      2 "H-0000000000000a40"          # "Mellanox Technologies Aggregation Node"
          [1](a41)     "S-0000000000000120"[6]         # lid 16 lmc 1 "SW8" lid 3 4xSDR

          vendid=0x2c9
          devid=0x5a44
          caguid=0xa20
          Ca      2 "H-0000000000000a20"          # "mynode Adapter"
          [1](a21)     "S-0000000000000110"[22]                # lid 4 lmc 1 "ISR24" lid 6 4xSDR

          vendid=0x2c9
          devid=0x5a44
          caguid=0xa30
          Ca      2 "H-0000000000000a30"          # "MT1 Adapter"
          [2](a32)     "S-0000000000000110"[8]         # lid 14 lmc 1 "ISR24" lid 6 4xSDR
          [1](a31)     "S-0000000000000110"[12]                # lid 10 lmc 1 "ISR24" lid 6 1xSDR
"#;

#[test]
fn ibnetdiscover_in_groups_is_read_with_what_people_call_the_nodes() {
    let (topology, report) = parsed(GROUPED);
    assert_eq!(report.language, Language::Ibnetdiscover);
    assert_eq!(links(&topology), [[0, 10, 1, 1], [0, 6, 1, 3]]);
    assert_eq!(topology.switch_labels, ["ISR24", "SW8"]);
    let labels = ["Mellanox Technologies Aggregation Node", "mynode Adapter", "MT1 Adapter", "MT1 Adapter"];
    assert_eq!(topology.node_labels, labels);
    assert_eq!(topology.node_shown(NodeId(1)), "H-0000000000000a20 (mynode Adapter)");
    assert_eq!(topology.hosts().collect::<Vec<_>>(), [1, 2, 3].map(NodeId));
    assert_eq!(NetworkFile::from_json(&topology.to_json()), Ok(topology));
}

#[test]
fn a_switch_of_a_chassis_may_be_listed_twice_if_both_say_the_same() {
    let block = &IB[IB.find("Switch\t36 \"S-0002\"").expect("it is there")
        ..IB.find("\ncaguid=0x101").expect("it is there")];
    let grouped = IB.replace("\ncaguid=0x101", &format!("# Chassis Switches\n{block}\ncaguid=0x101"));
    assert_eq!(parsed(&format!("Chassis 1 (guid 0x7)\n{grouped}")).0, parsed(IB).0);
    let other = grouped.replacen("[5]\t\"S-0001\"[18]\n\nca", "[5]\t\"S-0001\"[19]\n\nca", 1);
    assert!(refused(&other).ends_with("port 5 of S-0002 is used twice"), "{}", refused(&other));
    let narrow = grouped.replace(&format!("Switches\n{block}"), "Switches\nSwitch\t8 \"S-0002\"\n");
    assert!(refused(&narrow).ends_with("S-0002: this block is there twice, with another number of ports"));
}

#[test]
fn lines_of_standard_error_in_the_output_of_ibnetdiscover_are_left_out_and_said() {
    let warned = "ibwarn: [7356] mad_rpc: _do_madrpc failed; dport (DR path slid 0; dlid 0; 0,1)\n\
        /build/libibnetdisc/src/ibnetdisc.c:366; Can't get node info\nsudo: unable to resolve host head\n";
    let (topology, report) = parsed(&format!("{warned}{IB}src/query_smp.c:229; mad failed\n"));
    assert_eq!(topology, parsed(IB).0);
    assert!(report.notes[0].starts_with("4 lines of standard error left out, the first \"ibwarn: [7356]"));
    assert!(refused(&format!("{IB}what is this\n")).contains("expected Switch, Ca or Rt"));
}

#[test]
fn networks_of_the_simulator_ibsim_are_read() {
    let text = "# Net configuration file\nmodule \"lab\"\nSwitch\t8 \"Switch1\"\n[1]\t\"Hca1\"[1]\n[2]\t\"Hca2\"\n\
        [3]\t\"Switch2\"[3]\tw=12\n\nSwitch 8 \"Switch2\"\n[3]\t\"Switch1\"[3] w=12 s=4\n\n\
        Hca\t2 \"Hca1\"\n[1]\t\"Switch1\"[1]\tlid 5 lmc 1\n\nHca\t2 \"Hca2\"\n[1]\t\"Switch1\"[2]\n";
    let (topology, report) = parsed(text);
    assert_eq!((links(&topology), nodes(&topology)), (vec![[0, 3, 1, 3]], vec![(0, 1), (0, 2)]));
    assert_eq!(topology.node_names, ["Hca1", "Hca2"]);
    assert_eq!(report.notes, Vec::<String>::new());
    assert!(refused(&text.replace("w=12 s=4", "what")).contains("after the port at the other end"));
}

#[test]
fn ports_keep_the_names_that_they_have_on_their_switches() {
    let (topology, report) =
        parsed("graph { leaf:swp51 -- spine:swp1; leaf:swp52 -- spine:swp2; leaf:3 -- x }");
    assert_eq!(links(&topology), [[0, 0, 1, 0], [0, 1, 1, 1], [0, 3, 2, 0]]);
    let shown = |switch, port| topology.port_shown(crate::SwitchId(switch), crate::Port(port));
    assert_eq!([shown(0, 1), shown(1, 0), shown(0, 3)], ["swp52", "swp1", "3"]);
    assert_eq!(report.notes[1], "4 ports with a name: each keeps its name beside its number");
    let text = topology.to_json();
    let key =
        "\"port_names\":{\"0\":{\"0\":\"swp51\",\"1\":\"swp52\"},\n\"1\":{\"0\":\"swp1\",\"1\":\"swp2\"}}";
    assert!(text.contains(key), "{text}");
    assert_eq!(NetworkFile::from_json(&text), Ok(topology));
    let beyond = text.replace("\"1\":\"swp2\"", "\"9\":\"swp2\"");
    let error = NetworkFile::from_json(&beyond).expect_err("it has two ports").to_string();
    assert!(error.ends_with("port_names.1.9: there is no port 9 at switch 1"), "{error}");
    let two = text.replace("\"1\":{\"0\"", "\"01\":{\"0\"");
    assert!(
        NetworkFile::from_json(&two)
            .expect_err("a key")
            .to_string()
            .contains("\"01\" is no number of a switch")
    );
}

#[test]
fn what_no_reader_knows_is_refused() {
    let error = "1:1: this is neither btin-topo-1 (JSON), nor GraphML, nor DOT, nor a topology of containerlab, nor the output of ibnetdiscover or lldpctl";
    assert_eq!(refused("hello"), error);
    assert_eq!(refused(""), error);
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic_and_what_it_reads_can_be_written_and_read(
        text in "(graph|digraph|strict) ?[a-c{}\\[\\]:;,=\"<>/*# \\n0-9-]{0,60}", language in 0..6_usize,
    ) {
        for text in [text.clone(), text.replacen("graph", "Switch 4 \"S-1\"\n[1]", 1), format!("<graphml>{text}</graphml>")] {
            if let Ok((topology, _)) = read(&text, Some(Language::ALL[language]), &Assume::default()) {
                let again = NetworkFile::from_json(&topology.to_json());
                prop_assert_eq!(again.as_ref(), Ok(&topology));
            }
        }
    }
}
