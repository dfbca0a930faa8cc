//! Interrupted runs, observers, settings and full disks.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file in memory whose writes can be made to fail.
#[derive(Clone, Default)]
struct Memory {
    bytes: Arc<Mutex<Option<Vec<u8>>>>,
    full: Arc<Mutex<bool>>,
    complaints: Arc<AtomicUsize>,
}

impl CheckpointStore for Memory {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes.lock().unwrap().clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.bytes.lock().unwrap() = Some(bytes.to_vec());
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        *self.bytes.lock().unwrap() = None;
        Ok(())
    }

    fn failed(&self, _: &io::Error) {
        self.complaints.fetch_add(1, Ordering::Relaxed);
    }
}

fn settings(seed: u64) -> Settings {
    Settings::new("try").with("--seed", seed)
}

fn open(file: &Memory, every: Duration, cancel: &Cancel) -> Checkpoint {
    Checkpoint::new(file.clone(), settings(1), every, cancel)
}

/// Works on three units; each counts to four and can be interrupted in between.
fn run(checkpoint: &Checkpoint, cancel: &Cancel, worked: &mut Vec<String>) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for name in ["a", "b", "c"] {
        found.push(checkpoint.unit(name, |entry| -> Result<f64> {
            let (mut n, mut sum) = entry.resume()?.unwrap_or((0u32, 0.1f64));
            while n < 4 && !cancel.is_cancelled() {
                n += 1;
                sum = 3.0 * sum + 0.7;
                worked.push(format!("{name}{n}"));
                entry.entry("seen").note(worked.len());
                entry.offer(|| (n, sum));
            }
            entry.note((n, sum));
            Ok(sum)
        })?);
    }
    Ok(found)
}

#[test]
fn a_run_that_was_cut_short_anywhere_is_resumed_where_it_was() {
    let (off, never) = (Checkpoint::default(), Cancel::new());
    let mut worked = Vec::new();
    let whole = run(&off, &never, &mut worked).unwrap();
    assert_eq!(worked.len(), 12);

    for stop in 1..12 {
        let kept = {
            let again = Memory::default();
            let cancel = Cancel::new();
            let checkpoint = open(&again, Duration::from_secs(3600), &cancel);
            let mut count = 0;
            for name in ["a", "b", "c"] {
                let _ = checkpoint.unit(name, |entry| -> Result<f64> {
                    let mut sum = 0.1f64;
                    for n in 1..=4u32 {
                        if count == stop {
                            cancel.cancel();
                            break;
                        }
                        count += 1;
                        sum = 3.0 * sum + 0.7;
                        entry.note((n, sum));
                    }
                    Ok(sum)
                });
            }
            checkpoint.write().unwrap();
            again
        };
        let second = open(&kept, Duration::ZERO, &never);
        assert!(second.load().unwrap());
        let mut after = Vec::new();
        let resumed = run(&second, &never, &mut after).unwrap();
        assert_eq!(after.len(), 12 - stop, "stopped after {stop}");
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&resumed), bits(&whole));
    }
}

#[test]
fn what_an_observer_noted_is_written_with_the_state_that_follows() {
    let file = Memory::default();
    let checkpoint = open(&file, Duration::ZERO, &Cancel::new());
    checkpoint.entry("curve").note(vec![1.0, 2.0]);
    assert_eq!(file.read().unwrap(), None);
    checkpoint.entry("fit").offer(|| 2u8);
    let again = open(&file, Duration::ZERO, &Cancel::new());
    assert!(again.load().unwrap());
    assert_eq!(again.entry("curve").resume().unwrap(), Some(vec![1.0, 2.0]));
    assert_eq!(again.entry("fit").resume().unwrap(), Some(2u8));
    assert_eq!(again.entry("other").resume::<u8>().unwrap(), None);
    assert_eq!(again.progress(), "curve under way, fit under way");
    assert!(again.entry("fit").resume::<String>().is_err());
    again.remove().unwrap();
    assert_eq!(file.read().unwrap(), None);
}

#[test]
fn other_settings_are_refused_by_name() {
    let file = Memory::default();
    open(&file, Duration::ZERO, &Cancel::new()).write().unwrap();
    let others = [
        (settings(2), "--seed was 1 and is 2"),
        (Settings::new("try"), "--seed was 1 and is not given"),
        (
            Settings::new("do").with("--seed", 1),
            "the command was try and is do",
        ),
    ];
    for (other, expected) in others {
        let other = Checkpoint::new(file.clone(), other, Duration::ZERO, &Cancel::new());
        let message = other.load().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let same = open(&file, Duration::ZERO, &Cancel::new());
    assert!(same.load().unwrap());
}

#[test]
fn a_full_disk_is_reported_once_and_stops_nothing() {
    let file = Memory::default();
    *file.full.lock().unwrap() = true;
    let checkpoint = open(&file, Duration::ZERO, &Cancel::new());
    for step in 0..3u8 {
        checkpoint.offer(|| step);
    }
    assert_eq!(file.complaints.load(Ordering::Relaxed), 1);
    assert!(checkpoint.write().is_err());
    *file.full.lock().unwrap() = false;
    checkpoint.write_if_due();
    assert_eq!(checkpoint.resume().unwrap(), Some(2u8));
    assert!(file.read().unwrap().is_some());
}

#[test]
fn nothing_is_computed_for_a_checkpoint_that_is_off_or_not_due() {
    Checkpoint::default().offer(|| -> u8 { panic!("not asked for") });
    let file = Memory::default();
    let patient = open(&file, Duration::from_secs(3600), &Cancel::new());
    patient.offer(|| -> u8 { panic!("not due") });
}
