//! What a call takes: tests/bench/run.sh calls compares it with C's.
// SPDX-License-Identifier: BSD-3-Clause
use libzero_sys::*;
use std::hint::black_box;
use std::mem::{size_of, zeroed};
use std::ptr::null_mut;
use std::time::Instant;

const ROUNDS: usize = 21;
const CALLS: u32 = 200_000;

fn time<T>(name: &str, call: impl Fn() -> T) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let from = Instant::now();
            for _ in 0..CALLS {
                black_box(call());
            }
            from.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
        })
        .collect();
    times.sort_by(|a, b| a.total_cmp(b));
    println!("{} {:.2}", name, times[ROUNDS / 2]);
}

fn main() {
    let text = r#"{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}"#;
    let w = b"w\0".as_ptr() as *const _;
    unsafe {
        let (mut config, mut model, mut comm, mut runtime) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut id, mut buffer): (zero_param_id, zero_buffer) = (0, zeroed());
        let (mut param, mut init): (zero_param_options, zero_init_options) = (zeroed(), zeroed());
        zero_param_options_init(&mut param, size_of::<zero_param_options>() as _);
        zero_init_options_init(&mut init, size_of::<zero_init_options>() as _);
        param.dtype = ZERO_DTYPE_FP32;
        let ok = [
            zero_config_load_text(text.as_ptr() as *const _, text.len() as u64, &mut config),
            zero_model_create(&mut model),
            zero_param_add(model, w, [1000i64].as_ptr(), 1, &param, &mut id),
            zero_comm_create_self(&mut comm),
        ];
        init.comm = comm;
        assert!(ok.iter().all(|status| *status == ZERO_OK), "{:?}", ok);
        assert_eq!(zero_init(config, &init, &mut runtime), ZERO_OK);
        assert_eq!(zero_shard_params(runtime, model), ZERO_OK);
        let (id, buffer) = (std::cell::UnsafeCell::new(id), std::cell::UnsafeCell::new(buffer));
        time("version_number", || zero_version_number());
        time("comm_rank", || zero_comm_rank(comm));
        time("step_count", || zero_step_count(runtime));
        time("loss_scale", || zero_loss_scale(runtime) as i64);
        time("param_find", || zero_param_find(runtime, w, id.get()));
        time("param_buffer", || zero_param_buffer(runtime, 0, buffer.get()));
        zero_runtime_destroy(runtime);
        zero_comm_destroy(comm);
        zero_model_destroy(model);
        zero_config_destroy(config);
    }
}
