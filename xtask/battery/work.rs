// Traits, generics and derives for a compiler to work on; what it gives is the assembly.
#![crate_type = "lib"]
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{Debug, Display};

#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Value {
    Null,
    Truth(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

pub struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable() }
    }

    fn blank(&mut self) {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        word.chars().try_for_each(|c| match self.rest.next() {
            Some(found) if found == c => Ok(()),
            found => Err(format!("{found:?} where {c} should be")),
        })
    }

    fn text(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut text = String::new();
        loop {
            match self.rest.next().ok_or("no end")? {
                '"' => return Ok(text),
                '\\' => text.push(self.rest.next().ok_or("no end")?),
                c => text.push(c),
            }
        }
    }

    pub fn value(&mut self) -> Result<Value, String> {
        self.blank();
        let value = match self.rest.peek().copied() {
            None => Err("nothing there".to_string()),
            Some('n') => self.expect("null").map(|_| Value::Null),
            Some('t') => self.expect("true").map(|_| Value::Truth(true)),
            Some('f') => self.expect("false").map(|_| Value::Truth(false)),
            Some('"') => self.text().map(Value::Text),
            Some('[') => {
                self.expect("[")?;
                let mut list = Vec::new();
                while self.rest.peek() != Some(&']') {
                    list.push(self.value()?);
                    self.rest.next_if_eq(&',');
                }
                self.expect("]").map(|_| Value::List(list))
            }
            Some('{') => {
                self.expect("{")?;
                let mut map = BTreeMap::new();
                while self.rest.peek() != Some(&'}') {
                    self.blank();
                    let key = self.text()?;
                    self.expect(":")?;
                    map.insert(key, self.value()?);
                    self.rest.next_if_eq(&',');
                }
                self.expect("}").map(|_| Value::Map(map))
            }
            Some(_) => {
                let mut digits = String::new();
                while let Some(c) = self.rest.next_if(|c| c.is_ascii_digit() || "+-.eE".contains(*c)) {
                    digits.push(c);
                }
                digits.parse().map(Value::Number).map_err(|e| format!("{digits}: {e}"))
            }
        };
        self.blank();
        value
    }
}

pub trait Visitor<T> {
    type Output: Display + Default;
    fn visit(&mut self, item: &T) -> Self::Output;
}

pub fn walk<T: Debug + Clone, V: Visitor<T>>(items: &[T], visitor: &mut V) -> HashMap<String, (T, V::Output)> {
    let mut queue: VecDeque<_> = items.iter().cloned().enumerate().collect();
    let mut seen = HashMap::new();
    while let Some((at, item)) = queue.pop_front() {
        let output = visitor.visit(&item);
        seen.entry(format!("{at} {item:?} {output}")).or_insert((item, output));
    }
    seen
}

macro_rules! records {
    ($($name:ident { $($field:ident: $kind:ty),* })*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name { $(pub $field: $kind),* }

        impl $name {
            pub fn describe(&self) -> Vec<(String, String)> {
                let mut all = vec![$((stringify!($field).to_string(), format!("{:?}", self.$field))),*];
                all.sort_by(|a, b| a.1.len().cmp(&b.1.len()).then_with(|| a.cmp(b)));
                all
            }
        }

        impl Visitor<$name> for BTreeMap<String, usize> {
            type Output = usize;
            fn visit(&mut self, item: &$name) -> usize {
                item.describe().into_iter().map(|(name, value)| {
                    let count = self.entry(name).or_insert(0);
                    *count += value.len();
                    *count
                }).sum()
            }
        }

        const _: fn(&[$name], &mut BTreeMap<String, usize>) -> HashMap<String, ($name, usize)> = walk;
    )*};
}

records! {
    Person { name: String, age: u32, mail: Option<String>, friends: Vec<String> }
    Order { id: u64, lines: Vec<(String, f64)>, open: bool, note: Option<String> }
    Stock { place: String, count: BTreeMap<String, i64>, limits: (i64, i64) }
    Account { owner: Person, orders: Vec<Order>, limit: Option<f64> }
}
