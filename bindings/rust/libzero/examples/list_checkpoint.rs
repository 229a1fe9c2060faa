//! Prints what a checkpoint holds, with a checksum of every part: list_checkpoint FOLDER
// SPDX-License-Identifier: BSD-3-Clause
use libzero::{Checkpoint, Part};

/// Sum of (position from 1) * (bits), modulo 2^64: the same in every language.
fn checksum(values: &[f32]) -> u64 {
    let term = |(i, v): (usize, &f32)| (i as u64 + 1).wrapping_mul(u64::from(v.to_bits()));
    values.iter().enumerate().map(term).fold(0, u64::wrapping_add)
}

fn main() -> libzero::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_default();
    let mut checkpoint = Checkpoint::open(folder)?;
    checkpoint.verify()?;
    let info = checkpoint.describe()?;
    println!("step {}", info.step);
    for index in 0..info.param_count {
        let (name, shape, _) = checkpoint.param_at(index)?;
        let mut values = vec![0f32; shape.iter().product::<i64>() as usize];
        print!("{}", name);
        for (part, index) in [(Part::VALUE, 0), (Part::MASTER, 0), (Part::STATE, 0), (Part::STATE, 1)] {
            checkpoint.read(&name, part, index, 0, &mut values)?;
            print!(" {}", checksum(&values));
        }
        println!();
    }
    Ok(())
}
