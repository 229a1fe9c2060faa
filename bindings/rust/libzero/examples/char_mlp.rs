//! A character model in plain Rust: four characters in, the next one out, at every ZeRO stage.
//!
//!     zero run -n 2 -- char_mlp bindings/examples/char_mlp.json TEXT
//!
//! The stage is a line of the JSON file. Parameters are whole only while a loan lives, layer by layer,
//! so the same loop runs at stage 3. LIBZERO_RECORD=FOLDER keeps weights and gradients.
// SPDX-License-Identifier: BSD-3-Clause
use libzero::{Config, Model, ParamId, ParamOptions, Part, Reduce, Runtime};
use std::error::Error;
use std::path::PathBuf;

const VOCABULARY: usize = 128;
const CONTEXT: usize = 4;
const EMBEDDING: usize = 16;
const INPUT: usize = CONTEXT * EMBEDDING;
const HIDDEN: usize = 64;
const ROWS: usize = 64;
const SHAPES: [(&str, &[i64]); 5] =
    [("embed", &[128, 16]), ("w1", &[64, 64]), ("b1", &[64]), ("w2", &[64, 128]), ("b2", &[128])];

/// The same numbers in every language; biases start at zero.
fn initial(number: u64, shape: &[i64]) -> Vec<f32> {
    let count = shape.iter().product::<i64>() as u64;
    let value = |i: u64| {
        let bits = (i * 2654435761 + number * 40503) % (1 << 32);
        ((bits as f64 / 4294967296.0 - 0.5) * 0.5) as f32
    };
    (0..count).map(|i| if shape.len() == 1 { 0.0 } else { value(i) }).collect()
}

/// out += a (m x k) times b (k x n), row by row.
fn matmul(a: &[f32], b: &[f32], out: &mut [f32], m: usize, k: usize, n: usize) {
    for i in 0..m {
        for l in 0..k {
            let scale = a[i * k + l];
            for (o, x) in out[i * n..(i + 1) * n].iter_mut().zip(&b[l * n..(l + 1) * n]) {
                *o += scale * x;
            }
        }
    }
}

fn transposed(a: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0f32; a.len()];
    for i in 0..rows {
        for j in 0..columns {
            out[j * rows + i] = a[i * columns + j];
        }
    }
    out
}

fn column_sums(a: &[f32], columns: usize) -> Vec<f32> {
    let mut out = vec![0f32; columns];
    for row in a.chunks_exact(columns) {
        out.iter_mut().zip(row).for_each(|(o, x)| *o += x);
    }
    out
}

struct Ids {
    embed: ParamId,
    layer1: [ParamId; 2],
    layer2: [ParamId; 2],
}

/// Forward and backward of one micro-batch: the loss, and gradients in registration order.
fn train_batch(runtime: &Runtime<'_>, ids: &Ids, text: &[u8], number: usize) -> libzero::Result<(f64, [Vec<f32>; 5])> {
    let start = |row: usize| (number * ROWS + row) * 7919 % (text.len() - CONTEXT);
    let at = |row: usize, c: usize| (text[start(row) + c] & 127) as usize;

    let mut x = vec![0f32; ROWS * INPUT];
    let loan = runtime.loan(&[ids.embed])?;
    let embed = loan.get::<f32>(0)?;
    for row in 0..ROWS {
        for c in 0..CONTEXT {
            let to = row * INPUT + c * EMBEDDING;
            x[to..to + EMBEDDING].copy_from_slice(&embed[at(row, c) * EMBEDDING..][..EMBEDDING]);
        }
    }
    loan.release()?;

    let loan = runtime.loan(&ids.layer1)?;
    let mut h: Vec<f32> = loan.get::<f32>(1)?.repeat(ROWS);
    matmul(&x, loan.get(0)?, &mut h, ROWS, INPUT, HIDDEN);
    h.iter_mut().for_each(|v| *v = v.tanh());
    loan.release()?;

    let loan = runtime.loan(&ids.layer2)?;
    let w2 = loan.get::<f32>(0)?;
    let mut p: Vec<f32> = loan.get::<f32>(1)?.repeat(ROWS);
    matmul(&h, w2, &mut p, ROWS, HIDDEN, VOCABULARY);
    let mut loss = 0f64;
    for (row, logits) in p.chunks_exact_mut(VOCABULARY).enumerate() {
        let largest = logits.iter().cloned().fold(f32::MIN, f32::max);
        logits.iter_mut().for_each(|v| *v = (*v - largest).exp());
        let sum: f32 = logits.iter().sum();
        loss -= f64::from((logits[at(row, CONTEXT)] / sum).ln());
        logits.iter_mut().for_each(|v| *v /= sum * ROWS as f32);
        logits[at(row, CONTEXT)] -= 1.0 / ROWS as f32;
    }
    let b2_grad = column_sums(&p, VOCABULARY);
    let mut w2_grad = vec![0f32; HIDDEN * VOCABULARY];
    matmul(&transposed(&h, ROWS, HIDDEN), &p, &mut w2_grad, HIDDEN, ROWS, VOCABULARY);
    let mut d = vec![0f32; ROWS * HIDDEN];
    matmul(&p, &transposed(w2, HIDDEN, VOCABULARY), &mut d, ROWS, VOCABULARY, HIDDEN);
    d.iter_mut().zip(&h).for_each(|(d, h)| *d *= 1.0 - h * h);
    loan.release()?;
    runtime.submit(ids.layer2[1], &b2_grad)?;
    runtime.submit(ids.layer2[0], &w2_grad)?;

    let loan = runtime.loan(&ids.layer1)?;
    let b1_grad = column_sums(&d, HIDDEN);
    let mut w1_grad = vec![0f32; INPUT * HIDDEN];
    matmul(&transposed(&x, ROWS, INPUT), &d, &mut w1_grad, INPUT, ROWS, HIDDEN);
    let mut dx = vec![0f32; ROWS * INPUT];
    matmul(&d, &transposed(loan.get(0)?, INPUT, HIDDEN), &mut dx, ROWS, HIDDEN, INPUT);
    loan.release()?;
    runtime.submit(ids.layer1[1], &b1_grad)?;
    runtime.submit(ids.layer1[0], &w1_grad)?;

    let mut embed_grad = vec![0f32; VOCABULARY * EMBEDDING];
    for row in 0..ROWS {
        for c in 0..CONTEXT {
            let from = &dx[row * INPUT + c * EMBEDDING..][..EMBEDDING];
            let to = &mut embed_grad[at(row, c) * EMBEDDING..][..EMBEDDING];
            to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
        }
    }
    runtime.submit(ids.embed, &embed_grad)?;
    Ok((loss / ROWS as f64, [embed_grad, w1_grad, b1_grad, w2_grad, b2_grad]))
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let config = Config::load(arguments.get(1).ok_or("char_mlp CONFIG TEXT")?)?;
    let text = std::fs::read(arguments.get(2).ok_or("char_mlp CONFIG TEXT")?)?;
    let record = std::env::var_os("LIBZERO_RECORD").map(PathBuf::from);
    let steps = 60;

    let values: Vec<Vec<f32>> = SHAPES.iter().enumerate().map(|(i, (_, shape))| initial(i as u64, shape)).collect();
    let mut model = Model::new()?;
    let mut ids = Vec::new();
    for (i, (name, shape)) in SHAPES.iter().enumerate() {
        let options = ParamOptions { unit: Some([0, 1, 1, 2, 2][i]), ..Default::default() };
        ids.push(model.add(name, shape, &values[i], &options)?);
    }
    let named = Ids { embed: ids[0], layer1: [ids[1], ids[2]], layer2: [ids[3], ids[4]] };
    let mut runtime = Runtime::new(&config, None)?;
    runtime.shard(model)?;
    let (rank, size) = runtime.rank_and_size();

    let mut kept = Vec::new();
    for step in 0..steps {
        let (loss, gradients) = train_batch(&runtime, &named, &text, (step * size + rank) as usize)?;
        let info = runtime.step()?;
        let mut mean = [loss];
        runtime.all_reduce(&mut mean, Reduce::SUM)?;
        if rank == 0 && (step % 20 == 0 || step == steps - 1) {
            println!("step {} loss {:.4} norm {:.4}", step, mean[0] / size as f64, info.grad_norm);
        }
        kept.extend(gradients.iter().flat_map(|g| bytes(g)));
    }
    let mut last = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        let mut whole = vec![0f32; values[i].len()];
        runtime.get(*id, Part::VALUE, 0, &mut whole)?;
        last.extend(bytes(&whole));
    }
    if let Some(folder) = record {
        std::fs::write(folder.join(format!("gradients-{}.bin", rank)), kept)?;
        if rank == 0 {
            std::fs::write(folder.join("initial.bin"), values.iter().flat_map(|v| bytes(v)).collect::<Vec<u8>>())?;
            std::fs::write(folder.join("final.bin"), last)?;
        }
    }
    runtime.close()?;
    Ok(())
}
