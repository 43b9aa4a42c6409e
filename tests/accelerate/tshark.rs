//! What tshark(1) makes of datagrams that a test has received.

use std::fs;
use std::path::PathBuf;
use std::process::{self, Command};
use std::thread;

/// Datagrams to one UDP port, in a capture of IPv4 packets.
pub struct Tshark {
    file: PathBuf,
    /// Such as `udp.port==4739,cflow`.
    decoder: String,
}

impl Tshark {
    pub fn of<'d>(
        port: u16,
        protocol: &str,
        datagrams: impl IntoIterator<Item = &'d [u8]>,
    ) -> Tshark {
        // A test has a thread of its own.
        let name = format!("manylane-tshark-{}-{:?}.pcap", process::id(), thread::current().id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, capture(port, datagrams)).expect("the temporary folder can be written");
        Tshark { file, decoder: format!("udp.port=={port},{protocol}") }
    }

    /// tshark's output with these arguments.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-d", &self.decoder]).args(arguments);
        // The beginnings of packets that samples have are no whole packets.
        command.args(["-o", "sflow.enable_dissection:FALSE"]);
        let output = command.output().expect("it is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// A line for each datagram with these fields, separated by `|`; commas separate the values of one field.
    pub fn fields(&self, fields: &[&str]) -> String {
        let mut arguments = vec!["-T", "fields", "-E", "separator=|"];
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        self.run(&arguments)
    }

    /// # Panics
    ///
    /// With what is malformed, or is an error in tshark's eyes.
    pub fn assert_well_formed(&self) {
        let wrong = self.run(&["-Y", "_ws.malformed || _ws.expert.severity >= 0x600000"]);
        assert_eq!(wrong, "", "malformed, of an unknown kind, or out of sequence");
    }
}

impl Drop for Tshark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// A capture of LINKTYPE_RAW.
fn capture<'d>(port: u16, datagrams: impl IntoIterator<Item = &'d [u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for payload in datagrams {
        let [packet, datagram] = [28, 8].map(|headers| (payload.len() + headers) as u16);
        let length = u32::from(packet);
        for word in [0, 0, length, length] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend([0x45, 0]);
        file.extend(packet.to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        for half in [port, port, datagram, 0] {
            file.extend(u16::to_be_bytes(half));
        }
        file.extend(payload);
    }
    file
}
