//! Where the running kernel's structures have their members, by its own type information
//! (Documentation/bpf/btf.rst).

use std::collections::BTreeMap;

use manylane_io::bpf::elf::{text_at, u32_at};

/// The kernel's types.
pub(super) struct Types<'b> {
    names: &'b [u8],
    types: &'b [u8],
    /// Where each is; the number 0 is no type.
    places: Vec<usize>,
}

impl<'b> Types<'b> {
    /// Reads a file such as `/sys/kernel/btf/vmlinux`. `None` when it is not one.
    pub fn read(btf: &'b [u8]) -> Option<Types<'b>> {
        let header = u32_at(btf, 4)?;
        let word = |at| u32_at(btf, at).and_then(|word| header.checked_add(word));
        let types = btf.get(word(8)? as usize..)?.get(..u32_at(btf, 12)? as usize)?;
        let names = btf.get(word(16)? as usize..)?;
        let (mut at, mut places) = (0, vec![0]);
        while at < types.len() {
            let facts = u32_at(types, at + 4)?;
            let members = (facts & 0xffff) as usize;
            places.push(at);
            at += HEADER
                + match facts >> 24 & 0x1f {
                    1 | 14 | 17 => 4,         // Integer, variable, tag of a declaration.
                    3 => 12,                  // Array.
                    ENUM | 13 => 8 * members, // And a function's arguments.
                    STRUCT | UNION => MEMBER * members,
                    15 | 19 => 12 * members, // Section, enumeration of 64 bits.
                    _ => 0,
                };
        }
        Some(Types { names, types, places })
    }

    /// At how many bytes from its start a structure has the member at the end of a path of names.
    pub fn offset(&self, structure: &str, path: &[&str]) -> Option<u64> {
        let is_it = |id: &u32| {
            let named = self.named(*id);
            self.kind(*id) == Some(STRUCT) && named == Some(structure.as_bytes())
        };
        let mut id = (1..self.places.len() as u32).find(is_it)?;
        let mut bits = 0;
        for name in path {
            let (at, member) = self.member(self.resolved(id)?, name, DEPTH)?;
            (bits, id) = (bits + at, member);
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// The numbers of an enumeration, with their names.
    pub fn enumeration(&self, name: &str) -> Option<BTreeMap<u32, String>> {
        let is_it =
            |id: &u32| self.kind(*id) == Some(ENUM) && self.named(*id) == Some(name.as_bytes());
        let place = self.places[(1..self.places.len() as u32).find(is_it)? as usize];
        let count = (u32_at(self.types, place + 4)? & 0xffff) as usize;
        let number = |number: usize| {
            let at = place + HEADER + 8 * number;
            let name = text_at(self.names, u32_at(self.types, at)?)?;
            Some((u32_at(self.types, at + 4)?, String::from_utf8_lossy(name).into_owned()))
        };
        (0..count).map(number).collect()
    }

    /// Where, in bits, a structure or one without a name in it has a member, and the member's type.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u64, u32)> {
        let place = *self.places.get(id as usize)?;
        let facts = u32_at(self.types, place + 4)?;
        if !matches!(facts >> 24 & 0x1f, STRUCT | UNION) {
            return None;
        }
        for number in 0..(facts & 0xffff) as usize {
            let at = place + HEADER + MEMBER * number;
            let (named, id) = (u32_at(self.types, at)?, u32_at(self.types, at + 4)?);
            let word = u32_at(self.types, at + 8)?;
            // With sizes of bit fields in the upper byte.
            let bits = u64::from(if facts >> 31 == 1 { word & 0xff_ffff } else { word });
            if text_at(self.names, named)? == name.as_bytes() {
                return Some((bits, id));
            }
            if named == 0
                && depth > 0
                && let Some((inner, id)) = self.member(self.resolved(id)?, name, depth - 1)
            {
                return Some((bits + inner, id));
            }
        }
        None
    }

    /// What a type is, without other names for it and without `const` and such.
    fn resolved(&self, mut id: u32) -> Option<u32> {
        for _ in 0..DEPTH {
            match self.kind(id)? {
                // typedef, volatile, const, restrict, tag of a type.
                8..=11 | 18 => id = u32_at(self.types, *self.places.get(id as usize)? + 8)?,
                _ => return Some(id),
            }
        }
        None
    }

    fn kind(&self, id: u32) -> Option<u32> {
        Some(u32_at(self.types, *self.places.get(id as usize)? + 4)? >> 24 & 0x1f)
    }

    fn named(&self, id: u32) -> Option<&'b [u8]> {
        text_at(self.names, u32_at(self.types, *self.places.get(id as usize)?)?)
    }
}

const HEADER: usize = 12;
const MEMBER: usize = 12;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
/// Of structures in structures without a name, and of names for names.
const DEPTH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct a { int x; struct { b_t y; }; }`, `typedef struct b b_t`, `struct b { int m, n; }`,
    /// `enum e { m = 2, n = 70000 }`.
    #[test]
    fn members_are_found_behind_names_and_in_structures_without_one() {
        let names = b"\0a\0x\0y\0b\0b_t\0m\0n\0int\0e\0";
        let [a, x, y, b, b_t, m, n, int, e] = [1, 3, 5, 7, 9, 13, 15, 17, 21];
        let structure = |name: u32, members: u32| [name, STRUCT << 24 | members, 12];
        let mut types = vec![int, 1 << 24, 4, 32]; // 1
        types.extend(structure(a, 2)); // 2
        types.extend([x, 1, 0, 0, 3, 32]);
        types.extend(structure(0, 1)); // 3
        types.extend([y, 4, 0]);
        types.extend([b_t, 8 << 24, 5]); // 4
        types.extend(structure(b, 2)); // 5
        types.extend([m, 1, 0, n, 1, 32]);
        types.extend([e, ENUM << 24 | 2, 4, m, 2, n, 70_000]); // 6
        let len = types.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, len, len, names.len() as u32];
        let words = header.iter().chain(&types).flat_map(|word| word.to_le_bytes());
        let btf: Vec<u8> = words.chain(*names).collect();
        let types = Types::read(&btf).expect("it is whole");
        assert_eq!(types.offset("a", &["x"]), Some(0));
        assert_eq!(types.offset("a", &["y", "n"]), Some(8));
        assert_eq!(types.offset("b", &["n"]), Some(4));
        for (name, path) in [("a", ["z"]), ("c", ["x"])] {
            assert_eq!(types.offset(name, &path), None);
        }
        assert_eq!(types.offset("a", &["x", "y"]), None, "an integer has no members");
        let numbers = BTreeMap::from([(2, "m".to_owned()), (70_000, "n".to_owned())]);
        assert_eq!(types.enumeration("e"), Some(numbers));
        assert_eq!(types.enumeration("a"), None, "a structure is none");
        for len in 0..btf.len() {
            let cut = Types::read(&btf[..len]);
            let _ = cut.map(|types| (types.offset("a", &["y", "n"]), types.enumeration("e")));
        }
    }
}
