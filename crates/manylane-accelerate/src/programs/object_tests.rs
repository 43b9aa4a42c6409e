//! What `manylane-io`'s loader makes of the ingress program's object.

use manylane_io::bpf::object::{Meant, program};

use super::OBJECT;

// linux/bpf.h.
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
const VALUE_OF_MAP: u8 = 2;
const CALL_OF_FUNCTION: u8 = 1;

#[test]
fn every_name_is_filled_in_and_every_call_leads_into_the_code() {
    let meant = |name: &str| match name.ends_with("_words") {
        true => Some(Meant::Number(0x0123_4567_89ab_cdef)),
        false => Some(Meant::Table(7)),
    };
    let program = program(OBJECT, "tcx/ingress", meant).expect("it is ours");
    let code = program.code();
    let (mut tables, mut numbers, mut calls) = (0, 0, 0);
    for (at, [op, registers, _, _, value @ ..]) in code.iter().enumerate() {
        let value = i32::from_le_bytes(*value);
        match (*op, *registers >> 4) {
            (LOAD_64, VALUE_OF_MAP) => {
                assert_eq!(value, 7);
                tables += 1;
            }
            (LOAD_64, 0) if value as u32 == 0x89ab_cdef => numbers += 1,
            (CALL, CALL_OF_FUNCTION) => {
                let target = at as i64 + 1 + i64::from(value);
                assert!((0..code.len() as i64).contains(&target), "{at} calls {target}");
                calls += 1;
            }
            _ => {}
        }
    }
    assert!(tables > 16 && numbers > 5 && calls > 5, "{tables}, {numbers}, {calls}");
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    let error = program(OBJECT, "tcx/ingress", |_| None).err().expect("it names tables");
    assert!(error.to_string().starts_with("the object names "), "{error}");
    let error = program(OBJECT, "nowhere", |_| None).err().expect("no such section");
    assert!(error.to_string().contains("no section nowhere"), "{error}");
    for len in (0..OBJECT.len()).step_by(7) {
        let _ = program(&OBJECT[..len], "tcx/ingress", |_| Some(Meant::Number(0)));
    }
}
