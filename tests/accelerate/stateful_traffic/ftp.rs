//! FTP, whose control connection a helper of the kernel reads and rewrites; data connections are as any.

use std::fs;
use std::process::{Command, Stdio};

use manylane_io::netlink::conntrack::{Connection, Status};
use manylane_lab::scenario::{has, skip};
use manylane_lab::tools::mortal;
use manylane_lab::{Content, SERVER_V4, SERVER_V6};

use super::bed::{Bed, Plan, Program, TIERS, is_liberal, rules};
use super::transfers::{SMALL_SEGMENTS, listens};

#[test]
fn the_control_connection_is_the_kernels_and_data_passes() {
    let has_server = Command::new("vsftpd").arg("-v").stdin(Stdio::null()).output();
    if !has("curl") || !has_server.is_ok_and(|output| output.status.success()) {
        return skip("curl or vsftpd is not installed");
    }
    for tier in TIERS {
        let helper = "ct helper ftp { type \"ftp\" protocol tcp; }
            chain helpers {
                type filter hook prerouting priority filter
                tcp dport 21 ct helper set \"ftp\"
            }";
        let plan =
            || Plan { rules: rules(helper, "", ""), lines: &SMALL_SEGMENTS, ..Plan::default() };
        if let Some(topology) = plan().network(tier)
            && topology
                .try_tool("r1", "nft list ct helpers")
                .is_ok_and(|said| !said.contains("ftp"))
        {
            return skip("the kernel has no helper for FTP");
        }
        let Some(bed) = Bed::make(tier, plan()) else { return };
        let folder =
            std::env::temp_dir().join(format!("manylane-ftp-{}-{tier}", std::process::id()));
        let root = folder.join("root");
        fs::create_dir_all(&root).expect("the temporary folder can be written");
        let mut wanted = vec![0; 8 << 20];
        Content::new(11).fill(&mut wanted);
        fs::write(root.join("file"), &wanted).expect("the folder is ours");
        // The server takes no configuration but a regular file of root's.
        let settings = folder.join("vsftpd.conf");
        let root = root.display();
        let text = format!("{SETTINGS}anon_root={root}\nsecure_chroot_dir={root}\n");
        fs::write(&settings, text).expect("the folder is ours");
        let mut command = mortal("vsftpd");
        command.arg(&settings).stdin(Stdio::null());
        let _server = Program::start(&bed.topology, "server", command);
        for (address, host) in
            [(SERVER_V4, SERVER_V4.to_string()), (SERVER_V6, format!("[{SERVER_V6}]"))]
        {
            listens(&bed, (address, 21).into());
            // The helper learns of a data connection by `PORT` and `EPRT`, or by the answer to `PASV` and `EPSV`.
            for how in ["--ftp-port - --disable-eprt", "--ftp-port -", "--disable-epsv", ""] {
                if address.is_ipv6() && how.contains("disable") {
                    continue;
                }
                let to = folder.join("fetched");
                // More packets than the lane waits for.
                let many = "-Q NOOP ".repeat(40);
                let line = format!(
                    "curl --silent --show-error --fail {how} {many} -o {} ftp://{host}/file",
                    to.display()
                );
                bed.wait_for_lane(&format!("FTP from {address} {how}"), || {
                    bed.topology.tool("client", &line);
                });
                assert!(fs::read(&to).expect("it was written") == wanted, "{how}");
            }
        }
        let (control, data): (Vec<_>, Vec<_>) =
            bed.connections().into_iter().partition(|one| one.original.destination_port == 21);
        assert!(!control.is_empty());
        for one in &control {
            assert!(one.has_helper && !is_liberal(one), "{one:?}");
        }
        let has_helped =
            |one: &&Connection| one.status.contains(Status::EXPECTED) && is_liberal(one);
        let helped = data.iter().filter(has_helped).count();
        assert!(helped >= 5, "{helped} data connections were forwarded: {data:#?}");
        fs::remove_dir_all(&folder).expect("it is ours");
        bed.finish();
    }
}

const SETTINGS: &str = "\
listen=NO
listen_ipv6=YES
background=NO
anonymous_enable=YES
connect_from_port_20=YES
xferlog_enable=NO
seccomp_sandbox=NO
";
