//! Packets of every kind that tcpdump's language has a word for, from few addresses, ports and types, so
//! that filters find them; odd ones too: cut off, with wrong lengths, with a byte changed.

/// The same packets each time.
pub struct Generator {
    state: u64,
}

impl Generator {
    pub fn new() -> Generator {
        Generator { state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// A frame, and how long it was before it was cut off.
    pub fn packet(&mut self) -> (Vec<u8>, u32) {
        let mut packet = self.ethernet(true);
        if self.one_in(3) {
            packet.resize(packet.len().max(60), 0);
        }
        if self.one_in(4) {
            packet.extend((0..self.below(200)).map(|byte| byte as u8));
        }
        if self.one_in(2) {
            *packet.last_mut().expect("a header") = self.below(24) as u8;
        }
        if self.one_in(6) {
            let at = self.below(packet.len());
            packet[at] = self.next() as u8;
        }
        let len = packet.len() as u32;
        if self.one_in(5) {
            packet.truncate(self.below(packet.len()));
        }
        (packet, len)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound.max(1)
    }

    fn ethernet(&mut self, outermost: bool) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.one_of(&[
            [2, 0, 0, 0, 0, 1],
            [2, 0, 0, 0, 0, 2],
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 1],
            [0x33, 0x33, 0, 0, 0, 1],
            [1, 0x80, 0xc2, 0, 0, 0],
        ]));
        frame.extend(self.one_of(&[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]]));
        if self.one_in(3) {
            for _ in 0..1 + self.below(2) {
                frame.extend(self.one_of(&[0x8100_u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
                frame.extend(self.one_of(&[5_u16, 5, 7, 7, 0x2005, 9]).to_be_bytes());
            }
        }
        match self.below(20) {
            0 => {
                frame.extend([0x88, 0x47]);
                for bottom in [0, 1].into_iter().skip(self.below(2)) {
                    frame.extend([0, self.one_of(&[1, 2]), bottom, 64]);
                }
                frame.extend(self.ip(outermost).1);
            }
            1 => {
                frame.extend([0x88, 0x64, 0x11, 0, 0, 7, 0, 40]);
                let (ether_type, packet) = self.ip(outermost);
                frame.extend(if ether_type == 0x0800 { [0, 0x21] } else { [0, 0x57] });
                frame.extend(packet);
            }
            2 => {
                frame.extend(self.one_of(&[0x0806_u16, 0x8035]).to_be_bytes());
                frame.extend([0, 1, 8, 0, 6, 4, 0, self.one_of(&[1, 2]), 2, 0, 0, 0, 0, 1]);
                frame.extend(self.v4_address());
                frame.extend([0; 6]);
                frame.extend(self.v4_address());
            }
            // 802.3: a length, and LLC.
            3 => {
                frame.extend(self.one_of(&[[0, 38, 0x42, 0x42, 3, 0], [0, 40, 0xf0, 0xf1, 1, 0]]));
                frame.extend([0; 34]);
            }
            4 => {
                let other = self.next() as u16;
                frame.extend(self.one_of(&[0x88cc, 0x8863, 0x86dd, other]).to_be_bytes());
                frame.extend(self.next().to_be_bytes());
            }
            _ => {
                let (ether_type, packet) = self.ip(outermost);
                frame.extend(ether_type.to_be_bytes());
                frame.extend(packet);
            }
        }
        frame
    }

    fn ip(&mut self, outermost: bool) -> (u16, Vec<u8>) {
        let protocol =
            self.one_of(&[6, 6, 6, 6, 17, 17, 17, 17, 1, 58, 2, 47, 50, 51, 103, 112, 132, 59]);
        let payload = self.transport(protocol, outermost);
        if self.one_in(2) {
            (0x0800, self.v4(protocol, &payload))
        } else {
            (0x86dd, self.v6(protocol, payload))
        }
    }

    fn v4(&mut self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let words = self.one_of(&[5, 5, 5, 5, 6, 15, 4]);
        let header_len = usize::from(words) * 4;
        let mut header = vec![0x40 | words, self.one_of(&[0, 0, 0xb8, 1, 2, 5])];
        let wrong = if self.one_in(8) { self.below(80) } else { 0 };
        header.extend(((header_len + payload.len() + wrong) as u16).to_be_bytes());
        header.extend([0, 7]);
        header.extend(
            self.one_of(&[0_u16, 0, 0, 0, 0x4000, 0x4000, 0x2000, 0x2010, 0x0010]).to_be_bytes(),
        );
        header.extend([self.next() as u8, protocol, 0, 0]);
        header.extend(self.v4_address());
        header.extend(self.v4_address());
        header.resize(header_len.max(20), 1);
        header.extend(payload);
        header
    }

    fn v6(&mut self, mut protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
        if self.one_in(4) {
            let header = self.one_of(&[44, 44, 44, 0, 60]);
            let middle = if header == 44 { self.one_of(&[[0, 0], [0, 1], [0, 8]]) } else { [1, 4] };
            let front = [protocol, 0, middle[0], middle[1], 0, 0, 0, 9];
            payload.splice(0..0, front);
            protocol = header;
        }
        let mut packet = vec![0x60 | self.below(2) as u8, self.next() as u8, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([protocol, self.next() as u8]);
        packet.extend(self.v6_address());
        packet.extend(self.v6_address());
        packet.extend(payload);
        packet
    }

    fn transport(&mut self, protocol: u8, outermost: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        match protocol {
            6 => {
                bytes.extend([self.port(), self.port()].concat());
                bytes.extend(
                    [self.next() as u32, self.next() as u32].map(u32::to_be_bytes).concat(),
                );
                let words: u8 = self.one_of(&[5, 5, 8]);
                bytes.extend([words << 4, self.one_of(&[2, 0x12, 0x10, 0x18, 4, 0x11])]);
                bytes.resize(usize::from(words) * 4, 1);
                bytes.extend(self.one_of(&[&b""[..], b"", b"GET / HTTP/1.1\r\n", b"7"]));
            }
            17 if outermost && self.one_in(2) => {
                let geneve = self.one_in(2);
                let mut inside = if geneve {
                    vec![0, 0, 0x65, 0x58, 0, 0, self.one_of(&[7, 8]), 0]
                } else {
                    vec![8, 0, 0, 0, 0, 0, 7, 0]
                };
                if geneve && self.one_in(2) {
                    inside[0] = 1; // A word of options.
                    inside.extend([1; 4]);
                }
                if geneve && self.one_in(2) {
                    let (ether_type, packet) = self.ip(false);
                    inside[2..4].copy_from_slice(&ether_type.to_be_bytes());
                    inside.extend(packet);
                } else {
                    inside.extend(self.ethernet(false));
                }
                bytes.extend(self.port());
                bytes.extend(if geneve { 6081_u16 } else { 4789 }.to_be_bytes());
                bytes.extend(((8 + inside.len()) as u16).to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(inside);
            }
            17 | 132 => {
                bytes.extend([self.port(), self.port()].concat());
                let len = self.below(60);
                bytes.extend(((8 + len) as u16).to_be_bytes());
                bytes.extend([0, 0]);
                bytes.resize(8 + len, 0x55);
            }
            1 => {
                bytes.extend([
                    self.one_of(&[0, 8, 3, 11]),
                    self.one_of(&[0, 0, 1]),
                    0,
                    0,
                    0,
                    7,
                    0,
                    1,
                ]);
                bytes.extend([0; 24]);
            }
            58 => {
                bytes.extend([self.one_of(&[128, 129, 135, 136, 1]), 0, 0, 0, 0, 7, 0, 1]);
                bytes.extend([0; 24]);
            }
            _ => bytes.extend([self.next(), self.next()].map(u64::to_be_bytes).concat()),
        }
        bytes
    }

    fn port(&mut self) -> [u8; 2] {
        let other = self.next() as u16;
        self.one_of(&[53, 80, 80, 443, 8080, 22, 1500, other]).to_be_bytes()
    }

    fn v4_address(&mut self) -> [u8; 4] {
        let other = (self.next() as u32).to_be_bytes();
        self.one_of(&[
            [192, 0, 2, 1],
            [192, 0, 2, 9],
            [198, 51, 100, 2],
            [198, 51, 100, 200],
            [224, 0, 0, 1],
            [255; 4],
            other,
        ])
    }

    fn v6_address(&mut self) -> [u8; 16] {
        let mut address = [0; 16];
        address[..6].copy_from_slice(&self.one_of(&[
            [0x20, 0x01, 0x0d, 0xb8, 0, 0],
            [0x20, 0x01, 0x0d, 0xb8, 0x80, 0],
            [0xff, 2, 0, 0, 0, 0],
            [0xfe, 0x80, 0, 0, 0, 0],
        ]));
        address[15] = self.one_of(&[1, 2, 3]);
        address
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// xorshift64*, its high half, which is the better one.
    fn next(&mut self) -> u64 {
        let mut half = || {
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
        };
        half() << 32 | half()
    }
}
