//! Precise events (PEBS, IBS): the address of a sample is from the processor, and the call chain begins at the interrupt, some instructions
//! later. The test changes samples of real recordings so that they look like precise samples. The reports must not change.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_format::{CONTEXT_MAX, Endian, Events, File, RecordType, context, misc};
use bprec_report::{Input, Options, Session};
use std::path::Path;

/// The kernel's part of a sample's chain, leaf first, and the file offset of its first word.
struct Kernel {
    offset: usize,
    words: Vec<u64>,
}

fn kernel_chains(bytes: &[u8]) -> Vec<Kernel> {
    let file = File::parse(bytes).unwrap();
    assert_eq!(file.endian(), Endian::Little);
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let mut chains = Vec::new();
    for record in file.records().map(Result::unwrap) {
        if record.kind != RecordType::SAMPLE || record.misc & misc::CPUMODE_MASK != misc::KERNEL {
            continue;
        }
        let layout = &events.all()[events.index_of(&record).unwrap()].layout;
        let sample = layout.sample(record.body(), record.offset).unwrap();
        let Some(chain) = sample.callchain().unwrap() else { continue };
        let words: Vec<u64> = chain.iter().collect();
        if words.first() == Some(&context::KERNEL) && sample.ip() == words.get(1).copied() {
            let offset = chain.bytes().as_ptr() as usize - bytes.as_ptr() as usize;
            let words = words[1..].iter().copied().take_while(|word| *word < CONTEXT_MAX).collect();
            chains.push(Kernel { offset, words });
        }
    }
    chains
}

/// Returns the recording with new first words in the kernel chains for which `change` returns words, and the number of these chains.
fn changed(bytes: &[u8], change: impl Fn(&Kernel) -> Option<Vec<u64>>) -> (Vec<u8>, usize) {
    let (mut changed, mut count) = (bytes.to_vec(), 0);
    for kernel in kernel_chains(bytes) {
        if let Some(words) = change(&kernel) {
            for (at, word) in words.iter().enumerate() {
                changed[kernel.offset + at * 8..][..8].copy_from_slice(&word.to_le_bytes());
            }
            count += 1;
        }
    }
    (changed, count)
}

/// The report by program, the trees and the stacks of a recording.
fn answers(bytes: &[u8]) -> [String; 3] {
    let input = Input::from_bytes("changed", bytes.to_vec());
    let session = Session::open(&input).unwrap();
    let options = Options { all: true, ..Options::default() };
    [
        format!("{:#?}", session.by_prog(&options).unwrap().events),
        format!("{:#?}", session.trees(&options, 0.0).unwrap().events),
        format!("{:#?}", session.stacks(&options).unwrap()),
    ]
}

#[test]
fn a_chain_that_begins_behind_the_sample_changes_nothing() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2");
    let mut in_all = [0; 2];
    for name in ["ratio.data", "switches.data", "xdp.data"] {
        let bytes = std::fs::read(place.join(name)).unwrap();
        let expected = answers(&bytes);
        // The interrupt occurred at the byte after the leaf.
        let (later, count) = changed(&bytes, |kernel| Some(vec![context::KERNEL, kernel.words[0] + 1]));
        in_all[0] += count;
        // The function of the leaf had returned before the interrupt. Its word in the chain becomes a context marker without addresses.
        let (returned, count) = changed(&bytes, |kernel| {
            let caller = *kernel.words.get(1)?;
            Some(vec![context::HV, context::KERNEL, caller - 1])
        });
        in_all[1] += count;
        for changed in [later, returned] {
            let got = answers(&changed);
            for (got, expected) in got.iter().zip(&expected) {
                let differs = got.lines().zip(expected.lines()).find(|(got, expected)| got != expected);
                assert_eq!(differs, None, "{name}");
                assert_eq!(got.lines().count(), expected.lines().count(), "{name}");
            }
        }
    }
    assert!(in_all.iter().all(|count| *count > 1000), "{in_all:?}");
}
