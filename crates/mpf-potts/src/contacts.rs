//! Known distances between residues, and how many of the best scores are contacts.

use crate::{Error, Pair, Result, Scores, Site};
use std::collections::HashMap;

/// Distances in Å between numbered residues or columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distances {
    pairs: HashMap<(usize, usize), f64>,
    /// The letters of residues; a list of distances has none.
    letters: HashMap<usize, char>,
}

/// The names of amino acids in a PDB file. Selenomethionine is a methionine.
const RESIDUES: [(&str, char); 21] = [
    ("ALA", 'A'),
    ("ARG", 'R'),
    ("ASN", 'N'),
    ("ASP", 'D'),
    ("CYS", 'C'),
    ("GLN", 'Q'),
    ("GLU", 'E'),
    ("GLY", 'G'),
    ("HIS", 'H'),
    ("ILE", 'I'),
    ("LEU", 'L'),
    ("LYS", 'K'),
    ("MET", 'M'),
    ("MSE", 'M'),
    ("PHE", 'F'),
    ("PRO", 'P'),
    ("SER", 'S'),
    ("THR", 'T'),
    ("TRP", 'W'),
    ("TYR", 'Y'),
    ("VAL", 'V'),
];

impl Distances {
    /// Returns the distance of two residues, if it is known.
    pub fn get(&self, i: usize, j: usize) -> Option<f64> {
        self.pairs.get(&(i.min(j), i.max(j))).copied()
    }

    /// Returns how many of the `sites` are residues of the structure, and how many of those have its
    /// letter. Few of them agree if the numbers of one are shifted. A list of distances has no
    /// letters.
    pub fn agreement(&self, sites: &[Site]) -> (usize, usize) {
        let letters = sites.iter().filter_map(|site| {
            let letter = self.letters.get(&site.number)?;
            Some(*letter == site.letter)
        });
        letters.fold((0, 0), |(all, same), is_same| {
            (all + 1, same + usize::from(is_same))
        })
    }

    /// Reads a list: two numbers of residues or columns on a line, and the distance in its last
    /// field. Fields are separated by blanks, tabs or commas; lines that begin with `#` are comments.
    ///
    /// # Errors
    /// [`Error::Structure`] with the line.
    pub fn from_list(text: &str) -> Result<Self> {
        let mut pairs = HashMap::new();
        for (k, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let separators = |c: char| c == ',' || c.is_whitespace();
            let fields: Vec<&str> = line.split(separators).filter(|f| !f.is_empty()).collect();
            let number = |k: usize| fields.get(k).and_then(|f| f.parse::<usize>().ok());
            let last = fields.last().and_then(|f| f.parse::<f64>().ok());
            match (number(0), number(1), last.filter(|d| d.is_finite())) {
                (Some(i), Some(j), Some(d)) if i != j && fields.len() >= 3 => {
                    pairs.insert((i.min(j), i.max(j)), d);
                }
                _ => {
                    return Err(Error::Structure {
                        line: k + 1,
                        problem: "expected two numbers of residues and a distance",
                    });
                }
            }
        }
        Ok(Self {
            pairs,
            letters: HashMap::new(),
        })
    }

    /// Reads the Cβ atoms (Cα of glycine) of one chain of a PDB file, of its first model. Without a
    /// chain the first is taken. Residues with negative numbers, such as those of a tag, and those
    /// that have an insertion code beside the number of another are left out.
    ///
    /// # Errors
    /// [`Error::Structure`] for a line that is no atom, or a file without atoms of that chain.
    pub fn from_pdb(text: &str, chain: Option<char>) -> Result<Self> {
        let mut chain = chain;
        let mut atoms: Vec<(usize, [f64; 3])> = Vec::new();
        let mut letters = HashMap::new();
        for (k, line) in text.lines().enumerate() {
            if line.starts_with("ENDMDL") {
                break;
            }
            let field = |from: usize, to: usize| line.get(from..to).map_or("", str::trim);
            let name = field(17, 20);
            if !(line.starts_with("ATOM") || line.starts_with("HETATM") && name == "MSE") {
                continue;
            }
            let own = line.as_bytes().get(21).map_or(' ', |c| char::from(*c));
            let wanted = if name == "GLY" { "CA" } else { "CB" };
            if *chain.get_or_insert(own) != own || field(12, 16) != wanted {
                continue;
            }
            let coordinate = |from: usize| field(from, from + 8).parse::<f64>().ok();
            let place = (coordinate(30), coordinate(38), coordinate(46));
            let number = field(22, 26).parse::<i64>();
            let (Ok(number), (Some(x), Some(y), Some(z))) = (number, place) else {
                return Err(Error::Structure {
                    line: k + 1,
                    problem: "this atom has no residue number or no coordinates in PDB columns",
                });
            };
            let Ok(number) = usize::try_from(number) else {
                continue;
            };
            if let Some((_, letter)) = RESIDUES.iter().find(|(three, _)| *three == name) {
                letters.entry(number).or_insert(*letter);
            }
            // The first of alternative places.
            if atoms.last().is_none_or(|(last, _)| *last != number) {
                atoms.push((number, [x, y, z]));
            }
        }
        if atoms.is_empty() {
            return Err(Error::Structure {
                line: 1,
                problem: "there are no Cβ atoms of that chain in PDB format",
            });
        }
        let mut pairs = HashMap::new();
        for (k, (i, a)) in atoms.iter().enumerate() {
            for (j, b) in &atoms[..k] {
                let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
                pairs.insert(((*i).min(*j), (*i).max(*j)), squares.sum::<f64>().sqrt());
            }
        }
        Ok(Self { pairs, letters })
    }
}

/// What counts as a contact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContactRule {
    /// Contacts are nearer than this, in Å.
    pub nearer_than: f64,
    /// Pairs whose numbers differ by this or less are not judged.
    pub separation: usize,
}

/// Returns the ranked pairs that can be judged, and whether each is a contact: those far enough apart
/// whose distance is known.
pub fn judged(
    scores: &Scores,
    sites: &[Site],
    distances: &Distances,
    rule: ContactRule,
) -> Vec<(Pair, bool)> {
    let ranked = scores.ranked().into_iter();
    let known = ranked.filter_map(|pair| {
        let (i, j) = (sites[pair.i].number, sites[pair.j].number);
        let distance = distances.get(i, j)?;
        let is_far = i.abs_diff(j) > rule.separation;
        is_far.then_some((pair, distance < rule.nearer_than))
    });
    known.collect()
}

/// Returns the part of contacts among the first `n` of judged pairs, if there are as many.
pub fn precision(judged: &[(Pair, bool)], n: usize) -> Option<f64> {
    let first = judged.get(..n).filter(|first| !first.is_empty())?;
    let contacts = first.iter().filter(|(_, is_contact)| *is_contact).count();
    Some(contacts as f64 / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Potts;

    #[test]
    fn pdb_takes_beta_carbons_of_one_chain() {
        let text = "\
HEADER
ATOM      0  CB  HIS A  -1       7.000   7.000   7.000  1.00  0.00           C
ATOM      1  CA  ALA A   5       9.000   9.000   9.000  1.00  0.00           C
ATOM      2  CB  ALA A   5       0.000   0.000   0.000  1.00  0.00           C
ATOM      3  CB BALA A   5       5.000   0.000   0.000  1.00  0.00           C
ATOM      4  CA  GLY A   7       3.000   4.000   0.000  1.00  0.00           C
HETATM    5  CB  MSE A   8       0.000   0.000  12.000  1.00  0.00           C
HETATM    6  CB  LIG A  10       0.000   0.000  12.000  1.00  0.00           C
ATOM      7  CB  TRP B   9       1.000   0.000   0.000  1.00  0.00           C
ENDMDL
ATOM      8  CB  TRP A   9       1.000   0.000   0.000  1.00  0.00           C
";
        let distances = Distances::from_pdb(text, None).unwrap();
        assert_eq!((distances.get(7, 5), distances.pairs.len()), (Some(5.0), 3));
        assert_eq!(
            (distances.get(5, 8), distances.get(7, 8)),
            (Some(12.0), Some(13.0))
        );
        let site = |number, letter| Site {
            column: 1,
            number,
            letter,
        };
        let sites = [site(5, 'A'), site(7, 'A'), site(8, 'M'), site(9, 'W')];
        assert_eq!(distances.agreement(&sites), (3, 2));
        assert_eq!(distances, Distances::from_pdb(text, Some('A')).unwrap());
        assert!(
            Distances::from_pdb(text, Some('B'))
                .unwrap()
                .pairs
                .is_empty()
        );
        assert!(matches!(
            Distances::from_pdb(text, Some('C')),
            Err(Error::Structure { .. })
        ));
        assert!(matches!(
            Distances::from_pdb("data_1ABC\n", None),
            Err(Error::Structure { .. })
        ));
    }

    #[test]
    fn lists_end_with_the_distance() {
        let distances = Distances::from_list("# i j\n3 1 0.7 6.5\n2,4,8\n").unwrap();
        assert_eq!(
            (distances.get(1, 3), distances.get(4, 2)),
            (Some(6.5), Some(8.0))
        );
        for (text, wrong) in [("1 2 3\n1 2\n", 2), ("1 1 3", 1), ("a b 3", 1)] {
            let error = Distances::from_list(text).unwrap_err();
            assert!(
                matches!(error, Error::Structure { line, .. } if line == wrong),
                "{text}"
            );
        }
    }

    #[test]
    fn precision_counts_judged_pairs_only() {
        // Norms fall with the number of the pair: 01, 02, 03, 12, 13, 23.
        let mut theta = vec![0.0; 8];
        for c in [6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
            theta.extend([c, -c, -c, c]);
        }
        let scores = Scores::new(&Potts::new(4, 2, theta), None);
        let sites: Vec<Site> = [10, 11, 20, 30]
            .map(|number| Site {
                column: 1,
                number,
                letter: 'A',
            })
            .to_vec();
        // 10–11 is too near in the sequence, 10–30 unknown.
        let list = "10 11 3\n10 20 5\n11 20 9\n11 30 6.9\n20 30 7\n";
        let distances = Distances::from_list(list).unwrap();
        let rule = ContactRule {
            nearer_than: 7.0,
            separation: 4,
        };
        let judged = judged(&scores, &sites, &distances, rule);
        let expected: Vec<bool> = scores
            .ranked()
            .iter()
            .filter_map(|pair| match (pair.i, pair.j) {
                (0, 2) | (1, 3) => Some(true),
                (1, 2) | (2, 3) => Some(false),
                _ => None,
            })
            .collect();
        let found: Vec<bool> = judged.iter().map(|(_, is_contact)| *is_contact).collect();
        assert_eq!(found, expected);
        assert_eq!(
            (precision(&judged, 4), precision(&judged, 5)),
            (Some(0.5), None)
        );
    }
}
