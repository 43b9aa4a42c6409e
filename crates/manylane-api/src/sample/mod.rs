//! A daemon's answers, made up: for the tests of API and tables.

use std::collections::BTreeMap;

pub mod accelerate;
mod tracked;

use crate::model::*;

/// A router that answers always the same.
pub struct Sample;

impl Source for Sample {
    #[expect(clippy::too_many_lines, reason = "a table, told in order")]
    fn ports(&self) -> Vec<PortStatus> {
        let lan = PortStatus {
            port: 0,
            name: "lan".into(),
            driver: "af_xdp".into(),
            chosen: Some("neither a veth nor a TAP".into()),
            interface: Some("enp65s0f0np0".into()),
            mac: "52:54:00:12:34:56".into(),
            mtu: 1500,
            state: PortState::Open,
            link_up: true,
            mode: Some("native".into()),
            zero_copy: true,
            frames_max: 1,
            single_because: Some("zero-copy: the device takes a packet in one frame".into()),
            queues: 16,
            addresses: vec!["10.1.0.254/24".into(), "2001:db8:1::fe/64".into()],
            checksum: "trust".into(),
            received: 12_345_678_901,
            received_bytes: 987_654_321_098,
            transmitted: 9_876_543_210,
            transmitted_bytes: 790_123_456_789,
            lost_ring_full: 1234,
            lost_no_buffer: 5,
            lost_invalid: 0,
            lost_closed: 0,
            lost_transmit: 0,
            segments_cut: 45,
            checksums_completed: 12,
            chains_joined: 0,
            dropped: reasons(&[("no_route", 1_234_567), ("hop_limit_exceeded", 12)]),
            faults: None,
            copies: Some(CopyStatus { copied: 12_345, refused: 6, ..CopyStatus::default() }),
            vlan: None,
        };
        let wire = PortStatus {
            port: 1,
            name: "wire".into(),
            driver: "memory".into(),
            chosen: None,
            interface: None,
            mac: "02:00:00:00:00:01".into(),
            state: PortState::Open,
            link_up: false,
            mode: None,
            zero_copy: false,
            frames_max: 64,
            single_because: None,
            queues: 1,
            addresses: vec!["10.2.0.254/24".into()],
            checksum: "repair".into(),
            received: 0,
            received_bytes: 0,
            transmitted: 999,
            transmitted_bytes: 63_936,
            lost_ring_full: 0,
            lost_no_buffer: 0,
            lost_invalid: 0,
            lost_closed: 0,
            lost_transmit: 0,
            segments_cut: 0,
            checksums_completed: 0,
            chains_joined: 0,
            dropped: BTreeMap::new(),
            faults: Some(FaultStatus { dropped: 17, delayed: 1234, ..FaultStatus::default() }),
            copies: None,
            ..lan.clone()
        };
        let vlan = PortStatus {
            port: 2,
            name: "lan.100".into(),
            driver: "vlan".into(),
            mode: None,
            queues: 0,
            mtu: 1496,
            addresses: vec!["10.3.0.254/24".into()],
            received: 77,
            received_bytes: 7700,
            vlan: Some(VlanStatus { port: "lan".into(), tags: "802.1ad 100".into() }),
            ..wire.clone()
        };
        let vlan = PortStatus { interface: lan.interface.clone(), mac: lan.mac.clone(), ..vlan };
        let vlan = PortStatus { faults: None, transmitted: 0, transmitted_bytes: 0, ..vlan };
        vec![lan, wire, PortStatus { link_up: true, ..vlan }]
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let queue = |port: &str, queue| QueueName { port: port.into(), queue };
        vec![
            WorkerStatus {
                worker: 0,
                core: Some(2),
                state: WorkerState::Running,
                turns: 12_345_678,
                busy_percent: 97.25,
                busy_ns: 98_765_432_100,
                idle_ns: 1_234_567_890,
                sleeps: 1234,
                wakeups: 1200,
                reports_lost: 0,
                orders_lost: 0,
                errors_suppressed: 0,
                inner_checksum_partial: 0,
                queues: vec![queue("lan", 0), queue("lan", 1), queue("wire", 0)],
                received: 9_876_543_210,
                transmitted: 9_876_500_000,
                held: 17,
                frames_in_pool: 1024,
            },
            WorkerStatus {
                worker: 1,
                core: None,
                state: WorkerState::Stopped,
                turns: 0,
                busy_percent: 0.0,
                busy_ns: 0,
                idle_ns: 0,
                sleeps: 1,
                wakeups: 0,
                reports_lost: 0,
                orders_lost: 0,
                errors_suppressed: 0,
                inner_checksum_partial: 0,
                queues: Vec::new(),
                received: 0,
                transmitted: 0,
                held: 0,
                frames_in_pool: 0,
            },
        ]
    }

    fn routes(&self) -> Vec<RouteStatus> {
        let route = |prefix: &str, kind, via: Option<&str>, port: Option<&str>| RouteStatus {
            prefix: prefix.into(),
            kind,
            via: via.map(Into::into),
            port: port.map(Into::into),
            group: Vec::new(),
        };
        let member = |via: &str, port: &str, weight, share| MemberStatus {
            via: via.into(),
            port: port.into(),
            weight,
            share,
        };
        let group = vec![
            member("10.2.0.1", "wire", 3, 0.75),
            member("10.2.0.2", "wire", 1, 0.25),
            member("10.1.0.9", "lan", 1, 0.0),
        ];
        vec![
            route("0.0.0.0/0", RouteKind::Via, Some("10.2.0.1"), Some("wire")),
            route("10.1.0.0/24", RouteKind::Connected, None, Some("lan")),
            route("10.1.0.254/32", RouteKind::Local, None, Some("lan")),
            route("10.3.0.0/16", RouteKind::OnLink, None, Some("lan")),
            RouteStatus { group, ..route("172.16.0.0/12", RouteKind::Group, None, None) },
            route("192.168.0.0/16", RouteKind::Blackhole, None, None),
            route("2001:db8:4::/48", RouteKind::Prohibit, None, None),
            route("2001:db8:5::/48", RouteKind::Unreachable, None, None),
            route("::/0", RouteKind::Via, Some("fe80::5054:ff:fe12:3456"), Some("wire")),
        ]
    }

    fn neighbours(&self) -> Vec<NeighbourStatus> {
        let neighbour = |address: &str, mac: Option<&str>, state, age_s| NeighbourStatus {
            port: "lan".into(),
            address: address.into(),
            mac: mac.map(Into::into),
            state,
            age_s,
        };
        let mac = Some("52:54:00:ab:cd:ef");
        vec![
            neighbour("10.1.0.1", mac, NeighbourState::Reachable, 12),
            neighbour("10.1.0.2", mac, NeighbourState::Stale, 7262),
            neighbour("10.1.0.3", None, NeighbourState::Incomplete, 0),
            neighbour("10.1.0.4", None, NeighbourState::Failed, 65),
            neighbour("2001:db8:1::5054:ff:feab:cdef", mac, NeighbourState::Probe, 2),
            neighbour("fe80::5054:ff:feab:cdef", mac, NeighbourState::Delay, 400_000),
        ]
    }

    fn addresses(&self) -> Vec<AddressStatus> {
        let address = |address: &str, state, in_use, age_s| AddressStatus {
            port: "lan".into(),
            address: address.into(),
            state,
            in_use,
            age_s,
            conflicts: 0,
            claimed_by: None,
        };
        let rival = Some("52:54:00:ab:cd:ef".into());
        vec![
            AddressStatus {
                conflicts: 1234,
                claimed_by: rival,
                ..address("10.1.0.254", AddressState::Duplicate, false, 65)
            },
            address("2001:db8:1::fe", AddressState::Probing, true, 0),
            address("fe80::5054:ff:fe12:3456", AddressState::Held, true, 400_000),
        ]
    }

    fn drops(&self) -> Vec<DropStatus> {
        let reason = |reason: &str, explanation: &str, ports: &[(&str, u64)]| DropStatus {
            reason: reason.into(),
            explanation: explanation.into(),
            total: ports.iter().map(|(_, frames)| frames).sum(),
            ports: reasons(ports),
        };
        vec![
            reason("truncated", "The Ethernet frame is shorter than its headers say.", &[]),
            reason(
                "martian_destination",
                "The destination address cannot be forwarded to (RFC 1812 §5.3.7, RFC 4291 §2.5.2, \
                 §2.5.3).",
                &[("lan", 12)],
            ),
            reason(
                "no_route",
                "No route leads to the destination.",
                &[("lan", 1_234_567), ("wire", 89)],
            ),
        ]
    }

    fn ledger(&self) -> Ledger {
        Ledger {
            received: 12_345_678_901,
            created: reasons(&[("error", 0), ("reply", 42), ("solicitation", 7)]),
            transmitted: 12_344_444_270,
            delivered: 2,
            dropped: reasons(&[("no_route", 1_234_656), ("truncated", 0)]),
            held: 17,
            in_flight: 6,
            missing: -1,
            frames: FrameLedger {
                total: 16_384,
                holders: vec![
                    FrameHolder { holder: "depot".into(), frames: 12_288 },
                    FrameHolder { holder: "worker 0 list".into(), frames: 1024 },
                    FrameHolder { holder: "lan to receive".into(), frames: 3072 },
                ],
                missing: 0,
            },
            per_port: vec![PortLedger {
                port: "lan".into(),
                received: 12_345_678_901,
                created: 49,
                transmitted: 12_344_444_270,
                delivered: 2,
                dropped: 1_234_656,
                held: 17,
                in_flight: 6,
                missing: -1,
            }],
        }
    }

    fn frames(&self) -> FramesStatus {
        let line = |holder: &str, formula: &str, frames| FrameLine {
            holder: holder.into(),
            formula: formula.into(),
            frames,
        };
        FramesStatus {
            frame_size: 2048,
            huge_pages: true,
            hot_list_len: 2048,
            hot_list_len_max: 8192,
            lists: vec![ListStatus {
                worker: 0,
                level: 1024,
                len: 2048,
                taken: 12_345_678_901,
                hits: 12_345_600_000,
                refills: 1234,
                spills: 1230,
                starved: 0,
            }],
            ledger: self.ledger().frames,
            sum: vec![
                line("lan to receive", "16 x (256 posted + 256 received)", 8192),
                line("spare queues", "8 x 1024", 8192),
            ],
        }
    }

    fn steering(&self) -> SteeringStatus {
        let bucket =
            |bucket: u16| BucketStatus { worker: bucket % 2, held_by: (bucket == 12).then_some(1) };
        let port = |port: &str, buckets, why: &str| PortSteeringStatus {
            port: port.into(),
            steering: if buckets > 0 { "flow" } else { "queue" }.into(),
            why: why.into(),
            queues: vec![QueueOwner { queue: 0, worker: 0, moving_to: None }],
            buckets: (0..buckets).map(bucket).collect(),
            transmit_queues: (0..2).map(|worker| TransmitQueue { worker, queue: None }).collect(),
        };
        let mut lan = port("lan", 0, "2 queues for 2 workers");
        lan.queues.push(QueueOwner { queue: 1, worker: 1, moving_to: Some(0) });
        lan.transmit_queues.iter_mut().for_each(|exit| exit.queue = Some(exit.worker));
        SteeringStatus {
            netdev_max_backlog: 1000,
            netdev_max_backlog_max: 1024,
            netdev_budget: 300,
            dev_weight: 64,
            rebalance: true,
            rebalanced: 3,
            reorder_sample: 64,
            reorder_sampled: 1_234_567,
            reordered: 0,
            ports: vec![lan, port("wire", 256, "1 queue for 2 workers")],
            workers: vec![
                SteeredWorker { worker: 0, paused: false },
                SteeredWorker { worker: 1, paused: true },
            ],
            pairs: vec![PairStatus {
                from: 0,
                to: 1,
                handed: 12_345_678_901,
                batches: 300_000_000,
                backlog: 17,
                backlog_full: 3,
                flow_limit: 1234,
                waits: 9,
            }],
        }
    }

    fn export(&self) -> SampleExportStatus {
        let all = tracked::export();
        let collectors = all.collectors.into_iter().filter(|one| one.protocol == "sflow").collect();
        SampleExportStatus { collectors, sflow: all.sflow }
    }

    fn sockets(&self) -> SocketsStatus {
        let own = SocketStatus {
            protocol: 3,
            points: vec!["rx".into(), "tx".into(), "drop".into()],
            filter_len: 1,
            snap: 262_144,
            ring_bytes: 266_240,
            time_ns: 2_500_000_000,
            packets: 1_234_567,
            bytes: 79_012_288,
            ..SocketStatus::default()
        };
        let other = SocketStatus {
            socket: 3,
            pid: Some(4321),
            uid: Some(4_000_000_000),
            port: Some("lan".into()),
            protocol: 0x86dd,
            points: vec!["rx".into()],
            filter_len: 24,
            snap: 128,
            group: Some(7),
            fanout: Some("hash".into()),
            lost: 17,
            stale: 2,
            ..own.clone()
        };
        SocketsStatus {
            sockets: vec![own, other],
            max: 1024,
            per_user_max: 64,
            memory_bytes: 532_480,
            memory_max: 1 << 30,
            per_user_memory_max: 1 << 29,
            instructions: 27,
            filter_max: 16_384,
            per_user_filter_max: 4096,
            time_max: 50,
            closed_for_time: 1,
            send: false,
        }
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError> {
        let error = |error: String| ApiError { error, help: "try another".into() };
        if key == "port.lan.steering" {
            return Ok(Setting::new(key, SettingValue::Word(value.into())));
        }
        if key != "frames.hot_list_len" {
            return Err(SetError::UnknownKey(error(format!("the setting {key} does not exist"))));
        }
        let value = value.parse().map_err(|_| SetError::BadValue(error(format!("not {value}"))))?;
        Ok(Setting::new(key, SettingValue::Number(value)))
    }

    fn add_neighbour(
        &self,
        port: &str,
        addr: &str,
        mac: &str,
    ) -> Result<NeighbourStatus, SetError> {
        let error = |error: &str| ApiError { error: error.into(), help: "try another".into() };
        match (port, mac) {
            ("full", _) => Err(SetError::NoRoom(error("the table is full"))),
            (_, "") => Err(SetError::BadValue(error("that is no address"))),
            _ => Ok(NeighbourStatus {
                port: port.into(),
                address: addr.into(),
                mac: Some(mac.into()),
                state: NeighbourState::Permanent,
                age_s: 0,
            }),
        }
    }

    fn configurations(&self) -> Option<&dyn Configurations> {
        Some(self)
    }

    fn trace(&self, _: &TraceRequest) -> Result<TraceLines, SetError> {
        Ok(TraceLines::new(String::new))
    }

    fn capture_drops(&self, _: &CaptureRequest) -> Result<CaptureFile, SetError> {
        Ok(CaptureFile::new(|_| CapturePart::Last(vec![10])))
    }

    fn add_port(&self, name: &str) -> Result<PortStatus, SetError> {
        let (error, help) = (format!("{name} needs a restart"), "restart".into());
        Err(SetError::NoRoom(ApiError { error, help }))
    }

    fn remove_port(&self, name: &str) -> Result<PortStatus, SetError> {
        let mut found = self.ports().into_iter().filter(|port| port.name == name);
        let port = found.next().ok_or_else(|| {
            let (error, help) = (format!("{name} is no port"), "try another".into());
            SetError::UnknownKey(ApiError { error, help })
        })?;
        Ok(PortStatus { state: PortState::Draining, ..port })
    }

    fn delete_neighbour(&self, port: &str, addr: &str) -> Result<NeighbourStatus, SetError> {
        let known = self.neighbours().into_iter();
        let mut found = known.filter(|known| known.port == port && known.address == addr);
        found.next().ok_or_else(|| {
            let (error, help) = (format!("{addr} is nobody"), "try another".into());
            SetError::UnknownKey(ApiError { error, help })
        })
    }

    fn daemon(&self) -> Daemon {
        Daemon {
            version: "0.1.0".into(),
            pid: 4321,
            uptime_s: 99,
            neighbours_refused: 1,
            neighbours_reclaimed: 2,
            neighbours_without_route: 0,
        }
    }
}

fn reasons(reasons: &[(&str, u64)]) -> BTreeMap<String, u64> {
    reasons.iter().map(|(reason, frames)| (reason.to_string(), *frames)).collect()
}

impl Configurations for Sample {
    fn status(&self) -> ConfigStatus {
        ConfigStatus {
            file: "/etc/manylane/manylane.toml".into(),
            text: "[workers]\ncount = 1\n".into(),
            can_roll_back: true,
            confirm_within_s: Some(59.5),
        }
    }

    fn diff(&self, _: &ConfigRequest) -> Result<Vec<ConfigChange>, ConfigRefused> {
        Ok(vec![ConfigChange {
            key: "route.10.0.0.0/8".into(),
            before: Some("{ via = \"10.1.0.1\" }".into()),
            after: Some("{ type = \"blackhole\" }".into()),
            live: true,
        }])
    }

    fn apply(&self, request: &ConfigRequest) -> Result<ConfigApplied, ConfigRefused> {
        let changes = self.diff(request)?;
        let confirm_within_s = request.confirm_within_s;
        Ok(ConfigApplied { changes, confirm_within_s, trial: confirm_within_s.map(|_| 1) })
    }

    fn confirm(&self) -> Result<ConfigStatus, ConfigRefused> {
        Ok(self.status())
    }

    fn roll_back(&self) -> Result<ConfigStatus, ConfigRefused> {
        Ok(self.status())
    }

    fn lapse(&self, _: u64) {}
}
