//! Patterns: which partial sums the sequences share.
//!
//! u_m = Σ_j J_j(·, x_mj) is a sum over columns. Over a few neighbouring columns the sequences show few
//! distinct patterns, and the partial sum of a pattern is computed once. A *group* of columns is a
//! binary tree: a node lists its distinct patterns, each as a pair of patterns of its two halves.
//! Columns are joined as long as a group has fewer than half as many patterns as there are sequences;
//! a sequence then adds up one row for each group. Four groups at a time make a *batch*, whose tables
//! stay in the cache while all sequences pass.

use rayon::join;
use std::ops::Range;

/// One half of a node, or a whole group: a column, or the node with this number.
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
    /// Where among the tables of its batch the rows of its patterns begin. Those of its halves follow:
    /// a half is done before the next one needs the place of what is below it.
    pub(super) place: usize,
}

/// Groups whose rows are added at the same time.
pub(super) const WIDTH: usize = 4;

/// Neighbouring columns with few patterns.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) half: Half,
    /// Its nodes; the last of them has its patterns.
    pub(super) nodes: Range<usize>,
    /// Where among the tables of its batch the rows of its patterns are.
    pub(super) table: Range<usize>,
    /// The pattern of every sequence.
    ids: Vec<u16>,
}

/// Up to [`WIDTH`] groups.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) groups: Vec<Group>,
    /// For every sequence its rows in the tables of the groups; beyond the last group that of `blank`.
    pub(super) rows: Vec<[u16; WIDTH]>,
    /// The row after all tables, which is zero.
    pub(super) blank: usize,
}

/// The patterns of a chunk of distinct sequences.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    /// Children come before their parents.
    pub(super) nodes: Vec<Node>,
    pub(super) batches: Vec<Batch>,
    /// The rows that the tables of a batch, and what is below them, take at most.
    pub(super) n_rows: usize,
}

/// Columns from which on the halves are built in parallel.
const PARALLEL: usize = 16;

impl Patterns {
    /// Finds the patterns of at most 2¹⁴ `sequences`, `n_sites` ≥ 2 codes each.
    pub(super) fn new(sequences: &[u8], n_sites: usize) -> Self {
        let Part { mut nodes, groups } = build(sequences, n_sites, 0, n_sites);
        let mut groups = groups.into_iter().peekable();
        let mut batches = Vec::new();
        while groups.peek().is_some() {
            batches.push(Batch::new(groups.by_ref().take(WIDTH).collect()));
        }
        let tables = batches.iter().map(|batch: &Batch| batch.blank + 1);
        let mut n_rows = tables.max().unwrap_or(0);
        for group in batches.iter().flat_map(|batch| &batch.groups) {
            if let Half::Node(root) = group.half {
                nodes[root].place = group.table.start;
            }
            for parent in group.nodes.clone().rev() {
                let mut end = nodes[parent].place + nodes[parent].pairs.len();
                for half in [nodes[parent].left, nodes[parent].right] {
                    if let Half::Node(child) = half {
                        nodes[child].place = end;
                        end += nodes[child].pairs.len();
                    }
                }
                n_rows = n_rows.max(end);
            }
        }
        Self {
            nodes,
            batches,
            n_rows,
        }
    }

    /// Returns the number of patterns of a half, 0 for a column: its rows are kept elsewhere.
    pub(super) fn n_patterns(&self, half: Half) -> usize {
        match half {
            Half::Column(_) => 0,
            Half::Node(node) => self.nodes[node].pairs.len(),
        }
    }
}

impl Batch {
    fn new(mut groups: Vec<Group>) -> Self {
        let mut blank = 0;
        for group in &mut groups {
            group.table = blank..blank + group.table.len();
            blank = group.table.end;
        }
        let n = groups[0].ids.len();
        let mut rows = vec![[blank as u16; WIDTH]; n];
        for (k, group) in groups.iter_mut().enumerate() {
            for (row, id) in rows.iter_mut().zip(std::mem::take(&mut group.ids)) {
                row[k] = group.table.start as u16 + id;
            }
        }
        Self {
            groups,
            rows,
            blank,
        }
    }
}

/// Some columns under construction.
struct Part {
    nodes: Vec<Node>,
    groups: Vec<Group>,
}

fn build(sequences: &[u8], n_sites: usize, first: usize, end: usize) -> Part {
    if end - first == 1 {
        let column = sequences.iter().skip(first).step_by(n_sites);
        let group = Group {
            half: Half::Column(first),
            nodes: 0..0,
            table: 0..super::MOST_CODES,
            ids: column.map(|&code| u16::from(code)).collect(),
        };
        return Part {
            nodes: Vec::new(),
            groups: vec![group],
        };
    }
    let middle = first.midpoint(end);
    let halves = (
        || build(sequences, n_sites, first, middle),
        || build(sequences, n_sites, middle, end),
    );
    let (left, right) = if end - first >= PARALLEL {
        join(halves.0, halves.1)
    } else {
        (halves.0(), halves.1())
    };
    let Part {
        mut nodes,
        mut groups,
    } = left;
    let shift = nodes.len();
    let moved = |half: Half| match half {
        Half::Node(number) => Half::Node(number + shift),
        column @ Half::Column(_) => column,
    };
    nodes.extend(right.nodes.into_iter().map(|node| Node {
        left: moved(node.left),
        right: moved(node.right),
        ..node
    }));
    groups.extend(right.groups.into_iter().map(|group| Group {
        half: moved(group.half),
        nodes: group.nodes.start + shift..group.nodes.end + shift,
        ..group
    }));
    if let [left, right] = groups.as_slice()
        && let Some((pairs, ids)) = joined(left, right)
    {
        let group = Group {
            half: Half::Node(nodes.len()),
            nodes: 0..nodes.len() + 1,
            table: 0..pairs.len(),
            ids,
        };
        nodes.push(Node {
            left: left.half,
            right: right.half,
            pairs,
            place: 0,
        });
        groups = vec![group];
    }
    Part { nodes, groups }
}

/// Returns the patterns of two groups together and those of all sequences, if they are few.
fn joined(left: &Group, right: &Group) -> Option<(Vec<[u16; 2]>, Vec<u16>)> {
    let mut keys: Vec<u32> = left.ids.iter().zip(&right.ids).map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    // A pattern is read twice and written once, where two groups are one row more for a sequence.
    if 2 * keys.len() > left.ids.len() {
        return None;
    }
    let find = |ids| {
        keys.binary_search(&key(ids))
            .expect("the key of a sequence") as u16
    };
    let ids = left.ids.iter().zip(&right.ids).map(find).collect();
    let pairs = keys.iter().map(|key| [(key >> 16) as u16, *key as u16]);
    Some((pairs.collect(), ids))
}

fn key((left, right): (&u16, &u16)) -> u32 {
    u32::from(*left) << 16 | u32::from(*right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spells out the codes of a pattern.
    fn spell(patterns: &Patterns, half: Half, pattern: u16, codes: &mut Vec<u8>) {
        match half {
            Half::Column(_) => codes.push(pattern as u8),
            Half::Node(node) => {
                let node = &patterns.nodes[node];
                let [left, right] = node.pairs[usize::from(pattern)];
                spell(patterns, node.left, left, codes);
                spell(patterns, node.right, right, codes);
            }
        }
    }

    #[test]
    fn groups_spell_every_sequence() {
        for n_sites in [2, 3, 5, 16, 19, 40] {
            let n = 200;
            let mut sequences = Vec::new();
            for m in 0..n {
                for j in 0..n_sites {
                    sequences.push([m % 7, m / 7 % 5, m * j % 3][j.min(2)] as u8);
                }
            }
            let patterns = Patterns::new(&sequences, n_sites);
            for (m, sequence) in sequences.chunks(n_sites).enumerate() {
                let mut codes = Vec::new();
                for batch in &patterns.batches {
                    let rows = batch.rows[m];
                    for (group, row) in batch.groups.iter().zip(rows) {
                        let pattern = row - group.table.start as u16;
                        spell(&patterns, group.half, pattern, &mut codes);
                    }
                    let unused = &rows[batch.groups.len()..];
                    assert!(unused.iter().all(|row| usize::from(*row) == batch.blank));
                }
                assert_eq!(codes, sequence);
            }
            let in_groups: usize = patterns.nodes.iter().map(|node| node.pairs.len()).sum();
            let batches = patterns.batches.iter();
            let of_groups: usize = batches.map(|b| b.groups.len() * b.rows.len()).sum();
            assert!(in_groups + of_groups <= n * n_sites);
        }
    }
}
