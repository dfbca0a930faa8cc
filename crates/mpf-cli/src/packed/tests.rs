use super::*;
use mpf_core::rng::stream;
use mpf_ising::internal::last_word_mask;
use rand::RngExt;

fn random(n: usize, d: usize, seed: u64) -> States {
    let mut rng = stream(seed, 0);
    let mut states = States::new(d).unwrap();
    let words = states.words_per_row();
    for _ in 0..n {
        let mut row: Vec<u64> = (0..words).map(|_| rng.random()).collect();
        row[words - 1] &= last_word_mask(d);
        states.push(&row);
    }
    states
}

/// The bytes of a file that was written in batches.
fn packed(states: &States, counts: Option<&[f64]>, names: Option<Vec<String>>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PackedWriter::new(&mut file);
    for first in (0..states.n_samples()).step_by(1000) {
        let batch = first..states.n_samples().min(first + 1000);
        let counts = counts.map(|counts| &counts[batch.clone()]);
        writer.push(&states.slice(batch), counts).unwrap();
    }
    writer.finish(names, false).unwrap();
    file
}

fn open(bytes: &[u8]) -> (tempfile::TempDir, Result<PackedFiles, Failure>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bits");
    std::fs::write(&path, bytes).unwrap();
    let file = PackedFiles::open(&[path]);
    (folder, file)
}

#[test]
fn rows_and_counts_come_back() {
    for (n, d) in [(1, 1), (5, 8), (2500, 65), (70_000, 9), (300, 2000)] {
        let states = random(n, d, (n + d) as u64);
        let counts: Vec<f64> = (0..n).map(|m| m as f64 / 3.0).collect();
        for counts in [None, Some(&counts[..])] {
            let (_folder, file) = open(&packed(&states, counts, None));
            let file = file.unwrap();
            assert_eq!((file.n_samples(), file.n_units()), (n, d));
            assert_eq!(file.has_weights(), counts.is_some());
            for rows in [0..n, n / 3..n / 2, n - 1..n, 0..0] {
                let (mut found, mut weights) = (States::new(d).unwrap(), Vec::new());
                file.read(rows.clone(), &mut found, &mut weights).unwrap();
                assert_eq!(found, states.slice(rows.clone()));
                assert_eq!(weights, counts.map_or(&[][..], |c| &c[rows]));
            }
        }
    }
}

#[test]
fn several_files_are_one() {
    let states = random(1000, 12, 1);
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..3)
        .map(|k| folder.path().join(format!("{k}.bits")))
        .collect();
    for (path, rows) in paths.iter().zip([0..300, 300..301, 301..1000]) {
        std::fs::write(path, packed(&states.slice(rows), None, None)).unwrap();
    }
    let files = PackedFiles::open(&paths).unwrap();
    let (mut found, mut weights) = (States::new(12).unwrap(), Vec::new());
    files.read(250..400, &mut found, &mut weights).unwrap();
    assert_eq!(found, states.slice(250..400));
    assert_ne!(files.record().fingerprint, files.first().footer.fingerprint);
    std::fs::write(&paths[1], packed(&random(5, 13, 1), None, None)).unwrap();
    let failure = PackedFiles::open(&paths).unwrap_err();
    assert!(failure.message.contains("1.bits: its units"), "{failure}");
}

#[test]
fn every_damaged_byte_is_noticed_and_named() {
    let states = random(30_000, 100, 2);
    let names = (0..100).map(|i| format!("unit {i}")).collect();
    let good = packed(&states, None, Some(names));
    let read = |bytes: &[u8]| {
        let (_folder, file) = open(bytes);
        let (mut found, mut weights) = (States::new(100).unwrap(), Vec::new());
        match file {
            Err(failure) => Err(failure.message),
            Ok(file) => file
                .read(0..30_000, &mut found, &mut weights)
                .map(|()| found),
        }
    };
    assert_eq!(read(&good).unwrap(), states);
    let layout = Layout::new(100, false);
    let second = layout.offset(1) as usize;
    for (at, expected) in [
        (0, "no packed file".to_owned()),
        (8, "version".to_owned()),
        (20, "the header".to_owned()),
        (30, "the header".to_owned()),
        (33, "block 0 (bytes 32 to ".to_owned()),
        (second - 1, "block 0 (bytes 32 to ".to_owned()),
        (second, format!("block 1 (bytes {second} to ")),
        (good.len() - 17, "the footer".to_owned()),
        (good.len() - 6, "the footer".to_owned()),
        (good.len() - 1, "without a footer".to_owned()),
    ] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        let message = read(&bad).unwrap_err();
        assert!(message.contains(&expected), "byte {at}: {message}");
    }
    let mut rng = stream(3, 0);
    for _ in 0..300 {
        let mut bad = good.clone();
        let at = rng.random_range(0..bad.len());
        bad[at] ^= 1 << rng.random_range(0..8);
        assert!(read(&bad).is_err(), "byte {at}");
    }
    for length in [0, 7, 31, 32, 40, second, second + 1, good.len() - 1] {
        let message = read(&good[..length]).unwrap_err();
        let names_block = length <= 32 || message.contains("in block ");
        assert!(names_block, "{length} bytes: {message}");
    }
    let mut longer = good.clone();
    longer.splice(second..second, [0; 8]);
    assert!(read(&longer).unwrap_err().contains("the footer begins at"));
}

#[test]
fn impossible_numbers_claim_no_memory() {
    let header = |n_units: u64, rows: u32| {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(n_units.to_le_bytes());
        bytes.extend(rows.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    };
    for (n_units, rows) in [(u64::MAX, 1), (1 << 40, u32::MAX), (0, 64), (8, 0)] {
        let failure = open(&header(n_units, rows)).1.unwrap_err();
        assert!(failure.message.contains("header"), "{failure}");
    }
    // A footer of more samples than there are, in blocks of as many rows as can be named.
    for n_samples in [1 << 40, u64::MAX, 0] {
        let mut bytes = header(8, u32::MAX);
        let footer = Footer {
            n_samples,
            names: None,
            spins: false,
            fingerprint: String::new(),
        };
        let json = serde_json::to_vec(&footer).unwrap();
        bytes.extend(&json);
        bytes.extend((json.len() as u64).to_le_bytes());
        bytes.extend(crc32fast::hash(&json).to_le_bytes());
        bytes.extend(END);
        let failure = open(&bytes).1.unwrap_err();
        assert!(failure.message.contains("rows end at byte"), "{failure}");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let states = random(20_000, 100, 4);
    let (folder, file) = open(&packed(&states, None, None));
    let file = file.unwrap();
    let path = folder.path().join("a.bits");
    let shorter = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    shorter.set_len(1000).unwrap();
    let (mut found, mut weights) = (States::new(100).unwrap(), Vec::new());
    let message = file.read(0..20_000, &mut found, &mut weights).unwrap_err();
    assert!(message.contains("block 0 (bytes 32 to "), "{message}");
    assert!(message.contains("has become shorter"), "{message}");
}
