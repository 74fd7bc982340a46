//! Recognizes languages that are not supported but resemble a supported one, so that the error can name them.

/// The number of bytes at the start of a file that are searched for signs of its language.
const MAX_BYTES_SCANNED: usize = 4096;

/// Returns the byte offset at which a text shows that its language is not supported, with the name of the
/// language and a way to convert the text. Returns `None` if the language may be a supported one.
pub(super) fn describe(text: &str) -> Option<(usize, &'static str)> {
    let start = &text[..text.floor_char_boundary(MAX_BYTES_SCANNED)];
    let content = start.trim_start_matches('\u{feff}').trim_start();
    let at = start.len() - content.len();
    if content.starts_with('{') && !content.starts_with("{{") {
        let has = |key: &str| content.contains(key);
        let is_networkx = has("\"directed\"") && has("\"nodes\"") && !has("\"format\"");
        return is_networkx.then_some((
            at,
            "this is a graph of networkx (node-link JSON), which is not read; write GraphML: networkx.write_graphml(graph, FILE)",
        ));
    }
    let lines = || content.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_gml = lines()
        .find(|line| !line.starts_with("Creator") && !line.starts_with("Version"))
        .and_then(|line| line.strip_prefix("graph"))
        .is_some_and(|rest| {
            rest.trim_start().starts_with('[')
                || rest.trim().is_empty() && lines().skip_while(|line| *line != "graph").nth(1) == Some("[")
        });
    if is_gml {
        return Some((
            at,
            "this is GML, which is not read; write GraphML: networkx.write_graphml(networkx.read_gml(FILE), NEW)",
        ));
    }
    let template = text.find("{{").filter(|_| text.contains("topology:") || content.starts_with("{{"))?;
    Some((
        template,
        "this is a template in Go's language, as containerlab takes it; name the file that comes out of it: containerlab deploy writes it, \
         or fill the template in with gomplate",
    ))
}

#[cfg(test)]
mod tests {
    use crate::read::{Assume, read};

    fn refused(text: &str) -> String {
        read(text, None, &Assume::default()).expect_err("it is not read").to_string()
    }

    #[test]
    fn files_of_other_languages_are_refused_with_their_name() {
        for gml in ["graph [\n  directed 0\n]", "Creator \"x\"\ngraph\n[\n  node [ id 0 ]\n]"] {
            assert!(refused(gml).starts_with("1:1: this is GML"), "{gml}");
        }
        let networkx =
            "{\"directed\":false,\"multigraph\":false,\"graph\":{},\"nodes\":[{\"id\":0}],\"links\":[]}";
        assert!(refused(networkx).starts_with("1:1: this is a graph of networkx"));
        let template = "name: x\ntopology:\n  nodes:\n{{- if .x }}\n    l1: {}\n{{- end }}\n";
        assert!(refused(template).starts_with("4:1: this is a template"), "{}", refused(template));
        read("graph { a -- b }", None, &Assume::default()).expect("DOT");
    }
}
