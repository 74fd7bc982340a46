//! An interpreter of the part of P4_16 that `examples/p4/barrier.p4` uses in its control `barrier`: exact
//! tables, actions with parameters, registers, assignments, `|`, `==`, casts and `if`. Values are numbers
//! without a width. It refuses a program that uses anything else, and names the unknown token.

use serde_json::Value;
use std::collections::HashMap;

/// The egress port that `mark_to_drop` of v1model sets.
const DROP: u64 = 511;

#[derive(Debug)]
enum Expression {
    Number(u64),
    Path(String),
    Or(Box<Expression>, Box<Expression>),
    Equal(Box<Expression>, Box<Expression>),
    /// `TABLE.apply().hit`: executes the action of the entry that matches, and tells whether there is one.
    Hit(String),
}

#[derive(Debug)]
enum Statement {
    Assign(String, Expression),
    Call(String, Vec<Expression>),
    If(Expression, Vec<Statement>, Vec<Statement>),
}

#[derive(Debug, Default)]
struct Action {
    /// The name that entries use, and the name in the action.
    parameters: Vec<(String, String)>,
    body: Vec<Statement>,
}

#[derive(Debug, Default)]
pub(crate) struct Program {
    constants: HashMap<String, u64>,
    actions: HashMap<String, Action>,
    /// The keys of each table: the name that entries use, and the field.
    tables: HashMap<String, Vec<(String, String)>>,
    apply: Vec<Statement>,
}

struct Tokens<'a> {
    all: Vec<&'a str>,
    at: usize,
}

fn tokens(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut rest = line.split("//").next().unwrap_or_default().trim();
        while !rest.is_empty() {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let word = rest.find(|letter: char| !is_word(letter) && letter != '.').unwrap_or(rest.len());
            let quoted = rest.strip_prefix('"').and_then(|inside| Some(inside.find('"')? + 2));
            let length = match (word, quoted) {
                (_, Some(length)) => length,
                (0, _) if rest.starts_with("==") => 2,
                (0, _) => rest.chars().next().map_or(1, char::len_utf8),
                (word, _) => word,
            };
            let (token, after) = rest.split_at(length);
            all.push(token);
            rest = after.trim_start();
        }
    }
    all
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> &'a str {
        self.all.get(self.at).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) {
        let next = self.next();
        assert_eq!(next, token, "after {:?}", &self.all[self.at.saturating_sub(6)..self.at]);
    }

    /// Skips a type: `bit<8>`, or a name.
    fn skip_type(&mut self) {
        self.next();
        while self.takes("<") {
            self.skip_type();
            self.expect(">");
        }
    }

    /// Reads `@name("text")` if it comes next, and returns the text.
    fn name(&mut self) -> Option<String> {
        self.takes("@").then(|| {
            self.expect("name");
            self.expect("(");
            let name = self.next().trim_matches('"').to_owned();
            self.expect(")");
            name
        })
    }

    fn expression(&mut self) -> Expression {
        let mut left = self.operand();
        loop {
            if self.takes("|") {
                left = Expression::Or(Box::new(left), Box::new(self.operand()));
            } else if self.takes("==") {
                left = Expression::Equal(Box::new(left), Box::new(self.operand()));
            } else {
                return left;
            }
        }
    }

    fn operand(&mut self) -> Expression {
        if self.takes("(") {
            self.skip_type();
            self.expect(")");
            return self.operand();
        }
        let token = self.next();
        if let Ok(number) = token.parse() {
            return Expression::Number(number);
        }
        match token.strip_suffix(".apply") {
            None => Expression::Path(token.to_owned()),
            Some(table) => {
                ["(", ")", ".hit"].into_iter().for_each(|token| self.expect(token));
                Expression::Hit(table.to_owned())
            }
        }
    }

    /// Reads `{ statements }`.
    fn block(&mut self) -> Vec<Statement> {
        self.expect("{");
        let mut statements = Vec::new();
        while !self.takes("}") {
            statements.push(self.statement());
        }
        statements
    }

    fn statement(&mut self) -> Statement {
        if self.takes("if") {
            self.expect("(");
            let condition = self.expression();
            self.expect(")");
            let then = self.block();
            let otherwise = if self.takes("else") { self.block() } else { Vec::new() };
            return Statement::If(condition, then, otherwise);
        }
        let path = self.next().to_owned();
        let statement = if self.takes("=") {
            Statement::Assign(path, self.expression())
        } else {
            self.expect("(");
            let mut arguments = Vec::new();
            while !self.takes(")") {
                arguments.push(self.expression());
                self.takes(",");
            }
            Statement::Call(path, arguments)
        };
        self.expect(";");
        statement
    }

    fn action(&mut self) -> Action {
        self.expect("(");
        let mut parameters = Vec::new();
        while !self.takes(")") {
            let name = self.name();
            self.skip_type();
            let own = self.next().to_owned();
            parameters.push((name.unwrap_or_else(|| own.clone()), own));
            self.takes(",");
        }
        Action { parameters, body: self.block() }
    }

    /// Reads a table and returns its keys. All keys must be exact.
    fn table(&mut self) -> Vec<(String, String)> {
        ["{", "key", "=", "{"].into_iter().for_each(|token| self.expect(token));
        let mut keys = Vec::new();
        while !self.takes("}") {
            let field = self.next().to_owned();
            [":", "exact"].into_iter().for_each(|token| self.expect(token));
            keys.push((self.name().unwrap_or_else(|| field.clone()), field));
            self.expect(";");
        }
        // skips the rest of the table, with its lists of actions
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "" => panic!("a table has no end"),
                _ => {}
            }
        }
        keys
    }
}

impl Program {
    /// Reads the constants of a program and one of its controls.
    pub(crate) fn read(text: &str, control: &str) -> Self {
        let mut program = Self::default();
        let mut tokens = Tokens { all: tokens(text), at: 0 };
        while tokens.at < tokens.all.len() {
            match tokens.next() {
                "const" => {
                    tokens.skip_type();
                    let name = tokens.next().to_owned();
                    tokens.expect("=");
                    // the tests use no constants in other bases
                    if let Ok(value) = tokens.next().parse() {
                        program.constants.insert(name, value);
                    }
                }
                "control" if tokens.peek() == control => {
                    while tokens.next() != ")" {}
                    tokens.expect("{");
                    program.read_control(&mut tokens);
                    return program;
                }
                _ => {}
            }
        }
        panic!("there is no control {control}");
    }

    fn read_control(&mut self, tokens: &mut Tokens<'_>) {
        loop {
            match tokens.next() {
                "}" => return,
                "register" => while tokens.next() != ";" {},
                "action" => {
                    let name = tokens.next().to_owned();
                    self.actions.insert(name, tokens.action());
                }
                "table" => {
                    let name = tokens.next().to_owned();
                    self.tables.insert(name, tokens.table());
                }
                "apply" => self.apply = tokens.block(),
                other => panic!("{other} is not known in a control"),
            }
        }
    }
}

/// A switch: the program, the exported entries, and the values of registers and fields.
pub(crate) struct P4Switch<'a> {
    program: &'a Program,
    entries: &'a Value,
    registers: HashMap<(String, u64), u64>,
    fields: HashMap<String, u64>,
}

/// A message: kind, group, data.
pub(crate) type Message = (u64, u64, u64);

impl<'a> P4Switch<'a> {
    pub(crate) fn new(program: &'a Program, entries: &'a Value) -> Self {
        Self { program, entries, registers: HashMap::new(), fields: HashMap::new() }
    }

    /// Returns the ports at which a message leaves, in order, and the message that leaves there.
    pub(crate) fn take(&mut self, port: u64, (kind, group, data): Message) -> (Vec<u64>, Message) {
        self.fields.clear();
        for (name, value) in [
            ("hdr.sync.kind", kind),
            ("hdr.sync.group", group),
            ("hdr.sync.data", data),
            ("standard_metadata.ingress_port", port),
        ] {
            self.fields.insert(name.to_owned(), value);
        }
        let program = self.program;
        self.execute(&program.apply);
        let field = |name: &str| self.fields.get(name).copied().unwrap_or_default();
        let message = (field("hdr.sync.kind"), field("hdr.sync.group"), field("hdr.sync.data"));
        let mut ports = match (field("standard_metadata.mcast_grp"), field("standard_metadata.egress_spec")) {
            (0, DROP) => Vec::new(),
            (0, port) => vec![port],
            (group, _) => self.replicas(group),
        };
        ports.sort_unstable();
        (ports, message)
    }

    fn replicas(&self, group: u64) -> Vec<u64> {
        let groups = self.entries["multicast_group_entries"].as_array().expect("a list");
        let group = groups.iter().find(|entry| entry["multicast_group_id"] == group).expect("it is exported");
        let replicas = group["replicas"].as_array().expect("a list");
        replicas.iter().map(|replica| replica["egress_port"].as_u64().expect("a port")).collect()
    }

    fn execute(&mut self, statements: &'a [Statement]) {
        for statement in statements {
            match statement {
                Statement::Assign(path, value) => {
                    let value = self.value(value);
                    self.fields.insert(path.clone(), value);
                }
                Statement::If(condition, then, otherwise) => {
                    let chosen = if self.value(condition) != 0 { then } else { otherwise };
                    self.execute(chosen);
                }
                Statement::Call(name, arguments) => self.call(name, arguments),
            }
        }
    }

    fn call(&mut self, name: &str, arguments: &'a [Expression]) {
        match (name, name.rsplit_once('.'), arguments) {
            ("mark_to_drop", ..) => {
                self.fields.insert("standard_metadata.egress_spec".to_owned(), DROP);
                self.fields.insert("standard_metadata.mcast_grp".to_owned(), 0);
            }
            (_, Some((register, "read")), [Expression::Path(into), index]) => {
                let place = (register.to_owned(), self.value(index));
                let value = self.registers.get(&place).copied().unwrap_or_default();
                self.fields.insert(into.clone(), value);
            }
            (_, Some((register, "write")), [index, value]) => {
                let (index, value) = (self.value(index), self.value(value));
                self.registers.insert((register.to_owned(), index), value);
            }
            _ => panic!("{name} is not known"),
        }
    }

    fn value(&mut self, expression: &'a Expression) -> u64 {
        match expression {
            Expression::Number(number) => *number,
            Expression::Path(path) => {
                let constant = self.program.constants.get(path);
                constant.or_else(|| self.fields.get(path)).copied().unwrap_or_default()
            }
            Expression::Or(left, right) => self.value(left) | self.value(right),
            Expression::Equal(left, right) => u64::from(self.value(left) == self.value(right)),
            Expression::Hit(table) => u64::from(self.look_up(table)),
        }
    }

    /// Executes the action of the entry that matches. Returns whether there is one.
    fn look_up(&mut self, table: &str) -> bool {
        let keys = &self.program.tables[table];
        let entries = self.entries["table_entries"].as_array().expect("a list");
        let entry = entries.iter().find(|entry| {
            let fields = entry["match"].as_object().expect("fields");
            assert_eq!(fields.len(), keys.len(), "an entry has a value for each key");
            let matches = |(name, field): &(String, String)| {
                fields[name].as_u64() == Some(self.fields.get(field).copied().unwrap_or_default())
            };
            entry["table"] == format!("barrier.{table}") && keys.iter().all(matches)
        });
        let Some(entry) = entry else { return false };
        let name = entry["action_name"].as_str().and_then(|name| name.strip_prefix("barrier."));
        let action = &self.program.actions[name.expect("it is an action of the control")];
        let given = entry["action_params"].as_object().expect("parameters");
        assert_eq!(given.len(), action.parameters.len(), "an entry has a value for each parameter");
        for (name, own) in &action.parameters {
            let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            let value = given[name].as_u64().or_else(|| number(given[name].as_str()?));
            self.fields.insert(own.clone(), value.expect("a number"));
        }
        self.execute(&action.body);
        true
    }
}
