//! A runtime of one rank and of two, its state, and its misuse. Names start with what they are about:
//! state_, misuse_, ranks_, report_.
// SPDX-License-Identifier: BSD-3-Clause
use libzero::checked::Init;
use libzero::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

fn config(stage: i32, optimizer: &str) -> Config {
    let text = format!(
        r#"{{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": {{"stage": {}}},
            "optimizer": {{"type": "{}", "params": {{"lr": 0.1}}}}}}"#,
        stage, optimizer
    );
    Config::parse(&text).unwrap()
}

fn adam(stage: i32) -> Config {
    let mut made = config(stage, "AdamW");
    made.set("optimizer.params.weight_decay", "0").unwrap();
    made
}

fn alone<'a>(config: &Config, values: &'a [f32]) -> (Runtime<'a>, ParamId) {
    let mut model = Model::new().unwrap();
    let w = model.add("w", &[values.len() as i64], values, &ParamOptions::default()).unwrap();
    let mut runtime = Runtime::new(config, Some(&Comm::alone().unwrap())).unwrap();
    runtime.shard(model).unwrap();
    (runtime, w)
}

fn two_ranks<T: Send + 'static>(work: fn(i32, &Comm) -> T) -> Vec<T> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let group = format!("rust-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
    let threads: Vec<_> = (0..2)
        .map(|rank| {
            let group = group.clone();
            std::thread::spawn(move || {
                let comm = Comm::local(&group, rank, 2, Duration::from_secs(60)).unwrap();
                work(rank, &comm)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

// ---- state -------------------------------------------------------------------------------------------

#[test]
fn state_moments_survive_a_clamped_parameter() {
    let (mut runtime, w) = alone(&adam(1), &[5.0; 4]);
    let mut values = [0f32; 4];
    for _ in 0..2 {
        runtime.submit(w, &[0.5f32; 4]).unwrap();
        runtime.step().unwrap();
        runtime.get(w, Part::VALUE, 0, &mut values).unwrap();
        runtime.set(w, Part::VALUE, 0, &values.map(|x| x.clamp(-1.0, 1.0))).unwrap();
    }
    let (mut m, mut v) = ([0f32; 4], [0f32; 4]);
    runtime.get(w, Part::STATE, 0, &mut m).unwrap();
    runtime.get(w, Part::STATE, 1, &mut v).unwrap();
    assert_eq!(runtime.step_count(), 2);
    assert!(m.iter().all(|x| (x - 0.095).abs() < 1e-8), "{:?}", m);
    assert!(v.iter().all(|x| (x - 0.00049975).abs() < 1e-10), "{:?}", v);
}

#[test]
fn state_master_and_moments_are_readable_at_every_stage() {
    fn work(rank: i32, comm: &Comm) -> Vec<Vec<f32>> {
        let values = vec![1f32; 35];
        let mut found = Vec::new();
        for stage in 0..4 {
            let mut model = Model::new().unwrap();
            let w = model.add("w", &[5, 7], &values, &ParamOptions::default()).unwrap();
            let mut runtime = Runtime::new(&adam(stage), Some(comm)).unwrap();
            runtime.shard(model).unwrap();
            for _ in 0..2 {
                runtime.submit(w, &vec![rank as f32 + 0.5; 35]).unwrap();
                runtime.step().unwrap();
            }
            for (part, index) in [(Part::VALUE, 0), (Part::MASTER, 0), (Part::STATE, 0), (Part::STATE, 1)] {
                let mut whole = vec![0f32; 35];
                runtime.get(w, part, index, &mut whole).unwrap();
                found.push(whole);
            }
            runtime.close().unwrap();
        }
        found
    }
    for found in two_ranks(work) {
        for stage in 0..4 {
            let (value, master, m, v) = (&found[4 * stage], &found[4 * stage + 1], &found[4 * stage + 2], &found[4 * stage + 3]);
            assert!(m.iter().all(|x| (x - 0.19).abs() < 1e-7), "{:?}", m);
            assert!(v.iter().all(|x| (x - 0.001999).abs() < 1e-9), "{:?}", v);
            assert!(value == master && value == &found[0]);
        }
    }
}

#[test]
fn state_an_optimizer_of_the_programs_own_updates_its_shards() {
    let text = r#"{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": 1},
                   "optimizer": {"type": "libzero.host", "params": {"states": 1}}}"#;
    let (mut runtime, w) = alone(&Config::parse(text).unwrap(), &[1.0; 4]);
    runtime.submit(w, &[2f32; 4]).unwrap();
    runtime.step_begin().unwrap();
    runtime
        .update_shard(w, 1, |gradient, master, states| {
            for i in 0..gradient.len() {
                states[0][i] += gradient[i];
                master[i] -= 0.25 * states[0][i];
            }
        })
        .unwrap();
    runtime.step_end().unwrap();
    assert_eq!(runtime.param::<f32>(w).unwrap(), [0.5; 4]);
}

#[test]
fn state_the_callers_slice_is_kept_up_to_date() {
    let mut values = vec![1f32; 8];
    {
        let mut model = Model::new().unwrap();
        let w = model.add_in_place("w", &[8], &mut values, &ParamOptions::default()).unwrap();
        let mut runtime = Runtime::new(&adam(2), Some(&Comm::alone().unwrap())).unwrap();
        runtime.shard(model).unwrap();
        runtime.write_gradient::<f32>(w, |gradient, add| {
            assert!(!add);
            gradient.iter_mut().for_each(|g| *g = 1.0);
        }).unwrap();
        runtime.step().unwrap();
        runtime.close().unwrap();
    }
    assert!(values.iter().all(|x| (x - 0.9).abs() < 1e-6), "{:?}", values);
}

#[test]
fn state_loans_are_guards() {
    let (mut runtime, w) = alone(&adam(3), &[1.0, 2.0, 3.0]);
    {
        let loan = runtime.loan(&[w]).unwrap();
        assert_eq!(loan.get::<f32>(0).unwrap(), [1.0, 2.0, 3.0]);
        assert!(runtime.text().unwrap().contains("1 loan"), "{}", runtime.text().unwrap());
    }
    assert!(runtime.text().unwrap().contains("0 loans"), "{}", runtime.text().unwrap());
    let mut loan = runtime.loan_mut(&[w]).unwrap();
    loan.get_mut::<f32>(0).unwrap()[1] = 7.0;
    loan.keep().unwrap();
    let mut values = [0f32; 3];
    runtime.get(w, Part::VALUE, 0, &mut values).unwrap();
    assert_eq!(values, [1.0, 7.0, 3.0]);
    runtime.loan(&[w]).unwrap().release().unwrap();
}

// ---- misuse --------------------------------------------------------------------------------------------

#[test]
fn misuse_a_wrong_dtype_is_an_error() {
    let (mut runtime, w) = alone(&adam(1), &[1.0; 4]);
    assert_eq!(runtime.submit(w, &[1f64; 4]).unwrap_err().family(), Family::Call);
    assert_eq!(runtime.submit(w, &[1i32; 4]).unwrap_err().family(), Family::Call);
    assert!(runtime.param::<i32>(w).is_err());
    assert!(runtime.get(w, Part::VALUE, 0, &mut [0f64; 4]).is_err());
    assert!(runtime.set(w, Part::STATE, 0, &[0f64; 4]).is_err());
    assert!(runtime.loan(&[w]).unwrap().get::<f64>(0).is_err());
    runtime.submit(w, &[1f32; 4]).unwrap();
    assert_eq!(runtime.step().unwrap().step, 1);
}

#[test]
fn misuse_a_wrong_size_is_an_error() {
    let (mut runtime, w) = alone(&adam(1), &[1.0; 4]);
    assert!(runtime.submit(w, &[1f32; 3]).is_err());
    assert!(runtime.get(w, Part::VALUE, 0, &mut [0f32; 5]).is_err());
    assert!(runtime.set(w, Part::VALUE, 0, &[0f32; 3]).is_err());
    assert!(runtime.loan(&[w]).unwrap().get::<f32>(1).is_err());
    assert!(Model::new().unwrap().add("w", &[2, 2], &[0f32; 3], &ParamOptions::default()).is_err());
    assert!(runtime.submit(ParamId(9), &[1f32; 4]).is_err());
    assert!(runtime.find("no such").unwrap_err().message.contains("no such"));
}

#[test]
fn misuse_a_gradient_within_a_gradient_is_an_error() {
    let (runtime, w) = alone(&adam(1), &[1.0; 4]);
    runtime
        .write_gradient::<f32>(w, |gradient, _| {
            assert!(runtime.write_gradient::<f32>(w, |_, _| ()).is_err());
            gradient[0] = 1.0;
        })
        .unwrap();
}

struct Broken(&'static str);
impl Transport for Broken {
    fn all_gather(&self, _: &[u8], _: &mut [u8]) -> Result<()> {
        self.fail()
    }
    fn all_to_all(&self, _: &[u8], _: &mut [u8]) -> Result<()> {
        self.fail()
    }
}
impl Broken {
    fn fail(&self) -> Result<()> {
        match self.0 {
            "panic" => panic!("the cable"),
            text => Err(Error::user(text)),
        }
    }
}

#[test]
fn misuse_a_panic_in_a_callback_is_an_error() {
    let comm = Comm::user(0, 2, Box::new(Broken("panic"))).unwrap();
    let error = comm.barrier().unwrap_err();
    assert!(error.family() == Family::User && error.message.contains("the cable"), "{}", error);
    let comm = Comm::user(0, 2, Box::new(Broken("no carrier"))).unwrap();
    let error = comm.all_reduce(&mut [1.0], Reduce::SUM).unwrap_err();
    assert!(error.status == libzero_sys::ZERO_ERR_USER && error.message.contains("no carrier"), "{}", error);
}

#[test]
fn misuse_a_panic_with_an_open_loan_unwinds() {
    let (runtime, w) = alone(&adam(3), &[1.0; 4]);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _loan = runtime.loan(&[w]).unwrap();
        panic!("in the middle");
    }));
    assert!(caught.is_err() && runtime.text().unwrap().contains("0 loans"));
}

#[test]
fn misuse_a_gradient_dropped_right_after_submit_was_read() {
    let zeros = vec![0f32; 50_000];
    let (mut runtime, w) = alone(&config(2, "SGD"), &zeros);
    let gradient = vec![10f32; 50_000];
    runtime.submit(w, &gradient).unwrap();
    drop(gradient);
    let again = vec![f32::NAN; 50_000];
    runtime.step().unwrap();
    drop(again);
    assert!(runtime.param::<f32>(w).unwrap().iter().all(|x| *x == -1.0));
}

#[test]
fn misuse_handles_are_dropped_in_any_order() {
    let values = [3f32; 4];
    let comm = Comm::alone().unwrap();
    let mut model = Model::new().unwrap();
    let w = model.add("w", &[4], &values, &ParamOptions::default()).unwrap();
    let made = adam(1);
    let mut runtime = Runtime::new(&made, Some(&comm)).unwrap();
    drop(made);
    drop(comm);
    runtime.shard(model).unwrap();
    assert_eq!(runtime.param::<f32>(w).unwrap(), values);
    drop(runtime);
    let (live, _) = alone(&adam(1), &values);
    std::mem::forget(live); // a process may end with it
}

#[test]
fn misuse_a_process_that_ends_with_a_live_runtime_ends() {
    let name = "misuse_a_process_that_ends_with_a_live_runtime_ends";
    if let Ok(ending) = std::env::var("LIBZERO_CHILD") {
        let values = vec![1f32; 1000];
        let (runtime, w) = alone(&adam(2), &values);
        runtime.submit(w, &values).unwrap();
        if ending == "panic" {
            panic!("with a live runtime");
        }
        std::process::exit(5);
    }
    for (ending, code) in [("exit", 5), ("panic", 101)] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let done = child.args(["--exact", name]).env("LIBZERO_CHILD", ending).output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{}: {:?}", ending, done);
    }
}

#[test]
fn misuse_a_nul_in_a_name_is_an_error() {
    let error = Model::new().unwrap().add("a\0b", &[1], &[0f32], &ParamOptions::default()).unwrap_err();
    assert!(error.message.contains("NUL"), "{}", error);
}

#[test]
fn misuse_unknown_numbers_are_numbers() {
    assert_eq!(DType(999).bytes(), None);
    let error = Error { ..Error::user("x") };
    assert_eq!(Error { status: 12345, ..error }.family(), Family::Unknown);
    let (runtime, w) = alone(&adam(1), &[1.0; 4]);
    assert!(runtime.get(w, Part(77), 0, &mut [0f32; 4]).is_err());
    assert!(runtime.memory(12345).is_err());
}

// ---- ranks -----------------------------------------------------------------------------------------------

#[test]
fn ranks_a_runtime_is_sent_to_another_thread() {
    let (mut runtime, w) = alone(&config(1, "SGD"), &[0.0; 4]);
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                runtime.submit(w, &[10f32; 4]).unwrap();
                runtime.step().unwrap();
                runtime.close().unwrap();
            })
            .join()
            .unwrap();
    });
}

struct Pair {
    rank: usize,
    meet: Arc<Barrier>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}
impl Pair {
    fn swap(&self, send: &[u8], place: impl FnOnce(&[Vec<u8>])) {
        self.sent.lock().unwrap()[self.rank] = send.to_vec();
        self.meet.wait();
        place(&self.sent.lock().unwrap());
        self.meet.wait();
    }
}
impl Transport for Pair {
    fn all_gather(&self, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.swap(send, |all| recv.copy_from_slice(&all.concat()));
        Ok(())
    }
    fn all_to_all(&self, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let half = recv.len() / 2;
        let from = self.rank * half;
        self.swap(send, |all| {
            recv[..half].copy_from_slice(&all[0][from..from + half]);
            recv[half..].copy_from_slice(&all[1][from..from + half]);
        });
        Ok(())
    }
}

#[test]
fn ranks_a_transport_of_the_programs_own_gives_the_same_bits() {
    fn trained(rank: i32, comm: &Comm) -> Vec<u32> {
        let values: Vec<f32> = (0..100).map(|i| i as f32 / 7.0).collect();
        let mut made = adam(2);
        made.set("zero_optimization.overlap_comm", "false").unwrap();
        let mut model = Model::new().unwrap();
        let w = model.add("w", &[100], &values, &ParamOptions::default()).unwrap();
        let mut runtime = Runtime::new(&made, Some(comm)).unwrap();
        runtime.shard(model).unwrap();
        for step in 0..3 {
            let gradient: Vec<f32> = (0..100).map(|i| ((i * 7 + step * 13 + rank * 5) % 17) as f32 / 16.0 - 0.5).collect();
            runtime.submit(w, &gradient).unwrap();
            runtime.step().unwrap();
        }
        let bits = runtime.param::<f32>(w).unwrap().iter().map(|x| x.to_bits()).collect();
        runtime.close().unwrap();
        bits
    }
    let (meet, sent) = (Arc::new(Barrier::new(2)), Arc::new(Mutex::new(vec![Vec::new(), Vec::new()])));
    let threads: Vec<_> = (0..2)
        .map(|rank| {
            let pair = Pair { rank, meet: meet.clone(), sent: sent.clone() };
            std::thread::spawn(move || trained(rank as i32, &Comm::user(rank as i32, 2, Box::new(pair)).unwrap()))
        })
        .collect();
    let own: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let local = two_ranks(trained);
    assert!(own[0] == own[1] && own == local);
}

#[test]
fn ranks_doubles_are_reduced_in_place() {
    let found = two_ranks(|rank, comm| {
        let mut values = [1.0 + 2.0 * rank as f64, rank as f64];
        comm.all_reduce(&mut values, Reduce::SUM).unwrap();
        let mut bytes = [rank as u8; 3];
        comm.broadcast(&mut bytes, 1).unwrap();
        comm.barrier().unwrap();
        (values[0], values[1], bytes, comm.rank(), comm.size())
    });
    assert_eq!(found, [(4.0, 1.0, [1; 3], 0, 2), (4.0, 1.0, [1; 3], 1, 2)]);
}

// ---- reports -----------------------------------------------------------------------------------------------

#[test]
fn report_log_lines_go_to_a_callback() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut model = Model::new().unwrap();
    let values = [1f32; 4];
    model.add("w", &[4], &values, &ParamOptions::default()).unwrap();
    let mut runtime = Runtime::new(&adam(1), Some(&Comm::alone().unwrap())).unwrap();
    let kept = lines.clone();
    runtime.on_log(move |level, text| kept.lock().unwrap().push((level, text.to_owned())));
    runtime.shard(model).unwrap();
    runtime.close().unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.iter().any(|(level, text)| *level == Level::INFO && text.contains("stage 1")), "{:?}", lines);
}

#[test]
fn report_configs_are_read_set_and_explained() {
    let mut made = adam(2);
    assert_eq!(made.get("zero_optimization.stage").unwrap(), "2");
    assert_eq!(made.origin("zero_optimization.stage").unwrap(), "file");
    made.check().unwrap();
    let error = made.set("zero_optimisation.stage", "1").unwrap_err();
    assert!(error.family() == Family::Config && error.name() == "ZERO_ERR_CONFIG_UNKNOWN_KEY", "{:?}", error);
    let mut wrong = Config::parse(r#"{"train_batch_size": 1, "zero_optimization": {"stage": 9}}"#).unwrap();
    assert!(wrong.check().is_err());
    assert!(wrong.findings().unwrap().iter().any(|d| d.is_error && !d.message.is_empty()));
    let mut auto = Config::parse(r#"{"train_micro_batch_size_per_gpu": "auto"}"#).unwrap();
    let mut facts = libzero_sys::zero_config_facts::init();
    facts.micro_batch_size = 3;
    auto.fill_auto(&facts).unwrap();
    assert_eq!(auto.get("train_micro_batch_size_per_gpu").unwrap(), "3");
    assert!(Config::load("/no/such/file").unwrap_err().message.contains("/no/such/file"));
}

#[test]
fn report_a_plan_needs_no_rank() {
    let mut model = Model::new().unwrap();
    for i in 0..12 {
        model.add_zeros(&format!("w{}", i), &[300, 300], DType::FP32, &ParamOptions::default()).unwrap();
    }
    let total = |stage| Plan::new(&adam(stage), &model, 4).unwrap().memory(0, libzero_sys::ZERO_MEMORY_TOTAL).unwrap();
    assert!(total(1) < total(0), "{} {}", total(1), total(0));
    assert!(Plan::new(&adam(2), &model, 4).unwrap().text().unwrap().contains("stage"));
}
