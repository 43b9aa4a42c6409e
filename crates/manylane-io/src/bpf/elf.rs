//! The sections and relocations of an object file, for our own loader: 64-bit little-endian ELF (elf(5)).

/// The object that `x.bpf.c` compiles to.
#[derive(Clone, Copy)]
pub struct Object<'o>(pub &'o [u8]);

/// An instruction's reference to a symbol: `R_BPF_64_64` for a table or a number, `R_BPF_64_32` for a function
/// (Documentation/bpf/llvm_reloc.rst).
pub struct Relocation<'o> {
    /// The instruction's offset from the section's start, in bytes.
    pub offset: usize,
    /// The relocation type.
    pub kind: u32,
    /// The name; empty for the start of a section.
    pub symbol: &'o str,
    /// The symbol's offset in its section.
    pub value: u64,
    /// Whether the object defines the symbol.
    pub is_defined: bool,
}

/// A section's header.
struct Header {
    name: u32,
    kind: u32,
    offset: usize,
    len: usize,
}

impl<'o> Object<'o> {
    /// The bytes of a section.
    pub fn section(self, name: &str) -> Option<&'o [u8]> {
        let names = self.bytes(&self.header(u16_at(self.0, 0x3e)?)?)?;
        self.headers().find_map(|header| {
            let named = text_at(names, header.name)?;
            if named == name.as_bytes() { self.bytes(&header) } else { None }
        })
    }

    /// The relocations of a section. `None` when the object's tables are malformed.
    pub fn relocations(self, section: &str) -> Option<Vec<Relocation<'o>>> {
        let Some(entries) = self.section(&format!(".rel{section}")) else {
            return Some(Vec::new());
        };
        let symbols = self.headers().find(|header| header.kind == SYMBOLS)?;
        let symbols = self.bytes(&symbols)?;
        let names = self.section(".strtab")?;
        let (entries, rest) = entries.as_chunks::<16>();
        let relocation = |entry: &[u8; 16]| {
            let number = u32_at(entry, 12)? as usize;
            let symbol: &[u8; 24] = symbols.get(number.checked_mul(24)?..)?.first_chunk()?;
            Some(Relocation {
                offset: u64_at(entry, 0)?.try_into().ok()?,
                kind: u32_at(entry, 8)?,
                symbol: str::from_utf8(text_at(names, u32_at(symbol, 0)?)?).ok()?,
                value: u64_at(symbol, 8)?,
                is_defined: u16_at(symbol, 6)? != 0,
            })
        };
        if rest.is_empty() { entries.iter().map(relocation).collect() } else { None }
    }

    fn headers(self) -> impl Iterator<Item = Header> {
        (0..u16_at(self.0, 0x3c).unwrap_or(0)).filter_map(move |number| self.header(number))
    }

    fn header(self, number: u16) -> Option<Header> {
        let size = usize::from(u16_at(self.0, 0x3a)?);
        let at = (u64_at(self.0, 0x28)? as usize).checked_add(usize::from(number) * size)?;
        let header = self.0.get(at..)?;
        Some(Header {
            name: u32_at(header, 0)?,
            kind: u32_at(header, 4)?,
            offset: u64_at(header, 24)? as usize,
            len: u64_at(header, 32)? as usize,
        })
    }

    fn bytes(self, header: &Header) -> Option<&'o [u8]> {
        self.0.get(header.offset..)?.get(..header.len)
    }
}

/// The little-endian word of 16 bits at an offset, if the bytes reach that far.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian word of 32 bits at an offset, if the bytes reach that far.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian word of 64 bits at an offset, if the bytes reach that far.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The zero-terminated text at `at`.
pub fn text_at(bytes: &[u8], at: u32) -> Option<&[u8]> {
    bytes.get(at as usize..)?.split(|&byte| byte == 0).next()
}

/// `SHT_SYMTAB`.
const SYMBOLS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = aya::include_bytes_aligned!("xsk_tag.bpf.o");

    #[test]
    fn an_object_that_ends_early_has_no_such_section() {
        assert_eq!(Object(OBJECT).section("no such section"), None);
        assert!(Object(OBJECT).section("xdp.frags").is_some());
        for len in 0..OBJECT.len() {
            let cut = Object(&OBJECT[..len]);
            let _ = (cut.section("xdp.frags"), cut.relocations("xdp.frags"));
        }
    }

    #[test]
    fn what_instructions_name_is_found() {
        let named = Object(OBJECT).relocations("xdp.frags").expect("the object is whole");
        let named: Vec<_> = named.iter().map(|one| (one.kind, one.symbol)).collect();
        assert_eq!(named, [(1, "xsks")]);
        assert!(Object(OBJECT).relocations("license").is_some_and(|none| none.is_empty()));
    }
}
