//! Alignments as people have them.

use mpf_potts::{Alignment, Alphabet, Ambiguous, Error, ReadOptions};

fn read(text: &str, options: &ReadOptions) -> Alignment {
    Alignment::read(text.as_bytes(), options).unwrap()
}

fn rows(alignment: &Alignment) -> Vec<String> {
    let codes = alignment.codes.chunks(alignment.sites.len());
    let letter = |code: &u8| alignment.alphabet.letter(*code);
    codes.map(|row| row.iter().map(letter).collect()).collect()
}

#[test]
fn a3m_inserts_go_and_residues_are_counted() {
    // The focus has residues 5 to 10: F, W, (i n), C, D; the gap column is not its own.
    let text = ">x\nFW-CD\n>focus/5-10 text\nFWin-CD\n>y\n-Wk-CE\n";
    let focused = ReadOptions {
        focus: Some("focus".into()),
        ..ReadOptions::default()
    };
    let alignment = read(text, &focused);
    assert_eq!(rows(&alignment), ["FWCD", "FWCD", "-WCE"]);
    let numbers: Vec<_> = alignment
        .sites
        .iter()
        .map(|s| (s.column, s.number, s.letter))
        .collect();
    assert_eq!(
        numbers,
        [(1, 5, 'F'), (2, 6, 'W'), (4, 9, 'C'), (5, 10, 'D')]
    );
    assert_eq!(alignment.focus().unwrap(), &alignment.codes[4..8]);

    let plain = read(text, &ReadOptions::default());
    assert_eq!(rows(&plain)[2], "-W-CE");
    assert_eq!(plain.sites[3].number, 4);
}

#[test]
fn residues_of_the_other_strand_count_down() {
    let options = ReadOptions {
        focus: Some("x".into()),
        ..ReadOptions::default()
    };
    let numbers = |text: &str| -> Vec<usize> {
        let alignment = read(text, &options);
        alignment.sites.iter().map(|s| s.number).collect()
    };
    assert_eq!(
        numbers(">x/881-878\nAC.GU\n>y\nACGGU\n"),
        [881, 880, 879, 878]
    );
    // No range, and what is none.
    assert_eq!(numbers(">x\nAC-G\n>y\nACGG\n"), [1, 2, 3]);
    assert_eq!(numbers(">x/y-9\nAC-G\n>y\nACGG\n"), [1, 2, 3]);
}

#[test]
fn a2m_insert_columns_go_and_soft_masked_letters_stay() {
    let text = ">a\nAC.dE\n>b\nAcw.E\n";
    let alignment = read(text, &ReadOptions::default());
    // Column 2 has an upper-case C, columns 3 and 4 only insertions.
    assert_eq!(rows(&alignment), ["ACE", "ACE"]);
}

#[test]
fn ambiguous_letters_are_gaps_or_drop_their_sequence() {
    let text = ">a\nWXYF\n>b\nWFYF\n";
    assert_eq!(rows(&read(text, &ReadOptions::default())), ["W-YF", "WFYF"]);
    let strict = ReadOptions {
        ambiguous: Ambiguous::Drop,
        ..ReadOptions::default()
    };
    let alignment = read(text, &strict);
    assert_eq!(
        (rows(&alignment), alignment.places),
        (vec!["WFYF".to_string()], vec![1])
    );
    assert_eq!(alignment.n_read, 2);
}

#[test]
fn gaps_are_cut_off() {
    let text = ">a\nWF-Y\n>b\nWF-F\n>c\n---Y\n>d\nWFHY\n";
    let options = ReadOptions {
        most_gaps_in_sequence: 0.5,
        most_gaps_in_column: 0.5,
        ..ReadOptions::default()
    };
    // Sequence c has three gaps of four; then column 3 has two of three.
    let alignment = read(text, &options);
    assert_eq!(rows(&alignment), ["WFY", "WFF", "WFY"]);
    assert_eq!(alignment.names, ["a", "b", "d"]);
    let none = ReadOptions {
        most_gaps_in_sequence: -1.0,
        ..options
    };
    let error = Alignment::read(text.as_bytes(), &none).unwrap_err();
    assert!(matches!(
        error,
        Error::NothingLeft {
            sequences: 0,
            of_sequences: 4,
            ..
        }
    ));
}

#[test]
fn what_is_wrong_is_named_with_line_and_sequence() {
    let fails = |text: &str| {
        let error = Alignment::read(text.as_bytes(), &ReadOptions::default());
        error.unwrap_err().to_string()
    };
    let message = fails(">a\nWFY\n>b long\nWF\nYWW\n");
    for part in ["line 4", "\"b long\"", "5 aligned", "\"a\"", "line 2", "3"] {
        assert!(message.contains(part), "{message}");
    }
    let message = fails(">a\nWFY\n>b\nW?Y\n");
    for part in ["line 4", "\"b\"", "'?'", "column 2"] {
        assert!(message.contains(part), "{message}");
    }
    let focus = ReadOptions {
        focus: Some("zz".into()),
        ..ReadOptions::default()
    };
    let error = Alignment::read(b">a\nWFY\n", &focus).unwrap_err();
    assert!(matches!(error, Error::Focus { .. }), "{error}");
}

#[test]
fn alphabets_are_guessed_or_given() {
    let letters = |text: &str| read(text, &ReadOptions::default()).alphabet.letters();
    assert_eq!(letters(">a\nACGU\n>b\nAC.U\n"), "-ACGU");
    assert_eq!(letters(">a\nACGT\n>b\nAC-N\n"), "-ACGT");
    assert_eq!(letters(">a\nACGW\n>b\nLC-K\n"), "-ACDEFGHIKLMNPQRSTVWY");
    let custom = ReadOptions {
        alphabet: Some(Alphabet::custom("_*^").unwrap()),
        ..ReadOptions::default()
    };
    assert_eq!(rows(&read("_*^\n^^_\n", &custom)), ["_*^", "^^_"]);
    for wrong in ["A", "AA", "A C", "é"] {
        assert!(
            matches!(Alphabet::custom(wrong), Err(Error::Alphabet { .. })),
            "{wrong}"
        );
    }
}

#[test]
fn ignored_gaps_have_no_state() {
    let alignment = read(">a\nAC-U\n>b\nGC.U\n", &ReadOptions::default());
    let weights = vec![1.0; 2];
    let with = alignment.sequences(&weights, false).unwrap();
    let without = alignment.sequences(&weights, true).unwrap();
    assert_eq!(
        (with.n_states(), with.codes()),
        (5, &[1, 2, 0, 4, 3, 2, 0, 4][..])
    );
    assert_eq!(
        (without.n_states(), without.codes()),
        (4, &[0, 1, 4, 3, 2, 1, 4, 3][..])
    );
}

#[test]
fn every_format_holds_the_same_family() {
    for text in [
        // FASTA, wrapped; a2m; a3m; a line each; Stockholm in two blocks.
        ">q\nAC\nDE\n>b\nGCD\nK\n>c\nAWDE\n",
        ">q\nACxDE\n>b\nGC.DK\n>c\nAWyDE\n",
        ">q\nACxDE\n>b\nGCDKkk\n>c\nAWDE\n",
        "ACDE\nGCDK\nAWDE\n",
        "# STOCKHOLM 1.0\n#=GF ID x\nq AC\nb GC\nc AW\n\nq DE\nb DK\nc DE\n//\n",
    ] {
        let options = ReadOptions {
            alphabet: Some(Alphabet::protein()),
            ..ReadOptions::default()
        };
        assert_eq!(
            rows(&read(text, &options)),
            ["ACDE", "GCDK", "AWDE"],
            "{text}"
        );
    }
}
