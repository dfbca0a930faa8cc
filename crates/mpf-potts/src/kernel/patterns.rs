//! The pattern tree: which partial sums the sequences share.
//!
//! u_m = Σ_j J_j(·, x_mj) is a sum over columns. Halve the columns again and again; over a few
//! neighbouring columns the sequences show few distinct patterns, and the partial sum of a pattern is
//! computed once. A node of the tree lists its distinct patterns, each as a pair of patterns of its
//! two halves; the root's patterns are the sequences themselves. For families of homologous
//! sequences the tree has a third to a twentieth of the M · L additions of rows.

use rayon::join;

/// One half of a node: a column, or the node with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Column(usize),
    Node(usize),
}

/// The patterns of some neighbouring columns.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) left: Half,
    pub(super) right: Half,
    /// For each pattern those of the left and the right half, sorted.
    pub(super) pairs: Vec<[u16; 2]>,
    /// Where in scratch the rows of its patterns begin. Those of its halves follow: a half is done
    /// before the next one needs the place of what is below it.
    pub(super) place: usize,
}

/// The tree of a chunk of distinct sequences.
#[derive(Clone, Debug)]
pub(super) struct PatternTree {
    /// Children come before their parents; the root is the last.
    pub(super) nodes: Vec<Node>,
    /// The sequence of each of the root's patterns, as an index into the chunk.
    pub(super) order: Vec<u32>,
    /// The rows of scratch that sums over the tree need.
    pub(super) rows: usize,
}

/// Columns from which on the halves are built in parallel.
const PARALLEL: usize = 16;

impl PatternTree {
    /// Builds the tree of fewer than 2¹⁶ distinct `sequences`, `n_sites` ≥ 2 codes each.
    pub(super) fn new(sequences: &[u8], n_sites: usize) -> Self {
        let part = build(sequences, n_sites, 0, n_sites);
        let mut order = vec![0; part.ids.len()];
        for (sequence, &id) in part.ids.iter().enumerate() {
            order[usize::from(id)] = sequence as u32;
        }
        let mut tree = Self {
            nodes: part.nodes,
            order,
            rows: 0,
        };
        for parent in (0..tree.nodes.len()).rev() {
            let Node {
                left,
                right,
                ref pairs,
                place,
            } = tree.nodes[parent];
            let mut end = place + pairs.len();
            for half in [left, right] {
                let n = tree.n_patterns(half);
                if let Half::Node(child) = half {
                    tree.nodes[child].place = end;
                }
                end += n;
            }
            tree.rows = tree.rows.max(end);
        }
        tree
    }

    /// Returns the number of additions of rows in one pass.
    pub(super) fn n_additions(&self) -> usize {
        self.nodes.iter().map(|node| node.pairs.len()).sum()
    }

    /// Returns the number of patterns of a half, 0 for a column: its rows are kept elsewhere.
    pub(super) fn n_patterns(&self, half: Half) -> usize {
        match half {
            Half::Column(_) => 0,
            Half::Node(node) => self.nodes[node].pairs.len(),
        }
    }
}

/// The tree of some columns under construction.
struct Part {
    nodes: Vec<Node>,
    /// The pattern of every sequence.
    ids: Vec<u16>,
}

fn build(sequences: &[u8], n_sites: usize, first: usize, end: usize) -> Part {
    if end - first == 1 {
        let column = sequences.iter().skip(first).step_by(n_sites);
        return Part {
            nodes: Vec::new(),
            ids: column.map(|&code| u16::from(code)).collect(),
        };
    }
    let middle = first.midpoint(end);
    let halves = (
        || build(sequences, n_sites, first, middle),
        || build(sequences, n_sites, middle, end),
    );
    let (left, mut right) = if end - first >= PARALLEL {
        join(halves.0, halves.1)
    } else {
        (halves.0(), halves.1())
    };
    let half = |nodes: &[Node], column: usize| match nodes.len() {
        0 => Half::Column(column),
        n => Half::Node(n - 1),
    };
    let mut nodes = left.nodes;
    let left_half = half(&nodes, first);
    let shift = nodes.len();
    for node in &mut right.nodes {
        for half in [&mut node.left, &mut node.right] {
            if let Half::Node(number) = half {
                *number += shift;
            }
        }
    }
    let right_half = match half(&right.nodes, middle) {
        Half::Node(number) => Half::Node(number + shift),
        column @ Half::Column(_) => column,
    };
    nodes.append(&mut right.nodes);

    let mut keys: Vec<u32> = left.ids.iter().zip(&right.ids).map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let find = |ids| {
        keys.binary_search(&key(ids))
            .expect("the key of a sequence") as u16
    };
    let ids = left.ids.iter().zip(&right.ids).map(find).collect();
    let pairs: Vec<[u16; 2]> = keys
        .iter()
        .map(|key| [(key >> 16) as u16, *key as u16])
        .collect();
    nodes.push(Node {
        left: left_half,
        right: right_half,
        pairs,
        place: 0,
    });
    Part { nodes, ids }
}

fn key((left, right): (&u16, &u16)) -> u32 {
    u32::from(*left) << 16 | u32::from(*right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spells out the codes of a pattern.
    fn spell(tree: &PatternTree, half: Half, pattern: u16, codes: &mut Vec<u8>) {
        match half {
            Half::Column(_) => codes.push(pattern as u8),
            Half::Node(node) => {
                let node = &tree.nodes[node];
                let [left, right] = node.pairs[usize::from(pattern)];
                spell(tree, node.left, left, codes);
                spell(tree, node.right, right, codes);
            }
        }
    }

    #[test]
    fn the_root_spells_every_sequence() {
        for n_sites in [2, 3, 5, 16, 19] {
            let n = 40;
            let mut sequences = Vec::new();
            for m in 0..n {
                for j in 0..n_sites {
                    // The first two columns make the sequences distinct.
                    let digit = [m % 7, m / 7, m * j % 3][j.min(2)];
                    sequences.push(digit as u8);
                }
            }
            let tree = PatternTree::new(&sequences, n_sites);
            let root = Half::Node(tree.nodes.len() - 1);
            assert_eq!(tree.order.len(), n);
            for (pattern, &sequence) in tree.order.iter().enumerate() {
                let mut codes = Vec::new();
                spell(&tree, root, pattern as u16, &mut codes);
                let start = sequence as usize * n_sites;
                assert_eq!(codes, &sequences[start..start + n_sites]);
            }
            assert!(tree.n_additions() <= n * (n_sites - 1));
        }
    }
}
