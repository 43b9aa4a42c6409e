use super::spread::{LINE, PAGE, Spread};
use super::*;
use crate::Depot;
use crate::vocabulary::Segments;

#[test]
fn a_window_opens_in_front_and_closes_at_both_ends() {
    with_frame(|region, frame| {
        region.set_window(frame, 256, 266);
        region.bytes_mut(frame).copy_from_slice(b"0123456789");
        region.pull_front(frame, 2);
        region.truncate(frame, 5);
        assert_eq!(region.bytes(frame), b"23456");
        assert_eq!(region.push_front(frame, 1), Ok(()));
        assert_eq!(region.bytes(frame), b"123456");
        assert_eq!(region.push_front(frame, 300), Err(NoHeadroom { wanted: 300, available: 257 }));
        region.pull_front(frame, 99);
        assert!(region.meta(frame).is_empty());
    });
}

#[test]
fn packets_land_on_different_lines_and_inside_their_slots() {
    for frame_size in [2048, 4096] {
        for len in [0, 60, 64, 65, 1514, frame_size - 256 - 64, frame_size - 256] {
            let spread = Spread::new(frame_size, len as u16);
            let heads: Vec<usize> = (0..128).map(|index| spread.head(index).into()).collect();
            assert!(heads.iter().all(|head| (256..=frame_size - len).contains(head)), "{len}");
            let set = |(index, head)| (index * frame_size + head) / LINE % 64;
            let sets = heads.iter().copied().enumerate().map(set);
            let sets = sets.collect::<std::collections::BTreeSet<_>>().len();
            let lines = (frame_size - 256 - len) / LINE + 1;
            let slots = PAGE / frame_size;
            assert_eq!(sets, slots << lines.ilog2(), "{frame_size} {len}");
        }
    }
}

#[test]
fn who_lands_gets_the_window_that_is_set() {
    with_frame(|region, frame| {
        let frames = std::slice::from_mut(frame);
        region.view().land(frames, 64).for_each(|bytes| bytes.fill(7));
        assert_eq!(region.bytes(frame), [7; 64]);
    });
}

/// What is there from before is left alone only when it is the same.
#[test]
fn each_life_has_its_own_marks() {
    with_frame(|region, frame| {
        let queues = [3, 3, 4].map(QueueId);
        let checksums = [
            Checksum::Valid,
            Checksum::Unknown,
            Checksum::Partial { start: 34, offset: 6 },
            Checksum::Partial { start: 34, offset: 16 },
            Checksum::Valid,
        ];
        for (queue, checksum) in queues.iter().flat_map(|queue| checksums.map(|sum| (*queue, sum)))
        {
            for changed in [false, true] {
                region.set_ingress(frame, PortId(7), queue, checksum);
                let Marks { ingress, queue: its, checksum: known, own, later, segments } =
                    **region.meta(frame);
                assert_eq!((ingress, its, known), (PortId(7), queue, checksum));
                assert_eq!((own, later, segments), (false, false, Segments::NONE));
                if changed {
                    let marks = region.meta_mut(frame);
                    (marks.own, marks.ingress, marks.later) = (true, PortId(9), true);
                }
            }
        }
    });
}

#[test]
#[should_panic(expected = "the packet fits its slot")]
fn what_does_not_fit_does_not_land() {
    with_frame(|region, frame| {
        let _ = region.view().land(std::slice::from_mut(frame), 1793).len();
    });
}

#[test]
#[should_panic(expected = "window outside its slot")]
fn a_window_beyond_the_slot_is_refused() {
    with_frame(|region, frame| region.set_window(frame, 0, 2049));
}

#[test]
fn a_lent_frame_comes_back_by_any_address_in_its_slot() {
    let region = region();
    let depot = Depot::new(region.clone(), 1).expect("the frames are there");
    let mut pool = depot.pool();
    let mut frame = pool.take().expect("there are frames");
    region.set_window(&mut frame, 100, 110);
    let index = frame.index();
    let address = region.lend(frame);
    assert_eq!(address, u64::from(index) * 2048 + 100);
    // SAFETY: lent above, never given to a kernel, reclaimed once.
    let frame = unsafe { region.reclaim(address + 7) };
    assert_eq!(frame.index(), index);
    pool.give_back(frame);
}

#[test]
fn tags_come_back_when_all_frames_are_at_home() {
    for _ in 0..300 {
        drop(Depot::new(region(), 1).expect("the frames are there"));
        drop(region()); // Its frames were never taken.
    }
}

/// A frame of the next region would pass for the first one's, with an index beyond its end.
#[test]
fn a_region_that_somebody_still_has_keeps_its_tag() {
    let first = region();
    drop(Depot::new(first.clone(), 1).expect("the frames are there"));
    let second = region();
    assert_ne!(first.tag(), second.tag());
    drop(Depot::new(first, 1).expect("the frames are home and can be taken again"));
}

#[test]
fn bad_sizes_are_refused_by_name() {
    let error = |frames, frame_size| {
        let region = Region::new(RegionConfig { frames, frame_size });
        region.err().map(|error| error.to_string())
    };
    assert_eq!(error(1, 1500), Some("frame size 1500: take 2048 or 4096".into()));
    assert_eq!(error(0, 2048), Some("0 frames in a region: take 1 to 16777216".into()));
}

fn region() -> Region {
    Region::new(RegionConfig { frames: 4, frame_size: 2048 }).expect("8 KiB can be mapped")
}

fn with_frame(test: impl FnOnce(&Region, &mut Frame)) {
    let region = region();
    let depot = Depot::new(region.clone(), 1).expect("the frames are there");
    let mut pool = depot.pool();
    let mut frame = pool.take().expect("there are frames");
    test(&region, &mut frame);
    pool.give_back(frame);
}
