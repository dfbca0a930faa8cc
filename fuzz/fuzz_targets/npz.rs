#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mpf_fuzz::npz(bytes));
