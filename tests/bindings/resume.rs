//! resume.c in Rust: zero run -n N -- resume CONFIG OUT CHECKPOINT...
// SPDX-License-Identifier: BSD-3-Clause
use libzero::{Checkpoint, Config, DType, Model, ParamId, ParamOptions, Part, Runtime};

const SHAPES: [(&str, &[i64]); 5] =
    [("embed", &[128, 16]), ("w1", &[64, 64]), ("b1", &[64]), ("w2", &[64, 128]), ("b2", &[128])];

fn elements(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

fn checksum(runtime: &Runtime<'_>, id: ParamId, count: usize, part: Part, index: i32) -> libzero::Result<u64> {
    let mut values = vec![0f32; count];
    runtime.get(id, part, index, &mut values)?;
    let term = |(i, v): (usize, &f32)| (i as u64 + 1).wrapping_mul(u64::from(v.to_bits()));
    Ok(values.iter().enumerate().map(term).fold(0, u64::wrapping_add))
}

fn resume(config: &Config, path: &str, out: Option<&String>) -> libzero::Result<()> {
    let mut model = Model::new()?;
    let mut ids = Vec::new();
    for (name, shape) in SHAPES {
        ids.push(model.add_zeros(name, shape, DType::FP32, &ParamOptions::default())?);
    }
    let mut runtime = Runtime::new(config, None)?;
    runtime.shard(model)?;
    runtime.load(&Checkpoint::open(path)?, None)?;
    if let Some(out) = out {
        runtime.save(out, false)?;
    }
    let mut lines = vec![format!("step {}", runtime.step_count())];
    for (id, (name, shape)) in ids.iter().zip(SHAPES) {
        let mut line = name.to_owned();
        for (part, index) in [(Part::VALUE, 0), (Part::MASTER, 0), (Part::STATE, 0), (Part::STATE, 1)] {
            line += &format!(" {}", checksum(&runtime, *id, elements(shape), part, index)?);
        }
        lines.push(line);
    }
    for (number, (id, (_, shape))) in ids.iter().zip(SHAPES).enumerate().rev() {
        let gradient: Vec<f32> =
            (0..elements(shape)).map(|i| ((i * 7 + number * 13) % 17) as f32 / 16.0 - 0.5).collect();
        runtime.submit(*id, &gradient)?;
    }
    runtime.step()?;
    for (id, (name, shape)) in ids.iter().zip(SHAPES) {
        lines.push(format!("then {} {}", name, checksum(&runtime, *id, elements(shape), Part::VALUE, 0)?));
    }
    if runtime.rank_and_size().0 == 0 {
        println!("{}", lines.join("\n"));
    }
    runtime.close()
}

fn main() -> libzero::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let config = Config::load(&arguments[1])?;
    let paths = &arguments[3..];
    for (i, path) in paths.iter().enumerate() {
        resume(&config, path, if i + 1 == paths.len() { Some(&arguments[2]) } else { None })?;
    }
    Ok(())
}
