//! Samples that are read tile by tile instead of being held, and that several processes may share.
//!
//! Sums over samples need them one tile after the other. A thread reads the next tiles while the
//! kernels work on one. Where a tile is little work, two of them are summed over side by side, so that
//! no thread waits for the end of one, or for memory that another core has written. Tiles and the parts
//! that they are added up by depend on the number of samples and units alone ([`TreeSum`]): any number of
//! ranks, threads and bytes of memory gives the same bits. Equal rows are not merged, so that sums over
//! the same samples in memory may differ in their last digits.
//!
//! With several ranks, rank 0 fits. The others [`serve`]: they hear which sum is wanted, and add up
//! their own parts.

pub(crate) mod request;

use crate::Result;
use crate::bits::{Samples, States, n_active};
use crate::blocks::part;
use crate::error::{Error, check_data};
use crate::flow::{MarginSum, Terms};
use crate::kernel::{Algorithm, DENSE_TILE, Tile, choose_for_tiles};
use crate::preflight::bytes_of_fit;
use mpf_core::{Ranks, TreeSum};
use rayon::prelude::*;
use request::Request;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts that sums are added up by, at most: more ranks have nothing to do.
const PARTS: usize = 1024;
/// Fewest and most samples of a tile, and about as many entries as it has between these.
const TILE_ROWS: (usize, usize) = (8192, 65_536);
const TILE_ENTRIES: usize = 1 << 24;
/// Tiles that are read ahead.
const READ_AHEAD: usize = 2;
/// Fewer units than these are little work: their tiles are summed over in two lanes.
const FEW_UNITS: usize = 512;

/// Where the samples of a [`Stream`] are: a file, most likely.
pub trait RowSource: Send + Sync {
    /// Returns the number of units.
    fn n_units(&self) -> usize;

    /// Returns the number of samples.
    fn n_samples(&self) -> usize;

    /// Returns whether samples have weights.
    fn has_weights(&self) -> bool;

    /// Appends the samples of `rows`, and their weights if they have any.
    ///
    /// # Errors
    /// What is wrong, and where.
    fn read(
        &self,
        rows: Range<usize>,
        states: &mut States,
        weights: &mut Vec<f64>,
    ) -> Result<(), String>;
}

/// Samples that are read as they are needed, all or a part of them.
///
/// ```
/// use mpf_core::OneProcess;
/// use mpf_ising::{Couplings, Exact, Fitter, Samples, States, Stream};
/// use ndarray::array;
/// use std::sync::Arc;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(20_000, 1);
/// let fitter: Fitter = Fitter::default();
/// let held = fitter.fit(&Samples::new(&states)?)?;
/// // `States` are a source too, for tests.
/// let stream = Stream::new(Arc::new(states), Arc::new(OneProcess), 1 << 20)?;
/// let streamed = fitter.fit(&stream)?;
/// assert!(streamed.couplings.mean_square_error(&held.couplings) < 1e-18);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    shared: Arc<Shared>,
    /// The samples before and those after the ones that are left out.
    rows: [Range<usize>; 2],
    totals: Arc<Totals>,
}

/// What all parts of one stream have in common.
struct Shared {
    source: Arc<dyn RowSource>,
    ranks: Arc<dyn Ranks>,
    tile_rows: usize,
    /// The first samples: they decide which algorithm is used.
    first: Samples,
    with_lists: bool,
    cache: Mutex<Cache>,
    failure: Mutex<Option<Error>>,
    /// The objectives so far, and the one that the other ranks know.
    n_objectives: AtomicU64,
    told: AtomicU64,
}

/// Tiles that stay in memory.
struct Cache {
    tiles: HashMap<usize, Tile>,
    room: usize,
}

/// Sums that a fit needs to know before it starts: the weight and the number of the samples, the
/// weight of those in which each unit is 1, and of those with each number of active units.
#[derive(Default)]
struct Totals(Vec<f64>);

/// The number of a tile, and the rows that are wanted of it.
type Wanted = (usize, Range<usize>);

/// A tile as it was kept, or its samples and weights as they were read.
enum Piece {
    Kept(Tile),
    Read(States, Option<Vec<f64>>),
}

/// Adds up something over the tiles of one part after the other.
pub(crate) trait Accumulate: Send {
    /// Adds a tile.
    fn add(&mut self, tile: &Tile);

    /// Returns the sum of the tiles since the last call.
    fn take(&mut self) -> Vec<f64>;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(source: Arc<dyn RowSource>, ranks: Arc<dyn Ranks>, memory: usize) -> Result<Self> {
        let (n, d) = (source.n_samples(), source.n_units());
        check_data(n, d)?;
        let tile_rows = tile_rows(n, d);
        let (first, with_lists) = first_tile(&*source)?;
        Ok(Self {
            source,
            ranks,
            tile_rows,
            first,
            with_lists,
            cache: Mutex::new(Cache {
                tiles: HashMap::new(),
                room: memory,
            }),
            failure: Mutex::new(None),
            n_objectives: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// Returns whether `rows` are a whole tile: such ones may stay in memory.
    fn is_whole(&self, number: usize, rows: &Range<usize>) -> bool {
        let start = number * self.tile_rows;
        *rows == (start..self.source.n_samples().min(start + self.tile_rows))
    }

    /// Returns the samples of `rows`, which lie within a tile.
    fn read(&self, number: usize, rows: Range<usize>) -> Result<Piece> {
        if self.is_whole(number, &rows)
            && let Some(tile) = lock(&self.cache).tiles.get(&number)
        {
            return Ok(Piece::Kept(tile.clone()));
        }
        let (states, weights) = read(&*self.source, rows)?;
        Ok(Piece::Read(states, weights))
    }

    /// Returns the tile of a piece, which stays in memory if it is whole and there is room.
    fn tile(&self, number: usize, rows: &Range<usize>, piece: Piece) -> Tile {
        let (states, weights) = match piece {
            Piece::Kept(tile) => return tile,
            Piece::Read(states, weights) => (states, weights),
        };
        let tile = Tile::new(Samples::unmerged(states, weights), self.with_lists);
        let mut cache = lock(&self.cache);
        if self.is_whole(number, rows)
            && let Some(left) = cache.room.checked_sub(tile.bytes())
        {
            cache.room = left;
            cache.tiles.insert(number, tile.clone());
        }
        tile
    }
}

/// Returns the rows of a tile.
fn tile_rows(n: usize, d: usize) -> usize {
    // At least 64 tiles where that leaves them large, so that few ranks share them evenly.
    let rows = (TILE_ENTRIES / d)
        .min(n / 64)
        .clamp(TILE_ROWS.0, TILE_ROWS.1);
    // Whole tiles of the kernels: sums in single precision are then those of samples in memory.
    rows.next_multiple_of(DENSE_TILE)
}

/// Returns the first tile, and whether tiles have lists of set bits.
fn first_tile(source: &dyn RowSource) -> Result<(Samples, bool)> {
    let (n, d) = (source.n_samples(), source.n_units());
    let (states, weights) = read(source, 0..n.min(tile_rows(n, d)))?;
    let first = Samples::unmerged(states, weights);
    let with_lists = choose_for_tiles(&first, d * d) == Algorithm::Sparse;
    Ok((first, with_lists))
}

/// Estimates the bytes that a streamed fit over `n_parameters` takes beside tiles that stay in memory, and
/// those that all tiles take if they stay.
///
/// # Errors
/// [`Error::Unreadable`].
pub fn bytes_of_stream(source: &dyn RowSource, n_parameters: usize) -> Result<(usize, usize)> {
    /// Tiles of a lane: those that are read ahead, the next one, and the one it works on.
    const TILES: usize = READ_AHEAD + 2;
    const LANES: usize = 2;
    let (first, with_lists) = first_tile(source)?;
    let (rows, others) = (
        first.n_distinct(),
        bytes_of_fit(&first, n_parameters) - first.bytes(),
    );
    let tile = Tile::new(first, with_lists).bytes();
    let all = tile as f64 * source.n_samples() as f64 / rows.max(1) as f64;
    Ok((others + LANES * TILES * tile, all as usize))
}

/// Reads samples and their weights, if they have any; those without weight are left out.
fn read(source: &dyn RowSource, rows: Range<usize>) -> Result<(States, Option<Vec<f64>>)> {
    let mut states = States::without_samples(source.n_units());
    states.reserve(rows.len());
    let mut weights = Vec::new();
    let found = source.read(rows, &mut states, &mut weights);
    found.map_err(|what| Error::Unreadable { what })?;
    if !source.has_weights() {
        return Ok((states, None));
    }
    let mut kept = States::without_samples(source.n_units());
    for (row, weight) in states.rows().zip(&weights) {
        if *weight > 0.0 {
            kept.push(row);
        }
    }
    weights.retain(|weight| *weight > 0.0);
    Ok((kept, Some(weights)))
}

impl Stream {
    /// Opens all samples of `source`, of which this process keeps up to `memory` bytes from one
    /// evaluation to the next. Reads them once. With several ranks, this is for rank 0; the others
    /// [`serve`].
    ///
    /// # Errors
    /// [`Error::NoData`], [`Error::Unreadable`]; [`Error::NoWeight`] and [`Error::WeightSum`].
    pub fn new(source: Arc<dyn RowSource>, ranks: Arc<dyn Ranks>, memory: usize) -> Result<Self> {
        let n = source.n_samples();
        let shared = Arc::new(Shared::new(source, ranks, memory)?);
        Self::of_rows(shared, [0..n, n..n])
    }

    fn of_rows(shared: Arc<Shared>, rows: [Range<usize>; 2]) -> Result<Self> {
        let mut stream = Self {
            totals: Arc::default(),
            shared,
            rows,
        };
        stream.tell(&Request::Totals {
            rows: stream.rows.clone(),
        });
        let mut totals = Totals::of_units(stream.n_units());
        let sums = stream.add_up(vec![&mut totals])?.unwrap_or_default();
        stream.totals = Arc::new(Totals(sums));
        crate::bits::check_sum(stream.total_weight())?;
        Ok(stream)
    }

    /// Returns the samples without those of `left_out`, and those alone.
    ///
    /// # Errors
    /// As [`Stream::new`].
    pub fn split(&self, left_out: Range<usize>) -> Result<(Self, Self)> {
        let n = self.shared.source.n_samples();
        let rest = [0..left_out.start, left_out.end..n];
        Ok((
            Self::of_rows(self.shared.clone(), rest)?,
            Self::of_rows(self.shared.clone(), [left_out, n..n])?,
        ))
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.shared.source.n_units()
    }

    /// Returns the number of samples, those without weight too.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns the number of samples with weight.
    pub fn n_observed(&self) -> usize {
        self.totals.0[1] as usize
    }

    /// Returns the sum of all weights: M for plain data.
    pub fn total_weight(&self) -> f64 {
        self.totals.0[0]
    }

    /// Returns the number of samples that the weights stand for: see [`Samples::n_effective`].
    pub fn n_effective(&self) -> f64 {
        self.total_weight().max(self.totals.0[1])
    }

    /// Returns the weighted mean of every unit.
    pub fn means(&self) -> Vec<f64> {
        let sums = self.totals.0[2..].iter().take(self.n_units());
        sums.map(|sum| sum / self.total_weight()).collect()
    }

    /// Returns the weight of the samples with each number of active units.
    pub(crate) fn count_weights(&self) -> &[f64] {
        &self.totals.0[2 + self.n_units()..]
    }

    /// Returns whether samples have weights.
    pub fn has_weights(&self) -> bool {
        self.shared.source.has_weights()
    }

    /// Returns `n` samples that are spread evenly over all of them; fewer if there are fewer.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::NoData`].
    pub fn spread(&self, n: usize) -> Result<Samples> {
        let (states, weights) = self.read_spread(n)?;
        match self.has_weights() {
            true => Samples::weighted(&states, &weights),
            false => Samples::new(&states),
        }
    }

    /// As [`Stream::spread`], every sample by itself, in order and without its weight.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn spread_states(&self, n: usize) -> Result<States> {
        Ok(self.read_spread(n)?.0)
    }

    fn read_spread(&self, n: usize) -> Result<(States, Vec<f64>)> {
        let all = self.n_rows();
        let n = n.min(all);
        let wanted: Vec<usize> = (0..n)
            .map(|k| (k * all + all / 2) / n)
            .map(|at| match at.checked_sub(self.rows[0].len()) {
                None => self.rows[0].start + at,
                Some(after) => self.rows[1].start + after,
            })
            .collect();
        let mut states = States::without_samples(self.n_units());
        let mut weights = Vec::new();
        // Those of one tile at once: a source may have to read more than it returns.
        for rows in wanted.chunk_by(|a, b| a / self.shared.tile_rows == b / self.shared.tile_rows) {
            let (first, last) = (rows[0], rows[rows.len() - 1]);
            let (mut found, mut of_found) = (States::without_samples(self.n_units()), Vec::new());
            let source = &self.shared.source;
            let read = source.read(first..last + 1, &mut found, &mut of_found);
            read.map_err(|what| Error::Unreadable { what })?;
            for row in rows {
                states.push(found.row(row - first));
                weights.extend(of_found.get(row - first));
            }
        }
        Ok((states, weights))
    }

    /// Returns the first samples, like which the others are taken to be where an algorithm is chosen.
    pub(crate) fn first(&self) -> &Samples {
        &self.shared.first
    }

    /// Returns the tiles of all ranks with the rows that are wanted of them, in order.
    fn tiles(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let size = self.shared.tile_rows;
        let of_range = move |rows: &Range<usize>| {
            let rows = rows.clone();
            (rows.start / size..rows.end.div_ceil(size)).map(move |number| {
                let start = (number * size).max(rows.start);
                (number, start..((number + 1) * size).min(rows.end))
            })
        };
        let wanted = self.rows.iter().filter(|rows| !rows.is_empty());
        wanted.flat_map(of_range)
    }

    /// Returns the number of lanes that sums of terms have.
    pub(crate) fn n_lanes(&self) -> usize {
        if self.n_units() < FEW_UNITS { 2 } else { 1 }
    }

    /// Adds up the parts of this rank, and those of the others; `None` on other ranks than 0. Every lane
    /// takes as many of the parts of this rank.
    fn add_up(&self, lanes: Vec<&mut dyn Accumulate>) -> Result<Option<Vec<f64>>> {
        let tiles: Vec<_> = self.tiles().collect();
        let n_parts = tiles.len().min(PARTS);
        let own = self.shared.ranks.own_parts(n_parts);
        let n_lanes = lanes.len();
        let trees = lanes.into_par_iter().enumerate().map(|(lane, sum)| {
            let range = part(own.len(), n_lanes, lane);
            let parts = own.start + range.start..own.start + range.end;
            let parts = parts.map(|number| (number, &tiles[part(tiles.len(), n_parts, number)]));
            self.add_parts(&parts.collect::<Vec<_>>(), sum)
        });
        let mut all = TreeSum::default();
        for tree in trees.collect::<Vec<Result<TreeSum>>>() {
            all.append(tree?);
        }
        Ok(self.shared.ranks.add_up(all))
    }

    /// Adds up an objective that is prepared, in all its lanes.
    fn add_up_lanes(&self, objective: &mut MarginSum<'_>) -> Result<Option<Vec<f64>>> {
        let mut other = objective.other.take();
        let mut lanes: Vec<&mut dyn Accumulate> = vec![&mut *objective];
        lanes.extend(other.as_deref_mut().map(|lane| lane as &mut dyn Accumulate));
        let sum = self.add_up(lanes);
        objective.other = other;
        sum
    }

    /// Adds up some parts: their numbers, and their tiles with the rows that are wanted of them.
    fn add_parts(&self, parts: &[(usize, &[Wanted])], sum: &mut dyn Accumulate) -> Result<TreeSum> {
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(READ_AHEAD);
            scope.spawn(move || {
                for (number, rows) in parts.iter().flat_map(|(_, tiles)| *tiles) {
                    let piece = self.shared.read(*number, rows.clone());
                    let is_last = piece.is_err();
                    if sender.send(piece).is_err() || is_last {
                        return;
                    }
                }
            });
            let mut tree = TreeSum::default();
            for (part, tiles) in parts {
                for ((number, rows), piece) in tiles.iter().zip(&receiver) {
                    let tile = self.shared.tile(*number, rows, piece?);
                    if tile.samples.n_distinct() > 0 {
                        sum.add(&tile);
                    }
                }
                tree.push(*part, sum.take());
            }
            Ok(tree)
        })
    }

    fn tell(&self, request: &Request) {
        if self.shared.ranks.n_ranks() > 1 {
            mpf_core::tell(&*self.shared.ranks, request).expect("a request can be encoded");
        }
    }

    /// Returns the number of a new objective over this stream.
    pub(crate) fn new_objective(&self) -> u64 {
        self.shared.n_objectives.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the sum of objective `number` at `theta` over all samples of all ranks. `None` if the
    /// samples cannot be read: [`Stream::check`] then says why.
    pub(crate) fn sum(
        &self,
        number: u64,
        theta: &[f64],
        objective: &mut MarginSum<'_>,
    ) -> Option<Vec<f64>> {
        // A minimiser would try again.
        if lock(&self.shared.failure).is_some() {
            return None;
        }
        if self.shared.told.swap(number, Ordering::Relaxed) != number {
            self.tell(&objective.request(self.rows.clone()));
        }
        self.tell(&Request::Sum(objective.precision()));
        if self.shared.ranks.n_ranks() > 1 {
            self.shared.ranks.tell(theta.to_vec());
        }
        match self.add_up_lanes(objective) {
            Ok(sum) => sum,
            Err(error) => {
                *lock(&self.shared.failure) = Some(error);
                None
            }
        }
    }

    /// Returns the error of a sum that had none to return.
    ///
    /// # Errors
    /// [`Error::Unreadable`], once.
    pub(crate) fn check(&self) -> Result<()> {
        lock(&self.shared.failure).take().map_or(Ok(()), Err)
    }

    /// Lets the other ranks end. Nothing may be computed after this.
    pub fn dismiss(&self) {
        self.tell(&Request::End);
    }
}

/// Adds up what rank 0 asks for, on another rank, until it [dismisses](Stream::dismiss) all.
///
/// # Errors
/// As [`Stream::new`].
pub fn serve(source: Arc<dyn RowSource>, ranks: Arc<dyn Ranks>, memory: usize) -> Result<()> {
    let shared = Arc::new(Shared::new(source, ranks, memory)?);
    let hear = || mpf_core::hear(&*shared.ranks);
    let stream_of = |rows: &[Range<usize>; 2]| Stream {
        shared: shared.clone(),
        rows: rows.clone(),
        totals: Arc::default(),
    };
    let mut request = hear()?;
    loop {
        request = match request {
            Request::End => return Ok(()),
            Request::Totals { rows } => {
                let stream = stream_of(&rows);
                stream.add_up(vec![&mut Totals::of_units(stream.n_units())])?;
                hear()?
            }
            Request::Objective(objective) => {
                let stream = stream_of(&objective.rows);
                let data = Data::Stream(&stream);
                let mut terms = Terms::of(data, 0..stream.n_units(), objective.pairs);
                terms.potential = objective.potential.map(Arc::new);
                let mut sum = MarginSum::new(terms, objective.loss);
                loop {
                    match hear()? {
                        Request::Sum(precision) => {
                            sum.prepare(&shared.ranks.tell(Vec::new()), precision);
                            stream.add_up_lanes(&mut sum)?;
                        }
                        other => break other,
                    }
                }
            }
            Request::Sum(_) => unreachable!("a sum of an objective"),
        };
    }
}

impl Totals {
    fn of_units(n_units: usize) -> Self {
        Self(vec![0.0; 2 + n_units + n_units + 1])
    }
}

impl Accumulate for Totals {
    fn add(&mut self, tile: &Tile) {
        let samples = &tile.samples;
        let (sums, counts) = self.0.split_at_mut(2 + samples.n_units());
        sums[0] += samples.total_weight();
        sums[1] += samples.n_distinct() as f64;
        for (sum, weight) in sums[2..].iter_mut().zip(samples.unit_weights()) {
            *sum += weight;
        }
        for (m, row) in samples.states().rows().enumerate() {
            counts[n_active(row)] += samples.weight(m);
        }
    }

    fn take(&mut self) -> Vec<f64> {
        let empty = vec![0.0; self.0.len()];
        std::mem::replace(&mut self.0, empty)
    }
}

/// All samples in memory: for tests, and to compare with.
impl RowSource for States {
    fn n_units(&self) -> usize {
        self.n_units()
    }

    fn n_samples(&self) -> usize {
        self.n_samples()
    }

    fn has_weights(&self) -> bool {
        false
    }

    fn read(
        &self,
        rows: Range<usize>,
        states: &mut States,
        _: &mut Vec<f64>,
    ) -> Result<(), String> {
        rows.for_each(|row| states.push(self.row(row)));
        Ok(())
    }
}

/// The data of a fit: in memory, or streamed.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// Distinct samples, held.
    Samples(&'a Samples),
    /// Samples that are read as they are needed.
    Stream(&'a Stream),
}

impl<'a> From<&'a Samples> for Data<'a> {
    fn from(samples: &'a Samples) -> Self {
        Self::Samples(samples)
    }
}

impl<'a> From<&'a Stream> for Data<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self::Stream(stream)
    }
}

impl<'a> Data<'a> {
    /// Returns the number of units.
    pub fn n_units(self) -> usize {
        self.samples().n_units()
    }

    /// Returns the number of samples that the weights stand for: see [`Samples::n_effective`].
    pub fn n_effective(self) -> f64 {
        match self {
            Self::Samples(samples) => samples.n_effective(),
            Self::Stream(stream) => stream.n_effective(),
        }
    }

    /// Returns the sum of all weights.
    pub fn total_weight(self) -> f64 {
        match self {
            Self::Samples(samples) => samples.total_weight(),
            Self::Stream(stream) => stream.total_weight(),
        }
    }

    /// Returns the weighted mean of every unit.
    pub fn means(self) -> Vec<f64> {
        match self {
            Self::Samples(samples) => samples.means(),
            Self::Stream(stream) => stream.means(),
        }
    }

    /// Returns the samples; of a stream the first ones.
    pub(crate) fn samples(self) -> &'a Samples {
        match self {
            Self::Samples(samples) => samples,
            Self::Stream(stream) => stream.first(),
        }
    }

    pub(crate) fn stream(self) -> Option<&'a Stream> {
        match self {
            Self::Samples(_) => None,
            Self::Stream(stream) => Some(stream),
        }
    }
}
