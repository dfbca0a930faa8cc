//! Another program's answers. Runs if `MPF_REFERENCE_DATA` names the folder with the files, and says
//! so if it does not.

use flate2::read::GzDecoder;
use mpf_potts::{
    Alignment, Alphabet, Ambiguous, FitOptions, Loss, Mode, Penalties, ReadOptions, Scores, fit,
};
use std::fs;
use std::io::Read;
use std::path::PathBuf;

fn reference_data() -> Option<PathBuf> {
    let folder = std::env::var_os("MPF_REFERENCE_DATA").map(|f| PathBuf::from(f).join("potts"));
    let folder = folder.filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("SKIPPED: no reference data (MPF_REFERENCE_DATA)");
    }
    folder
}

fn unpack(path: PathBuf) -> Vec<u8> {
    let mut text = Vec::new();
    let file = fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    GzDecoder::new(file).read_to_end(&mut text).unwrap();
    text
}

/// The place of every number in the order of falling numbers.
fn ranks(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
    let mut ranks = vec![0; order.len()];
    for (rank, place) in order.into_iter().enumerate() {
        ranks[place] = rank;
    }
    ranks
}

/// plmc's weights to the last bit, and its scores as far as its 100 iterations went.
#[test]
fn dhfr_is_as_plmc_sees_it() {
    let Some(folder) = reference_data() else {
        return;
    };
    let options = ReadOptions {
        focus: Some("DYR_ECOLI".into()),
        ambiguous: Ambiguous::Drop,
        ..ReadOptions::default()
    };
    let alignment = Alignment::read(&unpack(folder.join("DHFR.a2m.gz")), &options).unwrap();
    let weights = alignment.weights(0.2);
    let numbers = |file: &str| {
        let text = String::from_utf8(unpack(folder.join(file))).unwrap();
        let last = |line: &str| {
            line.split_whitespace()
                .last()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        text.lines().map(last).collect::<Vec<_>>()
    };
    // Sequences that plmc leaves out have weight 0 there.
    let mut found = vec![0.0; alignment.n_read];
    for (place, weight) in alignment.places.iter().zip(&weights) {
        found[*place] = *weight;
    }
    assert_eq!(found, numbers("DHFR_weights_raw.txt.gz"));

    let sequences = alignment.sequences(&weights, true).unwrap();
    let mut options = FitOptions::new(Loss::Pseudolikelihood, &sequences);
    options.penalties = Penalties::from_plmc(16.0, 0.01, 0.0, sequences.total_weight());
    let fit = fit(&sequences, &options, |_| {}).unwrap();
    let scores = Scores::new(&fit.model, None);
    let n = scores.n_sites();
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    let mine: Vec<f64> = pairs.map(|(i, j)| scores.get(i, j)).collect();
    let theirs = numbers("DHFR.couplings.gz");
    assert_eq!(mine.len(), theirs.len());
    let (mine, theirs) = (ranks(&mine), ranks(&theirs));
    let squares = mine
        .iter()
        .zip(&theirs)
        .map(|(a, b)| a.abs_diff(*b).pow(2) as f64);
    let n = mine.len() as f64;
    let spearman = 1.0 - 6.0 * squares.sum::<f64>() / (n * (n * n - 1.0));
    let top = theirs
        .iter()
        .zip(&mine)
        .filter(|(theirs, _)| **theirs < 100);
    let worst = top.map(|(_, mine)| mine + 1).max().unwrap();
    eprintln!("Spearman {spearman:.4}; plmc's top 100 are in our top {worst}");
    assert!(spearman >= 0.99);
    assert!(worst <= 130);
}

/// Draws from a chain: only neighbours couple.
#[test]
fn a_chain_is_seen_as_one() {
    let Some(folder) = reference_data() else {
        return;
    };
    let text = fs::read(folder.join("potts3.a2m")).unwrap();
    let options = ReadOptions {
        alphabet: Some(Alphabet::custom("_*^").unwrap()),
        ..ReadOptions::default()
    };
    let alignment = Alignment::read(&text, &options).unwrap();
    let sequences = alignment
        .sequences(&alignment.weights(-1.0), false)
        .unwrap();
    let n = sequences.n_sites();
    for loss in [Loss::Pseudolikelihood, Loss::Flow] {
        for mode in [Mode::Joint, Mode::NodeWise] {
            let mut options = FitOptions::new(loss, &sequences);
            options.mode = mode;
            let fit = fit(&sequences, &options, |_| {}).unwrap();
            let ranked = Scores::new(&fit.model, None).ranked();
            let top = &ranked[..n - 1];
            assert!(
                top.iter().all(|pair| pair.j - pair.i == 1),
                "{loss:?} {mode:?}"
            );
            // And clearly: a few hundred draws leave others some noise, but well below the weakest
            // neighbours.
            assert!(
                top[n - 2].score > 1.5 * ranked[n - 1].score,
                "{loss:?} {mode:?}"
            );
        }
    }
}
